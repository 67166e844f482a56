"""The page of a run, written at its end and by `unida report`."""

from pathlib import Path

from unida.report.content import collect
from unida.report.page import render
from unida.training.run_folder import RunFolder, write_text
from unida.utils import distributed
from unida.utils.logs import logger


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
        logger.info("Report: %s", write_report(run))
    except Exception as error:
        logger.warning(
            "The report was not written (%r): `unida report %s` tries again.", error, run.path
        )


def refresh_report(run: RunFolder) -> None:
    """Write the report again where there is one, so that it shows what was found since."""
    if run.report.exists():
        report_if_possible(run)
