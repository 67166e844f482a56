"""Ways of grouping rejected images without being told how many categories there are.

Every way takes unit rows of the rejected images, anchors and a seed, and gives `Groups`. Most of
them are quadratic in the rows at some point: `unida.discovery.find` hands over a bounded sample,
and of the anchors the same share.
"""

from collections.abc import Callable

import numpy as np
from scipy.cluster.hierarchy import fcluster, linkage
from sklearn.cluster import HDBSCAN, KMeans
from sklearn.metrics import silhouette_score

from unida.discovery.groups import ClassMeans, Features, Groups, lloyd, means, one_group
from unida.evaluation.metrics import cluster_accuracy
from unida.types import IntArray
from unida.utils.chunking import subsample
from unida.utils.rng import derive_seed

Way = Callable[[Features, ClassMeans, int], Groups]

SMALLEST = 5
"""Images that make a category; to count by fewer would be to count single odd images."""
LOOKED_AT = 1000
"""Rows a number of groups is judged on by silhouettes."""
MOST_ANCHORS = 60
"""Anchors of a class; more would make the known classes heavier than the new ones."""
SLACK = 0.01
"""A cut that recovers the known classes as well as the best but for this is as good."""


def kmeans(x: Features, anchors: ClassMeans, seed: int) -> Groups:
    """K-means; the K whose silhouette is furthest above that of rows without any groups.

    Rows without groups are drawn from one Gaussian with the covariance of these, as in the gap
    statistic (Tibshirani et al., 2001); where no K is above it, all images are one category.
    """
    some = x[subsample(len(x), LOOKED_AT, seed, "silhouettes")]
    draws = np.random.default_rng(derive_seed(seed, "no groups"))
    spread = np.cov(some, rowvar=False).reshape(some.shape[1], -1)
    drawn = draws.multivariate_normal(some.mean(0), spread, len(some), "ignore", method="eigh")
    flat = drawn.astype(np.float32)
    tried = numbers_to_try(min(len(some), SMALLEST * len(np.unique(some, axis=0))))
    gaps = [_at(some, k, seed) - _at(flat, k, seed) for k in tried]
    if not gaps or max(gaps) <= 0:
        return one_group(x)
    return _into(tried[int(np.argmax(gaps))], x, seed)


def hdbscan(x: Features, anchors: ClassMeans, seed: int) -> Groups:
    """HDBSCAN (Campello et al., 2013): dense regions; what lies between them shapes no centre."""
    size = max(SMALLEST, int(np.sqrt(len(x)) / 3))
    if len(x) < 2 * size:
        return one_group(x)
    labels = HDBSCAN(size, min_samples=SMALLEST, copy=True).fit_predict(x)
    dense = labels >= 0
    if not dense.any():
        return one_group(x)
    return Groups(means(x[dense], labels[dense], labels.max() + 1), x[:0])


def anchored(x: Features, anchors: ClassMeans, seed: int) -> Groups:
    """Generalized category discovery: known classes say how wide a category is.

    After Vaze et al., CVPR 2022: all images, labelled or not, are grouped alike; the number of
    groups is the one at which the labelled images fall best into their classes; then
    semi-supervised k-means, in which labelled images stay with theirs. Differences: a tree (Ward's
    criterion) is cut in place of k-means at every number; many cuts may be as good for the known
    classes, and of these the one with the best silhouette is taken; and rejected images that end
    up with known ones are in no category, as a rejected image need not be a novel one. Without
    anchors of two classes there is nothing to measure by, and this is `kmeans`.
    """
    some = balanced(anchors, seed)
    if some.labels.max(initial=-1) < 1:
        return kmeans(x, anchors, seed)
    both = np.concatenate([some.features, x])
    tree = linkage(both, "ward")
    cuts = [fcluster(tree, k, "maxclust") - 1 for k in numbers_to_try(len(x))]
    scores = np.array([cluster_accuracy(some.labels, cut[: len(some.labels)]) for cut in cuts])
    as_good = [cuts[i] for i in np.flatnonzero(scores >= scores.max() - SLACK)]
    rows = subsample(len(both), LOOKED_AT, seed, "silhouettes")
    best = np.argmax([_silhouette(both[rows], cut[rows]) for cut in as_good])
    return _settled(x, some, as_good[best])


def sized(x: Features, anchors: ClassMeans, seed: int) -> Groups:
    """K-means, with as many groups as there are if they are as large as the known classes.

    The size of a class is the number of its anchors, and the median of the sizes counts. Without
    anchors of two classes there is nothing to measure by, and this is `kmeans`.
    """
    _, sizes = np.unique(anchors.labels, return_counts=True)
    if len(sizes) < 2:
        return kmeans(x, anchors, seed)
    most = min(len(x) // SMALLEST, len(np.unique(x, axis=0)))
    count = min(round(len(x) / float(np.median(sizes))), most)
    if count < 2:
        return one_group(x)
    return _into(count, x, seed)


WAYS: dict[str, Way] = {"sized": sized, "kmeans": kmeans, "hdbscan": hdbscan, "anchored": anchored}
DEFAULT = "sized"


def numbers_to_try(rows: int) -> list[int]:
    """From 2 up, by one and then by an eighth, as long as a group has a few rows."""
    tried = [2]
    while (following := max(tried[-1] + 1, tried[-1] * 9 // 8)) <= rows // SMALLEST:
        tried.append(following)
    return tried if rows >= 2 * SMALLEST else []


def balanced(anchors: ClassMeans, seed: int) -> ClassMeans:
    """At most `MOST_ANCHORS` of a class; classes are numbered anew, from 0, without gaps."""
    classes, labels = np.unique(anchors.labels, return_inverse=True)
    kept = []
    for number in range(len(classes)):
        rows = np.flatnonzero(labels == number)
        kept.append(rows[subsample(len(rows), MOST_ANCHORS, seed, f"anchors {number}")])
    rows = np.concatenate([np.zeros(0, np.int64), *kept])
    return ClassMeans(anchors.features[rows], labels[rows])


def _settled(x: Features, anchors: ClassMeans, labels: IntArray) -> Groups:
    """The groups of a cut, after k-means in which the anchors of known groups stay in theirs.

    A group is known if it has a larger share of the anchors than of the rejected images.

    Args:
        x: the rejected images.
        anchors: of known classes.
        labels: groups of the anchors, then of the rejected images.
    """
    of_anchors, of_x = labels[: len(anchors.labels)], labels[len(anchors.labels) :]
    count = labels.max() + 1
    sizes = np.bincount(of_x, minlength=count)
    known = sizes / len(of_x) < np.bincount(of_anchors, minlength=count) / len(of_anchors)
    novel = ~known & (sizes >= SMALLEST)
    if not novel.any():
        return one_group(x)
    both = np.concatenate([anchors.features, x])
    start = Groups(means(x, of_x, count)[novel], means(both, labels, count)[known])
    stays, number = known[of_anchors], np.cumsum(known) - 1
    return lloyd(x, ClassMeans(anchors.features[stays], number[of_anchors[stays]]), start)


def _into(count: int, x: Features, seed: int) -> Groups:
    """K-means with `count` groups."""
    found = KMeans(count, n_init=3, random_state=seed % 2**32).fit(x)
    return Groups(found.cluster_centers_.astype(np.float32), x[:0])


def _at(x: Features, count: int, seed: int) -> float:
    """Silhouette of k-means with `count` groups."""
    found = KMeans(count, n_init=1, max_iter=20, random_state=seed % 2**32).fit(x)
    return _silhouette(x, found.labels_)


def _silhouette(x: Features, labels: IntArray) -> float:
    few = not 1 < len(np.unique(labels)) < len(x)
    return 0.0 if few else float(silhouette_score(x, labels))
