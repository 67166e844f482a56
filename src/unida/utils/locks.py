"""File locks, held by one process at a time; the system releases them when the process dies."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO


@contextmanager
def held(place: Path, wait: bool = False) -> Iterator[IO[str] | None]:
    """Hold a lock while the block runs; yields the file, open to read and write, or None if taken.

    Args:
        place: of the file; it is made if it is not there.
        wait: for the other process to release it.
    """
    with place.open("a+") as file:
        if _take(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB)):
            file.seek(0)
            yield file
        else:
            yield None


def is_held(place: Path) -> bool:
    """Return whether some process holds the lock."""
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
