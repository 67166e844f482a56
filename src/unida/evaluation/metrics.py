"""Metrics of universal domain adaptation on arrays; a metric without samples is NaN.

A metric is one function here and a field of `Score` (of predicted labels, under a reject rule) or
of `Ranking` (of scores, whatever the threshold).
"""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from unida.ops.pca import joint_pca
from unida.types import FloatArray, IntArray, Scored
from unida.utils.chunking import MAX_SAMPLES, subsample

NAN = math.nan

MAX_FULL_BATCH = 20_000
"""More images than these are clustered in mini-batches."""
MAX_DIMENSIONS = 256
"""Longer features are reduced to these principal components before they are clustered."""
MAX_NMI_IMAGES = MAX_SAMPLES
"""Images `novel_nmi` clusters."""


@dataclass(frozen=True)
class Score:
    """Accuracies of predicted labels, as fractions; NaN without samples.

    Attributes:
        known: mean recall over the shared classes (those with samples).
        known_instance: share of known samples that are right.
        unknown: share of unknown samples called unknown.
        h: harmonic mean of `known` and `unknown`; 0 if both are 0, NaN if either is.
        h_instance: the same of `known_instance` and `unknown`.
        balanced_h: the paper's Balance-H of `known` and `unknown`,
            (1 + θ) a_k a_u / (θ a_k + a_u) with θ = unknown samples / known samples.
        balanced_h_instance: the same of `known_instance` and `unknown`: the appendix derives the
            metric for accuracies over samples.
        os: mean recall over the shared classes and unknown as one more class.
        os_star: mean recall over the shared classes; equals `known`.
    """

    known: float
    known_instance: float
    unknown: float
    h: float
    h_instance: float
    balanced_h: float
    balanced_h_instance: float
    os: float
    os_star: float


def score(
    labels: npt.ArrayLike,
    predictions: npt.ArrayLike,
    *,
    unknown: int,
    n_shared: int | None = None,
) -> Score:
    """Score predicted labels on a target with known and unknown classes.

    Args:
        labels: true classes; `unknown` for every class the source does not have.
        predictions: predicted classes or `unknown`. A source-private class counts as wrong.
        unknown: the number that stands for unknown.
        n_shared: shared classes are 0 … n_shared − 1; None takes the known classes in `labels`.
    """
    y, p = _paired(labels, predictions, "predictions")
    is_unknown = y == unknown
    classes = np.unique(y[~is_unknown])
    if n_shared is not None and classes.size and not 0 <= classes[0] <= classes[-1] < n_shared:
        raise ValueError(f"labels {classes.tolist()} are not all below n_shared = {n_shared}")

    right = y == p
    by_class = recalls(y, p)
    known_recalls = [by_class[int(k)] for k in classes]
    known, known_instance = _mean(np.array(known_recalls)), _mean(right[~is_unknown])
    rejected = _mean(right[is_unknown])
    theta = is_unknown.sum() / (~is_unknown).sum() if classes.size else NAN
    all_recalls = known_recalls if math.isnan(rejected) else [*known_recalls, rejected]
    return Score(
        known=known,
        known_instance=known_instance,
        unknown=rejected,
        h=balance(known, rejected, 1.0),
        h_instance=balance(known_instance, rejected, 1.0),
        balanced_h=balance(known, rejected, theta),
        balanced_h_instance=balance(known_instance, rejected, theta),
        os=_mean(np.array(all_recalls)),
        os_star=known,
    )


def balance(known: float, unknown: float, theta: float) -> float:
    """Compute Balance-H, (1 + θ) a_k a_u / (θ a_k + a_u); 0 where both are 0, H at θ = 1."""
    if known == 0 and unknown == 0:
        return 0.0
    if math.isnan(known) or math.isnan(unknown):
        return NAN
    return float((1 + theta) * known * unknown / (theta * known + unknown))


def universal_value(h: float, known_instance: float, unknown: float) -> float:
    """Return the number by which category shifts are compared, from the fields of a `Score`.

    It is H where the target has known and unknown images. Elsewhere it is the share of images that
    are right; a rejected image of a known class is wrong.
    """
    if math.isnan(known_instance) or math.isnan(unknown):
        return unknown if math.isnan(known_instance) else known_instance
    return h


@dataclass(frozen=True)
class Ranking:
    """Metrics that depend on no fitted threshold; NaN where undefined.

    Attributes:
        auroc: of the unknown score (`auroc`).
        oscr: of predicted class and unknown score together (`oscr`).
        nmi: of the unknown images' features (`novel_nmi`).
        closed: share of known images whose most likely class is right.
        best_threshold: `universal_value` at the best threshold; oracle, as target labels choose it.
    """

    auroc: float
    oscr: float
    nmi: float
    closed: float
    best_threshold: float = NAN


def rank_scores(
    labels: npt.ArrayLike,
    scored: Scored,
    true_classes: npt.NDArray[np.str_],
    seed: int = 0,
) -> Ranking:
    """Compute the metrics that depend on no threshold.

    Args:
        labels: true classes; the number of known classes for unknown.
        scored: the outputs.
        true_classes: names of the true classes, those of unknown images too.
        seed: of the clustering.
    """
    y, best, unknown = np.asarray(labels), scored.probs.argmax(1), scored.probs.shape[1]
    is_unknown = y == unknown
    return Ranking(
        auroc=auroc(y, scored.unknown_score, unknown),
        oscr=oscr(y, best, scored.unknown_score, unknown),
        nmi=novel_nmi(scored.features, true_classes, seed, np.flatnonzero(is_unknown)),
        closed=_mean((best == y)[~is_unknown]),
        best_threshold=best_threshold(y, best, scored.unknown_score, unknown),
    )


def auroc(labels: npt.ArrayLike, unknown_scores: npt.ArrayLike, unknown: int) -> float:
    """Compute how often an unknown image scores above a known one; a tie counts half.

    Args:
        labels: true classes; `unknown` for every class the source does not have.
        unknown_scores: higher is more likely unknown; NaN counts as the highest.
        unknown: the number that stands for unknown.
    """
    y, s = _scored(labels, unknown_scores)
    return _mean(_unknown_above(s[y != unknown], s[y == unknown]))


def oscr(
    labels: npt.ArrayLike, best_class: npt.ArrayLike, unknown_scores: npt.ArrayLike, unknown: int
) -> float:
    """Compute the area under the open-set classification rate curve (Dhamija et al., NeurIPS 2018).

    Work on universal domain adaptation calls it UCR, universal classification rate. The curve is
    the share of known images that are accepted and right over the share of unknown images that are
    accepted. The area is the AUROC in which a misclassified known image is below every unknown one,
    so it is at most the accuracy without rejection.

    Args:
        labels: true classes; `unknown` for every class the source does not have.
        best_class: the most likely known class, also of rejected images.
        unknown_scores: higher is more likely unknown; NaN counts as the highest.
        unknown: the number that stands for unknown.
    """
    y, s = _scored(labels, unknown_scores)
    y, best = _paired(y, best_class, "predictions")
    known = y != unknown
    return _mean(_unknown_above(s[known], s[~known]) * (best == y)[known])


def best_threshold(
    labels: npt.ArrayLike, best_class: npt.ArrayLike, unknown_scores: npt.ArrayLike, unknown: int
) -> float:
    """Compute the highest `universal_value` that one threshold on the unknown score reaches.

    All thresholds are compared, by cumulative sums over the sorted scores. Target labels choose
    among them, so the number is an oracle: it bounds what a reject rule can reach.

    Args:
        labels: true classes; `unknown` for every class the source does not have.
        best_class: the most likely known class, also of rejected images.
        unknown_scores: higher is more likely unknown; NaN and infinity are always rejected.
        unknown: the number that stands for unknown.
    """
    y, s = _scored(labels, unknown_scores)
    y, best = _paired(y, best_class, "predictions")
    if not y.size:
        return NAN
    order = np.argsort(s, kind="stable")
    y, s, best = y[order], s[order], best[order]
    is_unknown = y == unknown
    # A threshold accepts the images before the first with its score, or all finite ones.
    first = np.flatnonzero(s[1:] != s[:-1]) + 1
    accepted = np.unique(np.concatenate([[0], first, [np.searchsorted(s, np.inf)]]))

    def total(weights: FloatArray) -> FloatArray:
        return np.asarray(np.concatenate([[0.0], np.cumsum(weights)])[accepted])

    right = (best == y) & ~is_unknown
    rejected = 1 - total(is_unknown / max(is_unknown.sum(), 1))
    if is_unknown.all():
        return float(rejected.max())
    if not is_unknown.any():
        return float(total(right / len(y)).max())
    _, place, counts = np.unique(y, return_inverse=True, return_counts=True)
    n_classes = len(counts) - 1
    known = total(right / (n_classes * counts[place]))
    both = known + rejected
    h = np.divide(2 * known * rejected, both, out=np.zeros_like(both), where=both > 0)
    return float(h.max())


def h3(known: float, unknown: float, nmi: float) -> float:
    """Compute UniOT's H³, the harmonic mean of known and unknown accuracy and of `novel_nmi`."""
    parts = (known, unknown, nmi)
    if any(map(math.isnan, parts)):
        return NAN
    return 3 / sum(1 / part for part in parts) if all(parts) else 0.0


def novel_nmi(
    features: npt.ArrayLike,
    true_novel_classes: npt.ArrayLike,
    seed: int,
    rows: IntArray | None = None,
) -> float:
    """Compute UniOT's NMI of clusters and true classes of the unknown images, from 0 to 1.

    The images that are truly unknown (not those predicted to be) are clustered by k-means on
    features of unit length, into as many clusters as there are true classes. As target labels
    decide which images are clustered and into how many clusters, the metric is reported, never
    selected by. Differences: UniOT keeps the centres on the sphere (faiss, 20 iterations, 5
    starts); here they are plain means. Large sets are clustered in mini-batches, long features
    after PCA; of more than `MAX_NMI_IMAGES` images a sample is clustered.

    Args:
        features: (N, D), of the truly unknown images.
        true_novel_classes: (N,), names or numbers.
        seed: of the sample and the first centres.
        rows: indices of the truly unknown images, where there are others among the N.
    """
    from sklearn.cluster import KMeans, MiniBatchKMeans
    from sklearn.metrics import normalized_mutual_info_score
    from sklearn.preprocessing import normalize

    x, classes = np.asarray(features), np.asarray(true_novel_classes)
    if len(x) != len(classes):
        raise ValueError(f"{len(classes)} labels but {len(x)} rows of features")
    rows = np.arange(len(x)) if rows is None else rows
    sample = rows[subsample(len(rows), MAX_NMI_IMAGES, seed, "novel")]
    x, classes = x[sample].astype(np.float32, copy=False), classes[sample]
    n_classes = len(np.unique(classes))
    if n_classes < 2 or not np.isfinite(x).all():  # one class is one cluster always
        return NAN
    x = normalize(x)
    if x.shape[1] > MAX_DIMENSIONS and len(x) > MAX_DIMENSIONS:
        (x,) = joint_pca([x], MAX_DIMENSIONS, seed)
    kmeans = MiniBatchKMeans if len(x) > MAX_FULL_BATCH else KMeans
    n_distinct = len(np.unique(x, axis=0))  # k-means warns of clusters it cannot fill
    clusters = kmeans(min(n_classes, n_distinct), n_init=5, random_state=seed).fit_predict(x)
    return float(normalized_mutual_info_score(classes, clusters))


def cluster_accuracy(classes: npt.ArrayLike, clusters: npt.ArrayLike) -> float:
    """Compute the Hungarian accuracy: the share of samples in the cluster of their class.

    Clusters and classes are paired one to one so that the accuracy is largest.

    Args:
        classes: true classes, names or numbers.
        clusters: numbers of the clusters; below zero is in no cluster, and never right.
    """
    return _mean(_in_own_cluster(classes, clusters))


@dataclass(frozen=True)
class CategoryScore:
    """How well images are divided into classes, known and novel ones; NaN where undefined.

    Attributes:
        all: share of all images in the cluster of their class, by one pairing of clusters and
            classes (`cluster_accuracy`).
        old: the same share, under the same pairing, of images of known classes.
        new: of images of novel classes.
        nmi: normalized mutual information of clusters and classes, of images of novel classes.
        ari: adjusted Rand index, of the same images.
    """

    all: float
    old: float
    new: float
    nmi: float
    ari: float


def score_categories(
    classes: npt.ArrayLike, clusters: npt.ArrayLike, is_novel: npt.NDArray[np.bool_]
) -> CategoryScore:
    """Score a division of all target images as Generalized Category Discovery does.

    One pairing over all images decides, so a known class and a category compete for each class, and
    an unknown image that was taken for a known class is wrong (Vaze et al., CVPR 2022).

    Args:
        classes: true classes of all images, names or numbers.
        clusters: a number for each predicted known class and each category; all images without one
            share another.
        is_novel: which images are of novel classes.
    """
    from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

    names, g = _paired(classes, clusters, "clusters")
    right = _in_own_cluster(names, g)
    novel, groups = names[is_novel], g[is_novel]
    defined = novel.size > 0
    return CategoryScore(
        all=_mean(right),
        old=_mean(right[~is_novel]),
        new=_mean(right[is_novel]),
        nmi=float(normalized_mutual_info_score(novel, groups)) if defined else NAN,
        ari=float(adjusted_rand_score(novel, groups)) if defined else NAN,
    )


def _in_own_cluster(classes: npt.ArrayLike, clusters: npt.ArrayLike) -> npt.NDArray[np.bool_]:
    """Return which samples are in the cluster that is paired with their class."""
    from scipy.optimize import linear_sum_assignment

    names, g = _paired(classes, clusters, "clusters")
    if not names.size:
        return np.zeros(0, dtype=np.bool_)
    inside = g.astype(np.int64) >= 0
    y, g = np.unique(names, return_inverse=True)[1], np.unique(g, return_inverse=True)[1]
    counts = np.zeros((y.max() + 1, g.max() + 1), dtype=np.int64)
    np.add.at(counts, (y[inside], g[inside]), 1)
    class_of = np.full(counts.shape[1], -1)
    paired_class, paired_cluster = linear_sum_assignment(counts, maximize=True)
    class_of[paired_cluster] = paired_class
    return np.asarray(inside & (class_of[g] == y))


def confusion(labels: npt.ArrayLike, predictions: npt.ArrayLike, n_known: int) -> IntArray:
    """Count predictions by class: rows are true classes, columns predictions, the last unknown.

    The row of a class that the target does not have is zero.
    """
    y, p = _paired(labels, predictions, "predictions")
    size = n_known + 1
    for name, values in (("labels", y), ("predictions", p)):
        if values.size and not 0 <= values.min() <= values.max() < size:
            raise ValueError(f"{name} are not all from 0 to {n_known}")
    counts = np.bincount(y.astype(np.int64) * size + p.astype(np.int64), minlength=size * size)
    return counts.reshape(size, size).astype(np.int64)


def recalls(labels: npt.ArrayLike, predictions: npt.ArrayLike) -> dict[int, float]:
    """Return the recall of each true class; a class without samples is left out."""
    y, p = _paired(labels, predictions, "predictions")
    classes, number, counts = np.unique(y, return_inverse=True, return_counts=True)
    right = np.bincount(number, weights=y == p, minlength=len(classes))
    return dict(zip(map(int, classes), (right / counts).tolist(), strict=True))


def _unknown_above(known: FloatArray, unknown: FloatArray) -> FloatArray:
    """Return for each known score the share of unknown scores above it; ties count half."""
    if not unknown.size:
        return np.full(known.shape, NAN)
    order = np.sort(unknown)
    below = np.searchsorted(order, known, "left") + np.searchsorted(order, known, "right")
    return np.asarray(1 - below / (2 * unknown.size))


def _scored(
    labels: npt.ArrayLike, scores: npt.ArrayLike
) -> tuple[npt.NDArray[np.generic], FloatArray]:
    """Return labels and scores; as for the reject rules, NaN is the score of an unknown image."""
    y, s = _paired(labels, scores, "scores")
    values = s.astype(np.float64)
    return y, np.where(np.isnan(values), np.inf, values)


def _paired(
    labels: npt.ArrayLike, others: npt.ArrayLike, what: str
) -> tuple[npt.NDArray[np.generic], npt.NDArray[np.generic]]:
    y, p = np.asarray(labels).ravel(), np.asarray(others).ravel()
    if y.shape != p.shape:
        raise ValueError(f"{y.size} labels but {p.size} {what}")
    return y, p


def _mean(values: npt.NDArray[np.generic]) -> float:
    return float(values.astype(float).mean()) if values.size else NAN
