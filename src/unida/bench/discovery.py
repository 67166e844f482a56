"""A run's novel categories against the true classes, scored as Generalized Category Discovery does.

One Hungarian pairing over all target images decides: predicted known classes and categories are the
clusters, and rejected images in no category one more. The reference is k-means on the method's
features of the rejected images with the true number of novel classes; target labels choose that
number, so it is an oracle.
"""

import dataclasses

import numpy as np
import numpy.typing as npt
from sklearn.cluster import KMeans

from unida.discovery.clustering import (
    NO_CATEGORY,
    Clustering,
    find_categories,
    half_whiten,
    select_known,
)
from unida.discovery.clusters import normalize_rows
from unida.evaluation.evaluate import Evaluation, defined
from unida.evaluation.metrics import CategoryScore, h3, score_categories
from unida.types import Features, IntArray

ORACLE = "kmeans_"
"""Start of the names of the reference's scores."""


def score_discovery(
    found: Evaluation, rule: str, rejected: npt.NDArray[np.bool_], backbone: Features, seed: int = 0
) -> dict[str, float | None]:
    """Find the categories of a run and score them.

    Args:
        found: the run's outputs and true classes.
        rule: name of the reject rule.
        rejected: (N,), which images it calls unknown.
        backbone: (N, d), components of the backbone's features; empty where they were not kept.
        seed: of the clustering.

    Returns:
        Scores by name, fractions and numbers; None where undefined.
    """
    scored = found.scored
    best, n_known = scored.probs.argmax(1), scored.probs.shape[1]
    is_novel = found.labels == n_known
    features = half_whiten(backbone if backbone.shape[1] else scored.features)
    known = select_known(features, best, ~rejected, scored.unknown_score)
    categories = find_categories(features[rejected], known, seed)
    names = found.true_classes
    score = score_categories(names, clusters_of(best, n_known, rejected, categories), is_novel)
    true = len(np.unique(names[is_novel]))
    of_rule = found.scores[rule]
    count = len(categories.centres)
    numbers = {
        "h3": h3(of_rule.known, of_rule.unknown, score.nmi),
        "count": count,
        "low": categories.low,
        "high": categories.high,
        "true": true,
        "error": abs(count - true) / true if true else float("nan"),
        "covered": float(categories.low <= true <= categories.high),
        "supported": float(not categories.note),
        "rejected": int(rejected.sum()),
        "in_none": int((categories.category == NO_CATEGORY).sum()),
    }
    clusters = best.copy()
    clusters[rejected] = n_known + _true_number(scored.features[rejected], true, seed)
    reference = score_categories(names, clusters, is_novel)
    return defined(_scores(score) | numbers | _scores(reference, ORACLE))


def clusters_of(
    best: IntArray, n_known: int, rejected: npt.NDArray[np.bool_], categories: Clustering
) -> IntArray:
    """Return a cluster for every image: its class, or its category, or −1 for none."""
    clusters = best.copy()
    category = categories.category
    clusters[rejected] = np.where(category == NO_CATEGORY, -1, n_known + category)
    return clusters


def _true_number(features: Features, count: int, seed: int) -> IntArray:
    x = normalize_rows(features)
    count = min(count, len(np.unique(x, axis=0)))
    if count < 2:
        return np.zeros(len(x), np.int64)
    return np.asarray(KMeans(count, n_init=3, random_state=seed).fit_predict(x), dtype=np.int64)


def _scores(score: CategoryScore, prefix: str = "") -> dict[str, float]:
    return {prefix + name: value for name, value in dataclasses.asdict(score).items()}
