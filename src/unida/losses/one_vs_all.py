"""The open-set loss of one-vs-all classifiers (OVANet, ICCV 2021)."""

import math

import torch.nn.functional as F
from torch import Tensor

from unida.ops.numerics import EPS


def one_vs_all(logits: Tensor, labels: Tensor) -> Tensor:
    """Compute the one-vs-all loss with hard negative sampling.

    L_ova = ½ mean_i [−ln(p_i^y + ε) + max_{k≠y} −ln(1 − p_i^k + ε)], ε = 1e−8

    p^k is the probability of "is k" in the softmax over class k's pair. Only the hardest negative
    class has a gradient; ε bounds either term by 18.4.

    Args:
        logits: (B, 2, K), `[:, 0]` is "is not k", `[:, 1]` is "is k"; K ≥ 2.
        labels: (B,), true classes.

    Returns:
        A scalar, the mean over the batch.

    Reference:
        Saito and Saenko, "OVANet: One-vs-All Network for Universal Domain Adaptation", ICCV 2021,
        hard negative classifier sampling; docs/methods/ovanet.md.

    Example:
        >>> import torch
        >>> one_vs_all(torch.zeros(1, 2, 3), torch.tensor([0]))  # both terms are ln 2
        tensor(0.6931)
    """
    if logits.ndim != 3 or logits.shape[1] != 2 or logits.shape[2] < 2:
        raise ValueError(f"logits have shape {tuple(logits.shape)}; (B, 2, K) with K ≥ 2 is needed")
    log_not, log_is = (logits.softmax(1) + EPS).log().unbind(1)
    is_label = F.one_hot(labels, logits.shape[2]).bool()
    positive = log_is.gather(1, labels[:, None])[:, 0]
    hardest_negative = log_not.masked_fill(is_label, math.inf).amin(1)
    return -(positive + hardest_negative).mean() / 2
