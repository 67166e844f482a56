"""H-score and its relatives: the check case of METHODS.md §1.3, its limits and its invariances."""

import dataclasses
import math
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unida.metrics import Score, score

# C = 3: shared 0 and 1, source-private 2; unknown is 3.
LABELS = [0, 0, 0, 0, 1, 1, 3, 3, 3, 3, 3]
PREDICTIONS = [0, 0, 0, 3, 1, 2, 3, 3, 3, 0, 1]
EXPECTED = {
    "known": 0.625,
    "known_instance": 0.666667,
    "unknown": 0.6,
    "h": 0.612244898,
    "h_instance": 0.631578947,
    "balanced_h": 0.613382900,
    "os": 0.616666667,
    "os_star": 0.625,
}


def as_dict(result: Score) -> dict[str, float]:
    return dataclasses.asdict(result)


def test_the_check_case_names_every_field() -> None:
    assert EXPECTED.keys() == as_dict(score([0], [0], unknown=1)).keys()


@pytest.mark.parametrize("n_shared", [None, 2])
@pytest.mark.parametrize("field", EXPECTED)
def test_the_check_case_of_methods(field: str, n_shared: int | None) -> None:
    result = score(LABELS, PREDICTIONS, unknown=3, n_shared=n_shared)
    assert getattr(result, field) == pytest.approx(EXPECTED[field], abs=1e-6)


def test_a_source_private_prediction_is_an_error_like_any_other() -> None:
    other_class = [1 if p == 2 else p for p in PREDICTIONS[:4]] + [1, 0] + PREDICTIONS[6:]
    assert score(LABELS, other_class, unknown=3) == score(LABELS, PREDICTIONS, unknown=3)


def test_a_source_private_prediction_of_an_unknown_sample_is_an_error() -> None:
    assert score([0, 3, 3], [0, 2, 3], unknown=3).unknown == 0.5


def test_without_a_shared_sample_only_the_unknown_is_measured() -> None:
    result = score([3, 3], [3, 0], unknown=3)
    assert result.unknown == 0.5
    assert result.os == 0.5
    for field in ("known", "known_instance", "h", "h_instance", "balanced_h", "os_star"):
        assert math.isnan(getattr(result, field))


def test_without_an_unknown_sample_only_the_known_is_measured() -> None:
    result = score([0, 0, 1], [0, 3, 1], unknown=3)
    assert result.known == result.os == result.os_star == 0.75
    assert result.known_instance == pytest.approx(2 / 3)
    for field in ("unknown", "h", "h_instance", "balanced_h"):
        assert math.isnan(getattr(result, field))


def test_without_any_sample_nothing_is_measured() -> None:
    assert all(math.isnan(value) for value in as_dict(score([], [], unknown=3)).values())


def test_nothing_right_is_zero_not_an_error() -> None:
    assert set(as_dict(score([0, 1, 3], [1, 0, 0], unknown=3)).values()) == {0.0}


@pytest.mark.parametrize(("predictions", "right"), [([0, 1, 0], "known"), ([3, 3, 3], "unknown")])
def test_one_half_at_zero_makes_the_harmonic_means_zero(predictions: list[int], right: str) -> None:
    result = score([0, 1, 3], predictions, unknown=3)
    assert getattr(result, right) == 1
    assert result.h == result.h_instance == result.balanced_h == 0


def test_all_right_is_one_everywhere() -> None:
    assert set(as_dict(score(LABELS, LABELS, unknown=3)).values()) == {1.0}


def test_balanced_h_leans_on_the_side_with_more_samples() -> None:
    """θ = 4, A_c = .8, A_u = .6: .631579 as printed; the released code's .75 swaps the sides."""
    labels = [0] * 5 + [1] * 20
    predictions = [0] * 4 + [1] + [1] * 12 + [0] * 8
    assert score(labels, predictions, unknown=1).balanced_h == pytest.approx(0.631579, abs=1e-6)


def test_shared_classes_without_samples_do_not_count() -> None:
    assert score(LABELS, PREDICTIONS, unknown=9, n_shared=4).known == pytest.approx(
        score(LABELS, PREDICTIONS, unknown=9).known
    )


def test_unknown_may_be_any_number() -> None:
    labels = [-1 if k == 3 else k for k in LABELS]
    predictions = [-1 if k == 3 else k for k in PREDICTIONS]
    result = score(labels, predictions, unknown=-1, n_shared=2)
    assert result == score(LABELS, PREDICTIONS, unknown=3)


def test_labels_and_predictions_must_pair() -> None:
    with pytest.raises(ValueError, match="3 labels but 2 predictions"):
        score([0, 1, 3], [0, 1], unknown=3)


@pytest.mark.parametrize("labels", [[0, 2], [-1, 0]])
def test_labels_outside_the_shared_classes_are_refused(labels: list[int]) -> None:
    with pytest.raises(ValueError, match="are not all below n_shared = 2"):
        score(labels, [0, 0], unknown=3, n_shared=2)


samples = st.lists(st.tuples(st.sampled_from([0, 1, 2, 4]), st.integers(0, 4)), max_size=30)


@settings(max_examples=60, deadline=None)
@given(samples, st.randoms(use_true_random=False))
def test_the_order_of_the_samples_does_not_matter(
    pairs: list[tuple[int, int]], random: Random
) -> None:
    shuffled = list(pairs)
    random.shuffle(shuffled)
    one, two = (as_dict(score([y for y, _ in s], [p for _, p in s], unknown=4))
                for s in (pairs, shuffled))  # fmt: skip
    assert one == pytest.approx(two, nan_ok=True)


@settings(max_examples=60, deadline=None)
@given(samples, st.permutations([0, 1, 2, 3]))
def test_the_numbers_of_the_classes_do_not_matter(
    pairs: list[tuple[int, int]], names: list[int]
) -> None:
    renamed = [*names, 4]
    one = score([y for y, _ in pairs], [p for _, p in pairs], unknown=4)
    two = score([renamed[y] for y, _ in pairs], [renamed[p] for _, p in pairs], unknown=4)
    assert as_dict(one) == pytest.approx(as_dict(two), nan_ok=True)


@settings(max_examples=100, deadline=None)
@given(samples)
def test_scores_are_fractions_and_means_lie_between_their_parts(
    pairs: list[tuple[int, int]],
) -> None:
    result = score([y for y, _ in pairs], [p for _, p in pairs], unknown=4)
    for value in as_dict(result).values():
        assert math.isnan(value) or 0 <= value <= 1 + 1e-12
    parts = (result.known, result.unknown)
    if not any(map(math.isnan, parts)):
        for mean in (result.h, result.balanced_h, result.os):
            assert min(parts) - 1e-12 <= mean <= max(parts) + 1e-12
        assert result.h <= np.mean(parts) + 1e-12
