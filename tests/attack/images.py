"""Image files that are broken, mislabelled, huge or no files."""

import io
import os
import random
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image

from tests.attack.outcome import Outcome
from tests.attack.place import Case, Place, flip_bits
from unida.data.samples import IMAGE_SUFFIXES
from unida.training.predictions import read_predictions

KINDS = ("PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP", "PPM", "TGA", "JPEG2000")
TOLERANCE = 1e-4
"""Of probabilities: sums in another order differ in their last bits."""
MODES = ("RGB", "L", "1", "P", "RGBA", "LA", "CMYK", "I;16", "I", "F", "YCbCr")


def encoded(rng: random.Random, kind: str | None = None) -> bytes:
    """A small image of any kind and mode, sometimes of several frames."""
    kind = kind or rng.choice(KINDS)
    values = np.random.default_rng(rng.randrange(2**32))
    size = (rng.randrange(1, 24), rng.randrange(1, 24))
    image = Image.fromarray(values.integers(0, 256, (*size, 3), dtype=np.uint8))
    mode = rng.choice(MODES)
    content = io.BytesIO()
    frames = {"save_all": True, "append_images": [image]} if rng.random() < 0.2 else {}
    for converted, more in ((mode, frames), ("RGB", {})):
        try:
            _converted(image, converted).save(content, kind, **more)
            break
        except (OSError, ValueError, KeyError):  # a kind does not have every mode
            content = io.BytesIO()
    return content.getvalue()


def _converted(image: Image.Image, mode: str) -> Image.Image:
    if mode == "I;16":
        return Image.fromarray(np.asarray(image.convert("L")).astype(np.uint16) * 257)
    if mode == "F":
        values = np.asarray(image.convert("L")).astype(np.float32)
        values.flat[0] = np.nan
        return Image.fromarray(values)
    return image.convert(mode)


def huge_png(side: int) -> bytes:
    """The header of a PNG of that side, and hardly a pixel."""

    def chunk(name: bytes, content: bytes) -> bytes:
        checksum = zlib.crc32(name + content)
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", checksum)

    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    pixels = zlib.compress(bytes(100))
    parts = (chunk(b"IHDR", header), chunk(b"IDAT", pixels), chunk(b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def truncated(path: Path, rng: random.Random) -> str:
    content = encoded(rng)
    path.write_bytes(content[: rng.randrange(len(content))])
    return "truncated"


def flipped(path: Path, rng: random.Random) -> str:
    path.write_bytes(flip_bits(encoded(rng), rng))
    return "bits flipped"


def flipped_header(path: Path, rng: random.Random) -> str:
    path.write_bytes(flip_bits(encoded(rng), rng, last=48))
    return "bits of the header flipped"


def odd(path: Path, rng: random.Random) -> str:
    path.write_bytes(encoded(rng))
    return "of any kind and mode"


def joined(path: Path, rng: random.Random) -> str:
    path.write_bytes(encoded(rng)[: rng.randrange(20, 200)] + encoded(rng))
    return "the beginning of one before another"


def huge(path: Path, rng: random.Random) -> str:
    path.write_bytes(huge_png(rng.choice((5_000, 12_200, 40_000, 2**31 - 1, 2**32 - 1))))
    return "huge"


def postscript(path: Path, rng: random.Random) -> str:
    text = "%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n(made) (w) file closefile\nshowpage\n"
    path.write_text(text)
    return "PostScript"


def text(path: Path, rng: random.Random) -> str:
    path.write_text(rng.choice(("", "\n", "<svg xmlns='http://www.w3.org/2000/svg'/>", "GIF89a")))
    return "text"


def pipe(path: Path, rng: random.Random) -> str:
    os.mkfifo(path)
    return "a pipe"


def link(path: Path, rng: random.Random) -> str:
    to = rng.choice(("/dev/zero", "/dev/stdin", "/proc/self/mem", "nowhere", path.name, "."))
    path.symlink_to(to)
    return f"a link to {to}"


def folder(path: Path, rng: random.Random) -> str:
    path.mkdir()
    return "a folder"


DAMAGES: list[Callable[[Path, random.Random], str]] = [
    *(truncated, flipped, flipped, flipped_header, flipped_header, odd, joined),
    *(huge, postscript, text, pipe, link, folder),
]


def image(rng: random.Random, place: Place, folder: Path) -> Case:
    """Three good images and one or two bad ones, to be labelled."""
    done = []
    images = folder / "images"
    images.mkdir()
    for good in place.images.iterdir():
        os.link(good, images / good.name)
    for number in range(rng.choice((1, 2))):
        suffix = rng.choice(sorted(IMAGE_SUFFIXES))
        what = rng.choice(DAMAGES)(images / f"bad{number}{suffix}", rng)
        done.append(f"{suffix}: {what}")
    to = folder / "labels.csv"
    command = ["predict", str(place.finished), str(images), "--to", str(to)]
    return Case("; ".join(done), command, lambda outcome: _unlike(place, images, to, outcome))


def _unlike(place: Place, images: Path, file: Path, outcome: Outcome) -> list[str]:
    """Images that have neither a label nor a reason, or another label beside bad ones."""
    table, found = read_predictions(file), list[str]()
    rows = zip(table.paths, table.labels, table.confidence, strict=True)
    labels = {Path(path).name: (label, confidence) for path, label, confidence in rows}
    for path in images.iterdir():
        good = place.labelled.get(path.name)
        if good is None:
            if not path.is_dir() and path.name not in labels and str(path) not in outcome.err:
                found.append(f"{path.name} is neither labelled nor left out")
        elif path.name not in labels:
            found.append(f"{path.name} is not labelled")
        elif labels[path.name][0] != good.label or (
            abs(labels[path.name][1] - good.confidence) > TOLERANCE
        ):
            found.append(f"{path.name} is {labels[path.name]}, alone {good}")
    return found
