"""Evidential learning: class probabilities with a Dirichlet of their own, as TNT's head has them.

From K logits come K pieces of evidence e ≥ 0, the Dirichlet's α = e + 1, its strength S = Σ α, the
expected probabilities α / S and the uncertainty u = K / S, which no softmax has normalised.
"""

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

Evidence = Literal["softplus", "exp", "relu"]
EvidentialForm = Literal["digamma", "log", "squared"]

_EXP_LIMIT = 10.0  # exp overflows; e^10 is evidence enough


def dirichlet(logits: Tensor, evidence: Evidence = "softplus") -> Tensor:
    """α = e(ℓ) + 1.

    Args:
        logits: ℓ, (B, K).
        evidence: e is `softplus`; `exp` of ℓ clamped to ±10; or `relu`, which is without gradient
            for a sample whose logits are all negative.

    Returns:
        (B, K), each 1 or more.
    """
    if evidence == "softplus":
        return F.softplus(logits) + 1
    if evidence == "exp":
        return logits.clamp(-_EXP_LIMIT, _EXP_LIMIT).exp() + 1
    if evidence == "relu":
        return F.relu(logits) + 1
    raise ValueError(f"evidence is {evidence!r}; allowed: softplus, exp, relu")


def uncertainty(alpha: Tensor) -> Tensor:
    """u = K / S in (0, 1]: 1 without any evidence. (B, K) → (B,)."""
    return alpha.shape[1] / alpha.sum(1)


def evidential(alpha: Tensor, labels: Tensor, form: EvidentialForm = "digamma") -> Tensor:
    """The expected loss of the label under the Dirichlet, the mean over the batch.

    * `digamma`: E[−ln p_y] = ψ(S) − ψ(α_y).
    * `log`: −ln E[p_y] = ln S − ln α_y.
    * `squared`: E‖y − p‖² = Σ_k (y_k − p̄_k)² + p̄_k (1 − p̄_k) / (S + 1), p̄ = α / S.

    Args:
        alpha: (B, K), 1 or more.
        labels: (B,), the true classes.
        form: which.
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


def misleading_evidence(alpha: Tensor, labels: Tensor) -> Tensor:
    """KL(Dir(α̃) ‖ Dir(1)), the mean over the batch: evidence for wrong classes goes to nothing.

    α̃ = y + (1 − y) α leaves the label's evidence out, S̃ = Σ α̃, and
    KL = ln Γ(S̃) − ln Γ(K) − Σ ln Γ(α̃) + Σ (α̃ − 1)(ψ(α̃) − ψ(S̃)).

    Args:
        alpha: (B, K), 1 or more.
        labels: (B,), the true classes.
    """
    wrong = alpha.scatter(1, labels[:, None], 1.0)
    strength = wrong.sum(1, keepdim=True)
    log_ratio = torch.lgamma(strength)[:, 0] - torch.lgamma(wrong).sum(1)
    log_ratio = log_ratio - math.lgamma(alpha.shape[1])
    slope = torch.digamma(wrong) - torch.digamma(strength)
    return (log_ratio + ((wrong - 1) * slope).sum(1)).mean()


def away_from_threshold(u: Tensor, threshold: Tensor, margin: Tensor, counts: Tensor) -> Tensor:
    """−mean max(|u − δ|, m): the sure become surer and the unsure more unsure.

    Nearer to its threshold than m a sample is left where it is.

    Args:
        u: (B,), uncertainties.
        threshold: δ, (B,), each sample's own; constants.
        margin: m, a scalar; a constant.
        counts: (B,), bool: which samples take part; without any the loss is 0.
    """
    gap = torch.maximum((u - threshold.detach()).abs(), margin.detach())
    return -(gap * counts).sum() / counts.sum().clamp_min(1)
