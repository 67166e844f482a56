"""How fast a task is, and how long the rest takes."""

import pytest

from unida.utils import progress
from unida.utils.progress import Timer, duration, with_speed


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def test_what_was_done_before_is_not_counted(clock: list[float]) -> None:
    timer = Timer()
    assert timer.rate(500) is None  # a run that is resumed
    clock[0] += 0.5
    assert timer.seconds_left(510, 1000) is None  # too early to tell
    clock[0] += 3.5
    assert timer.rate(540) == 10
    assert timer.seconds_left(540, 1000) == 46
    assert timer.seconds_left(1000, 1000) is None


def test_the_speed_is_noted_unless_there_is_a_note(clock: list[float]) -> None:
    seen: list[tuple[int, int, str]] = []
    update = with_speed(lambda done, total, note="": seen.append((done, total, note)), "images")
    update(64, 640)
    clock[0] += 4
    update(128, 640)
    update(192, 640, "half")
    assert seen == [(64, 640, ""), (128, 640, "16.0 images/s"), (192, 640, "half")]


@pytest.mark.parametrize(("seconds", "text"), [(5, "5 s"), (150, "2 min"), (8000, "2 h")])
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text
