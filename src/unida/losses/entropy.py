"""Entropies that a target batch is asked to lower."""

from torch import Tensor

from unida.ops.numerics import EPS, at_least_float32


def open_entropy(logits: Tensor) -> Tensor:
    """Mean two-way entropy of "is k" against "is not k" over samples and classes (OVANet).

    SAN's released code adds this term on the target; its paper does not mention it.

    Args:
        logits: (B, 2, K).
    """
    p = at_least_float32(logits).softmax(1)
    return -(p * (p + EPS).log()).sum(1).mean()
