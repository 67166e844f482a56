"""Global and local clustering (GLC, CVPR 2023).

Letters in shapes: N target images, B of them in a batch, C known classes, D features. Features
are of unit length.
"""

import torch
import torch.nn.functional as F
from sklearn.cluster import KMeans
from sklearn.manifold import TSNE
from sklearn.metrics import silhouette_score
from threadpoolctl import threadpool_limits
from torch import Tensor

from unida.losses.consensus import kmeans

COEFFICIENTS = (0.25, 0.5, 1.0, 2.0, 3.0)
"""Candidates for C_t / C, the share of target classes to known ones."""

_POINTS_A_CENTRE = 256  # as faiss does it: more points hardly move a centre


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
    nearest = (features @ bank.T).topk(min(k + 1, len(bank)), dim=1).indices[:, 1:]
    return bank_probs[nearest].mean(1)


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
    ranked, order = probs.sort(dim=0, descending=True, stable=True)
    prototypes = F.normalize(features[order[:n_positive]].mean(0))
    scale = rho + (1 - rho) * ranked[:n_positive].mean(0)
    cosines = features @ prototypes.T
    labels = cosines.argmax(1)
    for c in range(n_classes):
        mine = (labels == c).nonzero()[:, 0]
        if not len(mine):  # nobody asks this class
            continue
        negatives = _centres(features[order[n_positive:, c]], n_clusters)
        nearest_negative = (features[mine] @ negatives.T).amax(1)
        labels[mine[scale[c] * cosines[mine, c] < nearest_negative]] = n_classes
    return labels


def _centres(points: Tensor, k: int) -> Tensor:
    """Centres of k-means at unit length, (k, D); of many points a random part is looked at."""
    most = _POINTS_A_CENTRE * k
    if len(points) > most:
        points = points[torch.randperm(len(points))[:most]]
    return kmeans(points, k, restarts=1)[0]


def search_coefficient(features: Tensor, n_classes: int) -> float:
    """C_t / C by the silhouette of k-means on a plane made by t-SNE.

    Args:
        features: (n, D), a sample of the target.
        n_classes: C.

    Returns:
        One of `COEFFICIENTS`; 1 where no number of clusters has a positive silhouette.
    """
    n = len(features)
    best, chosen = 0.0, 1.0
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
