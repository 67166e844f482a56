"""Processes that tests start: they end with the test, and their output is shown where it fails."""

import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

UNIDA = (sys.executable, "-m", "unida")
SECONDS = 400
"""How long a test waits: far longer than it takes, for the machine may be busy."""


class Child:
    """A process in a group of its own; its output, of both streams, goes to a file."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self.process, self.log = process, log

    def output(self) -> str:
        return self.log.read_text(errors="replace")

    def status(self) -> int | None:
        """None while it runs."""
        return self.process.poll()

    def ended(self, seconds: float = SECONDS) -> int:
        """Waits for its end; returns the exit status."""
        wait_for(lambda: self.status() is not None, seconds=seconds)
        return self.process.returncode

    def kill(self) -> None:
        """It and what it has started."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


@contextmanager
def started(
    command: Sequence[str], folder: Path | None = None, **environment: str
) -> Iterator[Child]:
    """A process for the time of the block; if the block fails, the error has its output."""
    with tempfile.NamedTemporaryFile() as log:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=os.environ | {"OMP_NUM_THREADS": "1"} | environment,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        child = Child(process, Path(log.name))
        try:
            yield child
        except BaseException as error:
            error.add_note(f"{shlex.join(command)} said:\n{child.output()[-8000:]}")
            raise
        finally:
            child.kill()


def wait_for(
    condition: Callable[[], bool], child: Child | None = None, seconds: float = SECONDS
) -> None:
    """Fails when the time is over, or before that when the child has ended."""
    deadline = time.monotonic() + seconds
    while True:
        status = child.status() if child else None  # read first: its last act may fulfil it
        if condition():
            return
        assert status is None, f"the process ended with {status}"
        assert time.monotonic() < deadline, f"waited in vain for {seconds} s"
        time.sleep(0.01)
