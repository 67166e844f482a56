"""`unida report`: a run as a page."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from unida.cli.parser import Command
from unida.utils.logs import logger


@dataclass(frozen=True)
class Report(Command):
    """Write the report of a finished run as one HTML file.

    Example: unida report runs/first --labels sketches-by-class
    """

    run: Annotated[Path, tyro.conf.Positional]
    """Folder of a finished run."""
    labels: Path | None = None
    """Labelled images to compare with, as for `unida evaluate`; by default those of the run's last
    evaluation, if there was one."""
    to: Path | None = None
    """File to write; report.html in the run if left out."""
    device: str = "auto"
    """auto, cpu, cuda, cuda:N or mps; used with --labels only."""

    def execute(self) -> None:
        """Evaluate if there are labels, and write the page."""
        from unida.evaluation.evaluate import evaluate, to_json
        from unida.model import load
        from unida.report.build import write_report
        from unida.training.run_folder import RunFolder, write_text

        run = RunFolder(self.run)
        if self.labels:
            model = load(self.run, self.device)
            result = evaluate(model, self.labels)
            write_text(run.evaluation, to_json(result, model, self.labels.absolute()))
        logger.info("Report: %s", write_report(run, self.to))
