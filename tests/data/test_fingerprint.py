"""What changes the fingerprint of a run's images, and what does not."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.images import write_classes, write_folder
from unida.config import RunConfig
from unida.data.fingerprint import fingerprint
from unida.data.in_memory import InMemory
from unida.data.samples import read_labelled, read_unlabelled


def changed(root: Path, change: Callable[[Path], object], source: str = "source") -> set[str]:
    """What differs after a change of the images below `root`."""

    def found() -> dict[str, str]:
        places = {"source": str(root / source), "target": str(root / "target")}
        config = RunConfig.from_flat(image_size=8, cache_dir=str(root / "cache"), **places)
        samples = {
            "source": read_labelled(places["source"]),
            "target": read_unlabelled(places["target"]),
        }
        return fingerprint(config, {name: InMemory(one) for name, one in samples.items()})

    before = found()
    change(root)
    after = found()
    assert before.keys() == after.keys()
    return {name for name in before if before[name] != after[name]}


def swap(one: Path, other: Path) -> None:
    between = one.with_name("between")
    one.rename(between)
    other.rename(one)
    between.rename(other)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Folders in which names do not tell: each class has its own 000.png."""
    for first, name in ((0, "ant"), (10, "bee")):
        folder = write_folder(tmp_path / "source" / name, 2, first)
        for number, path in enumerate(sorted(folder.iterdir())):
            path.rename(folder / f"{number}.bmp")
    write_classes(tmp_path / "target", {"a": 2, "b": 2})
    lines = [f"source/{k}/{i}.bmp {k}\n" for k in ("ant", "bee") for i in (0, 1)]
    (tmp_path / "list.txt").write_text("".join(lines))
    return tmp_path


def test_class_folders_swapped(root: Path) -> None:
    found = changed(root, lambda _: swap(root / "source" / "ant", root / "source" / "bee"))
    assert found == {"contents of the source"}


def test_a_class_renamed(root: Path) -> None:
    found = changed(root, lambda _: (root / "source" / "ant").rename(root / "source" / "asp"))
    assert found == {"classes of the source", "paths of the source"}


def test_a_target_folder_renamed(root: Path) -> None:
    found = changed(root, lambda _: (root / "target" / "b").rename(root / "target" / "c"))
    assert found == {"paths of the target"}


def test_labels_of_a_list(root: Path) -> None:
    lines = [f"source/{k}/{i}.bmp {k}\n" for k in ("ant", "bee") for i in (0, 1)]

    def exchange(_: Path) -> None:
        other = [line.replace(" ant", " x").replace(" bee", " ant") for line in lines]
        (root / "list.txt").write_text("".join(other).replace(" x", " bee"))

    assert changed(root, exchange, source="list.txt") == {"labels of the source"}


def test_dates_and_other_files_do_not_matter(root: Path) -> None:
    def touch(_: Path) -> None:
        for path in root.rglob("*.bmp"):
            os.utime(path, (5, 5))
        (root / "source" / "notes.txt").touch()

    assert changed(root, touch) == set()
