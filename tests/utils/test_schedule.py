"""Schedules: docs/methods/index.md and dcc.md."""

import pytest

from unida.utils.schedule import (
    SCHEDULES,
    exponential_rampup,
    inverse_decay,
    is_schedule,
    lr_factor,
)


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


def test_a_schedule_may_have_a_horizon_of_its_own() -> None:
    for step in (0, 1000, 5000, 20000):
        expected = inverse_decay(step / 10000)
        for steps in (3000, 40000):
            assert lr_factor("inverse_decay:10000", step, steps) == expected
    assert lr_factor("inverse_decay", 1500, 3000) == inverse_decay(0.5)
    assert all(map(is_schedule, SCHEDULES))
    assert is_schedule("cosine:5")
    for bad in ("", "linear", "cosine:", "cosine:0", "cosine:-5", "cosine:x", "cosine:5:5", ":5"):
        assert not is_schedule(bad), bad


def test_the_weight_of_dcc_s_memory_loss() -> None:
    for step, weight in ((0, 0.049787068), (1000, 0.090717953), (2999, 0.301013550)):
        assert exponential_rampup(step, 5000) == pytest.approx(weight, abs=1e-9)
        in_shares = exponential_rampup(step // 5, 1000)
        assert in_shares == pytest.approx(weight, abs=2e-3)
    assert exponential_rampup(5000, 5000) == 1
    assert exponential_rampup(17, 5000, gamma=0) == 1
