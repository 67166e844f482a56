"""Small images and conditions for tests: good files, bad files, a user without rights, a full
disk."""

import csv
import io
import os
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import numpy as np
from PIL import Image


def noise(seed: int = 0, side: int = 12) -> Image.Image:
    """An RGB image in which every pixel differs from its neighbours."""
    values = np.random.default_rng(seed).integers(0, 256, (side, side, 3), dtype=np.uint8)
    return Image.fromarray(values)


def write_image(path: Path, seed: int = 0, side: int = 12) -> Path:
    """Writes a small image, in the format of its suffix, and the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    noise(seed, side).save(path)
    return path


def write_folder(folder: Path, n: int, first: int = 0) -> Path:
    """A folder of `n` different PNG files."""
    for i in range(first, first + n):
        write_image(folder / f"{i:03}.png", seed=i)
    return folder


def write_classes(root: Path, counts: dict[str, int]) -> Path:
    """Class folders with that many images each, all of them different."""
    first = 0
    for name, n in counts.items():
        write_folder(root / name, n, first)
        first += n
    return root


@cache
def two_hundred_megapixels() -> bytes:
    """A true PNG of 20,000 × 10,000 black pixels in a few kilobytes."""
    content = io.BytesIO()
    Image.new("1", (20_000, 10_000)).save(content, "PNG")
    return content.getvalue()


def write_half(path: Path, kind: str) -> None:
    """The first half of an image file."""
    whole = io.BytesIO()
    noise(side=32).save(whole, kind)
    path.write_bytes(whole.getvalue()[: len(whole.getvalue()) // 2])


BAD_FILES: dict[str, tuple[Callable[[Path], object], str]] = {
    "zero.png": (lambda path: path.write_bytes(b""), "empty file"),
    "half.jpg": (lambda path: write_half(path, "JPEG"), "broken: "),
    "half.png": (lambda path: write_half(path, "PNG"), "broken: "),
    "text.jpg": (lambda path: path.write_text("no picture at all\n"), "not an image"),
    "lost.png": (lambda path: path.symlink_to("nowhere"), "no such file"),
    "huge.png": (
        lambda path: path.write_bytes(two_hundred_megapixels()),
        "more than 150 megapixels",
    ),
}
"""By file name: how to write it, and how the reason for leaving it out begins."""


def write_bad_files(folder: Path) -> dict[Path, str]:
    """One bad file of every kind; for each, how the reason for leaving it out begins."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, (write, _) in BAD_FILES.items():
        write(folder / name)
    return {folder / name: reason for name, (_, reason) in BAD_FILES.items()}


def read_csv(path: Path) -> list[dict[str, str]]:
    """The rows of a CSV whose file names may be any bytes."""
    text = path.read_bytes().decode("utf-8", "surrogateescape")
    return list(csv.DictReader(io.StringIO(text, newline="")))


@contextmanager
def ordinary_user() -> Iterator[None]:
    """File permissions count inside: root becomes nobody for the time."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@contextmanager
def file_size_limit(n_bytes: int) -> Iterator[None]:
    """Writes beyond `n_bytes` of any file fail inside, as they do on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
