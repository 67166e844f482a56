"""Weighted domain-adversarial loss and UAN's weights (CVPR 2019)."""

import math

from torch import Tensor
from torch.nn.functional import softplus

EPS = 1e-10
"""Inside the logarithm of an entropy, as in the released code of UAN and CMU."""


def normalised_entropy(probs: Tensor) -> Tensor:
    """H(p) / ln K, from 0 (certain) to 1 (uniform).

    Args:
        probs: (…, K), K ≥ 2.

    Returns:
        (…).
    """
    return -(probs * (probs + EPS).log()).sum(-1) / math.log(probs.shape[-1])


def source_weight(logits: Tensor, likeness: Tensor, temperature: float) -> Tensor:
    """w^s(x) = H(ŷ)/ln K − d'(x): how surely a source image is of a shared class.

    The entropy is of softmax(logits / temperature): source predictions are nearly one-hot, and a
    temperature above 1 spreads them again.

    Args:
        logits: (B, K).
        likeness: (B,), d', the auxiliary discriminator's probability of being source.
        temperature: of the softmax.
    """
    return normalised_entropy((logits / temperature).softmax(1)) - likeness


def target_weight(logits: Tensor, likeness: Tensor) -> Tensor:
    """w^t(x) = d'(x) − H(ŷ)/ln K: how surely a target image is of a shared class.

    Args:
        logits: (B, K).
        likeness: (B,), d'.
    """
    return likeness - normalised_entropy(logits.softmax(1))


def batch_normalised(weight: Tensor) -> Tensor:
    """Weights moved to [0, 1] by the batch's least and largest, then divided by their mean.

    Where all are equal, nothing sets the images apart and every weight is 1; the released code
    divides zero by zero there.

    Args:
        weight: (B,).
    """
    least, largest = weight.aminmax()
    flat = largest - least < 1e-6
    unit = (weight - least + flat) / (largest - least + flat)  # 1 and more if flat, never 0 / 0
    return unit / unit.mean()


def domain_loss(
    source: Tensor,
    target: Tensor,
    source_weight: Tensor | float = 1.0,
    target_weight: Tensor | float = 1.0,
) -> Tensor:
    """mean(w^s · (−ln D(x^s))) + mean(w^t · (−ln(1 − D(x^t)))), D = σ(logit).

    Args:
        source: (B,), the discriminator's logits on source images.
        target: (B',), likewise on target images.
        source_weight: (B,) or one number.
        target_weight: (B',) or one number.
    """
    on_source = (source_weight * softplus(-source)).mean()
    return on_source + (target_weight * softplus(target)).mean()
