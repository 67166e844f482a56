"""Two-way entropy: docs/methods/ovanet.md and san.md, a slow copy, limits, invariances."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from tests.losses import slow
from tests.losses.examples import few
from unida.losses import open_entropy

S1 = [[0.2, -0.3, 0.5], [1.0, 0.0, -0.5]]
S2 = [[0.1, 0.4, -0.2], [0.3, -0.6, 0.8]]
FLOAT32_MAX = torch.finfo(torch.float32).max

seeds = st.integers(0, 2**31)


def tensor(values: object) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def draw(seed: int, b: int, k: int, size: float = 2.0) -> Tensor:
    g = torch.Generator().manual_seed(seed)
    return size * torch.randn(b, 2, k, generator=g, dtype=torch.float64)


def test_the_check_case_of_methods() -> None:
    assert open_entropy(tensor([S1, S2])).item() == pytest.approx(0.622654141, abs=1e-9)


def test_the_saturated_check_case_of_methods() -> None:
    logits = tensor([[[-1000.0, 0.0], [1000.0, 0.0]]]).requires_grad_()
    entropy = open_entropy(logits)
    entropy.backward()
    assert entropy.item() == pytest.approx(0.346573575, abs=2e-8)
    assert logits.grad is not None
    assert logits.grad.isfinite().all()


@pytest.mark.parametrize(("b", "k"), [(1, 1), (2, 2), (3, 5)])
def test_the_entropy_is_the_equation(b: int, k: int) -> None:
    for seed in range(3):
        logits = draw(seed, b, k).requires_grad_()
        entropy = open_entropy(logits)
        (found,) = torch.autograd.grad(entropy, logits)
        assert entropy.item() == pytest.approx(slow.open_entropy(logits.tolist()), rel=1e-10)
        by_steps = slow.slope(lambda t: slow.open_entropy(t.tolist()), logits)
        torch.testing.assert_close(found, by_steps, rtol=1e-6, atol=1e-8)


@few
@given(seeds, st.permutations(range(4)), st.permutations(range(5)))
def test_the_order_of_images_and_classes_does_not_matter(
    seed: int, images: list[int], classes: list[int]
) -> None:
    logits = draw(seed, 4, 5)
    shuffled = open_entropy(logits[images][:, :, classes])
    torch.testing.assert_close(shuffled, open_entropy(logits))


@few
@given(seeds)
def test_is_and_is_not_may_be_swapped(seed: int) -> None:
    logits = draw(seed, 3, 4)
    torch.testing.assert_close(open_entropy(logits.flip(1)), open_entropy(logits))


@few
@given(seeds, st.floats(-50, 50))
def test_a_constant_on_both_logits_does_not_matter(seed: int, constant: float) -> None:
    logits = draw(seed, 3, 4)
    torch.testing.assert_close(open_entropy(logits + constant), open_entropy(logits))


@few
@given(seeds, st.floats(0, 1e3))
def test_the_entropy_lies_between_nothing_and_one_bit(seed: int, size: float) -> None:
    entropy = open_entropy(draw(seed, 3, 4, size)).item()
    assert -2e-8 <= entropy <= math.log(2)


def test_the_entropy_falls_as_the_logits_part() -> None:
    apart = torch.linspace(0, 10, 20, dtype=torch.float64)
    entropies = [open_entropy(tensor([[[0.0], [x]]])).item() for x in apart.tolist()]
    assert entropies[0] == pytest.approx(math.log(2), abs=2e-8)
    assert entropies == sorted(entropies, reverse=True)


def test_value_and_gradient_are_finite() -> None:
    for size in [0.0, 1e-38, 1e4, 1e30, FLOAT32_MAX]:
        corners = torch.tensor([[[1.0, 1.0, -1.0, -1.0, 0.0], [1.0, -1.0, 1.0, -1.0, 1.0]]])
        logits = (size * corners).requires_grad_()
        entropy = open_entropy(logits)
        (found,) = torch.autograd.grad(entropy, logits)
        assert 0 <= entropy.item() <= math.log(2) + 1e-6
        assert found.isfinite().all()
