"""`unida report RUN`, and the page that every run leaves."""

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from unida.evaluation.evaluate import evaluate, to_json
from unida.model import load
from unida.report.content import collect
from unida.report.page import render
from unida.training.run_folder import RunFolder, write_text
from unida.utils import distributed
from unida.utils.console import say

logger = logging.getLogger("unida")


@dataclass(frozen=True)
class Report:
    """Write the report of a finished run: one HTML file that opens from disk.

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


def run_report(given: Report) -> None:
    """Evaluate the run where labels are given, and write its report."""
    run = RunFolder(given.run)
    if given.labels:
        model = load(given.run, given.device)
        result = evaluate(model, given.labels)
        write_text(run.evaluation, to_json(result, model, given.labels.absolute()))
    say(f"Report: {write_report(run, given.to)}")


def build_report(run: RunFolder | str | Path) -> str:
    """Return the report of a finished run as an HTML page."""
    return render(collect(run if isinstance(run, RunFolder) else RunFolder(run)))


def write_report(run: RunFolder, to: Path | None = None) -> Path:
    """Write the report of a finished run, in the main process only."""
    path = to or run.report
    if distributed.is_main_process():
        write_text(path, build_report(run))
    return path


def report_if_possible(run: RunFolder) -> None:
    """Write the report; a run is complete without it, so a failure is only a warning."""
    try:
        say(f"Report: {write_report(run)}")
    except Exception as error:
        logger.warning(
            "The report was not written (%r): `unida report %s` tries again.", error, run.path
        )


def refresh_report(run: RunFolder) -> None:
    """Write the report again where there is one, so that it shows what was found since."""
    if run.report.exists():
        report_if_possible(run)
