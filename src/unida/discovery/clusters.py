"""Building blocks of the clustering algorithms: centres, distances, semi-supervised k-means."""

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


@dataclass(frozen=True)
class Centres:
    """The result of a clustering algorithm.

    Attributes:
        novel: (K, D), cluster centres of novel categories; K is at least 1.
        known: (C, D), cluster centres of known images. A rejected image that is nearest to one of
            these is in no category. Empty where the algorithm does not cluster known images.
    """

    novel: Features
    known: Features

    @property
    def all(self) -> Features:
        return np.concatenate([self.novel, self.known])


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


def lloyd(x: Features, known: KnownFeatures, start: Centres, max_iter: int = 20) -> Centres:
    """Run semi-supervised k-means: rejected images move freely, known ones keep their cluster.

    Args:
        x: (N, D), the rejected images.
        known: their labels are the rows of `start.known` they belong to.
        start: initial centres. A centre that loses all its images stays where it is.
        max_iter: at most so many iterations.
    """
    centres, n_known = np.concatenate([start.known, start.novel]), len(start.known)
    both, labels = np.concatenate([known.features, x]), np.full(len(x), -1)
    for _ in range(max_iter):
        before, labels = labels, squared_distances(x, centres).argmin(1)
        if (before == labels).all():
            break
        all_labels = np.concatenate([known.labels, labels])
        filled = np.bincount(all_labels, minlength=len(centres)) > 0
        centres = np.where(filled[:, None], cluster_means(both, all_labels, len(centres)), centres)
    used = np.bincount(labels, minlength=len(centres)) > 0
    novel = centres[n_known:][used[n_known:]]
    return Centres(novel if len(novel) else start.novel[:1], centres[:n_known])


def single_cluster(x: Features) -> Centres:
    """Return one cluster of all rows."""
    return Centres(x.mean(0, keepdims=True), x[:0])
