"""Figures that compare scores: against label noise, against unknown classes, and the ablation.

What is compared is compared on the same tasks: the mean over them is taken for each seed, and then
over seeds.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import fsum
from typing import TYPE_CHECKING

from unida.bench.figures.run_selection import (
    Choice,
    clean,
    complete,
    order,
    refuse_duplicates,
    swept,
)
from unida.bench.figures.sheet import (
    LAST_STEP,
    FigureData,
    caption,
    mean_std,
    rule_in_words,
    seeds_in_words,
    under,
)
from unida.bench.figures.theme import COLOURS, INK, draw_line, labels, legend, panels
from unida.bench.results import Result, Run
from unida.errors import UserError, shorten

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

SCORES = {"h": "H-score", "balanced_h": "balanced H-score"}
MOST_TICKS = 12


@dataclass(frozen=True)
class Point:
    """A score of one row: mean and sample deviation over seeds of its mean over tasks."""

    entry: str
    score: str
    at: float
    mean_percent: float
    std_percent: float | None
    seeds: int
    tasks: int


def noise(runs: list[Run], choice: Choice) -> FigureData[Point]:
    """Return the scores against the share of wrong source labels."""

    def percent(result: Result) -> float:
        return round(100 * result.label_noise, 6)

    runs = swept(complete(runs), percent, "levels of label noise")
    title = "How wrong source labels change the scores"
    return _compare(runs, percent, choice, title, "source labels made wrong (%)")


def unknowns(runs: list[Run], choice: Choice) -> FigureData[Point]:
    """Return the scores against the number of unknown classes in the target."""

    def count(result: Result) -> float:
        return float(result.unknown_classes)

    runs = swept(clean(runs), count, "numbers of unknown classes")
    title = "How the number of unknown classes changes the scores"
    return _compare(runs, count, choice, title, "unknown classes in the target")


def ablation(runs: list[Run], choice: Choice) -> FigureData[Point]:
    """Return the scores of a method and its variants, or of the entries that were picked."""
    runs = complete(clean(runs))
    if not choice.picked:
        entries = {(run.result.method, run.result.entry) for run in runs}
        methods = [method for method, _ in entries]
        varied = {method for method in methods if methods.count(method) > 1}
        shown = varied | ({"ovanet"} if "san" in varied else set())  # as in the paper
        runs = [run for run in runs if run.result.method in shown]
    if len({run.result.row for run in runs}) < 2:
        raise UserError("No method was run with a variant of it, so there is nothing to compare.")
    return _compare(runs, lambda result: 0.0, choice, "What each part contributes", "")


def _compare(
    runs: list[Run], at: Callable[[Result], float], choice: Choice, title: str, axis: str
) -> FigureData[Point]:
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
    seeds = seeds_in_words(row.seeds for row in rows)
    text = caption(used, LAST_STEP, rule_in_words(used, choice.rule), seeds)
    return FigureData(title, text, rows, axis, _omissions(runs, defined, tasks, cells, rows))


def _omissions(
    runs: list[Run],
    defined: list[Run],
    tasks: set[str],
    cells: "_Cells",
    rows: list[Point],
) -> tuple[str, ...]:
    """Describe what a comparison could not include."""
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
    """Return results by row and place on the axis, then by seed and task."""
    refuse_duplicates(runs)
    cells: _Cells = defaultdict(dict)
    for result in sorted((run.result for run in runs), key=lambda r: (order(r), at(r), r.seed)):
        cells[result.row, at(result)][result.seed, result.task] = result
    return dict(cells)


def _points(
    entry: str, at: float, cell: dict[tuple[int, str], Result], tasks: set[str], rule: str
) -> Iterable[Point]:
    """Yield a point per score, over the seeds that have every task."""
    seeds = sorted({seed for seed, _ in cell})
    full = [seed for seed in seeds if all((seed, task) in cell for task in tasks)]
    for name, words in SCORES.items() if full else ():
        means = [
            100 * fsum(_values(cell[seed, task], rule)[name] for task in tasks) / len(tasks)
            for seed in full
        ]
        yield Point(entry, words, at, *mean_std(means), len(full), len(tasks))


def _values(result: Result, rule: str) -> dict[str, float]:
    """Return the scores shown, as fractions; empty where one of them is undefined."""
    found = {name: under(result, rule).scores.get(name) for name in SCORES}
    values = {name: value for name, value in found.items() if value is not None}
    return values if len(values) == len(SCORES) else {}


def draw_lines(data: FigureData[Point]) -> "Picture":
    """Draw a panel per score, with a line per row and a band for the spread."""
    picture, grid = panels(len(SCORES), width=2.9, height=2.4, sharey=True)
    entries = labels(row.entry for row in data.rows)
    for axes, score in zip(grid, SCORES.values(), strict=True):
        for number, (entry, label) in enumerate(entries.items()):
            rows = [row for row in data.rows if (row.score, row.entry) == (score, entry)]
            spread = [row.std_percent for row in rows]
            draw_line(
                axes, number, label, [r.at for r in rows], [r.mean_percent for r in rows], spread
            )
        axes.set_title(score, loc="left")
        axes.set_xlabel(data.axis)
        places = sorted({row.at for row in data.rows})
        if len(places) <= MOST_TICKS:
            axes.set_xticks(places)
        axes.grid(axis="y")
    grid[0].set_ylabel("%")
    legend(picture, grid)
    return picture


def draw_bars(data: FigureData[Point]) -> "Picture":
    """Draw two horizontal bars per row, so that long names have room."""
    entries = labels(row.entry for row in data.rows)
    order = list(entries)
    picture, (axes,) = panels(1, width=6.0, height=0.9 + 0.42 * len(entries))
    for number, score in enumerate(SCORES.values()):
        rows = [row for row in data.rows if row.score == score]
        places = [order.index(row.entry) + 0.38 * (number - 0.5) for row in rows]
        means = [row.mean_percent for row in rows]
        spread = [row.std_percent or 0.0 for row in rows]
        axes.barh(
            places,
            means,
            0.36,
            xerr=spread if any(spread) else None,
            color=(COLOURS[0], COLOURS[4])[number],
            edgecolor=INK,
            linewidth=0.6,
            hatch=("", "////")[number],
            error_kw={"ecolor": INK, "elinewidth": 0.9, "capsize": 2},
            label=score,
        )
        for place, mean, std in zip(places, means, spread, strict=True):
            axes.annotate(
                f"{mean:.1f}", (mean + std, place), (4, 0), textcoords="offset points", va="center"
            )
    axes.set_yticks(range(len(order)), entries.values())
    axes.invert_yaxis()
    axes.set_xlim(0, 100)
    axes.set_xlabel("%")
    axes.grid(axis="x")
    legend(picture, [axes])
    return picture
