"""Random walks between two domains, anchors and their subgraphs (GATE, CVPR 2022).

Rows are unit vectors. A step of the walk leads to the other domain, with a probability that grows
with similarity; T_st (S, T) leads from source to target and T_ts (T, S) back.
"""

import torch
import torch.nn.functional as F
from torch import Tensor


def transition_matrix(start: Tensor, end: Tensor, tau: float = 0.1) -> Tensor:
    """Compute the probabilities of one step: T_ij = e^{s_ij/τ} / Σ_l e^{s_il/τ}.

    Args:
        start: (S, D), unit rows.
        end: (T, D), unit rows.
        tau: temperature τ.

    Returns:
        (S, T); each row sums to 1.

    Example:
        >>> transition_matrix(torch.eye(2), torch.eye(2), tau=1.0)[0]
        tensor([0.7311, 0.2689])
    """
    return (start @ end.T / tau).softmax(1)


def random_walk(forth: Tensor, back: Tensor, r: int = 1) -> Tensor:
    """Compute (T_st T_ts)^r T_st, a step after r round trips. (S, T), (T, S) → (S, T)."""
    round_trips: Tensor = torch.linalg.matrix_power(forth @ back, r)
    return round_trips @ forth


def anchor_pairs(forth: Tensor, back: Tensor, r: int = 1) -> tuple[Tensor, Tensor]:
    """Find the pairs (i, j) whose walks most likely end at each other.

    Args:
        forth: T_st, (S, T).
        back: T_ts, (T, S).
        r: round trips before the last step; 0 gives mutual nearest neighbours.

    Returns:
        The indices i and j, (A,) each; A may be 0.
    """
    end_of_source = random_walk(forth, back, r).argmax(1)
    end_of_target = random_walk(back, forth, r).argmax(1)
    i = torch.arange(len(forth), device=forth.device)
    mutual = end_of_target[end_of_source] == i
    return i[mutual], end_of_source[mutual]


def return_probability(forth: Tensor, back: Tensor) -> Tensor:
    """Compute diag(T_st T_ts), the probability that two steps lead back to the start. → (S,)."""
    return (forth * back.T).sum(1)


def subgraph_means(z: Tensor, anchors: Tensor, n: int = 4) -> Tensor:
    """Average each anchor with its n nearest rows of the same domain, at unit length.

    Args:
        z: (B, D), unit rows of one domain.
        anchors: (A,), indices of rows.
        n: neighbours; at most B − 1 are used.

    Returns:
        (A, D), unit rows.
    """
    similarity = z.detach()[anchors] @ z.detach().T
    similarity = similarity.scatter(1, anchors[:, None], -torch.inf)
    nearest = similarity.topk(min(n, len(z) - 1), dim=1).indices
    subgraph = torch.cat([anchors[:, None], nearest], 1)
    return F.normalize(z[subgraph].mean(1))
