"""Decoding: an image file → a square RGB array of uint8."""

import warnings
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageOps, UnidentifiedImageError

Pixels = npt.NDArray[np.uint8]

MAX_PIXELS = 150_000_000
"""A larger image is left out: decoding it would take too much memory."""

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
        if path.stat().st_size == 0:
            raise BadImageError("empty file")
        with Image.open(path) as image:
            return to_square(image, size)
    except BadImageError:
        raise
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


def to_square(image: Image.Image, size: int) -> Pixels:
    """Convert an opened image to (3, size, size): upright, RGB, first frame, squeezed."""
    if image.width * image.height > MAX_PIXELS:
        raise BadImageError(f"more than {MAX_PIXELS // 10**6} megapixels")
    image.draft("RGB", (2 * size, 2 * size))  # a JPEG is decoded at the nearest smaller scale
    upright = ImageOps.exif_transpose(image)
    rgb = to_rgb(upright).resize((size, size), Image.Resampling.BILINEAR)
    return np.ascontiguousarray(np.asarray(rgb).transpose(2, 0, 1))


def to_rgb(image: Image.Image) -> Image.Image:
    """Convert to RGB; grey values of more than 8 bits are scaled, transparent pixels are white."""
    if image.mode.startswith("I") or image.mode == "F":
        return _scale_to_8_bit(image).convert("RGB")
    if "A" in image.getbands() or "transparency" in image.info:
        rgba = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", rgba.size, "white"), rgba).convert("RGB")
    return image.convert("RGB")


def _scale_to_8_bit(image: Image.Image) -> Image.Image:
    """Scale 16-bit grey values to their high byte, and other ranges to 0–255."""
    raw = np.asarray(image)
    if not np.isfinite(raw).all():
        raise BadImageError("not all of its values are finite")
    values = raw.astype(np.float64)
    low, high = values.min(initial=0.0), values.max(initial=1.0)
    if low >= 0 and high <= 65535 and image.mode != "F":
        values = values / 256
    else:
        values = (values - low) * (255 / (high - low))
    return Image.fromarray(values.astype(np.uint8))
