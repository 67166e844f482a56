"""The pixel cache: every image is decoded once, in parallel, to uint8.

Three places to keep the pixels, the same interface: in memory, in a memory-mapped file, or nowhere
(decoded again for every batch). What was decoded lies in the cache folder (`unida.data.cache`),
also for the next run that keeps its pixels in memory.
"""

import contextlib
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO, Protocol

import numpy as np
import torch
from torch import Tensor

from unida.config import CacheMode
from unida.data.cache import CacheEntry, find_entry, write_whole
from unida.data.decode import BadImageError, Pixels, decode_file
from unida.data.samples import Samples, Skipped
from unida.errors import UserError, shorten
from unida.utils.devices import send
from unida.utils.parallel import WORKERS, in_order

Progress = Callable[[int, int], None]
"""Called with (images done, images in all)."""

_BLOCK = 2**24  # bytes at a time


class PixelStore(Protocol):
    """Decoded images by number; `key` follows from the bytes in their files, where it is known."""

    key: str | None

    def __len__(self) -> int: ...

    def get(self, index: Tensor) -> Tensor:
        """The images at `index` (B,), uint8 of shape (B, 3, S, S)."""
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
        """In blocks: a copy of the whole in page-locked memory would double it."""
        there = torch.empty_like(self.array, device=device)
        step = max(1, _BLOCK // max(1, self.array[:1].nbytes))
        for i in range(0, len(self), step):
            there[i : i + step].copy_(send(self.array[i : i + step], device))
        return ArrayStore(there, self.key)


class MappedStore(ArrayStore):
    """Pixels in a memory-mapped file."""

    def __init__(self, file: Path, shape: tuple[int, ...], key: str) -> None:
        # Mode "c": torch wants a writable array; nothing written ever reaches the file.
        super().__init__(torch.from_numpy(np.memmap(file, np.uint8, "c", shape=shape)), key)
        self.file = file

    def in_memory(self) -> ArrayStore:
        """Read, not copied, lest the pages of the mapping count as memory of this process.

        By several threads: one alone waits for the system to hand out memory.
        """
        array = np.empty(self.array.shape, np.uint8)
        content = array.data.cast("B")

        def read(start: int) -> int:
            part = content[start : start + _BLOCK]
            with self.file.open("rb") as file:
                file.seek(start)
                return file.readinto(part)

        starts = range(0, len(content), _BLOCK)
        assert sum(in_order(read, starts)) == len(content)
        return ArrayStore(torch.from_numpy(array), self.key)


class StreamedStore:
    """Pixels decoded anew for every batch; for sets that fit nowhere."""

    def __init__(self, paths: tuple[Path, ...], size: int, key: str | None = None) -> None:
        self.paths, self.size, self.key = paths, size, key
        self.pool = ThreadPoolExecutor(WORKERS)

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
    bytes_there: Callable[[], int] = lambda: 0,
) -> CacheMode:
    """Resolves `auto`: memory if it fits the budget, else disk if it fits there, else stream.

    `bytes_there`, asked only if it matters, says how much of it the cache folder has already.
    """
    if mode != "auto":
        return mode
    if bytes_needed <= memory_gb * 2**30:
        return "memory"
    _make_folder(cache_dir)
    missing = bytes_needed - bytes_there()
    return "disk" if missing < 0.9 * shutil.disk_usage(cache_dir).free else "stream"


def cached_bytes(samples: Samples, size: int, cache_dir: Path) -> int:
    """How much the cache folder has of these images; files not seen before are hashed."""
    entry = find_entry(samples.paths, size, cache_dir)
    return len(samples) * 3 * size**2 if entry and entry.is_complete() else 0


def load_pixels(
    samples: Samples, size: int, mode: CacheMode, cache_dir: Path, progress: Progress
) -> tuple[Samples, PixelStore]:
    """Decodes all images, or finds them decoded; bad ones are left out and noted in the samples.

    Of what is kept in memory there is a file, if one can be had: whoever does not move the pixels
    to a GPU calls `in_memory` of the `MappedStore`.

    Raises:
        UserError: no image is left, or `mode` is disk and the cache folder cannot be used.
    """
    if mode == "disk":
        _make_folder(cache_dir)
    entry = find_entry(samples.paths, size, cache_dir)
    if mode == "stream":
        return _load_streamed(samples, size, entry, progress)
    if entry and (mode == "disk" or entry.is_complete() or entry.has_room()):
        try:
            return _load_mapped(samples, entry, progress)
        except OSError as error:
            if mode == "disk":
                raise UserError(
                    f"The pixel cache cannot be written in {cache_dir}: {error.strerror}. "
                    "Free some space, name another --cache-dir or use --cache stream."
                ) from None
    return _load_to_memory(samples, size, progress)


def _load_mapped(
    samples: Samples, entry: CacheEntry, progress: Progress
) -> tuple[Samples, PixelStore]:
    """The pixel file of the cache folder, made if it is not there."""
    bad = entry.read_bad()
    if bad is None or not entry.has_pixels(bad):
        bad = _write(samples, entry, progress)
    else:
        progress(len(samples), len(samples))
    return _without(samples, bad), MappedStore(entry.pixels, entry.shape(bad), entry.key)


def _load_to_memory(samples: Samples, size: int, progress: Progress) -> tuple[Samples, PixelStore]:
    """Where nothing can be kept for the next time."""
    array = np.empty((len(samples), 3, size, size), dtype=np.uint8)
    rows = iter(array)
    bad = _decode_all(samples, size, lambda pixels: np.copyto(next(rows), pixels), progress)
    kept = torch.from_numpy(array[: len(samples) - len(bad)])
    return _without(samples, bad), ArrayStore(kept)


def _load_streamed(
    samples: Samples, size: int, entry: CacheEntry | None, progress: Progress
) -> tuple[Samples, PixelStore]:
    """Only the bad images have to be known."""
    bad = entry.read_bad() if entry else None
    if bad is not None:
        progress(len(samples), len(samples))
    else:
        bad = _decode_all(samples, size, lambda pixels: None, progress)
        entry = entry if entry and entry.is_of(samples.paths) else None
        with contextlib.suppress(OSError):  # then they are looked for again
            if entry:
                entry.write_bad(bad)
    samples = _without(samples, bad)
    return samples, StreamedStore(samples.paths, size, entry.key if entry else None)


def _write(samples: Samples, entry: CacheEntry, progress: Progress) -> dict[int, str]:
    """Decodes all images to the pixel file; the reason for each bad one, by number."""
    bad: dict[int, str] = {}

    def write(file: BinaryIO) -> None:
        def take(pixels: Pixels) -> None:
            file.write(pixels.tobytes())

        bad.update(_decode_all(samples, entry.size, take, progress))
        if not entry.is_of(samples.paths):
            raise UserError(
                f"Images were changed while they were read, {samples.paths[0]} or others of its "
                "set: start again when nothing writes there."
            )
        entry.write_bad(bad)

    write_whole(entry.pixels, write)
    return bad


def _decode_all(
    samples: Samples, size: int, take: Callable[[Pixels], object], progress: Progress
) -> dict[int, str]:
    """Hands every good image to `take`, in order; the reason for each bad one, by number."""
    bad: dict[int, str] = {}
    for i, result in enumerate(in_order(lambda path: _try_decode(path, size), samples.paths)):
        if isinstance(result, Skipped):
            bad[i] = result.reason
        else:
            take(result)
        progress(i + 1, len(samples))
    if len(bad) == len(samples):
        reasons = shorten([f"{samples.paths[i]} ({reason})" for i, reason in bad.items()], 3)
        raise UserError(f"None of the {len(samples)} images can be read: {reasons}.")
    return bad


def _try_decode(path: Path, size: int) -> Pixels | Skipped:
    try:
        return decode_file(path, size)
    except BadImageError as error:
        return Skipped(path, str(error))


def _without(samples: Samples, bad: dict[int, str]) -> Samples:
    """The samples that are left, with the bad ones noted."""
    good = np.delete(np.arange(len(samples)), list(bad))
    skipped = [Skipped(samples.paths[i], reason) for i, reason in bad.items()]
    return samples.keep(good, skipped) if bad else samples


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"The pixel cache {folder} cannot be made: {error.strerror}. "
            "Name another --cache-dir or use --cache stream."
        ) from None
