"""Soft contrastive learning (SAN, ICCV 2023, Eqs. 1–5) and the InfoNCE loss it replaces.

Views are stacked as `[view 0; view 1]`: rows i and i + B show the same image. Letters in names
are shapes: B images, N = 2B rows.
"""

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from unida.ops.kernels import log_t_kernel, squared_distances, t_kernel
from unida.ops.numerics import at_least_float32

Form = Literal["paper", "released", "scaled"]

NU_Y, NU_Z = 100.0, 10.0  # degrees of freedom, the same in paper and released code


def soft_contrastive(
    y: Tensor,
    z: Tensor,
    form: Form = "scaled",
    alpha: float = 0.5,
    *,
    unit: bool = True,
    bandwidth_y: float | None = None,
    bandwidth_z: float = 0.3,
    sharpness: float = 6.0,
    balance: bool = True,
    sigma_y: float = 10.0,
    near_rate: float = 1e4,
) -> Tensor:
    """Compute the soft contrastive loss over pairs of views (Eqs. 3–4).

    L_SCL = −Σ_ij [P_ij ln Q_ij + (1 − P_ij) ln(1 − Q_ij)]

    P is the similarity of two views by backbone features y, times e^α if they show the same image;
    Q is their similarity after the projection, z; both are t kernels (Eq. 5). There are three
    forms, because the printed one is flat on real features (squared distances in the hundreds drive
    every P and Q to zero):

    * `paper`: the printed equation, ν = 100 and 10, summed over the other views and averaged over
      anchors, gradient through P as well. Logarithms are taken before the exponential, so it is
      finite up to the range of float32; P may exceed 1 for α > 0.92, as printed.
    * `released`: the authors' code. P from view 0 alone, the second view placed at the nearest
      neighbour's distance over `near_rate`; squared kernels, 2·3.14 for 2π, `b + bᵀ − b∘bᵀ`; mean
      over all (2B)² entries; gradient through P. No α.
    * `scaled`: the same idea, well posed. Unit vectors, squared distances of y in units of their
      mean over negatives / `sharpness`, of z in units of `bandwidth_z`, kernels of height 1, P
      detached and capped at 1, positives and negatives averaged separately and added.

    Args:
        y: (2B, D), backbone features, `[view 0; view 1]`.
        z: (2B, E), projected features in the same order.
        form: `scaled`, `paper` or `released`.
        alpha: prior weight α of a pair of views of one image (`paper`, `scaled`).
        unit: scale y and z to unit length first (`scaled`).
        bandwidth_y: unit of squared distances of y (`scaled`); None takes it from the batch.
        bandwidth_z: unit of squared distances of z (`scaled`).
        sharpness: divisor of the mean distance for that (`scaled`).
        balance: average positives and negatives separately (`scaled`); else all pairs together.
        sigma_y: divisor of squared distances of y (`released`).
        near_rate: divisor of the nearest neighbour's distance for a second view (`released`).

    Returns:
        A scalar.

    Reference:
        Zang et al., "Boosting Novel Category Discovery Over Domains with Soft Contrastive Learning
        and All in One Classifier", ICCV 2023, Eqs. (3)–(5).

    Example:
        >>> y = torch.eye(2).repeat(2, 1)  # two images, both views alike
        >>> soft_contrastive(y, y) < soft_contrastive(y, y[[0, 0, 1, 1]])
        tensor(True)
    """
    options = {"bandwidth_y": bandwidth_y, "bandwidth_z": bandwidth_z, "sharpness": sharpness}
    options |= {"unit": unit, "sigma_y": sigma_y, "near_rate": near_rate}
    loss = pair_terms(*similarities(y, z, form, alpha, **options))  # type: ignore[arg-type]
    positive, negative = pair_masks(len(loss), loss.device)
    if form == "paper":
        return (loss * (positive | negative)).sum(1).mean()
    if form == "released":
        return loss.masked_fill(~(positive | negative), 0).mean()
    n_positive, n_negative = len(loss), len(loss) * (len(loss) - 2)
    on_positives, on_negatives = ((loss * mask).sum() for mask in (positive, negative))
    if balance:
        return on_positives / n_positive + on_negatives / n_negative
    return (on_positives + on_negatives) / (n_positive + n_negative)


def pair_terms(p: Tensor, log_q: Tensor, log_not_q: Tensor) -> Tensor:
    """Compute −[P ln Q + (1 − P) ln(1 − Q)] for every pair.

    With P of 1 and 0 these are the terms of the contrastive loss (Eq. 2), with a soft P those of
    SCL (Eq. 3).

    Args:
        p: (N, N), P.
        log_q: (N, N), ln Q.
        log_not_q: (N, N), ln(1 − Q).

    Example:
        >>> half = torch.tensor([[0.5]]).log()
        >>> pair_terms(torch.ones(1, 1), half, half)
        tensor([[0.6931]])
    """
    return -(p * log_q + (1 - p) * log_not_q)


def similarities(
    y: Tensor,
    z: Tensor,
    form: Form = "scaled",
    alpha: float = 0.5,
    *,
    unit: bool = True,
    bandwidth_y: float | None = None,
    bandwidth_z: float = 0.3,
    sharpness: float = 6.0,
    sigma_y: float = 10.0,
    near_rate: float = 1e4,
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute P, ln Q and ln(1 − Q) of all pairs of views, (N, N) each (Eq. 4).

    Arguments are those of `soft_contrastive`. The diagonal, a view with itself, means nothing.

    Example:
        >>> y = torch.eye(2).repeat(2, 1)
        >>> p, log_q, _ = similarities(y, y)
        >>> p[0, 2], log_q[0, 2] > log_q[0, 1]
        (tensor(1.), tensor(True))
    """
    y, z = _stacked_views(y, "y"), _stacked_views(z, "z")
    if len(y) != len(z):
        raise ValueError(f"y has {len(y)} rows but z {len(z)}")
    if form == "paper":
        return _paper(y, z, alpha)
    if form == "released":
        return _released(y, z, sigma_y, near_rate)
    if form == "scaled":
        return _scaled(y, z, alpha, unit, (bandwidth_y, bandwidth_z, sharpness))
    raise ValueError(f"form is {form!r}; allowed: paper, released, scaled")


def _stacked_views(x: Tensor, name: str) -> Tensor:
    """Check the shape (2B, D) with B ≥ 2."""
    if x.ndim != 2 or len(x) % 2 or len(x) < 4:
        raise ValueError(
            f"{name} has shape {tuple(x.shape)}; (2B, D) is needed: 4 rows or more, an even number"
        )
    return at_least_float32(x)


def pair_masks(n: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Build masks (N, N) of positives (two views of one image) and negatives (other images)."""
    row = torch.arange(n, device=device)
    image = row % (n // 2)
    same_image = image[:, None] == image
    self_pair = row[:, None] == row
    return same_image & ~self_pair, ~same_image


def _paper(y: Tensor, z: Tensor, alpha: float) -> tuple[Tensor, Tensor, Tensor]:
    positive, _ = pair_masks(y.shape[0], y.device)
    p = t_kernel(squared_distances(y, y), NU_Y) * (1 + (math.exp(alpha) - 1) * positive.to(y.dtype))
    log_q = log_t_kernel(squared_distances(z, z), NU_Z, "pdf")
    return p, log_q, torch.log1p(-log_q.exp())


def _scaled(
    y: Tensor,
    z: Tensor,
    alpha: float,
    unit: bool,
    bandwidths: tuple[float | None, float, float],
) -> tuple[Tensor, Tensor, Tensor]:
    positive, negative = pair_masks(y.shape[0], y.device)
    bandwidth_y, bandwidth_z, sharpness = bandwidths
    y = y.detach()
    if unit:
        y, z = F.normalize(y), F.normalize(z)
    d2_y = squared_distances(y, y)
    n_negative = y.shape[0] * (y.shape[0] - 2)
    unit_y = (
        ((d2_y * negative).sum() / n_negative / sharpness).clamp_min(1e-12)
        if bandwidth_y is None
        else bandwidth_y
    )
    p = t_kernel(d2_y / unit_y, NU_Y, "unit") * (1 + (math.exp(alpha) - 1) * positive.to(y.dtype))
    q = t_kernel(squared_distances(z, z) / bandwidth_z, NU_Z, "unit").clamp(1e-6, 1 - 1e-6)
    return p.clamp_max(1), q.log(), torch.log1p(-q)


def _released(
    y: Tensor, z: Tensor, sigma_y: float, near_rate: float
) -> tuple[Tensor, Tensor, Tensor]:
    b = y.shape[0] // 2
    d2 = squared_distances(y[:b], y[:b])
    self_pair = torch.eye(b, dtype=torch.bool, device=y.device)
    near = d2.detach().masked_fill(self_pair, math.inf).amin(1) / near_rate
    # Row i of the second view is `near_i` further from everything than row i of the first.
    offset = torch.cat([torch.zeros_like(near), near])
    d2_y = d2.repeat(2, 2) + offset[:, None] + offset
    p = _released_kernel(d2_y / sigma_y, NU_Y)
    q = _released_kernel(squared_distances(z, z), NU_Z)
    return p, (q + 1e-12).log(), (1 - q + 1e-12).log()


def _released_kernel(d2: Tensor, nu: float) -> Tensor:
    base = 2 * 3.14 * t_kernel(d2, nu).square()
    return base + base.T - base * base.T


def info_nce(z: Tensor, temperature: float = 1.0, *, unit: bool = True) -> Tensor:
    """Compute the InfoNCE loss over two views (Eq. 1), the ablation's `w. CL`.

    L_CL = −mean_i ln( exp(s_ij/τ) / Σ_{k≠i} exp(s_ik/τ) ), j the other view of i

    Args:
        z: (2B, E), `[view 0; view 1]`.
        temperature: τ.
        unit: s is the cosine; otherwise the raw dot product.

    Returns:
        A scalar, the mean over anchors.

    Reference:
        Zang et al., ICCV 2023, Eq. (1).

    Example:
        >>> info_nce(torch.ones(8, 3))  # all views alike: ln 7
        tensor(1.9459)
    """
    z = _stacked_views(z, "z")
    if unit:
        z = F.normalize(z)
    n = z.shape[0]
    similarity = z @ z.T / temperature
    others = similarity.masked_fill(torch.eye(n, dtype=torch.bool, device=z.device), -math.inf)
    other_view = torch.arange(n, device=z.device).roll(n // 2)
    return F.cross_entropy(others, other_view)
