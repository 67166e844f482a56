"""Weighted domain-adversarial loss (UAN, CVPR 2019)."""

from torch import Tensor
from torch.nn.functional import softplus


def domain_adversarial(
    source: Tensor,
    target: Tensor,
    source_weight: Tensor | float = 1.0,
    target_weight: Tensor | float = 1.0,
) -> Tensor:
    """Compute the weighted binary cross-entropy of a domain discriminator.

    E_D = mean(w^s · (−ln D(x^s))) + mean(w^t · (−ln(1 − D(x^t)))), D = σ(logit)

    Args:
        source: (B,), the discriminator's logits of source samples.
        target: (B',), its logits of target samples.
        source_weight: w^s, (B,) or a number.
        target_weight: w^t, (B',) or a number.

    Returns:
        A scalar.

    Reference:
        You et al., "Universal Domain Adaptation", CVPR 2019, E_D and, without weights, E_D';
        docs/methods/uan.md. CMU and GATE use it with their own weights.

    Example:
        >>> import torch
        >>> domain_adversarial(torch.zeros(2), torch.zeros(3))  # 2 ln 2
        tensor(1.3863)
    """
    on_source = (source_weight * softplus(-source)).mean()
    return on_source + (target_weight * softplus(target)).mean()
