"""The commands and code of the README and of all pages; the tutorial has a test of its own."""

import json
import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest
from accelerate.tracking import LOGGER_TYPE_TO_CLASS

import unida
from tests.images import read_csv
from tests.tasks import Task
from unida.cli.main import COMMANDS, main

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "benchmarks" / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]
SMALL: dict[str, Any] = {
    "backbone": "small_cnn", "image_size": 8, "device": "cpu", "steps": 4, "batch": 4,
}  # fmt: skip


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(), re.DOTALL)


def lines(page: Path) -> list[list[str]]:
    """The commands of a page, without comments and without what only stands for more options."""
    joined = (block.replace("\\\n", " ") for block in blocks(page, "sh"))
    text = [line for block in joined for line in block.splitlines()]
    words = (shlex.split(line, comments=True) for line in text)
    return [[word for word in line if word != "…"] for line in words if line]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_command_is_understood(page: Path) -> None:
    makefile = (ROOT / "Makefile").read_text()
    for words in lines(page):
        if words[0] == "unida" and "--continue" not in words:  # which needs a run; see below
            name = next(n for n in (" ".join(words[1:3]), words[1]) if n in COMMANDS)
            COMMANDS[name].parse(name, words[1 + len(name.split()) :])
        elif words[0] == "make":
            assert f"\n{words[1]}:" in makefile
        elif words[0] == "python" and "/" in words[1]:
            assert (ROOT / words[1]).exists(), words


def test_a_protocol_of_ones_own_is_a_protocol(tmp_path: Path) -> None:
    from unida.protocols.tasks import load_protocol

    (text,) = blocks(ROOT / "docs" / "benchmarks.md", "toml")
    (tmp_path / "birds.toml").write_text(text)
    assert load_protocol(str(tmp_path / "birds.toml")).name == tomllib.loads(text)["name"]


@pytest.fixture
def folder(digits: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the names that the README uses."""
    (tmp_path / "photos").symlink_to(digits.source)
    for name in ("sketches", "more-sketches"):
        (tmp_path / name).symlink_to(digits.target)
    (tmp_path / "holiday.jpg").symlink_to(next(Path(digits.target).rglob("*.png")))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_commands_of_the_readme_run(folder: Path) -> None:
    small = [part for k, v in SMALL.items() for part in (f"--{k.replace('_', '-')}", str(v))]
    commands = [words[1:] for words in lines(ROOT / "README.md") if words[0] == "unida"]
    assert [words[0] for words in commands] == ["adapt", "predict", "discover", "review", "adapt"]
    for words in commands:
        if words[0] == "review":  # serves until it is stopped; this is what it saves
            first = read_csv(Path("runs/first/predictions.csv"))[0]["path"]
            content = {"names": {}, "labels": {first: "new class"}, "revision": 1}
            Path("runs/first/review.json").write_text(json.dumps(content))
        else:
            assert main([*words, *(small if words[0] == "adapt" else [])]) == 0, words
    assert len(read_csv(Path("labels.csv"))) == len(read_csv(Path("runs/first/predictions.csv")))
    assert "new class" in unida.load("runs/second", "cpu").classes


def test_the_python_of_tracking_and_sharing_runs(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(LOGGER_TYPE_TO_CLASS, "lines", Any)  # what the page registers is removed
    whole = unida.adapt
    monkeypatch.setattr(unida, "adapt", lambda *places, **more: whole(*places, **more, **SMALL))
    (code,) = blocks(ROOT / "docs" / "tracking.md", "python")
    exec(code, {})
    shown = capsys.readouterr().out
    assert "4 ['train/aio', 'train/ce'" in shown
    assert "'final/unknown'" in shown
    Path("runs/third").rename("runs/first")
    (code,) = blocks(ROOT / "docs" / "sharing.md", "python")
    names: dict[str, Any] = {}
    exec(code, names)
    assert names["again"].classes == names["model"].classes
    assert 'license: "mit"' in Path("shared-folder/README.md").read_text()


def test_the_python_of_the_readme_runs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (code,) = blocks(ROOT / "README.md", "python")
    whole = unida.adapt
    monkeypatch.setattr(unida, "adapt", lambda *places, **more: whole(*places, **more, **SMALL))
    names: dict[str, Any] = {}
    exec(code, names)
    images = [*Path("more-sketches").resolve().rglob("*.png")]
    assert len(names["lenient"]) == len(images)
    assert {p.rule for p in names["lenient"]} <= {"source:0.02", "own"}
