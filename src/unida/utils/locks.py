"""File locks, held by one process at a time; the system releases them when the process dies.

They are those of `flock`, which Linux passes on to the server of a network file system (NFS).
Windows and some file systems have none; what takes a lock there raises an `OSError` of `NO_LOCKS`.
"""

import errno
import os
import platform
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

NO_LOCKS = frozenset({errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS})


@contextmanager
def held(place: Path, wait: bool = False, remove: bool = False) -> Iterator[IO[str] | None]:
    """Hold a lock while the block runs; yields the file, open to read and write, or None if taken.

    Args:
        place: of the file; it is made if it is not there.
        wait: for the other process to release it.
        remove: the file when the block ends.
    """
    while True:
        with place.open("a+") as file:
            taken = take(file, wait=wait)
            if taken and not is_at(file, place):
                continue  # its last holder has removed it
            file.seek(0)
            try:
                yield file if taken else None
            finally:
                if taken and remove:
                    place.unlink(missing_ok=True)
            return


def is_held(place: Path) -> bool:
    """Return whether some process holds the lock."""
    try:
        with place.open() as file:
            return not take(file, shared=True)
    except FileNotFoundError:
        return False


def take(file: IO[Any], shared: bool = False, wait: bool = False) -> bool:
    """Lock an open file until it is closed; return False where another process holds it."""
    if sys.platform == "win32":
        raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))
    import fcntl

    how = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    try:
        fcntl.flock(file, how if wait else how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def write_holder(file: IO[str]) -> None:
    """Write to a lock's file who holds it: host, process and since when."""
    file.truncate(0)
    file.write(f"{platform.node()} {os.getpid()} {time.strftime('%Y-%m-%d %H:%M:%S')}\n")
    file.flush()


def read_holder(place: Path) -> str:
    """Return who holds a lock, in words."""
    try:
        host, pid, since = place.read_text().strip().split(" ", 2)
    except (OSError, ValueError):  # it has just been taken
        return "another process"
    return f"process {pid} on {host} since {since}"


def is_at(file: IO[Any], place: Path) -> bool:
    """Return whether an open file is the one that a path names by now."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), place.stat())
    except OSError:
        return False
