"""Contrast of matched subgraphs of two domains (GATE, CVPR 2022)."""

import torch
import torch.nn.functional as F
from torch import Tensor


def subgraph_contrast(source: Tensor, target: Tensor, tau: float = 0.1) -> Tensor:
    """Compute the symmetric InfoNCE of matched subgraphs.

    L = −½ mean_a [ln softmax_b(g_a·h_b/τ)_a + ln softmax_b(h_a·g_b/τ)_a]

    Args:
        source: g, (A, D), unit rows.
        target: h, (A, D), unit rows in the same order.
        tau: temperature τ.

    Returns:
        A scalar; 0 with fewer than two anchors, since there is nothing to contrast with.

    Reference:
        Reconstruction after Chen et al., "Geometric Anchor Correspondence Mining with Uncertainty
        Modeling for Universal Domain Adaptation", CVPR 2022; docs/methods/gate.md.

    Example:
        >>> subgraph_contrast(torch.eye(2), torch.eye(2), tau=1.0)
        tensor(0.3133)
    """
    if len(source) == 0:
        return source.sum() + target.sum()  # a zero with a graph
    similarity = source @ target.T / tau
    pairs = torch.arange(len(source), device=source.device)
    return (F.cross_entropy(similarity, pairs) + F.cross_entropy(similarity.T, pairs)) / 2
