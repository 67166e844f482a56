"""Contrastive domain discrepancy and memory contrast (DCC, CVPR 2021)."""

import torch
import torch.nn.functional as F
from torch import Tensor

_KERNELS = 5  # bandwidths g/4, g/2, g, 2g and 4g
_LEAST, _MOST = 1e-5, 1e5  # bounds of a bandwidth and of a scaled distance, as released


def contrastive_domain_discrepancy(
    source: Tensor, target: Tensor, blocks: int, n_classes: int | None = None
) -> Tensor:
    """Compute the contrastive domain discrepancy (CDD): near within a class, far between classes.

    L_cdd = Σ_a mmd_aa / C* − Σ_{a≠b} mmd_ab / (C*(C* − 1)), a over source and b over target blocks

    mmd_ab = mean k(s_a, s_a) + mean k(t_b, t_b) − 2 mean k(s_a, t_b), diagonals included

    k(d²) = Σ_{r=0..4} exp(−d² / (g_ab 2^{r−2})); the bandwidth g_ab is the mean squared distance
    between different rows of s_a and t_b together and has no gradient.

    Args:
        source: (blocks · q, D), block by block, a block being q rows of one class.
        target: (blocks · q, D), the same classes in the same order.
        blocks: number of blocks.
        n_classes: C*; by default `blocks`, which makes both terms means. The released code uses
            the number of matched classes, whatever the batch holds. With 1 the second term is
            absent.

    Returns:
        A scalar, often negative.

    Reference:
        Li et al., "Domain Consensus Clustering for Universal Domain Adaptation", CVPR 2021;
        docs/methods/dcc.md.

    Example:
        >>> rows = torch.tensor([[0.0], [1.0], [5.0], [6.0]])  # two classes, the domains are equal
        >>> contrastive_domain_discrepancy(rows, rows, blocks=2)
        tensor(-6.5600)
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
    """Compute ‖a_i − b_j‖² from the difference, so that a row is at exactly 0 from itself."""
    return (a.unsqueeze(-2) - b.unsqueeze(-3)).square().sum(-1)


def _mean_kernel(d2: Tensor, bandwidth: Tensor) -> Tensor:
    """Average k over the last two axes of d2, for every pair of blocks: (blocks, blocks)."""
    scales = [(bandwidth * 2.0 ** (r - _KERNELS // 2)).clamp_min(_LEAST) for r in range(_KERNELS)]
    scaled = (d2 / torch.stack(scales)[..., None, None]).clamp(_LEAST, _MOST)
    return (-scaled).exp().sum(0).mean((-2, -1))


def memory_contrast(
    features: Tensor, cluster: Tensor, centres: Tensor, temperature: float = 0.1
) -> Tensor:
    """Classify target features into their clusters by cosine with the memory of centres.

    L_mem = −mean_i ln softmax_k(⟨x̂_i, m_k⟩ / τ) at the sample's own cluster

    Args:
        features: (B, D), of any length.
        cluster: (B,), cluster of each feature.
        centres: m, (K, D), unit rows.
        temperature: τ.

    Returns:
        A scalar, the mean over the batch.

    Reference:
        Li et al., CVPR 2021 (released code); docs/methods/dcc.md.

    Example:
        >>> memory_contrast(torch.eye(2), torch.tensor([0, 1]), torch.eye(2), temperature=1.0)
        tensor(0.3133)
    """
    return F.cross_entropy(F.normalize(features) @ centres.T / temperature, cluster)
