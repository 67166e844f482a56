"""How a command ended, and what must hold however it ended."""

import contextlib
import io
import os
import resource
import signal
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from unida.cli.main import main

SECONDS = 300
"""A command of a case takes a fraction of a second of its own; one that is still there after that
long, on however busy a machine, has no end."""
MEMORY = 6 * 2**30
"""Bytes that a command may ask for beyond what the process has."""

LONGEST = 8000
"""Characters in a line on standard error; paths may be 4,096 long."""


class HungError(BaseException):
    """A command that does not end; the catch-all of the command line must not turn it into one
    that failed."""


@dataclass(frozen=True)
class Outcome:
    """Exit status and what was printed."""

    status: int
    out: str
    err: str


def attempt(command: Sequence[str]) -> Outcome:
    """Run a command in this process, with bounds on its time and memory."""
    out, err = (
        io.TextIOWrapper(io.BytesIO(), "utf-8", errors="surrogateescape", write_through=True)
        for _ in range(2)
    )
    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        warnings.catch_warnings(),
        _bounded(),
    ):
        warnings.simplefilter("ignore")  # they are errors in tests, not where the command is used
        status = main(list(command))
    return Outcome(status, *(_text(stream) for stream in (out, err)))


def _text(stream: io.TextIOWrapper) -> str:
    content = stream.buffer
    assert isinstance(content, io.BytesIO)
    return content.getvalue().decode("utf-8", "backslashreplace")


@contextlib.contextmanager
def _bounded() -> Iterator[None]:
    def hang(*_: object) -> None:
        raise HungError

    before = signal.signal(signal.SIGALRM, hang)
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    size = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY, hard))
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def faults(outcome: Outcome) -> list[str]:
    """What is wrong with an outcome, whatever the command was."""
    found = []
    shown = outcome.out + outcome.err
    if outcome.status not in (0, 1, 2):
        found.append(f"exit status {outcome.status}")
    if "Traceback" in shown:
        found.append("a traceback")
    if "unforeseen error" in outcome.err:
        found.append("an error that nothing foresaw")
    if outcome.status and not _is_sentence(outcome.err):
        found.append("no sentence that says why")
    if max(map(len, outcome.err.splitlines()), default=0) > LONGEST:
        found.append("a line that nobody reads to its end")
    return found


def _is_sentence(err: str) -> bool:
    """Whether an error ends in one sentence, or in the box of what cannot be parsed."""
    lines = err.strip().splitlines() or [""]
    said = lines[-1].startswith("unida: ") and lines[-1].endswith((".", "?"))
    return said or "--help" in err


def parts_below(folder: Path) -> list[Path]:
    """Files under their temporary names, which no command that has ended may leave."""
    return [
        Path(root, name)
        for root, _, names in os.walk(folder)
        for name in names
        if name.endswith(".part")
    ]


State = dict[str, tuple[int, int]]


def state_of(folder: Path) -> State:
    """Size and time of change of every file below a folder, links not followed."""
    found: State = {}
    for root, folders, names in os.walk(folder):
        for name in (*folders, *names):
            stat = os.lstat(os.path.join(root, name))
            is_folder = os.path.isdir(os.path.join(root, name))
            found[os.path.join(root, name)] = (
                (0, 0) if is_folder else (stat.st_size, stat.st_mtime_ns)
            )
    return found


def shown(outcome: Outcome) -> str:
    """What was printed, shortened, for the message of a test that fails."""
    text = f"exit status {outcome.status}\n{outcome.out[-500:]}{outcome.err[-3000:]}"
    return text.encode("ascii", "backslashreplace").decode()
