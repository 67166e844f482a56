"""Small layers that several methods share."""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class _Reverse(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, coefficient: float) -> Tensor:
        ctx.coefficient = coefficient
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return -ctx.coefficient * grads[0], None


def reverse_gradient(x: Tensor, coefficient: float) -> Tensor:
    """Return x; in the backward pass its gradient is multiplied by −`coefficient`."""
    out: Tensor = _Reverse.apply(x, coefficient)  # type: ignore[no-untyped-call]
    return out


def reversal_strength(progress: float) -> float:
    """Compute 2 / (1 + e^(−progress)) − 1, the usual coefficient of the reversal, from 0 to 1."""
    return math.tanh(progress / 2)


class Discriminator(nn.Sequential):
    """Domain discriminator: features (B, D) → logits (B,), positive for source.

    Two hidden layers with ReLU. The sigmoid is left to the loss, which is stable on logits.

    Args:
        features: D.
        hidden: neurons of a hidden layer.
        dropout: share of hidden neurons dropped in training.
        batch_norm: normalise before each ReLU; both domains must then be in one batch.
    """

    def __init__(
        self, features: int, hidden: int = 1024, dropout: float = 0.0, batch_norm: bool = False
    ) -> None:
        def layer(inside: int) -> list[nn.Module]:
            norm = [nn.BatchNorm1d(hidden)] if batch_norm else []
            drop = [nn.Dropout(dropout)] if dropout else []
            return [nn.Linear(inside, hidden), *norm, nn.ReLU(), *drop]

        super().__init__(*layer(features), *layer(hidden), nn.Linear(hidden, 1), nn.Flatten(0))


class MemoryBank(nn.Module):
    """One unit vector for every image of a domain; zero until its first update.

    Args:
        n: images.
        width: of a feature.
    """

    rows: Tensor

    def __init__(self, n: int, width: int) -> None:
        super().__init__()
        self.register_buffer("rows", torch.zeros(n, width))

    @torch.no_grad()
    def update(self, index: Tensor, features: Tensor, momentum: float = 0.0) -> None:
        """Set rows at `index` to normalise(momentum · old + (1 − momentum) · unit features)."""
        unit = F.normalize(features.detach())
        old = self.rows[index]
        # A row that was never written has no old value.
        keep = momentum * (old.abs().sum(1, keepdim=True) > 0)
        self.rows[index] = F.normalize(keep * old + (1 - keep) * unit)
