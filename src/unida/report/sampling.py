"""Which images the page shows, and how doubtful each prediction is."""

import numpy as np

from unida.types import FloatArray, IntArray
from unida.utils.chunking import subsample

MAX_TARGET = 10_000
MAX_SOURCE = 1_000
MAX_EXTREMES = 60
"""Of a large target: most and least doubtful images of a class that are always shown."""


def prediction_doubt(
    labels: IntArray,
    confidence: FloatArray,
    unknown_score: FloatArray,
    threshold: float,
    unknown: int,
) -> FloatArray:
    """Return how doubtful predictions are, from 0 (sure) to 1.

    Doubt is the nearness of the unknown score to the threshold, relative to the other scores on its
    side; of a known class, low confidence is doubt as well.

    Args:
        labels: (N,), predicted labels.
        confidence: (N,), of the most likely known class.
        unknown_score: (N,).
        threshold: of the reject rule.
        unknown: the label that stands for unknown.
    """
    distance = np.nan_to_num(np.abs(unknown_score - threshold), nan=np.inf)
    rejected = labels == unknown
    nearness = np.zeros(len(labels))
    for side in (rejected, ~rejected):
        finite = distance[side & np.isfinite(distance)]
        scale = np.quantile(finite, 0.95) if len(finite) else 0.0
        if scale > 0:
            nearness[side] = np.clip(1 - distance[side] / scale, 0, 1)
    return np.where(rejected, nearness, np.maximum(nearness, 1 - confidence))


def sample_target(
    labels: IntArray, doubt: FloatArray, seed: int, most: int = MAX_TARGET
) -> IntArray:
    """Return rising rows of the images to show: all, or the extremes of each class and a sample.

    Args:
        labels: (N,), predicted labels.
        doubt: (N,), of the predictions.
        seed: of the sample.
        most: images to show at most.
    """
    if len(labels) <= most:
        return np.arange(len(labels))
    classes = [np.flatnonzero(labels == k) for k in np.unique(labels)]
    each = min(MAX_EXTREMES, most // (4 * len(classes)))  # extremes are at most half of the images
    extreme = np.zeros(len(labels), bool)
    for rows in classes:
        order = rows[np.argsort(doubt[rows], kind="stable")]
        extreme[order[:each]] = True
        extreme[order[len(order) - each :]] = True
    rest = np.flatnonzero(~extreme)
    others = rest[subsample(len(rest), most - int(extreme.sum()), seed, "report")]
    return np.sort(np.concatenate([np.flatnonzero(extreme), others]))
