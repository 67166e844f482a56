"""`unida discover`: novel categories among the unknown images."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from unida.cli.parser import Command
from unida.errors import UserError
from unida.utils.logs import logger


@dataclass(frozen=True)
class Discover(Command):
    """Group the images that a run called unknown into novel categories.

    Example: unida discover runs/first
    """

    run: Annotated[Path, tyro.conf.Positional]
    """Folder of a finished run."""
    count: int | None = None
    """How many categories there are; estimated if left out."""
    algorithm: str | None = None
    """An algorithm of an earlier version: it is replaced, with a warning."""
    seed: int = 0
    """Seed of all random draws."""
    vocabulary: Path | None = None
    """File with a name on every line; a text-image model suggests one for each category."""
    names_from: Path | None = None
    """Folder of the text-image model, such as a downloaded CLIP; by default the run's own backbone,
    if it is one. Nothing is downloaded."""
    prompt: str = "a photo of a {}."
    """Sentence for the text-image model; {} is replaced by the name."""

    def execute(self) -> None:
        """Find, name and write the categories; the report shows them."""
        from unida.discovery.discover import (
            discover,
            find_text_image_model,
            name_categories,
        )
        from unida.discovery.names import read_vocabulary
        from unida.report.build import refresh_report
        from unida.report.data import read_model_header
        from unida.training.run_folder import RunFolder

        if self.names_from and not self.vocabulary:
            raise UserError("--names-from needs --vocabulary, a file with a name on every line.")
        run = RunFolder(self.run)
        vocabulary = read_vocabulary(self.vocabulary) if self.vocabulary else []
        model = find_text_image_model(run, self.names_from) if vocabulary else None
        categories = discover(run, self.algorithm, self.seed, self.count)
        if model:
            known = read_model_header(run)["classes"] if run.model.exists() else []
            categories = name_categories(categories, model, vocabulary, self.prompt, known)
        categories.save(run)
        logger.info("%s: %s", categories, run.categories)
        logger.info("Name them: unida review %s", self.run)
        refresh_report(run)
