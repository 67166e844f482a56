"""Shared by the speed benchmarks: description of the machine, clock, random data, result files.

Every script writes one JSON of the same shape: the benchmark's name, the machine (with versions and
the commit of the code), the settings, and a list of results.
"""

import argparse
import json
import os
import platform
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unida import __version__
from unida.bench.scoring import commit_of_code
from unida.config import RunConfig, parse_settings
from unida.data.domain import Domain
from unida.data.pixels import ArrayStore
from unida.data.samples import Samples
from unida.methods import METHODS, Method
from unida.models.backbones import build_backbone as build_by_name
from unida.models.backbones.base import Backbone, precomputed_features
from unida.models.backbones.hf import rebuild
from unida.training.batches import Batches
from unida.training.loop import StepCallback, resolve_run, train
from unida.training.run_folder import RunFolder
from unida.types import Sizes
from unida.utils.devices import pick_device

RESULTS = Path(__file__).parents[1] / "speed"
VIT_SMALL = {
    "model_type": "vit",
    "hidden_size": 384,
    "num_hidden_layers": 12,
    "num_attention_heads": 6,
    "intermediate_size": 1536,
}


# The command line.


def parser(text: str | None) -> argparse.ArgumentParser:
    """Return a parser with the options of every benchmark; `text` is the script's docstring."""
    made = argparse.ArgumentParser(
        description=text, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:N")
    made.add_argument("--threads", type=int, help="of PyTorch on the CPU; by default its own")
    made.add_argument("--out", type=Path, help="JSON to write; by default one under speed/")
    return made


def words(text: str) -> list[str]:
    """`a,b` → ["a", "b"]."""
    return [word for word in text.split(",") if word]


def subset_of(allowed: Iterable[str]) -> Callable[[str], list[str]]:
    """Return a parser of `a,b` whose words must be among those allowed."""
    known = list(allowed)

    def parse(text: str) -> list[str]:
        wrong = [word for word in words(text) if word not in known]
        if wrong:
            raise argparse.ArgumentTypeError(f"{wrong[0]!r} is none of {', '.join(known)}")
        return words(text)

    return parse


def numbers(text: str) -> list[int]:
    return [int(word) for word in words(text)]


def by_device(args: argparse.Namespace, cpu: dict[str, Any], cuda: dict[str, Any]) -> torch.device:
    """Pick the device and fill missing options: small on a CPU, full on a GPU."""
    device = pick_device(args.device)
    if args.threads:
        torch.set_num_threads(args.threads)
    for name, value in (cuda if device.type == "cuda" else cpu).items():
        if getattr(args, name) is None:
            setattr(args, name, value)
    return device


# The machine and the results.


def describe(device: torch.device) -> dict[str, str]:
    """Describe the machine and versions of a measurement."""
    cuda = device.type == "cuda"
    return {
        "device": torch.cuda.get_device_name(device) if cuda else _processor(),
        "cores": str(os.cpu_count()),
        "threads": str(torch.get_num_threads()),
        "system": platform.platform(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "unida": __version__,
        "commit": commit_of_code(),
    }


def _processor() -> str:
    """Return the name of the CPU, where Linux reports it."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def write(
    args: argparse.Namespace, name: str, device: torch.device, results: Sequence[dict[str, Any]]
) -> Path:
    """Write the JSON and print its path."""
    place: Path = args.out or RESULTS / f"{name}-{device.type}.json"
    settings = {key: _plain(value) for key, value in vars(args).items() if key != "out"}
    content = {
        "benchmark": name,
        "machine": describe(device),
        "settings": settings,
        "results": list(results),
    }
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(json.dumps(content, indent=1) + "\n")
    print(f"→ {place}")
    return place


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, Path) else value


def show(title: str, rows: Sequence[dict[str, Any]], columns: Iterable[str]) -> None:
    """Print columns of the results as a table."""
    columns = list(columns)
    cells = [columns, *([_cell(row.get(name)) for name in columns] for row in rows)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(columns))]
    print(f"\n{title}")
    for line in cells:
        print("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)))


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


# Time and memory.


def synchronise(device: torch.device) -> None:
    """Wait until the device has finished its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def seconds(work: Callable[[], object], device: torch.device) -> float:
    """Return how long `work` takes, including its work on the device."""
    synchronise(device)
    begin = time.perf_counter()
    work()
    synchronise(device)
    return time.perf_counter() - begin


def memory() -> dict[str, float]:
    """Return MiB of this process: resident, anonymous, peak. Empty without /proc."""
    place = Path("/proc/self/status")
    lines = place.read_text().splitlines() if place.exists() else []
    fields = dict(line.split(":", 1) for line in lines)
    wanted = {"resident": "VmRSS", "anonymous": "RssAnon", "peak": "VmHWM"}
    return {
        name: int(fields[key].split()[0]) / 1024 for name, key in wanted.items() if key in fields
    }


def reset_peak(device: torch.device) -> None:
    """Restart the count of the peak, where the system allows."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return


def device_peak(device: torch.device) -> float | None:
    """Return the peak MiB of tensors on the GPU since `reset_peak`."""
    return torch.cuda.max_memory_allocated(device) / 2**20 if device.type == "cuda" else None


# Random data and what trains on it.


def random_domain(array: Tensor, n_classes: int, device: torch.device) -> Domain:
    """Return a labelled domain of the rows of `array`."""
    labels = np.arange(len(array), dtype=np.int64) % n_classes
    names = tuple(f"class {k}" for k in range(n_classes))
    samples = Samples((Path("none"),) * len(array), labels, names)
    return Domain(samples, ArrayStore(array.to(device)), device)


def random_pixels(n: int, size: int, seed: int) -> Tensor:
    """uint8 (n, 3, size, size)."""
    draws = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (n, 3, size, size), generator=draws, dtype=torch.uint8)


def random_embeddings(n: int, views: int, width: int, seed: int) -> Tensor:
    """float32 (n, 1 + views, width), as `unida.data.embeddings` stores them."""
    return torch.randn(n, 1 + views, width, generator=torch.Generator().manual_seed(seed))


def build_backbone(name: str, width: int = 0) -> Backbone:
    """Random weights; `vit-small` needs no file, `embeddings` stands for `width` stored numbers."""
    if name == "embeddings":
        return precomputed_features(width)
    if name == "vit-small":
        return Backbone(rebuild({"config": VIT_SMALL}), json.dumps({"name": name}))
    return build_by_name(name, "none")


def build_method(
    name: str, settings: Sequence[str], backbone: Backbone, sizes: Sizes, device: torch.device
) -> Method:
    cls = METHODS[name]
    torch.manual_seed(0)
    return cls(parse_settings(cls.Config, tuple(settings), name), backbone, sizes).to(device)


class NoCheckpoints(RunFolder):
    """A run folder without checkpoints, which are no part of a step."""

    def save_state(self, state: dict[str, Any]) -> None:
        return None


def drive(
    method: Method, batches: Batches, config: RunConfig, device: torch.device, report: StepCallback
) -> None:
    """Run the training loop in a temporary folder."""
    config = resolve_run(config, method, device)
    with tempfile.TemporaryDirectory() as folder:
        train(method, batches, config, device, NoCheckpoints(folder), report)


def sizes_of(source: Domain, target: Domain, config: RunConfig) -> Sizes:
    n_classes = len(source.samples.classes)
    return Sizes(
        n_classes,
        len(source),
        len(target),
        config.optim.batch,
        config.optim.steps,
        config.model.frozen,
    )


def with_steps(config: RunConfig, steps: int) -> RunConfig:
    return config.replace(steps=steps)
