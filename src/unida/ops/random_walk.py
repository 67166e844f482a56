"""Random walks between two domains: anchors, round trips and the contrast of subgraphs (GATE).

Rows are unit vectors. A step of the walk goes from a domain to the other one, the likelier the more
similar; T_st (S, T) goes from source to target and T_ts (T, S) back.
"""

import torch
import torch.nn.functional as F
from torch import Tensor


def transition(here: Tensor, there: Tensor, tau: float = 0.1) -> Tensor:
    """T_ij = e^{s_ij/τ} / Σ_l e^{s_il/τ}: one step from row i here to row j there.

    Args:
        here: (S, D), unit rows.
        there: (T, D), unit rows.
        tau: temperature τ.

    Returns:
        (S, T), each row adds up to 1.
    """
    return (here @ there.T / tau).softmax(1)


def walk(forth: Tensor, back: Tensor, r: int = 1) -> Tensor:
    """(T_st T_ts)^r T_st: forth after r round trips. (S, T), (T, S) → (S, T)."""
    there_and_back: Tensor = torch.linalg.matrix_power(forth @ back, r)
    return there_and_back @ forth


def anchor_pairs(forth: Tensor, back: Tensor, r: int = 1) -> tuple[Tensor, Tensor]:
    """The pairs (i, j) where a walk from i most likely ends at j, and one from j at i.

    Args:
        forth: T_st, (S, T).
        back: T_ts, (T, S).
        r: round trips before the last step; 0 gives mutual nearest neighbours.

    Returns:
        The numbers i and j, (A,) each; A may be 0.
    """
    end_of_source, end_of_target = walk(forth, back, r).argmax(1), walk(back, forth, r).argmax(1)
    i = torch.arange(len(forth), device=forth.device)
    mutual = end_of_target[end_of_source] == i
    return i[mutual], end_of_source[mutual]


def round_trip(forth: Tensor, back: Tensor) -> Tensor:
    """diag(T_st T_ts): how likely two steps lead back to where they began. → (S,)."""
    return (forth * back.T).sum(1)


def subgraphs(z: Tensor, centres: Tensor, n: int = 4) -> Tensor:
    """Normalised means over a centre and its n nearest of the same domain.

    Args:
        z: (B, D), unit rows of one domain.
        centres: (A,), rows that are anchors.
        n: neighbours, as many as there are at the most.

    Returns:
        (A, D), unit rows.
    """
    similarity = z.detach()[centres] @ z.detach().T
    similarity = similarity.scatter(1, centres[:, None], -torch.inf)
    near = similarity.topk(min(n, len(z) - 1), dim=1).indices
    members = torch.cat([centres[:, None], near], 1)
    return F.normalize(z[members].mean(1))


def subgraph_contrast(source: Tensor, target: Tensor, tau: float = 0.1) -> Tensor:
    """Symmetric InfoNCE: subgraph a of the source belongs to subgraph a of the target.

    −½ mean_a [ln softmax_b(g_a·h_b/τ)_a + ln softmax_b(h_a·g_b/τ)_a]

    Args:
        source: g, (A, D), unit rows.
        target: h, (A, D), unit rows in the same order.
        tau: temperature τ.

    Returns:
        A scalar; 0 without anchors, and with one, which has nothing to be told from.
    """
    if len(source) == 0:
        return source.sum() + target.sum()  # a zero with a graph
    similarity = source @ target.T / tau
    pairs = torch.arange(len(source), device=source.device)
    return (F.cross_entropy(similarity, pairs) + F.cross_entropy(similarity.T, pairs)) / 2
