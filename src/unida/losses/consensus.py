"""Clusters of the target that agree with classes of the source (DCC, CVPR 2021, Section 3.2).

Letters in shapes: N source and M target rows, C classes, K clusters, P pairs, D width.
"""

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np
import torch
import torch.nn.functional as F
from sklearn.cluster import KMeans
from threadpoolctl import threadpool_limits
from torch import Generator, Tensor

from unida.losses.parts import parts

MANY_ROWS = 50_000
"""Rows k-means moves its centres by, and source rows the search of K looks at; of more, a part."""

_ROWS_A_CENTRE = 40  # of that part at the least
_PATIENCE = 4  # scores that must not rise for the search of K to end


def kmeans(rows: Tensor, start: int | Tensor, restarts: int = 10) -> tuple[Tensor, Tensor]:
    """K-means of scikit-learn, seed 0.

    Of more than `MANY_ROWS` (and 40 a centre) a random part moves the centres; then all rows go to
    their nearest.

    Args:
        rows: (M, D), of unit length for a spherical clustering.
        start: K, for k-means++, or the centres (K, D) to start from.
        restarts: of k-means++; the best is kept.

    Returns:
        Centres at unit length (K, D) and each row's cluster (M,). Fewer than K where fewer rows
        differ: no cluster is empty.
    """
    k = len(start) if isinstance(start, Tensor) else start
    most = max(MANY_ROWS, _ROWS_A_CENTRE * k)
    if len(rows) <= most:
        centres, ids = _fit(rows, start, restarts)
    else:
        draw = torch.randperm(len(rows), generator=Generator().manual_seed(0))[:most]
        centres, _ = _fit(rows[draw], start, restarts)
        ids = _best(rows, centres, centres.square().sum(1) / 2)  # −‖x − c‖² / 2, but for ‖x‖²
    used, ids = torch.unique(ids, return_inverse=True)
    return F.normalize(centres[used]), ids


def _fit(rows: Tensor, start: int | Tensor, restarts: int) -> tuple[Tensor, Tensor]:
    """Centres, as they are, and the clusters of the rows."""
    data = rows.numpy(force=True)
    if isinstance(start, Tensor):
        fit = KMeans(len(start), init=start.numpy(force=True), n_init=1, random_state=0)
    else:
        fit = KMeans(min(start, len(np.unique(data, axis=0))), n_init=restarts, random_state=0)
    with threadpool_limits(1, user_api="openmp"):  # threads add up in any order: bits would differ
        fit.fit(data)
    centres = torch.as_tensor(fit.cluster_centers_, dtype=rows.dtype, device=rows.device)
    return centres, torch.as_tensor(fit.labels_, device=rows.device).long()


def _best(rows: Tensor, columns: Tensor, less: Tensor | float = 0.0) -> Tensor:
    """Where rows @ columns.T − less is largest, (N,); the table is never whole."""
    tables = (rows[part] @ columns.T - less for part in parts(len(rows), len(columns)))
    return torch.cat([table.argmax(1) for table in tables])


def search_centres(
    source: Tensor,
    labels: Tensor,
    target: Tensor,
    n_classes: int,
    ks: Iterable[int],
    restarts: int = 10,
) -> Tensor:
    """Centres (K, D) of the target's clusters, for the K of best consensus; see `pick_k`.

    Args:
        source: (N, D), unit rows; of more than `MANY_ROWS`, evenly spaced ones are looked at.
        labels: (N,), their classes.
        target: (M, D), unit rows.
        n_classes: C.
        ks: the K to try, in this order.
        restarts: of k-means.
    """
    step = math.ceil(len(source) / MANY_ROWS)
    source, labels = source[::step], labels[::step]
    tried, scores, chosen = [], [], 0
    for k in ks:
        centres, ids = kmeans(target, k, restarts)
        _, agreement = matching_pairs(source, labels, target, ids, centres, n_classes)
        tried.append(centres)
        scores.append(float(agreement.mean()) if len(agreement) else 0.0)
        chosen, over = pick_k(scores)
        if over:
            break
    return tried[chosen]


def matching_pairs(
    source: Tensor, labels: Tensor, target: Tensor, ids: Tensor, centres: Tensor, n_classes: int
) -> tuple[Tensor, Tensor]:
    """`consensus` with the class means of the source."""
    means = class_means(source, labels, n_classes)
    return consensus(means, centres, source, labels, target, ids)


def class_means(features: Tensor, labels: Tensor, n_classes: int) -> Tensor:
    """(C, D): the mean of each class's unit features, at unit length."""
    sums = features.new_zeros(n_classes, features.shape[1])
    for part in parts(*features.shape):
        sums.index_add_(0, labels[part], F.normalize(features[part]))
    return F.normalize(sums)


def consensus(
    means: Tensor,
    centres: Tensor,
    source: Tensor,
    labels: Tensor,
    target: Tensor,
    ids: Tensor,
) -> tuple[Tensor, Tensor]:
    """Classes and clusters that are each other's nearest, and how far their members agree.

    The score of a pair (i, j) is the average of two shares: of class i's source rows whose
    nearest centre is j, and of cluster j's target rows whose nearest class mean is i. All rows
    have unit length.

    Args:
        means: (C, D), class means of the source.
        centres: (K, D), centres of the target's clusters.
        source: (N, D), source features.
        labels: (N,), their classes.
        target: (M, D), target features.
        ids: (M,), their clusters.

    Returns:
        The pairs, (P, 2) class and cluster, and their scores (P,); P may be 0.
    """
    alike = means @ centres.T
    centre_of, class_of = alike.argmax(1), alike.argmax(0)
    classes = torch.arange(len(means), device=alike.device)
    mutual = class_of[centre_of] == classes
    agree_source = _best(source, centres) == centre_of[labels]
    agree_target = _best(target, means) == class_of[ids]
    of_class = _shares(agree_source, labels, len(means))
    of_cluster = _shares(agree_target, ids, len(centres))
    pairs = torch.stack([classes, centre_of], 1)[mutual]
    return pairs, (of_class[pairs[:, 0]] + of_cluster[pairs[:, 1]]) / 2


def _shares(hits: Tensor, groups: Tensor, n: int) -> Tensor:
    """The share of hits in each of n groups; 0 in an empty one."""
    counts = torch.bincount(groups, minlength=n)
    return torch.bincount(groups[hits], minlength=n) / counts.clamp_min(1)


def pick_k(scores: Sequence[float]) -> tuple[int, bool]:
    """Which of the K tried so far to take, and whether the search is over.

    The search ends when the last four scores do not rise; the first of them is taken, even if
    an earlier one was higher (as released). Until then it is the best score's, the first of equals.
    """
    last = scores[-_PATIENCE:]
    if len(last) == _PATIENCE and all(a >= b for a, b in pairwise(last)):
        return len(scores) - _PATIENCE, True
    return max(range(len(scores)), key=scores.__getitem__), False
