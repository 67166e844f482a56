"""How good a model is: metrics, evaluation, label-free selection, diagnostics.

Lives here: scores against true labels, criteria that need none, warnings about a run.
Does not live here: anything that changes a prediction.
"""
