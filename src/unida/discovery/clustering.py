"""From features of rejected images to categories: pure functions on arrays.

Every algorithm is used alike: a bounded sample is clustered, every image is assigned to its nearest
centre, and an image that is far from all of them, or nearest to a known class, is in no category.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from unida.discovery.algorithms import MIN_CATEGORY_SIZE, Algorithm
from unida.discovery.clusters import Centres, KnownFeatures, nearest, normalize_rows
from unida.types import Features, FloatArray, IntArray
from unida.utils.chunking import subsample
from unida.utils.rng import derive_seed

MIN_IMAGES = 2 * MIN_CATEGORY_SIZE
"""Among fewer images no category is found."""
MAX_CLUSTERED = 4000
"""Rows that are clustered; all others are assigned to the nearest centre."""
HALF_SAMPLES = 8
"""Half samples that the interval and the co-assignment stability are estimated from."""
MAX_CENTRES = 10
"""Nearest centres that the confidence is computed over."""
FENCE = 1.5
"""Outliers are further than this many interquartile ranges above the upper quartile (Tukey)."""
REPRESENTATIVES = 9

NO_CATEGORY = 0
"""The category of an image that is in none."""


@dataclass(frozen=True)
class Clustering:
    """Categories of N rejected images.

    Attributes:
        category: (N,), from 1 in falling size, or `NO_CATEGORY`.
        confidence: (N,), the probability of the category (`assign`) times its
            `co_assignment_stability`; 0 in no category.
        centres: (K, D), unit rows, of the categories in their order.
        low: fewest categories found in half samples, at most K.
        high: most categories found in half samples, at least K.
    """

    category: IntArray
    confidence: FloatArray
    centres: Features
    low: int
    high: int


def find_categories(
    features: Features, known: KnownFeatures, algorithm: Algorithm, seed: int = 0
) -> Clustering:
    """Cluster rejected images into categories; the result does not depend on the order of rows.

    Args:
        features: (N, D), of the rejected images.
        known: images of known classes in the same space.
        algorithm: one of `unida.discovery.algorithms.ALGORITHMS`.
        seed: of all random draws.
    """
    if len(features) < MIN_IMAGES:
        zeros = np.zeros(len(features))
        return Clustering(zeros.astype(np.int64), zeros, features[:0], 0, len(features))
    order = np.lexsort(features.T)
    x, known = normalize_rows(features[order]), _sort(known)
    sample = x[subsample(len(x), MAX_CLUSTERED, seed, "grouped")]
    centres = algorithm(sample, _thin(known, len(sample) / len(x), seed, "grouped"), seed)
    category, confidence, index = assign(x, centres)
    resampled, counts = [], []
    for half, known_half in _half_samples(sample, known, len(x), seed):
        resampled.append(algorithm(half, known_half, seed))
        counts.append(len(assign(half, resampled[-1])[2]))
    confidence = confidence * co_assignment_stability(x, category, resampled)
    back = np.argsort(order)
    return Clustering(
        category=category[back],
        confidence=confidence[back],
        centres=centres.novel[index],
        low=min(len(index), *counts),
        high=max(len(index), *counts),
    )


def select_known(
    features: Features,
    best: IntArray,
    accepted: npt.NDArray[np.bool_],
    source_features: Features,
    source_labels: IntArray,
) -> KnownFeatures:
    """Select images of known classes: accepted target images, so that the domain is the same.

    Where those are of fewer than two classes, the source is taken, its mean moved to the target's.

    Args:
        features: (N, D), of all target images.
        best: (N,), their most likely known classes.
        accepted: (N,), which were not rejected.
        source_features: (M, D).
        source_labels: (M,).
    """
    classes, counts = np.unique(best[accepted], return_counts=True)
    frequent = classes[counts >= MIN_CATEGORY_SIZE]
    if len(frequent) >= 2 or not len(source_features):
        rows = accepted & np.isin(best, frequent)
        return KnownFeatures(features[rows], best[rows])
    shift = features.mean(0) - source_features.mean(0)
    return KnownFeatures(source_features + shift, source_labels)


def assign(x: Features, centres: Centres) -> tuple[IntArray, FloatArray, IntArray]:
    """Assign rows to categories.

    The confidence is the posterior of isotropic Gaussians of one width around the centres. The
    width is estimated from the rows: their mean squared distance over their effective dimension.

    Returns:
        Category and confidence of every row, and the rows of `centres.novel` that the categories
        are, in their order.
    """
    index, distances = nearest(x, centres.all, MAX_CENTRES)
    first, distance = index[:, 0], distances[:, 0]
    variance = (distance**2).mean() / _effective_dimension(x - centres.all[first])
    logits = (distances[:, :1] ** 2 - distances**2) / (2 * max(variance, 1e-12))
    confidence = 1 / np.exp(logits).sum(1)
    limit = distance_limits(first, distance, len(centres.all))
    inside = (first < len(centres.novel)) & (distance <= limit)
    sizes = np.bincount(first[inside], minlength=len(centres.novel))
    by_size = np.argsort(-sizes, kind="stable")
    kept = by_size[sizes[by_size] >= MIN_CATEGORY_SIZE]
    number = np.zeros(len(centres.all), np.int64)
    number[kept] = np.arange(1, len(kept) + 1)
    category = np.where(inside, number[first], NO_CATEGORY)
    return category, np.where(category == NO_CATEGORY, 0.0, confidence), kept


def co_assignment_stability(
    x: Features, category: IntArray, clusterings: Sequence[Centres]
) -> FloatArray:
    """Return (N,) shares of the rows in the same cluster that are in the same category.

    Only rows in some category count. The mean is taken over the clusterings.

    Args:
        x: (N, D), unit rows.
        category: (N,).
        clusterings: of half samples.
    """
    total = np.zeros(len(x))
    for centres in clusterings:
        cluster = nearest(x, centres.all, 1)[0][:, 0]
        counts = np.zeros((len(centres.all), category.max() + 1))
        np.add.at(counts, (cluster, category), 1)
        counts[:, NO_CATEGORY] = 0
        total += (counts / np.maximum(counts.sum(1, keepdims=True), 1))[cluster, category]
    return total / len(clusterings)


def distance_limits(cluster: IntArray, distance: FloatArray, count: int) -> FloatArray:
    """Return (N,) distances beyond which a row is an outlier of its own cluster or of all.

    Scattered images may form a wide cluster, so the quartiles of a cluster alone are not enough.
    """
    overall = _fence(distance)
    limits = np.full(count, overall)
    for number in np.unique(cluster):
        limits[number] = min(overall, _fence(distance[cluster == number]))
    return np.asarray(limits[cluster])


def representatives(x: Features, centre: Features, most: int = REPRESENTATIVES) -> IntArray:
    """Select rows that show a category: the nearest to its centre, then the most different ones.

    They are chosen greedily among the nearer half of the rows, the one furthest from all chosen
    ones first; copies of a chosen row are left out.

    Args:
        x: (N, D), unit rows of the category's images.
        centre: (D,).
        most: rows to select at most.
    """
    _, distance = nearest(x, centre[None], 1)
    near = np.argsort(distance[:, 0], kind="stable")[: max(most, (len(x) + 1) // 2)]
    chosen = [int(near[0])]
    gap = _distance_to(x, near, chosen[0])
    while len(chosen) < most and gap.max() > 1e-6:
        chosen.append(int(near[gap.argmax()]))
        gap = np.minimum(gap, _distance_to(x, near, chosen[-1]))
    return np.array(chosen)


def _distance_to(x: Features, rows: IntArray, row: int) -> FloatArray:
    return np.asarray(np.linalg.norm(x[rows].astype(np.float64) - x[row], axis=1))


def _half_samples(
    x: Features, known: KnownFeatures, n: int, seed: int
) -> Iterator[tuple[Features, KnownFeatures]]:
    """Yield half samples: results on them vary about as much as between whole samples.

    Each has half of the known classes, which are as much a random choice; of their images it has
    the same share as of the n rejected images.
    """
    size = max(MIN_IMAGES, len(x) // 2)
    for i in range(HALF_SAMPLES):
        rng = np.random.default_rng(derive_seed(seed, "half", i))
        rows = np.sort(rng.choice(len(x), size, replace=False))
        classes = np.unique(known.labels)
        some = rng.choice(classes, max(min(2, len(classes)), len(classes) // 2), replace=False)
        kept = np.isin(known.labels, some)
        half = KnownFeatures(known.features[kept], known.labels[kept])
        yield x[rows], _thin(half, size / n, seed, f"half {i}")


def _thin(known: KnownFeatures, share: float, seed: int, name: str) -> KnownFeatures:
    n = len(known.labels)
    rows = subsample(n, round(share * n), seed, f"anchors, {name}")
    return KnownFeatures(known.features[rows], known.labels[rows])


def _sort(known: KnownFeatures) -> KnownFeatures:
    order = np.lexsort((*known.features.T, known.labels))
    return KnownFeatures(normalize_rows(known.features[order]), known.labels[order])


def _effective_dimension(residuals: Features) -> float:
    """Return (tr C)² / tr C² of the second moments C."""
    moments = residuals.T.astype(np.float64) @ residuals / len(residuals)
    squares = float((moments**2).sum())
    return float(np.trace(moments)) ** 2 / squares if squares else 1.0


def _fence(distance: FloatArray) -> float:
    lower, upper = np.quantile(distance, (0.25, 0.75))
    return float(upper + FENCE * (upper - lower))
