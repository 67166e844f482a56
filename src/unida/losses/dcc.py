"""The losses of domain consensus clustering (DCC, CVPR 2021): class discrepancy and memory."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

_KERNELS = 5  # bandwidths g/4, g/2, g, 2g and 4g
_LEAST, _MOST = 1e-5, 1e5  # bounds of a bandwidth and of a scaled distance, as released


def class_discrepancy(
    source: Tensor, target: Tensor, blocks: int, n_classes: int | None = None
) -> Tensor:
    """Contrastive domain discrepancy (CDD): near within a class, far between classes.

    CDD = Σ_a mmd_aa / C* − Σ_{a≠b} mmd_ab / (C*(C* − 1)), a over source and b over target blocks,

    mmd_ab = mean k(s_a, s_a) + mean k(t_b, t_b) − 2 mean k(s_a, t_b), diagonals included,

    k(d²) = Σ_{r=0..4} exp(−d² / (g_ab 2^{r−2})); g_ab, without gradient, is the mean squared
    distance between different rows of s_a and t_b taken together.

    Args:
        source: (blocks · q, D), block by block, a block being q rows of one class.
        target: (blocks · q, D), the same classes in the same order.
        blocks: how many.
        n_classes: C*; by default `blocks`, which makes both terms means. The released code has
            the number of matched classes here, whatever the batch holds. With 1 there is no
            second term.

    Returns:
        A scalar, often negative.
    """
    if source.shape != target.shape or blocks < 1 or len(source) % blocks:
        raise ValueError(
            f"source has shape {tuple(source.shape)} and target {tuple(target.shape)}; "
            f"the same shape and a multiple of {blocks} rows are needed"
        )
    s, t = source.view(blocks, -1, source.shape[1]), target.view(blocks, -1, target.shape[1])
    d_ss, d_tt, d_st = _distances(s, s)[:, None], _distances(t, t)[None], _distances(s[:, None], t)
    q = s.shape[1]
    total = d_ss.sum((2, 3)) + d_tt.sum((2, 3)) + 2 * d_st.sum((2, 3))
    bandwidth = total.detach() / (4 * q * q - 2 * q)
    within = _mean_kernel(d_ss, bandwidth) + _mean_kernel(d_tt, bandwidth)
    mmd = within - 2 * _mean_kernel(d_st, bandwidth)

    c = blocks if n_classes is None else n_classes
    intra = mmd.trace()
    if c == 1:
        return intra
    return intra / c - (mmd.sum() - intra) / (c * (c - 1))


def _distances(a: Tensor, b: Tensor) -> Tensor:
    """‖a_i − b_j‖² by the difference itself, so that a row is at exactly 0 from itself."""
    return (a.unsqueeze(-2) - b.unsqueeze(-3)).square().sum(-1)


def _mean_kernel(d2: Tensor, bandwidth: Tensor) -> Tensor:
    """Mean of k over the last two axes of d2, for every pair of blocks: (blocks, blocks)."""
    scales = [(bandwidth * 2.0 ** (r - _KERNELS // 2)).clamp_min(_LEAST) for r in range(_KERNELS)]
    scaled = (d2 / torch.stack(scales)[..., None, None]).clamp(_LEAST, _MOST)
    return (-scaled).exp().sum(0).mean((-2, -1))


def moved_centres(centres: Tensor, features: Tensor, ids: Tensor) -> Tensor:
    """The memory after a batch: m_k ← normalise(ω m_k + (1 − ω) b_k), ω = ⟨m_k, b_k⟩.

    b_k is the normalised sum of the batch's unit features in cluster k; a cluster without any
    stays where it is. Carries no gradient.

    Args:
        centres: (K, D), unit rows m_k.
        features: (B, D), of any length.
        ids: (B,), their clusters.
    """
    unit = F.normalize(features.detach())
    sums = torch.zeros_like(centres).index_add(0, ids, unit)
    mean = F.normalize(sums)
    omega = (centres * mean).sum(1, keepdim=True)
    present = torch.zeros(len(centres), 1, dtype=torch.bool, device=ids.device)
    moved = F.normalize(omega * centres + (1 - omega) * mean)
    return torch.where(present.index_fill(0, ids, True), moved, centres)


def memory_contrast(
    features: Tensor, ids: Tensor, centres: Tensor, temperature: float = 0.1
) -> Tensor:
    """L_mem: cross-entropy of the cosines with all centres, over the temperature, at the own one.

    Args:
        features: (B, D), of any length.
        ids: (B,), their clusters.
        centres: (K, D), unit rows.
        temperature: τ.
    """
    return F.cross_entropy(F.normalize(features) @ centres.T / temperature, ids)


def memory_weight(step: int, horizon: float, gamma: float = 3.0) -> float:
    """w(t) = exp(−γ (T − t) / T) with T the horizon: from e^−γ up to 1."""
    return math.exp(-gamma * (horizon - step) / horizon)
