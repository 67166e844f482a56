"""One more slot for unknown, its energy, and made-up examples of it (GATE).

Logits ℓ (B, K) are of the known classes, ℓ_u (B,) is the slot's. The probability of the slot under
one softmax over all is p_u = σ(ℓ_u + E), E the energy of the known ones.
"""

import torch
from torch import Tensor
from torch.nn.functional import softplus


def energy(logits: Tensor) -> Tensor:
    """E = −ln Σ_k e^{ℓ_k}: low where some class is sure. (B, K) → (B,)."""
    return -logits.logsumexp(1)


def energy_margin(logits: Tensor, unknown: Tensor, *, known: bool) -> Tensor:
    """softplus(ℓ_u + E) where the class is known, softplus(−E − ℓ_u) where not; the mean.

    This asks −E > ℓ_u of the known and the reverse of the others. It equals −ln(1 − p_u) and
    −ln p_u, the cross-entropy of the open decision.

    Args:
        logits: ℓ, (B, K).
        unknown: ℓ_u, (B,).
        known: which of the two.
    """
    gap = unknown + energy(logits)
    return softplus(gap if known else -gap).mean()


def slot_entropy(logits: Tensor, unknown: Tensor) -> Tensor:
    """−p_u ln p_u − (1 − p_u) ln(1 − p_u), the mean over the batch.

    Args:
        logits: ℓ, (B, K).
        unknown: ℓ_u, (B,).
    """
    x = unknown + energy(logits)
    return (softplus(x) - x * x.sigmoid()).mean()


def mixed_unknowns(z: Tensor, labels: Tensor, share: Tensor, draws: Tensor) -> Tensor:
    """z̃_i = λ_i z_i + (1 − λ_i) z_j with y_j ≠ y_i: what is half one class and half another.

    Args:
        z: (B, D).
        labels: (B,).
        share: λ, (B,).
        draws: (B, B), random numbers that settle the partners: of those allowed to i, the one
            with the largest number in row i.

    Returns:
        (B, D), or (0, D) where all labels are the same.
    """
    differs = labels[:, None] != labels
    if not differs.any():
        return z[:0]
    partner = draws.masked_fill(~differs, -torch.inf).argmax(1)
    return share[:, None] * z + (1 - share)[:, None] * z[partner]
