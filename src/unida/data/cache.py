"""The cache folder: digests, bad images, pixels and embeddings of images read before.

    LIST.npy       of every file in a list: size, times and digest
    CONTENT.json   which images of a content cannot be used, and why
    CONTENT.u8     the pixels of all others
    KEY.f32        embeddings (`unida.data.embeddings`)
    KEY.rows       which images they are of

LIST is a hash of paths. A file whose size and times are still those in LIST.npy is not hashed
again. CONTENT is a hash of the digests, so the same bytes are found again under any name and date.
What is missing or damaged is made again: pixels and embeddings end with a checksum. What no run has
used for a month, and parts of files that a killed process was writing, are removed when something
is added. The whole folder may be deleted at any time.
"""

import contextlib
import json
import os
import re
import secrets
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import blake2b, file_digest
from pathlib import Path
from typing import BinaryIO

import numpy as np

from unida.types import IntArray
from unida.utils.files import open_regular
from unida.utils.locks import is_held, take
from unida.utils.logs import logger
from unida.utils.parallel import in_order

_FORMAT = 1  # of the pixels; part of a content's name
_STAT, _WIDTH = 3, 5  # columns of LIST.npy: size, mtime, ctime; then 16 bytes of digest
UNREADABLE = bytes(16)
_CLOCK_TICK = 2 * 10**9  # ns: a file system's clock may be this coarse
_MONTH = 30 * 24 * 3600
_CHECKSUM = 16  # bytes
_BLOCK, _MAX_BLOCKS = 2**20, 256  # of a file, that its checksum is of
_CACHE_FILE = re.compile(r"[0-9a-f]{32}(-[0-9]+)?\.(npy|json|u8|f32|rows)(\.[0-9a-f]+\.part)?")


def default_cache_dir() -> Path:
    """Return `unida` below the user's cache folder."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "unida"


@dataclass(frozen=True)
class CacheEntry:
    """The files of one content.

    Attributes:
        folder: the cache folder.
        key: the content's name.
        n: images, bad ones included.
        size: side of an image.
    """

    folder: Path
    key: str
    n: int
    size: int

    @property
    def pixels(self) -> Path:
        return self.folder / f"{self.key}.u8"

    @property
    def record(self) -> Path:
        return self.folder / f"{self.key}.json"

    def shape(self, bad: dict[int, str]) -> tuple[int, int, int, int]:
        """Return the shape of the array in the pixel file."""
        return self.n - len(bad), 3, self.size, self.size

    def read_bad(self) -> dict[int, str] | None:
        """Read the reason of each bad image, by index; None if it is not known."""
        try:
            touch(self.record)
            stored = json.loads(self.record.read_bytes())["bad"]
            bad = {int(i): str(reason) for i, reason in stored.items()}
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            return None
        return bad if all(0 <= i < self.n for i in bad) else None

    def write_bad(self, bad: dict[int, str]) -> None:
        """Write the reason of each bad image."""
        content = json.dumps({"bad": bad}).encode()
        write_whole(self.record, lambda file: file.write(content))

    def has_pixels(self, bad: dict[int, str]) -> bool:
        """Return whether the pixel file is complete."""
        return is_whole(self.pixels, int(np.prod(self.shape(bad))))

    def is_complete(self) -> bool:
        """Return whether bad images are known and the pixels of all others cached."""
        bad = self.read_bad()
        return bad is not None and self.has_pixels(bad)

    def has_room(self) -> bool:
        """Return whether the pixels would take a tenth of the free disk at the most."""
        return 10 * self.n * 3 * self.size**2 <= shutil.disk_usage(self.folder).free

    def is_of(self, paths: tuple[Path, ...]) -> bool:
        """Return whether these files still have the content."""
        return content_key(paths, self.size, self.folder) == self.key


def find_entry(paths: tuple[Path, ...], size: int, folder: Path) -> CacheEntry | None:
    """Find the entry of the content of these files; None where no folder can be made."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    return CacheEntry(folder, content_key(paths, size, folder), len(paths), size)


def content_key(paths: tuple[Path, ...], size: int, folder: Path) -> str:
    """Hash the bytes of these images, in this order, with the size they are decoded to."""
    digests = file_digests(paths, size, folder)
    return _digest(f"{_FORMAT} {size} {len(paths)}".encode() + digests).hex()


def file_digests(paths: tuple[Path, ...], size: int, folder: Path) -> bytes:
    """Hash the bytes of each of these images; read from the list of that size where it has them."""
    names = [os.path.abspath(path) for path in paths]
    joined = "\0".join([str(size), *names]).encode("utf-8", "surrogatepass")
    listed = folder / f"{_digest(joined).hex()}.npy"
    known, now = _read_list(listed, len(names)), time.time_ns()
    stats = _stats(names)
    digests = known[:, _STAT:].copy()
    changed = np.flatnonzero((known[:, :_STAT] != stats).any(1) | (stats[:, 0] < 0))
    for i, one in zip(changed, in_order(digest_file, [names[i] for i in changed]), strict=True):
        digests[i] = np.frombuffer(one, np.int64)
    # Hashed again next time: what could not be read, and what is so new that one more change might
    # leave the same times.
    stats[~digests.any(1) | (stats[:, 1:].max(1) > now - _CLOCK_TICK)] = -1
    found = np.hstack([stats, digests])
    if not np.array_equal(found, known):
        with contextlib.suppress(OSError):  # then it is hashed again
            write_whole(listed, lambda file: np.save(file, found))
    return digests.tobytes()


def _read_list(file: Path, n: int) -> IntArray:
    """Read the columns of a list; those of a missing or damaged one match no file."""
    try:
        touch(file)
        known: IntArray = np.load(file)
    except (OSError, ValueError, EOFError):
        known = np.empty(0, np.int64)
    good = known.shape == (n, _WIDTH) and known.dtype == np.int64
    return known if good else np.full((n, _WIDTH), -1, np.int64)


def _stats(names: list[str]) -> IntArray:
    """Read size and times (ns) of every file, (N, 3); −1 where that is not possible."""

    def read(some: list[str]) -> list[tuple[int, int, int]]:
        return [_stat(name) for name in some]

    blocks = (names[i : i + 256] for i in range(0, len(names), 256))
    rows = [row for block in in_order(read, blocks) for row in block]
    return np.array(rows, dtype=np.int64).reshape(-1, _STAT)


def _stat(name: str) -> tuple[int, int, int]:
    """Read size and times; unlike the content's, the inode's time of change cannot be set back."""
    try:
        found = os.stat(name)
    except (OSError, ValueError):
        return -1, -1, -1
    return found.st_size, found.st_mtime_ns, found.st_ctime_ns


def digest_file(name: str) -> bytes:
    """Hash the bytes of a file; `UNREADABLE`, zeros, if it cannot be read."""
    try:
        with open_regular(name) as file:
            return file_digest(file, lambda: blake2b(digest_size=16)).digest()
    except (OSError, ValueError):
        return UNREADABLE


def _digest(content: bytes) -> bytes:
    return blake2b(content, digest_size=16).digest()


# Files of the folder.


def write_whole(file: Path, write: Callable[[BinaryIO], object]) -> None:
    """Write a file under another name, then rename it; remove unused files before.

    The part is locked while it is written: one that is not locked was left by a killed process.
    """
    _remove_unused(file.parent)
    part = file.with_name(f"{file.name}.{secrets.token_hex(4)}.part")
    try:
        with part.open("x+b") as out:
            with contextlib.suppress(OSError):  # without locks, a part left is removed in a month
                take(out, wait=True)
            write(out)
            out.flush()
            part.replace(file)
    finally:
        part.unlink(missing_ok=True)


def write_with_checksum(file: Path, write: Callable[[BinaryIO], object]) -> None:
    """Do what `write_whole` does, and append a checksum for `is_whole`."""

    def write_both(out: BinaryIO) -> None:
        write(out)
        out.flush()
        out.write(_checksum(out.fileno(), out.tell()))

    write_whole(file, write_both)


def is_whole(file: Path, n_bytes: int) -> bool:
    """Return whether a file is there as it was written, and mark it as used.

    A damaged one is removed. Files of earlier versions have no checksum; their size is compared.
    """
    try:
        with file.open("rb") as opened:
            stored = os.pread(opened.fileno(), _CHECKSUM + 1, n_bytes)
            size = os.fstat(opened.fileno()).st_size
            whole = size == n_bytes or stored == _checksum(opened.fileno(), n_bytes)
    except OSError:
        return False
    if whole:
        touch(file)
    else:
        logger.warning("%s of the cache is damaged: it is made anew.", file)
        with contextlib.suppress(OSError):
            file.unlink()
    return whole


def _checksum(descriptor: int, n_bytes: int) -> bytes:
    """Hash the first bytes of a file; of a large one, blocks at equal distances."""
    count = min(-(-n_bytes // _BLOCK), _MAX_BLOCKS)
    last = max(0, n_bytes - _BLOCK)
    starts = [i * last // max(1, count - 1) for i in range(count)]

    def read(start: int) -> bytes:
        return _digest(os.pread(descriptor, min(_BLOCK, n_bytes - start), start))

    return _digest(b"".join(in_order(read, starts)))


def touch(file: Path) -> None:
    """Mark a file as used, where that is allowed."""
    with contextlib.suppress(OSError):
        os.utime(file)


def _remove_unused(folder: Path) -> None:
    before = time.time() - _MONTH
    with contextlib.suppress(OSError):
        for file in _cache_files(folder):
            with contextlib.suppress(OSError):
                if file.stat().st_mtime < before or _is_abandoned(file):
                    file.unlink()


def _is_abandoned(file: Path) -> bool:
    """Whether it is a part that no process is writing; an empty one may not be locked yet."""
    return file.suffix == ".part" and file.stat().st_size > 0 and not is_held(file)


def _cache_files(folder: Path) -> Iterator[Path]:
    return (file for file in folder.iterdir() if _CACHE_FILE.fullmatch(file.name))
