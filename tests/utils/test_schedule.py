"""Schedules: METHODS.md §1.2 and §7.8."""

import pytest

from unida.utils.schedule import exponential_rampup


@pytest.mark.parametrize(
    ("step", "weight"), [(0, 0.049787068), (1000, 0.090717953), (2999, 0.301013550)]
)
def test_the_weight_of_the_memory_loss(step: int, weight: float) -> None:
    assert exponential_rampup(step, 5000) == pytest.approx(weight, abs=1e-9)
    assert exponential_rampup(step // 5, 1000) == pytest.approx(
        weight, abs=2e-3
    )  # a share of the run


def test_the_weight_ends_at_one_and_may_be_constant() -> None:
    assert exponential_rampup(5000, 5000) == 1
    assert exponential_rampup(17, 5000, gamma=0) == 1
