"""Clustering algorithms that choose the number of categories themselves.

An algorithm takes unit rows of the rejected images, features of known images and a seed, and
returns `Centres`. Most are quadratic in the number of rows, so `unida.discovery.clustering` passes
a bounded sample. An algorithm is added as one function and one entry of `ALGORITHMS`.
"""

from collections.abc import Callable

import numpy as np
from scipy.cluster.hierarchy import fcluster, linkage
from sklearn.cluster import HDBSCAN, KMeans
from sklearn.metrics import silhouette_score

from unida.discovery.clusters import Centres, KnownFeatures, cluster_means, lloyd, single_cluster
from unida.errors import require
from unida.evaluation.metrics import cluster_accuracy
from unida.types import Features, IntArray
from unida.utils.chunking import subsample
from unida.utils.logs import logger
from unida.utils.rng import derive_seed

Algorithm = Callable[[Features, KnownFeatures, int], Centres]

MIN_CATEGORY_SIZE = 5
"""Images that make a category; fewer are outliers."""
SILHOUETTE_SAMPLES = 1000
MAX_PER_KNOWN_CLASS = 60
"""Known images of a class; more would outweigh the novel categories."""
ACCURACY_TOLERANCE = 0.01
"""Cuts whose accuracy on known classes is this close to the best count as equally good."""


def kmeans(x: Features, known: KnownFeatures, seed: int) -> Centres:
    """Run k-means with the K whose silhouette is furthest above that of unclustered data.

    Unclustered data are drawn from one Gaussian with the same covariance, as in the gap statistic
    (Tibshirani et al., 2001). Where no K is above it, all images are one category.
    """
    sample = x[subsample(len(x), SILHOUETTE_SAMPLES, seed, "silhouettes")]
    rng = np.random.default_rng(derive_seed(seed, "no groups"))
    covariance = np.cov(sample, rowvar=False).reshape(sample.shape[1], -1)
    reference = rng.multivariate_normal(
        sample.mean(0), covariance, len(sample), "ignore", method="eigh"
    ).astype(np.float32)
    counts = candidate_counts(min(len(sample), MIN_CATEGORY_SIZE * len(np.unique(sample, axis=0))))
    gaps = [_kmeans_silhouette(sample, k, seed) - _kmeans_silhouette(reference, k, seed)
            for k in counts]  # fmt: skip
    if not gaps or max(gaps) <= 0:
        return single_cluster(x)
    return _kmeans_centres(x, counts[int(np.argmax(gaps))], seed)


def hdbscan(x: Features, known: KnownFeatures, seed: int) -> Centres:
    """Run HDBSCAN (Campello et al., 2013); rows outside dense regions shape no centre."""
    size = max(MIN_CATEGORY_SIZE, int(np.sqrt(len(x)) / 3))
    if len(x) < 2 * size:
        return single_cluster(x)
    labels = HDBSCAN(size, min_samples=MIN_CATEGORY_SIZE, copy=True).fit_predict(x)
    dense = labels >= 0
    if not dense.any():
        return single_cluster(x)
    return Centres(cluster_means(x[dense], labels[dense], labels.max() + 1), x[:0])


def semi_supervised(x: Features, known: KnownFeatures, seed: int) -> Centres:
    """Run generalized category discovery, after Vaze et al., CVPR 2022.

    Rejected and known images are clustered together. The number of clusters is the one at which
    the known images fall best into their classes. Semi-supervised k-means follows, in which known
    images keep their cluster.

    Differences: a tree (Ward's criterion) is cut in place of k-means at every number; of equally
    accurate cuts the one with the best silhouette is taken; rejected images that end up with known
    ones are in no category, as a rejected image need not be novel. With fewer than two known
    classes this is `kmeans`.
    """
    known = balance(known, seed)
    if known.labels.max(initial=-1) < 1:
        return kmeans(x, known, seed)
    both, n_known = np.concatenate([known.features, x]), len(known.labels)
    tree = linkage(both, "ward")
    cuts = [fcluster(tree, k, "maxclust") - 1 for k in candidate_counts(len(x))]
    accuracy = np.array([cluster_accuracy(known.labels, cut[:n_known]) for cut in cuts])
    best = [cuts[i] for i in np.flatnonzero(accuracy >= accuracy.max() - ACCURACY_TOLERANCE)]
    sample = subsample(len(both), SILHOUETTE_SAMPLES, seed, "silhouettes")
    silhouettes = [_silhouette(both[sample], cut[sample]) for cut in best]
    return _refine_cut(x, known, best[int(np.argmax(silhouettes))])


def class_size_prior(x: Features, known: KnownFeatures, seed: int) -> Centres:
    """Run k-means with as many clusters as categories of the known classes' size would make.

    The size is the median number of known images of a class. With fewer than two known classes
    this is `kmeans`.
    """
    _, sizes = np.unique(known.labels, return_counts=True)
    if len(sizes) < 2:
        return kmeans(x, known, seed)
    most = min(len(x) // MIN_CATEGORY_SIZE, len(np.unique(x, axis=0)))
    count = min(round(len(x) / float(np.median(sizes))), most)
    return single_cluster(x) if count < 2 else _kmeans_centres(x, count, seed)


ALGORITHMS: dict[str, Algorithm] = {
    "class_size_prior": class_size_prior,
    "kmeans": kmeans,
    "hdbscan": hdbscan,
    "semi_supervised": semi_supervised,
}
DEFAULT = "class_size_prior"
EARLIER_NAMES = {"sized": "class_size_prior", "anchored": "semi_supervised"}


def resolve_algorithm(name: str) -> str:
    """Return the name of an algorithm; a name of an earlier version is understood."""
    if name in EARLIER_NAMES:
        logger.warning("The algorithm %r is now called %r.", name, EARLIER_NAMES[name])
    name = EARLIER_NAMES.get(name, name)
    require(name in ALGORITHMS, "algorithm", name, ", ".join(ALGORITHMS))
    return name


def candidate_counts(rows: int) -> list[int]:
    """Return numbers of clusters to try: from 2 in steps of one, then of an eighth."""
    counts = [2]
    while (following := max(counts[-1] + 1, counts[-1] * 9 // 8)) <= rows // MIN_CATEGORY_SIZE:
        counts.append(following)
    return counts if rows >= 2 * MIN_CATEGORY_SIZE else []


def balance(known: KnownFeatures, seed: int) -> KnownFeatures:
    """Keep at most `MAX_PER_KNOWN_CLASS` images of a class; renumber classes from 0."""
    classes, labels = np.unique(known.labels, return_inverse=True)
    kept = [np.zeros(0, np.int64)]
    for number in range(len(classes)):
        rows = np.flatnonzero(labels == number)
        kept.append(rows[subsample(len(rows), MAX_PER_KNOWN_CLASS, seed, f"anchors {number}")])
    rows = np.concatenate(kept)
    return KnownFeatures(known.features[rows], labels[rows])


def _refine_cut(x: Features, known: KnownFeatures, labels: IntArray) -> Centres:
    """Run semi-supervised k-means from a cut of the tree.

    A cluster is known if its share of the known images is larger than that of the rejected ones.

    Args:
        x: the rejected images.
        known: the known images.
        labels: clusters of the known images, then of the rejected ones.
    """
    of_known, of_x = labels[: len(known.labels)], labels[len(known.labels) :]
    count = labels.max() + 1
    sizes, known_sizes = (np.bincount(part, minlength=count) for part in (of_x, of_known))
    is_known = sizes / len(of_x) < known_sizes / len(of_known)
    is_novel = ~is_known & (sizes >= MIN_CATEGORY_SIZE)
    if not is_novel.any():
        return single_cluster(x)
    both = np.concatenate([known.features, x])
    start = Centres(
        cluster_means(x, of_x, count)[is_novel], cluster_means(both, labels, count)[is_known]
    )
    fixed, number = is_known[of_known], np.cumsum(is_known) - 1
    return lloyd(x, KnownFeatures(known.features[fixed], number[of_known[fixed]]), start)


def _kmeans_centres(x: Features, count: int, seed: int) -> Centres:
    fitted = KMeans(count, n_init=3, random_state=seed % 2**32).fit(x)
    return Centres(fitted.cluster_centers_.astype(np.float32), x[:0])


def _kmeans_silhouette(x: Features, count: int, seed: int) -> float:
    fitted = KMeans(count, n_init=1, max_iter=20, random_state=seed % 2**32).fit(x)
    return _silhouette(x, fitted.labels_)


def _silhouette(x: Features, labels: IntArray) -> float:
    defined = 1 < len(np.unique(labels)) < len(x)
    return float(silhouette_score(x, labels)) if defined else 0.0
