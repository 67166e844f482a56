"""`unida export-predictions`: the predictions of a run for other tools."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from unida.cli.parser import Command
from unida.errors import UserError
from unida.utils.logs import logger


@dataclass(frozen=True)
class ExportPredictions(Command):
    """Write the predictions of a run for another tool.

    Example: unida export-predictions runs/first --to predictions.parquet
    """

    run: Annotated[Path, tyro.conf.Positional]
    """Folder of a finished run."""
    to: Path | None = None
    """File to write; a folder for fiftyone and folders."""
    format: (
        Literal["parquet", "fiftyone", "label-studio", "coco", "folders", "cleanlab", "csv"] | None
    ) = None
    """By default what the ending says: .parquet, .csv, or .npz for cleanlab."""
    force: bool = False
    """Replace what is there; a folder only if it is of an earlier export."""
    budget: int | None = None
    """With label-studio: only so many images, drawn at random from those without a correction."""
    copy: bool = False
    """With folders: copy the images instead of making hard links."""
    image_url: str = "/data/local-files/?d="
    """With label-studio: beginning of an image's address."""
    image_root: Path | None = None
    """With label-studio: the folder that the rest of the address is relative to; by default the one
    that all images are in."""

    def execute(self) -> None:
        """Write the file or folder."""
        from unida.exchange.export import export_predictions

        if self.to is None:
            raise UserError("Name the file or folder to write with --to.")
        written = export_predictions(
            self.run,
            self.to,
            self.format,
            force=self.force,
            budget=self.budget,
            copy=self.copy,
            image_url=self.image_url,
            image_root=self.image_root,
        )
        note = f"; {written.note}" if written.note else ""
        logger.info("%s holds %d images as %s%s.", self.to, written.images, written.format, note)
