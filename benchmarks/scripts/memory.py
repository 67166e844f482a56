"""A network on the CPU with large blocks of memory reused, as in `unida`, and released.

    python benchmarks/scripts/memory.py
    python benchmarks/scripts/memory.py --networks resnet50 --rounds 5

Each measurement is a process of its own, so that peaks are its own; both ways take turns. CPU time
is measured, which other programs do not lengthen.
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
from typing import Any

import machine
import torch

from unida.models.backbones.base import Backbone
from unida.utils.process import reuse_memory

WORKS = ("embed", "train")
KEPT, RELEASED = "kept", "released"
SIDES = {"small_cnn": 32, "resnet18": 224, "resnet50": 224}
BATCHES = {"small_cnn": 50, "resnet18": 2, "resnet50": 1}


def main(argv: list[str] | None = None) -> None:
    parser = machine.parser(__doc__)
    parser.set_defaults(device="cpu")
    parser.add_argument("--networks", type=machine.subset_of(SIDES), default=list(SIDES))
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--once", nargs=3, metavar=("NETWORK", "WORK", "WAY"), help="one process")
    args = parser.parse_args(argv)
    if args.once:
        print(json.dumps(measure(*args.once, batch=args.batch, threads=args.threads)))
        return
    device = machine.by_device(args, {}, {})
    results = [compare(network, work, args) for network in args.networks for work in WORKS]
    del args.once
    columns = ("network", "work", "seconds_released", "seconds_kept", "times_as_fast")
    machine.show("Memory", results, (*columns, "mib_released", "mib_kept"))
    machine.write(args, "memory", device, results)


def compare(network: str, work: str, args: argparse.Namespace) -> dict[str, Any]:
    """Measure both ways in turns; return medians."""
    found: dict[str, list[dict[str, float]]] = {KEPT: [], RELEASED: []}
    for _ in range(args.rounds):
        for way, rows in found.items():
            rows.append(_in_a_process(network, work, way, args))
    seconds, mib = (
        {way: statistics.median(row[key] for row in rows) for way, rows in found.items()}
        for key in ("seconds", "mib")
    )
    return {
        "network": network,
        "work": work,
        "seconds_released": seconds[RELEASED],
        "seconds_kept": seconds[KEPT],
        "times_as_fast": seconds[RELEASED] / seconds[KEPT],
        "mib_released": mib[RELEASED],
        "mib_kept": mib[KEPT],
    }


def _in_a_process(network: str, work: str, way: str, args: argparse.Namespace) -> dict[str, float]:
    command = [sys.executable, __file__, "--once", network, work, way, "--batch", str(args.batch)]
    threads = ["--threads", str(args.threads)] if args.threads else []
    done = subprocess.run([*command, *threads], stdout=subprocess.PIPE, text=True, check=True)
    row: dict[str, float] = json.loads(done.stdout)
    return row


def measure(network: str, work: str, way: str, batch: int, threads: int | None) -> dict[str, float]:
    """Seconds of all cores for a hundred images, and the largest size of this process."""
    if way == KEPT:
        reuse_memory()
    if threads:
        torch.set_num_threads(threads)
    backbone = machine.build_backbone(network)
    images = torch.rand(batch, 3, SIDES[network], SIDES[network])
    step = _training(backbone, images) if work == "train" else _embedding(backbone, images)
    step()
    begin = _cpu_seconds()
    for _ in range(BATCHES[network]):
        step()
    seconds = 100 * (_cpu_seconds() - begin) / (batch * BATCHES[network])
    return {"seconds": seconds, "mib": machine.memory().get("peak", 0.0)}


def _embedding(backbone: Backbone, images: torch.Tensor) -> Any:
    backbone.eval()
    return torch.inference_mode()(lambda: backbone(images))


def _training(backbone: Backbone, images: torch.Tensor) -> Any:
    optimizer = torch.optim.SGD(backbone.train().parameters(), 0.001)

    def step() -> None:
        optimizer.zero_grad()
        backbone(images).square().mean().backward()
        optimizer.step()

    return step


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
