"""Which images the page shows, and how doubtful each verdict is."""

import numpy as np

from unida.report.run_reader import PredictionTable
from unida.types import FloatArray, IntArray
from unida.utils.chunking import subsample

MOST_OF_TARGET = 10_000
MOST_OF_SOURCE = 1_000
MOST_ENDS = 60
"""Of a large target: the most doubtful and the surest images of a class that are always shown."""


def doubt_of(verdicts: PredictionTable, threshold: float, n_classes: int) -> FloatArray:
    """From 0, sure, to 1: how easily each verdict could have been another.

    An unknown score at the threshold could have fallen on either side; one so far away as few
    others on its side could not. Of a known class, low confidence is doubt as well.
    """
    away = np.nan_to_num(np.abs(verdicts.scores - threshold), nan=np.inf)
    unknown = verdicts.labels == n_classes
    near = np.zeros(len(verdicts))
    for side in (unknown, ~unknown):
        some = away[side & np.isfinite(away)]
        far = np.quantile(some, 0.95) if len(some) else 0.0
        if far > 0:
            near[side] = np.clip(1 - away[side] / far, 0, 1)
    return np.where(unknown, near, np.maximum(near, 1 - verdicts.confidence))


def choose(labels: IntArray, doubt: FloatArray, seed: int, most: int = MOST_OF_TARGET) -> IntArray:
    """Numbers of the target images to show, rising: all, or both ends of each class and a sample.

    Args:
        labels: the verdicts.
        doubt: in them.
        seed: of the sample.
        most: images there is room for.
    """
    if len(labels) <= most:
        return np.arange(len(labels))
    groups = [np.flatnonzero(labels == k) for k in np.unique(labels)]
    each = min(MOST_ENDS, most // (4 * len(groups)))  # the ends take half of the room at most
    ends = np.zeros(len(labels), bool)
    for members in groups:
        order = members[np.argsort(doubt[members], kind="stable")]
        ends[order[:each]] = True
        ends[order[len(order) - each :]] = True
    rest = np.flatnonzero(~ends)
    others = rest[subsample(len(rest), most - int(ends.sum()), seed, "report")]
    return np.sort(np.concatenate([np.flatnonzero(ends), others]))
