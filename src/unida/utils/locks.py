"""Files that one process holds at a time; the system lets go of them when their holder dies."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO


@contextmanager
def held(place: Path, wait: bool = False) -> Iterator[IO[str] | None]:
    """The lock file, open to read and to write, while the block runs; None if another has it.

    Args:
        place: of the file; it is made if it is not there.
        wait: until the other lets go of it.
    """
    with place.open("a+") as file:
        if _take(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB)):
            file.seek(0)
            yield file
        else:
            yield None


def is_held(place: Path) -> bool:
    """Whether some process holds it."""
    try:
        with place.open() as file:
            return not _take(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False


def _take(file: IO[str], how: int) -> bool:
    try:
        fcntl.flock(file, how)
    except BlockingIOError:
        return False
    return True
