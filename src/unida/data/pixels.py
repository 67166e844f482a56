"""Decoded pixels: every image is decoded once, in parallel, to uint8.

They are kept in memory, in a memory-mapped file of the cache folder (`unida.data.cache`), or
nowhere (decoded again for every batch), behind the same interface.
"""

import contextlib
import math
import mmap
import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO, Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from unida.config import CacheMode
from unida.data.cache import CacheEntry, find_entry, write_with_checksum
from unida.data.decode import BadImageError, Pixels, decode_file
from unida.data.samples import Samples, Skipped
from unida.errors import UserError, shorten
from unida.utils.devices import send
from unida.utils.parallel import WORKERS, in_order
from unida.utils.progress import Update

T = TypeVar("T")


_BLOCK = 2**24  # bytes at a time


class PixelStore(Protocol):
    """Decoded images by index; `key` identifies the bytes of their files, None if unknown."""

    key: str | None

    def __len__(self) -> int: ...

    def get(self, index: Tensor) -> Tensor:
        """Return the images at `index` (B,), uint8 of shape (B, 3, S, S)."""
        ...


class ArrayStore:
    """Pixels in one array: in memory, on the training device, or memory-mapped."""

    def __init__(self, array: Tensor, key: str | None = None) -> None:
        self.array, self.key = array, key

    def __len__(self) -> int:
        return len(self.array)

    def get(self, index: Tensor) -> Tensor:
        if self.array.device.type == "cpu":
            # By numpy: torch would start a second set of threads in the one that fetches ahead,
            # and with more threads than cores those that train go to sleep at every turn.
            return torch.from_numpy(self.array.numpy()[index.numpy()])
        return self.array[send(index, self.array.device)]

    def to(self, device: torch.device) -> "ArrayStore":
        """Copy the pixels to a device, in blocks: page-locked memory for all would double them."""
        copy = torch.empty_like(self.array, device=device)
        step = max(1, _BLOCK // max(1, self.array[:1].nbytes))
        for i in range(0, len(self), step):
            copy[i : i + step].copy_(send(self.array[i : i + step], device))
        return ArrayStore(copy, self.key)


class MappedStore(ArrayStore):
    """Pixels or embeddings in a memory-mapped file of the cache folder.

    The file's length is checked before it is read: what is missing of it would end the process.
    """

    def __init__(
        self,
        file: Path,
        shape: tuple[int, ...],
        key: str | None = None,
        dtype: npt.DTypeLike = np.uint8,
    ) -> None:
        self.file, count = file, math.prod(shape)
        with file.open("rb") as opened:
            # ACCESS_COPY: torch requires a writable array; nothing written ever reaches the file.
            n_bytes = count * np.dtype(dtype).itemsize
            self._map = mmap.mmap(opened.fileno(), n_bytes, access=mmap.ACCESS_COPY)
        array = np.frombuffer(self._map, dtype, count).reshape(shape)
        super().__init__(torch.from_numpy(array), key)

    def get(self, index: Tensor) -> Tensor:
        self._check()
        return super().get(index)

    def to(self, device: torch.device) -> ArrayStore:
        self._check()
        return super().to(device)

    def _check(self) -> None:
        try:
            whole = self._map.size() >= len(self._map)  # of the file, and of what is mapped
        except OSError:  # a network file system has lost it
            whole = False
        if not whole:
            raise UserError(
                f"{self.file} was cut off while it was in use: the next run makes it anew, and an "
                "unfinished one goes on with --resume."
            )


class StreamedStore(Generic[T]):
    """Pixels decoded again for every batch, for sets that fit nowhere.

    Args:
        samples: names the images.
        items: what is decoded, one an image: their paths, or openers.
        decode: item → pixels.
        size: side of an image.
        key: of the content, if known.
    """

    def __init__(
        self,
        samples: Samples,
        items: Sequence[T],
        decode: Callable[[T], Pixels],
        size: int,
        key: str | None = None,
    ) -> None:
        self.samples, self.items, self.decode = samples, items, decode
        self.size, self.key = size, key
        self.pool = ThreadPoolExecutor(WORKERS)

    def __len__(self) -> int:
        return len(self.items)

    def get(self, index: Tensor) -> Tensor:
        images = np.empty((len(index), 3, self.size, self.size), dtype=np.uint8)
        for i, pixels in enumerate(self.pool.map(self._decode, index.tolist())):
            images[i] = pixels
        return torch.from_numpy(images)

    def _decode(self, i: int) -> Pixels:
        try:
            return self.decode(self.items[i])
        except BadImageError as error:
            path = self.samples.paths[i]
            raise UserError(f"{path} has changed since the run began: {error}.") from None


class Part:
    """Some images of a store, in the order of `index`."""

    key: str | None = None

    def __init__(self, store: PixelStore, index: Tensor) -> None:
        self.store, self.index = store, index

    def __len__(self) -> int:
        return len(self.index)

    def get(self, index: Tensor) -> Tensor:
        return self.store.get(self.index[index.cpu()])


def choose_cache(
    mode: CacheMode,
    bytes_needed: int,
    memory_gb: float,
    cache_dir: Path,
    bytes_cached: Callable[[], int] = lambda: 0,
) -> CacheMode:
    """Resolve `auto`: memory if the pixels fit its budget, else disk if they fit, else stream.

    Args:
        mode: of the config.
        bytes_needed: by the pixels of all images.
        memory_gb: the budget.
        cache_dir: the cache folder.
        bytes_cached: how much of them is in the cache folder already; called only where needed.
    """
    if mode != "auto":
        return mode
    if bytes_needed <= memory_gb * 2**30:
        return "memory"
    _make_folder(cache_dir)
    missing = bytes_needed - bytes_cached()
    return "disk" if missing < 0.9 * shutil.disk_usage(cache_dir).free else "stream"


def cached_bytes(samples: Samples, size: int, cache_dir: Path) -> int:
    """Measure how much of these images the cache folder has; new files are hashed."""
    entry = find_entry(samples.paths, size, cache_dir)
    return len(samples) * 3 * size**2 if entry and entry.is_complete() else 0


def load_pixels(
    samples: Samples, size: int, mode: CacheMode, cache_dir: Path, progress: Update
) -> tuple[Samples, PixelStore]:
    """Decode image files, or find them decoded; bad ones are left out and noted in the samples.

    Raises:
        UserError: no image is left, or `mode` is disk and the cache folder cannot be used.
    """
    if mode == "disk":
        _make_folder(cache_dir)
    entry = find_entry(samples.paths, size, cache_dir)
    if mode == "stream":
        return _load_streamed(samples, size, entry, progress)
    if mode == "disk" and entry:
        try:
            return _load_mapped(samples, entry, progress)
        except OSError as error:
            raise UserError(
                f"The pixel cache cannot be written in {cache_dir}: {error.strerror}. "
                "Free some space, name another --cache-dir or use --cache stream."
            ) from None
    return _load_to_memory(samples, size, entry, progress)


def decode_to_memory(
    samples: Samples,
    items: Sequence[T],
    decode: Callable[[T], Pixels],
    size: int,
    progress: Update,
) -> tuple[Tensor, dict[int, str]]:
    """Decode images into one array; the second result has the reason of each bad one, by index."""
    array = np.empty((len(items), 3, size, size), dtype=np.uint8)
    rows = iter(array)
    bad = decode_all(samples, items, decode, lambda pixels: np.copyto(next(rows), pixels), progress)
    return torch.from_numpy(array[: len(items) - len(bad)]), bad


def decode_all(
    samples: Samples,
    items: Sequence[T],
    decode: Callable[[T], Pixels],
    take: Callable[[Pixels], object],
    progress: Update,
) -> dict[int, str]:
    """Pass every good image to `take`, in order; return the reason of each bad one, by index."""
    bad: dict[int, str] = {}

    def attempt(item: T) -> Pixels | BadImageError:
        try:
            return decode(item)
        except BadImageError as error:
            return error

    for i, result in enumerate(in_order(attempt, items)):
        if isinstance(result, BadImageError):
            bad[i] = str(result)
        else:
            take(result)
        progress(i + 1, len(items))
    if len(bad) == len(items):
        reasons = shorten([f"{samples.paths[i]} ({reason})" for i, reason in bad.items()], 3)
        raise UserError(f"None of the {len(items)} images can be read: {reasons or 'no image'}.")
    return bad


def without(samples: Samples, bad: dict[int, str]) -> Samples:
    """Leave the bad samples out and note them as skipped."""
    good = np.delete(np.arange(len(samples)), list(bad))
    skipped = [Skipped(samples.paths[i], reason) for i, reason in bad.items()]
    return samples.keep(good, skipped) if bad else samples


def _load_mapped(
    samples: Samples, entry: CacheEntry, progress: Update
) -> tuple[Samples, PixelStore]:
    """Map the pixel file of the cache folder; decode to it first where it is not complete."""
    bad = _find_cached(samples, entry, progress)
    if bad is None:
        bad = _decode_to_file(samples, entry, progress)
    return without(samples, bad), MappedStore(entry.pixels, entry.shape(bad), entry.key)


def _load_to_memory(
    samples: Samples, size: int, entry: CacheEntry | None, progress: Update
) -> tuple[Samples, PixelStore]:
    """Read the pixel file of the cache folder, or decode straight into memory.

    What was decoded is also stored for the next run where the disk has ample room; this run does
    not use the file.
    """
    bad = _find_cached(samples, entry, progress) if entry else None
    if entry and bad is not None:
        with contextlib.suppress(OSError):  # removed meanwhile, or no longer to be read
            array = _read_file(entry.pixels, entry.shape(bad))
            return without(samples, bad), ArrayStore(torch.from_numpy(array), entry.key)
    pixels, bad = decode_to_memory(samples, samples.paths, _decoder(size), size, progress)
    entry = entry if entry and entry.is_of(samples.paths) else None
    if entry and entry.has_room():
        with contextlib.suppress(OSError):  # then the next run decodes again
            entry.write_bad(bad)
            write_with_checksum(
                entry.pixels, lambda file: file.write(pixels.numpy().data.cast("B"))
            )
    return without(samples, bad), ArrayStore(pixels, entry.key if entry else None)


def _load_streamed(
    samples: Samples, size: int, entry: CacheEntry | None, progress: Update
) -> tuple[Samples, PixelStore]:
    """Find out which images are bad; decode the others when they are needed."""
    decode = _decoder(size)
    bad = entry.read_bad() if entry else None
    if bad is not None:
        progress(len(samples), len(samples))
    else:
        bad = decode_all(samples, samples.paths, decode, lambda pixels: None, progress)
        entry = entry if entry and entry.is_of(samples.paths) else None
        with contextlib.suppress(OSError):  # then the next run decodes them again
            if entry:
                entry.write_bad(bad)
    samples = without(samples, bad)
    key = entry.key if entry else None
    return samples, StreamedStore(samples, samples.paths, decode, size, key)


def _find_cached(samples: Samples, entry: CacheEntry, progress: Update) -> dict[int, str] | None:
    """Return the reasons of bad images if the pixels of all others are cached, else None."""
    bad = entry.read_bad()
    if bad is None or not entry.has_pixels(bad):
        return None
    progress(len(samples), len(samples))
    return bad


def _decode_to_file(samples: Samples, entry: CacheEntry, progress: Update) -> dict[int, str]:
    """Decode all images to the pixel file; return the reason of each bad one, by index."""
    bad: dict[int, str] = {}

    def write(file: BinaryIO) -> None:
        bad.update(
            decode_all(
                samples,
                samples.paths,
                _decoder(entry.size),
                lambda pixels: file.write(pixels.tobytes()),
                progress,
            )
        )
        if not entry.is_of(samples.paths):
            raise UserError(
                f"Images were changed while they were read, {samples.paths[0]} or others of its "
                "set: start again when nothing writes there."
            )
        entry.write_bad(bad)

    write_with_checksum(entry.pixels, write)
    return bad


def _read_file(file: Path, shape: tuple[int, ...]) -> Pixels:
    """Read a pixel file by several threads: one alone waits for the system to provide memory."""
    array = np.empty(shape, np.uint8)
    content = array.data.cast("B")

    def read(start: int) -> int:
        with file.open("rb") as source:
            source.seek(start)
            return source.readinto(content[start : start + _BLOCK])

    if sum(in_order(read, range(0, len(content), _BLOCK))) != len(content):
        raise OSError(f"{file} has become shorter")
    return array


def _decoder(size: int) -> Callable[[Path], Pixels]:
    return lambda path: decode_file(path, size)


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"The pixel cache {folder} cannot be made: {error.strerror}. "
            "Name another --cache-dir or use --cache stream."
        ) from None
