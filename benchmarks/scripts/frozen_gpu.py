"""Heads on stored embeddings on a GPU: steps a second recorded and kernel by kernel, and the parts.

    python benchmarks/scripts/frozen_gpu.py
    python benchmarks/scripts/frozen_gpu.py --methods san,ovanet --steps 2000

Embeddings are random and lie on the device, as those of `unida adapt --frozen` do. The modes take
turns. The parts are timed on the host, without waiting for the device: what the host spends on
them is what keeps a short step from being launched. On a CPU the script runs small and eager.
"""

import contextlib
import functools
import statistics
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any
from unittest import mock

import machine
import torch

from unida.data.domain import Domain
from unida.methods import METHODS
from unida.methods.presets import configure
from unida.training import batches as batches_module
from unida.training import loop
from unida.training import step as step_module
from unida.training.batches import Batches

PARTS: dict[str, tuple[Any, str]] = {
    "batch": (Batches, "at"),
    "rows": (Batches, "_fetch"),
    "views": (Batches, "_views"),
    "to the device": (batches_module, "send"),
    "eager step": (step_module.Step, "__call__"),
    "recorded step": (step_module.CapturedStep, "__call__"),
    "learning rate": (loop, "set_lr"),
    "seed": (loop, "seed_device"),
    "means": (loop._RunningMeans, "add"),
}
"""By name, a function of the loop; some are parts of others, and `rows` runs in a thread."""


def train(name: str, domains: tuple[Domain, Domain], steps: int, graphs: str) -> float:
    """Return the seconds of a run's steps after the first fifth, which warms up and records."""
    source, target = domains
    config = configure(
        method=name, frozen=True, lr=1e-3, steps=steps, cuda_graphs=graphs,
        checkpoint_every=10**9, log_every=max(1, steps // 4),
    )  # fmt: skip
    backbone = machine.build_backbone("embeddings", source.images(torch.tensor([0])).shape[-1])
    sizes = machine.sizes_of(source, target, config)
    method = machine.build_method(name, (), backbone, sizes, source.device)
    first, marks = steps // 5, list[float]()

    def report(done: int, line: dict[str, Any] | None) -> None:
        if done in (first, steps):
            machine.synchronise(source.device)
            marks.append(time.perf_counter())

    machine.drive(method, Batches(source, target, config), config, source.device, report)
    return (marks[-1] - marks[0]) / (steps - first)


def split(
    name: str, domains: tuple[Domain, Domain], steps: int, graphs: str
) -> list[dict[str, Any]]:
    """Return milliseconds of the host for each part of a step."""
    spent: dict[str, float] = defaultdict(float)
    with contextlib.ExitStack() as stack:
        for part, (place, function) in PARTS.items():
            timed = _timed(part, getattr(place, function), spent)
            stack.enter_context(mock.patch.object(place, function, timed))
        train(name, domains, steps, graphs)
    return [
        {"table": part, "method": name, "mode": graphs, "ms_per_step": 1000 * seconds / steps}
        for part, seconds in spent.items()
    ]


def _timed(name: str, function: Callable[..., Any], spent: dict[str, float]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*args: Any, **options: Any) -> Any:
        begin = time.perf_counter()
        try:
            return function(*args, **options)
        finally:
            spent[name] += time.perf_counter() - begin

    return wrapper


def main(argv: list[str] | None = None) -> None:
    parser = machine.parser(__doc__)
    parser.add_argument("--methods", type=machine.subset_of(METHODS), default=["san"])
    parser.add_argument("--images", type=int, default=3000, help="embeddings a domain")
    parser.add_argument("--width", type=int, default=2048)
    parser.add_argument("--classes", type=int, default=25)
    parser.add_argument("--steps", type=int, help="of a run")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args(argv)
    device = machine.by_device(args, {"steps": 20}, {"steps": 1000})
    source, target = (
        machine.random_domain(
            machine.random_embeddings(args.images, 0, args.width, seed), args.classes, device
        )
        for seed in (0, 1)
    )
    rows: list[dict[str, Any]] = []
    for name in args.methods:
        modes = ["off", "on"] if device.type == "cuda" and METHODS[name].capturable else ["off"]
        found: dict[str, list[float]] = {mode: [] for mode in modes}
        for _ in range(args.rounds):
            for mode in modes:
                found[mode].append(train(name, (source, target), args.steps, mode))
        seconds = {mode: statistics.median(times) for mode, times in found.items()}
        for mode in modes:
            rows.append(
                {
                    "table": "steps",
                    "method": name,
                    "mode": mode,
                    "steps_per_second": 1 / seconds[mode],
                    "ms_per_step": 1000 * seconds[mode],
                    "over_eager": seconds["off"] / seconds[mode],
                }
            )
            rows += split(name, (source, target), args.steps, mode)
    columns = ("table", "method", "mode", "steps_per_second", "ms_per_step", "over_eager")
    machine.show("Heads on a GPU; mode is --cuda-graphs", rows, columns)
    machine.write(args, "frozen_gpu", device, rows)


if __name__ == "__main__":
    main()
