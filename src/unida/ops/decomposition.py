"""Known and unknown parts of features, and pseudo labels from them (LEAD, CVPR 2024).

Letters in shapes: N target images, C known classes, D features of unit length.
"""

import numpy as np
import torch
import torch.nn.functional as F
from threadpoolctl import threadpool_limits
from torch import Tensor

from unida.ops.numerics import at_least_float32

RATIOS = (0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 2.5, 3.0)
"""Candidates for C_t / C."""
WIDTH = 1e-4
"""Degrees of freedom, and squared width, of the kernel of certainty."""


def space_norms(features: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Split unit features by the span of the classifier's rows, and return both norms.

    The released code takes the left singular vectors of Wᵀ: the first C span the known space, the
    others the unknown one. The norms depend on the span alone, and their squares add to 1.

    Args:
        features: (B, D), unit rows.
        weight: W, (C, D), of the classifier; C < D.

    Returns:
        Norms in the known and in the unknown space, (B,) each.

    Example:
        >>> known, unknown = space_norms(torch.tensor([[0.6, 0.8]]), torch.tensor([[2.0, 0.0]]))
        >>> round(known.item(), 4), round(unknown.item(), 4)
        (0.6, 0.8)
    """
    basis = torch.linalg.qr(at_least_float32(weight).T).Q  # (D, C)
    inside = at_least_float32(features) @ basis
    outside = features - inside @ basis.T
    return torch.linalg.vector_norm(inside, dim=1), torch.linalg.vector_norm(outside, dim=1)


@torch.no_grad()
def decomposition_labels(
    features: Tensor, probs: Tensor, weight: Tensor, ratio: float, certain: bool = True
) -> tuple[Tensor, Tensor]:
    """Assign pseudo labels with a boundary of each image, and their certainty.

    u is the norm in the unknown space. With prototypes of the ⌊N / C_t⌋ images of the largest p_c
    and the classifier's rows as anchors, s_ic = √[(1 − e^−cos(i, prototype c)) e^(cos(i, anchor c)
    − 1)]. The boundary of image i for class c is b_c + s_ic · max(0, μ − b_c): b_c is the mean u of
    the class's images, μ the larger mean of two Gaussians fitted to all u. Image i has the class of
    its largest s_ic, or none if u_i reaches the boundary.

    Args:
        features: (N, D).
        probs: (N, C).
        weight: (C, D), of the classifier.
        ratio: C_t / C.
        certain: give images beyond μ or below b_c weight 1, as the released code intends and, by a
            slip, does not do.

    Returns:
        Labels (N,), C for none of the classes, and weights (N,) in [0, 1).

    Reference:
        Qu et al., "LEAD: Learning Decomposition for Source-free Universal Domain Adaptation", CVPR
        2024; docs/methods/lead.md.
    """
    n, n_classes = probs.shape
    n_positive = max(1, min(n, int(n / max(1, int(n_classes * ratio)))))
    _, unknown = space_norms(features, weight)
    largest = probs.topk(n_positive, dim=0).indices  # (n⁺, C)
    prototypes = F.normalize(features[largest].mean(0))
    target, anchor = (
        (features @ F.normalize(rows).T).clamp_min(0) for rows in (prototypes, weight)
    )
    score = ((1 - (-target).exp()) * (anchor - 1).exp()).sqrt()
    base = unknown[largest].mean(0)  # b, (C,)
    top = upper_mean(unknown)
    boundary = base + score * (top - base).clamp_min(0)
    labels = score.argmax(1)
    own = boundary.gather(1, labels[:, None])[:, 0]
    weights = 1 - (1 + (unknown - own).square() / WIDTH).pow(-(WIDTH + 1) / 2)
    if certain:
        weights = torch.where((unknown >= top) | (unknown < base[labels]), 1.0, weights)
    return torch.where(unknown >= own, n_classes, labels), weights


def upper_mean(values: Tensor) -> Tensor:
    """Return the larger mean of two Gaussians fitted to values (N,); their mean if all are equal.

    Example:
        >>> upper_mean(torch.tensor([0.1, 0.1, 0.12, 0.9, 0.92]))
        tensor(0.9100)
    """
    from sklearn.mixture import GaussianMixture

    numbers = values.detach().cpu().double().numpy()[:, None]
    if len(np.unique(numbers)) < 2:
        return values.mean()
    with threadpool_limits(1):  # threads add up in any order: bits would differ
        fitted = GaussianMixture(2, random_state=0).fit(numbers)
    return values.new_tensor(float(fitted.means_.max()))
