"""The terminal: log lines and progress on standard error, results on standard output."""

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Literal

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from unida.utils.logs import logger
from unida.utils.progress import NO_PROGRESS, Timer, Update, duration
from unida.utils.progress import Progress as ProgressProtocol

if TYPE_CHECKING:
    from unida.data.samples import Skipped

Verbosity = Literal["quiet", "normal", "verbose"]
LEVELS: dict[Verbosity, int] = {
    "quiet": logging.WARNING,
    "normal": logging.INFO,
    "verbose": logging.DEBUG,
}

console = Console(stderr=True, highlight=False)


class TerminalHandler(logging.Handler):
    """Prints a log record as a line, of the main process only.

    File names are not markup.
    """

    def emit(self, record: logging.LogRecord) -> None:
        from unida.utils import distributed

        if not distributed.is_main_process():
            return
        text = record.getMessage()
        if record.levelno >= logging.WARNING and not record.__dict__.get("plain"):
            text = f"Warning: {text}"
        if logger.isEnabledFor(logging.DEBUG):
            text = f"{datetime.fromtimestamp(record.created):%H:%M:%S}  {text}"
        console.print(text, markup=False, emoji=False, soft_wrap=True)


def log_error(text: str) -> None:
    """Log why a command ended."""
    logger.error(text, extra={"plain": True})


def log_skipped(skipped: "Iterable[Skipped]") -> None:
    """Log the images that were left out."""
    for bad in skipped:
        logger.info("left out: %s (%s)", bad.path, bad.reason)


@contextmanager
def logging_to_terminal(verbosity: Verbosity = "normal") -> Iterator[None]:
    """Show what the library logs while the block runs."""
    handler, level = TerminalHandler(), logger.level
    logger.addHandler(handler)
    logger.setLevel(LEVELS[verbosity])
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


class _Bars:
    """Progress bars of the tasks that run."""

    def __init__(self, bars: Progress) -> None:
        self.bars = bars

    def task(self, title: str) -> Update:
        task = self.bars.add_task(title, total=None, note="")

        def update(done: int, total: int, note: str = "") -> None:
            self.bars.update(task, completed=done, total=total, visible=done < total)
            if note:
                self.bars.update(task, note=note)

        return update


class _Lines:
    """At most ten lines per task that has notes, or all, where there is no terminal."""

    def task(self, title: str) -> Update:
        shown, timer = 0, Timer()

        def update(done: int, total: int, note: str = "") -> None:
            nonlocal shown
            every = 0 if logger.isEnabledFor(logging.DEBUG) else total / 10
            left = timer.seconds_left(done, total)
            if note and (done - shown >= every or done == total):
                shown = done
                words = [note] if left is None else [note, f"{duration(left)} left"]
                logger.info("%s  %d/%d  %s", title, done, total, ", ".join(words))

        return update


@contextmanager
def show_progress() -> Iterator[ProgressProtocol]:
    """Show progress while the block runs: bars on a terminal, lines elsewhere, none if quiet."""
    from unida.utils import distributed

    if not distributed.is_main_process() or not logger.isEnabledFor(logging.INFO):
        yield NO_PROGRESS
    elif not console.is_terminal or logger.isEnabledFor(logging.DEBUG):
        yield _Lines()
    else:
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}"),
        )
        with Progress(*columns, console=console) as bars:
            yield _Bars(bars)
