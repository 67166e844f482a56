"""The losses of MLNet (AAAI 2024) beside OVANet's."""

from torch import Tensor

from unida.ops.numerics import EPS


def neighbourhood_invariance(
    similarity: Tensor, neighbours: Tensor, weights: Tensor, scale: float = 10.0
) -> Tensor:
    """Compute the loss that brings an image and its neighbours together.

    L_ni = mean_i 1/|N_i| Σ_{j∈N_i} −w_ij ln(p_ij + ε), p_i = softmax(scale · s_i), ε = 1e−8

    Args:
        similarity: s, (B, N), cosines of a batch and a memory; −1 for the image itself.
        neighbours: (B, N), whether j is in N_i.
        weights: w, (B, N), how far the neighbourhoods of i and j agree; constants.
        scale: inverse temperature.

    Returns:
        A scalar, the mean over the batch; an image without neighbours counts as 0.

    Reference:
        Lu et al., "MLNet: Mutual Learning Network with Neighborhood Invariance for Universal Domain
        Adaptation", AAAI 2024; docs/methods/mlnet.md.

    Example:
        >>> import torch
        >>> s, near = torch.tensor([[1.0, 0.0]]), torch.tensor([[True, False]])
        >>> neighbourhood_invariance(s, near, torch.ones(1, 2), scale=0.0)  # of two alike
        tensor(0.6931)
    """
    log_p = ((scale * similarity).softmax(1) + EPS).log()
    per_image = -(log_p * weights * neighbours).sum(1) / neighbours.sum(1).clamp_min(1)
    return per_image.mean()


def mixture_rejection(logits: Tensor, labels: Tensor) -> Tensor:
    """Compute how surely mixtures of source and target features are not of the source's class.

    L_mix = −mean_i ln(p_i^{not y_i} + ε), ε = 1e−8

    Args:
        logits: (B, 2, K), of the mixtures: `[:, 0]` is "is not k", `[:, 1]` is "is k".
        labels: (B,), classes of the source images in them.

    Returns:
        A scalar, the mean over the batch.

    Reference:
        Lu et al., AAAI 2024, cross-domain manifold mixup; docs/methods/mlnet.md.

    Example:
        >>> import torch
        >>> mixture_rejection(torch.zeros(1, 2, 3), torch.tensor([0]))  # ln 2
        tensor(0.6931)
    """
    log_not = (logits.softmax(1)[:, 0] + EPS).log()
    return -log_not.gather(1, labels[:, None]).mean()


def consistency(closed: Tensor, pairs: Tensor) -> Tensor:
    """Compute minus the agreement of both classifiers, −mean_{i,k} p_i^k · p_i^{is k}.

    Args:
        closed: (B, K), logits of the closed classifier.
        pairs: (B, 2, K), logits of the open one, as in `mixture_rejection`.

    Returns:
        A scalar, the mean over images and classes.

    Reference:
        Lu et al., AAAI 2024, consistency constraint; docs/methods/mlnet.md.

    Example:
        >>> import torch
        >>> consistency(torch.zeros(1, 2), torch.zeros(1, 2, 2))
        tensor(-0.2500)
    """
    return -(closed.softmax(1) * pairs.softmax(1)[:, 1]).mean()
