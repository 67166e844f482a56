"""What CMU (ECCV 2020) reads from an ensemble: certainty of an image, weights of the classes."""

from typing import Literal

import torch
from torch import Tensor

from unida.losses.uan import normalised_entropy

Confidence = Literal["max", "margin"]


def certainty(probs: Tensor, confidence: Confidence = "max") -> Tensor:
    """Confidence c, 1 − inconsistency s and 1 − entropy e of an ensemble, one column each.

    c = 1/m Σ_i max_k ŷ_ik;  s = 1/K Σ_k std_i ŷ_ik (unbiased);  e = 1/m Σ_i H(ŷ_i)/ln K

    With `margin`, c is the mean gap between the two largest ŷ_ik, and s is left out (TLlib).
    The mean of the columns is the weight w^t of an image.

    Args:
        probs: (m, N, K), softmax outputs of m ≥ 2 heads, K ≥ 2.
        confidence: form of c.

    Returns:
        (N, 3), or (N, 2) for `margin`.
    """
    calm = 1 - normalised_entropy(probs).mean(0)
    if confidence == "margin":
        first, second = probs.topk(2, dim=2).values.unbind(2)
        return torch.stack([(first - second).mean(0), calm], 1)
    if confidence == "max":
        agreement = 1 - probs.std(0).mean(1)
        return torch.stack([probs.amax(2).mean(0), agreement, calm], 1)
    raise ValueError(f"confidence is {confidence!r}; allowed: max, margin")


def transferability(certainty: Tensor, least: Tensor, largest: Tensor) -> Tensor:
    """Mean of the columns, each scaled so that `least` → 0 and `largest` → 1.

    Not clipped: an image outside that range keeps its rank. A column without range tells nothing
    and counts one half; the released code divides by zero there.

    Args:
        certainty: (N, C).
        least: (C,), column minima over a data set.
        largest: (C,), column maxima.

    Returns:
        (N,).
    """
    flat = largest - least < 1e-6
    start, span = least - 0.5 * flat, torch.where(flat, 1.0, largest - least)
    return ((certainty - start) / span).mean(1)


def class_weights(probs: Tensor, known: Tensor) -> Tensor:
    """V: mean prediction over the target images taken for known, scaled to [0, 1] over classes.

    All ones where no image is taken for known or the mean prediction is uniform: then there is no
    ground to prefer a class, and the released code divides by zero.

    Args:
        probs: (N, K), predictions of the main head.
        known: (N,), bool.

    Returns:
        (K,).
    """
    mean = probs[known].sum(0) / known.sum().clamp_min(1)
    least, largest = mean.aminmax()
    flat = largest - least < 1e-6
    return torch.where(flat, 1.0, (mean - least) / (largest - least + flat))
