"""Neighbourhoods in a memory, and how far two of them agree (MLNet, AAAI 2024)."""

import torch
from torch import Tensor

from unida.ops.chunked import column_chunks


def near_nearest(similarity: Tensor, share: float) -> Tensor:
    """Return which rows are neighbours: their similarity exceeds a share of the nearest's.

    Args:
        similarity: (B, N); −1 for the image itself.
        share: of the largest in a row.

    Example:
        >>> near_nearest(torch.tensor([[0.8, 0.75, 0.1, -1.0]]), 0.9).tolist()
        [[True, True, False, False]]
    """
    return similarity > share * similarity.amax(1, keepdim=True)


@torch.no_grad()
def neighbourhoods(unit: Tensor, share: float, most: int) -> Tensor:
    """Find the neighbours of every row among all others: those of `near_nearest`.

    Args:
        unit: (N, D), unit rows.
        share: see `near_nearest`.
        most: neighbours of a row, the nearest; fewer than N.

    Returns:
        (N, most), their indices, and −1 where a row has fewer.
    """
    n = len(unit)
    found = torch.full((n, most), -1, device=unit.device)
    for part in column_chunks(n, n):
        similarity = unit[part] @ unit.T
        rows = torch.arange(n, device=unit.device)[part]
        similarity[torch.arange(len(rows), device=unit.device), rows] = -1
        nearest, index = similarity.topk(most, dim=1)
        found[part] = index.masked_fill(~near_nearest(nearest, share), -1)
    return found


@torch.no_grad()
def jaccard(sets: Tensor, index: Tensor, wanted: Tensor) -> Tensor:
    """Compute the Jaccard index of the neighbourhoods of some rows and of others.

    Args:
        sets: (N, K), `neighbourhoods`.
        index: (B,), the rows.
        wanted: (B, N), where it is needed; it is computed for columns with a wanted entry.

    Returns:
        |A_i ∩ A_j| / |A_i ∪ A_j|, (B, N); 0 elsewhere, and of a row with itself.

    Example:
        >>> sets = torch.tensor([[1, 2], [0, 2], [0, 1]])
        >>> jaccard(sets, torch.tensor([0]), torch.ones(1, 3).bool())
        tensor([[0.0000, 0.3333, 0.3333]])
    """
    n = len(sets)
    places = sets.masked_fill(sets < 0, n)  # a column of its own stands for none
    members = torch.zeros(len(index), n + 1, device=sets.device).scatter_(1, places[index], 1)
    members[:, n] = 0
    sizes = (sets >= 0).sum(1)
    found = torch.zeros(wanted.shape, device=sets.device)
    columns = wanted.any(0).nonzero()[:, 0]
    for part in column_chunks(len(columns), len(index) * sets.shape[1]):
        some = columns[part]
        both = members[:, places[some]].sum(2)
        either = sizes[index][:, None] + sizes[some] - both
        found[:, some] = both / either.clamp_min(1)
    found[torch.arange(len(index), device=sets.device), index] = 0
    return found * wanted
