"""The training loop, the step, batches, the optimiser, the run folder and checkpoints.

Lives here: everything between a built method and its last optimiser step.
Does not live here: what is fitted afterwards (`unida.decision`), schedules (`utils/schedule.py`).
"""
