"""Memory, open descriptors and threads of one long run, and of a prediction of all its images.

    python benchmarks/scripts/soak.py                                # 100,000 images, 20,000 steps
    python benchmarks/scripts/soak.py --images 2000 --steps 200      # seconds

`unida adapt` and then `unida predict` run as processes of their own, as a user starts them, and
are looked at from outside every --every seconds. The images are a few hundred small PNG files,
each under many names (hard links), so that all are listed, hashed, decoded and labelled, but the
disk holds few. Beside soak.json a table of it is written, soak.md.

Growth is the median of the last tenth of a phase less that of its second tenth: the first tenth
is the start.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import machine
import numpy as np
from PIL import Image

SIDE = 16
N_CLASSES = 4
SOURCE_PER_CLASS = 50
DISTINCT = 500
MEASURES = ("resident_mib", "anonymous_mib", "descriptors", "threads")
KEPT = 60
"""Samples of a phase in the JSON; it is measured more often."""


def main(argv: list[str] | None = None) -> None:
    parser = machine.parser(__doc__)
    parser.set_defaults(device="cpu", out=machine.RESULTS / "soak.json")
    parser.add_argument("--images", type=int, default=100_000, help="target images")
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--method", default="san")
    parser.add_argument("--every", type=float, default=1.0, help="seconds between two samples")
    args = parser.parse_args(argv)
    device = machine.by_device(args, {}, {})
    place: Path = args.out
    with tempfile.TemporaryDirectory() as folder:
        for results in soak(Path(folder), args):
            machine.show("Soak", results, COLUMNS)
            machine.write(args, "soak", device, results)
            place.with_suffix(".md").write_text(table(results, args))


def soak(root: Path, args: argparse.Namespace) -> Iterator[list[dict[str, Any]]]:
    """Run both commands; yield what was measured in each phase so far, after each of them."""
    write_images(root, args.images)
    run = root / "run"
    quick = {
        "source": root / "source",
        "target": root / "target",
        "out": run,
        "cache-dir": root / "cache",
        "method": args.method,
        "steps": args.steps,
        "batch": args.batch,
        "image-size": SIDE,
        "backbone": "small_cnn",
        "device": args.device,
        "log-every": max(1, args.steps // 100),
        "checkpoint-every": max(1, args.steps // 20),
    }
    options = [word for name, value in quick.items() for word in (f"--{name}", str(value))]
    phases = watch(["adapt", *options], lambda: phase_of(run, args.steps), args.every)
    _require_rows(run / "predictions.csv", args.images)
    yield [summarise(name, samples) for name, samples in phases.items()]
    labels = root / "labels.csv"
    words = ["predict", str(run), str(root / "target"), "--to", str(labels)]
    phases |= watch([*words, "--device", args.device], lambda: "predict", args.every)
    _require_rows(labels, args.images)
    yield [summarise(name, samples) for name, samples in phases.items()]


def _require_rows(file: Path, n_images: int) -> None:
    with file.open() as rows:
        n_rows = sum(1 for _ in rows) - 1
    if n_rows != n_images:
        raise SystemExit(f"{file.name} has {n_rows} rows for {n_images} images")


def write_images(root: Path, n_target: int) -> None:
    """Write labelled images, and the target's under `n_target` names."""
    draw = np.random.default_rng(0)
    centres = draw.integers(40, 216, (N_CLASSES + 1, 1, 1, 3))

    def write(file: Path, k: int) -> None:
        noise = draw.normal(0, 20, (SIDE, SIDE, 3))
        Image.fromarray((centres[k] + noise).clip(0, 255).astype(np.uint8)).save(file)

    for k in range(N_CLASSES):
        (root / "source" / str(k)).mkdir(parents=True)
        for i in range(SOURCE_PER_CLASS):
            write(root / "source" / str(k) / f"{i}.png", k)
    for i in range(n_target):
        file = root / "target" / str(i // 1000) / f"{i}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        if i < DISTINCT:
            write(file, i % (N_CLASSES + 1))
        else:
            os.link(root / "target" / "0" / f"{i % DISTINCT}.png", file)


def phase_of(run: Path, steps: int) -> str:
    """Tell by the files of a run what it does."""
    if (run / "predictions.csv").exists():
        return "report"
    try:
        last = (run / "metrics.jsonl").read_text().count("\n")
    except FileNotFoundError:
        return "read"
    return "decide" if last >= -(-steps // max(1, steps // 100)) else "train"


def watch(
    command: list[str], phase: Callable[[], str], every: float
) -> dict[str, list[dict[str, float]]]:
    """Run a command of unida to its end; return samples by phase."""
    process = subprocess.Popen([sys.executable, "-m", "unida", *command], stdout=subprocess.DEVNULL)
    begin, found = time.monotonic(), dict[str, list[dict[str, float]]]()
    while process.poll() is None:
        for sample in _samples(process.pid):
            found.setdefault(phase(), []).append({"seconds": time.monotonic() - begin} | sample)
        time.sleep(every)
    if process.returncode:
        raise SystemExit(f"unida {command[0]} ended with {process.returncode}")
    return found


def _samples(pid: int) -> Iterator[dict[str, float]]:
    """Look at a process once; nothing where it has just ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        descriptors = len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return
    fields = {
        name: text.split()[0] for name, text in (x.split(":", 1) for x in lines) if text.split()
    }
    if "VmRSS" in fields:
        yield {
            "resident_mib": int(fields["VmRSS"]) / 1024,
            "anonymous_mib": int(fields["RssAnon"]) / 1024,
            "descriptors": descriptors,
            "threads": int(fields["Threads"]),
        }


def summarise(name: str, samples: list[dict[str, float]]) -> dict[str, Any]:
    """Return length, last values and growth of a phase, and some of its samples."""
    row: dict[str, Any] = {"phase": name, "seconds": samples[-1]["seconds"] - samples[0]["seconds"]}
    tenth = max(1, len(samples) // 10)
    early, late = samples[tenth : 2 * tenth] or samples[:1], samples[-tenth:]
    for measure in MEASURES:
        before, after = (statistics.median(s[measure] for s in part) for part in (early, late))
        row[measure] = round(after, 1)
        row[f"{measure}_growth"] = round(after - before, 1)
    step = max(1, len(samples) // KEPT)
    row["series"] = {key: [round(s[key], 1) for s in samples[::step]] for key in samples[0]}
    return row


COLUMNS = (
    "phase",
    "seconds",
    *(column for name in MEASURES for column in (name, f"{name}_growth")),
)


def table(results: list[dict[str, Any]], args: argparse.Namespace) -> str:
    """Return the results as a page."""
    lines = [
        "# Soak",
        "",
        f"Made by `python benchmarks/scripts/soak.py`: {args.images:,} target images of {SIDE} × "
        f"{SIDE} pixels, {args.steps:,} steps of {args.method} with small_cnn, then `unida "
        "predict` of all of them. Growth is within the phase; machine, versions and samples are in "
        f"[{args.out.name}]({args.out.name}).",
        "",
        f"| {' | '.join(name.replace('_', ' ') for name in COLUMNS)} |",
        "|" + "---|" * len(COLUMNS),
    ]
    for row in results:
        cells = (row[name] if name == "phase" else f"{row[name]:,.0f}" for name in COLUMNS)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
