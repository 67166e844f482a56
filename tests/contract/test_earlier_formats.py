"""Runs and models of the release before still open, and predict what they predicted then.

The folders of `tests/fixtures/format6` were written by commit b329e98: runs on the digits of
`tests.tasks.write_task`, and `expected.json`, the predictions of that commit on `images/`.
"""

import csv
import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

import unida
from tests.tasks import Task, write_task
from unida.cli.main import main
from unida.methods import METHODS, Method
from unida.pipeline import run
from unida.training.run_folder import RunFolder

FIXTURES = Path(__file__).parents[1] / "fixtures" / "format6"
IMAGES = sorted((FIXTURES / "images").iterdir())
NAMES = ["san-prototypes", "san-plain", "ovanet-knn", "ensemble", "uniot"]
WRITTEN_IN = "/tmp/fixwork"
"""Where the runs were made: their config.json and predictions.csv name files in it."""


@dataclass(frozen=True)
class Earlier:
    """A run of the release before, beside the images that it names."""

    name: str
    run: Path
    task: Task


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the images of the runs."""
    place = tmp_path_factory.mktemp("earlier")
    write_task(place / "digits", (0, 1, 2, 3), (0, 1, 2, 8, 9), 40)
    return place


@pytest.fixture(scope="module", params=NAMES)
def earlier(request: pytest.FixtureRequest, place: Path) -> Earlier:
    """A copy that commands may write to."""
    run = place / request.param
    shutil.copytree(FIXTURES / request.param, run)
    for file in (run / "config.json", run / "predictions.csv"):
        file.write_text(file.read_text().replace(WRITTEN_IN, str(place)))
    return Earlier(request.param, run, Task(place / "digits/source", place / "digits/target"))


def test_it_predicts_what_it_predicted(earlier: Earlier) -> None:
    model = unida.load(FIXTURES / earlier.name, "cpu")
    expected = json.loads((FIXTURES / earlier.name / "expected.json").read_text())
    assert expected.keys() == {"own", "mixture"}
    for rule, rows in expected.items():
        predictions = model.predict(IMAGES, rule)
        shown = [(p.path and p.path.name, p.label) for p in predictions]
        assert shown == [(name, label) for name, label, *_ in rows]
        numbers = [(p.confidence, p.unknown_score) for p in predictions]
        for ours, theirs in zip(numbers, rows, strict=True):
            assert ours == pytest.approx(tuple(theirs[2:]), rel=0, abs=1e-4)


def test_it_is_stored_anew_and_predicts_the_same(earlier: Earlier, tmp_path: Path) -> None:
    model = unida.load(FIXTURES / earlier.name, "cpu")
    model.save(tmp_path / "model.safetensors")
    again = unida.load(tmp_path / "model.safetensors", "cpu")
    assert again.rules == model.rules
    for ours, theirs in zip(again.predict(IMAGES), model.predict(IMAGES), strict=True):
        assert ours.label == theirs.label
        assert ours.unknown_score == pytest.approx(theirs.unknown_score, abs=1e-5)


def test_commands_take_its_folder(earlier: Earlier, tmp_path: Path) -> None:
    run, labels = str(earlier.run), tmp_path / "labels.csv"
    assert main(["predict", run, str(FIXTURES / "images"), "--to", str(labels)]) == 0
    with labels.open() as file:
        rows = list(csv.DictReader(file))
    assert [row["path"] for row in rows] == [str(path) for path in IMAGES]
    assert main(["evaluate", run, "--labels", str(earlier.task.target)]) == 0
    assert json.loads((earlier.run / "evaluation.json").read_text())["images"] == 200
    assert main(["report", run]) == 0
    assert "<html" in (earlier.run / "report.html").read_text()[:500]
    assert main(["adapt", "--out", run, "--resume"]) == 0  # it is finished, which is logged
    if (earlier.run / "atlas.npz").exists():
        assert main(["discover", run]) == 0
        assert (earlier.run / "categories.csv").stat().st_size > 0


def test_it_is_exported(earlier: Earlier, tmp_path: Path) -> None:
    method = json.loads((earlier.run / "config.json").read_text())["run"]["method"]
    command = ["export", str(earlier.run), "--format", "torch", "--to", str(tmp_path / "model.pt2")]
    status = main(command)
    assert status == (2 if METHODS[method].about.transductive else 0)
    assert (tmp_path / "model.pt2").exists() == (status == 0)


def test_an_unfinished_run_of_format_6_is_resumed(digits: Task, out: Path) -> None:
    """Its checkpoint holds the refinement that was part of SAN; it is fitted anew at the end."""
    config = digits.config(out, steps=8, checkpoint_every=4)

    def stop(step: int, method: Method) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(config, on_checkpoint=stop)
    folder = RunFolder(out)
    state, _ = folder.load_state()
    assert state is not None
    state["model"]["neighbours.circles.0.rows"] = torch.zeros(80, 128)
    folder.save_state(state)
    resumed = run(config, resume=True)
    assert [line["step"] for line in resumed.history[0]] == [4, 5, 8]
    assert folder.done.exists()
