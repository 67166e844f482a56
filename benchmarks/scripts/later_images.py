"""A model on later images: does `predict` warn, and what is `--refit-rule` worth?

    python benchmarks/scripts/later_images.py office-home DIR OUT --weights FILE

The target of a task is split at random into a first and a second half. A frozen model is trained on
the first half, with some share of its unknown images left in, and labels the second half, which has
another share of them, under the stored rule and under the rule fitted again. OUT/later.json has
every number, OUT/later.md a table. The true labels only score.
"""

import argparse
import dataclasses
import json
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from frozen_bench import DEVICE, Worker, embed_all
from machine import describe

from unida import pipeline
from unida.bench.jobs import Job
from unida.data.domain import Domain
from unida.data.samples import read_labelled
from unida.evaluation.diagnostics import MAX_SCORE_SHIFT
from unida.evaluation.metrics import best_threshold, score, universal_value
from unida.model import Model
from unida.models.backbones.base import precomputed_features
from unida.protocols.tasks import load_protocol, parse_tasks, write_task
from unida.utils.rng import generator

SHARES = (0.0, 0.2, 1.0)
"""Parts of the unknown images that are left in a half."""
Index = npt.NDArray[np.int64]


def halves(labels: Index, seed: int) -> tuple[Index, Index]:
    """Split the images at random."""
    order = torch.randperm(len(labels), generator=generator(seed, "halves")).numpy()
    return np.sort(order[: len(order) // 2]), np.sort(order[len(order) // 2 :])


def thin(index: Index, labels: Index, unknown: int, part: float) -> Index:
    """Leave out unknown images of an index, but for the first part of them."""
    is_unknown = labels[index] == unknown
    rank = np.cumsum(is_unknown) / max(is_unknown.sum(), 1)
    return index[~is_unknown | (rank <= part)]


def train(job: Job, source: Domain, target: Domain, out: Path) -> Model:
    """Train a frozen model on embeddings, with a tenth of the source held out."""
    config = job.config(Path("s"), Path("t"), out).replace(report=False)
    config = pipeline.check_config(config)
    network = precomputed_features(source.pixels.array.shape[-1])  # type: ignore[attr-defined]
    return pipeline.adapt_domains(config, source, target, network).model


def value(labels: Index, best: Index, scores: Any, threshold: float, unknown: int) -> float:
    """Compute the value of `unida.evaluation.metrics.universal_value`, in per cent."""
    found = score(labels, np.where(scores < threshold, best, unknown), unknown=unknown)
    return 100 * universal_value(found.h, found.known_instance, found.unknown)


def measure(model: Model, rows: torch.Tensor, labels: Index, unknown: int) -> dict[str, Any]:
    """Score the second half under the stored and the refitted rule."""
    scored = model.score(rows)[1]
    best, scores = scored.probs.argmax(1), scored.unknown_score
    again = model.refit_rules(rows)[0]
    shift = model.score_shift(scores)
    found: dict[str, Any] = {
        "true_share": float((labels == unknown).mean()),
        "warned": shift is not None and shift > MAX_SCORE_SHIFT,
        "score_shift": shift,
        "best_threshold": 100 * best_threshold(labels, best, scores, unknown),
    }
    for name, rule in (("stored", model.rule()), ("refitted", again.rule())):
        found[name] = value(labels, best, scores, rule.threshold, unknown)
        found[f"{name}_share"] = rule.share
    return found


def read_task(job: Job, root: Path, out: Path) -> tuple[Domain, Domain, Index]:
    """Return source, target, and the target's true labels; unknown is the number of classes."""
    worker = Worker(dump=False)
    task = write_task(load_protocol(job.data), job.setting, job.source, job.target, root, out)
    source = worker.domain(job, read_labelled(task.source))
    true = read_labelled(task.target)
    target = worker.domain(job, dataclasses.replace(true, labels=None, classes=()))
    known = source.samples.classes
    number = {name: known.index(name) if name in known else len(known) for name in true.classes}
    labels = np.array([number[true.classes[k]] for k in np.asarray(true.labels)])
    return source, target, labels


def run_task(part: dict[str, Any], job: Job, out: Path) -> list[dict[str, Any]]:
    """Return the measurements of a task."""
    source, target, labels = read_task(job, Path(part["root"]), out)
    known = source.samples.classes
    first, second = halves(labels, job.seed)
    lines = []
    for before in SHARES:
        index = thin(first, labels, len(known), before)
        model = train(job, source, target.part(index), out / "run")
        for after in SHARES:
            later = thin(second, labels, len(known), after)
            rows = target.part(later).pixels.get(torch.arange(len(later)))[:, 0]
            line = {"data": job.data, "setting": job.setting, "task": f"{job.source}-{job.target}"}
            line |= {"first_part": before, "second_part": after, "images": len(later)}
            line |= {"first_share": float((labels[index] == len(known)).mean())}
            lines.append(line | measure(model, rows, labels[later], len(known)))
            print(json.dumps(lines[-1]), flush=True)
    return lines


def table(lines: list[dict[str, Any]]) -> str:
    """Return the means over tasks by the shares of both halves, as Markdown."""
    columns = ("stored", "refitted", "best_threshold")
    head = (
        "| unknown, first half | second half | warned | stored rule | refitted | best (oracle) |\n"
        "|---|---|---|---:|---:|---:|\n"
    )
    rows = []
    for before in SHARES:
        for after in SHARES:
            some = [x for x in lines if (x["first_part"], x["second_part"]) == (before, after)]
            shares = (mean(x[key] for x in some) for key in ("first_share", "true_share"))
            warned = f"{sum(x['warned'] for x in some)} of {len(some)}"
            values = (f"{mean(x[key] for x in some):.1f}" for key in columns)
            cells = (*(f"{100 * share:.0f} %" for share in shares), warned, *values)
            rows.append("| " + " | ".join(cells) + " |")
    return head + "\n".join(rows) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("data", help="name of a protocol")
    parser.add_argument("root", type=Path, help="folder of the data set")
    parser.add_argument("out", type=Path)
    parser.add_argument("--tasks", default="all")
    parser.add_argument("--setting", default="oda")
    parser.add_argument("--method", default="san")
    parser.add_argument("--backbone", default="resnet50-v1")
    parser.add_argument("--weights", required=True)
    parser.add_argument("--steps", type=int, default=1000)
    given = parser.parse_args()
    part = {"root": str(given.root)}
    options = {
        "frozen": True,
        "steps": given.steps,
        "backbone": given.backbone,
        "weights": given.weights,
        "holdout": 0.1,
    }
    given.out.mkdir(parents=True, exist_ok=True)
    lines = []
    for source, target in parse_tasks(load_protocol(given.data), given.tasks):
        job = Job(given.data, given.setting, source, target, given.method, 0, options=options)
        embed_all(part, job)
        lines += run_task(part, job, given.out / "work")
    content = {"machine": describe(DEVICE), "options": options, "lines": lines}
    (given.out / "later.json").write_text(json.dumps(content, indent=1) + "\n")
    (given.out / "later.md").write_text(table(lines))
    print(table(lines))


if __name__ == "__main__":
    main()
