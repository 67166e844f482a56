"""Which images should a person label? H after `adapt --continue`, by how the images were chosen.

    python benchmarks/scripts/label_budget.py EMBEDDINGS OUT --tasks Art-Product,Real_World-Art

EMBEDDINGS.npy has a row for each image of Office-Home, EMBEDDINGS.json their paths in the data set.
A frozen model is trained (SAN, UNDA), 20, 50 and 100 target images are chosen, an oracle that knows
the true labels stands in for the person who corrects them, and a model is trained as
`adapt --continue` does. Images are drawn at random, as `unida review --budget` does, or ranked: an
image that shows a discovered category, one of each; the most doubtful image of each predicted
class; the image nearest to the threshold; and again.

An image of a class that the source lacks is given its true name; a prediction of that name counts
as unknown in H. No image that was ever chosen in a task is scored there. OUT/label-budget.json has
every number, OUT/label-budget.md a table.
"""

import argparse
import json
import multiprocessing as mp
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from machine import describe

from unida.config import RunConfig
from unida.data.domain import Domain
from unida.data.pixels import ArrayStore
from unida.data.samples import Samples, read_labelled
from unida.discovery.discover import discover
from unida.evaluation.metrics import score
from unida.methods.presets import configure
from unida.models.backbones.base import precomputed_features
from unida.pipeline import adapt_domains, check_config
from unida.protocols.tasks import load_protocol, parse_tasks, write_task
from unida.report.data import ReportData
from unida.review.continuation import extend_source, next_config, read_reviewed_run
from unida.review.corrections import CorrectionStore, read_review_target
from unida.training.predictions import read_predictions
from unida.training.run_folder import RunFolder
from unida.utils.rng import generator

BUDGETS = (20, 50, 100)
DRAWS = 3
HEAD = """\
H on Office-Home, UNDA, before and after `adapt --continue` with labels of an oracle: frozen
ResNet-50, SAN, rule `share`, last step, one seed. Sizes and draws that are missing were not run.

"""
CPU = torch.device("cpu")
Labels = dict[str, str]
Choice = Callable[[RunFolder, int], list[str]]


class Bank:
    """Embeddings by path."""

    def __init__(self, place: Path) -> None:
        names = json.loads(place.with_suffix(".json").read_text())
        self.rows = np.load(place.with_suffix(".npy"), mmap_mode="r")
        self.index = {name: i for i, name in enumerate(names)}

    def domain(self, labels: Labels, labelled: bool) -> Domain:
        """Return the images as a domain; the labels only if asked for."""
        paths = tuple(map(Path, labels))
        rows = [self.index["/".join(path.parts[-3:])] for path in paths]
        array = torch.from_numpy(np.asarray(self.rows[rows], dtype=np.float32))[:, None]
        classes = tuple(sorted(set(labels.values()))) if labelled else ()
        number = {name: k for k, name in enumerate(classes)}
        y = np.array([number[name] for name in labels.values()]) if labelled else None
        return Domain(Samples(paths, y, classes), ArrayStore(array), CPU)


def by_random(seed: int) -> Choice:
    """Draw images of the target; a larger draw contains the smaller ones."""

    def choose(run: RunFolder, n: int) -> list[str]:
        paths = read_predictions(run.predictions).paths
        order = torch.randperm(len(paths), generator=generator(seed, "label budget"))
        return [paths[i] for i in order[:n]]

    return choose


def by_rank(run: RunFolder, n: int) -> list[str]:
    """Take categories, classes and the threshold in turn."""
    data = ReportData(run)
    paths, labels = data.predictions.paths, data.labels
    row = {path: i for i, path in enumerate(paths)}
    shown = [[row[path] for path in one["representatives"]] for one in data.described_categories]
    classes, sizes = np.unique(labels, return_counts=True)
    of_class = [np.flatnonzero(labels == k) for k in classes[np.argsort(-sizes, kind="stable")]]
    doubtful = [rows[np.argsort(-data.doubt[rows], kind="stable")].tolist() for rows in of_class]
    distance = np.abs(data.predictions.unknown_score - data.threshold)
    nearest = np.argsort(distance, kind="stable").tolist()
    return [paths[i] for i in in_turn([in_turn(shown), in_turn(doubtful), nearest])[:n]]


def in_turn(lists: Sequence[Sequence[int]]) -> list[int]:
    """Take the first of each list, then the next of each; one that was taken counts no more."""
    taken: dict[int, None] = {}
    waiting = [iter(one) for one in lists]
    while waiting:
        for one in list(waiting):
            if (new := next((i for i in one if i not in taken), None)) is None:
                waiting.remove(one)
            else:
                taken[new] = None
    return list(taken)


CHOICES: dict[str, Choice] = {
    "ranked": by_rank,
    **{f"random {k}": by_random(k) for k in range(DRAWS)},
}


class Task:
    """One task: its files and how a run on it is scored."""

    def __init__(self, given: argparse.Namespace, names: tuple[str, str]) -> None:
        self.bank, self.given, self.name = Bank(given.embeddings), given, "-".join(names)
        place = Path(tempfile.mkdtemp(prefix="label-budget-"))
        protocol = load_protocol("office-home")
        task = write_task(protocol, "unda", *names, given.root, place)
        self.place = place
        self.source, self.true = _labels(task.source), _labels(task.target)
        self.known = {name: k for k, name in enumerate(task.known_classes)}
        self.shared = set(task.shared_classes)

    def train(self, config: RunConfig, source: Labels, out: Path) -> RunFolder:
        """Train on embeddings; leave a run folder."""
        domains = self.bank.domain(source, True), self.bank.domain(self.true, False)
        config = check_config(config.replace(out=str(out), report=False))
        width = domains[0].pixels.array.shape[-1]  # type: ignore[attr-defined]
        adapt_domains(config, *domains, precomputed_features(width))
        return RunFolder(out)

    def first(self) -> RunFolder:
        """Train the run that is reviewed, and group its unknown images."""
        config = configure(
            "san",
            source="source",
            target="target",
            out="out",
            frozen=True,
            steps=self.given.steps,
            seed=self.given.seed,
            device="cpu",
        )
        run = self.train(config, self.source, self.place / "first")
        discover(run).save(run)
        return run

    def after(self, first: RunFolder, chosen: list[str]) -> RunFolder:
        """Correct the chosen images by the oracle and continue."""
        first.review.unlink(missing_ok=True)
        labels = {path: self.true[path] for path in chosen}
        CorrectionStore(read_review_target(first.path)).save({"names": {}, "labels": labels})
        # The numbers are the defaults of `unida adapt --continue`.
        source = extend_source(self.source, read_reviewed_run(first.path), 0.5, 0.9)
        out = Path(tempfile.mkdtemp(dir=self.place))
        return self.train(next_config(first.path), source, out)

    def score(self, run: RunFolder, left_out: set[str]) -> dict[str, float]:
        """Score the predictions for the images that no one chose."""
        table, unknown = read_predictions(run.predictions), len(self.known)
        rows = [i for i, path in enumerate(table.paths) if path not in left_out]
        true = [self.true[table.paths[i]] for i in rows]
        y = np.array([self.known[t] if t in self.shared else unknown for t in true])
        p = np.array([self.known.get(table.labels[i], unknown) for i in rows])
        found = score(y, p, unknown=unknown)
        return {name: round(getattr(found, name), 4) for name in ("h", "known", "unknown")}

    def results(self) -> list[dict[str, Any]]:
        """Return a row for the run before and for each choice and size."""
        first, given = self.first(), self.given
        most = max(given.budgets)
        chosen = {name: CHOICES[name](first, most) for name in given.choices}
        ever = set().union(*map(set, chosen.values()))
        head = {"task": self.name, "seed": given.seed}
        rows = [head | {"choice": "before", "labels": 0} | self.score(first, ever)]
        print(rows[-1], flush=True)
        for n in given.budgets:
            for name, paths in chosen.items():
                begin = time.time()
                run = self.after(first, paths[:n])
                true = [self.true[path] for path in paths[:n]]
                rows.append(
                    head
                    | {"choice": name, "labels": n, **self.score(run, ever)}
                    | {
                        "unknown_among_chosen": sum(t not in self.shared for t in true),
                        "classes_among_chosen": len(set(true)),
                        "seconds": round(time.time() - begin, 1),
                    }
                )
                print(rows[-1], flush=True)
        return rows


def run_task(given: argparse.Namespace, names: tuple[str, str]) -> list[dict[str, Any]]:
    """Return the rows of a task, in a process of its own."""
    torch.set_num_threads(1)
    return Task(given, names).results()


def _labels(file: Path) -> Labels:
    samples = read_labelled(file)
    assert samples.labels is not None
    paths: npt.NDArray[Any] = np.array(list(map(str, samples.paths)), dtype=object)
    return {p: samples.classes[k] for p, k in zip(paths, samples.labels, strict=True)}


def table(rows: list[dict[str, Any]]) -> str:
    """Return H of each task and size: ranked, and each random draw."""
    lines = ["| task | labels | before | ranked | random draws | random, mean |\n"]
    lines.append("|---|---:|---:|---:|---|---:|\n")
    h = {(row["task"], row["labels"], row["choice"]): 100 * row["h"] for row in rows}
    for task, n in sorted({key[:2] for key in h if key[1]}):
        draws = [value for key, value in h.items() if key[:2] == (task, n) and "rand" in key[2]]
        ranked = f"{h[task, n, 'ranked']:.1f}" if (task, n, "ranked") in h else ""
        each = ", ".join(f"{value:.1f}" for value in draws)
        last = f"{mean(draws):.1f}" if draws else ""
        before = h[task, 0, "before"]
        lines.append(f"| {task} | {n} | {before:.1f} | {ranked} | {each} | {last} |\n")
    return "".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("embeddings", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--root", type=Path, default=Path("office-home"))
    parser.add_argument("--tasks", default="Art-Product,Real_World-Art")
    parser.add_argument("--choices", type=lambda text: text.split(","), default=list(CHOICES))
    parser.add_argument("--budgets", type=lambda text: [*map(int, text.split(","))])
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2)
    given = parser.parse_args()
    given.budgets = given.budgets or list(BUDGETS)
    tasks = parse_tasks(load_protocol("office-home"), given.tasks)
    with mp.get_context("spawn").Pool(given.processes) as pool:
        parts = pool.starmap(run_task, [(given, names) for names in tasks], chunksize=1)
    rows = [row for part in parts for row in part]
    content = {"machine": describe(CPU), "steps": given.steps, "results": rows}
    given.out.mkdir(parents=True, exist_ok=True)
    (given.out / "label-budget.json").write_text(json.dumps(content, indent=1) + "\n")
    (given.out / "label-budget.md").write_text(HEAD + table(rows))
    print(table(rows))


if __name__ == "__main__":
    main()
