"""How cost grows: with target images, with known classes, with the batch.

    python benchmarks/scripts/scale.py                       # seconds, small
    python benchmarks/scripts/scale.py --largest 1000000     # images up to a million

Rows of random numbers stand in for features; backbones are left out. Timed are a step (losses,
backward, memories) and a refresh of the methods with a memory or clusters of the target, feature
extraction of all images and of some, transductive prediction, the mixture rule, predictions,
criteria, scores, figures, checkpoints, sampling; heads by classes; pairwise losses by batch.

Each line is measured at growing sizes, until the next one would take longer than --limit or more
memory than available, and its slope on log–log axes is printed: 1 is proportional, 2 is quadratic.
Plots are written beside the JSON.
"""

import argparse
import dataclasses
import math
import statistics
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import machine
import matplotlib
import numpy as np
import torch
import torch.nn.functional as F
from matplotlib.figure import Figure
from torch import Tensor

from unida.bench.scoring import DIMENSIONS
from unida.config import RunConfig
from unida.data.pixels import ArrayStore
from unida.data.sampling import Balanced, Shuffled
from unida.decision.inference import predict_images
from unida.decision.predictor import Predictor
from unida.decision.rejection import TargetOutputs, mixture, own
from unida.evaluation.metrics import novel_nmi, score
from unida.evaluation.selection import entropy, neighbourhood_density, separation
from unida.losses import info_nce, soft_contrastive
from unida.methods import Method
from unida.model import to_predictions
from unida.ops.pca import joint_pca
from unida.training.batches import Batches
from unida.training.extractor import DomainFeatures
from unida.training.predictions import prediction_lines
from unida.training.run_folder import RunFolder
from unida.types import Batch, Outputs, Sizes

Work = Callable[[], object]
AXES = ["images", "classes", "batch"]
STEPS = 1000
LAST = ("at", "ms", "MiB", "device MiB", "stopped_before")
SAMPLE = 2000  # images whose features a method with a sample extracts
N_CLUSTERS = 50  # clusters of the random features
ON_CPU = {"largest": 10_000, "width": 256, "largest_batch": 256, "limit": 3.0}
ON_CUDA = {"largest": 1_000_000, "width": 2048, "largest_batch": 4096, "limit": 60.0}


@dataclass(frozen=True)
class Setting:
    """The numbers that stay the same while one grows."""

    width: int
    batch: int
    n_classes: int
    device: torch.device


# Methods on random features.


def features(n: int, s: Setting, seed: int = 0) -> Tensor:
    """Return (n, width) in clusters, like features; k-means converges slowly on noise."""
    torch.manual_seed(seed)
    centres = torch.randn(N_CLUSTERS, s.width, device=s.device)
    rows = torch.randn(n, s.width, device=s.device)
    return rows.mul_(0.5).add_(centres[torch.arange(n, device=s.device) % N_CLUSTERS])


class FreeFeatures:
    """A feature extractor of a whole domain that costs nothing."""

    def __init__(self, n_source: int, n_target: int, s: Setting) -> None:
        self.rows = {"source": features(n_source, s, 1), "target": features(n_target, s, 2)}
        self.source_labels = torch.arange(n_source, device=s.device) % s.n_classes

    def __call__(
        self,
        domain: str,
        index: Tensor | None = None,
        through: Callable[[Tensor], Tensor] | None = None,
    ) -> Tensor:
        rows = self.rows[domain] if index is None else self.rows[domain][index]
        if through is None:
            return rows
        return torch.cat([through(part) for part in rows.split(128)])  # as the loop does


def build(name: str, n: int, s: Setting) -> Method:
    backbone = machine.build_backbone("embeddings", s.width)
    sizes = Sizes(s.n_classes, min(n, 10_000), n, s.batch, STEPS)
    return machine.build_method(name, (), backbone, sizes, s.device)


def fill(method: Method, s: Setting) -> None:
    """Fill memories, banks and clusters as in the middle of a run."""
    for name, rows in method.named_buffers():
        if name.split(".")[-1] in ("rows", "queue", "centres", "bank_probs"):
            rows.copy_(F.normalize(torch.randn(rows.shape, device=s.device)))
    if "cluster" in dict(method.named_buffers()):  # DCC
        most = len(method.centres)
        method.k.fill_(most)
        method.frozen.fill_(True)  # K was found: the search for it looks at a sample only
        method.match[: s.n_classes] = torch.arange(s.n_classes, device=s.device)
        for groups, k in ((method.cluster, most), (method.labels, s.n_classes)):
            groups.copy_(torch.arange(len(groups), device=s.device) % k)


def batch_of(method: Method, s: Setting) -> Batch:
    """Return a batch late enough in the run for every loss to count."""

    def views(n_views: int) -> tuple[Tensor, ...]:
        return tuple(features(s.batch, s, 3 + i) for i in range(n_views))

    def index(n: int) -> Tensor:
        return torch.randperm(n, device=s.device)[: s.batch]

    extra = method.extra(STEPS - 1, torch.Generator().manual_seed(0))
    return Batch(
        step=STEPS - 1,
        source_views=views(len(method.source_views)),
        source_labels=torch.arange(s.batch, device=s.device) % s.n_classes,
        source_index=index(method.sizes.n_source),
        target_views=views(len(method.target_views)),
        target_index=index(method.sizes.n_target),
        extra={name: features(len(index), s) for name, (_, index) in extra.items()},
    )


def train_step(name: str, n: int, s: Setting) -> Work:
    method = build(name, n, s)
    fill(method, s)
    method.train()
    batch = batch_of(method, s)

    def work() -> None:
        method.zero_grad()
        method.extra(batch.step, torch.Generator().manual_seed(0))
        torch.stack(list(method.losses(batch).values())).sum().backward()
        with torch.no_grad():
            method.after_step(batch)

    return work


def refresh(name: str, n: int, s: Setting) -> Work:
    method = build(name, n, s)
    fill(method, s)
    method.eval()
    extract = FreeFeatures(method.sizes.n_source, n, s)
    # UniOT refreshes before the first step alone; the others well within the run.
    step = 0 if name == "uniot" else STEPS - 1
    return torch.no_grad()(lambda: method.refresh(extract, step))


def postprocess(name: str, n: int, s: Setting) -> Work:
    """Predict the whole set at once, as a transductive method does."""
    method = build(name, n, s).eval()
    v = F.normalize(features(n, dataclasses.replace(s, width=method.config.width)))
    outputs = Outputs(torch.rand(n, s.n_classes, device=s.device), v[:, 0], v)
    return torch.no_grad()(lambda: method.postprocess(outputs))


# Other work on all images.


def scores_of(n: int) -> Any:
    """Return unknown scores in two groups."""
    draw = np.random.default_rng(0)
    return draw.normal(0, 1, n) + 4 * (draw.random(n) < 0.4)


def mixture_rule(n: int, s: Setting) -> Work:
    scores = scores_of(n)
    return lambda: mixture(TargetOutputs(scores))


def predicting(n: int, s: Setting) -> Work:
    """Apply OVANet's heads to embeddings, and write the text of predictions.csv."""
    method = build("ovanet", n, s).eval()
    store = ArrayStore(features(n, s)[:, None])
    classes = tuple(f"class {k}" for k in range(s.n_classes))

    def work() -> None:
        scored = predict_images(Predictor(method), store, 224, s.device, features=False)
        rule = own(TargetOutputs(scored.unknown_score))
        for _ in prediction_lines(to_predictions((Path("image.jpg"),) * n, scored, rule, classes)):
            pass

    return work


def scoring(n: int, s: Setting) -> Work:
    """Apply the same heads, with the features that a bench keeps."""
    method, store = build("ovanet", n, s).eval(), ArrayStore(features(n, s)[:, None])
    return lambda: predict_images(Predictor(method), store, 224, s.device)


def extracting(n: int, s: Setting, most: int | None = None) -> Work:
    """Extract features of embeddings as the loop does: of all images, or of some."""
    domain = machine.random_domain(features(n, s)[:, None], s.n_classes, s.device)
    config = RunConfig.from_flat(batch=s.batch)
    extract = DomainFeatures(build("source_only", n, s).eval(), Batches(domain, domain, config))
    index = None if most is None else torch.randperm(n)[:most]
    return torch.no_grad()(lambda: extract("target", index))


def sampling_start(n: int, s: Setting) -> Work:
    labels = np.arange(n, dtype=np.int64) % s.n_classes

    def work() -> None:
        Balanced(labels, s.batch, 0).indices(0)
        Shuffled(n, s.batch, 0).indices(0)  # the order of an epoch

    return work


def sampling_step(n: int, s: Setting) -> Work:
    of_source = Balanced(np.arange(n, dtype=np.int64) % s.n_classes, s.batch, 0)
    of_target = Shuffled(n, s.batch, 0)
    of_target.indices(0)
    return lambda: (of_source.indices(0), of_target.indices(0))


def density(n: int, s: Setting) -> Work:
    probs = features(n, s)[:, : s.n_classes].softmax(1).numpy(force=True)
    return lambda: neighbourhood_density(probs)


def certainty(n: int, s: Setting) -> Work:
    probs = features(n, s)[:, : s.n_classes].softmax(1).double().numpy(force=True)
    return lambda: entropy(probs)


def two_modes(n: int, s: Setting) -> Work:
    scores = scores_of(n)
    return lambda: separation(scores)


def h_score(n: int, s: Setting) -> Work:
    labels = np.arange(n) % (s.n_classes + 1)
    return lambda: score(labels, np.roll(labels, 1), unknown=s.n_classes)


def nmi(n: int, s: Setting) -> Work:
    rows = features(n, s).numpy(force=True)
    return lambda: novel_nmi(rows, np.arange(n) % N_CLUSTERS, 0)


def pictures(n: int, s: Setting) -> Work:
    """Reduce features to the dimensions that a bench stores."""
    rows = features(n, s).numpy(force=True)
    return lambda: joint_pca([rows, rows[:2000]], DIMENSIONS)


def checkpoint(n: int, s: Setting) -> Work:
    """Write DANCE's state with its memory as a checkpoint."""
    state = build("dance", n, s).state_dict()

    def work() -> None:
        with tempfile.TemporaryDirectory() as folder:
            RunFolder(folder).save_state(state)

    return work


def pairwise(loss: Callable[[Tensor, Tensor], Tensor], batch: int, s: Setting) -> Work:
    y = torch.randn(2 * batch, s.width, device=s.device)
    z = torch.randn(2 * batch, s.width, device=s.device, requires_grad=True)
    return lambda: loss(y, z).backward()


IMAGES: dict[str, Callable[[int, Setting], Work]] = {
    **{
        f"step of {name}": lambda n, s, name=name: train_step(name, n, s)
        for name in ("dance", "uniot", "dcc", "glc", "tnt")
    },
    **{
        f"refresh of {name}": lambda n, s, name=name: refresh(name, n, s)
        for name in ("uniot", "dcc", "glc", "cmu")
    },
    "features of all images": extracting,
    f"features of {SAMPLE} images": lambda n, s: extracting(n, s, SAMPLE),
    "postprocessing of uniot": lambda n, s: postprocess("uniot", n, s),
    "mixture rule": mixture_rule,
    "predictions": predicting,
    "scores with features": scoring,
    "sampling, an epoch": sampling_start,
    "sampling, a step": sampling_step,
    "neighbourhood density": density,
    "entropy": certainty,
    "separation": two_modes,
    "H": h_score,
    "nmi of unknowns": nmi,
    "pictures": pictures,
    "checkpoint of dance": checkpoint,
}
CLASSES: dict[str, Callable[[int, Setting], Work]] = {
    f"step of {name}": lambda k, s, name=name: train_step(
        name, 2000, dataclasses.replace(s, n_classes=k)
    )
    for name in ("san", "ovanet", "uniot")
}
BATCH: dict[str, Callable[[int, Setting], Work]] = {
    **{
        f"soft contrastive, {form}": lambda b, s, form=form: pairwise(
            lambda y, z: soft_contrastive(y, z, form), b, s
        )
        for form in ("scaled", "paper", "released")
    },
    "info_nce": lambda b, s: pairwise(lambda y, z: info_nce(z), b, s),
}


# Growing.


@dataclass(frozen=True)
class Cost:
    """Seconds of one call, and the MiB it takes beyond what was there before."""

    seconds: float
    host_mib: float
    device_mib: float


def grow(
    axis: str,
    task: str,
    make: Callable[[int, Setting], Work],
    sizes: list[int],
    s: Setting,
    limit: float,
) -> dict[str, Any]:
    """Return the cost at each size, up to where the next would be too much."""
    costs: list[Cost] = []
    stopped = None
    for size in sizes:
        if costs and _too_much(sizes, costs, s.device, limit):
            stopped = size
            break
        costs.append(_measure(make(size, s), s.device))
    used, times = sizes[: len(costs)], [cost.seconds for cost in costs]
    return {
        "axis": axis,
        "task": task,
        "sizes": used,
        "seconds": times,
        "host_mib": [cost.host_mib for cost in costs],
        "device_mib": [cost.device_mib for cost in costs],
        "slope": slope(used, times),
        "stopped_before": stopped,
    }


def _measure(work: Work, device: torch.device) -> Cost:
    """Return the median of several runs, or of one if it is slow."""
    machine.reset_peak(device)
    before = machine.memory().get("resident", 0.0), _allocated(device)
    times = [machine.seconds(work, device)]
    host = machine.memory().get("peak", 0.0) - before[0]
    on_device = (machine.device_peak(device) or 0.0) - before[1]
    while times[0] < 2 and len(times) < 6:
        times.append(machine.seconds(work, device))
    return Cost(statistics.median(times[1:] or times), max(0.0, host), max(0.0, on_device))


def _allocated(device: torch.device) -> float:
    return torch.cuda.memory_allocated(device) / 2**20 if device.type == "cuda" else 0.0


def _too_much(sizes: list[int], costs: list[Cost], device: torch.device, limit: float) -> bool:
    """Return whether the next size would take too long, or more memory than is free."""
    used, times, last = sizes[: len(costs)], [cost.seconds for cost in costs], costs[-1]
    ratio = sizes[len(costs)] / used[-1]
    growth = max(1.0, slope(used, times) or 1.0)
    host, on_device = _room(device)
    full = last.host_mib * ratio > 0.8 * host or last.device_mib * ratio > 0.8 * on_device
    return full or last.seconds * ratio**growth > limit


def _room(device: torch.device) -> tuple[float, float]:
    """Return the free MiB, here and on the device; infinite where that is not known."""
    place = Path("/proc/meminfo")
    lines = place.read_text().splitlines() if place.exists() else []
    free = (int(x.split()[1]) / 1024 for x in lines if x.startswith("MemAvailable"))
    on_device = torch.cuda.mem_get_info(device)[0] / 2**20 if device.type == "cuda" else math.inf
    return next(free, math.inf), on_device


def slope(sizes: list[int], values: list[float]) -> float | None:
    """Return the slope of the last three points on log–log axes."""
    if len(sizes) < 2:
        return None
    x, y = np.log(sizes[-3:]), np.log(values[-3:])
    return float(np.polyfit(x, y, 1)[0])


def ladder(first: int, last: int, factor: float) -> list[int]:
    """Return first, first · factor, … up to last."""
    steps = round(math.log(last / first, factor), 6) if last > first else 0
    return [round(first * factor**i) for i in range(int(steps) + 1)]


def plot(rows: list[dict[str, Any]], place: Path) -> None:
    """Draw a log–log panel per axis, as PNG and SVG."""
    matplotlib.rcParams.update({"svg.hashsalt": "unida", "font.size": 9})
    axes = list(dict.fromkeys(row["axis"] for row in rows))
    figure = Figure(figsize=(9, 5 * len(axes)), layout="constrained")
    panels = figure.subplots(len(axes), 1)
    for panel, axis in zip(np.atleast_1d(panels), axes, strict=True):
        lines = [row for row in rows if row["axis"] == axis]
        for i, row in enumerate(lines):
            label = row["task"] + (f" ({row['slope']:.2f})" if row["slope"] is not None else "")
            style = ("-", "--", ":")[i // 10 % 3]
            panel.loglog(row["sizes"], row["seconds"], style, marker="o", ms=3, label=label)
        panel.set_xlabel(axis)
        panel.set_ylabel("seconds")
        beside = {"loc": "upper left", "bbox_to_anchor": (1.01, 1.0)}
        panel.legend(frameon=False, fontsize=8, title="slope in brackets", **beside)
        panel.spines[["top", "right"]].set_visible(False)
    for suffix, extra in ((".png", {}), (".svg", {"metadata": {"Date": None}})):
        figure.savefig(place.with_suffix(suffix), dpi=100, **extra)


def options() -> argparse.ArgumentParser:
    parser = machine.parser(__doc__)
    parser.add_argument("--axes", type=machine.subset_of(AXES), default=AXES)
    parser.add_argument("--tasks", default="", help="those whose name has one of these in it")
    parser.add_argument("--smallest", type=int, default=1000, help="target images")
    parser.add_argument("--largest", type=int, help="target images")
    parser.add_argument("--largest-batch", type=int)
    parser.add_argument("--width", type=int, help="of the features")
    parser.add_argument("--batch", type=int, default=36)
    parser.add_argument("--classes", type=int, default=25, help="where they do not grow")
    parser.add_argument("--most-classes", type=int, default=1000)
    parser.add_argument("--limit", type=float, help="seconds of one call; no larger size after")
    return parser


def main(argv: list[str] | None = None) -> None:
    args = options().parse_args(argv)
    device = machine.by_device(args, ON_CPU, ON_CUDA)
    setting = Setting(args.width, args.batch, args.classes, device)
    every = {
        "images": (IMAGES, ladder(args.smallest, args.largest, math.sqrt(10))),
        "classes": (CLASSES, ladder(10, args.most_classes, math.sqrt(10))),
        "batch": (BATCH, ladder(16, args.largest_batch, 2)),
    }
    rows = []
    for axis in args.axes:
        tasks, sizes = every[axis]
        for task, make in tasks.items():
            if any(word in task for word in args.tasks.split(",")):
                rows.append(grow(axis, task, make, sizes, setting, args.limit))
    for axis in args.axes:
        last = [
            {**row, "at": row["sizes"][-1], "ms": 1000 * row["seconds"][-1]}
            | {"MiB": row["host_mib"][-1], "device MiB": row["device_mib"][-1]}
            for row in rows
            if row["axis"] == axis
        ]
        machine.show(f"by {axis}", last, ("task", "slope", *LAST))
    place = machine.write(args, "scale", device, rows)
    plot(rows, place)


if __name__ == "__main__":
    main()
