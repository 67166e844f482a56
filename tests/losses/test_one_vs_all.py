"""Open-set loss of OVANet: docs/methods/ovanet.md, a slow copy, limits, invariances."""

import math
from itertools import product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from tests.losses.examples import few
from tests.losses.slow import slope
from unida.losses import one_vs_all, open_entropy

S1 = [[0.2, -0.3, 0.5], [1.0, 0.0, -0.5]]
S2 = [[0.1, 0.4, -0.2], [0.3, -0.6, 0.8]]
LABELS = torch.tensor([0, 2])
SATURATED = [[[-1000.0, 0.0], [1000.0, 0.0]]]
MOST = 18.420680744  # −ln 1e−8
FLOAT32_MAX = torch.finfo(torch.float32).max

seeds = st.integers(0, 2**31)


def tensor(values: object) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def draw(seed: int, b: int, k: int, size: float = 2.0) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    logits = size * torch.randn(b, 2, k, generator=g, dtype=torch.float64)
    return logits.requires_grad_(), torch.randint(k, (b,), generator=g)


def by_hand(logits: list[list[list[float]]], labels: list[int]) -> list[tuple[float, float]]:
    """The two terms of every image, from the sigmoid of a pair's difference."""
    terms = []
    for (no, yes), label in zip(logits, labels, strict=True):
        p = [1 / (1 + math.exp(n - y)) for n, y in zip(no, yes, strict=True)]
        others = [-math.log(1 - p[k] + 1e-8) for k in range(len(p)) if k != label]
        terms.append((-math.log(p[label] + 1e-8), max(others)))
    return terms


def copy(logits: Tensor, labels: Tensor) -> float:
    terms = by_hand(logits.tolist(), labels.tolist())
    return sum(positive + negative for positive, negative in terms) / (2 * len(terms))


# --- the check cases of docs/methods/ovanet.md


def test_the_shares_of_the_check_case() -> None:
    p = tensor([S1, S2]).softmax(1)[:, 1]
    expected = [[0.689974481, 0.574442517, 0.268941421], [0.549833997, 0.268941421, 0.731058579]]
    torch.testing.assert_close(p, tensor(expected), atol=1e-9, rtol=0)


def test_the_check_case() -> None:
    terms = by_hand([S1, S2], [0, 2])
    assert [t[0] for t in terms] == pytest.approx([0.371100651, 0.313261674], abs=1e-9)
    assert [t[1] for t in terms] == pytest.approx([0.854355221, 0.798138847], abs=1e-9)
    loss = one_vs_all(tensor([S1, S2]), LABELS)
    assert loss.item() == pytest.approx(0.584214098, abs=1e-9)
    assert loss.item() == pytest.approx((0.342181163 + 0.826247034) / 2, abs=1e-9)
    assert open_entropy(tensor([S1, S2])).item() == pytest.approx(0.622654141, abs=1e-9)


def test_the_saturated_check_case() -> None:
    loss = one_vs_all(tensor(SATURATED), torch.tensor([1]))
    assert loss.item() == pytest.approx((0.693147161 + MOST) / 2, abs=2e-8)
    assert open_entropy(tensor(SATURATED)).item() == pytest.approx(0.346573575, abs=2e-8)


# --- value and gradient


@pytest.mark.parametrize(("b", "k"), [(1, 2), (3, 2), (4, 5)])
def test_the_loss_is_the_equation(b: int, k: int) -> None:
    for seed in range(3):
        logits, labels = draw(seed, b, k)
        loss = one_vs_all(logits, labels)
        (found,) = torch.autograd.grad(loss, logits)
        assert loss.item() == pytest.approx(copy(logits, labels), rel=1e-10)
        by_steps = slope(lambda t, y=labels: copy(t, y), logits)  # type: ignore[misc]
        torch.testing.assert_close(found, by_steps, rtol=1e-6, atol=1e-8)


def test_the_gradient_passes_gradcheck() -> None:
    logits, labels = draw(7, 4, 5)
    assert torch.autograd.gradcheck(lambda t: one_vs_all(t, labels), logits)


def test_only_the_own_and_the_hardest_pair_get_a_gradient() -> None:
    logits = tensor([S1, S2]).requires_grad_()
    (found,) = torch.autograd.grad(one_vs_all(logits, LABELS), logits)
    # Hardest: class 1 of the first image (.574 against .269), class 0 of the second.
    assert (found.abs() > 0).any(1).tolist() == [[True, True, False], [True, False, True]]


# --- properties


@few
@given(seeds, st.permutations(range(4)), st.permutations(range(5)))
def test_the_order_of_images_and_classes_does_not_matter(
    seed: int, images: list[int], classes: list[int]
) -> None:
    logits, labels = draw(seed, 4, 5)
    renamed = torch.tensor(classes).argsort()[labels]
    shuffled = one_vs_all(logits[:, :, classes][images], renamed[images])
    torch.testing.assert_close(shuffled, one_vs_all(logits, labels))


@few
@given(seeds, st.floats(0.1, 1e3))
def test_the_loss_is_bounded(seed: int, size: float) -> None:
    logits, labels = draw(seed, 4, 5, size)
    assert -1e-7 <= one_vs_all(logits, labels).item() <= MOST


def test_value_and_gradient_are_finite() -> None:
    for size, k in product([1e4, 1e30, FLOAT32_MAX], [2, 4]):
        signs = size * torch.randn(5, 2, k, generator=torch.Generator().manual_seed(0)).sign()
        for values in (signs, torch.full((5, 2, k), size), torch.full((5, 2, k), -size)):
            logits = values.clone().requires_grad_()
            loss = one_vs_all(logits, torch.tensor([0, 1, 0, 1, 0]))
            (found,) = torch.autograd.grad(loss, logits)
            assert loss.isfinite()
            assert found.isfinite().all()


def test_logits_of_another_shape_are_refused() -> None:
    for shape in [(4, 6), (4, 2, 1), (4, 3, 5)]:
        with pytest.raises(ValueError, match=r"needed") as error:
            one_vs_all(torch.ones(shape), torch.zeros(4, dtype=torch.long))
        assert str(shape) in str(error.value)
