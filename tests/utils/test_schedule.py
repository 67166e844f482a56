"""Schedules: METHODS.md §1.2 and §7.8."""

import pytest

from unida.utils.schedule import SCHEDULES, exponential_rampup, inverse_decay


def test_inverse_decay_of_methods() -> None:
    lr = {0: 0.01, 1000: 0.00594603558, 5000: 0.00260847430, 10000: 0.00165560026}
    for step, expected in (lr | {20000: lr[10000]}).items():
        assert 0.01 * inverse_decay(step / 10000) == pytest.approx(expected, abs=1e-11)


def test_every_schedule_starts_at_one_and_never_rises() -> None:
    for name, schedule in SCHEDULES.items():
        factors = [schedule(step / 20) for step in range(25)]
        assert factors[0] == 1, name
        assert factors == sorted(factors, reverse=True), name
        assert factors[-1] == factors[20] >= 0, name


def test_the_weight_of_dcc_s_memory_loss() -> None:
    for step, weight in ((0, 0.049787068), (1000, 0.090717953), (2999, 0.301013550)):
        assert exponential_rampup(step, 5000) == pytest.approx(weight, abs=1e-9)
        in_shares = exponential_rampup(step // 5, 1000)
        assert in_shares == pytest.approx(weight, abs=2e-3)
    assert exponential_rampup(5000, 5000) == 1
    assert exponential_rampup(17, 5000, gamma=0) == 1
