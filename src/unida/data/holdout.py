"""Source images kept out of training, to calibrate confidence on."""

import numpy as np

from unida.data.samples import Samples
from unida.types import IntArray
from unida.utils.rng import derive_seed

MIN_CLASS_IMAGES = 20
"""A class with fewer images keeps all of them for training."""
MIN_HELD_OUT = 50
"""Where fewer images would be held out in all, none is: the estimate would be too rough."""


def hold_out(samples: Samples, share: float, seed: int) -> tuple[IntArray, IntArray]:
    """Split image indices into those to train on and those held out, both rising.

    Of every class that is large enough the same share is drawn, each from a stream of its own, so
    that a class more does not change the draw of another.
    """
    assert samples.labels is not None
    held = np.zeros(len(samples), dtype=bool)
    order = np.argsort(samples.labels, kind="stable")
    ends = np.bincount(samples.labels, minlength=len(samples.classes)).cumsum()
    for name, index in zip(samples.classes, np.split(order, ends[:-1]), strict=True):
        if len(index) >= MIN_CLASS_IMAGES:
            draw = np.random.default_rng(derive_seed(seed, "holdout", name))
            held[draw.permutation(index)[: round(share * len(index))]] = True
    if held.sum() < MIN_HELD_OUT:
        held[:] = False
    return np.flatnonzero(~held), np.flatnonzero(held)
