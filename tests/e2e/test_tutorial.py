"""The tutorial, followed by a newcomer: every `sh` block of docs/tutorial.md, in order.

A run takes as many steps as the page names; here `--steps` is always `STEPS`.
`unida review` serves until it is stopped: a visitor names a category there, and stops it.
"""

import contextlib
import http.client
import io
import json
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import pytest

import unida
from tests.images import read_csv
from tests.processes import UNIDA, started, wait_for
from unida.cli.main import COMMANDS, main

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "tutorial.md").read_text()
LINES = [
    line for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines()
]
STEPS = 30

pytestmark = pytest.mark.slow

Shown = dict[str, str]
"""What each line of the page printed."""


def type_in(line: str) -> str:
    """Runs a line in the current folder.

    A command of ours runs in this process: to start Python and torch takes longer than most of
    them do.
    """
    words = shlex.split(re.sub(r"--steps \d+", f"--steps {STEPS}", line))
    if words[:2] == ["unida", "review"]:
        return review(words[2:])
    if words[0] == "unida":
        out = io.TextIOWrapper(io.BytesIO(), write_through=True)
        with contextlib.redirect_stdout(out):
            assert main(words[1:]) == 0, line
        return out.buffer.getvalue().decode()  # type: ignore[attr-defined, no-any-return]
    words[0] = sys.executable if words[0] == "python" else words[0]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


def review(words: list[str]) -> str:
    """Starts the server, names the first category, and stops it as Ctrl-C does."""
    with started([*UNIDA, "review", *words, "--no-browser"]) as server:
        wait_for(lambda: re.search(r"Review at .*\n", server.output()) is not None, server)
        place = urlsplit(next(w for w in server.output().split() if w.startswith("http")))
        content = json.dumps({"names": {"1": "nine"}, "labels": {}})
        with closing(http.client.HTTPConnection(place.netloc, timeout=60)) as connection:
            kind = {"Content-Type": "application/json"}
            connection.request("POST", f"/save?{place.query}", content, kind)
            assert connection.getresponse().status == 200
        server.process.send_signal(signal.SIGINT)
        assert server.ended() == 0
        return server.output()


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shown]:
    """The whole page, followed; tests then read the folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("tutorial"))
        for name, text in re.findall(r"<!-- file: (\S+),.*?```python\n(.*?)```", PAGE, re.DOTALL):
            Path(name).write_text(text)
        yield {line: type_in(line) for line in LINES}


def test_it_shows_the_commands_that_a_newcomer_needs() -> None:
    used = {line.split()[1] for line in LINES if line.startswith("unida ")}
    assert used == set(COMMANDS) - {
        "embed",
        "methods",
        "data check",
        "bench",
        "table",
        "figure",
        "tune",
        "demo",
        "completion",
        "export-predictions",
        "import-corrections",
        "share",
    }


def test_two_folders_become_a_label_for_every_picture(shown: Shown) -> None:
    rows = read_csv(Path("runs/first/predictions.csv"))
    assert len(rows) == len(list(Path("digits/target/uci").rglob("*.png")))
    assert {row["label"] for row in rows} <= {*"01234567", "unknown"}
    (head,) = [text for line, text in shown.items() if line.startswith("head")]
    assert head.splitlines()[0].startswith("path,label,confidence,unknown_score,rule")
    assert "<html" in Path("runs/first/report.html").read_text()[:200]


def test_new_pictures_are_labelled_and_the_rule_can_be_changed(shown: Shown) -> None:
    assert len(read_csv(Path("new.csv"))) == len(list(Path("digits/target/uci/9").iterdir())) + 1
    assert {row["rule"] for row in read_csv(Path("lenient.csv"))} == {"source:0.02"}


def test_the_scores_are_shown(shown: Shown) -> None:
    (table,) = [text for line, text in shown.items() if line.startswith("unida evaluate")]
    assert all(word in table for word in ("mixture", "own", "known", "unknown"))


def test_a_named_category_is_a_class_of_the_second_run(shown: Shown) -> None:
    assert json.loads(Path("runs/first/categories.json").read_text())["categories"]
    first, second = (unida.load(f"runs/{name}", "cpu").classes for name in ("first", "second"))
    assert set(second) == {*first, "nine"}


def test_the_deployed_file_predicts_as_predict_does(shown: Shown) -> None:
    printed = next(text for line, text in shown.items() if line.startswith("python use_onnx"))
    ours = [line.split("\t")[:2] for line in printed.splitlines()]
    theirs = next(reversed(shown.values())).splitlines()[1:]
    assert ours == [line.split(",")[:2] for line in theirs]


def test_the_page_shows_the_example_as_it_is() -> None:
    (text,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert text == (ROOT / "examples" / "use_onnx.py").read_text()
