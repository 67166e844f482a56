"""A command that is killed leaves whole files or none, and the next one ends as if nothing was.

The moments are drawn by `--attack-seed`; there are more of them with a larger `--attack-cases`.
"""

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.attack.hands import Hand, Hands
from tests.attack.outcome import parts_below
from tests.attack.place import Place, generator
from tests.attack.whole import files_below, halves
from tests.bench.benches import arguments

CASES_PER_KILL = 500


@dataclass(frozen=True)
class Work:
    """A command that writes.

    Attributes:
        command: makes it for a folder.
        results: patterns of the files that must be equal however often it was killed.
        again: makes the command that goes on after a kill; the same one by default.
        slowness: kills are that much fewer.
    """

    command: Callable[[Place, Path], list[str]]
    results: tuple[str, ...]
    again: Callable[[Place, Path], list[str]] | None = None
    slowness: int = 1


def adapt(*more: str) -> Callable[[Place, Path], list[str]]:
    def command(place: Place, folder: Path) -> list[str]:
        quick = place.task.arguments(folder / "run", steps=12, checkpoint_every=3, report=True)
        cache = ["--cache-dir", str(folder / "cache")]
        return ["adapt", *quick, "--method", "source_only", *cache, *more]

    return command


def on_run(name: str, *more: str) -> Callable[[Place, Path], list[str]]:
    """A command on a copy of the finished run."""

    def command(place: Place, folder: Path) -> list[str]:
        words = [
            word.format(images=place.images, source=place.task.source, folder=folder)
            for word in more
        ]
        return [name, str(folder / "run"), *words]

    return command


RUN = ("run/predictions.csv", "run/model.safetensors", "run/skipped.csv", "run/diagnostics.json")

WORKS = {
    "adapt": Work(adapt("--cache", "disk"), RUN, adapt("--cache", "disk", "--resume")),
    "adapt --ensemble": Work(adapt("--ensemble", "2"), RUN, adapt("--ensemble", "2", "--resume")),
    "adapt --frozen": Work(
        adapt("--frozen", "--frozen-views", "1"),
        RUN,
        adapt("--frozen", "--frozen-views", "1", "--resume"),
    ),
    "predict --to": Work(
        on_run("predict", "{images}", "--to", "{folder}/labels.csv"), ("labels.csv",)
    ),
    "evaluate": Work(on_run("evaluate", "--labels", "{source}"), ("run/evaluation.json",)),
    "discover": Work(
        on_run("discover", "--count", "2"), ("run/categories.csv", "run/categories.json")
    ),
    "report": Work(on_run("report"), ("run/report.html",)),
    "export": Work(on_run("export", "--format", "torch", "--to", "{folder}/model.pt2"), ()),
    "table": Work(
        lambda place, folder: [
            *("table", str(place.results), "--out", str(folder / "tables"), "--format", "all")
        ],
        ("tables/*",),
    ),
    "figure": Work(
        lambda place, folder: [
            *("figure", str(place.results), "--kinds", "ablation", "--out", str(folder / "figures"))
        ],
        ("figures/*.csv",),
        slowness=2,
    ),
    "tune": Work(
        lambda place, folder: [
            *("tune", *place.task.arguments(folder / "study", steps=4, report=False)),
            *("--method", "source_only", "--space", "lr=0.01,0.02"),
        ],
        ("study/trials.csv", "study/best.json"),
        slowness=2,
    ),
    "bench": Work(
        lambda place, folder: arguments(
            place.protocol,
            folder / "bench",
            *("--methods", "source_only", "--seeds", "1", "--tasks", "dark-light"),
        ),
        ("bench/runs/*/scores.npz",),
        slowness=4,
    ),
}


@pytest.mark.parametrize("name", WORKS)
def test_a_killed_command_leaves_nothing_half_and_goes_on(
    name: str, place: Place, forked: Hands, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    work = WORKS[name]
    cases = request.config.getoption("--attack-cases")
    seed = request.config.getoption("--attack-seed")
    begun = time.monotonic()
    whole = _run(work, place, forked, tmp_path, "whole")
    seconds = time.monotonic() - begun
    assert whole.status() == 0, whole.output()
    expected = _results(work, tmp_path / "whole")
    for number in range(max(1, cases // (CASES_PER_KILL * work.slowness))):
        moment = generator(seed, name, number).uniform(0, 1.1 * seconds)
        folder = tmp_path / str(number)
        hand = _start(work, place, forked, folder)
        time.sleep(moment)
        hand.kill()
        where = f"killed after {moment:.3f} of {seconds:.3f} s"
        assert halves(folder) == [], where
        hand = forked.run((work.again or work.command)(place, folder))
        assert hand.status() == 0, f"{where}\n{hand.output()}"
        assert "Traceback" not in hand.output(), where
        assert parts_below(folder) == [], where
        assert halves(folder) == [], where
        assert _results(work, folder) == expected, where
        shutil.rmtree(folder)


def _start(work: Work, place: Place, forked: Hands, folder: Path) -> Hand:
    folder.mkdir()
    command = work.command(place, folder)
    if command[1] == str(folder / "run"):
        shutil.copytree(place.finished, folder / "run")
    return forked.start(command)


def _run(work: Work, place: Place, forked: Hands, tmp_path: Path, name: str) -> Hand:
    hand = _start(work, place, forked, tmp_path / name)
    hand.ended()
    return hand


def _results(work: Work, folder: Path) -> dict[str, bytes]:
    """The files that must be equal; what differs by the folder alone is written alike."""
    found = [path for path in files_below(folder) for pattern in work.results
             if path.relative_to(folder).match(pattern)]  # fmt: skip
    return {
        str(path.relative_to(folder)): path.read_bytes().replace(str(folder).encode(), b"FOLDER")
        for path in found
    }
