"""`unida export-predictions`: the predictions of a run in the formats of other tools."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from unida.errors import UserError, require, require_known
from unida.exchange.fiftyone import write_fiftyone
from unida.exchange.label_studio import LOCAL_FILES, write_label_studio
from unida.exchange.records import RunRecords, read_records
from unida.exchange.tables import write_cleanlab, write_coco, write_csv, write_parquet
from unida.exchange.trees import write_tree
from unida.review.budget import choose_images
from unida.training.run_folder import require_writable
from unida.utils.logs import logger

Format = Literal["parquet", "fiftyone", "label-studio", "coco", "folders", "cleanlab", "csv"]
FORMATS: tuple[Format, ...] = get_args(Format)
SUFFIXES: dict[str, Format] = {".parquet": "parquet", ".csv": "csv", ".npz": "cleanlab"}
"""Endings that name a format; others need `--format`."""

_TABLES: dict[str, Callable[[RunRecords, Path], None]] = {
    "parquet": write_parquet,
    "csv": write_csv,
    "cleanlab": write_cleanlab,
    "coco": write_coco,
}


@dataclass(frozen=True)
class Exported:
    """What was written.

    Attributes:
        to: the file or folder.
        format: of it.
        images: how many it has.
        note: what its user must know; may be empty.
    """

    to: Path
    format: Format
    images: int
    note: str = ""


def export_predictions(
    run: str | Path,
    to: str | Path,
    format: Format | None = None,
    *,
    force: bool = False,
    budget: int | None = None,
    copy: bool = False,
    image_url: str = LOCAL_FILES,
    image_root: str | Path | None = None,
) -> Exported:
    """Write the predictions of a finished run for another tool.

    Args:
        run: folder of the run.
        to: file to write; a folder for `fiftyone` and `folders`.
        format: by default the one that the ending of `to` stands for.
        force: replace what is there. A folder is replaced only if it is of an earlier export.
        budget: write only so many images, drawn by `choose_images`; of `label-studio`.
        copy: copy images instead of making hard links; of `folders`.
        image_url: beginning of an image's address; of `label-studio`.
        image_root: folder that the rest of the address is relative to; of `label-studio`.
    """
    to = Path(to)
    format = format or guess_format(to)
    require_known(format, FORMATS, "format")
    others = {"budget": budget, "image_root": image_root, "image_url": image_url != LOCAL_FILES}
    for name, value in others.items():
        require(not value or format == "label-studio", name, value, "with label-studio only")
    require(not copy or format == "folders", "copy", copy, "with folders only")
    is_folder = format in ("fiftyone", "folders")
    if not is_folder:
        files = [to, to.with_suffix(".xml")] if format == "label-studio" else [to]
        for file in files:
            _require_free(file, force)
    first = choose_images(run, budget) if budget is not None else None
    records, note = read_records(run), ""
    if format == "folders":
        write_tree(records, to, force, copy)
    elif format == "fiftyone":
        write_fiftyone(records, to, force)
    elif format == "label-studio":
        root = write_label_studio(records, to, first, image_url, image_root)
        note = f"the labelling configuration is {to.with_suffix('.xml')}"
        if image_url == LOCAL_FILES:
            note += (
                f"; Label Studio shows the images of LABEL_STUDIO_LOCAL_FILES_DOCUMENT_ROOT={root}"
            )
    else:
        _TABLES[format](records, to)
    if format == "parquet" and records.probabilities is None:
        logger.warning("The run has no probabilities.npz: the column is left out.")
    return Exported(to, format, len(records) if first is None else len(first), note)


def guess_format(to: Path) -> Format:
    """Return the format that the ending of a file stands for."""
    if found := SUFFIXES.get(to.suffix.lower()):
        return found
    raise UserError(
        f"The ending of {to} names no format ({', '.join(SUFFIXES)} do): give --format, one of "
        f"{', '.join(FORMATS)}."
    )


def _require_free(file: Path, force: bool) -> None:
    """Refuse a file that is there, or that cannot be written."""
    if os.path.lexists(file) and not force:
        raise UserError(f"{file} is there already: --force replaces it.")
    require_writable(file)
