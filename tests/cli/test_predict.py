"""What `unida predict` writes, and where to."""

import json
import os
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from tests.images import write_folder
from unida.cli.main import main
from unida.decision.rejection import Rule
from unida.types import Scored


@pytest.fixture
def images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of two images, and a model whose second score is not a number."""
    folder = write_folder(tmp_path / "images", 2)
    scored = Scored(np.array([[0.9, 0.1]] * 2), np.array([-1.0, np.nan]), np.zeros((2, 0), "f4"))
    model = SimpleNamespace(
        rule=lambda reject: Rule("own", 0.0, ""),
        score=lambda paths, skipped, features: (sorted(folder.iterdir()), scored),
        classes=("cat", "dog"),
        temperature=1.0,
    )
    monkeypatch.setattr("unida.model.load", lambda *args: model)
    monkeypatch.setattr("unida.evaluation.diagnostics.warn_of_shift", lambda *args: None)
    return folder


def refuse(name: str) -> None:
    raise AssertionError(f"{name} is no JSON")


def test_a_line_of_json_has_no_nan(images: Path, tmp_path: Path) -> None:
    to = tmp_path / "out.jsonl"
    assert main(["predict", "run", str(images), "--format", "jsonl", "--to", str(to)]) == 0
    lines = [json.loads(line, parse_constant=refuse) for line in to.read_text().splitlines()]
    assert [line["unknown_score"] for line in lines] == [-1.0, None]


def test_a_link_and_a_pipe_are_written_to(images: Path, tmp_path: Path) -> None:
    link, pipe = tmp_path / "link.csv", tmp_path / "pipe.csv"
    link.symlink_to("target.csv")
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    for to in (link, pipe):
        assert main(["predict", "run", str(images), "--to", str(to)]) == 0
    assert link.is_symlink()
    assert pipe.is_fifo()
    assert os.read(reader, 10_000) == (tmp_path / "target.csv").read_bytes()
    os.close(reader)
