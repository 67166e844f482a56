"""Training heads alone and beside busy programs, with each way of waiting for other threads.

    python benchmarks/scripts/beside.py
    python benchmarks/scripts/beside.py --busy 1 --steps 400

Every run is a process that loads torch before unida, as a Python program does. Alone and beside,
and the ways, take turns. On as many cores as there are busy programs, a run that takes twice as
long beside them has its fair share.
"""

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import machine
import torch

from unida.utils import process

WAYS = ("spinning", "shared cores", "GOMP_SPINCOUNT=3000", "one thread")
LOOP = "while True: pass"


def main(argv: list[str] | None = None) -> None:
    parser = machine.parser(__doc__)
    parser.set_defaults(device="cpu")
    parser.add_argument("--ways", type=machine.subset_of(WAYS), default=list(WAYS))
    parser.add_argument("--busy", type=int, default=os.cpu_count(), help="busy programs")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--once", help="one run, in this process")
    args = parser.parse_args(argv)
    if args.once:
        print(json.dumps(run(args.once, args.steps, args.threads)))
        return
    device = machine.by_device(args, {}, {})
    found: dict[tuple[str, int], list[float]] = {}
    for _ in range(args.rounds):
        for way in args.ways:
            for busy in (0, args.busy):
                with _busy(busy):
                    found.setdefault((way, busy), []).append(_in_a_process(way, args))
    del args.once
    rows = [_row(way, args.busy, found) for way in args.ways]
    machine.show("Beside busy programs", rows, list(rows[0]))
    machine.write(args, "beside", device, rows)


def _row(way: str, busy: int, found: dict[tuple[str, int], list[float]]) -> dict[str, Any]:
    alone, beside = (statistics.median(found[way, n]) for n in (0, busy))
    cores = os.cpu_count() or 1
    return {
        "way": way,
        "steps_per_second": alone,
        "beside": beside,
        "alone_over_beside": alone / beside,
        "fair": (busy + cores) / cores,
    }


@contextlib.contextmanager
def _busy(n: int) -> Iterator[None]:
    """Run n programs that do nothing useful, inside the block."""
    loops = [subprocess.Popen([sys.executable, "-c", LOOP]) for _ in range(n)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def _in_a_process(way: str, args: argparse.Namespace) -> float:
    command = [sys.executable, __file__, "--once", way, "--steps", str(args.steps)]
    command += ["--threads", str(args.threads)] if args.threads else []
    spin = {"GOMP_SPINCOUNT": "3000"} if way == "GOMP_SPINCOUNT=3000" else {}
    kept = {k: v for k, v in os.environ.items() if k not in process._SPIN_SETTINGS}
    done = subprocess.run(command, env=kept | spin, stdout=subprocess.PIPE, text=True, check=True)
    return float(json.loads(done.stdout))


def run(way: str, steps: int, threads: int | None) -> float:
    """Return steps a second of SAN's heads."""
    import frozen

    torch.set_num_threads(1 if way == "one thread" else threads or torch.get_num_threads())
    cpu = torch.device("cpu")
    source, target = (
        machine.random_domain(machine.random_embeddings(1000, 0, 2048, seed), 25, cpu)
        for seed in (0, 1)
    )
    sharing = process.sharing_cores() if way == "shared cores" else contextlib.nullcontext()
    frozen.train("san", (source, target), 5, frozen.Variant())
    begin = time.perf_counter()
    with sharing:
        frozen.train("san", (source, target), steps, frozen.Variant())
    return steps / (time.perf_counter() - begin)


if __name__ == "__main__":
    main()
