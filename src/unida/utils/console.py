"""What a person sees while a run goes on. Everything here goes to standard error."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)

from unida.data.pixels import Progress as Callback
from unida.training.loop import Report
from unida.utils import distributed

console = Console(stderr=True, highlight=False)


def say(text: str) -> None:
    """One line: file names are not markup, and what is no sign in one is shown as its escape."""
    if not distributed.is_main_process():
        return
    line = "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in text)
    console.print(line, markup=False, emoji=False, soft_wrap=True)


@contextmanager
def quietly() -> Iterator[None]:
    """Nothing is shown while the block runs."""
    before, console.quiet = console.quiet, True
    try:
        yield
    finally:
        console.quiet = before


class Display:
    """Progress bars on a terminal; a few plain lines elsewhere."""

    def __init__(self, progress: Progress) -> None:
        self.progress = progress

    def decoding(self, name: str) -> Callback:
        """A bar for reading the images of one domain."""
        return self._counting(f"reading {name}")

    def embedding(self, name: str) -> Callback:
        """A bar for showing the images of one domain to a frozen backbone."""
        return self._counting(f"embedding {name}", said=console.is_terminal)

    def _counting(self, title: str, said: bool = True) -> Callback:
        task = self.progress.add_task(title, total=None, note="")

        def update(done: int, total: int) -> None:
            nonlocal said
            self.progress.update(task, completed=done, total=total)
            if not said:  # without a terminal one line, as this takes a while
                said = True
                say(f"{title}: {total} images")

        return update

    def training(self, title: str, steps: int) -> Report:
        """A bar for the steps, with speed and loss; without a terminal, ten lines a run."""
        task = self.progress.add_task(title, total=steps, note="")
        said, last = 0, time.monotonic()

        def update(done: int, line: dict[str, Any] | None) -> None:
            nonlocal said, last
            if line:
                note = f"loss {line['loss']:.3f}  {line['steps_per_second']:.1f} steps/s"
                self.progress.update(task, completed=done, note=note)
                if not console.is_terminal and (done - said >= steps / 10 or done == steps):
                    said = done
                    say(f"{title}  step {done}/{steps}  {note}")
            elif time.monotonic() - last > 0.2:
                last = time.monotonic()
                self.progress.update(task, completed=done)

        return update


@contextmanager
def display() -> Iterator[Display]:
    """Shows progress while the block runs."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    )
    quiet = not console.is_terminal or not distributed.is_main_process()
    with Progress(*columns, console=console, disable=quiet) as progress:
        yield Display(progress)
