"""Readers of the image lists that other projects publish, for a local copy of the images.

All of them have a line `path number` an image and differ in what the path begins with:

    OVANet, SAN   data/office/amazon/images/back_pack/frame_0001.jpg 0
                  ../DANCE/data/Real/Curtains/00066.jpg 14
    UniOT, TLlib  amazon/images/back_pack/frame_0001.jpg 0
    DCC           RealWorld/Webcam/00007.jpg 64
    GLC           back_pack/frame_0001.jpg 0     in Amazon/image_unida_list.txt

So a path is read from its end: the file, the folder of its class, and before it folders, of which
the longest end that exists is used. The number differs between projects; the class is the folder.
"""

import functools
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np

from unida.data.samples import Samples
from unida.errors import UserError, shorten
from unida.protocols.names import key_of
from unida.protocols.sets import folder_names
from unida.utils.files import read_file

EXAMPLES = 5
"""Lines from which the folder of the images is decided."""

Prefix = tuple[str, ...]


@dataclass(frozen=True)
class ListLine:
    """One image of a list.

    Attributes:
        listed: the path as listed.
        prefix: folders before the one of the class.
        label: folder of the class.
        file: name of the file.
        number: that of the class in this project.
    """

    listed: str
    prefix: Prefix
    label: str
    file: str
    number: int


def read_list(path: str | Path, root: str | Path, domain: str | None = None) -> Samples:
    """Read the images that a list names, wherever below `root` they are.

    Args:
        path: the list.
        root: folder of the data set, or of the one domain.
        domain: folder below `root` for lists that name none (GLC's); by default the name of the
            list's own folder, then that of the list.

    Returns:
        Samples with the names of the class folders, as listed, in the order of the list.
    """
    path, root = Path(path), Path(root)
    lines = _lines(path)
    _check_numbers(path, lines)
    hints = (domain,) if domain else (path.parent.resolve().name, path.stem)
    find = _Finder(root, hints, lines)
    found = [find.image(line) for line in lines]
    missing = [line.listed for line, image in zip(lines, found, strict=True) if image is None]
    if missing:
        raise UserError(
            f"{len(missing)} of the {len(lines)} files in {path} are not below {root}, "
            f"such as {missing[0]}."
        )
    classes = sorted({line.label for line in lines})
    number = {name: i for i, name in enumerate(classes)}
    labels = np.array([number[line.label] for line in lines], dtype=np.int64)
    return Samples(tuple(image for image in found if image), labels, tuple(classes))


def _lines(path: Path) -> list[ListLine]:
    try:
        text = read_file(path, pipe=True).decode("utf-8-sig", "surrogateescape")
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}.") from None
    lines = [
        _line(path, i, line.strip()) for i, line in enumerate(text.split("\n"), 1) if line.strip()
    ]
    if not lines:
        raise UserError(f"{path} lists no image.")
    return lines


def _line(path: Path, i: int, text: str) -> ListLine:
    match = re.fullmatch(r"(.+\S)\s+([0-9]+)", text)
    if not match:
        raise UserError(f"{path}, line {i}: 'path number' is expected, found {text!r}.")
    listed = match[1]
    # What leads upwards is dropped, so no line can reach outside the root.
    parts = [p for p in PurePosixPath(listed).parts if p not in ("/", "//", ".", "..")]
    if len(parts) < 2:
        raise UserError(f"{path}, line {i}: {listed!r} has no folder, so no class.")
    return ListLine(listed, tuple(parts[:-2]), parts[-2], parts[-1], int(match[2]))


def _check_numbers(path: Path, lines: list[ListLine]) -> None:
    """Check that class and number correspond; the last number may be that of all unknowns."""
    pairs = sorted({(line.number, line.label) for line in lines})
    numbers: dict[str, list[str]] = {}
    labels: dict[int, list[str]] = {}
    for number, label in pairs:
        numbers.setdefault(label, []).append(str(number))
        labels.setdefault(number, []).append(label)
    for label, several in numbers.items():
        if len(several) > 1:
            raise UserError(f"{path} gives the folder {label} {len(several)} numbers: "
                            f"{shorten(several)}.")  # fmt: skip
    for number, several in labels.items():
        if len(several) > 1 and number != max(labels):
            raise UserError(
                f"{path} gives the number {number} to {len(several)} folders "
                f"({shorten(several)}): only the highest, which is 'unknown', may have more."
            )


class _Finder:
    """Finds the images of a list; their folder is decided once for each prefix of its paths."""

    def __init__(self, root: Path, hints: tuple[str, ...], lines: list[ListLine]) -> None:
        self.root, self.hints = root, hints
        self.listings: dict[Path, frozenset[str]] = {}
        self.class_folders: dict[Path, list[Path]] = {}
        examples: dict[Prefix, list[ListLine]] = {}
        for line in lines:
            first = examples.setdefault(line.prefix, [])
            if len(first) < EXAMPLES:
                first.append(line)
        self.bases = {prefix: self._decide(prefix, first) for prefix, first in examples.items()}

    def image(self, line: ListLine) -> Path | None:
        """Find the image of a line."""
        base = self.bases[line.prefix]
        return None if base is None else self._image_in(base, line)

    def _decide(self, prefix: Prefix, examples: list[ListLine]) -> Path | None:
        """Find the folder of the class folders: the longest end of the prefix that exists."""
        cuts = [(prefix[:i], prefix[i:]) for i in range(len(prefix) + 1)]
        cuts += [((), (hint,)) for hint in self.hints]
        for left_out, end in cuts:
            if self._is_of_another_domain(left_out if prefix or end else self.hints[:1]):
                continue
            for place in self._paths(self.root, end):
                if any(self._image_in(place, line) for line in examples):
                    return place
        return None

    def _is_of_another_domain(self, left_out: Prefix) -> bool:
        """Return whether the root is the folder of one domain and the list is of another.

        All domains have the same classes, often the same file names, so images would be found.
        """
        root = self.root.resolve()
        here = root.parent.name if key_of(root.name) == "images" else root.name
        meant = {group for name in left_out for group in folder_keys() if key_of(name) in group}
        own = {group for group in folder_keys() if key_of(here) in group}
        return bool(meant and own) and not meant & own

    def _paths(self, folder: Path, names: Prefix) -> Iterator[Path]:
        """List the folders that the names lead to, in any spelling, with or without `images`."""
        if not names:
            yield folder
            yield from self._named(folder, "images")
            return
        for child in self._named(folder, names[0]):
            yield from self._paths(child, names[1:])
        if names == ("images",):
            yield folder

    def _named(self, folder: Path, name: str) -> list[Path]:
        """List folders inside `folder` of that name: exact, loose, or a domain's other name."""
        key = key_of(name)
        ranks = {other: 2 for group in folder_keys() if key in group for other in group}
        ranks |= {key: 1}
        found = [
            (0 if entry == name else ranks[key_of(entry)], entry)
            for entry in self._listing(folder)
            if key_of(entry) in ranks
        ]
        return [folder / entry for _, entry in sorted(found) if (folder / entry).is_dir()]

    def _image_in(self, base: Path, line: ListLine) -> Path | None:
        for folder in self._class_folders(base, line.label):
            if line.file in self._listing(folder):
                return folder / line.file
        return None

    def _class_folders(self, base: Path, label: str) -> list[Path]:
        place = base / label
        if place not in self.class_folders:
            entries = self._listing(base)
            similar = sorted(entry for entry in entries if key_of(entry) == key_of(label))
            self.class_folders[place] = [
                base / e for e in ([label] if label in entries else similar)
            ]
        return self.class_folders[place]

    def _listing(self, folder: Path) -> frozenset[str]:
        """Read the names inside a folder, once; none where it is no folder."""
        if folder not in self.listings:
            try:
                self.listings[folder] = frozenset(os.listdir(folder))
            except OSError:
                self.listings[folder] = frozenset()
        return self.listings[folder]


@functools.cache
def folder_keys() -> tuple[frozenset[str], ...]:
    """List the names of each built-in domain's folder, loosely spelt."""
    return tuple(frozenset(map(key_of, names)) for names in folder_names())
