"""What the figures show, as plain rows: every number a figure draws stands in its CSV.

A figure is made of runs that are alike in data, setting, backbone and steps. What is compared is
compared on the same tasks: the mean over them is taken for each seed, and then over seeds.
"""

import dataclasses
import json
import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

from unida.bench.arrays import Arrays, read_arrays
from unida.bench.figures.embedding import embed
from unida.bench.figures.run_selection import (
    Choice,
    clean,
    few_entries,
    most_entries,
    one_run_an_entry,
    order,
    refuse_duplicates,
    swept,
    whole,
    with_folder,
)
from unida.bench.results import Result, RuleResult, Run
from unida.errors import UserError, require, shorten
from unida.methods import METHODS
from unida.types import UNKNOWN

SCORES = {"h": "H-score", "balanced_h": "balanced H-score"}
BINS = 40
LAST_STEP = "last step"
RECONSTRUCTIONS = {n for n, method in METHODS.items() if method.about.spec == "reconstruction"}
NO_LOSS = frozenset({"step", "lr", "grad_norm", "steps_per_second"})

Row = TypeVar("Row")


@dataclass(frozen=True)
class Point:
    """A score of one entry: mean and sample deviation over seeds of its mean over tasks."""

    entry: str
    score: str
    at: float
    mean_percent: float
    std_percent: float | None
    seeds: int
    tasks: int


@dataclass(frozen=True)
class Loss:
    """A loss term at a log point: mean and sample deviation over seeds."""

    entry: str
    term: str
    step: int
    mean: float
    std: float | None
    seeds: int


@dataclass(frozen=True)
class Bin:
    """The share of a group's images with scores from left to right; a threshold has no width."""

    entry: str
    group: str
    left: float
    right: float
    percent: float | None


@dataclass(frozen=True)
class Dot:
    """An image in the plane; `number` is that of its class, from 1, and 0 for unknown."""

    entry: str
    domain: str
    class_name: str
    number: int
    x: float
    y: float
    mistake: bool


@dataclass(frozen=True)
class Sheet(Generic[Row]):
    """All of one figure but the drawing.

    Attributes:
        title: a line above it.
        caption: a line below it: what it was made from.
        rows: what is drawn, and the CSV.
        axis: what `Point.at` is; empty where it is nothing.
        notes: what was left out, for the user.
    """

    title: str
    caption: str
    rows: list[Row]
    axis: str = ""
    notes: tuple[str, ...] = ()


def noise(runs: list[Run], choice: Choice) -> Sheet[Point]:
    """Scores against the share of source labels that were made wrong."""

    def percent(result: Result) -> float:
        return round(100 * result.label_noise, 6)

    runs = swept(whole(runs), percent, "levels of label noise")
    title = "How wrong source labels change the scores"
    return _compare(runs, percent, choice, title, "source labels made wrong (%)")


def unknowns(runs: list[Run], choice: Choice) -> Sheet[Point]:
    """Scores against the number of unknown classes in the target."""

    def count(result: Result) -> float:
        return float(result.unknown_classes)

    runs = swept(clean(runs), count, "numbers of unknown classes")
    title = "How the number of unknown classes changes the scores"
    return _compare(runs, count, choice, title, "unknown classes in the target")


def ablation(runs: list[Run], choice: Choice) -> Sheet[Point]:
    """Scores of a method beside those of its variants, or of the entries that were picked."""
    runs = whole(clean(runs))
    if not choice.picked:
        entries = {(run.result.method, run.result.entry) for run in runs}
        methods = [method for method, _ in entries]
        varied = {method for method in methods if methods.count(method) > 1}
        wanted = varied | ({"ovanet"} if "san" in varied else set())  # as in the paper
        runs = [run for run in runs if run.result.method in wanted]
    if len({run.result.row for run in runs}) < 2:
        raise UserError("No method was run with a variant of it, so there is nothing to compare.")
    return _compare(runs, lambda result: 0.0, choice, "What each part contributes", "")


def curves(runs: list[Run], choice: Choice) -> Sheet[Loss]:
    """Every loss term of every entry over the steps of one task."""
    runs = whole(clean(with_folder(runs, "metrics.jsonl")))
    runs = list({run.folder: run for run in runs}.values())  # refinement is no part of training
    task = most_entries(runs, lambda run: run.result.task)
    runs, notes = few_entries([run for run in runs if run.result.task == task], choice)
    logged: dict[tuple[str, str, int], list[float]] = defaultdict(list)
    for run in runs:
        for (term, step), value in _log(run).items():
            logged[run.result.entry, term, step].append(value)
    rows = [
        Loss(entry, term, step, *_mean_std(values), len(values))
        for (entry, term, step), values in logged.items()
    ]
    seeds = _seeds(row.seeds for row in rows)
    caption = _caption(runs, seeds, "means between two log points")
    return Sheet("Losses during training", caption, rows, notes=notes)


def scores(runs: list[Run], choice: Choice) -> Sheet[Bin]:
    """How unknown the target's images seem, known and unknown apart, with the thresholds."""
    runs, notes = one_run_an_entry(runs, choice)
    rows = [row for run in runs for row in _histogram(run.result, _arrays(run))]
    caption = _caption(
        runs,
        LAST_STEP,
        f"seed {runs[0].result.seed}",
        "the truth colours the bars and set no threshold; the outer bins hold all beyond them",
    )
    return Sheet("How unknown the target's images seem", caption, rows, notes=notes)


def tsne(runs: list[Run], choice: Choice) -> Sheet[Dot]:
    """Features of both domains in the plane."""
    runs, notes = one_run_an_entry(runs, choice)
    rows, counts = [], set()
    for run in runs:
        arrays = _arrays(run)
        dots = _dots(run.result, arrays, choice.rule)
        counts.add(f"{len(dots)} of {len(arrays.labels) + len(arrays.source_labels)} images")
        rows += dots
    shown = f"t-SNE of {' or '.join(sorted(counts))}, drawn evenly by class"
    seed = f"seed {runs[0].result.seed}"
    caption = _caption(runs, LAST_STEP, _rule(runs, choice.rule), seed, shown)
    return Sheet("Source and target as the network sees them", caption, rows, notes=notes)


def _compare(
    runs: list[Run], at: Callable[[Result], float], choice: Choice, title: str, axis: str
) -> Sheet[Point]:
    defined = [run for run in runs if _values(run.result, choice.rule)]
    if not defined:
        raise UserError("The H-score is undefined: it needs known and unknown images in a target.")
    cells = _cells(defined, at)
    tasks = set.intersection(*({task for _, task in cell} for cell in cells.values()))
    if not tasks:
        raise UserError("Its runs have no task in common, so they cannot be compared.")
    rows = [
        point
        for (entry, x), cell in cells.items()
        for point in _points(entry, x, cell, tasks, choice.rule)
    ]
    if not rows:
        raise UserError("No seed has every task of an entry, so there is no mean to show.")
    used = [run for run in defined if run.result.task in tasks]
    seeds = _seeds(row.seeds for row in rows)
    caption = _caption(used, LAST_STEP, _rule(used, choice.rule), seeds)
    return Sheet(title, caption, rows, axis, _omissions(runs, defined, tasks, cells, rows))


def _omissions(
    runs: list[Run],
    defined: list[Run],
    tasks: set[str],
    cells: "_Cells",
    rows: list[Point],
) -> tuple[str, ...]:
    """What a comparison could not take in."""
    notes = []
    if undefined := len(runs) - len(defined):
        notes.append(f"{undefined} results whose H-score is undefined")
    if others := sorted({run.result.task for run in defined} - tasks):
        notes.append(f"tasks that not every point has: {shorten(others)}")
    if missing := set(cells) - {(row.entry, row.at) for row in rows}:
        entries = sorted({entry for entry, _ in missing})
        notes.append(f"points without a seed that has every task, of {shorten(entries)}")
    return tuple(notes)


_Cells = dict[tuple[str, float], dict[tuple[int, str], Result]]


def _cells(runs: list[Run], at: Callable[[Result], float]) -> _Cells:
    """Results by entry and place on the axis, then by seed and task."""
    refuse_duplicates(runs)
    cells: _Cells = defaultdict(dict)
    for result in sorted((run.result for run in runs), key=lambda r: (order(r), at(r), r.seed)):
        cells[result.row, at(result)][result.seed, result.task] = result
    return dict(cells)


def _points(
    entry: str, at: float, cell: dict[tuple[int, str], Result], tasks: set[str], rule: str
) -> Iterable[Point]:
    """A point a score, over the seeds that have every task."""
    seeds = sorted({seed for seed, _ in cell})
    full = [seed for seed in seeds if all((seed, task) in cell for task in tasks)]
    for name, words in SCORES.items() if full else ():
        means = [
            100 * math.fsum(_values(cell[seed, task], rule)[name] for task in tasks) / len(tasks)
            for seed in full
        ]
        yield Point(entry, words, at, *_mean_std(means), len(full), len(tasks))


def _values(result: Result, rule: str) -> dict[str, float]:
    """The scores shown, as fractions; empty where one of them is undefined."""
    found = {name: _under(result, rule).scores.get(name) for name in SCORES}
    values = {name: value for name, value in found.items() if value is not None}
    return values if len(values) == len(SCORES) else {}


def _under(result: Result, rule: str) -> RuleResult:
    require(rule in result.rules, "rule", rule, shorten(list(result.rules)))
    return result.rules[rule]


def _mean_std(values: list[float]) -> tuple[float, float | None]:
    """Mean and sample deviation; None for the deviation of a single value."""
    mean = math.fsum(values) / len(values)
    if len(values) == 1:
        return mean, None
    return mean, math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (len(values) - 1))


def _log(run: Run) -> dict[tuple[str, int], float]:
    """Loss terms by name and step; of a step that was logged twice, the last."""
    assert run.folder is not None
    file = run.folder / "metrics.jsonl"
    try:
        lines = [dict(json.loads(line)) for line in file.read_text().splitlines() if line.strip()]
        return {
            (term, int(line["step"])): float(value)
            for line in lines
            for term, value in line.items()
            if term not in NO_LOSS
        }
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{file} is not the log of a run ({error!r}).") from None


def _arrays(run: Run) -> Arrays:
    assert run.folder is not None
    return read_arrays(run.folder, run.result.refine)


def _histogram(result: Result, arrays: Arrays) -> Iterable[Bin]:
    rules = result.rules.items()
    thresholds = {name: r.threshold for name, r in rules if math.isfinite(r.threshold)}
    values = arrays.unknown_score
    finite = values[np.isfinite(values)]
    if not len(finite):
        raise UserError(f"{result.row} gave no finite unknown score.")
    # A few far scores must not squeeze the rest into one bin.
    low, high = np.percentile(finite, (0.2, 99.8))
    low, high = min((low, *thresholds.values())), max((high, *thresholds.values()))
    edges = np.linspace(low, high if high > low else low + 1, BINS + 1)
    is_unknown = arrays.labels == len(result.known_classes)
    for group, part in (("known", ~is_unknown), (UNKNOWN, is_unknown)):
        counts, _ = np.histogram(np.clip(values[part & np.isfinite(values)], low, high), edges)
        for left, right, count in zip(edges[:-1], edges[1:], counts, strict=True):
            share = 100 * int(count) / max(1, int(part.sum()))
            yield Bin(result.row, group, float(left), float(right), share)
    for name, threshold in thresholds.items():
        yield Bin(result.row, f"threshold: {name}", threshold, threshold, None)


def _dots(result: Result, arrays: Arrays, rule: str) -> list[Dot]:
    unknown = len(result.known_classes)
    rejected = ~(arrays.unknown_score < _under(result, rule).threshold)
    wrong = np.where(rejected, unknown, arrays.best) != arrays.labels
    names = [*result.known_classes, UNKNOWN]
    return [
        Dot(result.row, spot.domain, names[k], (k + 1) % (unknown + 1), spot.x, spot.y, mistake)
        for spot in embed(arrays, unknown)
        for k, mistake in [_verdict(spot.domain, spot.number, arrays, wrong)]
    ]


def _verdict(
    domain: str, index: int, arrays: Arrays, wrong: npt.NDArray[np.bool_]
) -> tuple[int, bool]:
    """The true class of an image and whether the verdict on it is wrong; source has none."""
    if domain == "source":
        return int(arrays.source_labels[index]), False
    return int(arrays.labels[index]), bool(wrong[index])


def _caption(runs: list[Run], *parts: str) -> str:
    """What a figure was made from: data, setting, tasks, steps, then what is given."""
    first = runs[0].result
    tasks = sorted({run.result.task for run in runs})
    mean = shorten(tasks, 3) if len(tasks) < 4 else f"{len(tasks)} tasks"
    texts = [first.data, first.setting, mean]
    if len({run.result.unknown_classes for run in runs}) == 1:
        texts.append(f"{first.unknown_classes} unknown classes")
    if len({run.result.label_noise for run in runs}) == 1 and first.label_noise:
        texts.append(f"{100 * first.label_noise:g} % of source labels wrong")
    texts.append(f"{first.options.get('backbone')}, {first.options.get('steps')} steps")
    rebuilt = sorted({run.result.method for run in runs} & RECONSTRUCTIONS)
    marks = [f"reconstructed from their papers: {shorten(rebuilt)}"] if rebuilt else []
    return " · ".join([*texts, *parts, *marks])


def _seeds(counts: Iterable[int]) -> str:
    """How many seeds stand behind the points, and so what the spread is."""
    found = sorted(set(counts))
    if found == [1]:
        return "1 seed, so no spread"
    low, high = found[0], found[-1]
    number = str(low) if low == high else f"{low}–{high}"
    return f"{number} seeds, mean ± standard deviation"


def _rule(runs: list[Run], rule: str) -> str:
    """The rule asked for, and how often another was in force."""
    fell = sum(run.result.rules[rule].in_force != rule for run in runs)
    more = f", which fell back to own in {fell} of {len(runs)} runs" if fell else ""
    return f"reject rule {rule}{more}"


def columns(sheet: Sheet[Row]) -> dict[str, str]:
    """Fields of the rows and what they are called in the CSV."""
    names = [field.name for field in dataclasses.fields(sheet.rows[0])]  # type: ignore[arg-type]
    return {
        name: sheet.axis if name == "at" else name for name in names if name != "at" or sheet.axis
    }
