"""What is attacked: images, a finished run, one that was stopped, results of a bench."""

import json
import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.attack.outcome import Outcome
from tests.bench.benches import write_data
from tests.bench.test_tables import digits, office
from tests.images import write_folder
from tests.tasks import Task, write_task
from unida.bench.results import to_json
from unida.discovery.discover import discover
from unida.methods import Method
from unida.methods.presets import load_config
from unida.model import load
from unida.pipeline import run
from unida.training.run_folder import RunFolder, write_text
from unida.types import Prediction

EARLIER = Path(__file__).parents[1] / "fixtures" / "format6" / "san-plain"


@dataclass(frozen=True)
class Place:
    """Good files below a folder, which no case writes to.

    Attributes:
        root: the folder.
        task: source and target of the runs.
        images: a few images to label.
        finished: a run with categories and corrections.
        stopped: a run with a checkpoint.
        earlier: a run of version 0.1.
        results: of a bench, as a file.
        protocol: of a data set in `data` beside it.
        labelled: what the finished run predicts for the images, by name.
        resumed: the model of the stopped run, resumed.
    """

    root: Path
    task: Task
    images: Path
    finished: Path
    stopped: Path
    earlier: Path
    results: Path
    protocol: Path
    labelled: dict[str, Prediction]
    resumed: bytes


@dataclass(frozen=True)
class Case:
    """A command, and what was done before it.

    Attributes:
        name: what was done, in words.
        command: of `unida`.
        check: tells what is wrong with what a command that succeeded has written.
    """

    name: str
    command: list[str]
    check: Callable[[Outcome], list[str]] = lambda outcome: []


class StoppedError(Exception):
    """Ends a run at its first checkpoint, as a kill would."""


def stop(*_: Method) -> None:
    raise StoppedError


def make_place(root: Path) -> Place:
    """Train the runs; takes a few seconds."""
    task = write_task(root / "digits", (0, 1, 2, 3), (0, 1, 2, 8, 9), 20)
    finished, stopped = root / "finished", root / "stopped"
    run(task.config(finished, steps=10, holdout=0.25, report=True))
    discover(RunFolder(finished), count=2).save(RunFolder(finished))
    (finished / "review.json").write_text(json.dumps({"names": {}, "labels": {}, "revision": 3}))
    try:
        run(task.config(stopped, steps=6, checkpoint_every=3), on_checkpoint=stop)
    except StoppedError:
        assert (stopped / "state.pt").exists()
    shutil.copytree(EARLIER, root / "earlier")
    resumed = shutil.copytree(stopped, root / "resumed")
    run(load_config(resumed / "config.json").replace(out=str(resumed)), resume=True)
    images = write_folder(root / "images", 3, first=70)
    predicted = load(finished, "cpu").predict(images)
    results, shown = root / "results.jsonl", [*office(), *office("san-no-scl"), digits()]
    write_text(results, "".join(f"{to_json(result)}\n" for result in shown))
    protocol = write_data(root)
    return Place(
        root=root,
        task=task,
        images=images,
        finished=finished,
        stopped=stopped,
        earlier=root / "earlier",
        results=results,
        protocol=protocol,
        labelled={one.path.name: one for one in predicted if one.path},
        resumed=(resumed / "model.safetensors").read_bytes(),
    )


def generator(seed: int, *name: object) -> random.Random:
    """Random numbers of a case, the same wherever and whenever it is made."""
    return random.Random("/".join(map(str, (seed, *name))))


def flip_bits(content: bytes, rng: random.Random, first: int = 0, last: int | None = None) -> bytes:
    """Flip one to eight bits between two places."""
    damaged = bytearray(content)
    for _ in range(rng.choice((1, 1, 1, 2, 8))):
        place = rng.randrange(first, max(first + 1, min(last or len(damaged), len(damaged))))
        damaged[place] ^= 1 << rng.randrange(8)
    return bytes(damaged)
