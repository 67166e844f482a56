"""Decoding: an image file → a square RGB array of uint8."""

import os
import threading
import warnings
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import ExifTags, Image, ImageOps, UnidentifiedImageError

from unida.utils.files import NotRegularError, open_regular

Pixels = npt.NDArray[np.uint8]

FORMATS = (
    *("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF", "PPM", "AVIF", "JPEG2000", "TGA"),
    *("HEIF", "JXL"),  # of plugins
)
"""What is read, whatever the suffix. Pillow reads more; for EPS it starts Ghostscript."""

MAX_PIXELS = 150_000_000
"""A larger image is left out: decoding it would take too much memory."""
LARGE = 2**24
"""An image of more pixels is converted in strips, and reduced before it is resized."""
PIXELS_AT_ONCE = 2**26
"""Of the images that all threads decode at a time; a larger one is decoded alone."""
_STRIP = 2**20  # pixels

# Our own limit is checked before a pixel is decoded.
warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning)


class BadImageError(Exception):
    """An image that cannot be used; the text is the reason."""


def decode_file(path: Path, size: int) -> Pixels:
    """Decode an image file to (3, size, size).

    Raises:
        BadImageError: the file is missing, unreadable, no image, broken or too large.
    """
    try:
        with open_image(path) as image:
            return to_square(image, size)
    except BadImageError:
        raise
    except NotRegularError:
        raise BadImageError("not a regular file") from None
    except Image.DecompressionBombError:
        raise BadImageError(f"more than {MAX_PIXELS // 10**6} megapixels") from None
    except UnidentifiedImageError:
        raise BadImageError("not an image, or of a kind that is not read") from None
    except FileNotFoundError:
        raise BadImageError("no such file") from None
    except PermissionError:
        raise BadImageError("no permission to read it") from None
    except Exception as error:
        # Pillow's plugins report a damaged file by nearly any type: OSError, SyntaxError,
        # ValueError, EOFError, RuntimeError, struct.error, …
        raise BadImageError(f"broken: {str(error) or type(error).__name__}") from None


def open_image(path: str | Path) -> Image.Image:
    """Open a regular file as an image of one of `FORMATS`; its pixels are decoded when needed."""
    file = open_regular(path)
    try:
        if os.fstat(file.fileno()).st_size == 0:
            raise BadImageError("empty file")
        Image.init()
        image = Image.open(file, formats=[name for name in FORMATS if name in Image.OPEN])
    except BaseException:
        file.close()
        raise
    weakref.finalize(image, file.close)
    return image


def to_square(image: Image.Image, size: int) -> Pixels:
    """Convert an opened image to (3, size, size): upright, RGB, first frame, squeezed."""
    n_pixels = image.width * image.height
    if n_pixels > MAX_PIXELS:
        raise BadImageError(f"more than {MAX_PIXELS // 10**6} megapixels")
    image.draft("RGB", (2 * size, 2 * size))  # a JPEG is decoded at the nearest smaller scale
    if "progressive" not in image.info:  # such a JPEG is kept whole while it is decoded
        n_pixels = image.width * image.height
    with _budget.taken(n_pixels):
        if image.width * image.height > LARGE:
            rgb = ImageOps.exif_transpose(_resize_in_strips(image, size))
        else:
            image.load()  # a PNG states its orientation behind the pixels
            # Both functions copy an image that they do not change.
            upright = ImageOps.exif_transpose(image) if _is_turned(image) else image
            is_rgb = upright.mode == "RGB" and "transparency" not in upright.info
            rgb = upright if is_rgb else to_rgb(upright)
            rgb = rgb.resize((size, size), Image.Resampling.BILINEAR)
    return np.ascontiguousarray(np.asarray(rgb).transpose(2, 0, 1))


def to_rgb(image: Image.Image) -> Image.Image:
    """Convert to RGB; grey values of more than 8 bits are scaled, transparent pixels are white."""
    if _is_deep(image):
        return _scale_to_8_bit(image, _grey_range([image])).convert("RGB")
    if "A" in image.getbands() or "transparency" in image.info:
        rgba = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", rgba.size, "white"), rgba).convert("RGB")
    return image.convert("RGB")


class _Budget:
    """A number of pixels, shared by the threads that decode."""

    def __init__(self, total: int) -> None:
        self.total, self.used = total, 0
        self.changed = threading.Condition()

    @contextmanager
    def taken(self, n: int) -> Iterator[None]:
        """Wait until `n` are left, or for an `n` above the total until all are."""
        with self.changed:
            self.changed.wait_for(lambda: not self.used or self.used + n <= self.total)
            self.used += n
        try:
            yield
        finally:
            with self.changed:
                self.used -= n
                self.changed.notify_all()


_budget = _Budget(PIXELS_AT_ONCE)


def _resize_in_strips(image: Image.Image, size: int) -> Image.Image:
    """Convert to RGB and resize, but do not turn upright; no copy of the whole image is made.

    Each strip is reduced by a whole factor to twice the size or more.
    """
    image.load()
    fx, fy = (max(1, n // (2 * size)) for n in image.size)
    rows = fy * max(1, _STRIP // (image.width * fy))
    boxes = [
        (0, top, image.width, min(top + rows, image.height)) for top in range(0, image.height, rows)
    ]
    grey_range = _grey_range(map(image.crop, boxes)) if _is_deep(image) else None
    small = Image.new("RGB", (-(-image.width // fx), -(-image.height // fy)))
    for box in boxes:
        strip = image.crop(box)
        if grey_range:
            strip = _scale_to_8_bit(strip, grey_range)
        small.paste(to_rgb(strip).reduce((fx, fy)), (0, box[1] // fy))
    # A block at an edge may be only partly inside the image.
    inside = (0, 0, image.width / fx, image.height / fy)
    small = small.resize((size, size), Image.Resampling.BILINEAR, inside)
    orientation = image.getexif().get(ExifTags.Base.Orientation)
    if orientation in range(2, 9):
        exif = Image.Exif()
        exif[ExifTags.Base.Orientation] = orientation
        small.info["exif"] = exif.tobytes()
    return small


def _is_turned(image: Image.Image) -> bool:
    return bool(image.getexif().get(ExifTags.Base.Orientation, 1) != 1)


def _is_deep(image: Image.Image) -> bool:
    """Whether an image is grey with more than 8 bits."""
    return image.mode.startswith("I") or image.mode == "F"


def _grey_range(strips: Iterable[Image.Image]) -> tuple[float, float]:
    """Return the smallest and the largest value, 0 and 1 included."""
    low, high = 0.0, 1.0
    for strip in strips:
        raw = np.asarray(strip)
        if not np.isfinite(raw).all():
            raise BadImageError("not all of its values are finite")
        low, high = min(low, float(raw.min())), max(high, float(raw.max()))
    return low, high


def _scale_to_8_bit(image: Image.Image, grey_range: tuple[float, float]) -> Image.Image:
    """Scale 16-bit grey values to their high byte, and other ranges to 0–255."""
    low, high = grey_range
    raw = np.asarray(image)
    scaled = np.empty(raw.shape, np.uint8)
    rows = max(1, _STRIP // raw.shape[1])
    for top in range(0, len(raw), rows):  # some at a time: float64 is up to four times as large
        values = raw[top : top + rows].astype(np.float64)
        if low >= 0 and high <= 65535 and image.mode != "F":
            values /= 256
        else:
            values = (values - low) * (255 / (high - low))
        scaled[top : top + rows] = values.astype(np.uint8)
    return Image.fromarray(scaled)
