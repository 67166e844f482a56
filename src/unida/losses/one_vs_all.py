"""The open-set loss of one-vs-all classifiers (OVANet, ICCV 2021)."""

import math

import torch.nn.functional as F
from torch import Tensor

from unida.ops.numerics import EPS


def one_vs_all(logits: Tensor, labels: Tensor) -> Tensor:
    """Every image says yes to its own class and no to the class most like it.

    ½ · mean_i [ −ln(p_i^y + ε) + max_{k≠y} −ln(1 − p_i^k + ε) ], ε = 1e−8, with p^k the share of
    "is k" in the softmax over the pair of class k. Only the hardest of the other classes gets a
    gradient; ε bounds either term by 18.4.

    Args:
        logits: (B, 2, K), `[:, 0]` is "is not k", `[:, 1]` is "is k"; K is 2 at least.
        labels: (B,), the true classes.

    Returns:
        A scalar, the mean over the batch.
    """
    if logits.ndim != 3 or logits.shape[1] != 2 or logits.shape[2] < 2:
        raise ValueError(f"logits have shape {tuple(logits.shape)}; (B, 2, K) with K ≥ 2 is needed")
    log_no, log_yes = (logits.softmax(1) + EPS).log().unbind(1)
    is_label = F.one_hot(labels, logits.shape[2]).bool()
    own_yes = log_yes.gather(1, labels[:, None])[:, 0]
    hardest_no = log_no.masked_fill(is_label, math.inf).amin(1)
    return -(own_yes + hardest_no).mean() / 2
