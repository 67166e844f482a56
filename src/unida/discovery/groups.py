"""What the ways of grouping share: anchors, centres, distances. Arrays in, arrays out."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from unida.types import FloatArray, IntArray

Features = npt.NDArray[np.float32]

PART = 20_000
"""Rows whose distances are held at a time."""


@dataclass(frozen=True)
class ClassMeans:
    """Images of known classes in the same directions as the rejected ones.

    Attributes:
        features: (M, D); there may be none.
        labels: their classes.
    """

    features: Features
    labels: IntArray


@dataclass(frozen=True)
class Groups:
    """What a way found.

    Attributes:
        centres: (K, D), of the novel categories; at least one.
        known: (C, D), of groups of known images: a rejected image that is nearest to one of these
            is in no category. None where the way does not look at anchors.
    """

    centres: Features
    known: Features


def unit(x: Features) -> Features:
    """Rows of length one; a row of zeros stays."""
    length = np.linalg.norm(x, axis=1, keepdims=True)
    return np.asarray(x / np.where(length == 0, 1, length), dtype=np.float32)


def means(x: Features, labels: IntArray, count: int) -> Features:
    """(count, D): the mean row of each label from 0; of a label without a row, zeros."""
    sums = np.zeros((count, x.shape[1]))
    np.add.at(sums, labels, x)
    rows = np.bincount(labels, minlength=count)[:, None]
    return np.asarray(sums / np.maximum(rows, 1), dtype=np.float32)


def nearest(x: Features, centres: Features, count: int) -> tuple[IntArray, FloatArray]:
    """The `count` nearest centres of each row, nearest first, and the distances to them."""
    count = min(count, len(centres))
    numbers, far = np.empty((len(x), count), np.int64), np.empty((len(x), count))
    for start in range(0, len(x), PART):
        part = slice(start, start + PART)
        squares = distances(x[part], centres)
        order = np.argsort(squares, axis=1, kind="stable")[:, :count]
        numbers[part], far[part] = order, np.take_along_axis(squares, order, 1)
    return numbers, np.sqrt(far)


def distances(x: Features, centres: Features) -> FloatArray:
    """(N, K), squared; in double precision, so that a row lies at its own centre."""
    a, b = x.astype(np.float64), centres.astype(np.float64)
    squares = (a**2).sum(1)[:, None] - 2 * a @ b.T + (b**2).sum(1)
    return np.asarray(np.maximum(squares, 0))


def lloyd(x: Features, anchors: ClassMeans, start: Groups, rounds: int = 20) -> Groups:
    """Semi-supervised k-means: rejected images move freely, anchors keep their class's centre.

    Args:
        x: (N, D), the rejected images.
        anchors: their labels are the row of `start.known` each belongs to.
        start: centres to begin with. A centre that loses all its images stays where it is.
        rounds: at most.
    """
    centres = np.concatenate([start.known, start.centres])
    known, both = len(start.known), np.concatenate([anchors.features, x])
    labels = np.full(len(x), -1)
    for _ in range(rounds):
        before, labels = labels, distances(x, centres).argmin(1)
        if (before == labels).all():
            break
        of_all = np.concatenate([anchors.labels, labels])
        filled = np.bincount(of_all, minlength=len(centres)) > 0
        centres = np.where(filled[:, None], means(both, of_all, len(centres)), centres)
    used = np.bincount(labels, minlength=len(centres)) > 0
    novel = centres[known:][used[known:]]
    return Groups(novel if len(novel) else start.centres[:1], centres[:known])


def one_group(x: Features) -> Groups:
    """All rows are one category."""
    return Groups(x.mean(0, keepdims=True), x[:0])
