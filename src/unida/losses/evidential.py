"""Evidential learning: losses of class probabilities with a Dirichlet distribution (TNT).

α (B, K) is the Dirichlet's concentration, S = Σ α its strength (`unida.ops.uncertainty.dirichlet`).
"""

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

EvidentialForm = Literal["digamma", "log", "squared"]


def evidential(alpha: Tensor, labels: Tensor, form: EvidentialForm = "digamma") -> Tensor:
    """Compute the expected loss of the label under the Dirichlet.

    * `digamma`: E[−ln p_y] = ψ(S) − ψ(α_y).
    * `log`: −ln E[p_y] = ln S − ln α_y.
    * `squared`: E‖y − p‖² = Σ_k (y_k − p̄_k)² + p̄_k (1 − p̄_k) / (S + 1), p̄ = α / S.

    Args:
        alpha: (B, K), 1 or more.
        labels: (B,), true classes.
        form: one of the three.

    Returns:
        A scalar, the mean over the batch.

    Reference:
        Sensoy et al., "Evidential Deep Learning to Quantify Classification Uncertainty", NeurIPS
        2018, the type II likelihood, cross-entropy and squared losses; which of them TNT uses is
        not known, see docs/methods/tnt.md.

    Example:
        >>> evidential(torch.tensor([[3.0, 1.0]]), torch.tensor([0]), "log")  # ln 4/3
        tensor(0.2877)
    """
    strength = alpha.sum(1, keepdim=True)
    alpha_y = alpha.gather(1, labels[:, None])
    if form == "digamma":
        return (torch.digamma(strength) - torch.digamma(alpha_y)).mean()
    if form == "log":
        return (strength.log() - alpha_y.log()).mean()
    if form == "squared":
        p = alpha / strength
        error = (F.one_hot(labels, alpha.shape[1]) - p).square()
        return (error + p * (1 - p) / (strength + 1)).sum(1).mean()
    raise ValueError(f"form is {form!r}; allowed: digamma, log, squared")


def evidential_kl(alpha: Tensor, labels: Tensor) -> Tensor:
    """Compute KL(Dir(α̃) ‖ Dir(1)), which removes evidence for wrong classes.

    α̃ = y + (1 − y) α leaves the label's evidence out, S̃ = Σ α̃, and
    KL = ln Γ(S̃) − ln Γ(K) − Σ ln Γ(α̃) + Σ (α̃ − 1)(ψ(α̃) − ψ(S̃)).

    Args:
        alpha: (B, K), 1 or more.
        labels: (B,), true classes.

    Returns:
        A scalar, the mean over the batch.

    Reference:
        Sensoy et al., NeurIPS 2018; docs/methods/tnt.md.

    Example:
        >>> evidential_kl(torch.tensor([[9.0, 1.0]]), torch.tensor([0]))  # no evidence is wrong
        tensor(0.)
    """
    wrong = alpha.scatter(1, labels[:, None], 1.0)
    strength = wrong.sum(1, keepdim=True)
    log_ratio = torch.lgamma(strength)[:, 0] - torch.lgamma(wrong).sum(1)
    log_ratio = log_ratio - math.lgamma(alpha.shape[1])
    slope = torch.digamma(wrong) - torch.digamma(strength)
    return (log_ratio + ((wrong - 1) * slope).sum(1)).mean()


def uncertainty_separation(u: Tensor, threshold: Tensor, margin: Tensor, mask: Tensor) -> Tensor:
    """Push uncertainties away from their thresholds, except within a margin.

    L = −mean_i max(|u_i − δ_i|, m)

    Args:
        u: (B,), uncertainties.
        threshold: δ, (B,), one per sample; constants.
        margin: m, a scalar; a constant.
        mask: (B,), bool: the samples that take part; the loss is 0 if none does.

    Returns:
        A scalar, the mean over the samples that take part.

    Reference:
        Reconstruction after Chen et al., "Evidential Neighborhood Contrastive Learning for
        Universal Domain Adaptation", AAAI 2022; docs/methods/tnt.md.

    Example:
        >>> u, delta, m = torch.tensor([0.25, 0.5]), torch.tensor([0.5, 0.5]), torch.tensor(0.125)
        >>> uncertainty_separation(u, delta, m, torch.tensor([True, False]))
        tensor(-0.2500)
    """
    gap = torch.maximum((u - threshold.detach()).abs(), margin.detach())
    return -(gap * mask).sum() / mask.sum().clamp_min(1)
