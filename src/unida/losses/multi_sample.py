"""Mutual nearest neighbours, and the contrast between an anchor and several of them (TNT).

Rows are unit vectors, so nearest is the largest dot product. A row of zeros, as a memory has it for
an image not yet seen, is nobody's neighbour. Memories may be large: no table here has more than
`parts.MOST` entries, whatever their length.
"""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from unida.ops.chunked import checkpointed, chunked_topk, column_chunks

Positives = Literal["log_of_sum", "mean_of_logs"]

Candidates = tuple[Tensor, Tensor, Tensor, Tensor]
"""What B anchors see of a memory: its rows (N, D), numbers of the nearest (B, k), which of these
are positives (B, k), and the anchor's own number (B,), −1 if it is not of this memory."""


@torch.no_grad()
def mutual_neighbours(
    anchors: Tensor,
    others: Tensor,
    k: int,
    *,
    index: Tensor,
    own: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Which of `others` are neighbours of an anchor that has it for a neighbour too.

    j is a mutual neighbour of anchor i iff j is among the k rows of `others` nearest to i, and
    fewer than k rows of i's own domain (i and j left out) are nearer to j than i is.

    Args:
        anchors: (B, D), as the network sees them now.
        others: (M, D), the candidates.
        k: how many neighbours count.
        index: (B,), the anchors' rows in their own domain, which the anchors stand for.
        own: (N, D), the anchors' domain; None if that is `others`.

    Returns:
        The k nearest (B, k), or all M, and which of them are mutual neighbours (B, k), bool. No
        anchor is its own neighbour.
    """
    within = own is None
    domain = others if own is None else own
    itself = index if within else torch.full_like(index, -1)
    nearness, near = chunked_topk(
        lambda part: _hide(anchors @ others[part].T, others[part], itself - part.start, -torch.inf),
        column_chunks(len(others), len(anchors)),
        k,
    )
    chosen, closer = others[near], torch.zeros_like(near)
    for part in column_chunks(len(domain), near.numel()):
        rivals = chosen @ domain[part].T > nearness[..., None]  # (B, k, n), seen from the neighbour
        numbers = torch.arange(part.start, part.stop, device=index.device)
        counts = ~unseen(domain[part]) & (numbers != index[:, None, None])
        if within:  # to be near oneself says nothing
            counts = counts & (numbers != near[..., None])
        closer += (rivals & counts).sum(2)
    return near, (closer < k) & nearness.isfinite()


@torch.no_grad()
def memory_pairs(
    anchors: tuple[Tensor, Tensor],
    index: tuple[Tensor, Tensor],
    memories: tuple[Tensor, Tensor],
    k: int,
) -> list[Candidates]:
    """What the images of two domains see of both memories.

    Args:
        anchors: (B, D) a domain.
        index: (B,) a domain, the anchors' rows in the memory of their domain.
        memories: (N, D) and (M, D); zeros for an image not yet seen.
        k: neighbours that count, for each pair of domains apart.

    Returns:
        For each memory the candidates of the 2B anchors.
    """
    candidates = []
    for b, rows in enumerate(memories):
        pairs = [
            mutual_neighbours(
                anchors[a], rows, k, index=index[a], own=None if a == b else memories[a]
            )
            for a in (0, 1)
        ]
        near, mutual = (torch.cat(each) for each in zip(*pairs, strict=True))
        nobody = torch.full_like(index[1 - b], -1)
        itself = torch.cat([index[0], nobody] if b == 0 else [nobody, index[1]])
        candidates.append((rows, near, mutual, itself))
    return candidates


def unseen(rows: Tensor) -> Tensor:
    """(N, D) → (N,), bool: the rows that are all zeros."""
    return ~rows.any(1)


def _hide(similarity: Tensor, rows: Tensor, itself: Tensor, value: float) -> Tensor:
    """Similarities (B, n) to rows that were seen and are not the anchor's own."""
    numbers = torch.arange(len(rows), device=rows.device)
    return similarity.masked_fill(unseen(rows) | (numbers == itself[:, None]), value)


def multi_sample_contrast(
    anchors: Tensor,
    candidates: Sequence[Candidates],
    tau: float = 0.05,
    form: Positives = "log_of_sum",
) -> Tensor:
    """Contrast of an anchor with a set of positives at once.

    With s_ij the dot product, P_i the positives and A_i every row of any memory that was seen and
    is not the anchor's own:

    * `log_of_sum`: ℓ_i = −ln( Σ_{j∈P_i} e^{s_ij/τ} / Σ_{j∈A_i} e^{s_ij/τ} );
    * `mean_of_logs`: ℓ_i = −1/|P_i| Σ_{j∈P_i} ln( e^{s_ij/τ} / Σ_{l∈A_i} e^{s_il/τ} ).

    Args:
        anchors: (B, D).
        candidates: of each memory; constants.
        tau: temperature τ.
        form: how several positives count.

    Returns:
        The mean over the anchors that have a positive; 0 if none has.
    """
    masses = [_log_mass(anchors, rows.detach(), itself, tau) for rows, _, _, itself in candidates]
    everything = torch.stack(masses).logsumexp(0)
    to_near = [
        torch.einsum("bd,bkd->bk", anchors, rows.detach()[near]) for rows, near, *_ in candidates
    ]
    similarity = torch.cat(to_near, 1) / tau
    positive = torch.cat([mutual for _, _, mutual, _ in candidates], 1)
    count = positive.sum(1)
    if form == "log_of_sum":
        pull = similarity.masked_fill(~positive, _lowest(similarity)).logsumexp(1)
    elif form == "mean_of_logs":
        pull = (similarity * positive).sum(1) / count.clamp_min(1)
    else:
        raise ValueError(f"form is {form!r}; allowed: log_of_sum, mean_of_logs")
    has = count > 0
    return torch.where(has, everything - pull, 0).sum() / has.sum().clamp_min(1)


def _log_mass(anchors: Tensor, rows: Tensor, itself: Tensor, tau: float) -> Tensor:
    """ln Σ_j e^{s_ij/τ} over the rows that were seen, the anchor's own left out. → (B,)."""
    columns = column_chunks(len(rows), len(anchors))
    if len(columns) == 1:
        return _log_mass_of_part(anchors, rows, itself, tau)
    masses = [
        checkpointed(_log_mass_of_part, anchors, rows[part], itself - part.start, tau)
        for part in columns
    ]
    return torch.stack(masses).logsumexp(0)


def _log_mass_of_part(anchors: Tensor, rows: Tensor, itself: Tensor, tau: float) -> Tensor:
    similarity = anchors @ rows.T / tau
    return _hide(similarity, rows, itself, _lowest(similarity)).logsumexp(1)


def _lowest(x: Tensor) -> float:
    return torch.finfo(x.dtype).min  # finite, so that an empty row has no nan gradient
