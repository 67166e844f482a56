"""Global and local clustering (GLC, CVPR 2023).

Letters in shapes: N target images, B of them in a batch, C known classes, D features. Features
are of unit length.
"""

import math

import torch
import torch.nn.functional as F
from sklearn.cluster import KMeans
from sklearn.manifold import TSNE
from sklearn.metrics import silhouette_score
from threadpoolctl import threadpool_limits
from torch import Tensor

from unida.ops.chunked import chunked_topk, column_chunks
from unida.ops.clustering import kmeans

COEFFICIENTS = (0.25, 0.5, 1.0, 2.0, 3.0)
"""Candidates for C_t / C, the share of target classes to known ones."""

_POINTS_A_CENTRE = 256  # as faiss does it: more points hardly move a centre
_POINTS = 20_000  # of one k-means, however many centres


def smoothed_cross_entropy(probs: Tensor, targets: Tensor, offset: float = 1e-5) -> Tensor:
    """−Σ_c t_c ln(p_c + offset) of every row; with t = p an entropy.

    Args:
        probs: (B, C), p.
        targets: (B, C), t.
        offset: keeps the logarithm and its slope finite.

    Returns:
        (B,).
    """
    return -(targets * (probs + offset).log()).sum(1)


def to_targets(labels: Tensor, n_classes: int) -> Tensor:
    """ŷ: one-hot for a class, uniform for "none of them"; rows divided by their sum + 10⁻⁴.

    Args:
        labels: (B,), classes; `n_classes` stands for none.
        n_classes: C.

    Returns:
        (B, C).
    """
    rows = F.one_hot(labels, n_classes + 1)
    rows = (rows[:, :-1] + rows[:, -1:]).float()
    return rows / (rows.sum(1, keepdim=True) + 1e-4)


@torch.no_grad()
def neighbours_say(features: Tensor, bank: Tensor, bank_probs: Tensor, k: int = 4) -> Tensor:
    """q̄: mean prediction of the k nearest in the bank, the first, the image itself, left out.

    Args:
        features: (B, D).
        bank: (N, D), N ≥ 2.
        bank_probs: (N, C).
        k: how many, if there are as many.

    Returns:
        (B, C).
    """
    columns = column_chunks(len(bank), len(features))
    _, nearest = chunked_topk(lambda part: features @ bank[part].T, columns, k + 1)
    return bank_probs[nearest[:, 1:]].mean(1)


def group_sizes(n: int, n_classes: int, coefficient: float) -> tuple[int, int]:
    """Images that stand for a class, n⁺ = ⌊N / (C · coefficient)⌋, and clusters of the rest.

    The released code breaks where C · coefficient is less than 2 or more than N; both are kept
    within what can be done.
    """
    expected = max(2.0, n_classes * coefficient)
    n_positive = max(1, int(n / expected))
    return n_positive, max(1, min(int(expected), n - n_positive))


@torch.no_grad()
def global_labels(features: Tensor, probs: Tensor, coefficient: float, rho: float) -> Tensor:
    """One-vs-all pseudo labels of all target images.

    The n⁺ images most probably of class c make its positive prototype, the rest is clustered into
    negative ones. An image belongs to the class of its nearest positive prototype if that,
    its similarity scaled by ρ + (1 − ρ) · mean p_c of the n⁺, is nearer than every negative one.

    Args:
        features: (N, D).
        probs: (N, C).
        coefficient: C_t / C.
        rho: ρ.

    Returns:
        (N,), a class, or C for none of them.
    """
    n, n_classes = probs.shape
    n_positive, n_clusters = group_sizes(n, n_classes, coefficient)
    most = min(_POINTS_A_CENTRE * n_clusters, _POINTS)
    groups = [_positive_and_rest(probs[:, c], n_positive, most) for c in range(n_classes)]
    prototypes = F.normalize(torch.stack([_mean(features, positive) for positive, _ in groups]))
    cosines, labels = _most_similar(features, prototypes)
    for c, (positive, rest) in enumerate(groups):
        mine = (labels == c).nonzero()[:, 0]
        if not len(mine):  # nobody asks this class
            continue
        negatives, _ = kmeans(features[rest], n_clusters, restarts=1)
        nearest_negative, _ = _most_similar(features, negatives, mine)
        scale = rho + (1 - rho) * probs[positive, c].mean()
        labels[mine[scale * cosines[mine] < nearest_negative]] = n_classes
    return labels


def _positive_and_rest(p: Tensor, n_positive: int, most: int) -> tuple[Tensor, Tensor]:
    """Numbers of the n⁺ largest of p (N,), and of the others; of many a random part."""
    if len(p) - n_positive <= most:
        order = p.sort(descending=True, stable=True).indices
        return order[:n_positive], order[n_positive:]
    positive = p.topk(n_positive).indices
    others = torch.ones_like(p, dtype=torch.bool).index_fill(0, positive, False).nonzero()[:, 0]
    return positive, others[torch.randperm(len(others))[:most]]


def _mean(features: Tensor, numbers: Tensor) -> Tensor:
    """Mean of the rows with these numbers, (D,)."""
    some = [
        features[numbers[part]].sum(0) for part in column_chunks(len(numbers), features.shape[1])
    ]
    return torch.stack(some).sum(0) / len(numbers)


def _most_similar(
    features: Tensor, others: Tensor, numbers: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """For each feature, or those with these numbers, its best dot product and with which row."""
    n = len(features) if numbers is None else len(numbers)
    best = []
    for part in column_chunks(n, max(others.shape)):
        rows = features[part] if numbers is None else features[numbers[part]]
        best.append((rows @ others.T).max(1))
    values, places = (torch.cat(each) for each in zip(*best, strict=True))
    return values, places


def search_coefficient(features: Tensor, n_classes: int) -> float:
    """C_t / C by the silhouette of k-means on a plane made by t-SNE.

    Args:
        features: (n, D), a sample of the target.
        n_classes: C.

    Returns:
        One of `COEFFICIENTS`; 1 where no number of clusters has a positive silhouette, or all
        features are alike or some not finite.
    """
    n = len(features)
    best, chosen = 0.0, 1.0
    spread = (features - features.mean(0)).abs().max()
    if not 0 < spread < math.inf:
        return chosen
    with threadpool_limits(1):  # threads add up in any order: bits would differ
        plane = TSNE(init="pca", perplexity=min(30.0, n / 4), random_state=0).fit_transform(
            features.numpy(force=True)
        )
        for coefficient in COEFFICIENTS:
            k = max(int(n_classes * coefficient), 2)
            if k >= n:
                break
            clusters = KMeans(k, n_init=10, random_state=0).fit_predict(plane)
            score = silhouette_score(plane, clusters)
            if score > best:
                best, chosen = score, coefficient
    return chosen
