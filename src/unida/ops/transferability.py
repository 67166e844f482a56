"""Transferability weights: how likely a sample or class is shared (UAN, CVPR 2019; CMU, ECCV 2020).

Shapes: B or N samples, K classes, m heads of an ensemble, C columns of certainty measures.
"""

from typing import Literal

import torch
from torch import Tensor

from unida.ops.uncertainty import normalised_entropy

Confidence = Literal["max", "margin"]

_FLAT = 1e-6  # a range below this carries no information; the released codes divide by it


def source_weight(logits: Tensor, d_aux: Tensor, temperature: float) -> Tensor:
    """Weigh a source sample by UAN's w^s(x) = H(ŷ)/ln K − d'(x).

    The entropy is that of softmax(logits / temperature): source predictions are nearly one-hot,
    and a temperature above 1 spreads them.

    Args:
        logits: (B, K).
        d_aux: d', (B,), the auxiliary discriminator's probability of source.
        temperature: of the softmax.
    """
    return normalised_entropy((logits / temperature).softmax(1)) - d_aux


def target_weight(logits: Tensor, d_aux: Tensor) -> Tensor:
    """Weigh a target sample by UAN's w^t(x) = d'(x) − H(ŷ)/ln K.

    Args:
        logits: (B, K).
        d_aux: d', (B,).

    Example:
        >>> target_weight(torch.zeros(1, 3), torch.tensor([0.5]))
        tensor([-0.5000])
    """
    return d_aux - normalised_entropy(logits.softmax(1))


def normalise_weights(weight: Tensor) -> Tensor:
    """Scale weights (B,) to [0, 1] by the batch's range and divide by their mean.

    Equal weights become 1; the released code divides zero by zero.

    Example:
        >>> normalise_weights(torch.tensor([1.0, 2.0, 3.0])).tolist()
        [0.0, 1.0, 2.0]
    """
    least, largest = weight.aminmax()
    flat = largest - least < _FLAT
    unit = (weight - least + flat) / (largest - least + flat)  # 1 or more if flat, never 0 / 0
    return unit / unit.mean()


def certainty(probs: Tensor, confidence: Confidence = "max") -> Tensor:
    """Measure CMU's confidence c, 1 − inconsistency s and 1 − entropy e, one column each.

    c = 1/m Σ_i max_k ŷ_ik;  s = 1/K Σ_k std_i ŷ_ik (unbiased);  e = 1/m Σ_i H(ŷ_i)/ln K

    With `margin`, c is the mean gap between the two largest ŷ_ik, and s is left out (TLlib).
    The mean of the columns is the weight w^t of a sample.

    Args:
        probs: (m, N, K), softmax outputs of m ≥ 2 heads, K ≥ 2.
        confidence: form of c.

    Returns:
        (N, 3), or (N, 2) for `margin`.
    """
    sharpness = 1 - normalised_entropy(probs).mean(0)
    if confidence == "margin":
        first, second = probs.topk(2, dim=2).values.unbind(2)
        return torch.stack([(first - second).mean(0), sharpness], 1)
    if confidence == "max":
        consistency = 1 - probs.std(0).mean(1)
        return torch.stack([probs.amax(2).mean(0), consistency, sharpness], 1)
    raise ValueError(f"confidence is {confidence!r}; allowed: max, margin")


def transferability(certainty: Tensor, least: Tensor, largest: Tensor) -> Tensor:
    """Average the certainty columns, each scaled so that `least` → 0 and `largest` → 1.

    Values are not clipped, so samples outside the range keep their rank. A column without range
    counts one half; the released code divides by zero.

    Args:
        certainty: (N, C).
        least: (C,), column minima over a data set.
        largest: (C,), column maxima.

    Returns:
        (N,).
    """
    flat = largest - least < _FLAT
    start, span = least - 0.5 * flat, torch.where(flat, 1.0, largest - least)
    return ((certainty - start) / span).mean(1)


def class_weights(probs: Tensor, known: Tensor) -> Tensor:
    """Compute CMU's V: the mean prediction over samples predicted known, scaled to [0, 1].

    All classes weigh 1 if no sample is predicted known or the mean is uniform; the released code
    divides by zero.

    Args:
        probs: (N, K), predictions of the main head.
        known: (N,), bool.

    Returns:
        (K,).
    """
    mean = probs[known].sum(0) / known.sum().clamp_min(1)
    least, largest = mean.aminmax()
    flat = largest - least < _FLAT
    return torch.where(flat, 1.0, (mean - least) / (largest - least + flat))
