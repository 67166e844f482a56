"""Image paths and labels from class folders, plain folders, list files, CSV and tables."""

import csv
import io
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from unida.data.tables import as_path, is_table, read_columns
from unida.errors import UserError
from unida.types import UNKNOWN, IntArray
from unida.utils.csv_files import from_cell
from unida.utils.files import read_file
from unida.utils.lookalikes import describe_clash, look_of

IMAGE_SUFFIXES = frozenset(
    {".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm"}
    | {".pgm", ".pnm", ".avif", ".jp2", ".tga", ".heic", ".heif", ".jxl"}
)
"""Files taken for images; one that Pillow cannot read is left out and noted as skipped."""


@dataclass(frozen=True)
class Skipped:
    """An image that was left out, and why."""

    path: Path
    reason: str


@dataclass(frozen=True)
class Samples:
    """Images of one domain.

    Attributes:
        paths: one an image.
        labels: index into `classes`, one an image; None where the images have no labels.
        classes: the class names; empty where the images have no labels.
        skipped: what was found and left out.
    """

    paths: tuple[Path, ...]
    labels: IntArray | None = None
    classes: tuple[str, ...] = ()
    skipped: tuple[Skipped, ...] = field(default=())

    def __len__(self) -> int:
        return len(self.paths)

    def keep(self, index: IntArray, skipped: Iterable[Skipped]) -> "Samples":
        """Return the samples at `index`, with more skipped ones noted."""
        labels = None if self.labels is None else self.labels[index]
        paths = tuple(self.paths[i] for i in index)
        return Samples(paths, labels, self.classes, (*self.skipped, *skipped))


def read_source(place: str | Path) -> Samples:
    """Read labelled images to train on: at least two classes that do not look alike."""
    samples = read_labelled(place)
    _check_classes(samples.classes, place)
    return samples


def read_labelled(place: str | Path) -> Samples:
    """Read labelled images: a folder with one sub-folder a class, a list file, CSV or table."""
    place = _existing(place)
    skipped: list[Skipped] = []
    if place.is_dir():
        pairs, skipped = _class_folders(place)
    elif is_table(place):
        pairs = labelled_rows(place, *read_columns(place))
    else:
        pairs = _read_rows(place, labelled=True)
    if not pairs and not place.is_dir():
        raise UserError(f"{place} lists no image.")
    if not pairs:
        raise UserError(
            f"{place} holds no image in a class folder: one sub-folder a class is needed."
        )
    _check_one_label(pairs, place)
    return _from_pairs(pairs, skipped)


def read_images(place: str | Path) -> Samples:
    """Read images with their labels where every image has one, and without labels elsewhere."""
    place = _existing(place)
    pairs: list[tuple[Path, str]] = []
    skipped: list[Skipped] = []
    if place.is_dir():
        pairs, skipped = _class_folders(place)
    elif place.suffix.lower() not in IMAGE_SUFFIXES:
        pairs = _read_rows(place, labelled=False)
    has_labels = all(label for _, label in pairs)
    outside = any(one.path.suffix.lower() in IMAGE_SUFFIXES for one in skipped)
    if not pairs or not has_labels or outside:
        return read_unlabelled(place)
    _check_one_label(pairs, place)
    return _from_pairs(pairs, skipped)


def labelled_rows(
    place: Path, paths: tuple[str, ...], labels: tuple[str, ...] | None
) -> list[tuple[Path, str]]:
    """Return path and label of every row of a table; a row without a label is an error."""
    if labels is None:
        raise UserError(f"{place} has no labels: a column label is needed, one in each row.")
    if "" in labels:
        row = labels.index("")
        raise UserError(f"{place}, row {row + 1}: {paths[row]} has no label.")
    return [(as_path(path), label) for path, label in zip(paths, labels, strict=True)]


def _from_pairs(pairs: list[tuple[Path, str]], skipped: Iterable[Skipped]) -> Samples:
    names = sorted({name for _, name in pairs})
    number = {name: i for i, name in enumerate(names)}
    labels = np.array([number[name] for _, name in pairs], dtype=np.int64)
    return Samples(tuple(path for path, _ in pairs), labels, tuple(names), tuple(skipped))


def _check_one_label(pairs: list[tuple[Path, str]], place: Path) -> None:
    found: dict[Path, str] = {}
    for path, name in pairs:
        if found.setdefault(path, name) != name:
            raise UserError(f"{place} calls {path} both {found[path]!r} and {name!r}: keep one.")


def read_unlabelled(place: str | Path) -> Samples:
    """Read images without labels: any folder tree, one image, a list file, CSV or table."""
    place = _existing(place)
    if place.is_dir():
        paths = list(_images_below(place))
    elif is_table(place):
        paths = [as_path(path) for path in read_columns(place)[0]]
    elif place.suffix.lower() in IMAGE_SUFFIXES:
        paths = [place]
    else:
        paths = [path for path, _ in _read_rows(place, labelled=False)]
    if not paths:
        known = ", ".join(sorted(IMAGE_SUFFIXES))
        raise UserError(f"{place} holds no image: files ending in {known} are looked for.")
    return Samples(tuple(paths))


def _existing(place: str | Path) -> Path:
    if not str(place):
        raise UserError("No folder was given: name one with images in it.")
    place = Path(place)
    try:
        exists = place.exists()
    except OSError as error:
        raise UserError(f"{place} cannot be read: {error.strerror}.") from None
    if not exists:
        raise UserError(f"{place} does not exist.")
    return place


def _images_below(folder: Path) -> Iterable[Path]:
    """List every image file below a folder, in a fixed order; hidden ones are left out.

    Links to folders are followed, each folder is visited once.
    """
    visited = set()

    def unreadable(error: OSError) -> None:
        raise UserError(f"{error.filename} cannot be read: {error.strerror}.")

    for root, folders, files in os.walk(folder, onerror=unreadable, followlinks=True):
        real = os.path.realpath(root)
        if real in visited:
            folders.clear()
            continue
        visited.add(real)
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(files):
            if not name.startswith(".") and Path(name).suffix.lower() in IMAGE_SUFFIXES:
                yield Path(root, name)


def _class_folders(root: Path) -> tuple[list[tuple[Path, str]], list[Skipped]]:
    try:
        entries = sorted(entry for entry in root.iterdir() if not entry.name.startswith("."))
        folders = [entry for entry in entries if entry.is_dir()]
    except OSError as error:
        raise UserError(f"{root} cannot be read: {error.strerror}.") from None
    pairs = [(path, folder.name) for folder in folders for path in _images_below(folder)]
    empty = set(folders) - {root / name for _, name in pairs}
    loose = [entry for entry in entries if entry.suffix.lower() in IMAGE_SUFFIXES]
    skipped = [Skipped(entry, "outside any class folder") for entry in loose if entry.is_file()]
    skipped += [Skipped(folder, "a class folder without images") for folder in sorted(empty)]
    return pairs, skipped


def _read_rows(place: Path, labelled: bool) -> list[tuple[Path, str]]:
    """Read the rows of a CSV (columns path and label) or a list file (`path label` a line)."""
    try:
        text = read_file(place, pipe=True).decode("utf-8-sig", "surrogateescape")
    except OSError as error:
        raise UserError(f"{place} cannot be read: {error.strerror}.") from None
    if "\0" in text:
        raise UserError(f"{place} is neither a folder, a list of images nor a CSV.")
    rows = (_csv_rows if place.suffix.lower() == ".csv" else _list_rows)(place, text, labelled)
    return [(_rooted(place, name), label) for name, label in rows]


def _csv_rows(place: Path, text: str, labelled: bool) -> list[tuple[str, str]]:
    reader = csv.DictReader(io.StringIO(text, newline=""))
    needed = ("path", "label") if labelled else ("path",)
    rows = []
    try:
        columns = reader.fieldnames or []
        for need in needed:
            if need not in columns:
                raise UserError(f"{place} has no column {need!r}; its columns are {list(columns)}.")
        for row in reader:
            for need in needed:
                if not (row[need] or "").strip():
                    raise UserError(f"{place}, line {reader.line_num}: the {need} is missing.")
            rows.append((from_cell(row["path"]), from_cell(row.get("label") or "").strip()))
    except csv.Error as error:
        raise UserError(f"{place}, after line {reader.line_num}: {error}.") from None
    return rows


def _list_rows(place: Path, text: str, labelled: bool) -> list[tuple[str, str]]:
    rows = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        name, gap, label = line.strip().rpartition(" ")
        has_label = bool(gap) and Path(name).suffix.lower() in IMAGE_SUFFIXES
        if labelled and not has_label:
            raise UserError(f"{place}, line {number}: 'path label' is expected, found {line!r}.")
        rows.append((name, label) if has_label else (line.strip(), ""))
    return rows


def _rooted(place: Path, name: str) -> Path:
    """Resolve a path of a list: it is relative to the list's folder."""
    return Path(name) if os.path.isabs(name) else place.parent / name


def _check_classes(names: tuple[str, ...], place: str | Path) -> None:
    if len(names) < 2:
        raise UserError(
            f"{place} has one class, {names[0]!r}: two or more are needed to tell apart."
        )
    if unknown := [name for name in names if look_of(name) == UNKNOWN]:
        raise UserError(
            f"{place} has a class called {unknown[0]!a}, the word for 'none': rename it."
        )
    if clash := describe_clash(names):
        raise UserError(f"{place} has classes that {clash}: rename them.")
