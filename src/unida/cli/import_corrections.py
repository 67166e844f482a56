"""`unida import-corrections`: labels that were given in another tool."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from unida.cli.parser import Command
from unida.utils.logs import logger


@dataclass(frozen=True)
class ImportCorrections(Command):
    """Take over labels from Label Studio, FiftyOne or a CSV.

    Example: unida import-corrections runs/first labelled.json
    """

    run: Annotated[Path, tyro.conf.Positional]
    """Folder of a finished run."""
    file: Annotated[Path, tyro.conf.Positional]
    """CSV with the columns path and label, export of Label Studio (JSON, JSON-MIN or CSV), or
    labels.json of FiftyOne or its folder."""
    force: bool = False
    """A label replaces another one that was given before."""
    changed_only: bool = False
    """Leave out labels that equal the prediction."""

    def execute(self) -> None:
        """Read the labels and save them as corrections."""
        from unida.exchange.corrections import import_corrections

        done = import_corrections(
            self.run, self.file, force=self.force, changed_only=self.changed_only
        )
        logger.info(
            "Corrected labels: %d new, %d replaced, %d there already. Continue with "
            "`unida adapt --continue %s --out NEW`.",
            *(done.new, done.replaced, done.same, self.run),
        )
        if done.unchanged and not self.changed_only:
            logger.info(
                "%d labels equal the prediction and count as confirmed; --changed-only leaves such "
                "labels out.",
                done.unchanged,
            )
