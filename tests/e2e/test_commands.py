"""The README's commands and their Python counterparts, from folders to files.

One run, started as a user starts it, is shared; tests do not write to it.
"""

import csv
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import unida
from tests.images import read_csv
from tests.processes import UNIDA, started, wait_for
from tests.tasks import QUICK, Task, assert_alike
from unida.cli.main import COMMANDS, main
from unida.methods import METHODS
from unida.model import Model

Capture = pytest.CaptureFixture[str]
pytestmark = pytest.mark.slow


LENGTH = {"steps": 120, "batch": 16, "checkpoint_every": 15}
"""Enough to separate some digits."""


def adapt(arguments: list[str]) -> None:
    with started([*UNIDA, "adapt", *arguments]) as process:
        assert process.ended() == 0


@pytest.fixture(scope="module")
def run(digits: Task, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run."""
    out = tmp_path_factory.mktemp("commands") / "run"
    adapt(digits.arguments(out, **LENGTH))
    return out


class TestAdapt:
    def test_the_run_holds_what_it_promises(self, run: Path) -> None:
        config = json.loads((run / "config.json").read_text())
        assert config["run"]["optim"]["steps"] == 120
        assert config["resolved"]["settings"]["beta"] == 0.5
        lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        assert [line["step"] for line in lines] == list(range(5, 121, 5))
        assert {"loss", "ce", "aio", "scl", "entropy", "lr", "grad_norm"} <= lines[0].keys()
        assert (run / "done").exists()
        assert not (run / "state.pt").exists()

    def test_every_target_image_has_a_prediction_that_names_its_rule(
        self, run: Path, digits: Task
    ) -> None:
        rows = read_csv(run / "predictions.csv")
        assert [row["path"] for row in rows] == sorted(map(str, digits.target.rglob("*.png")))
        rule = unida.load(run, "cpu").rule()
        for row in rows:
            assert row["label"] in {"0", "1", "2", "3", "unknown"}
            assert 0 <= float(row["confidence"]) <= 1
            rejected = float(row["unknown_score"]) >= rule.threshold
            assert rejected == (row["label"] == "unknown")
            assert row["rule"] == rule.name

    def test_killed_at_any_moment_and_resumed_it_ends_bit_identical(
        self, run: Path, digits: Task, out: Path
    ) -> None:
        with started([*UNIDA, "adapt", *digits.arguments(out, **LENGTH)]) as process:
            wait_for((out / "state.pt").exists, process)
            process.kill()
        assert not (out / "done").exists()
        adapt(["--out", str(out), "--resume"])
        for name in ("model.safetensors", "predictions.csv", "done"):
            assert (out / name).read_bytes() == (run / name).read_bytes()

    def test_a_target_of_class_folders_gives_nothing_away(
        self, digits: Task, tmp_path: Path
    ) -> None:
        """The same images without their class folders: the same model, bit by bit."""
        flat = tmp_path / "flat"
        flat.mkdir()
        for number, path in enumerate(sorted(digits.target.rglob("*.png"))):
            (flat / f"{number:03}.png").write_bytes(path.read_bytes())
        models = []
        for name, task in (("classes", digits), ("none", Task(digits.source, flat))):
            assert main(["adapt", *task.arguments(tmp_path / name, steps=10)]) == 0
            models.append((tmp_path / name / "model.safetensors").read_bytes())
        assert models[0] == models[1]

    def test_it_learns(self, run: Path, digits: Task) -> None:
        model = unida.load(run, "cpu")
        images = sorted((digits.source / "0").glob("*.png"))
        best = model.score(images)[1].probs.argmax(1)
        assert (best == 0).mean() > 0.8

    def test_resume_of_a_finished_run_leaves_it_alone(self, run: Path, capfd: Capture) -> None:
        before = {path.name: path.stat().st_mtime_ns for path in run.iterdir()}
        assert main(["adapt", "--out", str(run), "--resume"]) == 0
        assert "finished already" in capfd.readouterr().err
        assert before == {path.name: path.stat().st_mtime_ns for path in run.iterdir()}


class TestPredict:
    def test_csv_on_standard_output(self, run: Path, digits: Task, capfd: Capture) -> None:
        image = next((digits.target / "9").glob("*.png"))
        assert main(["predict", str(run), str(image), str(digits.target / "8")]) == 0
        rows = list(csv.DictReader(io.StringIO(capfd.readouterr().out)))
        assert [row["path"] for row in rows] == [
            str(image),
            *sorted(map(str, (digits.target / "8").glob("*.png"))),
        ]

    def test_the_same_images_get_the_same_label_as_in_the_run(
        self, run: Path, digits: Task, tmp_path: Path
    ) -> None:
        place = tmp_path / "labels.csv"
        assert main(["predict", str(run), str(digits.target), "--to", str(place)]) == 0
        ours, theirs = read_csv(place), read_csv(run / "predictions.csv")
        assert [r["label"] for r in ours] == [r["label"] for r in theirs]

    def test_json_lines_and_another_rule(self, run: Path, digits: Task, tmp_path: Path) -> None:
        place = tmp_path / "labels.jsonl"
        command = ["predict", str(run), str(digits.target), "--to", str(place)]
        assert main([*command, "--format", "jsonl", "--reject", "own"]) == 0
        rows = [json.loads(line) for line in place.read_text().splitlines()]
        assert len(rows) == len(read_csv(run / "predictions.csv"))
        assert all((row["label"] == "unknown") == (row["unknown_score"] >= 0) for row in rows)
        assert {row["rule"] for row in rows} == {"own"}

    def test_scores_unlike_those_of_the_run_are_warned_of(
        self, run: Path, digits: Task, capfd: Capture
    ) -> None:
        def warns(*images: Path, reject: str = "share") -> bool:
            command = ["predict", str(run), *map(str, images), "--reject", reject]
            assert main(command) == 0
            return "--refit-rule fits the rule to them" in capfd.readouterr().err

        assert not warns(digits.target)
        assert warns(digits.source)
        assert not warns(digits.source, reject="own")  # it was not fitted
        assert not warns(digits.source / "0")  # too few to tell

    def test_a_rule_is_fitted_to_other_images_without_training(
        self, run: Path, digits: Task, tmp_path: Path, capfd: Capture
    ) -> None:
        model, place = unida.load(run, "cpu"), tmp_path / "labels.csv"
        before = (run / "model.safetensors").read_bytes()
        refitted, _, scored = model.refit_rules(digits.source)
        assert refitted.score_shift(scored.unknown_score) == 0
        rule = refitted.rule()
        assert (rule.name, rule.fell_back) == ("share", "")
        assert rule.threshold != model.rule().threshold
        command = ["predict", str(run), str(digits.source), "--to", str(place)]
        assert main([*command, "--refit-rule"]) == 0
        shown = capfd.readouterr().err
        assert f"The rule for these images: share ({rule.note})" in shown
        assert "unlike" not in shown
        rejected = rule.is_unknown(scored.unknown_score).tolist()
        assert [row["label"] == "unknown" for row in read_csv(place)] == rejected
        assert sum(rejected) < 64
        assert (run / "model.safetensors").read_bytes() == before

    def test_fitted_to_the_same_images_the_rules_are_those_of_the_run(
        self, run: Path, digits: Task
    ) -> None:
        model = unida.load(run, "cpu")
        again, paths, _ = model.refit_rules(digits.target)
        assert len(paths) == 80
        for name, rule in again.rules.items():
            assert (rule.name, rule.note) == (model.rules[name].name, model.rules[name].note)
            assert rule.threshold == pytest.approx(model.rules[name].threshold, abs=1e-4)

    def test_one_file_is_enough_to_move_a_model(
        self, run: Path, digits: Task, tmp_path: Path
    ) -> None:
        place = tmp_path / "moved.safetensors"
        place.write_bytes((run / "model.safetensors").read_bytes())
        image = next(digits.target.rglob("*.png"))
        moved, there = (unida.load(which, "cpu").predict(image) for which in (place, run))
        assert_alike(moved, there)


class TestEvaluate:
    def test_it_scores_all_rules_and_leaves_them_in_the_run(
        self, run: Path, digits: Task, capfd: Capture
    ) -> None:
        assert main(["evaluate", str(run), "--labels", str(digits.target)]) == 0
        shown = capfd.readouterr().out
        assert "own" in shown
        assert all(rule in shown for rule in ("share", "mixture", "none"))
        content = json.loads((run / "evaluation.json").read_text())
        assert content["images"] == 80
        scores = content["rules"]["own"]["scores"]
        rows = unida.load(run, "cpu").predict(digits.target, reject="own")
        unknown = [r.label == "unknown" for r in rows if r.path and r.path.parent.name in "89"]
        assert scores["unknown"] == pytest.approx(np.mean(unknown))
        (run / "evaluation.json").unlink()


class TestPython:
    def test_adapt_returns_the_model_of_the_run(self, digits: Task, out: Path) -> None:
        options = QUICK | {"steps": 3}
        model = unida.adapt(digits.source, digits.target, out, settings={"beta": 0.7}, **options)
        assert isinstance(model, Model)
        assert model.classes == ("0", "1", "2", "3")
        assert json.loads((out / "config.json").read_text())["run"]["settings"]["beta"] == 0.7
        image = next(digits.target.rglob("*.png"))
        assert_alike(model.predict(image), unida.load(out, "cpu").predict(image))

    def test_images_in_memory_and_on_disk_get_the_same_label(self, run: Path, digits: Task) -> None:
        model = unida.load(run, "cpu")
        path = next(digits.target.rglob("*.png"))
        (on_disk,), (in_memory,) = model.predict(path), model.predict(Image.open(path))
        assert in_memory.path is None
        assert (in_memory.label, in_memory.confidence) == (on_disk.label, on_disk.confidence)

    def test_a_misspelt_option_is_an_error(self, digits: Task, out: Path) -> None:
        with pytest.raises(ValueError, match="'stepps'"):
            unida.adapt(digits.source, digits.target, out, stepps=3)


def test_help_has_an_example(capfd: Capture) -> None:
    for command in COMMANDS:
        assert main([*command.split(), "--help"]) == 0
        shown = capfd.readouterr().out
        assert f"unida {command}" in shown
        assert "Example" in shown, command


def test_the_methods_are_listed_with_paper_year_rule_and_origin(
    capfd: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")  # a row is one line, however long a new method's name is
    assert main(["methods"]) == 0
    shown = capfd.readouterr().out
    for name, method in METHODS.items():
        (row,) = [line for line in shown.splitlines() if f" {name} " in line]
        assert method.about.venue in row
        assert method.about.spec in row
        assert method.about.paper.split()[0] in row
    reconstructed = {n for n, m in METHODS.items() if m.about.spec == "reconstruction"}
    assert reconstructed >= {"gate", "spa", "tnt"}


def test_the_demo_runs_from_start_to_table(
    tmp_path: Path, capfd: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one direction; `test_benchmark` takes the other."""
    monkeypatch.setattr("unida.cli.demo.DIRECTIONS", (("uci", "mnist"),))
    assert main(["demo", "--out", str(tmp_path / "demo"), "--steps", "2"]) == 0
    captured = capfd.readouterr()
    rows = [line.split("│") for line in captured.out.splitlines() if "uci → mnist" in line]
    assert [row[2].strip() for row in rows] == ["source_only", "san"]  # one rule each
    told = captured.out.rpartition("╯")[2].rpartition("┘")[2].strip().splitlines()
    assert [line[:2] for line in told] == ["1.", "2.", "3.", "4.", "5."]
    report = tmp_path / "demo" / "uci-mnist-san" / "report.html"
    assert report.exists()
    assert str(report) in told[3]


def test_waiting_threads_spin_briefly_by_default() -> None:
    code = "import os, sys, unida.__main__; print(os.environ.get('GOMP_SPINCOUNT'), *sys.modules)"
    names = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")
    others = {k: v for k, v in os.environ.items() if k not in names}
    for given, spins in (
        ({}, "3000"),
        ({"GOMP_SPINCOUNT": "7"}, "7"),
        ({"OMP_WAIT_POLICY": "active"}, "None"),
    ):
        command, env = [sys.executable, "-c", code], others | given
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
        printed, *modules = done.stdout.split()
        assert printed == spins
        assert "torch" not in modules, "it is read when torch is loaded"
