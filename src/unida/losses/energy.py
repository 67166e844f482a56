"""Losses of an extra logit for "unknown" that competes with the energy of the known classes (GATE).

The logits ℓ (B, K) are of the known classes, ℓ_u (B,) is that of "unknown". In one softmax over
all, its probability is p_u = σ(ℓ_u + E) with the energy E = −ln Σ_k e^{ℓ_k}.
"""

from torch import Tensor
from torch.nn.functional import softplus

from unida.ops.uncertainty import energy


def energy_margin(logits: Tensor, unknown: Tensor, *, known: bool) -> Tensor:
    """Push the unknown logit below −E for known samples and above −E for unknown ones.

    L = mean softplus(ℓ_u + E) = mean −ln(1 − p_u) if known, else mean softplus(−E − ℓ_u) =
    mean −ln p_u: the cross-entropy of the open decision.

    Args:
        logits: ℓ, (B, K).
        unknown: ℓ_u, (B,).
        known: whether the samples are of known classes.

    Returns:
        A scalar, the mean over the batch.

    Reference:
        Reconstruction after Chen et al., "Geometric Anchor Correspondence Mining with Uncertainty
        Modeling for Universal Domain Adaptation", CVPR 2022; docs/methods/gate.md.

    Example:
        >>> import torch
        >>> energy_margin(torch.zeros(1, 1), torch.zeros(1), known=True)  # p_u is one half
        tensor(0.6931)
    """
    gap = unknown + energy(logits)
    return softplus(gap if known else -gap).mean()


def unknown_entropy(logits: Tensor, unknown: Tensor) -> Tensor:
    """Compute the binary entropy of the open decision on the target.

    L = mean [−p_u ln p_u − (1 − p_u) ln(1 − p_u)]

    Args:
        logits: ℓ, (B, K).
        unknown: ℓ_u, (B,).

    Returns:
        A scalar, the mean over the batch.

    Reference:
        As `energy_margin`.

    Example:
        >>> import torch
        >>> unknown_entropy(torch.zeros(1, 1), torch.zeros(1))
        tensor(0.6931)
    """
    x = unknown + energy(logits)
    return (softplus(x) - x * x.sigmoid()).mean()
