"""From features of rejected images to categories: pure functions on arrays.

A bounded sample is diffused over its neighbours, the categories are counted, and k-means with that
number follows. Every image is assigned to its nearest centre; one that is far from all of them is
in no category.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from sklearn.cluster import KMeans

from unida.discovery.clusters import KnownFeatures, nearest, normalize_rows
from unida.discovery.diffusion import diffuse, diffuse_more
from unida.discovery.number import MIN_CATEGORY_SIZE, Number, count_categories
from unida.types import Features, FloatArray, IntArray
from unida.utils.chunking import subsample
from unida.utils.rng import derive_seed

MIN_IMAGES = 2 * MIN_CATEGORY_SIZE
"""Among fewer images no category is found."""
MAX_CLUSTERED = 4000
"""Rejected images that are clustered; all others are assigned to the nearest centre."""
MAX_KNOWN = 2000
"""Known images that are clustered with them."""
STARTS = 5
"""Starts of k-means."""
HALF_SAMPLES = 8
"""Half samples that the co-assignment stability is estimated from."""
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
        centres: (K, D), of the categories in their order, in the space of `diffused`.
        diffused: (N, D), the features that were clustered, unit rows.
        low: lower end of the interval for the number of categories, at most K.
        high: upper end, at least K.
        note: why the features do not support a number; empty where they do.
    """

    category: IntArray
    confidence: FloatArray
    centres: Features
    diffused: Features
    low: int
    high: int
    note: str = ""


def find_categories(
    features: Features, known: KnownFeatures, seed: int = 0, count: int | None = None
) -> Clustering:
    """Cluster rejected images into categories; the result does not depend on the order of rows.

    Args:
        features: (N, D), of the rejected images.
        known: images of known classes in the same space.
        seed: of all random draws.
        count: of categories, where it is known; else it is estimated.
    """
    if len(features) < MIN_IMAGES:
        zeros = np.zeros(len(features))
        few = f"{len(features)} images are too few"
        category = zeros.astype(np.int64)
        return Clustering(category, zeros, features[:0], features, 0, len(features), few)
    order = np.lexsort(features.T)
    x, known = normalize_rows(features[order]), _sort(known)
    rows = subsample(len(x), MAX_CLUSTERED, seed, "grouped")
    sample = x[rows]
    if count:
        number = Number(count, count, count)
    else:
        number = count_categories(sample, _thin(known, len(rows) / len(x), seed), seed)
    moved = diffuse(sample)
    diffused = moved
    if len(rows) < len(x):
        diffused = diffuse_more(x, sample, moved)
        diffused[rows] = moved
    centres = _kmeans_centres(moved, number.estimate, STARTS, seed)
    category, confidence, index = assign(diffused, centres)
    halves = [
        _kmeans_centres(moved[_half(len(moved), seed, i)], number.estimate, 1, seed)
        for i in range(HALF_SAMPLES)
    ]
    confidence = confidence * co_assignment_stability(diffused, category, halves)
    back = np.argsort(order)
    return Clustering(
        category=category[back],
        confidence=confidence[back],
        centres=centres[index],
        diffused=diffused[back],
        low=min(len(index), number.low),
        high=max(len(index), number.high),
        note=number.note,
    )


def select_known(
    features: Features,
    best: IntArray,
    accepted: npt.NDArray[np.bool_],
    unknown_score: FloatArray,
) -> KnownFeatures:
    """Select images of known classes: the half of the accepted target images least like unknown.

    Args:
        features: (N, D), of all target images.
        best: (N,), their most likely known classes.
        accepted: (N,), which were not rejected.
        unknown_score: (N,).
    """
    rows = accepted.copy()
    if accepted.any():
        rows &= unknown_score <= np.median(unknown_score[accepted])
    return KnownFeatures(features[rows], best[rows])


def half_whiten(components: Features) -> Features:
    """Scale principal components by the root of their standard deviation.

    The first ones say least about the class in proportion to their size; whitened in full, the last
    would be mostly noise.
    """
    deviation = components.std(0, dtype=np.float64)
    scale = np.where(deviation > 0, deviation, 1) ** 0.5
    return np.asarray(components / scale, dtype=np.float32)


def assign(x: Features, centres: Features) -> tuple[IntArray, FloatArray, IntArray]:
    """Assign rows to categories.

    The confidence is the posterior of isotropic Gaussians of one width around the centres. The
    width is estimated from the rows: their mean squared distance over their effective dimension.

    Returns:
        Category and confidence of every row, and the rows of `centres` that the categories
        are, in their order.
    """
    index, distances = nearest(x, centres, MAX_CENTRES)
    first, distance = index[:, 0], distances[:, 0]
    variance = (distance**2).mean() / _effective_dimension(x - centres[first])
    logits = (distances[:, :1] ** 2 - distances**2) / (2 * max(variance, 1e-12))
    confidence = 1 / np.exp(logits).sum(1)
    limit = distance_limits(first, distance, len(centres))
    inside = distance <= limit
    sizes = np.bincount(first[inside], minlength=len(centres))
    by_size = np.argsort(-sizes, kind="stable")
    kept = by_size[sizes[by_size] >= MIN_CATEGORY_SIZE]
    number = np.zeros(len(centres), np.int64)
    number[kept] = np.arange(1, len(kept) + 1)
    category = np.where(inside, number[first], NO_CATEGORY)
    return category, np.where(category == NO_CATEGORY, 0.0, confidence), kept


def co_assignment_stability(
    x: Features, category: IntArray, clusterings: Sequence[Features]
) -> FloatArray:
    """Return (N,) shares of the rows in the same cluster that are in the same category.

    Only rows in some category count. The mean is taken over the clusterings.

    Args:
        x: (N, D), unit rows.
        category: (N,).
        clusterings: centres, of half samples.
    """
    total = np.zeros(len(x))
    for centres in clusterings:
        cluster = nearest(x, centres, 1)[0][:, 0]
        counts = np.zeros((len(centres), category.max() + 1))
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


def _kmeans_centres(x: Features, count: int, starts: int, seed: int) -> Features:
    count = min(count, len(np.unique(x, axis=0)))
    fitted = KMeans(count, n_init=starts, random_state=seed % 2**32).fit(x)
    return np.asarray(fitted.cluster_centers_, dtype=np.float32)


def _half(n: int, seed: int, number: int) -> IntArray:
    """Draw half of n rows: results on halves vary about as much as between whole samples."""
    return subsample(n, max(MIN_IMAGES, n // 2), derive_seed(seed, "half", number), "rows")


def _thin(known: KnownFeatures, share: float, seed: int) -> KnownFeatures:
    n = len(known.labels)
    rows = subsample(n, min(MAX_KNOWN, round(share * n)), seed, "known")
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
