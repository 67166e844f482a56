"""Run folders that come from anyone: what the fuzzer has found in them."""

import json
import os
import shutil
from pathlib import Path

import pytest

from tests.attack.outcome import attempt, faults, shown
from unida.cli.main import main


@pytest.fixture
def run(finished_run: Path, tmp_path: Path) -> Path:
    return shutil.copytree(finished_run, tmp_path / "run")


@pytest.mark.parametrize("content", [{"categories": None}, {"categories": [1]}, [], {}])
def test_a_summary_of_categories_that_is_none(run: Path, content: object) -> None:
    assert main(["discover", str(run), "--count", "2"]) == 0
    (run / "categories.json").write_text(json.dumps(content))
    outcome = attempt(["report", str(run)])
    assert faults(outcome) == [], shown(outcome)


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("predictions.csv", "report"),
        ("diagnostics.json", "report"),
        ("features.npz", "report"),
        ("model.safetensors", "report"),
        ("config.json", "report"),
        ("features.npz", "discover"),
        ("predictions.csv", "review"),
    ],
)
def test_a_pipe_and_a_device_in_the_place_of_a_file(run: Path, name: str, command: str) -> None:
    for make in (os.mkfifo, lambda path: os.symlink("/dev/zero", path)):
        (run / name).unlink()
        make(run / name)
        outcome = attempt([command, str(run)])
        assert outcome.status == 2, shown(outcome)
        assert faults(outcome) == [], shown(outcome)
