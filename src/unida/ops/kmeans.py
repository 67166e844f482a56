"""K-means on the device of the rows, with the same random draws on CPU and GPU.

The released codes use scikit-learn (DCC), which is CPU only, or faiss (GLC). From the same start,
scikit-learn's k-means arrives at the same clusters.

Letters in shapes: M rows of width D, K centres, R restarts, T candidates for the next centre.
"""

import math

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from unida.ops.chunked import column_chunks

MAX_ROWS = 50_000
"""Rows that Lloyd's iterations use at most; larger sets are subsampled."""

_MIN_ROWS_PER_CENTRE = 40  # of that subsample
_MAX_ITERATIONS = 300
_DUPLICATE = 1e-6  # share of the rows' mean square: a distance this small is rounding
_TOLERANCE = 1e-4  # share of the rows' variance: stop when centres move by less


def kmeans(rows: Tensor, start: int | Tensor, restarts: int = 10) -> tuple[Tensor, Tensor]:
    """Cluster rows by Lloyd's k-means, from greedy k-means++ or from given centres; seed 0.

    If there are more than `MAX_ROWS` rows (and 40 per centre), a random subsample moves the
    centres; then all rows are assigned to their nearest centre.

    Args:
        rows: (M, D), of unit length for a spherical clustering.
        start: K, for k-means++, or initial centres (K, D).
        restarts: of k-means++; the best is kept.

    Returns:
        Centres at unit length (K, D) and each row's cluster (M,). No cluster is empty, so K is
        smaller if there are fewer distinct rows.

    Example:
        >>> centres, cluster = kmeans(torch.eye(2)[[0, 0, 1]], torch.eye(2))
        >>> cluster.tolist()
        [0, 0, 1]
    """
    draws = Generator().manual_seed(0)
    k = len(start) if isinstance(start, Tensor) else start
    limit, sample = max(MAX_ROWS, _MIN_ROWS_PER_CENTRE * k), rows
    if len(rows) > limit:
        sample = rows[torch.randperm(len(rows), generator=draws)[:limit].to(rows.device)]
    if isinstance(start, Tensor):
        starts = start[None]
    else:
        starts = kmeans_plus_plus(sample, k, restarts, draws)
    centres, _ = min((_lloyd(sample, each) for each in starts), key=lambda fit: float(fit[1]))
    _, cluster = nearest_centre(rows, centres)
    used, cluster = torch.unique(cluster, return_inverse=True)
    return F.normalize(centres[used]), cluster


def nearest_centre(rows: Tensor, centres: Tensor) -> tuple[Tensor, Tensor]:
    """Find the squared distance to the nearest centre and the centre's index, (M,) each."""
    half_squares = centres.square().sum(1, keepdim=True) / 2
    found = [  # ‖x − c‖² = ‖x‖² − 2 (x·c − ‖c‖² / 2)
        (centres @ rows[part].T - half_squares).max(0)
        for part in column_chunks(len(rows), len(centres))
    ]
    similarity, cluster = (torch.cat(parts) for parts in zip(*found, strict=True))
    return (rows.square().sum(1) - 2 * similarity).clamp_min(0), cluster


def kmeans_plus_plus(rows: Tensor, k: int, restarts: int, draws: Generator) -> Tensor:
    """Choose initial centres by greedy k-means++, (R, K, D).

    Candidates for the next centre are drawn in proportion to their squared distance from the
    centres so far; the candidate that lowers the total distance most is taken.
    """
    n_candidates = 2 + int(math.log(k))
    restart, last = torch.arange(restarts, device=rows.device), len(rows) - 1
    squares = rows.square().sum(1)
    shape = (k, restarts, n_candidates)
    uniform = torch.rand(shape, generator=draws, dtype=torch.float64).to(rows)

    def distances(index: Tensor) -> Tensor:
        """Squared distances of all rows to those at `index`: (…, M)."""
        cross = squares[index][..., None] - 2 * rows[index] @ rows.T
        return (squares + cross).clamp_min(0)

    # 1 − 1e-9 may be rounded up to 1, hence the clamp.
    chosen = [(uniform[0, :, 0] * len(rows)).long().clamp_max(last)]
    d2 = distances(chosen[0])
    for u in uniform[1:]:
        cumulative = d2.cumsum(1)
        candidates = torch.searchsorted(cumulative, u * cumulative[:, -1:]).clamp_max(last)  # (R,T)
        remaining = torch.minimum(d2[:, None], distances(candidates))
        best = remaining.sum(2).argmin(1)
        d2 = remaining[restart, best]
        chosen.append(candidates[restart, best])
    return rows[torch.stack(chosen, 1)]


def _lloyd(rows: Tensor, centres: Tensor) -> tuple[Tensor, Tensor]:
    """Iterate to convergence; return the centres and the sum of squared distances."""
    tolerance = _TOLERANCE * rows.var(0, correction=0).mean()
    previous = None
    for _ in range(_MAX_ITERATIONS):
        d2, cluster = nearest_centre(rows, centres)
        if previous is not None and cluster.equal(previous):
            return centres, d2.sum()
        means = _cluster_means(rows, centres, d2, cluster)
        converged = (means - centres).square().sum() <= tolerance
        centres, previous = means, cluster
        if converged:
            break
    return centres, nearest_centre(rows, centres)[0].sum()


def _cluster_means(rows: Tensor, centres: Tensor, d2: Tensor, cluster: Tensor) -> Tensor:
    """Average each cluster; an empty cluster's centre moves to a row far from its own centre."""
    counts = torch.bincount(cluster, minlength=len(centres))[:, None]
    sums = _cluster_sums(rows, cluster, torch.zeros_like(centres))
    means = torch.where(counts > 0, sums / counts.clamp_min(1), centres)
    empty = (counts[:, 0] == 0).nonzero()[:, 0]
    if len(empty):
        furthest = d2.topk(min(len(empty), len(d2)))
        distinct = furthest.values > _DUPLICATE * rows.square().sum(1).mean()
        far = rows[furthest.indices[distinct]]
        means = means.index_copy(0, empty[: len(far)], far)
    return means


def _cluster_sums(rows: Tensor, cluster: Tensor, sums: Tensor) -> Tensor:
    """Add each row to its cluster's sum, in a reproducible order."""
    if not rows.is_cuda:
        return sums.index_add_(0, cluster, rows)
    # CUDA's index_add_ is not deterministic; a matrix product is.
    for part in column_chunks(len(rows), len(sums)):
        sums += F.one_hot(cluster[part], len(sums)).to(rows).T @ rows[part]
    return sums
