"""Pairwise squared distances and Student's t kernel on them (SAN, ICCV 2023, Eq. 5)."""

import math
from typing import Literal

import torch
from torch import Tensor


def squared_distances(a: Tensor, b: Tensor) -> Tensor:
    """Compute ‖a_i − b_j‖² for all pairs of rows; never negative.

    Example:
        >>> squared_distances(torch.eye(2), torch.zeros(1, 2)).tolist()
        [[1.0], [1.0]]
    """
    d2 = a.square().sum(1)[:, None] + b.square().sum(1) - 2 * a @ b.T
    return d2.clamp_min(0)


def t_kernel(d2: Tensor, nu: float, height: Literal["pdf", "unit"] = "pdf") -> Tensor:
    """Evaluate Student's t kernel on squared distances (Eq. 5).

    κ(d²) = h · (1 + d²/ν)^(−(ν+1)/2)

    Args:
        d2: squared distances, any shape.
        nu: degrees of freedom ν.
        height: h = κ(0): `pdf` is the t density's Γ((ν+1)/2) / (√(νπ) Γ(ν/2)), `unit` is 1.

    Example:
        >>> t_kernel(torch.tensor([0.0, 1.0]), nu=1, height="unit").tolist()
        [1.0, 0.5]
    """
    return log_t_kernel(d2, nu, height).exp()


def log_t_kernel(d2: Tensor, nu: float, height: Literal["pdf", "unit"]) -> Tensor:
    """Evaluate ln κ, finite where κ itself underflows to 0."""
    log_kernel = -(nu + 1) / 2 * torch.log1p(d2 / nu)
    if height == "unit":
        return log_kernel
    return log_kernel + _log_t_height(nu)


def _log_t_height(nu: float) -> float:
    return math.lgamma((nu + 1) / 2) - math.lgamma(nu / 2) - 0.5 * math.log(nu * math.pi)
