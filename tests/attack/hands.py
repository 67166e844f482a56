"""Commands in processes of their own, many of them and cheap: they are forked from one that has
imported everything. Any may be killed at any moment."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

SECONDS = 400


class Hand:
    """A command in a process group of its own, begun at once."""

    def __init__(self, pid: int, log: Path) -> None:
        self.pid, self.log, self.begun = pid, log, time.monotonic()

    def status(self) -> int | None:
        """Exit status; None while it runs, negative after a signal."""
        is_there = Path("/proc", str(self.pid)).exists()  # read first: its last act is the status
        with suppress(FileNotFoundError):
            return int(self._status.read_text())
        return None if is_there else -signal.SIGKILL

    @property
    def _status(self) -> Path:
        return self.log.with_suffix(".status")

    def ended(self) -> int:
        """Wait for its end; return the exit status."""
        while (status := self.status()) is None:
            if time.monotonic() - self.begun > SECONDS:
                self.kill()
                raise AssertionError(f"no end after {SECONDS} s:\n{self.output()}")
            time.sleep(0.002)
        return status

    def kill(self) -> None:
        """End it and what it has started, wherever they are."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        while self.status() is None:
            time.sleep(0.001)

    def output(self) -> str:
        return self.log.read_text(errors="backslashreplace")


class Hands:
    """Starts commands."""

    def __init__(self, process: "subprocess.Popen[str]", folder: Path) -> None:
        self.process, self.folder, self.count = process, folder, 0

    def start(self, command: list[str], folder: Path | None = None) -> Hand:
        """Begin `unida` with these words."""
        self.count += 1
        log = self.folder / f"{self.count}.log"
        log.touch()
        order = {"command": command, "log": str(log), "folder": str(folder or self.folder)}
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        return Hand(int(self.process.stdout.readline()), log)

    def run(self, command: list[str], folder: Path | None = None) -> Hand:
        """Run `unida` with these words to its end."""
        hand = self.start(command, folder)
        hand.ended()
        return hand


@contextmanager
def hands(folder: Path) -> Iterator[Hands]:
    """Start the process that commands are forked from."""
    folder.mkdir(parents=True, exist_ok=True)
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.attack.hands"],
        cwd=Path(__file__).parents[2],
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield Hands(process, folder)
    finally:
        process.kill()
        process.wait()


def serve() -> None:
    """Fork a process for every line on standard input; print its number."""
    from PIL import Image

    import unida.discovery.discover
    import unida.export
    import unida.pipeline
    import unida.review.server  # noqa: F401
    from unida.cli.main import main

    Image.init()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # a process that has ended is gone
    for line in sys.stdin:
        order = json.loads(line)
        pid = os.fork()
        if pid:
            print(pid, flush=True)
            continue
        status = 70
        try:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.setsid()
            os.chdir(order["folder"])
            nothing = os.open(os.devnull, os.O_RDONLY)
            log = os.open(order["log"], os.O_WRONLY | os.O_APPEND)
            for new, old in ((nothing, 0), (log, 1), (log, 2)):
                os.dup2(new, old)
            status = main(order["command"])
            sys.stdout.flush()
        finally:
            Path(order["log"]).with_suffix(".part").write_text(str(status))
            Path(order["log"]).with_suffix(".part").replace(
                Path(order["log"]).with_suffix(".status")
            )
            os._exit(status)


if __name__ == "__main__":
    serve()
