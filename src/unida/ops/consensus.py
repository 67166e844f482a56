"""Clusters of the target that agree with classes of the source (DCC, CVPR 2021, Section 3.2).

Letters in shapes: N source and M target rows, C classes, K clusters, P pairs, D width.
"""

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor

from unida.ops.chunked import column_chunks
from unida.ops.clustering import MANY_ROWS, kmeans

_PATIENCE = 4  # scores that must not rise for the search of K to end


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
    for part in column_chunks(*features.shape):
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


def _best(rows: Tensor, columns: Tensor) -> Tensor:
    """Where rows @ columns.T is largest, (N,); the table is never whole."""
    tables = (rows[part] @ columns.T for part in column_chunks(len(rows), len(columns)))
    return torch.cat([table.argmax(1) for table in tables])


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
