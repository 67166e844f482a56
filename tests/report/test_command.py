"""Every run leaves a report, and `unida report` writes it again."""

import json
import shutil
from pathlib import Path

import pytest

from tests.tasks import Task
from unida.bench.folder import ResultsFolder
from unida.bench.worker import _cached
from unida.cli.main import main
from unida.pipeline import run_adaptation
from unida.report import build
from unida.training.run_folder import RunFolder

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def run(finished_run: Path, tmp_path: Path) -> RunFolder:
    return RunFolder(shutil.copytree(finished_run, tmp_path / "run"))


def test_a_run_leaves_a_report(run: RunFolder) -> None:
    assert run.report.read_text().startswith("<!doctype html>")


def test_a_report_that_fails_leaves_the_run_finished_and_none_is_made_later(
    digits: Task, out: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(run: RunFolder) -> None:
        raise RuntimeError("no room")

    monkeypatch.setattr(build, "collect", fail)
    run_adaptation(digits.config(out, method="source_only", steps=2, report=True))
    assert RunFolder(out).done.exists()
    assert f"no room')): `unida report {out}` tries again" in caplog.text
    monkeypatch.undo()
    assert main(["discover", str(out)]) == 0
    assert not RunFolder(out).report.exists()


def test_runs_of_a_benchmark_leave_none(digits: Task, out: Path) -> None:
    benched = _cached(digits.config(out, report=True), ResultsFolder(str(out.parent)))
    assert not benched.output.report


def test_the_command_writes_to_the_given_file(run: RunFolder, tmp_path: Path) -> None:
    assert main(["report", str(run.path), "--to", str(tmp_path / "page.html")]) == 0
    assert (tmp_path / "page.html").stat().st_size > 10_000


def test_labels_add_the_confusion(run: RunFolder, digits: Task, tmp_path: Path) -> None:
    place = tmp_path / "page.html"
    args = ["--labels", str(digits.target), "--to", str(place), "--device", "cpu"]
    assert main(["report", str(run.path), *args]) == 0
    block = place.read_text().partition('id="data">')[2].partition("</script>")[0]
    content = json.loads(block)
    assert content["evaluation"]["images"] == content["run"]["total"] == 80
    assert set(content["target"]["truth"]) == {"0", "1", "2", "8", "9"}


def test_a_folder_without_a_run_is_one_sentence(tmp_path: Path, capfd: Capture) -> None:
    assert main(["report", str(tmp_path)]) == 2
    assert "holds no run" in capfd.readouterr().err


def test_discover_and_evaluate_update_the_page(run: RunFolder, digits: Task) -> None:
    run.report.write_text("an old page")
    assert main(["discover", str(run.path)]) == 0
    assert run.report.read_text().startswith("<!doctype html>")
    run.report.write_text("an old page")
    assert main(["evaluate", str(run.path), "--labels", str(digits.target)]) == 0
    assert run.report.read_text().startswith("<!doctype html>")
