"""K-means where the rows are: on the CPU or on the GPU, with the same draws.

The releases that need one call scikit-learn's (DCC), which is for the CPU alone, or faiss's (GLC);
from the same centres scikit-learn's arrives at the same clusters.

Letters in shapes: M rows of width D, K centres, R restarts, T candidates for the next centre.
"""

import math

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from unida.ops.chunked import column_chunks

MANY_ROWS = 50_000
"""Rows that move the centres at the most; of more, a part."""

_ROWS_A_CENTRE = 40  # of that part at the least
_ROUNDS = 300
_SAME = 1e-6  # of the rows' mean square: a distance that is but rounding
_STILL = 1e-4  # centres that move by less than this share of the rows' variance have arrived


def kmeans(rows: Tensor, start: int | Tensor, restarts: int = 10) -> tuple[Tensor, Tensor]:
    """Lloyd's k-means, from greedy k-means++ or from given centres; seed 0.

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
    draws = Generator().manual_seed(0)
    k = len(start) if isinstance(start, Tensor) else start
    most, some = max(MANY_ROWS, _ROWS_A_CENTRE * k), rows
    if len(rows) > most:
        some = rows[torch.randperm(len(rows), generator=draws)[:most].to(rows.device)]
    starts = start[None] if isinstance(start, Tensor) else spread_out(some, k, restarts, draws)
    centres, _ = min((_moved(some, each) for each in starts), key=lambda fit: float(fit[1]))
    _, ids = nearest(rows, centres)
    used, ids = torch.unique(ids, return_inverse=True)
    return F.normalize(centres[used]), ids


def nearest(rows: Tensor, centres: Tensor) -> tuple[Tensor, Tensor]:
    """Squared distance to the nearest centre, and which that is: (M,) each."""
    less = centres.square().sum(1, keepdim=True) / 2  # ‖x − c‖² = ‖x‖² − 2 (x·c − ‖c‖² / 2)
    found = [
        (centres @ rows[part].T - less).max(0) for part in column_chunks(len(rows), len(centres))
    ]
    likeness, ids = (torch.cat(each) for each in zip(*found, strict=True))
    return (rows.square().sum(1) - 2 * likeness).clamp_min(0), ids


def spread_out(rows: Tensor, k: int, restarts: int, draws: Generator) -> Tensor:
    """Greedy k-means++: rows far from each other, (R, K, D).

    The next centre is drawn by squared distance to those so far; of a few candidates the one that
    leaves the rows closest to a centre is taken.
    """
    candidates = 2 + int(math.log(k))
    each, last = torch.arange(restarts, device=rows.device), len(rows) - 1
    squares = rows.square().sum(1)
    luck = torch.rand(k, restarts, candidates, generator=draws, dtype=torch.float64).to(rows)

    def distances(numbers: Tensor) -> Tensor:
        """Squared, of all rows to some: (…, M)."""
        less = squares[numbers][..., None] - 2 * rows[numbers] @ rows.T
        return (squares + less).clamp_min(0)

    chosen = [(luck[0, :, 0] * len(rows)).long().clamp_max(last)]  # 1 − 1e-9 may be rounded to 1
    away = distances(chosen[0])
    for lot in luck[1:]:
        sums = away.cumsum(1)
        drawn = torch.searchsorted(sums, lot * sums[:, -1:]).clamp_max(last)  # (R, T)
        left = torch.minimum(away[:, None], distances(drawn))
        best = left.sum(2).argmin(1)
        away = left[each, best]
        chosen.append(drawn[each, best])
    return rows[torch.stack(chosen, 1)]


def _moved(rows: Tensor, centres: Tensor) -> tuple[Tensor, Tensor]:
    """Centres once they have arrived, and the sum of squared distances to them."""
    still = _STILL * rows.var(0, correction=0).mean()
    before = None
    for _ in range(_ROUNDS):
        away, ids = nearest(rows, centres)
        if before is not None and ids.equal(before):
            return centres, away.sum()
        means = _means(rows, centres, away, ids)
        arrived = (means - centres).square().sum() <= still
        centres, before = means, ids
        if arrived:
            break
    return centres, nearest(rows, centres)[0].sum()


def _means(rows: Tensor, centres: Tensor, away: Tensor, ids: Tensor) -> Tensor:
    """Of each cluster's rows; a centre without any goes to a row that is far from its own."""
    counts = torch.bincount(ids, minlength=len(centres))[:, None]
    sums = _sums(rows, ids, torch.zeros_like(centres))
    means = torch.where(counts > 0, sums / counts.clamp_min(1), centres)
    idle = (counts[:, 0] == 0).nonzero()[:, 0]
    if len(idle):
        furthest = away.topk(min(len(idle), len(away)))
        apart = furthest.values > _SAME * rows.square().sum(1).mean()
        far = rows[furthest.indices[apart]]
        means = means.index_copy(0, idle[: len(far)], far)
    return means


def _sums(rows: Tensor, ids: Tensor, sums: Tensor) -> Tensor:
    """Adds each row to the sum of its cluster, in the same order every time."""
    if not rows.is_cuda:
        return sums.index_add_(0, ids, rows)
    for part in column_chunks(
        len(rows), len(sums)
    ):  # there, threads add in any order but in a product
        sums += F.one_hot(ids[part], len(sums)).to(rows).T @ rows[part]
    return sums
