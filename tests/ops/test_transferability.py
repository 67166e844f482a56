"""Weights of UAN and CMU: docs/methods/uan.md and cmu.md, slow copies, edge cases."""

import math
import statistics

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from tests.losses.examples import few
from unida.losses import domain_adversarial
from unida.ops.transferability import (
    certainty,
    class_weights,
    normalise_weights,
    source_weight,
    target_weight,
    transferability,
)


def tensor(values: object) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


A = [[0.7, 0.2, 0.1], [0.8, 0.1, 0.1], [0.6, 0.3, 0.1], [0.9, 0.05, 0.05], [0.7, 0.1, 0.2]]


B = [[0.34, 0.33, 0.33], [0.3, 0.4, 0.3], [0.4, 0.3, 0.3], [0.2, 0.5, 0.3], [0.5, 0.25, 0.25]]


HEADS = tensor([A, B]).transpose(0, 1)  # (5, 2, 3)


SURE = torch.stack(
    [tensor([0.9, 0.5, 0.7]), 1 - tensor([0.05, 0.15, 0.25]), 1 - tensor([0.2, 0.9, 0.5])], 1
)


def scaled(sure: Tensor) -> Tensor:
    return transferability(sure, sure.amin(0), sure.amax(0))


def draw(seed: int, m: int = 5, n: int = 6, k: int = 4) -> Tensor:
    g = torch.Generator().manual_seed(seed)
    return torch.randn(m, n, k, generator=g, dtype=torch.float64).mul(2).softmax(2)


def test_confidence_inconsistency_and_entropy_of_methods() -> None:
    confidence, agreement, calm = certainty(HEADS).unbind(1)
    assert (1 - calm).tolist() == pytest.approx([0.643541387, 0.973170682], abs=1e-9)
    assert (1 - agreement).tolist() == pytest.approx([0.089596599, 0.079270238], abs=1e-9)
    assert confidence.tolist() == pytest.approx([0.74, 0.428], abs=1e-12)


def test_the_target_weight_of_methods() -> None:
    w_t = certainty(HEADS).mean(1)
    assert w_t.tolist() == pytest.approx([0.668954005, 0.458519693], abs=1e-9)


def test_the_margin_and_its_score_of_methods() -> None:
    sure = certainty(HEADS, "margin")
    assert sure[:, 0].tolist() == pytest.approx([0.57, 0.132], abs=1e-12)
    assert sure.mean(1).tolist() == pytest.approx([0.463229307, 0.079414659], abs=1e-9)


def test_the_scores_decisions_and_class_weights_of_methods() -> None:
    score = scaled(SURE)
    assert score.tolist() == pytest.approx([1, 0.166666667, 0.357142857], abs=1e-9)
    known = score >= 0.5
    assert known.tolist() == [True, False, False]
    probs = tensor([[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.1, 0.1, 0.8]])
    assert class_weights(probs, known).tolist() == pytest.approx([1, 0, 0], abs=1e-12)


def test_the_adversarial_loss_of_methods() -> None:
    v, labels = tensor([1, 0, 0]), torch.tensor([0, 1, 2])
    d_s, d_t = tensor([0.7, 0.6, 0.4]).logit(), tensor([0.3, 0.5, 0.8]).logit()
    half = domain_adversarial(d_s, d_t, v[labels], scaled(SURE)) / 2
    assert half.item() == pytest.approx(0.233945612, abs=1e-9)


def slow_certainty(heads: list[list[float]]) -> list[float]:
    """One image; a list of probabilities a head."""
    m, k = len(heads), len(heads[0])
    confidence = sum(max(p) for p in heads) / m
    inconsistency = sum(statistics.stdev(p[j] for p in heads) for j in range(k)) / k
    entropies = [-sum(x * math.log(x + 1e-10) for x in p) / math.log(k) for p in heads]
    return [confidence, 1 - inconsistency, 1 - sum(entropies) / m]


@few
@given(st.integers(0, 2**31), st.sampled_from([2, 5]), st.sampled_from([2, 7]))
def test_certainty_equals_a_slow_copy(seed: int, m: int, k: int) -> None:
    probs = draw(seed, m, 3, k)
    for image, found in enumerate(certainty(probs)):
        assert found.tolist() == pytest.approx(slow_certainty(probs[:, image].tolist()), abs=1e-9)


@pytest.mark.parametrize("confidence", ["max", "margin"])
def test_the_gradient_of_certainty_is_that_of_finite_differences(confidence: str) -> None:
    logits = draw(0).log().requires_grad_()
    assert torch.autograd.gradcheck(
        lambda x: certainty(x.softmax(2), confidence),  # type: ignore[arg-type]
        logits,
    )


def test_sure_heads_that_agree_are_certain_and_undecided_ones_are_not() -> None:
    for confidence in ["max", "margin"]:
        sure, undecided = torch.eye(4)[0].expand(5, 4), torch.full((5, 4), 0.25)
        found = certainty(torch.stack([sure, undecided], 1), confidence)  # type: ignore[arg-type]
        assert found[0].tolist() == pytest.approx([1] * found.shape[1], abs=1e-6)
        assert found[1, 0] <= 0.25
        assert found[1, -1].item() == pytest.approx(0, abs=1e-6)
        assert found.isfinite().all()


@few
@given(st.integers(0, 2**31), st.permutations(range(5)), st.permutations(range(4)))
def test_the_order_of_heads_and_classes_does_not_matter(
    seed: int, heads: list[int], classes: list[int]
) -> None:
    probs = draw(seed)
    torch.testing.assert_close(certainty(probs[heads][:, :, classes]), certainty(probs))


def test_an_unknown_confidence_is_refused() -> None:
    with pytest.raises(ValueError, match="confidence is 'top'; allowed: max, margin"):
        certainty(HEADS, "top")  # type: ignore[arg-type]


def test_a_column_without_range_counts_one_half() -> None:
    sure = SURE.clone()
    sure[:, 1] = 0.9
    others = scaled(sure[:, [0, 2]])
    assert scaled(sure).tolist() == pytest.approx(((2 * others + 0.5) / 3).tolist())
    assert scaled(sure[:1]).tolist() == [0.5]  # one image alone


def test_images_outside_the_range_keep_their_rank() -> None:
    least, largest = SURE.amin(0), SURE.amax(0)
    beyond = transferability(
        torch.stack([largest + 0.1, largest, least, least - 0.1]), least, largest
    )
    assert (beyond.diff() < 0).all()


def test_no_known_image_gives_equal_class_weights() -> None:
    probs = tensor([[0.8, 0.2], [0.3, 0.7]])
    assert class_weights(probs, torch.tensor([False, False])).tolist() == [1, 1]


def test_a_uniform_mean_prediction_gives_equal_class_weights() -> None:
    probs = tensor([[0.8, 0.2], [0.2, 0.8]])
    assert class_weights(probs, torch.tensor([True, True])).tolist() == [1, 1]


@few
@given(st.integers(0, 2**31))
def test_class_weights_go_from_0_to_1_and_ignore_images_not_taken_for_known(seed: int) -> None:
    probs = draw(seed)[0]
    known = torch.tensor([True, False, True, True, False, True])
    v = class_weights(probs, known)
    assert v.min() == 0
    assert v.max() == 1
    mean = probs[known].mean(0)
    assert v.argsort().tolist() == mean.argsort().tolist()


LOGITS = tensor([[2, 0, 0], [0, 0, 0], [1, 1, -1]])


LIKENESS = tensor([0.9, 0.5, 0.2])


W_S = [0.095789346, 0.500000000, 0.796146561]


W_T = [0.294169637, -0.500000000, -0.605909019]


W_S_NORMALISED = [0, 1.097833818, 1.902166182]


W_T_NORMALISED = [2.684164065, 0.315835935, 0]


numbers = st.lists(st.floats(-5, 5, width=32), min_size=2, max_size=9)


def near(values: list[float]) -> object:
    return pytest.approx(values, abs=2e-9)


def test_the_weights_of_methods() -> None:
    w_s = source_weight(LOGITS, LIKENESS, temperature=10)
    w_t = target_weight(LOGITS, LIKENESS)
    assert w_s.tolist() == near(W_S)
    assert w_t.tolist() == near(W_T)
    assert normalise_weights(w_s).tolist() == near(W_S_NORMALISED)
    assert normalise_weights(w_t).tolist() == near(W_T_NORMALISED)


def test_the_decisions_of_methods() -> None:
    """The second stands a hair above w0, by the 1e−10 inside the logarithm alone."""
    w_t = target_weight(LOGITS, LIKENESS)
    assert w_t[1].item() == pytest.approx(-0.49999999975, abs=5e-11)
    assert (w_t >= -0.5).tolist() == [True, True, False]


def test_a_source_image_unlike_the_source_weighs_more_and_a_target_image_less() -> None:
    low, high = torch.zeros(3), torch.ones(3)
    assert (source_weight(LOGITS, low, 10) > source_weight(LOGITS, high, 10)).all()
    assert (target_weight(LOGITS, low) < target_weight(LOGITS, high)).all()


@few
@given(numbers)
def test_scaled_weights_are_finite_not_negative_and_of_mean_1(values: list[float]) -> None:
    scaled = normalise_weights(torch.tensor(values))
    assert scaled.isfinite().all()
    assert scaled.min() >= 0
    assert scaled.mean().item() == pytest.approx(1, abs=1e-5)


def test_equal_weights_become_ones() -> None:
    for n in [1, 2, 7]:
        assert normalise_weights(torch.full((n,), -0.3)).tolist() == pytest.approx([1] * n)


def test_scaling_depends_neither_on_the_unit_nor_on_the_order() -> None:
    w = tensor([0.3, -0.2, 0.9, 0.1])
    torch.testing.assert_close(normalise_weights(5 * w - 2), normalise_weights(w))
    torch.testing.assert_close(normalise_weights(w.flip(0)), normalise_weights(w).flip(0))
