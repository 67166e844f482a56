"""Consensus of target clusters and source classes, and their memory (DCC, CVPR 2021).

Letters in shapes: N source and M target rows, C classes, K clusters, P pairs, D width.
"""

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor

from unida.ops.chunked import column_chunks
from unida.ops.kmeans import MAX_ROWS, kmeans

_PATIENCE = 4  # consecutive scores without a rise that end the search for K


def search_centres(
    source: Tensor,
    labels: Tensor,
    target: Tensor,
    n_classes: int,
    ks: Iterable[int],
    restarts: int = 10,
) -> Tensor:
    """Search the number of clusters by consensus; return the centres (K, D). See `pick_k`.

    Args:
        source: (N, D), unit rows; more than `MAX_ROWS` are thinned evenly.
        labels: (N,), source classes.
        target: (M, D), unit rows.
        n_classes: C.
        ks: candidates for K, in order.
        restarts: of k-means.
    """
    step = math.ceil(len(source) / MAX_ROWS)
    source, labels = source[::step], labels[::step]
    candidates, scores, chosen = [], [], 0
    for k in ks:
        centres, cluster = kmeans(target, k, restarts)
        _, agreement = match_clusters(source, labels, target, cluster, centres, n_classes)
        candidates.append(centres)
        scores.append(float(agreement.mean()) if len(agreement) else 0.0)
        chosen, done = pick_k(scores)
        if done:
            break
    return candidates[chosen]


def match_clusters(
    source: Tensor, labels: Tensor, target: Tensor, cluster: Tensor, centres: Tensor, n_classes: int
) -> tuple[Tensor, Tensor]:
    """Apply `consensus` with the source's class means."""
    means = class_means(source, labels, n_classes)
    return consensus(means, centres, source, labels, target, cluster)


def class_means(features: Tensor, labels: Tensor, n_classes: int) -> Tensor:
    """Average each class's unit features and normalise the means, (C, D)."""
    sums = features.new_zeros(n_classes, features.shape[1])
    for part in column_chunks(*features.shape):
        sums.index_add_(0, labels[part], F.normalize(features[part]))
    return F.normalize(sums)


def consensus(
    means: Tensor,
    centres: Tensor,
    source: Tensor,
    labels: Tensor,
    target: Tensor,
    cluster: Tensor,
) -> tuple[Tensor, Tensor]:
    """Match classes and clusters that are mutual nearest neighbours, and score the agreement.

    The score of a pair (i, j) averages two shares: the share of class i's source rows whose
    nearest centre is j, and the share of cluster j's target rows whose nearest class mean is i.
    All rows have unit length.

    Args:
        means: (C, D), class means of the source.
        centres: (K, D), cluster centres of the target.
        source: (N, D), source features.
        labels: (N,), source classes.
        target: (M, D), target features.
        cluster: (M,), target clusters.

    Returns:
        The pairs, (P, 2) class and cluster, and their scores (P,); P may be 0.

    Reference:
        Li et al., "Domain Consensus Clustering for Universal Domain Adaptation", CVPR 2021,
        Section 3.2.
    """
    similarity = means @ centres.T
    centre_of, class_of = similarity.argmax(1), similarity.argmax(0)
    classes = torch.arange(len(means), device=similarity.device)
    mutual = class_of[centre_of] == classes
    source_agrees = _nearest(source, centres) == centre_of[labels]
    target_agrees = _nearest(target, means) == class_of[cluster]
    of_class = _shares(source_agrees, labels, len(means))
    of_cluster = _shares(target_agrees, cluster, len(centres))
    pairs = torch.stack([classes, centre_of], 1)[mutual]
    return pairs, (of_class[pairs[:, 0]] + of_cluster[pairs[:, 1]]) / 2


def _nearest(rows: Tensor, columns: Tensor) -> Tensor:
    """Find the column with the largest dot product, (N,)."""
    tables = (rows[part] @ columns.T for part in column_chunks(len(rows), len(columns)))
    return torch.cat([table.argmax(1) for table in tables])


def _shares(hits: Tensor, groups: Tensor, n: int) -> Tensor:
    """Compute the share of hits in each of n groups; 0 for an empty group."""
    counts = torch.bincount(groups, minlength=n)
    return torch.bincount(groups[hits], minlength=n) / counts.clamp_min(1)


def pick_k(scores: Sequence[float]) -> tuple[int, bool]:
    """Choose among the K tried so far; also report whether the search is done.

    The search stops when the last four scores do not rise, and takes the first of these four even
    if an earlier score was higher (as released). Until then the best score wins, the first of ties.

    Example:
        >>> pick_k([0.5, 0.6, 0.55, 0.5, 0.45])
        (1, True)
    """
    last = scores[-_PATIENCE:]
    if len(last) == _PATIENCE and all(a >= b for a, b in pairwise(last)):
        return len(scores) - _PATIENCE, True
    return max(range(len(scores)), key=scores.__getitem__), False


def update_centres(centres: Tensor, features: Tensor, cluster: Tensor) -> Tensor:
    """Move the memory of cluster centres towards a batch, without gradient.

    m_k ← normalise(ω m_k + (1 − ω) b_k), ω = ⟨m_k, b_k⟩, with b_k the normalised sum of the batch's
    unit features in cluster k. Clusters that are absent from the batch stay where they are.

    Args:
        centres: (K, D), unit rows m_k.
        features: (B, D), of any length.
        cluster: (B,), cluster of each feature.

    Example:
        >>> update_centres(torch.eye(2), torch.tensor([[2.0, 0.0]]), torch.tensor([0])).tolist()
        [[1.0, 0.0], [0.0, 1.0]]
    """
    unit = F.normalize(features.detach())
    sums = torch.zeros_like(centres).index_add(0, cluster, unit)
    mean = F.normalize(sums)
    omega = (centres * mean).sum(1, keepdim=True)
    absent = torch.zeros(len(centres), 1, dtype=torch.bool, device=cluster.device)
    present = absent.index_fill(0, cluster, True)
    moved = F.normalize(omega * centres + (1 - omega) * mean)
    return torch.where(present, moved, centres)
