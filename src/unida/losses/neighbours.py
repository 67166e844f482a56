"""Mutual nearest neighbours, and the contrast between an anchor and several of them (TNT).

Rows are unit vectors, so nearest is the largest dot product.
"""

from typing import Literal

import torch
from torch import Tensor

Positives = Literal["log_of_sum", "mean_of_logs"]


@torch.no_grad()
def mutual_neighbours(
    anchors: Tensor,
    others: Tensor,
    k: int,
    *,
    index: Tensor,
    own: Tensor | None = None,
) -> Tensor:
    """Which of `others` are neighbours of an anchor that has it for a neighbour too.

    j is a mutual neighbour of anchor i iff j is among the k rows of `others` nearest to i, and
    fewer than k rows of i's own domain (i and j left out) are nearer to j than i is.

    A row of zeros, as a memory has it for an image not yet seen, is nobody's neighbour.

    Args:
        anchors: (B, D), as the network sees them now.
        others: (M, D), the candidates.
        k: how many neighbours count.
        index: (B,), the anchors' rows in their own domain, which the anchors stand for.
        own: (N, D), the anchors' domain; None if that is `others`.

    Returns:
        (B, M), bool. No anchor is its own neighbour.
    """
    within = own is None
    domain = others if own is None else own
    similarity = _hide(anchors @ others.T, unseen(others), index if within else None)
    nearness, near = similarity.topk(min(k, len(others)), dim=1)  # (B, k)

    rivals = others[near] @ domain.T  # (B, k, N), seen from the neighbour
    closer = (rivals > nearness[..., None]) & ~unseen(domain)
    closer.scatter_(2, index[:, None, None].expand(-1, near.shape[1], 1), False)
    if within:  # to be near oneself says nothing
        closer.scatter_(2, near[..., None], False)
    mutual = (closer.sum(2) < k) & nearness.isfinite()
    return torch.zeros_like(similarity, dtype=torch.bool).scatter_(1, near, mutual)


@torch.no_grad()
def memory_pairs(
    anchors: tuple[Tensor, Tensor],
    index: tuple[Tensor, Tensor],
    memories: tuple[Tensor, Tensor],
    k: int,
) -> tuple[Tensor, Tensor]:
    """Positives and candidates of the images of two domains, within and across them.

    Args:
        anchors: (B, D) a domain.
        index: (B,) a domain, the anchors' rows in the memory of their domain.
        memories: (N, D) and (M, D); zeros for an image not yet seen.
        k: neighbours that count, for each pair of domains apart.

    Returns:
        Two masks (2B, N + M): mutual neighbours, and every row that was seen and is not the
        anchor's own.
    """
    mutual = [
        mutual_neighbours(anchors[a], memories[b], k, index=index[a], own=own)
        for a, b, own in (
            (0, 0, None),
            (0, 1, memories[0]),
            (1, 0, memories[1]),
            (1, 1, None),
        )
    ]
    positive = torch.cat([torch.cat(mutual[:2], 1), torch.cat(mutual[2:], 1)])
    itself = torch.cat([index[0], index[1] + len(memories[0])])
    seen = ~unseen(torch.cat(memories))
    return positive, seen.repeat(len(itself), 1).scatter(1, itself[:, None], False)


def unseen(rows: Tensor) -> Tensor:
    """(N, D) → (N,), bool: the rows that are all zeros."""
    return rows.abs().sum(1) == 0


def _hide(similarity: Tensor, hidden: Tensor, diagonal: Tensor | None) -> Tensor:
    similarity = similarity.masked_fill(hidden, -torch.inf)
    if diagonal is not None:
        similarity = similarity.scatter(1, diagonal[:, None], -torch.inf)
    return similarity


def multi_sample_contrast(
    anchors: Tensor,
    candidates: Tensor,
    positive: Tensor,
    allowed: Tensor,
    tau: float = 0.05,
    form: Positives = "log_of_sum",
) -> Tensor:
    """Contrast of an anchor with a set of positives at once.

    With s_ij the dot product, P_i the positives and A_i all candidates allowed to i:

    * `log_of_sum`: ℓ_i = −ln( Σ_{j∈P_i} e^{s_ij/τ} / Σ_{j∈A_i} e^{s_ij/τ} );
    * `mean_of_logs`: ℓ_i = −1/|P_i| Σ_{j∈P_i} ln( e^{s_ij/τ} / Σ_{l∈A_i} e^{s_il/τ} ).

    Args:
        anchors: (B, D).
        candidates: (M, D), constants.
        positive: (B, M), bool: P.
        allowed: (B, M), bool: A, which holds P.
        tau: temperature τ.
        form: how several positives count.

    Returns:
        The mean over the anchors that have a positive; 0 if none has.
    """
    similarity = anchors @ candidates.detach().T / tau
    lowest = torch.finfo(similarity.dtype).min  # finite, so that an empty row has no nan gradient
    everything = similarity.masked_fill(~allowed, lowest).logsumexp(1)
    count = positive.sum(1)
    if form == "log_of_sum":
        pull = similarity.masked_fill(~positive, lowest).logsumexp(1)
    elif form == "mean_of_logs":
        pull = (similarity * positive).sum(1) / count.clamp_min(1)
    else:
        raise ValueError(f"form is {form!r}; allowed: log_of_sum, mean_of_logs")
    has = count > 0
    return torch.where(has, everything - pull, 0).sum() / has.sum().clamp_min(1)
