"""UAN's weights and the weighted domain loss: METHODS.md §3.8, a slow copy, limits."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from tests.losses.examples import few
from unida.losses import (
    batch_normalised,
    domain_loss,
    normalised_entropy,
    source_weight,
    target_weight,
)


def tensor(values: object) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


LOGITS = tensor([[2, 0, 0], [0, 0, 0], [1, 1, -1]])
LIKENESS = tensor([0.9, 0.5, 0.2])
W_S = [0.095789346, 0.500000000, 0.796146561]
W_T = [0.294169637, -0.500000000, -0.605909019]
W_S_NORMALISED = [0, 1.097833818, 1.902166182]
W_T_NORMALISED = [2.684164065, 0.315835935, 0]
D_S, D_T = tensor([0.7, 0.6, 0.4]), tensor([0.3, 0.5, 0.8])

numbers = st.lists(st.floats(-5, 5, width=32), min_size=2, max_size=9)


def near(values: list[float]) -> object:
    return pytest.approx(values, abs=2e-9)


# --- the check case of METHODS.md


def test_the_weights_of_methods() -> None:
    w_s = source_weight(LOGITS, LIKENESS, temperature=10)
    w_t = target_weight(LOGITS, LIKENESS)
    assert w_s.tolist() == near(W_S)
    assert w_t.tolist() == near(W_T)
    assert batch_normalised(w_s).tolist() == near(W_S_NORMALISED)
    assert batch_normalised(w_t).tolist() == near(W_T_NORMALISED)


def test_the_decisions_of_methods() -> None:
    """The second stands a hair above w0, by the 1e−10 inside the logarithm alone."""
    w_t = target_weight(LOGITS, LIKENESS)
    assert w_t[1].item() == pytest.approx(-0.49999999975, abs=5e-11)
    assert (w_t >= -0.5).tolist() == [True, True, False]


def test_the_adversarial_loss_of_methods() -> None:
    loss = domain_loss(D_S.logit(), D_T.logit(), tensor(W_S_NORMALISED), tensor(W_T_NORMALISED))
    assert loss.item() == pytest.approx(1.160011248, abs=2e-9)


# --- the domain loss


def slow_domain_loss(source: Tensor, target: Tensor, w_s: Tensor, w_t: Tensor) -> float:
    on_source = [-w * math.log(d) for w, d in zip(w_s.tolist(), source.tolist(), strict=True)]
    on_target = [-w * math.log(1 - d) for w, d in zip(w_t.tolist(), target.tolist(), strict=True)]
    return sum(on_source) / len(on_source) + sum(on_target) / len(on_target)


def test_the_domain_loss_equals_a_slow_copy_and_its_gradient_the_finite_differences() -> None:
    g = torch.Generator().manual_seed(0)
    source, target, w_s, w_t = (
        torch.randn(n, generator=g, dtype=torch.float64) for n in (4, 6, 4, 6)
    )
    w_s, w_t = w_s.abs(), w_t.abs()
    slow = slow_domain_loss(source.sigmoid(), target.sigmoid(), w_s, w_t)
    assert domain_loss(source, target, w_s, w_t).item() == pytest.approx(slow, rel=1e-12)
    assert torch.autograd.gradcheck(
        lambda a, b: domain_loss(a, b, w_s, w_t), (source.requires_grad_(), target.requires_grad_())
    )


def test_without_weights_every_image_counts_the_same() -> None:
    source, target = tensor([1.0, -2, 0.5]), tensor([0.3, -0.2])
    ones = domain_loss(source, target, torch.ones(3), torch.ones(2))
    assert domain_loss(source, target).item() == pytest.approx(ones.item())


@pytest.mark.parametrize("size", [1e4, 1e30])
def test_a_sure_discriminator_gives_finite_values_and_gradients(size: float) -> None:
    logits = torch.tensor([size, -size]).requires_grad_()
    loss = domain_loss(logits, logits)
    (gradient,) = torch.autograd.grad(loss, logits)
    assert loss.isfinite()
    assert gradient.isfinite().all()


# --- the entropy


@pytest.mark.parametrize("k", [2, 3, 200])
def test_the_entropy_goes_from_0_to_1(k: int) -> None:
    uniform, certain = torch.full((k,), 1 / k, dtype=torch.float64), torch.eye(k)[0].double()
    found = normalised_entropy(torch.stack([uniform, certain])[None])
    assert found.shape == (1, 2)
    assert found[0].tolist() == pytest.approx([1, 0], abs=1e-7)


def test_the_entropy_has_a_gradient_everywhere() -> None:
    logits = tensor([[2, 0, 0], [0.5, 1, -1]]).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: normalised_entropy(x.softmax(1)), logits)
    extreme = torch.tensor([[1e4, 0, -1e4]]).requires_grad_()
    (gradient,) = torch.autograd.grad(normalised_entropy(extreme.softmax(1)).sum(), extreme)
    assert gradient.isfinite().all()


def test_a_source_image_unlike_the_source_weighs_more_and_a_target_image_less() -> None:
    low, high = torch.zeros(3), torch.ones(3)
    assert (source_weight(LOGITS, low, 10) > source_weight(LOGITS, high, 10)).all()
    assert (target_weight(LOGITS, low) < target_weight(LOGITS, high)).all()


# --- scaling within a batch


@few
@given(numbers)
def test_scaled_weights_are_finite_not_negative_and_of_mean_1(values: list[float]) -> None:
    scaled = batch_normalised(torch.tensor(values))
    assert scaled.isfinite().all()
    assert scaled.min() >= 0
    assert scaled.mean().item() == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("n", [1, 2, 7])
def test_equal_weights_become_ones(n: int) -> None:
    assert batch_normalised(torch.full((n,), -0.3)).tolist() == pytest.approx([1] * n)


def test_scaling_does_not_see_the_unit_nor_the_order() -> None:
    w = tensor([0.3, -0.2, 0.9, 0.1])
    torch.testing.assert_close(batch_normalised(5 * w - 2), batch_normalised(w))
    torch.testing.assert_close(batch_normalised(w.flip(0)), batch_normalised(w).flip(0))
