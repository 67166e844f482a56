"""`unida import-corrections`: labels that a person gave in another tool, as corrections of a run.

They go into the file that `unida review` writes. The names of images are only compared with those
of the run: no file that an import names is opened.
"""

import csv
import dataclasses
import io
import json
import os
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote_to_bytes, urlsplit

from unida.errors import UserError
from unida.exchange.fiftyone import LABELS, labels_of_fiftyone
from unida.exchange.label_studio import CHOICES, IMAGE, LOCAL_FILES, labels_of_tasks
from unida.review.corrections import (
    ConflictError,
    Corrections,
    CorrectionStore,
    parse_corrections,
    read_review_target,
)
from unida.training.predictions import read_predictions
from unida.utils.csv_files import from_cell
from unida.utils.files import read_file

PATH_COLUMNS = ("path", IMAGE)
"""Columns of a CSV that are read as paths, the first one that is there."""


@dataclass(frozen=True)
class Imported:
    """What an import has changed.

    Attributes:
        corrections: in force now.
        new: labels of images that had none.
        replaced: labels that took the place of another one.
        same: labels that were there already.
        unchanged: labels that equal the prediction, whether they were taken or left out.
    """

    corrections: Corrections
    new: int
    replaced: int
    same: int
    unchanged: int


def import_corrections(
    run: str | Path, file: str | Path, *, force: bool = False, changed_only: bool = False
) -> Imported:
    """Add the labels of a file to the corrections of a finished run.

    Args:
        run: folder of the run.
        file: a CSV with the columns `path` and `label`; an export of Label Studio (JSON, JSON-MIN
            or CSV); or `labels.json` of a `FiftyOneImageClassificationDataset`, or its folder.
        force: a label replaces another one that was given before; otherwise that is an error.
        changed_only: leave out labels that equal the prediction: nobody may have looked at them.
    """
    store = CorrectionStore(read_review_target(run))
    target, place = store.target, Path(file)
    table = read_predictions(target.run.predictions)
    predicted = dict(zip(table.paths, table.labels, strict=True))
    labels = _match(read_labels(place), table.paths, place)
    labels = parse_corrections({"labels": labels}, target).labels  # normalized, none is empty
    unchanged = sum(predicted[path] == label for path, label in labels.items())
    if changed_only:
        labels = {path: label for path, label in labels.items() if predicted[path] != label}
    if not labels:
        raise UserError(f"{place} has no label that is to be imported.")
    before = store.read()
    other = [path for path in labels if before.labels.get(path, labels[path]) != labels[path]]
    if other and not force:
        path = other[0]
        raise UserError(
            f"{path} was corrected to {before.labels[path]!r} before, {place} says "
            f"{labels[path]!r}: --force takes the new label"
            + (f" (of {len(other)} such images)." if len(other) > 1 else ".")
        )
    after = _save(store, before, labels)
    same = sum(before.labels.get(path) == label for path, label in labels.items())
    return Imported(after, len(labels) - same - len(other), len(other), same, unchanged)


def _save(store: CorrectionStore, before: Corrections, labels: dict[str, str]) -> Corrections:
    """Save the labels on top of those before; a change in between is a conflict."""
    base = dataclasses.asdict(before)
    try:
        return store.save(base | {"labels": before.labels | labels, "base": base})
    except ConflictError as error:
        raise UserError(f"{error} Import again.") from None


def read_labels(file: Path) -> list[tuple[str, str]]:
    """Return the name of each image in an export, and the label it was given."""
    try:
        if file.is_dir():
            file = file / LABELS
        text = read_file(file, pipe=True).decode("utf-8-sig", "surrogateescape")
    except OSError as error:
        raise UserError(f"{file} cannot be read: {error.strerror}.") from None
    start = text.lstrip()[:1]
    if file.suffix.lower() != ".csv" and start in ("[", "{"):
        content = _parse(text, file)
        if isinstance(content, list):
            return labels_of_tasks(content)
        if "labels" not in content:
            raise UserError(f"{file} is no list of tasks and has no 'labels': export it again.")
        return labels_of_fiftyone(content)
    return _labels_of_csv(text, file)


def _labels_of_csv(text: str, file: Path) -> list[tuple[str, str]]:
    """Read a CSV of anyone, or of Label Studio; a row without a label is left out."""
    try:
        reader = csv.DictReader(io.StringIO(text, newline=""))
        rows, columns = list(reader), list(reader.fieldnames or [])
    except csv.Error as error:
        raise UserError(f"{file} is no CSV: {error}.") from None
    path = next((name for name in PATH_COLUMNS if name in columns), None)
    label = next((name for name in CHOICES if name in columns), None)
    if path is None or label is None:
        raise UserError(f"{file} has the columns {columns}; 'path' and 'label' are needed.")
    pairs = ((from_cell(row[path] or ""), from_cell(row[label] or "").strip()) for row in rows)
    found = [(name, given) for name, given in pairs if given]
    for name, given in found:
        if given.startswith('{"choices"'):  # Label Studio's way to write several
            raise UserError(f"{file} gives {name} several labels: keep one.")
    return found


def _match(found: Iterable[tuple[str, str]], paths: list[str], file: Path) -> dict[str, str]:
    """Return the label by path of the run; refuse images that are unknown or have two labels."""
    images, labels = ImageNames(paths), dict[str, str]()
    for name, label in found:
        path = images.find(name, file)
        if labels.setdefault(path, label) != label:
            raise UserError(f"{file} calls {path} both {labels[path]!r} and {label!r}: keep one.")
    return labels


class ImageNames:
    """The images of a run by the names that other tools give them.

    A name is a path as the run has it, an absolute path, a file URL, or the address of a local file
    in Label Studio. Failing that, it is the end of a path, with or without its extension, if only
    one image's path ends like that.
    """

    def __init__(self, paths: list[str]) -> None:
        self.exact = {os.path.abspath(path): path for path in paths} | {p: p for p in paths}
        self.by_name: dict[str, list[PurePosixPath]] = defaultdict(list)
        self.paths: dict[PurePosixPath, list[str]] = defaultdict(list)
        for path in paths:
            parts = PurePosixPath(Path(os.path.abspath(path)).as_posix())
            self.paths[parts].append(path)
            for name in {parts.name, parts.stem}:
                self.by_name[name].append(parts)

    def find(self, name: str, file: Path) -> str:
        """Return the path of the image that is called `name` in `file`."""
        if path := self.exact.get(name):
            return path
        plain = plain_path(name)
        if path := self.exact.get(plain):
            return path
        wanted = PurePosixPath(plain)
        ends = () if wanted.is_absolute() else wanted.parts
        matches = [
            path
            for parts in self.by_name.get(wanted.name, [])
            if ends and _ends_with(parts, ends)
            for path in self.paths[parts]
        ]
        if len(matches) == 1:
            return matches[0]
        if matches:
            raise UserError(
                f"{file} has {name!r}, which may be {matches[0]} or {matches[1]}: give whole paths."
            )
        raise UserError(f"{file} has {name!r}, which is no target image of this run.")


def plain_path(name: str) -> str:
    """Return the path in a file URL or in the address of a local file; others as they are.

    >>> [plain_path(name) for name in ("file:///a/b%20c.png", "/data/local-files/?d=b/c.png", "x")]
    ['/a/b c.png', 'b/c.png', 'x']
    """
    try:
        url = urlsplit(name)
    except ValueError:
        return name
    if url.scheme == "file" and url.netloc in ("", "localhost"):
        return os.fsdecode(unquote_to_bytes(url.path))
    if LOCAL_FILES in name:
        return os.fsdecode(unquote_to_bytes(name.partition(LOCAL_FILES)[2]))
    return name


def _ends_with(parts: PurePosixPath, ends: tuple[str, ...]) -> bool:
    """Whether a path ends like that; the last part may lack its extension."""
    n = len(ends)
    last = ends[-1] in (parts.name, parts.stem)
    return n <= len(parts.parts) and last and parts.parts[-n:-1] == ends[:-1]


def _parse(text: str, file: Path) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{file} is no JSON: {error}.") from None
