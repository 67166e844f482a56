"""A tree over the images of found categories: merges above the categories, splits below them.

The categories are the suggested cut. Above it, categories are merged two by two in the order of
their similarity; below it, each category is split in two by 2-means, and each half again. A person
who reviews the categories moves up or down in it. Pure functions on arrays; nothing is random but
the half samples of the stability, and the order of the images changes nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy.cluster.hierarchy import linkage
from sklearn.cluster import KMeans

from unida.discovery.clusters import (
    KnownFeatures,
    cluster_means,
    nearest,
    normalize_rows,
    squared_distances,
)
from unida.types import Features, FloatArray, IntArray
from unida.utils.chunking import subsample
from unida.utils.rng import derive_seed

VERSION = 1
"""Of the tree in categories.json."""
MIN_SPLIT = 10
"""Smaller groups are not split further."""
MAX_DEPTH = 6
"""Splits below a category."""
ITERATIONS = 30
"""Of 2-means at most."""
USUAL = 0.9
"""Share of a known class's images that are called usual: those nearest to its mean."""
HALF_SAMPLES = 8
MAX_SAMPLE = 4000
"""Images that the stability is measured on."""
ODD = 3.0
"""An odd image is so many standard deviations (from the MAD) further from the centre than most."""
MAX_ODD = 9


@dataclass(frozen=True)
class NearestClass:
    """The known class that a category is nearest to.

    Attributes:
        name: of the class.
        similarity: cosine of the two means.
        mislabelled: whether its images would be usual ones of that class.
    """

    name: str
    similarity: float
    mislabelled: bool


@dataclass(frozen=True)
class GroupTree:
    """A tree over the N images of K categories, and what it says about each category.

    Attributes:
        merges: K − 1 pairs of nodes, the most similar first; node k ≤ K is category k, node K + i
            the i-th pair.
        splits: (N,), for each image the way down from its category, such as `01`: 0 is the larger
            half. Empty where the category was not split, and in no category.
        stability: (K,), see `co_assignment`.
        known: of each category, the nearest known class; None without known classes.
        odd: of each category, rows of images far from its centre, the furthest first.
    """

    merges: list[tuple[int, int]] = field(default_factory=list)
    splits: list[str] = field(default_factory=list)
    stability: list[float] = field(default_factory=list)
    known: list[NearestClass | None] = field(default_factory=list)
    odd: list[list[int]] = field(default_factory=list)


def build_tree(
    x: Features, category: IntArray, known: KnownFeatures, names: dict[int, str], seed: int = 0
) -> GroupTree:
    """Build the tree over the images of found categories.

    Args:
        x: (N, D), unit rows.
        category: (N,), from 1 to K; 0 for none.
        known: images of known classes in the same space.
        names: of the known classes, by their labels.
        seed: of the half samples.
    """
    count = int(category.max(initial=0))
    if not count:
        return GroupTree(splits=[""] * len(x))
    order = np.lexsort(x.T)
    sorted_x, of_sorted = x[order], category[order]
    inside = of_sorted > 0
    means = cluster_means(sorted_x[inside], of_sorted[inside] - 1, count)
    codes, odd = [""] * len(x), []
    for k in range(1, count + 1):
        rows = order[of_sorted == k]
        for row, code in zip(rows, split_codes(x[rows]), strict=True):
            codes[row] = code
        odd.append(rows[odd_ones(x[rows], means[k - 1])].tolist())
    return GroupTree(
        merges=merge_order(means),
        splits=codes,
        stability=co_assignment(sorted_x[inside], of_sorted[inside] - 1, seed).tolist(),
        known=nearest_classes(sorted_x, of_sorted, known, names),
        odd=odd,
    )


def merge_order(means: Features) -> list[tuple[int, int]]:
    """Return the pairs of nodes that are merged, by average linkage of the category means."""
    if len(means) < 2:
        return []
    tree = linkage(means.astype(np.float64), "average")
    return [(int(a) + 1, int(b) + 1) for a, b in tree[:, :2]]


def split_codes(x: Features, depth: int = MAX_DEPTH) -> list[str]:
    """Return for each row of a group its way down: 0 for the larger half, 1 for the other."""
    if depth == 0 or len(x) < MIN_SPLIT:
        return [""] * len(x)
    half = two_means(x)
    if not half.any():
        return [""] * len(x)
    codes = np.full(len(x), "", dtype=object)
    for side in (0, 1):
        rows = np.flatnonzero(half == side)
        codes[rows] = [f"{side}{code}" for code in split_codes(x[rows], depth - 1)]
    return codes.tolist()


def two_means(x: Features) -> IntArray:
    """Return (N,) halves by 2-means from the first principal axis; 0 is the larger half.

    Rows that are all equal are all 0.
    """
    centred = (x - x.mean(0)).astype(np.float64)
    axis = np.linalg.eigh(centred.T @ centred)[1][:, -1]
    half = (centred @ axis > 0).astype(np.int64)
    for _ in range(ITERATIONS):
        if half.min() == half.max():
            return np.zeros(len(x), np.int64)
        before = half
        half = np.asarray(squared_distances(x, cluster_means(x, half, 2)).argmin(1))
        if (before == half).all():
            break
    ones, n = int(half.sum()), len(half)
    swap = half[0] == 1 if 2 * ones == n else 2 * ones > n  # the sign of the axis decides nothing
    return np.asarray(1 - half if swap else half)


def co_assignment(x: Features, group: IntArray, seed: int) -> FloatArray:
    """Return (K,) stabilities: how well groups are found again in half samples.

    Half samples are clustered anew by k-means with as many clusters as there are groups. The
    stability is the overlap of an image's group with its cluster, |G ∩ C| / |G ∪ C|, its mean over
    the images of the group and the half samples.
    """
    count = int(group.max()) + 1
    rows = np.sort(subsample(len(x), MAX_SAMPLE, seed, "stability"))
    x, group = x[rows], group[rows]
    sizes = np.bincount(group, minlength=count)[:, None]
    total = np.zeros(count)
    for i in range(HALF_SAMPLES):
        rng = np.random.default_rng(derive_seed(seed, "stability", i))
        half = x[rng.choice(len(x), max(count, len(x) // 2), replace=False)]
        state = derive_seed(seed, "stability start", i) % 2**32
        clusters = min(count, len(np.unique(half, axis=0)))
        fitted = KMeans(clusters, n_init=3, random_state=state).fit(half)
        cluster = nearest(x, fitted.cluster_centers_, 1)[0][:, 0]
        both = np.zeros((count, clusters))
        np.add.at(both, (group, cluster), 1)
        either = np.maximum(sizes + both.sum(0) - both, 1)
        total += (both * both / either).sum(1) / np.maximum(sizes[:, 0], 1)
    return total / HALF_SAMPLES


def nearest_classes(
    x: Features, category: IntArray, known: KnownFeatures, names: dict[int, str]
) -> list[NearestClass | None]:
    """Return the nearest known class of each category, by their means.

    A category is probably mislabelled if half of its images would be usual ones of that class:
    nearer to its mean than `USUAL` of its own images are, and than `USUAL` of the images of other
    classes.
    """
    count, (classes, number) = category.max(), np.unique(known.labels, return_inverse=True)
    if not len(classes):
        return [None] * int(count)
    known_means = normalize_rows(cluster_means(known.features, number, len(classes)))
    inside = category > 0
    means = normalize_rows(cluster_means(x[inside], category[inside] - 1, count))
    found: list[NearestClass | None] = []
    for k, (best, distance) in enumerate(zip(*nearest(means, known_means, 1), strict=True), 1):
        c, similarity = int(best[0]), 1 - float(distance[0]) ** 2 / 2
        far = np.linalg.norm(known.features - known_means[c], axis=1)
        own, others = far[number == c], far[number != c]
        limits = [np.quantile(own, USUAL)]
        if len(others):
            limits.append(np.quantile(others, 1 - USUAL))
        typical = np.median(np.linalg.norm(x[category == k] - known_means[c], axis=1))
        usual = bool(typical < min(limits))
        name = names.get(int(classes[c]))
        found.append(None if name is None else NearestClass(name, similarity, usual))
    return found


def odd_ones(x: Features, centre: Features) -> IntArray:
    """Return rows that are unusually far from the centre, the furthest first."""
    distance = nearest(x, centre[None], 1)[1][:, 0]
    middle = np.median(distance)
    width = 1.4826 * np.median(np.abs(distance - middle))
    far = np.flatnonzero(distance > middle + ODD * max(width, 1e-6))
    return far[np.argsort(-distance[far], kind="stable")][:MAX_ODD]


def to_json(tree: GroupTree, category: IntArray) -> dict[str, object]:
    """Return the tree for categories.json: the ways of a category's images, in their order."""
    ways: dict[str, list[str]] = {str(k): [] for k in range(1, len(tree.stability) + 1)}
    for k, code in zip(category.tolist(), tree.splits, strict=True):
        if k:
            ways[str(k)].append(code or "-")
    splits = {k: " ".join(codes) for k, codes in ways.items()}
    return {"version": VERSION, "merges": tree.merges, "splits": splits}


def read_splits(tree: object, categories: Sequence[str]) -> list[str] | None:
    """Return the way down of each image; None of another version, or of other categories.

    Args:
        tree: the field of categories.json.
        categories: of the images of categories.csv that are in one, in their order.
    """
    if not isinstance(tree, dict) or tree.get("version") != VERSION:
        return None
    ways = {k: iter(codes.split()) for k, codes in tree["splits"].items()}
    none: list[str] = []
    found = [next(ways.get(k, iter(none)), None) for k in categories]
    if None in found:
        return None
    return ["" if code == "-" else str(code) for code in found]
