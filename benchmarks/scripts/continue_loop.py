"""What one loop of discover, review and `adapt --continue` changes, with a simulated reviewer.

    python benchmarks/scripts/continue_loop.py office-home DIR OUT --embeddings FILE \
        --tasks A-C,A-R,P-R --marked A-C

A frozen model is trained and its unknown images are sorted into categories. The reviewer is
simulated with the target's labels (oracle): a category of which at least 80 % are of one class gets
the name of that class, known or new; the others are left alone. The next run learns from the names
as `unida adapt --continue` does. `--trust` and `--min-confidence` are varied on the marked tasks
only; the pair with the best mean of H and New accuracy is then run on the others, beside the
pair given as the present default. OUT/continue.json has every number, OUT/continue.md the tables.

H and known accuracy are of the classes of the first source: an image predicted to be of a named
class counts as unknown. New accuracy is over all images of other classes: named classes and
discovered categories are matched to true classes one to one (Hungarian); images predicted as known,
or in no category, are wrong. 'Named right' needs no match: the predicted name is the true class.
FILE.npy holds a row for each path in FILE.json, relative to DIR.
"""

import argparse
import dataclasses
import json
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from machine import describe

from unida import pipeline
from unida.bench.jobs import Job
from unida.config import RunConfig
from unida.data.domain import Domain
from unida.data.pixels import ArrayStore
from unida.data.samples import Samples, read_labelled
from unida.discovery.categories import Categories
from unida.discovery.discover import discover
from unida.errors import UserError
from unida.evaluation.feature_store import read_feature_store
from unida.evaluation.metrics import cluster_accuracy, score
from unida.model import Model, load
from unida.models.backbones.base import precomputed_features
from unida.protocols.tasks import load_protocol, parse_tasks, write_task
from unida.review.continuation import extend_source, read_reviewed_run
from unida.review.corrections import CorrectionStore, read_review_target
from unida.training.predictions import read_predictions
from unida.training.run_folder import RunFolder, write_text
from unida.types import UNKNOWN
from unida.utils.csv_files import to_csv

PURITY = 0.8
"""Share of one class from which on the simulated reviewer names a category."""
TRUST = (0.5, 0.8, 0.9, 0.95, 2.0)
MIN_CONFIDENCE = (0.0, 0.3, 0.5, 0.7)
PRESENT = (0.9, 0.5)
"""`--trust` and `--min-confidence` from which one is varied at a time."""
SETTING = "unda"
Names = npt.NDArray[np.str_]


class Embeddings:
    """Rows of images, by their files."""

    def __init__(self, file: Path, root: Path) -> None:
        paths = json.loads(file.with_suffix(".json").read_text())
        self.index = {str(root.absolute() / path): i for i, path in enumerate(paths)}
        self.rows = np.load(file.with_suffix(".npy"), mmap_mode="r")

    def of(self, paths: Sequence[Any]) -> torch.Tensor:
        return torch.from_numpy(self.rows[[self.index[str(p)] for p in paths]]).float()

    def domain(self, samples: Samples) -> Domain:
        device = torch.device("cpu")
        return Domain(samples, ArrayStore(self.of(samples.paths)[:, None]), device)


@dataclasses.dataclass(frozen=True)
class Task:
    """One task: its files, the true class of each target image, and the rows of all images."""

    job: Job
    name: str
    source: Path
    target: Samples
    truth: dict[str, str]
    rows: Embeddings
    place: Path


def train(task: Task, source: Path, out: Path) -> None:
    """Train a frozen model; the run lies in `out`, as `unida adapt` leaves it.

    A run that is finished already is left as it is.
    """
    if RunFolder(out).done.exists():
        return
    shutil.rmtree(out, ignore_errors=True)
    config: RunConfig = task.job.config(source, Path("target"), out).replace(report=False)
    config = pipeline.check_config(config)
    of_source = task.rows.domain(read_labelled(source))
    of_target = task.rows.domain(dataclasses.replace(task.target, labels=None, classes=()))
    network = precomputed_features(of_source.pixels.array.shape[-1])  # type: ignore[attr-defined]
    out.mkdir(parents=True)
    pipeline.adapt_domains(config, of_source, of_target, network)


def review(task: Task, found: Categories, run: Path) -> dict[str, Any]:
    """Name the pure categories, as a person would on the page."""
    names, pure, at_stake = {}, 0, 0
    for k in range(1, len(found) + 1):
        paths = [
            p for p, category in zip(found.paths, found.category, strict=True) if category == k
        ]
        classes, counts = np.unique([task.truth[p] for p in paths], return_counts=True)
        if counts.max() >= PURITY * len(paths):
            names[str(k)] = str(classes[counts.argmax()])
            pure += int(counts.max())
            at_stake += len(paths)
    if names:
        CorrectionStore(read_review_target(run)).save({"names": names})
    return {"named": len(names), "categories": len(found), "named_images": at_stake,
            "named_right": pure, "classes_named": len(set(names.values()))}  # fmt: skip


def measure(task: Task, run: Path, known: Sequence[str]) -> dict[str, Any]:
    """Score a run on the target; `known` are the classes of the first source."""
    table, found = read_predictions(RunFolder(run).predictions), discover(run)
    category = dict(zip(found.paths, found.category.tolist(), strict=True))
    truth = np.array([task.truth[path] for path in table.paths])
    predicted = np.array(table.labels)
    number = {name: k for k, name in enumerate(known)}
    y, p = (np.array([number.get(n, len(known)) for n in side]) for side in (truth, predicted))
    scores = score(y, p, unknown=len(known))
    best = np.array(load(run, "cpu").classes)[
        read_feature_store(RunFolder(run).stored_features).best
    ]
    new = y == len(known)
    named = [name for name in dict.fromkeys(predicted) if name not in number and name != UNKNOWN]
    groups = np.array([_group(label, category.get(path, 0), named)
                       for path, label in zip(table.paths, predicted, strict=True)])  # fmt: skip
    return {
        "h": scores.h,
        "known": scores.known,
        "known_without_rule": float((best == truth)[~new].mean()),
        "unknown": scores.unknown,
        "new": cluster_accuracy(truth[new], groups[new]),
        "named_right": float((predicted[new] == truth[new]).mean()),
        "categories": len(found),
    }


def _group(label: str, category: int, named: Sequence[str]) -> int:
    """Return the number of a named class or of a category, or -1 for neither."""
    if label in named:
        return named.index(label)
    return len(named) + category - 1 if label == UNKNOWN and category else -1


def source_recalls(task: Task, run: Path) -> dict[str, float]:
    """Return the recall of each class of the first source on its own images, no rule applied."""
    model: Model = load(run, "cpu")
    samples = read_labelled(task.source)
    best = model.score(task.rows.of(samples.paths))[1].probs.argmax(1)
    truth = np.array([samples.classes[k] for k in np.asarray(samples.labels)])
    right = np.array(model.classes)[best] == truth
    return {name: float(right[truth == name].mean()) for name in samples.classes}


def continued(
    task: Task, first: Path, trust: float, min_confidence: float, known: Sequence[str]
) -> dict[str, Any]:
    """Return the scores of the next run, and what it learned from."""
    samples = read_labelled(task.source)
    assert samples.labels is not None
    labels = (samples.classes[k] for k in samples.labels)
    old = dict(zip(map(str, samples.paths), labels, strict=True))
    try:
        new = extend_source(old, read_reviewed_run(first), min_confidence, trust)
    except UserError as error:
        return {"trust": trust, "min_confidence": min_confidence, "nothing": str(error)}
    added = {path: label for path, label in new.items() if path not in old}
    out = task.place / f"next-{trust}-{min_confidence}"
    source = task.place / f"source-{trust}-{min_confidence}.csv"
    write_text(source, to_csv(("path", "label"), new.items()))
    train(task, source, out)
    is_new = {path for path, label in added.items() if label not in known}
    right = [task.truth[path] == label for path, label in added.items()]
    recalls = source_recalls(task, out)
    return {
        "trust": trust,
        "min_confidence": min_confidence,
        "learned": len(added),
        "learned_new": len(is_new),
        "learned_right": mean(right),
        "lost": sorted(set(known) - set(load(out, "cpu").classes)),
        "source_recall": mean(recalls.values()),
        "least_source_recall": min(recalls.values()),
        **measure(task, out, known),
    }


def prepare(given: argparse.Namespace, source: str, target: str, rows: Embeddings) -> Task:
    options = {"frozen": True, "steps": given.steps, "backbone": "resnet50-v1", "holdout": 0.1}
    job = Job(given.data, SETTING, source, target, "san", 0, options=options)
    name = f"{source}-{target}"
    place = given.work / name.replace(" ", "_")
    files = write_task(load_protocol(given.data), SETTING, source, target, given.root, place)
    true = read_labelled(files.target)
    classes = (true.classes[k] for k in np.asarray(true.labels))
    truth = dict(zip(map(str, true.paths), classes, strict=True))
    return Task(job, name, files.source, true, truth, rows, place)


def loop(task: Task, pairs: Sequence[tuple[float, float]]) -> dict[str, Any]:
    """Return a first run and a continued run for each pair of `--trust` and `--min-confidence`."""
    known, first = read_labelled(task.source).classes, task.place / "first"
    train(task, task.source, first)
    found = discover(first)
    found.save(RunFolder(first))
    reviewed, recalls = review(task, found, first), source_recalls(task, first)
    before = measure(task, first, known) | {
        "source_recall": mean(recalls.values()), "least_source_recall": min(recalls.values()),
    }  # fmt: skip
    after = [continued(task, first, *pair, known) for pair in pairs] if reviewed["named"] else []
    return {"task": task.name, "review": reviewed, "before": before, "after": after}


def grid(trusts: Sequence[float], confidences: Sequence[float]) -> list[tuple[float, float]]:
    """Return the pairs to compare: one value is varied at a time."""
    pairs = [(trust, PRESENT[1]) for trust in trusts] + [(PRESENT[0], c) for c in confidences]
    return list(dict.fromkeys([PRESENT, *pairs]))


def best_pair(lines: Sequence[dict[str, Any]]) -> tuple[float, float]:
    """Return the best value of each of the two, by the mean of H and New accuracy."""
    best = list(PRESENT)
    for place, name in enumerate(("trust", "min_confidence")):
        other = ("trust", "min_confidence")[1 - place]
        values: dict[float, list[float]] = {}
        for after in (a for line in lines for a in line["after"] if "h" in a):
            if after[other] == PRESENT[1 - place]:
                values.setdefault(after[name], []).append((after["h"] + after["new"]) / 2)
        if values:  # else nothing was pure enough to be named
            best[place] = max(values, key=lambda number: mean(values[number]))
    return best[0], best[1]


def table(lines: Sequence[dict[str, Any]]) -> str:
    """Return the scores before and after as Markdown."""
    head = (
        "| task | | trust | min. conf. | H | known | known, no rule | New | named right | "
        "source recall | least | learned | right |\n|---|---|---:|---:|" + "---:|" * 9 + "\n"
    )
    rows = []
    for line in lines:
        r = line["review"]
        note = f"before ({r['named']} of {r['categories']} named)"
        rows.append([line["task"] + (" (marked)" if line["marked"] else ""), note, "", "",
                     *_cells(line["before"]), "", ""])  # fmt: skip
        for a in line["after"]:
            setting = [f"{a['trust']:g}", f"{a['min_confidence']:g}"]
            if "nothing" in a:
                rows.append([line["task"], "nothing to learn", *setting, *[""] * 9])
                continue
            learned = [str(a["learned"]), f"{100 * a['learned_right']:.0f}"]
            rows.append([line["task"], "after", *setting, *_cells(a), *learned])
    return head + "".join("| " + " | ".join(row) + " |\n" for row in rows)


def _cells(scores: dict[str, Any]) -> list[str]:
    names = ("h", "known", "known_without_rule", "new", "named_right", "source_recall",
             "least_source_recall")  # fmt: skip
    return [f"{100 * scores[name]:.1f}" for name in names]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("data", help="name of a protocol")
    parser.add_argument("root", type=Path, help="folder of the data set")
    parser.add_argument("out", type=Path)
    parser.add_argument("--embeddings", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True, help="new folder for the runs")
    parser.add_argument("--tasks", required=True)
    parser.add_argument("--marked", default="", help="tasks on which the two options are chosen")
    parser.add_argument("--trusts", type=float, nargs="*", default=TRUST, help="to compare")
    parser.add_argument("--confidences", type=float, nargs="*", default=MIN_CONFIDENCE)
    parser.add_argument("--pair", type=float, nargs=2, help="the pair chosen on another data set")
    parser.add_argument("--steps", type=int, default=1000)
    given = parser.parse_args()
    begin, protocol = time.time(), load_protocol(given.data)
    rows, lines = Embeddings(given.embeddings, given.root), []
    marked = parse_tasks(protocol, given.marked) if given.marked else []
    tasks = [*marked, *(t for t in parse_tasks(protocol, given.tasks) if t not in marked)]
    pairs = grid(given.trusts, given.confidences)
    given.out.mkdir(parents=True, exist_ok=True)
    for number, (source, target) in enumerate(tasks):
        if number == len(marked):
            chosen = tuple(given.pair) if given.pair else best_pair(lines)
            pairs = list(dict.fromkeys([PRESENT, chosen]))
        line = loop(prepare(given, source, target, rows), pairs)
        lines.append({"marked": number < len(marked), **line})
        print(table(lines[-1:]), f"{time.time() - begin:.0f} s", flush=True)
        write(given, lines)


def write(given: argparse.Namespace, lines: Sequence[dict[str, Any]]) -> None:
    """Write all tasks so far."""
    content = {"machine": describe(torch.device("cpu")), "steps": given.steps, "lines": lines}
    (given.out / "continue.json").write_text(json.dumps(content, indent=1) + "\n")
    head = "Made by benchmarks/scripts/continue_loop.py, in %. The reviewer is simulated (oracle)."
    (given.out / "continue.md").write_text(f"{head}\n\n{table(lines)}")


if __name__ == "__main__":
    main()
