"""Does training wait for data? From files on disk to the first step, and then step by step.

    python benchmarks/scripts/waiting.py
    python benchmarks/scripts/waiting.py --modes disk-host --steps 10000

Writes JPEGs of its own into a temporary folder. For every cache mode: the time to the first step on
a first and on later starts (the operating system has the files in memory in either case), the share
of a step spent waiting for pixels, the peak of memory and how memory grows. `fixed` is a run on
the same pixels every time: the cost of a step without data loading. On a GPU, `memory`
and `disk` move the pixels there if they fit; `memory-host` and `disk-host` leave them where they
are, as for a larger set.

A `load` lasts from the folders to domains that serve images; a `start` lasts until the first batch
is on the device, when the first step begins.

Memory of the process's own is anonymous; the peak also has pages of mapped files, which the system
takes back when it needs them. Growth is of own memory, from a tenth of the steps to the last.

Waiting is what the loop's own thread spends on the next batch. A GPU works behind that thread, and
on a CPU decoding takes cores from the step instead, so the ratio to `fixed` is the better measure.
"""

import argparse
import contextlib
import dataclasses
import gc
import statistics
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest import mock

import machine
import numpy as np
import torch
from PIL import Image
from torch import Tensor

from unida.config import RunConfig
from unida.data.domain import Domain, load_domains
from unida.data.samples import read_source, read_unlabelled
from unida.training.batches import Batches

FIXED = "fixed"
ON_CPU = {
    "backbone": "small_cnn",
    "image_size": 64,
    "steps": 300,
    "rounds": 3,
    "batch": 36,
    "modes": [FIXED, "memory", "disk", "stream"],
}
ON_CUDA = {
    "backbone": "resnet50-v1",
    "image_size": 224,
    "steps": 10_000,
    "rounds": 1,
    "batch": 36,
    "modes": [FIXED, "memory", "disk", "memory-host", "disk-host", "stream"],
}
N_CLASSES = 10
SETTLE = 3  # s: the cache ignores modification times younger than two
STARTS = (
    "first_load_s",
    "second_load_s",
    "first_over_second_load",
    "first_start_s",
    "second_start_s",
    "first_over_second_start",
)
MEMORY = ("own_above_start_mib", "peak_above_start_mib", "device_peak_mib", "growth_mib")


# Images on disk.


def write_images(root: Path, n: int, width: int, height: int) -> None:
    """Write n different JPEGs, half of them source in class folders, half target."""
    draw = np.random.default_rng(0)
    scenes = [_scene(draw, width, height) for _ in range(16)]
    places = []
    for i in range(n):
        domain = "source" if i < n // 2 else "target"
        folder = root / domain / (f"class{i % N_CLASSES}" if domain == "source" else "all")
        folder.mkdir(parents=True, exist_ok=True)
        places.append(folder / f"{i:06}.jpg")

    def save(i: int) -> None:
        turned = np.roll(scenes[i % len(scenes)], 37 * i, axis=1)
        Image.fromarray(turned).save(places[i], quality=88)

    with ThreadPoolExecutor() as pool:
        list(pool.map(save, range(n)))


def _scene(draw: np.random.Generator, width: int, height: int) -> Any:
    """Return smooth shapes with some grain, whose JPEG is about as large as a photograph's."""
    small = draw.integers(0, 256, (12, 16, 3), dtype=np.uint8)
    soft = np.asarray(Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC))
    grain = draw.normal(0, 6, soft.shape)
    return np.clip(soft + grain, 0, 255).astype(np.uint8)


# A run, watched.


class _Pool:
    """The prefetching thread; its futures record how long they are waited for."""

    def __init__(self, pool: ThreadPoolExecutor, device: torch.device) -> None:
        self.pool, self.device = pool, device
        self.waits: list[float] = []
        self.first_batch = 0.0

    def submit(self, *work: Any) -> "_Waited":
        return _Waited(self.pool.submit(*work), self)


class _Waited:
    """A future that records how long it is waited for; the first one also when it was ready."""

    def __init__(self, future: "Future[Any]", pool: _Pool) -> None:
        self.future, self.pool = future, pool

    def result(self) -> Any:
        begin = time.perf_counter()
        result = self.future.result()
        if not self.pool.waits:
            machine.synchronise(self.pool.device)
            self.pool.first_batch = time.perf_counter()
        self.pool.waits.append(time.perf_counter() - begin)
        return result


class FixedPixels:
    """The same pixels for every index."""

    key = None

    def __init__(self, n: int, images: Tensor) -> None:
        self.n, self.images = n, images

    def __len__(self) -> int:
        return self.n

    def get(self, index: Tensor) -> Tensor:
        return self.images[torch.arange(len(index)) % len(self.images)]


class Watch:
    """Progress callback of the loop: time of the first step, speed, memory."""

    def __init__(self, steps: int, device: torch.device) -> None:
        self.steps, self.device = steps, device
        self.first_step = 0.0
        self.rates: list[float] = []
        self.early: dict[str, float] = {}

    def __call__(self, done: int, line: dict[str, Any] | None) -> None:
        if done == 1:
            machine.synchronise(self.device)
            self.first_step = time.perf_counter()
        if done == max(1, self.steps // 10):
            self.early = machine.memory()
        if line:
            self.rates.append(line["steps_per_second"])


def load(mode: str, root: Path, config: RunConfig, device: torch.device) -> tuple[Domain, Domain]:
    samples = {
        "source": read_source(root / "source"),
        "target": read_unlabelled(root / "target"),
    }
    if mode == FIXED:
        pixels = machine.random_pixels(config.optim.batch, config.data.pixel_size, 0).to(device)
        source, target = (
            Domain(named, FixedPixels(len(named), pixels), device) for named in samples.values()
        )
        return source, target
    cache, _, place = mode.partition("-")
    config = config.replace(cache=cache)
    with _left_on_host() if place == "host" else contextlib.nullcontext():
        domains = load_domains(config, device, samples, lambda name: lambda done, total: None)
    return domains["source"], domains["target"]


@contextlib.contextmanager
def _left_on_host() -> Iterator[None]:
    with mock.patch("unida.data.domain.on_device", lambda store, device: store):
        yield


@dataclasses.dataclass
class Start:
    """Measurements of one start of a run: times in seconds, memory in MiB."""

    loaded: float
    first_batch: float
    first_step: float
    waits: list[float]
    watch: Watch
    before: dict[str, float]
    after: dict[str, float]
    device_peak: float | None


def start(mode: str, root: Path, config: RunConfig, device: torch.device) -> Start:
    """Run from files to the last step; building the network is not timed."""
    gc.collect()
    machine.reset_peak(device)
    before, begin = machine.memory(), time.perf_counter()
    source, target = load(mode, root, config, device)
    loaded = time.perf_counter() - begin
    torch.manual_seed(0)
    backbone = machine.build_backbone(config.model.backbone)
    sizes = machine.sizes_of(source, target, config)
    method = machine.build_method(config.method, (), backbone, sizes, device)
    batches = Batches(source, target, config)
    pool = _Pool(batches._pool, device)
    batches._pool = pool  # type: ignore[assignment]
    watch = Watch(config.optim.steps, device)
    trained = time.perf_counter()
    machine.drive(method, batches, config, device, watch)
    return Start(
        loaded=loaded,
        first_batch=loaded + pool.first_batch - trained,
        first_step=loaded + watch.first_step - trained,
        waits=pool.waits,
        watch=watch,
        before=before,
        after=machine.memory(),
        device_peak=machine.device_peak(device),
    )


def summary(mode: str, first: Start, later: list[Start]) -> dict[str, Any]:
    """Summarise a mode: its first start, and those after it, which trained to the end."""
    # The first interval has what a first step costs, and the last the run's end.
    rates = [rate for one in later for rate in one.watch.rates[1:-1] or one.watch.rates]
    waits = [wait for one in later for wait in one.waits[1:]] or [0.0]
    step, waited = 1 / statistics.median(rates), statistics.mean(waits)
    loaded = statistics.median(one.loaded for one in later)
    begun = statistics.median(one.first_batch for one in later)
    last = later[-1]
    return {
        "mode": mode,
        "first_load_s": first.loaded,
        "second_load_s": loaded,
        "first_over_second_load": first.loaded / loaded,
        "first_start_s": first.first_batch,
        "second_start_s": begun,
        "first_over_second_start": first.first_batch / begun,
        "first_step_done_s": first.first_step,
        "second_step_done_s": statistics.median(one.first_step for one in later),
        "step_ms": 1000 * step,
        "waiting_ms": 1000 * waited,
        "waiting_share": waited / step,
        "own_above_start_mib": _difference(last.after, last.before, "anonymous", "anonymous"),
        "peak_above_start_mib": _difference(first.after, first.before, "peak", "resident"),
        "device_peak_mib": last.device_peak,
        "resident_at_tenth_mib": last.watch.early.get("resident"),
        "resident_at_end_mib": last.after.get("resident"),
        "growth_mib": _difference(last.after, last.watch.early, "anonymous", "anonymous"),
    }


def measure(
    modes: list[str], rounds: int, root: Path, config: RunConfig, device: torch.device
) -> list[dict[str, Any]]:
    """Measure a first start of every mode, then rounds in which the modes take turns."""
    own = {mode: config.replace(cache_dir=str(root / "cache" / mode)) for mode in modes}
    first = {m: start(m, root, machine.with_steps(own[m], 1), device) for m in modes}
    later: dict[str, list[Start]] = {mode: [] for mode in modes}
    for _ in range(rounds):
        for mode in modes:
            later[mode].append(start(mode, root, own[mode], device))
    return [summary(mode, first[mode], later[mode]) for mode in modes]


def _difference(
    late: dict[str, float], early: dict[str, float], one: str, other: str
) -> float | None:
    return late[one] - early[other] if one in late and other in early else None


def compare(rows: list[dict[str, Any]], pixels_mib: float, budget_gb: float) -> None:
    """Add the ratio to a run without data loading, and the memory budget."""
    fixed = next((row["step_ms"] for row in rows if row["mode"] == FIXED), None)
    for row in rows:
        row["step_over_fixed"] = row["step_ms"] / fixed if fixed else None
        row["pixels_mib"] = pixels_mib
        row["budget_mib"] = 1024 * budget_gb


def options() -> argparse.ArgumentParser:
    parser = machine.parser(__doc__)
    parser.add_argument("--images", type=int, default=4000, help="JPEGs, half of them source")
    parser.add_argument("--jpeg", type=machine.numbers, default=[500, 375], help="width,height")
    parser.add_argument("--modes", type=machine.subset_of(ON_CUDA["modes"]))
    parser.add_argument("--steps", type=int, help="of each mode, in all rounds together")
    parser.add_argument("--rounds", type=int, help="modes take turns; memory is of the last")
    parser.add_argument("--method", default="san")
    parser.add_argument("--backbone")
    parser.add_argument("--image-size", type=int)
    parser.add_argument("--batch", type=int)
    parser.add_argument("--memory-gb", type=float, default=4.0, help="the budget for pixels")
    return parser


def main(argv: list[str] | None = None) -> None:
    args = options().parse_args(argv)
    device = machine.by_device(args, ON_CPU, ON_CUDA)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        write_images(root, args.images, *args.jpeg)
        time.sleep(SETTLE)
        torch.zeros(1, device=device)  # the start of the GPU is not that of the data
        config = RunConfig.from_flat(
            method=args.method,
            backbone=args.backbone,
            image_size=args.image_size,
            batch=args.batch,
            lr=1e-4,  # the images are noise, but losses must stay finite
            steps=max(1, args.steps // args.rounds),
            memory_gb=args.memory_gb,
            log_every=max(1, min(50, args.steps // args.rounds // 6)),
            checkpoint_every=10**9,
        )
        rows = measure(args.modes, args.rounds, root, config, device)
    pixels = args.images * 3 * config.data.pixel_size**2 / 2**20
    compare(rows, pixels, args.memory_gb)
    machine.show(f"from {args.images} files to the first step", rows, ("mode", *STARTS))
    machine.show(
        f"{args.steps} steps of {args.method}; {pixels:.0f} MiB of pixels",
        rows,
        ("mode", "step_ms", "step_over_fixed", "waiting_ms", "waiting_share"),
    )
    machine.show(
        f"memory in MiB; budget {1024 * args.memory_gb:.0f}",
        rows,
        ("mode", *MEMORY),
    )
    machine.write(args, "waiting", device, rows)


if __name__ == "__main__":
    main()
