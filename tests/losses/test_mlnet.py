"""MLNet's losses: docs/methods/mlnet.md, slow copies, gradients, limits."""

import math

import pytest
import torch
from torch import Tensor

from unida.losses import consistency, mixture_rejection, neighbourhood_invariance
from unida.ops.neighbourhoods import near_nearest

PAIRS = torch.tensor(
    [[[0.2, -0.3, 0.5], [1.0, 0.0, -0.5]], [[0.1, 0.4, -0.2], [0.3, -0.6, 0.8]]],
    dtype=torch.float64,
)
LABELS = torch.tensor([0, 2])
SIMILARITY = torch.tensor([[0.9, 0.8, 0.1, -1.0], [-1.0, 0.5, 0.6, 0.4]], dtype=torch.float64)
WEIGHTS = torch.tensor([[0.5, 0.25, 0, 0], [0, 0.2, 0.4, 0.1]], dtype=torch.float64)


def slow_invariance(s: Tensor, near: Tensor, w: Tensor, scale: float) -> float:
    total = 0.0
    for i in range(len(s)):
        mass = sum(math.exp(scale * value) for value in s[i].tolist())
        terms = [
            -w[i, j].item() * math.log(math.exp(scale * s[i, j].item()) / mass + 1e-8)
            for j in range(s.shape[1])
            if near[i, j]
        ]
        total += sum(terms) / max(1, len(terms))
    return total / len(s)


def test_the_check_cases() -> None:
    near = near_nearest(SIMILARITY, 0.875)
    found = neighbourhood_invariance(SIMILARITY, near, WEIGHTS, 10.0)
    assert found.item() == pytest.approx(0.202803745, abs=1e-9)
    assert found.item() == pytest.approx(slow_invariance(SIMILARITY, near, WEIGHTS, 10.0), abs=1e-9)
    assert mixture_rejection(PAIRS, LABELS).item() == pytest.approx(1.242181142, abs=1e-7)
    assert consistency(PAIRS[:, 1], PAIRS).item() == pytest.approx(-0.202410423, abs=1e-9)


def test_mixtures_and_consistency_are_their_equations() -> None:
    g = torch.Generator().manual_seed(0)
    pairs = torch.randn(5, 2, 4, generator=g, dtype=torch.float64)
    closed = torch.randn(5, 4, generator=g, dtype=torch.float64)
    labels = torch.tensor([0, 3, 1, 1, 2])
    rejected, agreed = 0.0, 0.0
    for i, y in enumerate(labels.tolist()):
        not_y, is_y = pairs[i, :, y].exp().tolist()
        rejected -= math.log(not_y / (not_y + is_y) + 1e-8) / 5
        for k in range(4):
            not_k, is_k = pairs[i, :, k].exp().tolist()
            p = (closed[i, k].exp() / closed[i].exp().sum()).item()
            agreed -= p * is_k / (is_k + not_k) / 20
    assert mixture_rejection(pairs, labels).item() == pytest.approx(rejected, abs=1e-12)
    assert consistency(closed, pairs).item() == pytest.approx(agreed, abs=1e-12)


def test_gradients_are_those_of_the_values() -> None:
    near = near_nearest(SIMILARITY, 0.5)
    check = torch.autograd.gradcheck
    assert check(
        lambda s: neighbourhood_invariance(s, near, WEIGHTS), SIMILARITY.clone().requires_grad_()
    )
    assert check(lambda x: mixture_rejection(x, LABELS), PAIRS.clone().requires_grad_())
    assert check(lambda x: consistency(x[:, 1], x), PAIRS.clone().requires_grad_())


def test_without_neighbours_there_is_nothing_to_bring_together() -> None:
    none = torch.zeros_like(SIMILARITY).bool()
    assert neighbourhood_invariance(SIMILARITY, none, WEIGHTS).item() == 0
