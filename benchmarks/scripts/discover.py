"""Novel categories of frozen runs, scored with true labels; and how their cost grows.

    python benchmarks/scripts/discover.py EMBEDDINGS DATA RUNS --jobs JOBS --out discover
    python benchmarks/scripts/discover.py --scale --sizes 1000,10000,100000 --out discover-scale

JOBS has lines `PROTOCOL SETTING METHOD SOURCE-TARGET SEED`. EMBEDDINGS has, for every protocol,
features of a frozen backbone, PROTOCOL_resnet50-v1.npy, and the images they are of, .json: paths
below DATA/PROTOCOL. The heads are trained for 1,000 steps, as `unida bench --option frozen=true`
does; their outputs stay in RUNS and are not computed again. Categories are found and scored as
`unida bench --discover` does. Tasks in EXPLORED chose the method and its constants; they are
reported apart. Labels are used for scoring only.
"""

import argparse
import dataclasses
import json
import tempfile
import time
from collections.abc import Sequence
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from unittest import mock

import machine
import numpy as np
import numpy.typing as npt
import torch

from unida import pipeline
from unida.bench.discovery import score_discovery
from unida.bench.jobs import plan
from unida.bench.tables.discovery import COLUMNS, NOTES, cells
from unida.data.domain import Domain
from unida.data.pixels import ArrayStore
from unida.data.samples import Samples, read_labelled
from unida.decision.inference import BACKBONE_DIMENSIONS
from unida.decision.rejection import Rule
from unida.discovery.clustering import find_categories
from unida.discovery.clusters import KnownFeatures
from unida.evaluation.evaluate import compare
from unida.models.backbones.base import precomputed_features
from unida.ops.pca import fit_projection
from unida.protocols.tasks import load_protocol, parse_tasks, write_task
from unida.types import Scored

BACKBONE = "resnet50-v1"
STEPS = 1000
EXPLORED = {
    "office-home": ("Art-Clipart", "Real_World-Art", "Clipart-Real_World"),
    "office-caltech10": ("amazon-webcam", "webcam-caltech10", "caltech10-amazon"),
}


@dataclasses.dataclass(frozen=True)
class Line:
    """A line of JOBS."""

    protocol: str
    setting: str
    method: str
    task: str
    seed: int

    @property
    def name(self) -> str:
        return "_".join(str(value) for value in dataclasses.astuple(self))

    @property
    def explored(self) -> bool:
        return self.task in EXPLORED.get(self.protocol, ())


class Bank:
    """Embeddings of a data set."""

    def __init__(self, args: argparse.Namespace, protocol: str) -> None:
        file = args.embeddings / f"{protocol}_{BACKBONE}"
        self.root = (args.data / protocol).absolute()
        self.rows = np.load(file.with_suffix(".npy"), mmap_mode="r")
        paths = json.loads(file.with_suffix(".json").read_text())
        self.index = {path: i for i, path in enumerate(paths)}

    def numbers(self, samples: Samples) -> npt.NDArray[np.int64]:
        return np.array([self.index[str(path.relative_to(self.root))] for path in samples.paths])

    def features(self, numbers: npt.NDArray[np.int64]) -> torch.Tensor:
        return torch.from_numpy(np.array(self.rows[numbers], dtype=np.float32))

    def domain(self, samples: Samples) -> Domain:
        store = ArrayStore(self.features(self.numbers(samples))[:, None])
        return Domain(samples, store, torch.device("cpu"))


def train(args: argparse.Namespace, line: Line, out: Path) -> None:
    """Train the heads of a run and store its outputs."""
    bank, protocol = Bank(args, line.protocol), load_protocol(line.protocol)
    options = {"frozen": True, "steps": STEPS, "backbone": BACKBONE, "device": "cpu"}
    tasks = parse_tasks(protocol, line.task)
    (job,) = plan(line.protocol, line.setting, [line.method], tasks, [line.seed], options)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        task = write_task(protocol, job.setting, job.source, job.target, bank.root, place / "task")
        config = job.config(task.source, task.target, place / "run").replace(report=False)
        true = read_labelled(task.target)
        assert true.labels is not None
        target = bank.domain(dataclasses.replace(true, labels=None, classes=()))
        source = bank.domain(read_labelled(task.source))
        backbone = precomputed_features(source.pixels.array.shape[-1])
        with mock.patch.object(pipeline, "write_result"):
            result = pipeline.adapt_domains(pipeline.check_config(config), source, target, backbone)
    scored, rules = result.target.scored, result.model.rules
    np.savez(
        out.with_suffix(".part.npz"),
        z=scored.features.astype(np.float16),
        probs=scored.probs.astype(np.float32),
        score=scored.unknown_score,
        thresholds=np.array([[name, rule.threshold, rule.name] for name, rule in rules.items()]),
        reject=np.array(result.model.reject),
        true=np.array(true.classes)[true.labels],
        known=np.array(task.known_classes),
        target_rows=bank.numbers(true),
    )
    out.with_suffix(".part.npz").rename(out)


def evaluate(args: argparse.Namespace, line: Line) -> dict[str, Any]:
    """Return the scores of a run; train it first where its outputs are not there yet."""
    torch.set_num_threads(1)
    out = args.runs / f"{line.name}.npz"
    if not out.exists():
        train(args, line, out)
    with np.load(out) as file:
        arrays = {name: file[name] for name in file.files}
    y = Bank(args, line.protocol).features(arrays["target_rows"])
    backbone = fit_projection(y, BACKBONE_DIMENSIONS)(y).numpy()
    scored = Scored(
        arrays["probs"].astype(np.float64), arrays["score"], arrays["z"].astype(np.float32)
    )
    name = str(arrays["reject"])
    (threshold,) = (float(value) for rule, value, _ in arrays["thresholds"] if rule == name)
    rule = Rule(name, threshold, "")
    found = compare(scored, arrays["true"], [str(k) for k in arrays["known"]], {name: rule})
    begin = time.perf_counter()
    scores = score_discovery(found, name, rule.is_unknown(scored.unknown_score), backbone)
    row = dataclasses.asdict(line) | {"explored": line.explored} | scores
    return row | {"seconds": round(time.perf_counter() - begin, 2)}


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Return Markdown: for each setting and method, tasks that chose nothing, then the explored."""
    titles = ("data", "setting", "method", "tasks", *COLUMNS, "found / true", "error")
    titles += ("in interval", "supported", "runs")
    lines = ["| " + " | ".join(titles) + " |", "|---|---|---|---|" + "---:|" * (len(titles) - 4)]
    keys = ("protocol", "setting", "method", "explored")
    for key in sorted({tuple(row[k] for k in keys) for row in rows}):
        of_row = [row for row in rows if tuple(row[k] for k in keys) == key]
        numbers = [{k: v for k, v in row.items() if v is not None} for row in of_row]
        words = (*key[:3], "explored" if key[3] else "others")
        lines.append("| " + " | ".join([*words, *cells(numbers)]) + " |")
    return "\n".join([*lines, "", *(f"- {note}" for note in NOTES)]) + "\n"


def in_words(row: dict[str, Any]) -> str:
    values = [f"{k} {100 * row[k]:.1f}" for k in ("all", "old", "new", "kmeans_all")]
    where = " ".join(str(row[k]) for k in ("protocol", "setting", "method", "task", "seed"))
    number = f"{row['count']} ({row['low']}-{row['high']}) of {row['true']}"
    return f"{where}: {'  '.join(values)}  {number}"


# Scale.


def random_clusters(
    n: int, categories: int, seed: int = 0
) -> tuple[npt.NDArray[np.float32], KnownFeatures]:
    """Return clusters in 96 dimensions, a tenth of the rows scattered, and ten known classes."""
    draws = np.random.default_rng(seed)
    centres = draws.normal(size=(categories + 10, 96))
    labels = draws.integers(0, categories, n)
    x = centres[labels] + draws.normal(size=(n, 96)) * 0.4
    x[: n // 10] = draws.normal(size=(n // 10, 96))
    size = max(5, n // categories)  # about as dense as the categories
    known = np.repeat(np.arange(10), size)
    known_features = centres[categories + known] + draws.normal(size=(len(known), 96)) * 0.4
    return x.astype(np.float32), KnownFeatures(known_features.astype(np.float32), known)


def scale(args: argparse.Namespace) -> None:
    """Measure seconds at growing numbers of images, and the slope on log–log axes."""
    seconds, cpu, counts, peaks = [], [], [], []
    for n in args.sizes:
        x, known_features = random_clusters(n, args.categories)
        begin, begin_cpu = time.perf_counter(), time.process_time()
        found = find_categories(x, known_features)
        seconds.append(time.perf_counter() - begin)
        cpu.append(time.process_time() - begin_cpu)
        counts.append([found.low, len(found.centres), found.high])
        peaks.append(machine.memory()["peak"])
        print(
            f"{n}: {seconds[-1]:.1f} s, {counts[-1]} categories, cpu {cpu[-1]:.1f} s, {peaks[-1]}",
            flush=True,
        )
    row: dict[str, Any] = {
        "sizes": args.sizes,
        "seconds": seconds,
        "cpu": cpu,
        "counts": counts,
        "peaks": peaks,
    }
    row |= {"slope": slope(args.sizes, seconds)}
    machine.show("slopes, images → seconds", [row], ("slope", "seconds", "cpu", "counts"))
    for name in ("embeddings", "data", "runs", "jobs"):
        delattr(args, name)
    machine.write(args, "discover", torch.device("cpu"), [row])


def slope(sizes: Sequence[int], seconds: Sequence[float]) -> float | None:
    if len(sizes) < 2:
        return None
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])


def main(argv: list[str] | None = None) -> None:
    parser = machine.parser(__doc__)
    parser.add_argument("embeddings", type=Path, nargs="?")
    parser.add_argument("data", type=Path, nargs="?")
    parser.add_argument("runs", type=Path, nargs="?")
    parser.add_argument("--jobs", type=Path, help="file with a line for each run")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--only", action="store_true", help="leave out runs without outputs")
    parser.add_argument("--scale", action="store_true", help="measure growth on random clusters")
    parser.add_argument("--sizes", type=machine.numbers, default=[1000, 10_000, 100_000])
    parser.add_argument("--categories", type=int, default=50, help="random ones")
    args = parser.parse_args(argv)
    if args.threads:
        torch.set_num_threads(args.threads)
    if args.scale:
        scale(args)
        return
    if not (args.runs and args.jobs):
        parser.error("name EMBEDDINGS DATA RUNS and --jobs, or --scale")
    args.runs.mkdir(parents=True, exist_ok=True)
    words = [line.split() for line in args.jobs.read_text().splitlines() if line.strip()]
    lines = [Line(*four, int(seed)) for *four, seed in words]
    if args.only:
        lines = [line for line in lines if (args.runs / f"{line.name}.npz").exists()]
    args.out = (args.out or Path("discover")).with_suffix(".json")
    shown = argparse.Namespace(**vars(args))
    for name in ("embeddings", "data", "runs", "jobs"):
        setattr(shown, name, str(getattr(args, name)))
    head = "Novel categories of frozen runs. Made by benchmarks/scripts/discover.py.\n\n"
    rows = []
    with get_context("spawn").Pool(args.workers) as pool:
        for found in [pool.apply_async(evaluate, (args, line)) for line in lines]:
            rows.append(found.get())
            print(in_words(rows[-1]), flush=True)
            place = machine.write(shown, "discover", torch.device("cpu"), rows)
            place.with_suffix(".md").write_text(head + table(rows))


if __name__ == "__main__":
    main()
