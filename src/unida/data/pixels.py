"""The pixel cache: every image is decoded once, in parallel, to uint8.

Three places to keep the pixels, the same interface: in memory, in a memory-mapped file named by
the content of the images, or nowhere (decoded again for every batch).
"""

import os
import shutil
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor

from unida.config import CacheMode
from unida.data.decode import BadImageError, Pixels, decode_file
from unida.data.samples import Samples, Skipped
from unida.devices import send
from unida.errors import UserError, shorten
from unida.types import IntArray

S = TypeVar("S")
T = TypeVar("T")

Progress = Callable[[int, int], None]
"""Called with (images done, images in all)."""

_FORMAT = 1  # of the memory-mapped file; part of its name
_WORKERS = min(32, (os.cpu_count() or 1) + 1)  # decoding and hashing release the interpreter lock


class PixelStore(Protocol):
    """Decoded images by number."""

    def __len__(self) -> int: ...

    def get(self, index: Tensor) -> Tensor:
        """The images at `index` (B,), uint8 of shape (B, 3, S, S)."""
        ...


class ArrayStore:
    """Pixels in one array: in memory, on the training device, or memory-mapped."""

    def __init__(self, array: Tensor) -> None:
        self.array = array

    def __len__(self) -> int:
        return len(self.array)

    def get(self, index: Tensor) -> Tensor:
        return self.array[send(index, self.array.device)]

    def to(self, device: torch.device) -> "ArrayStore":
        return ArrayStore(self.array.to(device))


class StreamedStore:
    """Pixels decoded anew for every batch; for sets that fit nowhere."""

    def __init__(self, paths: tuple[Path, ...], size: int) -> None:
        self.paths, self.size = paths, size
        self.pool = ThreadPoolExecutor(_WORKERS)

    def __len__(self) -> int:
        return len(self.paths)

    def get(self, index: Tensor) -> Tensor:
        files = (self.paths[i] for i in index.tolist())
        images = np.empty((len(index), 3, self.size, self.size), dtype=np.uint8)
        for i, result in enumerate(self.pool.map(lambda p: _try_decode(p, self.size), files)):
            if isinstance(result, Skipped):
                raise UserError(f"{result.path} has changed since the run began: {result.reason}.")
            images[i] = result
        return torch.from_numpy(images)


def choose_cache(
    mode: CacheMode, bytes_needed: int, memory_gb: float, cache_dir: Path
) -> CacheMode:
    """Resolves `auto`: memory if it fits the budget, else disk if it fits there, else stream."""
    if mode != "auto":
        return mode
    if bytes_needed <= memory_gb * 2**30:
        return "memory"
    _make_folder(cache_dir)
    return "disk" if bytes_needed < 0.9 * shutil.disk_usage(cache_dir).free else "stream"


def default_cache_dir() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "unida"


def load_pixels(
    samples: Samples, size: int, mode: CacheMode, cache_dir: Path, progress: Progress
) -> tuple[Samples, PixelStore]:
    """Decodes all images; bad ones are left out and noted in the samples returned.

    Raises:
        UserError: no image is left.
    """
    if mode == "disk":
        return _load_mapped(samples, size, cache_dir, progress)
    n = len(samples)
    array = np.empty((n if mode == "memory" else 0, 3, size, size), dtype=np.uint8)
    good: list[int] = []

    def take(i: int, pixels: Pixels) -> None:
        if mode == "memory":
            array[len(good)] = pixels
        good.append(i)

    samples = _decode_all(samples, size, take, good, progress)
    if mode == "memory":
        return samples, ArrayStore(torch.from_numpy(array[: len(good)]))
    return samples, StreamedStore(samples.paths, size)


def _decode_all(
    samples: Samples,
    size: int,
    take: Callable[[int, Pixels], None],
    good: list[int],
    progress: Progress,
) -> Samples:
    """Hands every good image to `take` in order, which notes its number in `good`."""
    skipped = []
    for i, result in enumerate(in_order(lambda path: _try_decode(path, size), samples.paths)):
        if isinstance(result, Skipped):
            skipped.append(result)
        else:
            take(i, result)
        progress(i + 1, len(samples))
    if not good:
        reasons = shorten([f"{s.path} ({s.reason})" for s in skipped], 3)
        raise UserError(f"None of the {len(samples)} images can be read: {reasons}.")
    return samples.keep(np.array(good, dtype=np.int64), skipped)


def _try_decode(path: Path, size: int) -> Pixels | Skipped:
    try:
        return decode_file(path, size)
    except BadImageError as error:
        return Skipped(path, str(error))


def in_order(work: Callable[[S], T], items: Iterable[S]) -> Iterator[T]:
    """Results of `work` in order, done in parallel, a bounded number under way at once."""
    with ThreadPoolExecutor(_WORKERS) as pool:
        todo = iter(items)
        under_way = deque(pool.submit(work, item) for item in islice(todo, 8 * _WORKERS))
        while under_way:
            result = under_way.popleft().result()
            under_way.extend(pool.submit(work, item) for item in islice(todo, 1))
            yield result


def _load_mapped(
    samples: Samples, size: int, cache_dir: Path, progress: Progress
) -> tuple[Samples, PixelStore]:
    """A memory-mapped file, made on the first call and found by content on the next."""
    _make_folder(cache_dir)
    stem = cache_dir / _content_key(samples, size)
    pixels_file, kept_file = stem.with_suffix(".u8"), stem.with_suffix(".kept.npy")
    kept = _read_kept(pixels_file, kept_file, size)
    if kept is not None:
        bad = sorted(set(range(len(samples))) - set(kept.tolist()))
        # The files are the same bytes as before, so a bad one fails again, with its reason.
        skipped = [_try_decode(samples.paths[i], size) for i in bad]
        samples = samples.keep(kept, [s for s in skipped if isinstance(s, Skipped)])
        progress(len(samples), len(samples))
    else:
        samples = _write_mapped(samples, size, pixels_file, kept_file, progress)
    shape = (len(samples), 3, size, size)
    # Mode "c": torch wants a writable array; nothing written ever reaches the file.
    return samples, ArrayStore(torch.from_numpy(np.memmap(pixels_file, np.uint8, "c", shape=shape)))


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"The pixel cache {folder} cannot be made: {error.strerror}. "
            "Name another --cache-dir or use --cache stream."
        ) from None


def _read_kept(pixels_file: Path, kept_file: Path, size: int) -> IntArray | None:
    """Which images the cache holds; None if it is not there or not whole."""
    try:
        kept: IntArray = np.load(kept_file)
        whole = pixels_file.stat().st_size == len(kept) * 3 * size * size
    except (OSError, ValueError, EOFError):
        return None
    return kept if whole else None


def _write_mapped(
    samples: Samples, size: int, pixels_file: Path, kept_file: Path, progress: Progress
) -> Samples:
    good: list[int] = []
    try:
        with tempfile.TemporaryDirectory(dir=pixels_file.parent) as folder:
            part, kept_part = Path(folder, "pixels"), Path(folder, "kept.npy")
            with part.open("wb") as file:

                def take(i: int, pixels: Pixels) -> None:
                    file.write(pixels.tobytes())
                    good.append(i)

                samples = _decode_all(samples, size, take, good, progress)
            np.save(kept_part, np.array(good, dtype=np.int64))
            part.replace(pixels_file)
            kept_part.replace(kept_file)
    except OSError as error:
        reason = error.strerror or error
        raise UserError(
            f"The pixel cache cannot be written in {pixels_file.parent}: {reason}. "
            "Free some space, name another --cache-dir or use --cache stream."
        ) from None
    return samples


def _content_key(samples: Samples, size: int) -> str:
    """A name for these images, in this order, at this size: the same bytes, the same name."""

    def digest(path: Path) -> bytes:
        try:
            return blake2b(path.read_bytes(), digest_size=16).digest()
        except OSError:
            return b"unreadable"

    key = blake2b(f"{_FORMAT} {size} {len(samples)}".encode(), digest_size=16)
    for one in in_order(digest, samples.paths):
        key.update(one)
    return key.hexdigest()
