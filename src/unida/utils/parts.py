"""Parts: files under a temporary name, for as long as they are written.

A part is locked by the process that writes it. One that is not locked was left by a killed process,
and the next that writes the same file removes it.
"""

import os
import re
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from unida.utils.locks import is_at, take


@contextmanager
def new_part(path: Path) -> Iterator[tuple[Path, BinaryIO]]:
    """Open a new part beside a file; at the end it is removed, unless the block has renamed it."""
    _remove_abandoned(path)
    part, file = _open_locked(path)
    try:
        with file:
            yield part, file
    finally:
        part.unlink(missing_ok=True)


def _open_locked(path: Path) -> tuple[Path, BinaryIO]:
    # A new file: a link that somebody planted is not followed.
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    while True:
        part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
        file = open(os.open(part, flags, 0o666), "wb")  # noqa: SIM115 - returned
        with suppress(OSError):  # without locks, parts are not removed
            take(file, wait=True)
        if is_at(file, part):
            return part, file
        file.close()  # another process took it for abandoned before it was locked


def _remove_abandoned(path: Path) -> None:
    ours = re.compile(rf"\.{re.escape(path.name)}\.[0-9a-f]{{8}}\.part")
    with suppress(OSError):
        for part in [entry.path for entry in os.scandir(path.parent) if ours.fullmatch(entry.name)]:
            with suppress(OSError):
                flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
                with open(os.open(part, flags), "rb") as file:
                    if stat.S_ISREG(os.fstat(file.fileno()).st_mode) and take(file):
                        os.unlink(part)
