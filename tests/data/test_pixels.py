"""The pixel cache: three places, the same pixels."""

import errno
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.images import (
    file_size_limit,
    ordinary_user,
    write_bad_files,
    write_classes,
    write_folder,
    write_image,
)
from tests.processes import started, wait_for
from unida.config import CacheMode, RunConfig
from unida.data import cache as cache_folder
from unida.data import pixels
from unida.data.cache import CacheEntry, default_cache_dir
from unida.data.decode import Pixels, decode_file
from unida.data.domain import load_domains
from unida.data.pixels import ArrayStore, MappedStore, cached_bytes, choose_cache, load_pixels
from unida.data.samples import Samples, Skipped, read_labelled, read_unlabelled
from unida.errors import UserError
from unida.utils.parallel import in_order

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


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files whose content was hashed so far."""
    names: list[str] = []
    digest = cache_folder.digest_file

    def note(name: str) -> bytes:
        names.append(name)
        return digest(name)

    monkeypatch.setattr(cache_folder, "digest_file", note)
    return names


@pytest.fixture
def public() -> Iterator[Path]:
    """A folder that an ordinary user can enter."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


@pytest.fixture
def no_clock_tick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files just written count as old."""
    monkeypatch.setattr(cache_folder, "_CLOCK_TICK", 0)


class TestEveryMode:
    @pytest.mark.parametrize("mode", MODES)
    def test_pixels_are_those_of_the_files_in_order(self, tmp_path: Path, mode: CacheMode) -> None:
        folder = write_folder(tmp_path / "images", 7)
        samples, found = load(folder, mode, tmp_path / "cache")
        expected = np.stack([decode_file(path, SIZE) for path in samples.paths])
        assert found.dtype == torch.uint8
        np.testing.assert_array_equal(found.numpy(), expected)

    @pytest.mark.parametrize("mode", MODES)
    def test_images_are_taken_by_index(self, tmp_path: Path, mode: CacheMode) -> None:
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
        for _ in range(2):  # the second time is another way
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


class TestSecondStart:
    """Nothing is decoded and no file is read whose size and times are as they were."""

    @pytest.mark.parametrize("mode", MODES)
    @pytest.mark.usefixtures("no_clock_tick")
    def test_nothing_is_decoded_or_hashed(
        self, tmp_path: Path, decoded: list[Path], hashed: list[str], mode: CacheMode
    ) -> None:
        folder, cache = write_folder(tmp_path / "images", 4), tmp_path / "cache"
        first, expected = load(folder, mode, cache)
        decoded.clear()
        hashed.clear()
        again, store = load_pixels(read_unlabelled(folder), SIZE, mode, cache, lambda *_: None)
        assert (decoded, hashed, again) == ([], [], first)
        assert torch.equal(store.get(torch.arange(4)), expected)

    @pytest.mark.parametrize("mode", MODES)
    @pytest.mark.usefixtures("no_clock_tick")
    def test_bad_files_are_cached_with_their_reasons(
        self, tmp_path: Path, decoded: list[Path], hashed: list[str], mode: CacheMode
    ) -> None:
        folder, cache = write_folder(tmp_path / "images", 2), tmp_path / "cache"
        reasons = write_bad_files(folder)
        first, _ = load(folder, mode, cache)
        decoded.clear()
        hashed.clear()
        again, _ = load_pixels(read_unlabelled(folder), SIZE, mode, cache, lambda *_: None)
        assert again == first
        assert len(again.skipped) == len(reasons)
        assert decoded == []
        assert hashed == [str(folder / "lost.png")]  # it might be there by now

    @pytest.mark.parametrize("mode", MODES)
    @pytest.mark.usefixtures("no_clock_tick")
    def test_a_file_that_was_missing_is_read_when_it_exists(
        self, tmp_path: Path, mode: CacheMode
    ) -> None:
        folder, cache = write_folder(tmp_path / "images", 2), tmp_path / "cache"
        (folder / "lost.png").symlink_to(tmp_path / "later.png")
        assert len(load(folder, mode, cache)[0]) == 2
        write_image(tmp_path / "later.png", seed=7)
        assert len(load(folder, mode, cache)[0]) == 3

    @pytest.mark.usefixtures("no_clock_tick")
    def test_a_file_without_permission_is_read_when_it_has_it(self, public: Path) -> None:
        folder, place = write_folder(public / "images", 3), public / "cache"
        place.mkdir(mode=0o777)
        place.chmod(0o777)
        locked = folder / "001.png"
        locked.chmod(0o000)
        with ordinary_user():
            (skipped,) = load(folder, "disk", place)[0].skipped
        assert skipped == Skipped(locked, "no permission to read it")
        locked.chmod(0o444)
        with ordinary_user():
            assert len(load(folder, "disk", place)[0]) == 3

    @pytest.mark.usefixtures("no_clock_tick")
    def test_a_touched_file_is_hashed_alone_and_finds_its_pixels(
        self, tmp_path: Path, decoded: list[Path], hashed: list[str]
    ) -> None:
        folder, cache = write_folder(tmp_path / "images", 4), tmp_path / "cache"
        load(folder, "disk", cache)
        decoded.clear()
        hashed.clear()
        os.utime(folder / "002.png", (5, 5))
        for _ in range(2):
            load(folder, "disk", cache)
            assert (decoded, hashed) == ([], [str(folder / "002.png")])

    @pytest.mark.parametrize("mode", MODES)
    def test_a_change_that_leaves_size_and_time_is_detected(
        self, tmp_path: Path, mode: CacheMode
    ) -> None:
        """As when a file is written twice between two ticks of the file system's clock."""
        folder, cache = tmp_path / "images", tmp_path / "cache"
        images = [write_image(folder / f"{i}.bmp", seed=i) for i in range(3)]
        before = images[1].stat()
        load(folder, mode, cache)
        write_image(images[1], seed=9)
        os.utime(images[1], ns=(before.st_atime_ns, before.st_mtime_ns))
        assert images[1].stat().st_size == before.st_size
        _, found = load(folder, mode, cache)
        np.testing.assert_array_equal(found[1].numpy(), decode_file(images[1], SIZE))

    def test_new_files_are_hashed_again_until_they_are_old_enough(
        self, tmp_path: Path, hashed: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        samples = read_unlabelled(write_folder(tmp_path / "images", 3))
        counts = []
        for seconds in (0, 1, 10, 11):
            now = samples.paths[-1].stat().st_ctime_ns + seconds * 10**9
            monkeypatch.setattr(time, "time_ns", lambda now=now: now)
            hashed.clear()
            cache_folder.content_key(samples.paths, SIZE, tmp_path)
            counts.append(len(hashed))
        assert counts == [3, 3, 3, 0]

    @pytest.mark.usefixtures("no_clock_tick")
    def test_the_same_names_below_another_folder_are_other_files(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for i, place in enumerate((tmp_path / "one", tmp_path / "two")):
            write_image(place / "images" / "a.bmp", seed=i)
            monkeypatch.chdir(place)
            _, found = load(Path("images"), "disk", tmp_path / "cache")
            expected = decode_file(place / "images" / "a.bmp", SIZE)
            np.testing.assert_array_equal(found[0].numpy(), expected)

    @pytest.mark.parametrize("content", ["[]", "{}", '{"bad": 3}', '{"bad": {"9": "no"}}', "\0"])
    def test_an_invalid_record_is_made_again(
        self, tmp_path: Path, content: str, decoded: list[Path]
    ) -> None:
        folder, place = write_folder(tmp_path / "images", 3), tmp_path / "cache"
        load(folder, "stream", place)
        (record,) = place.glob("*.json")
        record.write_text(content)
        decoded.clear()
        samples, _ = load_pixels(read_unlabelled(folder), SIZE, "stream", place, lambda *_: None)
        assert (len(samples), len(decoded)) == (3, 3)

    def test_all_modes_have_the_same_key(self, tmp_path: Path) -> None:
        samples = read_unlabelled(write_folder(tmp_path / "images", 3))
        keys = set()
        for mode in (*MODES, *MODES):
            _, store = load_pixels(samples, SIZE, mode, tmp_path / "cache", lambda *_: None)
            keys.add(store.key)
        assert keys == {cache_folder.content_key(samples.paths, SIZE, tmp_path / "cache")}


class TestMemory:
    @pytest.mark.parametrize(("first", "second"), [("memory", "disk"), ("disk", "memory")])
    def test_memory_and_disk_share_what_was_decoded(
        self, tmp_path: Path, decoded: list[Path], first: CacheMode, second: CacheMode
    ) -> None:
        folder = write_folder(tmp_path / "images", 3)
        expected = load(folder, first, tmp_path / "cache")[1]
        assert torch.equal(load(folder, second, tmp_path / "cache")[1], expected)
        assert len(decoded) == 3

    def test_a_file_of_many_blocks_is_read_whole(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(pixels, "_BLOCK", 2 * 3 * SIZE**2)
        folder = write_folder(tmp_path / "images", 5)
        decoded = load(folder, "memory", tmp_path / "cache")[1]
        monkeypatch.setattr(pixels, "decode_file", _raise(AssertionError("decoded again")))
        assert torch.equal(load(folder, "memory", tmp_path / "cache")[1], decoded)

    def test_what_was_decoded_is_not_read_back(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(pixels, "_read_file", _raise(AssertionError("read back")))
        samples = read_unlabelled(write_folder(tmp_path / "images", 3))
        _, store = load_pixels(samples, SIZE, "memory", tmp_path / "cache", lambda *_: None)
        assert not isinstance(store, MappedStore)
        assert len(list((tmp_path / "cache").glob("*.u8"))) == 1  # for the next run

    @pytest.mark.parametrize("mode", ["memory", "disk"])
    def test_a_run_follows_its_cache_mode(self, tmp_path: Path, mode: CacheMode) -> None:
        samples = read_unlabelled(write_folder(tmp_path / "images", 2))
        config = RunConfig.from_flat(image_size=8, cache=mode, cache_dir=str(tmp_path / "cache"))
        for _ in range(2):
            loaded = load_domains(
                config, torch.device("cpu"), {"images": samples}, lambda _: lambda *_: None
            )
            assert isinstance(loaded["images"].pixels, MappedStore) == (mode == "disk")

    def test_a_disk_with_little_room_is_left_alone(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        folder, needed = write_folder(tmp_path / "images", 2), 2 * 3 * SIZE**2
        for free, files in ((10 * needed - 1, 0), (10 * needed, 1)):
            usage = shutil._ntuple_diskusage(10**9, 10**9 - free, free)
            monkeypatch.setattr(shutil, "disk_usage", lambda _, usage=usage: usage)
            assert len(load(folder, "memory", tmp_path / "cache")[1]) == 2
            assert len(list((tmp_path / "cache").glob("*.u8"))) == files

    def test_a_full_disk_is_no_error(self, tmp_path: Path) -> None:
        folder, place = write_folder(tmp_path / "images", 40), tmp_path / "cache"
        with file_size_limit(40 * 3 * SIZE**2 - 1):
            samples, found = load(folder, "memory", place)
        np.testing.assert_array_equal(found[39].numpy(), decode_file(samples.paths[39], SIZE))
        assert not list(place.glob("*.u8*"))


class TestCacheFolder:
    @pytest.mark.parametrize("mode", ["memory", "stream"])
    @pytest.mark.parametrize("fault", ["read-only", "no folder"])
    def test_modes_that_need_no_folder_work_without(
        self, public: Path, mode: CacheMode, fault: str
    ) -> None:
        folder, place = write_folder(public / "images", 3), public / "cache"
        place.mkdir(mode=0o555) if fault == "read-only" else place.touch()
        with ordinary_user():
            for _ in range(2):
                assert len(load(folder, mode, place)[1]) == 3
        assert fault == "no folder" or list(place.iterdir()) == []

    @pytest.mark.parametrize("mode", MODES)
    def test_a_read_only_folder_is_read(
        self, public: Path, mode: CacheMode, decoded: list[Path]
    ) -> None:
        folder, place = write_folder(public / "images", 3), public / "cache"
        load(folder, "disk", place)
        decoded.clear()
        place.chmod(0o555)
        with ordinary_user():
            samples = read_unlabelled(folder)
            load_pixels(samples, SIZE, mode, place, lambda *_: None)
        assert decoded == []

    @pytest.mark.usefixtures("no_clock_tick")
    def test_files_unused_for_a_month_are_removed(self, tmp_path: Path) -> None:
        place, month = tmp_path / "cache", 31 * 24 * 3600
        old = write_folder(tmp_path / "old", 2)
        used = write_folder(tmp_path / "used", 3, first=2)
        for folder in (old, used):
            load(folder, "disk", place)
        foreign = {place / "notes.npy", place / "sub"}
        (place / "notes.npy").touch()
        (place / "sub").mkdir()
        part = place / f"{'a' * 32}.u8.1f.part"  # of a run that was killed
        part.touch()
        for file in place.iterdir():
            os.utime(file, (time.time() - month,) * 2)
        load(used, "disk", place)
        kept = set(place.iterdir())
        load(write_folder(tmp_path / "new", 4, first=5), "disk", place)
        left = set(place.iterdir())
        assert part in kept
        assert part not in left
        assert foreign < left
        assert sorted(file.stat().st_size for file in left if file.suffix == ".u8") == [
            n * 3 * SIZE**2 + cache_folder._CHECKSUM for n in (3, 4)
        ]
        assert len(left - foreign) == 6

    @pytest.mark.slow
    def test_the_part_of_a_killed_process_is_removed(self, tmp_path: Path) -> None:
        code = (
            "import sys, time; from pathlib import Path; from unida.data.cache import write_whole;"
            "write = lambda file: (file.write(bytes(9)), file.flush(), time.sleep(999));"
            "write_whole(Path(sys.argv[1]), write)"
        )
        name = f"{'a' * 32}.u8"

        def parts() -> list[Path]:
            return [path for path in tmp_path.glob(f"{name}.*") if path.stat().st_size == 9]

        with started([sys.executable, "-c", code, str(tmp_path / name)]) as child:
            wait_for(lambda: len(parts()) == 1, child)
            load(write_folder(tmp_path / "images", 2), "disk", tmp_path)
            assert len(parts()) == 1  # it is still being written
            child.kill()
        load(write_folder(tmp_path / "images", 3), "disk", tmp_path)
        assert not list(tmp_path.glob("*.part"))


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

    @pytest.mark.parametrize("mode", MODES)
    @pytest.mark.parametrize("suffix", [".u8", ".json", ".npy"])
    def test_a_damaged_cache_is_made_again(
        self, tmp_path: Path, suffix: str, mode: CacheMode
    ) -> None:
        folder, cache = write_folder(tmp_path / "images", 3), tmp_path / "cache"
        first = load(folder, "disk", cache)[1].clone()
        (damaged,) = (path for path in cache.iterdir() if path.suffix == suffix)
        whole = damaged.read_bytes()
        damaged.write_bytes(whole[:5])
        assert torch.equal(load(folder, mode, cache)[1], first)
        assert mode == "stream" or damaged.read_bytes() == whole

    @pytest.mark.parametrize("mode", ["memory", "disk"])
    @pytest.mark.parametrize("damage", ["zeros", "a bit", "shorter", "longer"])
    def test_a_file_that_was_damaged_is_made_anew_with_one_notice(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture, mode: CacheMode, damage: str
    ) -> None:
        folder, cache = write_folder(tmp_path / "images", 3), tmp_path / "cache"
        first = load(folder, "disk", cache)[1].clone()
        (file,) = cache.glob("*.u8")
        whole = file.read_bytes()
        other = {
            "zeros": bytes(len(whole)),
            "a bit": whole[:500] + bytes([whole[500] ^ 1]) + whole[501:],
            "shorter": whole[:-17],
            "longer": whole + b"x",
        }
        file.write_bytes(other[damage])
        for _ in range(2):
            assert torch.equal(load(folder, mode, cache)[1], first)
        assert file.read_bytes() == whole
        assert [record.getMessage() for record in caplog.records] == [
            f"{file} of the cache is damaged: it is made anew."
        ]

    def test_a_file_of_an_earlier_version_has_no_checksum(
        self, tmp_path: Path, decoded: list[Path]
    ) -> None:
        folder, cache = write_folder(tmp_path / "images", 3), tmp_path / "cache"
        first = load(folder, "disk", cache)[1].clone()
        (file,) = cache.glob("*.u8")
        os.truncate(file, 3 * 3 * SIZE**2)
        assert torch.equal(load(folder, "disk", cache)[1], first)
        assert len(decoded) == 3

    def test_of_a_large_file_blocks_are_compared(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(cache_folder, "_BLOCK", 10)
        monkeypatch.setattr(cache_folder, "_MAX_BLOCKS", 3)
        file, content = tmp_path / "file", bytes(range(95))
        noticed = []
        for place in range(95):
            cache_folder.write_with_checksum(file, lambda out: out.write(content))
            assert cache_folder.is_whole(file, 95)
            with file.open("r+b") as opened:
                opened.seek(place)
                opened.write(b"\xff")
            noticed += [] if cache_folder.is_whole(file, 95) else [place]
        assert noticed == [*range(10), *range(42, 52), *range(85, 95)]

    def test_a_file_cut_off_while_it_is_in_use_is_an_error(self, tmp_path: Path) -> None:
        folder, cache = write_folder(tmp_path / "images", 3), tmp_path / "cache"
        _, store = load_pixels(read_unlabelled(folder), SIZE, "disk", cache, lambda *_: None)
        (file,) = cache.glob("*.u8")
        os.truncate(file, 5)
        with pytest.raises(UserError, match=r"\.u8 was cut off while it was in use"):
            store.get(torch.arange(3))
        assert isinstance(store, ArrayStore)
        with pytest.raises(UserError, match="cut off"):
            store.to(torch.device("cpu"))
        load(folder, "disk", cache)  # made anew

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
        assert not list(cache.glob("*.u8*"))

    def test_a_disk_full_at_the_last_moment_is_an_error_too(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        folder, cache = write_folder(tmp_path / "images", 2), tmp_path / "cache"
        full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        monkeypatch.setattr(CacheEntry, "write_bad", _raise(full))
        with pytest.raises(UserError, match=r"cache: No space left on device\. Free"):
            load(folder, "disk", cache)
        assert not list(cache.glob("*.u8*"))

    def test_images_changed_while_they_are_decoded_are_an_error_and_not_kept(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        folder, cache = write_folder(tmp_path / "images", 3), tmp_path / "cache"

        def meddle(path: Path, size: int) -> Pixels:
            write_image(path, seed=99)
            return decode_file(path, size)

        monkeypatch.setattr(pixels, "decode_file", meddle)
        with pytest.raises(UserError, match=r"changed while they were read, .*000\.png"):
            load(folder, "disk", cache)
        assert not list(cache.glob("*.u8*"))
        assert not list(cache.glob("*.json"))

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

    def test_what_is_on_the_disk_already_needs_no_room(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        samples = read_unlabelled(write_folder(tmp_path / "images", 3))
        bytes_there = cached_bytes(samples, SIZE, tmp_path / "cache")
        assert bytes_there == 0
        load_pixels(samples, SIZE, "disk", tmp_path / "cache", lambda *_: None)
        bytes_there = cached_bytes(samples, SIZE, tmp_path / "cache")
        assert bytes_there == 3 * 3 * SIZE**2
        usage = shutil._ntuple_diskusage(20 * self.GB, 20 * self.GB, 10)
        monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
        choose = (bytes_there, 1e-12, tmp_path / "cache")
        assert choose_cache("auto", *choose) == "stream"
        assert choose_cache("auto", *choose, lambda: bytes_there) == "disk"

    def test_auto_reports_a_cache_folder_that_cannot_be_made(self, tmp_path: Path) -> None:
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


def test_moving_a_store_keeps_pixels_and_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pixels, "_BLOCK", 30)
    store = ArrayStore(torch.arange(84, dtype=torch.uint8).view(7, 3, 2, 2), "a key")
    moved = store.to(torch.device("cpu"))
    assert torch.equal(moved.array, store.array)
    assert moved.key == "a key"


def test_work_done_in_parallel_keeps_its_order() -> None:
    assert list(in_order(lambda i: i * i, range(1000))) == [i * i for i in range(1000)]
