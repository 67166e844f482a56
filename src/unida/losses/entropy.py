"""Entropies to minimise on a target batch (OVANet) or over word assignments (SPA)."""

from torch import Tensor

from unida.ops.numerics import EPS, at_least_float32


def open_entropy(logits: Tensor) -> Tensor:
    """Compute the mean two-way entropy of "is k" against "is not k".

    L_ent = −mean_{i,k} [p_i^k ln(p_i^k + ε) + (1 − p_i^k) ln(1 − p_i^k + ε)], ε = 1e−8

    SAN's released code adds this term on the target; its paper does not mention it.

    Args:
        logits: (B, 2, K), `[:, 0]` is "is not k", `[:, 1]` is "is k".

    Returns:
        A scalar, the mean over samples and classes.

    Reference:
        Saito and Saenko, "OVANet: One-vs-All Network for Universal Domain Adaptation", ICCV 2021,
        open-set entropy minimisation; docs/methods/ovanet.md.

    Example:
        >>> import torch
        >>> open_entropy(torch.zeros(1, 2, 3))  # ln 2
        tensor(0.6931)
    """
    p = at_least_float32(logits).softmax(1)
    return -(p * (p + EPS).log()).sum(1).mean()


def assignment_entropy(logits: Tensor) -> Tensor:
    """Compute the mean entropy of word assignments, low if each location has one word.

    L_e = mean_{i,l} H(p_il), p = softmax over words

    Args:
        logits: (B, L, K), of each location against each word.

    Returns:
        A scalar, the mean over images and locations.

    Reference:
        Reconstruction after Kundu et al., "Subsidiary Prototype Alignment for Universal Domain
        Adaptation", NeurIPS 2022; docs/methods/spa.md.

    Example:
        >>> import torch
        >>> assignment_entropy(torch.zeros(1, 5, 2))  # ln 2
        tensor(0.6931)
    """
    log_p = logits.log_softmax(2)
    return -(log_p.exp() * log_p).sum(2).mean()


def word_usage(logits: Tensor) -> Tensor:
    """Compute the divergence of word usage from uniform: 0 if a batch uses all words alike.

    L_m = ln K − H(p̄) = KL(p̄ ‖ uniform), p̄ the mean assignment over images and locations

    Args:
        logits: (B, L, K), of each location against each word.

    Returns:
        A scalar from 0 to ln K.

    Reference:
        As `assignment_entropy`; docs/methods/spa.md.

    Example:
        >>> import torch
        >>> word_usage(torch.tensor([[[100.0, 0.0]]]))  # one word of two: ln 2
        tensor(0.6931)
    """
    p = logits.softmax(2).mean((0, 1))
    return (p * (p * len(p) + EPS).log()).sum()
