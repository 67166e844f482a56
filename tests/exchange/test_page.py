"""docs/exchange.md: its commands and its Python run, in order, on a finished run."""

import json
import re
import shlex
import shutil
from pathlib import Path

import pytest

import unida
from tests.images import read_csv
from unida.cli.main import main

PAGE = (Path(__file__).parents[2] / "docs" / "exchange.md").read_text()
BLOCKS = re.findall(r"```(sh|python)\n(.*?)```", PAGE, re.DOTALL)
NEW = "sea horse"


def annotate(tasks: Path, to: Path) -> str:
    """Label the first task as a person does in Label Studio; return its image."""
    first = json.loads(tasks.read_text())[0]
    result = first["predictions"][0]["result"]
    result[0]["value"]["choices"] = [NEW]
    to.write_text(json.dumps([first | {"annotations": [{"result": result}]}]))
    return str(first["data"]["path"])


@pytest.mark.slow
def test_the_page_runs(finished_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pandas")
    monkeypatch.chdir(tmp_path)
    shutil.copytree(finished_run, "runs/first")
    assert main(["export-predictions", "runs/first", "--to", "arrays.npz"]) == 0
    commands = []
    for kind, text in BLOCKS:
        if kind == "python":
            exec(text, {})
            continue
        for line in text.splitlines():
            words = shlex.split(line, comments=True)[1:]
            if words[0] == "import-corrections":
                path = annotate(Path("tasks.json"), Path("labelled.json"))
            assert main(words) == 0, line
            commands.append(words[0])
    assert set(commands) == {"export-predictions", "import-corrections", "adapt"}
    assert NEW in unida.load("runs/second", "cpu").classes
    learned = {row["path"]: row["label"] for row in read_csv(Path("runs/second/source.csv"))}
    assert learned[path] == NEW
    files = {row["path"] for row in read_csv(Path("sorted/unida-export.csv"))}
    assert files == {row["path"] for row in read_csv(Path("runs/first/predictions.csv"))}
    assert 1 <= len(json.loads(Path("few.json").read_text())) <= 50
