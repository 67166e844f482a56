"""Heads on stored embeddings, the recipe without a GPU: time by part of a step, and variants.

    python benchmarks/scripts/frozen.py
    python benchmarks/scripts/frozen.py --methods san,ovanet,uniot --steps 200

Random embeddings stand in for those of a frozen backbone; `unida adapt --frozen` trains on the same
arrays in the same loop. Three tables: the whole run of each method; the parts of a step, timed one
by one; and variants of the step, which take turns in short runs so that whatever slows the machine
down slows all of them.
"""

import argparse
import contextlib
import ctypes
import dataclasses
import functools
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from unittest import mock

import machine
import torch
from accelerate import Accelerator

from unida.data.domain import Domain
from unida.methods import METHODS, Method
from unida.methods.presets import configure
from unida.training.batches import Batches

SGD = torch.optim.SGD
TIMES = ("ms_per_step", "fastest_ms", "times_as_fast", "seconds_of_2000")


@dataclass(frozen=True)
class Variant:
    """A variant of the same step.

    Attributes:
        optimizer: options of SGD that replace the loop's.
        threads: of PyTorch's; 0 leaves them.
        keep_memory: large arrays are not returned to the system between steps (glibc only).
        bf16: matrix products of heads and losses in bfloat16.
        settings: of the method.
        whole: the method's parts as large as beside a backbone that is trained.
        methods: where it applies; empty for all.
    """

    optimizer: tuple[tuple[str, bool], ...] = ()
    threads: int = 0
    bf16: bool = False
    keep_memory: bool = False
    settings: tuple[str, ...] = ()
    whole: bool = False
    methods: tuple[str, ...] = ()


_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4  # of mallopt(3)

VARIANTS: dict[str, Variant] = {
    "as it is": Variant(),
    "SGD one by one": Variant((("fused", False), ("foreach", False))),
    "SGD foreach": Variant((("fused", False), ("foreach", True))),
    "1 thread": Variant(threads=1),
    "2 threads": Variant(threads=2),
    "bf16 heads": Variant(bf16=True),
    "memory kept": Variant(keep_memory=True),
    "z of 256": Variant(settings=("width=256",), methods=("san",)),
    "hidden 2": Variant(settings=("hidden=2",), methods=("san",)),
    "linear head": Variant(settings=("head=linear",), methods=("san",)),
    "whole": Variant(whole=True, methods=("san",)),
    "whole + memory kept": Variant(whole=True, keep_memory=True, methods=("san",)),
}


# A run of some steps.


class EveryStep:
    """Progress callback of the loop that records when each step was done."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.times: list[float] = []

    def __call__(self, done: int, line: dict[str, Any] | None) -> None:
        machine.synchronise(self.device)
        self.times.append(time.perf_counter())

    def steps(self, warm_up: int) -> list[float]:
        """Return seconds of each step after the first few, without the last, which ends the run."""
        pairs = zip(self.times[warm_up:-2], self.times[warm_up + 1 : -1], strict=True)
        return [late - early for early, late in pairs]


def train(name: str, domains: tuple[Domain, Domain], steps: int, variant: Variant) -> EveryStep:
    """Train the heads of a method for some steps."""
    source, target = domains
    config = configure(
        method=name,
        frozen=True,
        lr=1e-3,
        steps=steps,
        settings=variant.settings,
        checkpoint_every=10**9,
    )
    backbone = machine.build_backbone("embeddings", source.images(torch.tensor([0])).shape[-1])
    sizes = machine.sizes_of(source, target, config)
    sizes = dataclasses.replace(sizes, frozen=not variant.whole)
    method = machine.build_method(name, variant.settings, backbone, sizes, source.device)
    report = EveryStep(source.device)
    with _as_varied(variant, source.device):
        machine.drive(method, Batches(source, target, config), config, source.device, report)
    return report


@contextlib.contextmanager
def _as_varied(variant: Variant, device: torch.device) -> Iterator[None]:
    threads = torch.get_num_threads()
    made = functools.partial(_sgd, dict(variant.optimizer))
    try:
        torch.set_num_threads(variant.threads or threads)
        _keep_memory(variant.keep_memory)
        with (
            mock.patch.object(torch.optim, "SGD", made),
            torch.autocast(device.type, torch.bfloat16, enabled=variant.bf16),
        ):
            yield
    finally:
        torch.set_num_threads(threads)
        _keep_memory(False)


def _keep_memory(keep: bool) -> None:
    """Let glibc serve large arrays from its heap instead of fresh pages, zeroed each time."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt:
        mallopt(_M_MMAP_MAX, 0 if keep else 65536)
        mallopt(_M_TRIM_THRESHOLD, -1 if keep else 128 * 1024)


def _sgd(instead: dict[str, bool], *args: Any, **options: Any) -> torch.optim.SGD:
    return SGD(*args, **(options | instead))


# Where the time goes.


class Parts:
    """Accumulates the time spent in functions, by name."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.spent: dict[str, float] = defaultdict(float)

    def timed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def wrapper(*args: Any, **options: Any) -> Any:
            machine.synchronise(self.device)
            begin = time.perf_counter()
            try:
                return function(*args, **options)
            finally:
                machine.synchronise(self.device)
                self.spent[name] += time.perf_counter() - begin

        return wrapper


PARTS: dict[str, tuple[Any, str]] = {
    "batch": (Batches, "at"),
    "forward": (Method, "forward"),
    "backward": (Accelerator, "backward"),
    "gradient norm": (torch.nn.utils, "get_total_norm"),
    "optimiser": (SGD, "step"),
}
"""By name, a function of the loop. `batch` waits for the rows that another thread gathers."""


def split(name: str, domains: tuple[Domain, Domain], steps: int) -> dict[str, Any]:
    """Return milliseconds of a step by part; timing itself costs a little."""
    parts = Parts(domains[0].device)
    with contextlib.ExitStack() as stack:
        for part, (place, function) in PARTS.items():
            timed = parts.timed(part, getattr(place, function))
            stack.enter_context(mock.patch.object(place, function, timed))
        train(name, domains, 3, Variant())  # warm
        parts.spent.clear()
        begin = time.perf_counter()
        train(name, domains, steps, Variant())
        whole = time.perf_counter() - begin
    shares = {part: 1000 * parts.spent[part] / steps for part in PARTS}
    rest = 1000 * whole / steps - sum(shares.values())
    return {"table": "parts", "method": name, **shares, "rest": rest}


# The three tables.


def whole_run(name: str, domains: tuple[Domain, Domain], steps: int) -> dict[str, Any]:
    begin = time.perf_counter()
    train(name, domains, steps, Variant())
    whole = time.perf_counter() - begin
    return {
        "table": "runs",
        "method": name,
        "steps": steps,
        "seconds": whole,
        "ms_per_step": 1000 * whole / steps,
        "seconds_of_2000": 2000 * whole / steps,
    }


def variants(
    name: str, domains: tuple[Domain, Domain], selected: list[str], probe: int, rounds: int
) -> list[dict[str, Any]]:
    """Return median milliseconds of a step of each variant, over rounds that take turns."""
    fitting = [v for v in selected if not VARIANTS[v].methods or name in VARIANTS[v].methods]
    times: dict[str, list[float]] = {variant: [] for variant in fitting}
    for _ in range(rounds):
        for variant in fitting:
            times[variant] += train(name, domains, probe + 4, VARIANTS[variant]).steps(2)
    median = {variant: 1000 * statistics.median(times[variant]) for variant in fitting}
    first = median[fitting[0]]
    return [
        {
            "table": "variants",
            "method": name,
            "variant": variant,
            "ms_per_step": ms,
            "fastest_ms": 1000 * min(times[variant]),
            "seconds_of_2000": 2 * ms,
            "times_as_fast": first / ms,
        }
        for variant, ms in median.items()
    ]


def options() -> argparse.ArgumentParser:
    parser = machine.parser(__doc__)
    parser.add_argument("--methods", type=machine.subset_of(METHODS), default=["san"])
    parser.add_argument("--images", type=int, default=5000, help="embeddings a domain")
    parser.add_argument("--width", type=int, default=2048, help="numbers of an embedding")
    parser.add_argument("--views", type=int, default=4, help="augmented ones of each image")
    parser.add_argument("--classes", type=int, default=25)
    parser.add_argument("--steps", type=int, default=2000, help="of the whole run; 0 for none")
    parser.add_argument("--probe", type=int, default=20, help="steps of a variant in a round")
    parser.add_argument("--rounds", type=int, default=3, help="in which variants take turns")
    parser.add_argument("--variants", type=machine.subset_of(VARIANTS), default=list(VARIANTS))
    return parser


def main(argv: list[str] | None = None) -> None:
    args = options().parse_args(argv)
    device = machine.by_device(args, {}, {})
    source, target = (
        machine.random_domain(
            machine.random_embeddings(args.images, args.views, args.width, seed),
            args.classes,
            device,
        )
        for seed in (0, 1)
    )
    rows: list[dict[str, Any]] = []
    for name in args.methods:
        rows.append(split(name, (source, target), args.probe))
        rows += variants(name, (source, target), args.variants, args.probe, args.rounds)
        if args.steps:
            rows.append(whole_run(name, (source, target), args.steps))
    columns = {
        "runs": ("method", "steps", "seconds", "ms_per_step"),
        "parts": ("method", *PARTS, "rest"),
        "variants": ("method", "variant", *TIMES),
    }
    for table, names in columns.items():
        machine.show(table, [row for row in rows if row["table"] == table], names)
    machine.write(args, "frozen", device, rows)


if __name__ == "__main__":
    main()
