"""Sheets of thumbnails: each picture in its place, whatever became of the others."""

import base64
import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from unida.report import thumbnails
from unida.report.thumbnails import GREY, make_sprites


def sheet(uri: str) -> np.ndarray:
    kind, _, data = uri.partition(",")
    assert kind == "data:image/webp;base64"
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(data))).convert("RGB")).astype(int)


def test_each_picture_is_in_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thumbnails, "SHEET", 3 * 112)
    colours = [(25 * i, 250 - 25 * i, 100) for i in range(10)] + [(200, 20, 20)]
    paths = []
    for i, colour in enumerate(colours):
        paths.append(str(tmp_path / f"{i}.png"))
        Image.new("RGB", (20, 20), colour).save(paths[-1])
    made = make_sprites(paths)
    assert (made.across, len(made.sheets), made.missing) == (3, 2, [])
    sheets = [sheet(uri) for uri in made.sheets]
    for i, colour in enumerate(colours):
        row, column = divmod(i % 9, 3)
        middle = [int((place + 0.5) * made.side) for place in (row, column)]
        assert abs(sheets[i // 9][middle[0], middle[1]] - colour).max() < 12


def test_shapes_are_those_of_the_upright_image(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by a quarter
    Image.new("RGB", (40, 20)).save(tmp_path / "wide.jpg")
    Image.new("RGB", (40, 20)).save(tmp_path / "turned.jpg", exif=exif)
    Image.new("RGB", (400, 2)).save(tmp_path / "line.png")
    paths = [str(tmp_path / name) for name in ("wide.jpg", "turned.jpg", "line.png")]
    assert make_sprites(paths).shapes == [200, 50, 250]


def test_what_cannot_be_read_is_grey(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.png", tmp_path / "bad.png"
    Image.new("RGB", (9, 9), "white").save(good)
    bad.write_bytes(b"no image")
    made = make_sprites([str(tmp_path / "gone.png"), str(good), str(bad), "null\0.png"])
    assert made.missing == [0, 2, 3]
    pixels = sheet(made.sheets[0])
    assert abs(pixels[50, 50] - GREY).max() < 4
    assert pixels[50, made.side + 50].min() > 250


def test_no_image_makes_no_sheet() -> None:
    assert make_sprites([]).sheets == []
