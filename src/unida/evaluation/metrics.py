"""H-score and its relatives, on arrays. A number that has nothing to be measured on is NaN."""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.optimize import linear_sum_assignment
from sklearn.cluster import KMeans, MiniBatchKMeans
from sklearn.metrics import normalized_mutual_info_score
from sklearn.preprocessing import normalize

from unida.ops.pca import joint_pca
from unida.types import FloatArray, IntArray
from unida.utils.chunking import MAX_SAMPLES, subsample

NAN = math.nan

MANY_IMAGES = 20_000
"""More than these are clustered in mini-batches."""
MANY_FEATURES = 256
"""Features are brought down to these before they are clustered."""
MOST_NOVEL = MAX_SAMPLES
"""Images `novel_nmi` clusters."""


@dataclass(frozen=True)
class Score:
    """Accuracies as fractions. One that has no sample to be measured on is NaN.

    Attributes:
        known: mean recall over the shared classes (those with samples).
        known_instance: share of known samples that are right.
        unknown: share of unknown samples called unknown.
        h: harmonic mean of `known` and `unknown`; 0 if both are 0, NaN if either is.
        h_instance: the same of `known_instance` and `unknown`.
        balanced_h: the paper's Balance-H of `known` and `unknown`,
            (1 + θ) a_k a_u / (θ a_k + a_u) with θ = unknown samples / known samples.
        os: mean recall over the shared classes and unknown as one more class.
        os_star: mean recall over the shared classes; equals `known`.
    """

    known: float
    known_instance: float
    unknown: float
    h: float
    h_instance: float
    balanced_h: float
    os: float
    os_star: float


def score(
    labels: npt.ArrayLike,
    predictions: npt.ArrayLike,
    *,
    unknown: int,
    n_shared: int | None = None,
) -> Score:
    """Scores predictions on a target with known and unknown classes.

    Args:
        labels: true classes; `unknown` for every class the source does not have.
        predictions: predicted classes or `unknown`. A source-private class is simply wrong.
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
    of_class = [by_class[int(k)] for k in classes]
    known, known_instance = _mean(np.array(of_class)), _mean(right[~is_unknown])
    of_unknown = _mean(right[is_unknown])
    theta = is_unknown.sum() / (~is_unknown).sum() if classes.size else NAN
    seen = of_class if math.isnan(of_unknown) else [*of_class, of_unknown]
    return Score(
        known=known,
        known_instance=known_instance,
        unknown=of_unknown,
        h=_harmonic(known, of_unknown, 1.0),
        h_instance=_harmonic(known_instance, of_unknown, 1.0),
        balanced_h=_harmonic(known, of_unknown, theta),
        os=_mean(np.array(seen)),
        os_star=known,
    )


def auroc(labels: npt.ArrayLike, unknown_scores: npt.ArrayLike, unknown: int) -> float:
    """How often an unknown image scores above a known one; a tie counts half.

    Args:
        labels: true classes; `unknown` for every class the source does not have.
        unknown_scores: larger is stranger; one that is no number counts as the strangest.
        unknown: the number that stands for unknown.
    """
    y, s = _scored(labels, unknown_scores)
    return _mean(_unknown_above(s[y != unknown], s[y == unknown]))


def oscr(
    labels: npt.ArrayLike, best_class: npt.ArrayLike, unknown_scores: npt.ArrayLike, unknown: int
) -> float:
    """Area under the open-set classification rate curve (Dhamija et al., NeurIPS 2018).

    At every threshold: the share of known images that are accepted and right, over the share of
    unknown images that are accepted. The area is the AUROC in which a known image that is
    classified wrong wins against nobody, so it is at most the accuracy without rejection.

    Args:
        labels: true classes; `unknown` for every class the source does not have.
        best_class: the most likely known class, whatever the verdict.
        unknown_scores: larger is stranger; one that is no number counts as the strangest.
        unknown: the number that stands for unknown.
    """
    y, s = _scored(labels, unknown_scores)
    y, best = _paired(y, best_class, "predictions")
    known = y != unknown
    return _mean(_unknown_above(s[known], s[~known]) * (best == y)[known])


def h3(known: float, unknown: float, nmi: float) -> float:
    """UniOT's H³: harmonic mean of known and unknown accuracy and of `novel_nmi`."""
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
    """How well the unknown images fall into their true classes, from 0 to 1.

    As UniOT has it: the images that are truly unknown (not those called unknown) are clustered by
    k-means on features of unit length, into as many groups as there are true classes, and groups
    and classes are compared by normalised mutual information. So target labels say which images
    are looked at, how many groups there are and how good they are: a number to report, never to
    select by. Differences: UniOT moves the centres on the sphere too (faiss, 20 rounds, 5 starts);
    here they are plain means. Large sets are clustered in mini-batches, long features after PCA;
    of more than `MOST_NOVEL` images, a sample is looked at.

    Args:
        features: (N, D), of the truly unknown images.
        true_novel_classes: (N,), names or numbers.
        seed: of the sample and the first centres.
        rows: numbers of the truly unknown images, where there are others among the N.
    """
    x, classes = np.asarray(features), np.asarray(true_novel_classes)
    if len(x) != len(classes):
        raise ValueError(f"{len(classes)} labels but {len(x)} rows of features")
    rows = np.arange(len(x)) if rows is None else rows
    some = rows[subsample(len(rows), MOST_NOVEL, seed, "novel")]
    x, classes = x[some].astype(np.float32, copy=False), classes[some]
    n_classes = len(np.unique(classes))
    if n_classes < 2 or not np.isfinite(x).all():  # one class falls into one group always
        return NAN
    x = normalize(x)
    if x.shape[1] > MANY_FEATURES and len(x) > MANY_FEATURES:
        (x,) = joint_pca([x], MANY_FEATURES, seed)
    kind = MiniBatchKMeans if len(x) > MANY_IMAGES else KMeans
    n_different = len(np.unique(x, axis=0))  # k-means warns of groups it cannot fill
    groups = kind(min(n_classes, n_different), n_init=5, random_state=seed).fit_predict(x)
    return float(normalized_mutual_info_score(classes, groups))


def cluster_accuracy(classes: npt.ArrayLike, groups: npt.ArrayLike) -> float:
    """Share of samples in the group that stands for their class (Hungarian accuracy).

    Groups and classes are paired one to one, as well as can be.

    Args:
        classes: true classes, names or numbers.
        groups: numbers of the groups; below zero is in no group, and never right.
    """
    names, g = _paired(classes, groups, "groups")
    if not names.size:
        return NAN
    inside = g.astype(np.int64) >= 0
    y, g = np.unique(names, return_inverse=True)[1], np.unique(g, return_inverse=True)[1]
    counts = np.zeros((y.max() + 1, g.max() + 1), dtype=np.int64)
    np.add.at(counts, (y[inside], g[inside]), 1)
    pairs = linear_sum_assignment(counts, maximize=True)
    return float(counts[pairs].sum() / names.size)


def confusion(labels: npt.ArrayLike, predictions: npt.ArrayLike, n_known: int) -> IntArray:
    """Counts: rows are true classes, columns predictions; the last of each, `n_known`, is unknown.

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
    """By true class, the share of its samples that are right; a class without one is left out."""
    y, p = _paired(labels, predictions, "predictions")
    classes, number, counts = np.unique(y, return_inverse=True, return_counts=True)
    right = np.bincount(number, weights=y == p, minlength=len(classes))
    return dict(zip(map(int, classes), (right / counts).tolist(), strict=True))


def _unknown_above(known: FloatArray, unknown: FloatArray) -> FloatArray:
    """For each known score, the share of unknown scores above it; ties count half."""
    if not unknown.size:
        return np.full(known.shape, NAN)
    order = np.sort(unknown)
    below = np.searchsorted(order, known, "left") + np.searchsorted(order, known, "right")
    return np.asarray(1 - below / (2 * unknown.size))


def _scored(
    labels: npt.ArrayLike, scores: npt.ArrayLike
) -> tuple[npt.NDArray[np.generic], FloatArray]:
    """Labels and scores; as for the reject rules, a score that is no number is an unknown's."""
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


def _harmonic(known: float, unknown: float, theta: float) -> float:
    """(1 + θ)·k·u / (θ·k + u); 0 where both are 0."""
    if known == 0 and unknown == 0:
        return 0.0
    if math.isnan(known) or math.isnan(unknown):
        return NAN
    return float((1 + theta) * known * unknown / (theta * known + unknown))
