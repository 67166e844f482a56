"""One-vs-all pseudo labels of a target, and the number of its classes (GLC, CVPR 2023).

Letters in shapes: N target images, B of them in a batch, C known classes, D features. Features
have unit length.
"""

import math

import numpy as np
import torch
import torch.nn.functional as F
from threadpoolctl import threadpool_limits
from torch import Tensor

from unida.ops.chunked import column_chunks
from unida.ops.kmeans import kmeans

RATIOS = (0.25, 0.5, 1.0, 2.0, 3.0)
"""Candidates for C_t / C, target classes per known class."""

_ROWS_PER_CENTRE = 256  # as faiss: more rows hardly move a centre
_MAX_ROWS = 20_000  # of one k-means, however many centres


def soft_targets(labels: Tensor, n_classes: int) -> Tensor:
    """Encode pseudo labels: one-hot for a class, uniform for C; rows over their sum + 10⁻⁴.

    Args:
        labels: (B,), classes; `n_classes` stands for "none of them".
        n_classes: C.

    Returns:
        ŷ, (B, C).
    """
    rows = F.one_hot(labels, n_classes + 1)
    rows = (rows[:, :-1] + rows[:, -1:]).float()
    return rows / (rows.sum(1, keepdim=True) + 1e-4)


def group_sizes(n: int, n_classes: int, ratio: float) -> tuple[int, int]:
    """Compute the positives per class, n⁺ = ⌊N / (C · ratio)⌋, and the clusters of the rest.

    The released code fails if C · ratio is below 2 or above N; here both are kept feasible.

    Example:
        >>> group_sizes(100, 20, 0.5)
        (10, 10)
    """
    n_groups = max(2.0, n_classes * ratio)
    n_positive = max(1, int(n / n_groups))
    return n_positive, max(1, min(int(n_groups), n - n_positive))


@torch.no_grad()
def one_vs_all_labels(features: Tensor, probs: Tensor, ratio: float, rho: float) -> Tensor:
    """Assign each image to the class of its nearest positive prototype, or to none.

    The n⁺ images with the largest p_c form class c's positive prototype; the others are clustered
    into negative prototypes. An image keeps the class of its nearest positive prototype if the
    similarity, scaled by ρ + (1 − ρ) · mean p_c of the n⁺, is at least that of every negative one.

    Args:
        features: (N, D).
        probs: (N, C).
        ratio: C_t / C.
        rho: ρ.

    Returns:
        (N,), a class, or C for none of them.

    Reference:
        Qu et al., "Upcycling Models under Domain and Category Shift", CVPR 2023.
    """
    n, n_classes = probs.shape
    n_positive, n_clusters = group_sizes(n, n_classes, ratio)
    limit = min(_ROWS_PER_CENTRE * n_clusters, _MAX_ROWS)
    groups = [_split(probs[:, c], n_positive, limit) for c in range(n_classes)]
    prototypes = F.normalize(torch.stack([_mean(features, positive) for positive, _ in groups]))
    cosines, labels = _most_similar(features, prototypes)
    for c, (positive, rest) in enumerate(groups):
        assigned = (labels == c).nonzero()[:, 0]
        if not len(assigned):  # spares the clustering
            continue
        negatives, _ = kmeans(features[rest], n_clusters, restarts=1)
        nearest_negative, _ = _most_similar(features, negatives, assigned)
        scale = rho + (1 - rho) * probs[positive, c].mean()
        labels[assigned[scale * cosines[assigned] < nearest_negative]] = n_classes
    return labels


def _split(p: Tensor, n_positive: int, limit: int) -> tuple[Tensor, Tensor]:
    """Indices of the n⁺ largest of p (N,) and of the others; a random subset beyond the limit."""
    if len(p) - n_positive <= limit:
        order = p.sort(descending=True, stable=True).indices
        return order[:n_positive], order[n_positive:]
    positive = p.topk(n_positive).indices
    others = torch.ones_like(p, dtype=torch.bool).index_fill(0, positive, False).nonzero()[:, 0]
    return positive, others[torch.randperm(len(others))[:limit]]


def _mean(features: Tensor, index: Tensor) -> Tensor:
    """Average the rows at `index`, (D,)."""
    sums = [features[index[part]].sum(0) for part in column_chunks(len(index), features.shape[1])]
    return torch.stack(sums).sum(0) / len(index)


def _most_similar(
    features: Tensor, prototypes: Tensor, index: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Find the largest dot product and its prototype, for all features or those at `index`."""
    n = len(features) if index is None else len(index)
    best = []
    for part in column_chunks(n, max(prototypes.shape)):
        rows = features[part] if index is None else features[index[part]]
        best.append((rows @ prototypes.T).max(1))
    values, nearest = (torch.cat(parts) for parts in zip(*best, strict=True))
    return values, nearest


def estimate_class_ratio(
    features: Tensor, n_classes: int, ratios: tuple[float, ...] = RATIOS
) -> float:
    """Estimate C_t / C by the silhouette of k-means on a t-SNE plane.

    Args:
        features: (n, D), a sample of the target.
        n_classes: C.
        ratios: the candidates.

    Returns:
        One of them; 1 if no number of clusters has a positive silhouette, all features are
        equal, or some are not finite.
    """
    from sklearn.cluster import KMeans
    from sklearn.manifold import TSNE
    from sklearn.metrics import silhouette_score

    n = len(features)
    best, chosen = 0.0, 1.0
    spread = (features - features.mean(0)).abs().max()
    if not 0 < spread < math.inf:  # t-SNE of equal rows has crashed the interpreter
        return chosen
    with threadpool_limits(1):  # threads add up in any order: bits would differ
        plane = TSNE(init="pca", perplexity=min(30.0, n / 4), random_state=0).fit_transform(
            features.numpy(force=True)
        )
        most = min(n, len(np.unique(plane, axis=0)) + 1)  # equal places make no more clusters
        for ratio in ratios:
            k = max(int(n_classes * ratio), 2)
            if k >= most:
                break
            clusters = KMeans(k, n_init=10, random_state=0).fit_predict(plane)
            score = silhouette_score(plane, clusters)
            if score > best:
                best, chosen = score, ratio
    return chosen
