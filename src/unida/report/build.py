"""`unida report RUN`, and the page that every run leaves."""

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


@dataclass(frozen=True)
class Report:
    """Writes the report of a finished run: one HTML file that opens from disk.

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


def run_report(report: Report) -> None:
    """Writes the page and says where it is."""
    run = RunFolder(report.run)
    if report.labels:
        model = load(report.run, report.device)
        result = evaluate(model, report.labels)
        write_text(run.evaluation, to_json(result, model, report.labels.absolute()))
    say(f"Report: {write_report(run, report.to)}")


def write_report(run: RunFolder, to: Path | None = None) -> Path:
    """Writes the page of a finished run; of a team of processes, the first one does."""
    place = to or run.report
    if distributed.is_main_process():
        write_text(place, render(collect(run)))
    return place


def report_if_possible(run: RunFolder) -> None:
    """The same at the end of a run, which is whole without its report and must not fail by it."""
    try:
        say(f"Report: {write_report(run)}")
    except Exception as error:
        say(f"The report was not written ({error!r}): `unida report {run.path}` tries again.")


def refresh_report(run: RunFolder) -> None:
    """A page that is there is made anew, so that it shows what was found since."""
    if run.report.exists():
        report_if_possible(run)
