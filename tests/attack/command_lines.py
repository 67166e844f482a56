"""Command lines that are wrong in some way, or only odd."""

import random
from collections.abc import Callable
from pathlib import Path

from tests.attack.place import Case, Place
from tests.attack.values import any_text
from tests.e2e.project import SMALL
from unida.cli.main import COMMANDS
from unida.cli.parser import _names

ENDLESS = {"steps", "seeds", "trials", "workers", "runs_per_worker", "ensemble", "frozen_views"}
"""Options of which a large value is a long run and no mistake."""


def good(place: Place, folder: Path) -> dict[str, list[str]]:
    """A good command line for every command that can be tried in this process."""
    run, images, source = str(place.finished), str(place.images), str(place.task.source)
    ends = ["--source", source, "--target", images, "--out", str(folder / "out")]
    return {
        "adapt": [*ends, *SMALL, "--steps", "1"],
        "predict": [run, images, "--to", str(folder / "labels.csv")],
        "evaluate": [str(folder / "run"), "--labels", source],
        "report": [run, "--to", str(folder / "report.html")],
        "discover": [str(folder / "run")],
        "export": [str(place.root / "nowhere"), "--to", str(folder / "model.onnx")],
        "export-predictions": [run, "--to", str(folder / "predictions.csv")],
        "import-corrections": [str(folder / "run"), str(folder / "labels.csv")],
        "review": [str(folder / "run"), "--no-browser"],
        "methods": [],
        "data check": [str(place.protocol), "--root", str(place.root)],
        "bench": [str(place.protocol), "--data", str(place.root / "no-data"), "--out", str(folder)],
        "table": [str(place.results)],
        "figure": [str(place.root / "nowhere.jsonl")],
        "tune": [*ends, *SMALL, "--steps", "1", "--space", "lam=0.1", "--criterion", "none"],
        "demo": ["--steps", "0", "--out", str(folder / "demo")],
    }


def command_line(rng: random.Random, place: Place, folder: Path) -> Case:
    """A good command line with one to three things changed."""
    (folder / "run").symlink_to(place.root / "nowhere")
    lines = good(place, folder)
    name = rng.choice([*lines, "adapt", "predict"])
    words = lines[name]
    for _ in range(rng.choice((1, 1, 2, 3))):
        words = rng.choice(CHANGES)(rng, name, words)
    command = [*name.split(), *words]
    if rng.random() < 0.05:
        command[0] = any_text(rng)
    return Case(" ".join(map(repr, command)), command)


def _with_option(rng: random.Random, name: str, words: list[str]) -> list[str]:
    option = rng.choice([*_names(COMMANDS[name]), any_text(rng)])
    flag = "--" + option.replace("_", "-").strip("-")
    value = rng.choice(("0", "-1", "x", "", "1.5", "nan")) if option in ENDLESS else any_text(rng)
    return [*words, *rng.choice(([flag, value], [f"{flag}={value}"], [flag], [f"--no-{flag[2:]}"]))]


def _without_word(rng: random.Random, name: str, words: list[str]) -> list[str]:
    i = rng.randrange(len(words) + 1)
    return words[:i] + words[i + 1 :]


def _other_word(rng: random.Random, name: str, words: list[str]) -> list[str]:
    """Of an endless option the value stays, as another might be a long run."""
    places = [
        i
        for i in range(len(words))
        if i == 0 or words[i - 1].removeprefix("--").replace("-", "_") not in ENDLESS
    ]
    if not places:
        return [any_text(rng)]
    i = rng.choice(places)
    return [*words[:i], any_text(rng), *words[i + 1 :]]


def _more_words(rng: random.Random, name: str, words: list[str]) -> list[str]:
    i = rng.randrange(len(words) + 1)
    return [*words[:i], any_text(rng), *words[i:]]


def _settings(rng: random.Random, name: str, words: list[str]) -> list[str]:
    setting = rng.choice(("lam", "beta", "alpha", "classifier", any_text(rng)))
    return [*words, "--set", f"{setting}={any_text(rng)}"]


CHANGES: list[Callable[[random.Random, str, list[str]], list[str]]] = [
    *(_with_option, _with_option, _with_option),
    *(_without_word, _other_word, _other_word, _more_words, _settings),
]
