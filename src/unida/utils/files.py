"""Files that may come from anyone: a pipe would be waited for, and a device may never end."""

import errno
import os
import stat
from io import BufferedReader
from pathlib import Path

MAX_BYTES = 2**31


class NotRegularError(OSError):
    """A pipe, socket, device or folder where a file is expected."""

    def __init__(self, path: str | Path) -> None:
        super().__init__(errno.EINVAL, "Not a regular file", str(path))


def open_regular(path: str | Path) -> BufferedReader:
    """Open a regular file of up to `MAX_BYTES` to read; links are followed.

    Raises:
        NotRegularError: it is something else. It is not opened, as some devices act on that.
        OSError: it cannot be opened, or is larger.
    """
    _check(os.stat(path), path)
    # It may be another one by now; O_NONBLOCK does not wait for the writer of a pipe.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    file = open(descriptor, "rb")  # noqa: SIM115 - returned
    try:
        _check(os.fstat(file.fileno()), path)
    except OSError:
        file.close()
        raise
    return file


def read_file(path: str | Path, pipe: bool = False) -> bytes:
    """Read a regular file of up to `MAX_BYTES`.

    Args:
        path: of the file; links are followed.
        pipe: whether it may be a pipe, such as the `<(…)` of a shell.
    """
    if pipe and stat.S_ISFIFO(os.stat(path).st_mode):
        with open(path, "rb") as file:
            content = file.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), str(path))
        return content
    with open_regular(path) as file:
        return file.read()


def _check(found: os.stat_result, path: str | Path) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise NotRegularError(path)
    if found.st_size > MAX_BYTES:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), str(path))
