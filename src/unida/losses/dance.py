"""The two self-supervised losses on the target of DANCE (NeurIPS 2020)."""

import torch
from torch import Tensor

EPS = 1e-5
"""Added inside the logarithms, as in the released code."""


def neighbourhood_clustering(
    logits: Tensor, unit: Tensor, memory: Tensor, index: Tensor, tau: float
) -> Tensor:
    """L_nc: every target image moves to a class prototype or to another target image.

    The mean entropy −Σ_j p_j ln(p_j + ε) of p = softmax[logits, S_memory, S_batch] over all it may
    resemble: the K prototypes, the N target images as remembered and the B images of the batch.
    Images of the batch count as they are now, so their remembered copies get similarity −1/τ, and
    so does an image with itself. The memory is a constant; a row of zeros (an image not yet seen)
    counts with similarity 0.

    Args:
        logits: (B, K), cosines with the prototypes over τ.
        unit: (B, D), features of unit length.
        memory: (N, D), unit rows or zeros.
        index: (B,), the images' rows in `memory`.
        tau: temperature τ.
    """
    return _entropies(_to_all_others(logits, unit, memory, index, tau)).mean()


def entropy_separation(logits: Tensor, rho: float, m: float) -> Tensor:
    """L_es = −mean_i max(|H(p_i) − ρ|, m): entropies leave the boundary ρ, known or unknown.

    Within the margin m there is no gradient, since it is not clear which way an image belongs.

    Args:
        logits: (B, K).
        rho: boundary ρ, an entropy in nats.
        m: margin m.
    """
    return -(_entropies(logits) - rho).abs().clamp_min(m).mean()


def _to_all_others(
    logits: Tensor, unit: Tensor, memory: Tensor, index: Tensor, tau: float
) -> Tensor:
    """(B, K + N + B): prototypes, memory, batch."""
    to_memory = (unit @ memory.detach().T / tau).index_fill(1, index, -1 / tau)
    itself = torch.eye(len(unit), dtype=torch.bool, device=unit.device)
    to_batch = (unit @ unit.T / tau).masked_fill(itself, -1 / tau)
    return torch.cat([logits, to_memory, to_batch], 1)


def _entropies(logits: Tensor) -> Tensor:
    p = logits.softmax(1)
    return -(p * (p + EPS).log()).sum(1)
