"""Small layers that several methods share."""

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
    """x itself; its gradient comes back with the sign turned, times `coefficient`."""
    out: Tensor = _Reverse.apply(x, coefficient)  # type: ignore[no-untyped-call]
    return out


class MemoryBank(nn.Module):
    """One unit vector for every image of a domain; zero until the image has been seen.

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
        """Rows at `index` become normalise(momentum · old + (1 − momentum) · unit features)."""
        unit = F.normalize(features.detach())
        old = self.rows[index]
        # A row that was never written has nothing to remember.
        keep = momentum * (old.abs().sum(1, keepdim=True) > 0)
        self.rows[index] = F.normalize(keep * old + (1 - keep) * unit)
