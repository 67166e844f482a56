"""Anyone's training script against ours: images a second on the same data and the same machine.

    python benchmarks/scripts/against.py --source photos --target sketches \\
        --batch 36 --backbone resnet50 \\
        --theirs 'python train.py --batch_size 36' --theirs-in ../OVANet \\
        --theirs-steps-regex 'Train \\[(\\d+)/'

Theirs is any command that prints the number of its step now and then; the first group of the
regular expression finds it. Ours is `unida adapt` on the folders. Both are timed from outside in
the same way: between the first line after --warm-up steps and the line at --steps; then they are
stopped. They take turns for --rounds rounds. A step sees --batch images of each domain
(--theirs-batch where theirs differs), so images a second are steps a second × 2 × batch.
"""

import argparse
import contextlib
import os
import re
import shlex
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import machine

OURS = r" (\d+)/\d+  loss"


def lines(stream: IO[bytes]) -> Iterator[tuple[float, str]]:
    """Yield the lines of a process and their times; a carriage return ends a line, too."""
    pending = b""
    while part := os.read(stream.fileno(), 65536):
        now = time.perf_counter()
        *whole, pending = re.split(rb"[\r\n]", pending + part)
        yield from ((now, line.decode(errors="replace")) for line in whole)
    yield time.perf_counter(), pending.decode(errors="replace")


@contextlib.contextmanager
def running(command: list[str], folder: Path | None, limit: float) -> Iterator[IO[bytes]]:
    """Run a command within the block, at most `limit` seconds; yield its output."""
    child = subprocess.Popen(
        command,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
        start_new_session=True,  # so that its own children are stopped with it
    )

    def stop() -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)

    clock = threading.Timer(limit, stop)
    clock.start()
    try:
        assert child.stdout is not None
        yield child.stdout
    finally:
        clock.cancel()
        stop()
        child.wait()


def steps_per_second(
    command: list[str], pattern: str, args: argparse.Namespace, folder: Path | None = None
) -> float:
    """Return steps per second from the first step after the warm-up until --steps."""
    steps: list[tuple[int, float]] = []
    last_lines: deque[str] = deque(maxlen=8)
    with running(command, folder, args.limit) as stream:
        for now, line in lines(stream):
            last_lines.append(line)
            found = re.search(pattern, line)
            if found and int(found[1]) >= args.warm_up:
                steps.append((int(found[1]), now))
            if steps and steps[-1][0] >= args.steps:
                break
    if len(steps) < 2 or steps[0][0] == steps[-1][0]:
        shown = "\n  ".join(last_lines)
        sys.exit(
            f"{shlex.join(command)}\nprinted fewer than two steps from {args.warm_up} on that "
            f"match {pattern!r}. Its last lines:\n  {shown}"
        )
    (first, begin), (last, end) = steps[0], steps[-1]
    if begin == end:
        sys.exit(
            f"{shlex.join(command)}\nprinted its steps from {args.warm_up} to {last} all at once, "
            "so they cannot be timed: let it flush its output, or give more --steps."
        )
    return (last - first) / (end - begin)


def ours(args: argparse.Namespace, out: Path) -> list[str]:
    """Return the command of `unida adapt`, long enough to be stopped before it ends."""
    command = [sys.executable, "-m", "unida", "adapt"]
    values = {
        "source": args.source.absolute(),
        "target": args.target.absolute(),
        "out": out,
        "method": args.method,
        "backbone": args.backbone,
        "batch": args.batch,
        "device": args.device,
        "steps": 2 * args.steps,
        "log-every": max(1, args.steps // 20),
        "checkpoint-every": 2 * args.steps,
    }
    for name, value in values.items():
        command += [f"--{name}", str(value)]
    return command + shlex.split(args.ours)


def take_turns(args: argparse.Namespace, folder: Path) -> tuple[list[float], list[float]]:
    """Return steps per second of both, by round."""
    of_theirs, of_ours = [], []
    for i in range(args.rounds):
        theirs = shlex.split(args.theirs)
        of_theirs.append(steps_per_second(theirs, args.theirs_steps_regex, args, args.theirs_in))
        of_ours.append(steps_per_second(ours(args, folder / f"run{i}"), OURS, args))
    return of_theirs, of_ours


def summary(
    args: argparse.Namespace, theirs: list[float], own: list[float]
) -> list[dict[str, Any]]:
    rows = []
    for name, rates, batch in (
        ("theirs", theirs, args.theirs_batch or args.batch),
        ("ours", own, args.batch),
    ):
        rate = statistics.median(rates)
        row = {"who": name, "batch": batch, "steps_per_second": rate}
        rows.append(row | {"images_per_second": 2 * batch * rate, "rounds": rates})
    for row in rows:
        row["over_theirs"] = row["images_per_second"] / rows[0]["images_per_second"]
    return rows


def options() -> argparse.ArgumentParser:
    parser = machine.parser(__doc__)
    parser.add_argument("--theirs", required=True, help="a command that trains")
    parser.add_argument("--theirs-in", type=Path, help="folder it is started in")
    parser.add_argument("--theirs-steps-regex", default=r"(?i)(?:step|iter\w*)\W*(\d+)")
    parser.add_argument("--theirs-batch", type=int, help="images a step and domain, if not --batch")
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--target", type=Path, required=True)
    parser.add_argument("--method", default="san")
    parser.add_argument("--backbone", default="resnet50")
    parser.add_argument("--batch", type=int, default=36)
    parser.add_argument("--ours", default="", help="more options of `unida adapt`")
    parser.add_argument("--steps", type=int, default=300, help="where the clock stops")
    parser.add_argument("--warm-up", type=int, default=50, help="steps before it starts")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--limit", type=float, default=600.0, help="seconds of one run at the most")
    return parser


def main(argv: list[str] | None = None) -> None:
    args = options().parse_args(argv)
    device = machine.by_device(args, {}, {})
    with tempfile.TemporaryDirectory() as folder:
        theirs, own = take_turns(args, Path(folder))
    rows = summary(args, theirs, own)
    columns = ("who", "batch", "steps_per_second", "images_per_second", "over_theirs")
    machine.show(f"{args.method} on {args.backbone}, and {args.theirs!r}", rows, columns)
    machine.write(args, "against", device, rows)


if __name__ == "__main__":
    main()
