"""Settings searched without target labels.

Lives here: the search space, the Optuna study and the choice of a trial.
Does not live here: the criteria (`unida.evaluation.selection`).
"""
