"""The loss on the two spaces of features of LEAD (CVPR 2024)."""

import torch
from torch import Tensor


def space_separation(
    known: Tensor, unknown: Tensor, is_unknown: Tensor, weights: Tensor, offset: float = 1e-5
) -> Tensor:
    """Compute how surely images lie in the space of their pseudo label.

    L_reg = −mean_i w_i ln(softmax(‖k_i‖, ‖u_i‖)_{known or unknown} + offset)

    Args:
        known: ‖k‖, (B,), norms of the parts of unit features in the known space.
        unknown: ‖u‖, (B,), norms of the rest.
        is_unknown: (B,), pseudo labels.
        weights: w, (B,), their certainty.
        offset: keeps the logarithm finite.

    Returns:
        A scalar, the mean over the batch.

    Reference:
        Qu et al., "LEAD: Learning Decomposition for Source-free Universal Domain Adaptation", CVPR
        2024; docs/methods/lead.md.

    Example:
        >>> half = torch.tensor([0.5])
        >>> space_separation(half, half, torch.tensor([True]), torch.ones(1))  # ln 2
        tensor(0.6931)
    """
    p = torch.stack([known, unknown], 1).softmax(1)
    chosen = torch.where(is_unknown, p[:, 1], p[:, 0])
    return -(weights * (chosen + offset).log()).mean()
