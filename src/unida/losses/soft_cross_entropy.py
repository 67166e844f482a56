"""Cross-entropy with soft targets (GLC, CVPR 2023)."""

from torch import Tensor


def soft_cross_entropy(probs: Tensor, targets: Tensor, offset: float = 1e-5) -> Tensor:
    """Compute the cross-entropy of probabilities with soft targets.

    L = −mean_i Σ_c t_ic ln(p_ic + offset)

    With pseudo labels ŷ for targets this is GLC's L_psd, with neighbours' predictions q̄ its L_knn.

    Args:
        probs: p, (B, C).
        targets: t, (B, C).
        offset: keeps the logarithm and its slope finite.

    Returns:
        A scalar, the mean over the batch.

    Reference:
        Qu et al., "Upcycling Models under Domain and Category Shift", CVPR 2023, global and local
        clustering; docs/methods/glc.md.

    Example:
        >>> import torch
        >>> soft_cross_entropy(torch.tensor([[0.5, 0.5]]), torch.tensor([[1.0, 0.0]]))
        tensor(0.6931)
    """
    return -(targets * (probs + offset).log()).sum(1).mean()
