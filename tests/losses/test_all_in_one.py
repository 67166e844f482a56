"""All-in-One loss: docs/methods/san.md, a slow copy of the equations, limits, invariances."""

import math
from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tests.losses import slow
from tests.losses.examples import few
from unida.losses import all_in_one
from unida.losses.all_in_one import _log_with_tangent

S1 = [[0.2, -0.3, 0.5], [1.0, 0.0, -0.5]]
S2 = [[0.1, 0.4, -0.2], [0.3, -0.6, 0.8]]
LABELS = [0, 2]
ILL_POSED = [[[2.0, 0.0, 0.0], [1.0, 0.0, 0.0]]]
FIVE = [[[0.1, 0.2, 0.3, 0.4, 0.5], [2.0, 1.0, 0.0, -1.0, 3.0]]]

THIRDS = ("log", "sigmoid")
FLOAT32_MAX = torch.finfo(torch.float32).max

seeds = st.integers(0, 2**31)
thirds = st.sampled_from(THIRDS)


def tensor(values: object) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def loss_of(logits: Tensor, labels: list[int] | Tensor, third: str, top_n: int = 20) -> Tensor:
    return all_in_one(logits, torch.as_tensor(labels), top_n, third)  # type: ignore[arg-type]


def draw(seed: int, b: int, k: int, size: float = 2.0) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    logits = size * torch.randn(b, 2, k, generator=g, dtype=torch.float64)
    return logits.requires_grad_(), torch.randint(k, (b,), generator=g)


def gradient(loss: Tensor, logits: Tensor) -> Tensor:
    (found,) = torch.autograd.grad(loss, logits)
    return found


# --- the check cases of docs/methods/san.md


def test_one_softmax_covers_both_outputs() -> None:
    for sample, c_not, c_is in [
        (S1, (0.153911354, 0.093351955, 0.207758597), (0.342536018, 0.126011959, 0.076430117)),
        (S2, (0.146575603, 0.197856368, 0.108585877), (0.179027845, 0.072787290, 0.295167017)),
    ]:
        found = slow.joint_softmax(sample)
        assert found[0] == pytest.approx(c_not, abs=1e-9)
        assert found[1] == pytest.approx(c_is, abs=1e-9)


def test_the_form_as_printed() -> None:
    assert loss_of(tensor([S1]), [0], "log").item() == pytest.approx(5.446887523, abs=1e-8)
    assert loss_of(tensor([S2]), [2], "log").item() == pytest.approx(5.470274706, abs=1e-8)
    assert loss_of(tensor([S1, S2]), LABELS, "log").item() == pytest.approx(5.458581115, abs=1e-8)


def test_the_form_as_released() -> None:
    for beta, loss in [
        (1.0, 1.309481162),
        (1.2, 1.351937910),
        (1.4, 1.394394658),
        (1.5, 1.415623032),
    ]:
        labels = torch.tensor(LABELS)
        found = all_in_one(tensor([S1, S2]), labels, third="sigmoid", third_weight=beta)
        assert found.item() == pytest.approx(loss, abs=1e-9)


def test_the_released_form_of_a_misclassified_sample() -> None:
    found = all_in_one(tensor(ILL_POSED), torch.tensor([0]), third="sigmoid", third_weight=1.4)
    assert found.item() == pytest.approx(1.838218080, abs=1e-9)


def test_the_printed_form_of_a_misclassified_sample_goes_on_along_the_tangent() -> None:
    """c^y − max c̃ = −.331088281, where the printed logarithm does not exist."""
    c_y, c_not = 0.192685668, 0.523773949 / math.exp(2)
    third = math.log(0.05) + (-0.331088281 - 0.05) / 0.05
    expected = -(math.log(c_y) + math.log(c_not) + third)
    assert loss_of(tensor(ILL_POSED), [0], "log").item() == pytest.approx(expected, abs=1e-7)


def test_three_of_five_classes_with_the_label_forced_in() -> None:
    labels = torch.tensor([3])
    found = all_in_one(tensor(FIVE), labels, 3, "sigmoid", third_weight=1.4)
    assert found.item() == pytest.approx(2.820726229, abs=1e-9)
    assert slow.kept_classes(FIVE[0][1], 3, 3) == [0, 3, 4]


# --- value and gradient against the slow copy


@pytest.mark.parametrize("third", THIRDS)
@pytest.mark.parametrize(
    ("b", "k", "top_n"), [(1, 2, 2), (2, 2, 20), (3, 5, 20), (4, 6, 2), (5, 7, 4)]
)
def test_the_loss_is_the_equation(b: int, k: int, top_n: int, third: str) -> None:
    for seed in range(4):
        logits, labels = draw(seed, b, k)
        options = {"third": third, "third_weight": 1.4, "floor": 0.05}

        def copy(t: Tensor, y: Tensor = labels, options: dict[str, str | float] = options) -> float:
            return slow.all_in_one(t.tolist(), y.tolist(), top_n, **options)  # type: ignore[arg-type]

        loss = all_in_one(logits, labels, top_n, **options)  # type: ignore[arg-type]
        assert loss.item() == pytest.approx(copy(logits.detach()), rel=1e-10)
        by_steps = slow.slope(copy, logits)
        torch.testing.assert_close(gradient(loss, logits), by_steps, rtol=1e-6, atol=1e-7)


def test_above_the_floor_the_last_term_is_the_logarithm() -> None:
    """The margins of the check case are .13 and .097."""
    for floor in [1e-4, 0.01, 0.09]:
        found = all_in_one(tensor([S1, S2]), torch.tensor(LABELS), floor=floor)
        assert found.item() == pytest.approx(5.458581115, abs=1e-8)


def test_the_third_weight_scales_the_last_term_alone() -> None:
    for third in THIRDS:
        logits, labels = draw(0, 4, 5)
        loss = [
            all_in_one(logits, labels, third=third, third_weight=w)  # type: ignore[arg-type]
            for w in (0.0, 1.0, 2.0)
        ]
        torch.testing.assert_close(loss[2] - loss[1], loss[1] - loss[0])
        assert (loss[1] - loss[0]).abs() > 0.1


# --- the continuation below the floor


def test_the_continuation_is_the_logarithm_above_and_its_tangent_below() -> None:
    x = torch.linspace(-1, 1, 101, dtype=torch.float64)
    found = _log_with_tangent(x, 0.3)
    above = x > 0.3
    torch.testing.assert_close(found[above], x[above].log())
    torch.testing.assert_close(found[~above], math.log(0.3) + (x[~above] - 0.3) / 0.3)


def test_the_continuation_has_no_step_and_no_kink_beside_the_floor() -> None:
    for floor in [1e-3, 0.05, 0.3]:
        x = tensor([floor - 1e-9, floor + 1e-9]).requires_grad_()
        value = _log_with_tangent(x, floor)
        slopes = gradient(value.sum(), x)
        assert value.tolist() == pytest.approx([math.log(floor)] * 2, abs=1e-5)
        assert slopes.tolist() == pytest.approx([1 / floor] * 2, rel=1e-5)


def test_the_continuation_has_the_slope_of_the_logarithm_at_the_floor_itself() -> None:
    for floor in [0.05, 0.25]:
        x = tensor([floor]).requires_grad_()
        assert gradient(_log_with_tangent(x, floor).sum(), x).item() == pytest.approx(1 / floor)


def test_the_continuation_rises_everywhere() -> None:
    x = torch.linspace(-1, 1, 400, dtype=torch.float64)
    assert (_log_with_tangent(x, 0.05).diff() > 0).all()


def test_a_misclassified_sample_is_pulled_towards_its_label() -> None:
    logits = tensor(ILL_POSED).requires_grad_()
    to_not, to_is = gradient(loss_of(logits, [0], "log"), logits)[0]
    assert to_is[0] < -1
    assert to_not[0] > 1


# --- which classes enter


@few
@given(seeds, thirds, st.integers(0, 5))
def test_the_label_is_kept_though_its_logit_is_the_lowest(
    seed: int, third: str, label: int
) -> None:
    logits, _ = draw(seed, 1, 6)
    with torch.no_grad():
        logits[0, 1, label] = -50
    best = int(logits[0, 1].argmax())
    found = loss_of(logits, [label], third, top_n=2)
    torch.testing.assert_close(found, loss_of(logits[:, :, [label, best]], [0], third))
    assert found > 5


def test_as_many_as_there_are_classes_means_all() -> None:
    for third, top_n in product(THIRDS, [5, 6, 1000]):
        logits, labels = draw(1, 4, 5)
        assert loss_of(logits, labels, third, top_n) == loss_of(logits, labels, third, 5)
        copy = slow.all_in_one(logits.tolist(), labels.tolist(), 10**6, third)
        assert loss_of(logits, labels, third, top_n).item() == pytest.approx(copy, rel=1e-10)


def test_twenty_classes_are_kept_by_default() -> None:
    logits, labels = draw(0, 3, 30)
    copy = slow.all_in_one(logits.tolist(), labels.tolist(), 20)
    assert all_in_one(logits, labels).item() == pytest.approx(copy, rel=1e-10)


def test_only_the_classes_kept_get_a_gradient() -> None:
    for third in THIRDS:
        logits = tensor(FIVE).requires_grad_()
        touched = gradient(loss_of(logits, [3], third, top_n=3), logits)[0].abs() > 0
        assert touched.all(0).tolist() == [True, False, False, True, True]
        assert touched.any(0).tolist() == [True, False, False, True, True]


def test_tied_logits_still_keep_the_label() -> None:
    for third in THIRDS:
        logits = torch.zeros(6, 2, 6)
        found = loss_of(logits, list(range(6)), third, top_n=3)
        torch.testing.assert_close(found, loss_of(logits[:, :, :3], [0] * 6, third))


# --- invariances


@few
@given(seeds, thirds, st.permutations(range(5)))
def test_the_order_of_the_images_does_not_matter(seed: int, third: str, order: list[int]) -> None:
    logits, labels = draw(seed, 5, 4)
    shuffled = loss_of(logits[order], labels[order], third, top_n=3)
    torch.testing.assert_close(shuffled, loss_of(logits, labels, third, top_n=3))


@few
@given(seeds, thirds, st.permutations(range(5)), st.integers(2, 6))
def test_the_numbers_of_the_classes_do_not_matter(
    seed: int, third: str, order: list[int], top_n: int
) -> None:
    logits, labels = draw(seed, 3, 5)
    renamed = torch.tensor(order).argsort()[labels]
    shuffled = loss_of(logits[:, :, order], renamed, third, top_n)
    torch.testing.assert_close(shuffled, loss_of(logits, labels, third, top_n))


@few
@given(seeds, thirds, st.floats(-100, 100))
def test_a_constant_on_all_logits_of_an_image_does_not_matter(
    seed: int, third: str, constant: float
) -> None:
    logits, labels = draw(seed, 3, 5)
    torch.testing.assert_close(
        loss_of(logits + constant, labels, third), loss_of(logits, labels, third)
    )


# --- limits


def test_equal_logits_give_a_known_value() -> None:
    for k, value in product([2, 5], [0.0, 7.0, -1e4]):
        logits = torch.full((3, 2, k), value, dtype=torch.float64)
        labels = [0, 1, 1]
        blind = math.log(2 * k)
        log = 2 * blind - (math.log(0.05) - 1)
        assert loss_of(logits, labels, "log").item() == pytest.approx(log, rel=1e-10)
        sigmoid = (2 * blind + math.log(2)) / 3
        assert loss_of(logits, labels, "sigmoid").item() == pytest.approx(sigmoid, rel=1e-6)


@few
@given(seeds, st.floats(0.1, 1e3))
def test_the_released_form_is_bounded(seed: int, size: float) -> None:
    logits, labels = draw(seed, 4, 5, size)
    most = (2 * 18.420680744 + math.log(1 + math.e)) / 3
    assert math.log(1 + 1 / math.e) / 3 <= loss_of(logits, labels, "sigmoid").item() <= most


def test_the_released_last_term_does_not_use_the_label() -> None:
    logits = tensor([S1]).requires_grad_()
    last = [
        all_in_one(logits, torch.tensor([y]), third="sigmoid")
        - all_in_one(logits, torch.tensor([y]), third="sigmoid", third_weight=0.0)
        for y in range(3)
    ]
    assert [x.item() for x in last] == pytest.approx([last[0].item()] * 3, abs=1e-12)


def test_a_larger_true_logit_is_better() -> None:
    for third in THIRDS:
        logits = tensor([S1]).repeat(5, 1, 1)
        logits[:, 1, 0] = torch.linspace(-2, 1, 5)
        losses = [loss_of(x[None], [0], third).item() for x in logits]
        assert losses == sorted(losses, reverse=True)


# --- finite for every input


def finite(logits: Tensor, labels: Tensor, top_n: int, third: str) -> bool:
    logits = logits.detach().clone().requires_grad_()
    loss = loss_of(logits, labels, third, top_n)
    return bool(loss.isfinite()) and bool(gradient(loss, logits).isfinite().all())


def test_a_large_logit_counts_in_full() -> None:
    for size in [1e4, 1e6, 1e20]:
        logits = tensor([[[0.0, 0.0], [-size, 0.0]]]).requires_grad_()
        loss = loss_of(logits, [0], "log")
        third = math.log(0.05) + (-1 / 3 - 0.05) / 0.05
        assert loss.item() == pytest.approx(size + 2 * math.log(3) - third, rel=1e-12)
        assert gradient(loss, logits)[0, 1, 0].item() == pytest.approx(-1)


LARGE = (1e4, 1e30, FLOAT32_MAX)


def test_value_and_gradient_are_finite() -> None:
    for third, top_n, k, size in product(THIRDS, [2, 3, 20], [2, 4], LARGE):
        signs = torch.tensor([1.0, -1.0])
        for logits in (
            torch.full((2, 2, k), size),
            torch.full((2, 2, k), -size),
            size * signs[:, None].expand(2, 2, k),  # certain of "is not"
            size * signs.flip(0)[:, None].expand(2, 2, k),  # certain of "is"
            size * torch.randn(2, 2, k, generator=torch.Generator().manual_seed(0)).sign(),
            size * torch.eye(k)[k - 1].expand(2, 2, k),  # the wrong class for label 0
        ):
            for labels in (torch.tensor([0, k - 1]), torch.tensor([0, 0])):
                assert finite(logits, labels, top_n, third)


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=12, max_size=12),
    st.sampled_from([2, 3]),
    st.lists(st.integers(0, 1), min_size=3, max_size=3),
    st.sampled_from([2, 20]),
    thirds,
)
def test_value_and_gradient_are_finite_for_any_logits(
    values: list[float], k: int, labels: list[int], top_n: int, third: str
) -> None:
    logits = torch.tensor(values).view(-1, 2, k)
    assert finite(logits, torch.tensor(labels[: len(logits)]), top_n, third)


def test_float32_agrees_with_float64() -> None:
    for third in THIRDS:
        logits, labels = draw(2, 16, 30)
        in_float32 = loss_of(logits.float(), labels, third).double()
        torch.testing.assert_close(in_float32, loss_of(logits, labels, third), rtol=1e-5, atol=1e-5)


# --- errors


def test_logits_of_another_shape_are_refused() -> None:
    for shape in [(4, 6), (4, 2, 1), (4, 3, 5), (4, 2, 0), (2, 2, 3, 1), (4,)]:
        with pytest.raises(ValueError, match=r"needed") as error:
            all_in_one(torch.ones(shape), torch.zeros(shape[0], dtype=torch.long))
        assert str(shape) in str(error.value)


def test_fewer_than_two_classes_cannot_be_kept() -> None:
    for top_n in [1, 0, -3]:
        with pytest.raises(ValueError, match=f"top_n is {top_n}; 2 or more is needed"):
            loss_of(tensor([S1, S2]), LABELS, "log", top_n)


def test_an_unknown_third_term_is_refused() -> None:
    with pytest.raises(ValueError, match="third is 'printed'; allowed: log, sigmoid"):
        loss_of(tensor([S1, S2]), LABELS, "printed")
