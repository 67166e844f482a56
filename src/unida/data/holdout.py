"""Source images that training does not see, to calibrate confidence on."""

import numpy as np

from unida.data.samples import Samples
from unida.types import IntArray
from unida.utils.rng import derive_seed

FEWEST_OF_CLASS = 20
"""A class with fewer images keeps all of them for training."""
FEWEST = 50
"""Where fewer images would be held out in all, none is: they would tell too little."""


def hold_out(samples: Samples, share: float, seed: int) -> tuple[IntArray, IntArray]:
    """Numbers of the images to train on and of those held out, both rising.

    Of every class that is large enough the same share is drawn, each from a stream of its own, so
    that a class more does not change the draw of another.
    """
    assert samples.labels is not None
    held = np.zeros(len(samples), dtype=bool)
    order = np.argsort(samples.labels, kind="stable")
    ends = np.bincount(samples.labels, minlength=len(samples.classes)).cumsum()
    for name, index in zip(samples.classes, np.split(order, ends[:-1]), strict=True):
        if len(index) >= FEWEST_OF_CLASS:
            draw = np.random.default_rng(derive_seed(seed, "holdout", name))
            held[draw.permutation(index)[: round(share * len(index))]] = True
    if held.sum() < FEWEST:
        held[:] = False
    return np.flatnonzero(~held), np.flatnonzero(held)
