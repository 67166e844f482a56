"""Two groups in one row of numbers, against densities that are known."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unida.decision import mixture_model
from unida.types import FloatArray


def draw(n: int, share: float, apart: float, deviations: tuple[float, float]) -> FloatArray:
    rng, upper = np.random.default_rng(0), int(n * share)
    low, high = deviations
    return np.concatenate([rng.normal(0, low, n - upper), rng.normal(apart, high, upper)])


@settings(max_examples=25)
@given(st.floats(5, 9), st.floats(0.5, 1.2), st.floats(0.5, 1.2), st.floats(0.1, 0.9))
def test_the_crossing_is_where_the_densities_are_equal(
    apart: float, low: float, high: float, share: float
) -> None:
    found = mixture_model.fit(draw(4000, share, apart, (low, high)))
    assert found is not None
    assert found.crossing is not None
    x = found.crossing
    below = math.exp(-((x / low) ** 2) / 2) / low
    above = math.exp(-(((x - apart) / high) ** 2) / 2) / high
    assert math.log(below / above) == pytest.approx(0, abs=3)  # it falls by tens around there
    assert found.share == pytest.approx(share, abs=0.03)
    assert found.gain > 0


def test_two_equal_groups_cross_half_way_whatever_their_sizes() -> None:
    for share in (0.1, 0.5, 0.9):
        found = mixture_model.fit(draw(20_000, share, 6.0, (1.0, 1.0)))
        assert found is not None
        assert found.crossing == pytest.approx(3, abs=0.15)


def test_the_lower_gaussian_is_the_lower_one() -> None:
    x = np.sort(draw(1000, 0.5, 6.0, (1.0, 1.0)))[::-1]  # falling, so that a fit begins upside down
    likelihood, share, lower, upper = mixture_model._expect_and_maximise(
        x, mixture_model.gaussian, 0.3
    )
    assert lower.mean == pytest.approx(0, abs=0.3)
    assert upper.mean == pytest.approx(6, abs=0.3)
    assert share == pytest.approx(0.5, abs=0.02)
    assert math.isfinite(likelihood)


def test_a_density_is_a_density() -> None:
    x = np.random.default_rng(0).normal(2, 3, 500)
    for shape in (mixture_model.gaussian, mixture_model.shifted_gamma):
        group = shape(x, np.ones(500))
        places = np.linspace(-60, 120, 400_001)
        mass = np.exp(group.log_density(places)).sum() * (places[1] - places[0])
        assert mass == pytest.approx(1, abs=1e-3)


def test_a_shifted_gamma_is_separated_from_a_gaussian() -> None:
    rng = np.random.default_rng(0)
    scores = np.concatenate([rng.exponential(0.3, 1000), rng.normal(4, 1.5, 2000).clip(0)])
    found = mixture_model.fit(scores)
    assert found is not None
    assert found.crossing is not None
    gap = -found.crossing / 0.3 - math.log(0.3)
    gap -= -(((found.crossing - 4) / 1.5) ** 2) / 2 - math.log(1.5 * math.sqrt(2 * math.pi))
    assert gap == pytest.approx(0, abs=0.6)
    assert found.share == pytest.approx(2 / 3, abs=0.03)


def test_one_mode_gains_nothing_and_equal_numbers_are_no_groups() -> None:
    one = mixture_model.fit(np.random.default_rng(0).normal(size=1000))
    assert one is not None
    assert one.gain <= 0
    assert mixture_model.fit(np.full(50, 3.0)) is None


def test_groups_around_one_place_do_not_cross() -> None:
    found = mixture_model.fit(draw(2000, 0.5, 0.0, (1.0, 8.0)))
    assert found is not None
    assert found.crossing is None


@pytest.mark.parametrize("sign", [1, -1])
def test_squashed_numbers_have_the_shares_of_components_with_a_long_tail(sign: int) -> None:
    rng = np.random.default_rng(0)
    values = sign * np.append(rng.normal(0, 1, 2000), 5 + rng.exponential(3, 2000))
    plain, squashed = (mixture_model.fit(values, s) for s in (0.0, 0.5))
    assert plain is not None
    assert squashed is not None
    assert abs(squashed.share - 0.5) < abs(plain.share - 0.5) / 2


def test_squashing_keeps_the_unit() -> None:
    values = draw(1000, 0.3, 6.0, (1.0, 1.0))
    one, other = (mixture_model.fit(x, 0.5) for x in (values, 10 * values + 5))
    assert one is not None
    assert other is not None
    assert one.crossing is not None
    assert other.crossing == pytest.approx(10 * one.crossing + 5)
    assert mixture_model.fit(np.ones(30), 0.5) is None
