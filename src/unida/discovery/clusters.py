"""Building blocks of clustering: rows of length one, means and distances."""

from dataclasses import dataclass

import numpy as np

from unida.types import Features, FloatArray, IntArray

CHUNK = 20_000
"""Rows whose distances are held in memory at a time."""


@dataclass(frozen=True)
class KnownFeatures:
    """Features of M images of known classes, in the same space as the rejected ones.

    Attributes:
        features: (M, D); M may be 0.
        labels: (M,), their classes.
    """

    features: Features
    labels: IntArray


def normalize_rows(x: Features) -> Features:
    """Scale rows to unit length; a row of zeros stays."""
    length = np.linalg.norm(x, axis=1, keepdims=True)
    return np.asarray(x / np.where(length == 0, 1, length), dtype=np.float32)


def cluster_means(x: Features, labels: IntArray, count: int) -> Features:
    """Return (count, D) means of the rows of each label; zeros for a label without a row."""
    sums = np.zeros((count, x.shape[1]))
    np.add.at(sums, labels, x)
    sizes = np.bincount(labels, minlength=count)[:, None]
    return np.asarray(sums / np.maximum(sizes, 1), dtype=np.float32)


def nearest(x: Features, centres: Features, count: int) -> tuple[IntArray, FloatArray]:
    """Return the `count` nearest centres of each row, nearest first, and their distances."""
    count = min(count, len(centres))
    index, distance = np.empty((len(x), count), np.int64), np.empty((len(x), count))
    for start in range(0, len(x), CHUNK):
        part = slice(start, start + CHUNK)
        squares = squared_distances(x[part], centres)
        order = np.argsort(squares, axis=1, kind="stable")[:, :count]
        index[part], distance[part] = order, np.take_along_axis(squares, order, 1)
    return index, np.sqrt(distance)


def squared_distances(x: Features, centres: Features) -> FloatArray:
    """Return (N, K) squared distances; double precision, so that a row lies at its own centre."""
    a, b = x.astype(np.float64), centres.astype(np.float64)
    squares = (a**2).sum(1)[:, None] - 2 * a @ b.T + (b**2).sum(1)
    return np.asarray(np.maximum(squares, 0))
