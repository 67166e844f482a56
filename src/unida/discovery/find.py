"""From features of rejected images to categories: pure functions on arrays.

Whatever the way, it is the same for all of them: a bounded sample is grouped, every image is given
to its nearest centre, and one that is far from all of them, or nearest to a known class, to none.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from unida.discovery.algorithms import SMALLEST, Way
from unida.discovery.groups import ClassMeans, Features, Groups, nearest, unit
from unida.types import FloatArray, IntArray
from unida.utils.chunking import subsample
from unida.utils.rng import derive_seed

FEWEST = 2 * SMALLEST
"""Images to look for categories in; among fewer, none is found."""
MOST_GROUPED = 4000
"""Rows that are grouped; all others are given to the nearest centre."""
REPEATS = 8
"""Half samples whose numbers of categories make the interval."""
NEIGHBOURS = 10
"""Centres that an image may belong to."""
FENCE = 1.5
"""Further than this many interquartile ranges above the upper quartile is far."""
REPRESENTATIVES = 9

NONE = 0
"""The category of an image that is in none."""


@dataclass(frozen=True)
class Categories:
    """Categories of N rejected images.

    Attributes:
        category: (N,), from 1 in falling size; `NONE` for none of these.
        confidence: (N,), how sure the category is (`verdicts` times `company`); 0 where none is.
        centres: (K, D), of the categories in their order, in unit rows.
        low: fewest categories seen in half samples, K at most.
        high: most, K at least.
    """

    category: IntArray
    confidence: FloatArray
    centres: Features
    low: int
    high: int


def find(features: Features, anchors: ClassMeans, way: Way, seed: int = 0) -> Categories:
    """Finds categories; the order of the rows has no say in the outcome.

    Args:
        features: (N, D), of the rejected images.
        anchors: images of known classes in the same directions.
        way: one of `unida.discovery.algorithms.WAYS`.
        seed: of all that is drawn.
    """
    if len(features) < FEWEST:
        nothing = np.zeros(len(features))
        return Categories(nothing.astype(np.int64), nothing, features[:0], 0, len(features))
    order = np.lexsort(features.T)
    x, known = unit(features[order]), _in_order(anchors)
    some = x[subsample(len(x), MOST_GROUPED, seed, "grouped")]
    groups = way(some, _share(known, len(some) / len(x), seed, "grouped"), seed)
    category, confidence, numbers = prior_labels(x, groups)
    halves = list(_halves(some, known, len(x), seed))
    anew = [way(half, anchors_of_half, seed) for half, anchors_of_half in halves]
    counts = [
        len(prior_labels(half, of_half)[2]) for (half, _), of_half in zip(halves, anew, strict=True)
    ]
    confidence = confidence * co_assignment_stability(x, category, anew)
    back = np.argsort(order)
    return Categories(
        category=category[back],
        confidence=confidence[back],
        centres=groups.centres[numbers],
        low=min(len(numbers), *counts),
        high=max(len(numbers), *counts),
    )


def class_means(
    features: Features,
    best: IntArray,
    accepted: npt.NDArray[np.bool_],
    source_features: Features,
    source_labels: IntArray,
) -> ClassMeans:
    """Images of known classes: target images that were accepted, so that the domain is the same.

    Where those are of fewer than two classes, the source, with its mean moved to the target's.

    Args:
        features: (N, D), of all target images.
        best: (N,), their most likely known classes.
        accepted: (N,), which were not rejected.
        source_features: (M, D).
        source_labels: (M,).
    """
    classes, counts = np.unique(best[accepted], return_counts=True)
    enough = classes[counts >= SMALLEST]
    if len(enough) >= 2 or not len(source_features):
        rows = accepted & np.isin(best, enough)
        return ClassMeans(features[rows], best[rows])
    return ClassMeans(source_features + features.mean(0) - source_features.mean(0), source_labels)


def prior_labels(x: Features, groups: Groups) -> tuple[IntArray, FloatArray, IntArray]:
    """Category and confidence of every row, and the groups that the categories are, in order.

    The confidence is that of round Gaussians of one width around the centres. The width is taken
    from the rows: their mean squared distance over the number of directions they differ in.
    """
    centres = np.concatenate([groups.centres, groups.known])
    numbers, far = nearest(x, centres, NEIGHBOURS)
    first, distance = numbers[:, 0], far[:, 0]
    variance = (distance**2).mean() / _directions(x - centres[first])
    logits = (far[:, :1] ** 2 - far**2) / (2 * max(variance, 1e-12))
    confidence = 1 / np.exp(logits).sum(1)
    inside = (first < len(groups.centres)) & (distance <= limits(first, distance, len(centres)))
    sizes = np.bincount(first[inside], minlength=len(groups.centres))
    by_size = np.argsort(-sizes, kind="stable")
    kept = by_size[sizes[by_size] >= SMALLEST]
    number = np.zeros(len(centres), np.int64)
    number[kept] = np.arange(1, len(kept) + 1)
    category = np.where(inside, number[first], NONE)
    return category, np.where(category == NONE, 0.0, confidence), kept


def co_assignment_stability(
    x: Features, category: IntArray, others: Sequence[Groups]
) -> FloatArray:
    """(N,), of the images a row is grouped with in other groupings, the share in its category.

    Only images in some category count; the mean over the groupings.

    Args:
        x: (N, D), unit rows.
        category: of each.
        others: such as those of half samples.
    """
    total = np.zeros(len(x))
    for groups in others:
        centres = np.concatenate([groups.centres, groups.known])
        group = nearest(x, centres, 1)[0][:, 0]
        counts = np.zeros((len(centres), category.max() + 1))
        np.add.at(counts, (group, category), 1)
        counts[:, NONE] = 0
        total += (counts / np.maximum(counts.sum(1, keepdims=True), 1))[group, category]
    return total / len(others)


def limits(group: IntArray, distance: FloatArray, count: int) -> FloatArray:
    """(N,), how far from its centre each row may be: outliers of their own group or of all.

    Scattered images may make a wide group of their own, so that own quartiles are not enough.
    """
    of_all = _fence(distance)
    by_group = np.full(count, of_all)
    for number in np.unique(group):
        by_group[number] = min(of_all, _fence(distance[group == number]))
    return np.asarray(by_group[group])


def representatives(x: Features, centre: Features, most: int = REPRESENTATIVES) -> IntArray:
    """Rows that show a category: the nearest to its centre, then ones unlike those chosen.

    They are chosen among the nearer half of the rows, the one furthest from all chosen ones first;
    one that is the same as a chosen row is left out.

    Args:
        x: (N, D), unit rows of the category's images.
        centre: (D,).
        most: rows to choose.
    """
    _, far = nearest(x, centre[None], 1)
    close = np.argsort(far[:, 0], kind="stable")[: max(most, (len(x) + 1) // 2)]
    chosen = [int(close[0])]
    apart = _apart(x, close, chosen[0])
    while len(chosen) < most and apart.max() > 1e-6:
        chosen.append(int(close[apart.argmax()]))
        apart = np.minimum(apart, _apart(x, close, chosen[-1]))
    return np.array(chosen)


def _apart(x: Features, rows: IntArray, row: int) -> FloatArray:
    return np.asarray(np.linalg.norm(x[rows].astype(np.float64) - x[row], axis=1))


def _halves(
    x: Features, anchors: ClassMeans, n: int, seed: int
) -> Iterator[tuple[Features, ClassMeans]]:
    """Half samples: what is found in them varies about as it does between whole samples.

    Of the known classes each sees half, for which they are is as much by chance; of the images of
    those, as large a share as of the n images in all.
    """
    size = max(FEWEST, len(x) // 2)
    for i in range(REPEATS):
        draw = np.random.default_rng(derive_seed(seed, "half", i))
        rows = np.sort(draw.choice(len(x), size, replace=False))
        classes = np.unique(anchors.labels)
        some = draw.choice(classes, max(min(2, len(classes)), len(classes) // 2), replace=False)
        kept = np.isin(anchors.labels, some)
        half = ClassMeans(anchors.features[kept], anchors.labels[kept])
        yield x[rows], _share(half, size / n, seed, f"half {i}")


def _share(anchors: ClassMeans, share: float, seed: int, name: str) -> ClassMeans:
    rows = subsample(
        len(anchors.labels), round(share * len(anchors.labels)), seed, f"anchors, {name}"
    )
    return ClassMeans(anchors.features[rows], anchors.labels[rows])


def _in_order(anchors: ClassMeans) -> ClassMeans:
    order = np.lexsort((*anchors.features.T, anchors.labels))
    return ClassMeans(unit(anchors.features[order]), anchors.labels[order])


def _directions(rest: Features) -> float:
    """How many directions rows differ in: (tr C)² / tr C² of their second moments C."""
    moments = rest.T.astype(np.float64) @ rest / len(rest)
    squares = float((moments**2).sum())
    return float(np.trace(moments)) ** 2 / squares if squares else 1.0


def _fence(distance: FloatArray) -> float:
    lower, upper = np.quantile(distance, (0.25, 0.75))
    return float(upper + FENCE * (upper - lower))
