"""Progress of long tasks: the library reports it, `unida.cli` shows it."""

import time
from typing import Protocol


class Update(Protocol):
    """Reports how much of a task is done, and a few words about it."""

    def __call__(self, done: int, total: int, note: str = "") -> None: ...


class Progress(Protocol):
    """Shows tasks while they run."""

    def task(self, title: str) -> Update:
        """Begin a task."""
        ...


class NoProgress:
    """Shows nothing."""

    def task(self, title: str) -> Update:
        return ignore


def ignore(done: int, total: int, note: str = "") -> None:
    """Show nothing of a task."""


NO_PROGRESS = NoProgress()


class Timer:
    """How fast a task is, from its first report on: what was done before is not counted."""

    def __init__(self) -> None:
        self.first: tuple[int, float] | None = None

    def rate(self, done: int) -> float | None:
        """Return how much is done a second; None within the first second."""
        now = time.monotonic()
        first, since = self.first = self.first or (done, now)
        return (done - first) / (now - since) if now - since >= 1 and done > first else None

    def seconds_left(self, done: int, total: int) -> float | None:
        """Return how long the rest takes at this rate, if that is known."""
        rate = self.rate(done)
        return (total - done) / rate if rate and done < total else None


def with_speed(update: Update, what: str) -> Update:
    """Note how many a second are done, as in `16.1 images/s`."""
    timer = Timer()

    def report(done: int, total: int, note: str = "") -> None:
        rate = timer.rate(done)
        update(done, total, f"{rate:.1f} {what}/s" if rate and not note else note)

    return report


def duration(seconds: float) -> str:
    """Return a time in words, such as `2 min`."""
    for unit, length in (("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"
