"""How many novel categories there are: a number, an interval, and whether it can be told."""

from dataclasses import dataclass

import numpy as np
from scipy.cluster.hierarchy import fcluster, linkage

from unida.discovery.clusters import KnownFeatures
from unida.discovery.diffusion import diffuse
from unida.types import Features, FloatArray, IntArray
from unida.utils.rng import derive_seed

MIN_CATEGORY_SIZE = 5
"""Images that make a category; fewer are outliers."""
CUTS = 70
"""Cuts of the tree that are compared, in geometric progression."""
MIN_KNOWN = 3
"""Known images of a class that says something about the granularity."""
TOLERANCE = 0.02
"""Cuts whose score is lower than the best by less than this count nearly as much."""
BOOTSTRAPS = 100
ESTIMATE, LOW, HIGH = 0.6, 0.05, 0.95
"""Quantiles of the number. The estimate is above the median: merging two categories is easier than
splitting one."""
WIDEST = 4.0
"""Where the interval's ends differ by a larger factor, the features support no number."""
FEWEST_CLASSES = 4
"""With fewer known classes the granularity is hardly known."""


@dataclass(frozen=True)
class Number:
    """The number of categories.

    Attributes:
        estimate: of it.
        low: lower end of the interval, at most `estimate`.
        high: upper end, at least `estimate`.
        note: why the features do not support a number; empty where they do.
    """

    estimate: int
    low: int
    high: int
    note: str = ""

    @property
    def supported(self) -> bool:
        return not self.note


def count_categories(x: Features, known: KnownFeatures, seed: int) -> Number:
    """Count the categories at the granularity at which the known classes come out best.

    Rejected and known images are clustered together into a tree (Ward's criterion on diffused
    features). The score of a cut is the mean over known classes of the best F1 of any cluster. Each
    cut is weighted by how near its score is to the best, and by the range of heights at which it
    is the cut; the weights are averaged over the known classes drawn anew, with replacement.
    Estimate and interval are quantiles of the number of categories under these weights.

    Args:
        x: (N, D), unit rows of rejected images.
        known: unit rows of images of known classes, about as densely sampled.
        seed: of the bootstrap.
    """
    classes, sizes = np.unique(known.labels, return_counts=True)
    classes = classes[sizes >= MIN_KNOWN]
    most = max(1, min(len(x) // MIN_CATEGORY_SIZE, len(np.unique(x, axis=0))))
    if len(classes) < 2:
        return Number(1, 1, most, "fewer than two known classes have accepted images")
    kept = np.isin(known.labels, classes)
    labels = np.searchsorted(classes, known.labels[kept])
    cuts, dwell = cut_tree(diffuse(np.concatenate([known.features[kept], x])))
    scores = np.stack([best_f1(labels, cut[: len(labels)]) for cut in cuts])
    counts = np.array([count_novel(cut, len(labels)) for cut in cuts])
    rng = np.random.default_rng(derive_seed(seed, "known classes"))
    weights = np.zeros(len(cuts))
    for _ in range(BOOTSTRAPS):
        drawn = rng.integers(0, len(classes), len(classes))
        weights += weights_of(scores[:, drawn].mean(1), dwell)
    low, estimate, high = (weighted_quantile(counts, weights, q) for q in (LOW, ESTIMATE, HIGH))
    return Number(estimate, low, high, _doubt(len(classes), low, high))


def cut_tree(x: Features) -> tuple[list[IntArray], FloatArray]:
    """Cut the tree of some rows at numbers in geometric progression, up to a fifth of the rows.

    Returns:
        Clusters of the rows at each cut, and the logarithm of the range of heights up to the next.
    """
    tree = linkage(x, "ward")
    most = max(2, len(x) // MIN_CATEGORY_SIZE)
    numbers = np.unique(np.geomspace(2, most, CUTS).round().astype(int))
    cuts = [fcluster(tree, number, "maxclust") - 1 for number in numbers]
    heights = np.maximum(tree[::-1, 2], max(tree[-1, 2], 1e-9) * 1e-6)
    upper = heights[numbers - 2]
    lower = np.append(upper[1:], heights[min(numbers[-1] - 1, len(heights) - 1)])
    return cuts, np.log(upper / lower) + 1e-6


def weighted_quantile(counts: IntArray, weights: FloatArray, quantile: float) -> int:
    """Return the count at a quantile of the weights."""
    order = np.argsort(counts, kind="stable")
    reached = np.cumsum(weights[order]) / weights.sum()
    place = min(int(np.searchsorted(reached, quantile)), len(counts) - 1)
    return int(counts[order][place])


def best_f1(labels: IntArray, clusters: IntArray) -> FloatArray:
    """Return for each class, from 0, the best F1 of any cluster."""
    counts = np.zeros((labels.max() + 1, clusters.max() + 1))
    np.add.at(counts, (labels, clusters), 1)
    return np.asarray((2 * counts / (counts.sum(1)[:, None] + counts.sum(0))).max(1))


def count_novel(cut: IntArray, n_known: int) -> int:
    """Count clusters that hold a larger share of the rejected images than of the known ones.

    Args:
        cut: clusters of the known images, then of the rejected ones.
        n_known: known images.
    """
    count = cut.max() + 1
    of_known, of_x = (np.bincount(c, minlength=count) for c in np.split(cut, [n_known]))
    share, known_share = of_x / max(len(cut) - n_known, 1), of_known / max(n_known, 1)
    return max(1, int(((share >= known_share) & (of_x >= MIN_CATEGORY_SIZE)).sum()))


def weights_of(scores: FloatArray, dwell: FloatArray) -> FloatArray:
    """Return weights of cuts, of sum one, from their scores and ranges of heights."""
    weights = np.exp((scores - scores.max()) / TOLERANCE) * dwell
    return np.asarray(weights / weights.sum())


def _doubt(classes: int, low: int, high: int) -> str:
    if classes < FEWEST_CLASSES:
        return f"only {classes} known classes have accepted images"
    if high > WIDEST * low:
        return f"the known classes come out about as well with {low} categories as with {high}"
    return ""
