"""Decoding of any usual format to upright RGB, and the reason where it fails."""

import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from PIL import EpsImagePlugin, Image, ImageOps

from tests.images import noise, ordinary_user, write_bad_files, write_image
from unida.data import decode
from unida.data.cache import UNREADABLE, digest_file
from unida.data.decode import BadImageError, Pixels, decode_file
from unida.data.in_memory import _opener, decode_opened

RED, GREEN, BLUE, WHITE = (255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 255)


@contextmanager
def limit_memory(n_bytes: int) -> Iterator[None]:
    """This process may take that much more memory inside."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    with open("/proc/self/statm") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + n_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def colour_at(pixels: Pixels, row: int, column: int) -> tuple[int, ...]:
    return tuple(int(v) for v in pixels[:, row, column])


class TestFormats:
    @pytest.mark.parametrize("suffix", ["png", "bmp", "webp", "tif", "ppm"])
    def test_lossless_formats_keep_every_pixel(self, tmp_path: Path, suffix: str) -> None:
        path = tmp_path / f"x.{suffix}"
        noise(side=9).save(path, **({"lossless": True} if suffix == "webp" else {}))
        pixels = decode_file(path, 9)
        assert pixels.dtype == np.uint8
        np.testing.assert_array_equal(pixels, np.asarray(noise(side=9)).transpose(2, 0, 1))

    @pytest.mark.parametrize("mode", ["RGB", "CMYK"])
    def test_a_jpeg_keeps_its_colour(self, tmp_path: Path, mode: str) -> None:
        path = tmp_path / "x.jpg"
        Image.new("RGB", (40, 24), (200, 90, 30)).convert(mode).save(path, quality=95)
        pixels = decode_file(path, 8)
        assert pixels.shape == (3, 8, 8)
        np.testing.assert_allclose(colour_at(pixels, 4, 4), (200, 90, 30), atol=4)

    def test_of_a_moving_gif_the_first_frame_is_taken(self, tmp_path: Path) -> None:
        frames = [Image.new("RGB", (8, 8), colour) for colour in (RED, BLUE)]
        frames[0].save(tmp_path / "x.gif", save_all=True, append_images=frames[1:])
        assert Image.open(tmp_path / "x.gif").n_frames == 2
        assert colour_at(decode_file(tmp_path / "x.gif", 8), 4, 4) == RED

    def test_a_long_image_is_squeezed_to_a_square(self, tmp_path: Path) -> None:
        image = Image.new("RGB", (40, 10), RED)
        image.paste(BLUE, (20, 0, 40, 10))
        image.save(tmp_path / "x.png")
        pixels = decode_file(tmp_path / "x.png", 10)
        assert colour_at(pixels, 5, 0) == RED
        assert colour_at(pixels, 5, 9) == BLUE

    def test_the_name_does_not_decide_the_format(self, tmp_path: Path) -> None:
        noise(side=9).save(tmp_path / "x.jpg", "PNG")
        expected = np.asarray(noise(side=9)).transpose(2, 0, 1)
        np.testing.assert_array_equal(decode_file(tmp_path / "x.jpg", 9), expected)


class TestModes:
    def test_grey_and_transparent_pixels_are_converted_over_white(self, tmp_path: Path) -> None:
        cases: list[tuple[str, int | tuple[int, ...], tuple[int, ...]]] = [
            ("L", 77, (77, 77, 77)),
            ("1", 1, WHITE),
            ("LA", (77, 255), (77, 77, 77)),
            ("LA", (0, 0), WHITE),
            ("RGBA", (255, 0, 0, 255), RED),
            ("RGBA", (255, 0, 0, 0), WHITE),
            ("RGBA", (255, 0, 0, 51), (255, 204, 204)),
        ]
        for mode, value, expected in cases:
            Image.new(mode, (6, 6), value).save(tmp_path / "x.png")
            assert colour_at(decode_file(tmp_path / "x.png", 6), 3, 3) == expected, (mode, value)

    def test_the_transparent_colour_of_a_palette_is_white(self, tmp_path: Path) -> None:
        image = Image.new("P", (8, 8), 1)
        image.putpalette([*BLUE, *RED])
        image.paste(0, (0, 0, 8, 4))
        for suffix in ("png", "gif"):
            image.save(tmp_path / f"x.{suffix}", transparency=0)
            pixels = decode_file(tmp_path / f"x.{suffix}", 8)
            assert colour_at(pixels, 1, 4) == WHITE
            assert colour_at(pixels, 6, 4) == RED

    def test_of_16_bit_grey_the_high_byte_is_kept(self, tmp_path: Path) -> None:
        for value, expected in ((0, 0), (255, 0), (256, 1), (65535, 255)):
            Image.fromarray(np.full((6, 6), value, np.uint16)).save(tmp_path / "x.png")
            with Image.open(tmp_path / "x.png") as stored:
                assert stored.mode.startswith("I")
            assert (decode_file(tmp_path / "x.png", 6) == expected).all()

    def test_float_values_are_scaled_to_the_whole_range(self, tmp_path: Path) -> None:
        for values in ((0.0, 1.0), (-2.0, 2.0)):
            image = np.repeat(np.array(values, np.float32), 4)[:, None].repeat(8, 1)
            Image.fromarray(image).save(tmp_path / "x.tif")
            pixels = decode_file(tmp_path / "x.tif", 8)
            assert (pixels[0, 1, 1], pixels[0, 6, 1]) == (0, 255)


# Where the stored top left and top right corners end up, for each EXIF orientation.
TOP_LEFT, TOP_RIGHT, BOTTOM_LEFT, BOTTOM_RIGHT = (1, 1), (1, 6), (6, 1), (6, 6)
CORNERS = {
    1: (TOP_LEFT, TOP_RIGHT),
    2: (TOP_RIGHT, TOP_LEFT),
    3: (BOTTOM_RIGHT, BOTTOM_LEFT),
    4: (BOTTOM_LEFT, BOTTOM_RIGHT),
    5: (TOP_LEFT, BOTTOM_LEFT),
    6: (TOP_RIGHT, BOTTOM_RIGHT),
    7: (BOTTOM_RIGHT, TOP_RIGHT),
    8: (BOTTOM_LEFT, TOP_LEFT),
}


def test_exif_orientation_is_applied(tmp_path: Path) -> None:
    image = Image.new("RGB", (96, 64), "black")
    image.paste(RED, (0, 0, 48, 32))
    image.paste(GREEN, (48, 0, 96, 32))
    for suffix, orientation in product(("jpg", "png", "webp"), CORNERS):
        exif, path = Image.Exif(), tmp_path / f"{orientation}.{suffix}"
        exif[0x0112] = orientation
        image.save(path, exif=exif, quality=95)
        pixels = decode_file(path, 8)
        for corner, colour in zip(CORNERS[orientation], (RED, GREEN), strict=True):
            found = colour_at(pixels, *corner)
            np.testing.assert_allclose(found, colour, atol=12, err_msg=path.name)


class TestBadFiles:
    def test_a_bad_file_has_its_reason(self, tmp_path: Path) -> None:
        for path, reason in write_bad_files(tmp_path).items():
            with pytest.raises(BadImageError, match=f"^{reason}"):
                decode_file(path, 8)

    # pytest drops the filter that decode.py sets; between the two limits Pillow only warns.
    @pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
    def test_our_own_limit_is_below_pillows(self, tmp_path: Path) -> None:
        Image.new("1", (16_000, 10_000)).save(tmp_path / "x.png")
        with pytest.raises(BadImageError, match=r"^more than 150 megapixels$"):
            decode_file(tmp_path / "x.png", 8)

    def test_a_file_without_permission_is_refused_and_its_neighbour_is_not(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            os.chmod(folder, 0o755)
            open_to_all, locked = (write_image(Path(folder, name)) for name in ("a.png", "b.png"))
            expected = decode_file(open_to_all, 8)
            open_to_all.chmod(0o444)
            locked.chmod(0o000)
            with ordinary_user():
                np.testing.assert_array_equal(decode_file(open_to_all, 8), expected)
                with pytest.raises(BadImageError, match=r"^no permission to read it$"):
                    decode_file(locked, 8)

    def test_what_is_no_regular_file_is_neither_waited_for_nor_read(self, tmp_path: Path) -> None:
        folder, pipe, device = (tmp_path / name for name in ("a.png", "b.jpg", "c.jpg"))
        folder.mkdir()
        os.mkfifo(pipe)
        device.symlink_to("/dev/zero")
        for path in (folder, pipe, device):
            started = time.monotonic()
            with limit_memory(2**30), pytest.raises(BadImageError, match=r"^not a regular file$"):
                decode_file(path, 8)
            assert digest_file(str(path)) == UNREADABLE
            assert time.monotonic() - started < 10

    def test_a_file_of_unlimited_size_is_not_read(self, tmp_path: Path) -> None:
        path = tmp_path / "x.png"
        with path.open("wb") as file:
            file.truncate(2**40)
        with pytest.raises(BadImageError, match="too large"):
            decode_file(path, 8)
        assert digest_file(str(path)) == UNREADABLE

    def test_no_other_program_is_started(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """For PostScript, Pillow starts Ghostscript."""
        started: list[object] = []
        monkeypatch.setattr(subprocess, "Popen", started.append)
        monkeypatch.setattr(subprocess, "check_call", lambda *command, **more: started.append(1))
        monkeypatch.setattr(EpsImagePlugin, "gs_binary", "gs")
        path = tmp_path / "x.jpg"
        path.write_text(
            "%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\nshowpage\n"
        )
        with pytest.raises(BadImageError, match=r"^not an image"):
            decode_file(path, 8)
        assert started == []
        noise().save(tmp_path / "y.jpg", "ICO")
        with pytest.raises(BadImageError, match=r"^not an image"):
            decode_opened(_opener(tmp_path / "y.jpg"), 8)

    def test_float_values_that_are_not_finite_are_refused(self, tmp_path: Path) -> None:
        Image.fromarray(np.array([[0, np.nan], [1, np.inf]], np.float32)).save(tmp_path / "x.tif")
        with pytest.raises(BadImageError, match="not all of its values are finite"):
            decode_file(tmp_path / "x.tif", 2)

    def test_any_error_of_a_plugin_is_a_broken_file(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(image: Image.Image, size: int) -> Pixels:
            raise NotImplementedError

        monkeypatch.setattr(decode, "to_square", fail)
        with pytest.raises(BadImageError, match=r"^broken: NotImplementedError"):
            decode_file(write_image(tmp_path / "x.png"), 8)


class TestLargeImages:
    @pytest.mark.parametrize("mode", ["1", "L", "P", "LA", "RGB", "RGBA", "I;16", "I", "F", "CMYK"])
    def test_strips_give_what_the_whole_gives(
        self, mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """An image is large here from 100 pixels on, and a strip has few rows."""
        y, x = np.mgrid[:120, :150]
        wave = 0.5 + 0.25 * np.sin(x / 20) + 0.25 * np.cos(y / 25)
        if mode in ("I;16", "I", "F"):
            kinds = {"I;16": np.uint16, "I": np.int32, "F": np.float32}
            image = Image.fromarray((wave * 65535).astype(kinds[mode]))
        else:
            grey = Image.fromarray((wave * 255).astype(np.uint8))
            image = Image.merge("RGB", [grey, ImageOps.flip(grey), ImageOps.invert(grey)]).convert(
                mode
            )
        path = tmp_path / "x.tif"
        exif = Image.Exif()
        exif[0x0112] = 6
        image.save(path, exif=exif)
        with Image.open(path) as stored:
            assert stored.mode.startswith(mode[0])
        expected = decode_file(path, 16)
        monkeypatch.setattr(decode, "LARGE", 100)
        monkeypatch.setattr(decode, "_STRIP", 1500)
        found = decode_file(path, 16)
        atol = 8 if mode == "1" else 2
        np.testing.assert_allclose(found.astype(int), expected.astype(int), atol=atol)

    @pytest.mark.parametrize("suffix", ["jpg", "png", "webp"])
    def test_a_large_image_is_upright(
        self, suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        image = Image.new("RGB", (96, 64), "black")
        image.paste(RED, (0, 0, 48, 32))
        exif = Image.Exif()
        exif[0x0112] = 6
        image.save(tmp_path / f"x.{suffix}", exif=exif, quality=95)
        monkeypatch.setattr(decode, "LARGE", 100)
        pixels = decode_file(tmp_path / f"x.{suffix}", 8)
        np.testing.assert_allclose(colour_at(pixels, *TOP_RIGHT), RED, atol=12)
        np.testing.assert_allclose(colour_at(pixels, *TOP_LEFT), (0, 0, 0), atol=12)

    def test_a_strip_is_scaled_by_the_values_of_the_whole(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(decode, "LARGE", 100)
        monkeypatch.setattr(decode, "_STRIP", 100)
        ramp = np.linspace(-3, 5, 64, dtype=np.float32)[:, None].repeat(64, 1)
        Image.fromarray(ramp).save(tmp_path / "x.tif")
        column = decode_file(tmp_path / "x.tif", 8)[0, :, 4].astype(int)
        assert column[0] < 40
        assert column[-1] > 215
        assert (np.diff(column) > 0).all()
        ramp[60] = np.nan
        Image.fromarray(ramp).save(tmp_path / "x.tif")
        with pytest.raises(BadImageError, match="finite"):
            decode_file(tmp_path / "x.tif", 8)

    def test_threads_decode_a_bounded_number_of_pixels_at_a_time(self) -> None:
        budget, most, used = decode._Budget(100), 0, 0
        lock = threading.Lock()

        def work(n: int) -> None:
            nonlocal most, used
            with budget.taken(n):
                with lock:
                    used += n
                    most = max(most, used if used != 300 else 0)
                    assert used <= 100 or used == n
                time.sleep(0.001)
                with lock:
                    used -= n

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(work, [60, 30, 10, 300, 50, 50, 50] * 10))
        assert 60 < most <= 100

    @pytest.mark.slow
    def test_large_pngs_in_many_threads_fit_into_2_gb(self, tmp_path: Path) -> None:
        """16-bit grey, 290 KB each: by float64, each took 1.8 GB of its own."""
        path = tmp_path / "0.png"
        Image.new("I;16", (12_200, 12_200)).save(path)
        for i in range(1, 3):
            os.link(path, tmp_path / f"{i}.png")
        code = (
            "import resource, sys; from pathlib import Path; from unida.data.decode import *;"
            "from concurrent.futures import ThreadPoolExecutor;"
            "resource.setrlimit(resource.RLIMIT_AS, (4 * 2**30,) * 2);"
            "found = list(ThreadPoolExecutor(3).map(lambda p: decode_file(p, 32), "
            "sorted(Path(sys.argv[1]).iterdir())));"
            "assert len(found) == 3 and not any(x.any() for x in found);"
            "assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < 2 * 2**20"
        )
        subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True, timeout=300)
