"""Thumbnails of the images, many to a sheet."""

import base64
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
from PIL import Image

from unida.data.decode import Pixels, open_image, to_square
from unida.utils.parallel import in_order

SIDES = ((600, 112), (3_000, 80), (20_000, 56))
"""Up to so many images, thumbnails of this side in pixels, to bound the size of the page."""
SHEET = 1_800
"""Longest side of a sheet, in pixels."""
GREY = 150
ROTATED = frozenset({5, 6, 7, 8})
ORIENTATION = 0x0112


@dataclass(frozen=True)
class Sprites:
    """Thumbnails in sheets, in order, row by row.

    Attributes:
        side: of a thumbnail in pixels; each is resized to a square.
        across: thumbnails in a row of a sheet.
        sheets: data URIs; each but the last holds `across`² thumbnails.
        shapes: width of each image as percent of its height.
        missing: numbers of the images that could not be read; grey on the sheet.
    """

    side: int
    across: int
    sheets: list[str]
    shapes: list[int]
    missing: list[int]


def make_sprites(paths: Sequence[str]) -> Sprites:
    """Draw the images; one that cannot be read is a grey square."""
    side = next((side for most, side in SIDES if len(paths) <= most), SIDES[-1][1])
    across = SHEET // side
    shapes: list[int] = []
    missing: list[int] = []
    thumbs = _thumbs(paths, side, shapes, missing)
    sheets = []
    while batch := list(islice(thumbs, across * across)):
        sheets.append(_sheet(batch, side, across))
    return Sprites(side, across, sheets, shapes, missing)


def _thumbs(
    paths: Sequence[str], side: int, shapes: list[int], missing: list[int]
) -> Iterator[Pixels]:
    grey = np.full((3, side, side), GREY, np.uint8)

    def draw(path: str) -> tuple[Pixels, int] | None:
        try:
            with open_image(path) as image:
                return to_square(image, side), _shape(image)
        except Exception:  # missing or damaged: Pillow raises nearly any type
            return None

    for number, drawn in enumerate(in_order(draw, paths)):
        if drawn is None:
            missing.append(number)
        shapes.append(drawn[1] if drawn else 100)
        yield drawn[0] if drawn else grey


def _shape(image: Image.Image) -> int:
    """Return the width as percent of the height, after EXIF rotation."""
    width, height = image.size
    if image.getexif().get(ORIENTATION) in ROTATED:
        width, height = height, width
    return int(np.clip(round(100 * width / height), 40, 250))


def _sheet(thumbs: list[Pixels], side: int, across: int) -> str:
    rows = -(-len(thumbs) // across)
    wide = min(across, len(thumbs))
    sheet = np.full((rows * side, wide * side, 3), GREY, np.uint8)
    for i, thumb in enumerate(thumbs):
        y, x = side * (i // across), side * (i % across)
        sheet[y : y + side, x : x + side] = thumb.transpose(1, 2, 0)
    file = io.BytesIO()
    Image.fromarray(sheet).save(file, "WEBP", quality=78, method=1)
    return "data:image/webp;base64," + base64.b64encode(file.getvalue()).decode("ascii")
