"""Folders of images, one a label; `unknown/` has the novel categories below it."""

import errno
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from unida.errors import UserError
from unida.exchange.records import RunRecords
from unida.exchange.safe_names import NameTable
from unida.training.run_folder import write_lines
from unida.types import UNKNOWN
from unida.utils.csv_files import csv_lines

MANIFEST = "unida-export.csv"
"""Lies in every exported folder; `--force` replaces a folder that has it, and no other."""


def write_tree(records: RunRecords, to: Path, force: bool = False, copy: bool = False) -> None:
    """Write the images into a folder for each label.

    A label is the corrected one, or else the predicted one. A category of unknown images is
    `unknown/ID`, or `unknown/ID-NAME` where it has a name. The manifest has the file, the image it
    was made of, and its label.

    Args:
        records: of the run.
        to: the folder.
        force: replace a folder of an earlier export.
        copy: copy the images. A hard link takes no space, but who changes it changes the image.
    """
    if lost := next((path for path in records.paths if not os.path.isfile(path)), None):
        raise UserError(f"{lost} is not there: a folder tree needs the images of the run.")
    folders = _folders(records)
    places = set(folders.values())
    names = {
        folder: NameTable(below.name for below in places if below.parent == folder)
        for folder in places
    }
    rows = []
    with new_folder(to, force) as made:
        for folder in places:
            (made / folder).mkdir(parents=True, exist_ok=True)
        final = zip(records.paths, records.final_labels, records.final_categories, strict=True)
        for path, label, category in final:
            folder = folders[label, category]
            file = folder / names[folder].add(os.path.basename(path))
            place_image(path, made / file, copy)
            rows.append((file.as_posix(), path, label, category))
        write_lines(made / MANIFEST, csv_lines(("file", "path", "label", "category"), rows))


def _folders(records: RunRecords) -> dict[tuple[str, str], Path]:
    """Return the folder of each label and category in use."""
    used = dict.fromkeys(zip(records.final_labels, records.final_categories, strict=True))
    top, below = NameTable([UNKNOWN, MANIFEST]), NameTable()
    labels = sorted({label for label, _ in used} - {UNKNOWN})
    folders = {label: Path(top.add(label)) for label in labels}
    folders[UNKNOWN] = Path(UNKNOWN)
    found = {(label, category): folders[label] for label, category in used}
    for label, category in sorted(found):
        if category:
            name = records.category_names.get(category)
            title = below.add(f"{category}-{name}" if name else category)
            found[label, category] = folders[label] / title
    return found


def place_image(path: str, to: Path, copy: bool) -> None:
    """Link an image, or copy it where that is wanted or links are not possible."""
    real = os.path.realpath(path)  # a link to the file, not to a link
    try:
        if not copy:
            os.link(real, to)
            return
    except OSError as error:
        if error.errno not in (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP):
            raise UserError(f"{path} cannot be linked: {error.strerror}.") from None
    try:
        shutil.copyfile(real, to)
    except OSError as error:
        raise UserError(f"{path} cannot be copied: {error.strerror}.") from None


@contextmanager
def new_folder(to: Path, force: bool) -> Iterator[Path]:
    """Make a folder under a temporary name and rename it when it is whole.

    Args:
        to: its name. A folder that is there must be empty, or with `force` of an earlier export.
        force: replace it.
    """
    to = Path(os.path.abspath(to))
    earlier = _check_free(to, force)
    part = to.with_name(f".{to.name}.{secrets.token_hex(4)}.part")
    try:
        part.mkdir()
        yield part
        (part / MANIFEST).touch()
        if earlier:
            old = part.with_suffix(".old")
            to.rename(old)
            try:
                part.rename(to)
            except OSError:
                old.rename(to)
                raise
            shutil.rmtree(old)
        else:
            part.rename(to)
    except OSError as error:
        raise UserError(f"{to} cannot be written: {error.strerror}.") from error
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _check_free(to: Path, force: bool) -> bool:
    """Refuse a place that is in use; return whether an earlier export is to be replaced."""
    if not os.path.lexists(to):
        return False
    if to.is_symlink() or not to.is_dir():
        raise UserError(f"{to} is there already and is no folder: name another.")
    if not any(to.iterdir()):
        return False
    if not (to / MANIFEST).is_file():
        raise UserError(f"{to} is there already and was not exported by unida: name another.")
    if not force:
        raise UserError(f"{to} is there already: --force replaces it.")
    return True
