"""Nearest neighbours in memories of unit rows: mutual k-NN (TNT) and k-NN predictions (GLC).

The nearest row has the largest dot product. An empty row (all zeros), as a memory holds for an
image that has not been visited, is no neighbour. No table has more than `chunked.MAX_ENTRIES`
entries, however large the memory.
"""

import torch
from torch import Tensor

from unida.ops.chunked import chunked_topk, column_chunks

Candidates = tuple[Tensor, Tensor, Tensor, Tensor]
"""A memory as B anchors compare with it: its rows (N, D), indices of the nearest (B, k), which of
these are positives (B, k), and the anchor's own row (B,), −1 if it has none in this memory."""


@torch.no_grad()
def mutual_neighbours(
    anchors: Tensor,
    others: Tensor,
    k: int,
    *,
    index: Tensor,
    own: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Find the k nearest of `others` and which of them are mutual k-nearest neighbours.

    j is a mutual neighbour of anchor i iff j is among the k rows of `others` nearest to i, and
    fewer than k rows of i's own domain (i and j excluded) are nearer to j than i is.

    Args:
        anchors: (B, D), current features.
        others: (M, D), the candidates.
        k: neighbours.
        index: (B,), the anchors' rows in their own domain, which the anchors replace.
        own: (N, D), the anchors' domain; None if that is `others`.

    Returns:
        The k nearest (B, k), or all M, and a bool mask of mutual neighbours (B, k). No anchor is
        its own neighbour.
    """
    within = own is None
    domain = others if own is None else own
    itself = index if within else torch.full_like(index, -1)
    similarity, nearest = chunked_topk(
        lambda part: mask_rows(
            anchors @ others[part].T, others[part], itself - part.start, -torch.inf
        ),
        column_chunks(len(others), len(anchors)),
        k,
    )
    neighbours, n_closer = others[nearest], torch.zeros_like(nearest)
    for part in column_chunks(len(domain), nearest.numel()):
        closer = neighbours @ domain[part].T > similarity[..., None]  # (B, k, n)
        rows = torch.arange(part.start, part.stop, device=index.device)
        counts = ~empty_rows(domain[part]) & (rows != index[:, None, None])
        if within:  # a neighbour is not its own rival
            counts = counts & (rows != nearest[..., None])
        n_closer += (closer & counts).sum(2)
    return nearest, (n_closer < k) & similarity.isfinite()


@torch.no_grad()
def memory_pairs(
    anchors: tuple[Tensor, Tensor],
    index: tuple[Tensor, Tensor],
    memories: tuple[Tensor, Tensor],
    k: int,
) -> list[Candidates]:
    """Find mutual neighbours of the anchors of two domains in both memories.

    Args:
        anchors: (B, D) per domain.
        index: (B,) per domain, the anchors' rows in the memory of their domain.
        memories: (N, D) and (M, D); zeros for an image not yet visited.
        k: neighbours per pair of domains.

    Returns:
        The candidates of the 2B anchors, per memory.
    """
    candidates = []
    for b, rows in enumerate(memories):
        pairs = [
            mutual_neighbours(
                anchors[a], rows, k, index=index[a], own=None if a == b else memories[a]
            )
            for a in (0, 1)
        ]
        nearest, mutual = (torch.cat(parts) for parts in zip(*pairs, strict=True))
        absent = torch.full_like(index[1 - b], -1)
        itself = torch.cat([index[0], absent] if b == 0 else [absent, index[1]])
        candidates.append((rows, nearest, mutual, itself))
    return candidates


def empty_rows(rows: Tensor) -> Tensor:
    """Find the rows that are all zeros: (N, D) → (N,), bool."""
    return ~rows.any(1)


def mask_rows(similarity: Tensor, rows: Tensor, itself: Tensor, value: float) -> Tensor:
    """Replace similarities (B, n) to empty rows and to the anchor's own row by a value."""
    index = torch.arange(len(rows), device=rows.device)
    return similarity.masked_fill(empty_rows(rows) | (index == itself[:, None]), value)


@torch.no_grad()
def knn_probs(features: Tensor, bank: Tensor, bank_probs: Tensor, k: int = 4) -> Tensor:
    """Average the predictions of the k nearest rows, the very nearest (the image itself) left out.

    Args:
        features: (B, D), unit rows.
        bank: (N, D), unit rows.
        bank_probs: (N, C).
        k: neighbours; fewer if the bank is smaller.

    Returns:
        q̄, (B, C).

    Example:
        >>> bank, probs = torch.eye(3), torch.eye(3)
        >>> knn_probs(torch.tensor([[0.9, 0.4, 0.1]]), bank, probs, k=1).tolist()
        [[0.0, 1.0, 0.0]]
    """
    columns = column_chunks(len(bank), len(features))
    _, nearest = chunked_topk(lambda part: features @ bank[part].T, columns, k + 1)
    return bank_probs[nearest[:, 1:]].mean(1)
