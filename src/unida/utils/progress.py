"""Progress of long tasks: the library reports it, `unida.cli` shows it."""

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
