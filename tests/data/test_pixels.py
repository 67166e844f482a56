"""The pixel cache: three places, the same pixels."""

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.images import file_size_limit, write_bad_files, write_classes, write_folder, write_image
from unida.config import CacheMode
from unida.data import pixels
from unida.data.decode import Pixels, decode_file
from unida.data.pixels import ArrayStore, choose_cache, default_cache_dir, in_order, load_pixels
from unida.data.samples import Samples, read_labelled, read_unlabelled
from unida.errors import UserError

SIZE = 10
MODES: tuple[CacheMode, ...] = ("memory", "disk", "stream")


def load(place: Path, mode: CacheMode, cache: Path) -> tuple[Samples, Tensor]:
    """The samples kept and all of their pixels."""
    samples, store = load_pixels(read_unlabelled(place), SIZE, mode, cache, lambda *_: None)
    assert len(store) == len(samples)
    return samples, store.get(torch.arange(len(store)))


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files decoded so far."""
    paths: list[Path] = []

    def note(path: Path, size: int) -> Pixels:
        paths.append(path)
        return decode_file(path, size)

    monkeypatch.setattr(pixels, "decode_file", note)
    return paths


class TestEveryMode:
    @pytest.mark.parametrize("mode", MODES)
    def test_pixels_are_those_of_the_files_in_order(self, tmp_path: Path, mode: CacheMode) -> None:
        folder = write_folder(tmp_path / "images", 7)
        samples, found = load(folder, mode, tmp_path / "cache")
        expected = np.stack([decode_file(path, SIZE) for path in samples.paths])
        assert found.dtype == torch.uint8
        np.testing.assert_array_equal(found.numpy(), expected)

    @pytest.mark.parametrize("mode", MODES)
    def test_images_are_taken_by_number(self, tmp_path: Path, mode: CacheMode) -> None:
        samples = read_unlabelled(write_folder(tmp_path / "images", 5))
        _, store = load_pixels(samples, SIZE, mode, tmp_path / "cache", lambda *_: None)
        everything = store.get(torch.arange(5))
        assert torch.equal(store.get(torch.tensor([3, 0, 3])), everything[[3, 0, 3]])
        assert store.get(torch.arange(0)).shape == (0, 3, SIZE, SIZE)

    @pytest.mark.parametrize("mode", MODES)
    def test_bad_images_are_left_out_with_their_reasons(
        self, tmp_path: Path, mode: CacheMode
    ) -> None:
        folder = write_folder(tmp_path / "images", 4)
        reasons = write_bad_files(folder)
        for _ in range(2):  # with a disk cache the second time is another way
            samples, found = load(folder, mode, tmp_path / "cache")
            assert [path.name for path in samples.paths] == [f"{i:03}.png" for i in range(4)]
            assert len(found) == 4
            assert {skipped.path for skipped in samples.skipped} == set(reasons)
            for skipped in samples.skipped:
                assert skipped.reason.startswith(reasons[skipped.path])

    @pytest.mark.parametrize("mode", MODES)
    def test_labels_stay_with_their_images(self, tmp_path: Path, mode: CacheMode) -> None:
        place = write_classes(tmp_path / "images", {"ant": 2, "bee": 1, "cat": 2})
        (place / "ant" / "000.png").write_bytes(b"")
        loose = write_image(place / "loose.png")
        before = read_labelled(place)
        samples, _ = load_pixels(before, SIZE, mode, tmp_path / "cache", lambda *_: None)
        assert samples.labels is not None
        assert samples.labels.tolist() == [0, 1, 2, 2]
        assert samples.classes == ("ant", "bee", "cat")
        assert [s.path for s in samples.skipped] == [loose, place / "ant" / "000.png"]

    @pytest.mark.parametrize("mode", MODES)
    def test_no_readable_image_is_an_error(self, tmp_path: Path, mode: CacheMode) -> None:
        write_bad_files(tmp_path / "images")
        with pytest.raises(UserError, match=r"None of the 6 images can be read: .*and 3 more"):
            load(tmp_path / "images", mode, tmp_path / "cache")

    @pytest.mark.parametrize("mode", MODES)
    def test_progress_ends_with_all_images(self, tmp_path: Path, mode: CacheMode) -> None:
        samples = read_unlabelled(write_folder(tmp_path / "images", 3))
        calls: list[tuple[int, int]] = []
        load_pixels(samples, SIZE, mode, tmp_path / "c", lambda *call: calls.append(call))
        assert calls == [(1, 3), (2, 3), (3, 3)]


class TestDiskCache:
    def test_the_second_time_nothing_is_decoded(self, tmp_path: Path, decoded: list[Path]) -> None:
        folder, cache = write_folder(tmp_path / "images", 4), tmp_path / "cache"
        _, first = load(folder, "disk", cache)
        assert len(decoded) == 4
        _, second = load(folder, "disk", cache)
        assert len(decoded) == 4
        assert torch.equal(first, second)

    def test_it_is_found_when_folder_and_files_have_other_names(
        self, tmp_path: Path, decoded: list[Path]
    ) -> None:
        folder, cache = write_folder(tmp_path / "images", 3), tmp_path / "cache"
        _, first = load(folder, "disk", cache)
        moved = folder.rename(tmp_path / "moved")
        for path in moved.iterdir():
            path.rename(path.with_name(f"new-{path.name}"))
        samples, second = load(moved, "disk", cache)
        assert len(decoded) == 3
        assert torch.equal(first, second)
        assert all(path.exists() for path in samples.paths)

    @pytest.mark.parametrize("change", ["byte", "order", "fewer"])
    def test_other_content_is_another_cache(
        self, tmp_path: Path, decoded: list[Path], change: str
    ) -> None:
        folder, cache = write_folder(tmp_path / "images", 3), tmp_path / "cache"
        load(folder, "disk", cache)
        if change == "byte":
            with (folder / "001.png").open("ab") as file:
                file.write(b"x")
        elif change == "order":
            (folder / "000.png").rename(folder / "003.png")
        else:
            (folder / "002.png").unlink()
        samples, found = load(folder, "disk", cache)
        assert len(decoded) == 3 + len(samples)
        assert torch.equal(found, load(folder, "memory", cache)[1])

    def test_every_size_has_its_own_cache(self, tmp_path: Path, decoded: list[Path]) -> None:
        samples = read_unlabelled(write_folder(tmp_path / "images", 2))
        for size in (8, 9, 8, 9):
            _, store = load_pixels(samples, size, "disk", tmp_path / "cache", lambda *_: None)
            assert store.get(torch.arange(2)).shape == (2, 3, size, size)
        assert len(decoded) == 4

    @pytest.mark.parametrize("suffix", [".u8", ".npy"])
    def test_a_damaged_cache_is_made_anew(self, tmp_path: Path, suffix: str) -> None:
        folder, cache = write_folder(tmp_path / "images", 3), tmp_path / "cache"
        _, first = load(folder, "disk", cache)
        (damaged,) = (path for path in cache.iterdir() if path.suffix == suffix)
        damaged.write_bytes(damaged.read_bytes()[:5])
        assert torch.equal(load(folder, "disk", cache)[1], first)

    def test_writing_to_the_array_does_not_change_the_file(self, tmp_path: Path) -> None:
        folder, cache = write_folder(tmp_path / "images", 2), tmp_path / "cache"
        _, before = load(folder, "disk", cache)
        _, store = load_pixels(read_unlabelled(folder), SIZE, "disk", cache, lambda *_: None)
        assert isinstance(store, ArrayStore)
        store.array.zero_()
        assert torch.equal(load(folder, "disk", cache)[1], before)

    def test_a_full_disk_is_an_error_and_leaves_nothing_behind(self, tmp_path: Path) -> None:
        folder, cache = write_folder(tmp_path / "images", 40), tmp_path / "cache"
        message = r"pixel cache cannot be written in .*cache: File too large\. Free some space"
        with file_size_limit(40 * 3 * SIZE**2 - 1), pytest.raises(UserError, match=message):
            load(folder, "disk", cache)
        assert list(cache.iterdir()) == []

    def test_a_disk_full_at_the_last_moment_is_an_error_too(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """NumPy says how much was written, without an error number."""
        folder, cache = write_folder(tmp_path / "images", 2), tmp_path / "cache"
        monkeypatch.setattr(np, "save", _raise(OSError("2 requested and 0 written")))
        with pytest.raises(UserError, match=r"cache: 2 requested and 0 written\. Free"):
            load(folder, "disk", cache)
        assert list(cache.iterdir()) == []

    def test_a_cache_folder_that_cannot_be_made_is_an_error(self, tmp_path: Path) -> None:
        folder = write_folder(tmp_path / "images", 2)
        with pytest.raises(UserError, match=r"000\.png/cache cannot be made: Not a dir.*--cache"):
            load(folder, "disk", folder / "000.png" / "cache")


def _raise(error: Exception) -> Callable[..., None]:
    def fail(*_: object) -> None:
        raise error

    return fail


class TestStream:
    def test_a_file_that_vanishes_is_an_error_that_names_it(self, tmp_path: Path) -> None:
        samples = read_unlabelled(write_folder(tmp_path / "images", 4))
        _, store = load_pixels(samples, SIZE, "stream", tmp_path, lambda *_: None)
        samples.paths[2].unlink()
        assert len(store.get(torch.tensor([0, 1, 3]))) == 3
        message = r"002\.png has changed since the run began: no such file\.$"
        with pytest.raises(UserError, match=message):
            store.get(torch.arange(4))


class TestChooseCache:
    GB = 2**30

    @pytest.mark.parametrize("mode", MODES)
    def test_a_wish_is_a_wish(self, tmp_path: Path, mode: CacheMode) -> None:
        assert choose_cache(mode, 10**18, 1.0, tmp_path) == mode

    @pytest.mark.parametrize(
        ("needed", "expected"),
        [(GB, "memory"), (GB + 1, "disk"), (9 * GB - 1, "disk"), (9 * GB, "stream")],
    )
    def test_auto_takes_the_first_that_fits(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, needed: int, expected: str
    ) -> None:
        usage = shutil._ntuple_diskusage(20 * self.GB, 10 * self.GB, 10 * self.GB)
        monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
        assert choose_cache("auto", needed, 1.0, tmp_path / "new" / "cache") == expected

    def test_auto_says_when_the_cache_folder_cannot_be_made(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        with pytest.raises(UserError, match="file cannot be made: File exists"):
            choose_cache("auto", 2, 1e-12, tmp_path / "file")

    def test_the_default_folder_follows_the_desktop_standard(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
        assert default_cache_dir() == Path("/somewhere/unida")
        monkeypatch.delenv("XDG_CACHE_HOME")
        monkeypatch.setenv("HOME", "/home/me")
        assert default_cache_dir() == Path("/home/me/.cache/unida")


def test_work_done_in_parallel_keeps_its_order() -> None:
    assert list(in_order(lambda i: i * i, range(1000))) == [i * i for i in range(1000)]
