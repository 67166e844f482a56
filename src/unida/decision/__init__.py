"""Outputs → labels: refinement on the target, rejection, calibration, ensembling.

The stages run in this order: `Method.predict` → `Outputs` → refiner → reject rule → temperature →
label. Each is fitted once after training, without target labels, and works for every method.
Does not live here: training, scores against true labels.
"""
