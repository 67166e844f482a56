"""Short training runs of every method, watched and interrupted from outside."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.tasks import Task
from unida.bench.entries import BenchEntry
from unida.config import RunConfig
from unida.methods import METHODS, Method
from unida.methods.presets import PRESETS, find_preset
from unida.model import Model
from unida.pipeline import run_adaptation
from unida.training import loop
from unida.training.run_folder import RunFolder
from unida.training.step import Numbers, make_step
from unida.types import Batch

SMALL = {"spa": ("words=64",)}  # k-means with all words takes longer than the rest of a run
RECIPES = {name for name in PRESETS if name.endswith("-released")}
"""Of methods that are cases themselves; what a recipe sets is tested with its method."""
CASES = [
    BenchEntry(name, name, SMALL.get(find_preset(name).method, ()))
    for name in (*METHODS, *PRESETS)
    if name not in RECIPES - {"ovanet-released", "san-released"}
]


def make_config(digits: Task, out: Path, case: BenchEntry, **options: Any) -> RunConfig:
    return digits.config(out, method=case.preset, settings=case.settings, **options)


def log_lines(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in RunFolder(out).metrics.read_text().splitlines()]


@contextmanager
def before_losses(case: BenchEntry, call: Callable[[Method, Batch], None]) -> Iterator[None]:
    """Call `call` before the losses of every step are computed."""
    cls = METHODS[case.method]
    losses = cls.losses

    def called(method: Method, batch: Batch) -> Any:
        call(method, batch)
        return losses(method, batch)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cls, "losses", called)
        yield


class KilledError(Exception):
    """Ends a run in the middle, as a kill would."""


def run_killed(config: RunConfig, step: int) -> None:
    """A run that is killed in that step, also where steps are replayed from a recording."""

    def make(*arguments: Any) -> Callable[[Batch], Numbers]:
        take = make_step(*arguments)

        def take_or_die(batch: Batch) -> Numbers:
            if batch.step == step:
                raise KilledError
            return take(batch)

        return take_or_die

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "make_step", make)
        with pytest.raises(KilledError):
            run_adaptation(config)
    assert not RunFolder(config.output.out).done.exists()


@dataclass(frozen=True)
class Trained:
    """A finished run.

    Attributes:
        case: what was trained.
        out: its folder.
        model: what training returned.
        learnable: names of the parameters that require a gradient.
        reached: names of those that got one that is not zero, in any step.
    """

    case: BenchEntry
    out: Path
    model: Model
    learnable: set[str]
    reached: set[str]


def train(digits: Task, out: Path, case: BenchEntry) -> Trained:
    """An uninterrupted run; the gradients are watched."""
    learnable: set[str] = set()
    reached: set[str] = set()

    def watch(method: Method, batch: Batch) -> None:
        if batch.step > 0:
            return
        for name, parameter in method.named_parameters():
            if parameter.requires_grad:
                learnable.add(name)
                parameter.register_post_accumulate_grad_hook(note(name))

    def note(name: str) -> Callable[[Any], None]:
        def hook(parameter: Any) -> None:
            if name not in reached and parameter.grad.count_nonzero():
                reached.add(name)

        return hook

    with before_losses(case, watch):
        model = run_adaptation(make_config(digits, out, case))
    return Trained(case, out, model, learnable, reached)
