"""Small and odd targets: is the default rule worse than rejecting nothing, and what does it say?

    python benchmarks/scripts/odd_targets.py office-home DIR TASKS OUT --weights FILE

A frozen model is trained on targets cut from a task's: 20, 50 and 200 images, all known or half
unknown; images of one known or one unknown class; nothing known; nine tenths of one class. The
value is H where there are known and unknown images, else accuracy with a rejected known image
counted wrong. The true labels cut the targets and score them. OUT.json has every number, OUT.md a
table.
"""

import argparse
import dataclasses
import json
import tempfile
from collections import defaultdict
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import torch
from frozen_bench import DEVICE, embed_all
from later_images import Index, read_task, train, value
from machine import describe

from unida.bench.jobs import Job
from unida.protocols.tasks import load_protocol, parse_tasks
from unida.utils.rng import generator

RULES = ("share", "none", "own", "mixture")


def cases(labels: Index, unknown: int) -> dict[str, Index]:
    """Return the images of every target, in a seeded order; some may be smaller than they say."""
    order = torch.randperm(len(labels), generator=generator(0, "odd targets")).numpy()
    known, others = (order[(labels[order] == unknown) == is_unknown] for is_unknown in (0, 1))
    largest = int(np.bincount(labels[known]).argmax())
    of_one = known[labels[known] == largest]
    rest = np.concatenate([known[labels[known] != largest], others])
    found = {f"{n}, all known": known[:n] for n in (20, 50, 200)}
    half = {n: np.concatenate([known[: n // 2], others[: n // 2]]) for n in (20, 50, 200)}
    found |= {f"{n}, half unknown": index for n, index in half.items()}
    found["one known class"] = of_one
    found["nothing known"] = others[:200]
    found["nine tenths of one class"] = np.concatenate([of_one, rest[: len(of_one) // 9]])
    return {name: np.sort(index) for name, index in found.items()}


def run_task(job: Job, root: Path, out: Path) -> list[dict[str, Any]]:
    """Train on every target of a task and score the rules."""
    source, target, labels = read_task(job, root, out)
    known = source.samples.classes
    lines = []
    for name, index in cases(labels, len(known)).items():
        small = dataclasses.replace(job, options=job.options | {"batch": min(36, len(index))})
        model = train(small, source, target.part(index), out / "run")
        rows = target.part(index).pixels.get(torch.arange(len(index)))[:, 0]
        scored = model.score(rows)[1]
        best, scores = scored.probs.argmax(1), scored.unknown_score
        line = {"task": f"{job.source}-{job.target}", "target": name, "images": len(index)}
        line["fell_back"] = model.rule("share").fell_back
        for rule in RULES:
            threshold = model.rule(rule).threshold
            line[rule] = value(labels[index], best, scores, threshold, len(known))
        lines.append(line)
        print(json.dumps(line), flush=True)
    return lines


def table(lines: list[dict[str, Any]]) -> str:
    """Return the means over tasks, as Markdown."""
    groups: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for line in lines:
        groups[line["target"]].append(line)
    text = f"| target | {' | '.join(RULES)} | fell back |\n|---|{'---:|' * (len(RULES) + 1)}\n"
    for name, some in groups.items():
        cells = (f"{mean(line[rule] for line in some):.1f}" for rule in RULES)
        fell_back = f"{sum(bool(line['fell_back']) for line in some)} of {len(some)}"
        text += f"| {name} | {' | '.join(cells)} | {fell_back} |\n"
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("data", help="name of a protocol")
    parser.add_argument("root", type=Path, help="folder of the data set")
    parser.add_argument("tasks")
    parser.add_argument("out", type=Path)
    parser.add_argument("--method", default="san")
    parser.add_argument("--backbone", default="resnet50-v1")
    parser.add_argument("--weights", required=True)
    parser.add_argument("--steps", type=int, default=1000)
    given = parser.parse_args()
    options = {
        **{"frozen": True, "steps": given.steps, "backbone": given.backbone},
        "weights": given.weights,
    }
    lines = []
    for source, target in parse_tasks(load_protocol(given.data), given.tasks):
        job = Job(given.data, "unda", source, target, given.method, 0, options=options)
        embed_all({"root": str(given.root)}, job)
        with tempfile.TemporaryDirectory() as place:
            lines += run_task(job, given.root, Path(place))
    content = {"machine": describe(DEVICE), "options": options, "lines": lines}
    given.out.with_suffix(".json").write_text(json.dumps(content, indent=1) + "\n")
    given.out.with_suffix(".md").write_text(table(lines))
    print(table(lines))


if __name__ == "__main__":
    main()
