"""Uncertainty of predictions: normalised entropy, energy, and evidence of a Dirichlet.

Shapes: B samples, K classes.
"""

import math
from typing import Literal

import torch.nn.functional as F
from torch import Tensor

Evidence = Literal["softplus", "exp", "relu"]

EPS = 1e-10
"""Inside the logarithm of an entropy, as in the released code of UAN and CMU."""

_EXP_LIMIT = 10.0  # exp overflows; e^10 is evidence enough


def normalised_entropy(probs: Tensor, eps: float = EPS) -> Tensor:
    """Compute H(p) / ln K, from 0 (certain) to 1 (uniform). (…, K) → (…), K ≥ 2.

    Example:
        >>> import torch
        >>> normalised_entropy(torch.tensor([0.5, 0.5]))
        tensor(1.)
    """
    return -(probs * (probs + eps).log()).sum(-1) / math.log(probs.shape[-1])


def energy(logits: Tensor) -> Tensor:
    """Compute E = −ln Σ_k e^{ℓ_k}, low for confident samples. (B, K) → (B,)."""
    return -logits.logsumexp(1)


def dirichlet(logits: Tensor, evidence: Evidence = "softplus") -> Tensor:
    """Compute the concentration α = e(ℓ) + 1 of a Dirichlet from evidence e ≥ 0.

    Its strength is S = Σ α, the expected probabilities are α / S.

    Args:
        logits: ℓ, (B, K).
        evidence: e is `softplus`; `exp` of ℓ clamped to ±10; or `relu`, which has no gradient for
            a sample whose logits are all negative.

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


def dirichlet_uncertainty(alpha: Tensor) -> Tensor:
    """Compute u = K / S in (0, 1], which is 1 without evidence. (B, K) → (B,).

    Example:
        >>> import torch
        >>> dirichlet_uncertainty(torch.tensor([[1.0, 1.0], [3.0, 1.0]]))
        tensor([1.0000, 0.5000])
    """
    return alpha.shape[1] / alpha.sum(1)
