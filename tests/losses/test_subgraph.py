"""The contrast of subgraphs: docs/methods/gate.md, a slow copy, gradients."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from unida.losses import subgraph_contrast
from unida.ops.random_walk import (
    subgraph_means,
)


def tensor(values: object) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def unit(seed: int, n: int, d: int = 3) -> Tensor:
    g = torch.Generator().manual_seed(seed)
    return F.normalize(torch.randn(n, d, generator=g, dtype=torch.float64))


def slow_contrast(g: Tensor, h: Tensor, tau: float) -> float:
    total = 0.0
    for a in range(len(g)):
        for here, there in ((g, h), (h, g)):
            e = [math.exp(float(here[a] @ there[b]) / tau) for b in range(len(g))]
            total -= math.log(e[a] / math.fsum(e))
    return total / (2 * len(g))


def test_subgraph_contrast_of_methods() -> None:
    g, h = (F.normalize(tensor(x)) for x in ([[1, 0.1], [0.1, 1]], [[0.9, 0.3], [0, 1]]))
    assert subgraph_contrast(g, h).item() == pytest.approx(0.001649214, abs=1e-9)
    assert subgraph_contrast(h, g).item() == pytest.approx(0.001649214, abs=1e-9)


def test_gradient_of_subgraphs_and_their_contrast() -> None:
    z, h = unit(0, 6).requires_grad_(), unit(1, 6).requires_grad_()
    i, j = torch.tensor([0, 2, 5]), torch.tensor([1, 3, 0])
    assert torch.autograd.gradcheck(
        lambda a, b: subgraph_contrast(subgraph_means(a, i, 2), subgraph_means(b, j, 2)), (z, h)
    )


def test_the_contrast_is_the_equation() -> None:
    for seed in range(3):
        g, h = unit(seed, 5), unit(seed + 9, 5)
        expected = slow_contrast(g, h, 0.2)
        assert subgraph_contrast(g, h, 0.2).item() == pytest.approx(expected, rel=1e-10)


def test_without_rivals_the_contrast_is_zero_and_has_a_gradient() -> None:
    for count in [0, 1]:
        z = unit(0, 5).requires_grad_()
        g = subgraph_means(z, torch.arange(count))
        loss = subgraph_contrast(g, g)
        (slope,) = torch.autograd.grad(loss, z)
        assert loss.item() == 0
        assert not slope.any()
