"""View noise measured: scores against the strength of the augmentation, for each contrastive loss.

The paper's claim is that strong views harm InfoNCE more than SCL. `unida bench … --methods views`
makes the runs, with `--option jitter=…` for changes of colour.
"""

from collections import Counter, defaultdict
from dataclasses import dataclass
from math import fsum
from typing import TYPE_CHECKING

from unida.bench.figures.run_selection import Choice, clean, complete
from unida.bench.figures.sheet import (
    LAST_STEP,
    FigureData,
    caption,
    mean_std,
    rule_in_words,
    seeds_in_words,
    under,
)
from unida.bench.figures.theme import draw_line, legend, panels
from unida.bench.results import ALONE, Result, Run
from unida.errors import UserError

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

AXES = {"crop": "largest share of an image cut away", "jitter": "strength of colour changes"}
NAMES = {"scaled": "SCL", "info_nce": "InfoNCE", "none": "none"}
"""Contrastive losses and what a reader calls them; another form of SCL keeps its own name."""


@dataclass(frozen=True)
class Strength:
    """A score at a strength: mean and sample deviation over seeds of its mean over tasks."""

    contrast: str
    axis: str
    strength: float
    score: str
    mean_percent: float
    std_percent: float | None
    seeds: int
    tasks: int


def view_noise(runs: list[Run], choice: Choice) -> FigureData[Strength]:
    """Return H and AUROC against crop and colour, for SAN with each contrastive loss."""
    runs = [
        run
        for run in complete(clean(runs))
        if run.result.method == "san" and "contrast" in run.result.settings
        and run.result.refine == ALONE and not run.result.options.get("frozen")
    ]  # fmt: skip
    rows = [row for axis in AXES for row in _along(axis, runs, choice)]
    if not rows:
        raise UserError(
            "No loss was run at two strengths of its views, with a backbone that is trained: see "
            "unida bench --methods views."
        )
    text = caption(
        runs,
        *(LAST_STEP, rule_in_words(runs, choice.rule), "the method alone"),
        seeds_in_words(row.seeds for row in rows),
    )
    return FigureData("View noise: scores against the strength of the views", text, rows)


def _along(axis: str, runs: list[Run], choice: Choice) -> list[Strength]:
    """Return the points where one strength varies and the other is what most runs have."""
    other = next(name for name in AXES if name != axis)
    usual = Counter(_at(other, run.result) for run in runs).most_common(1)
    cells: dict[tuple[str, float], dict[tuple[int, str], Result]] = defaultdict(dict)
    for result in (run.result for run in runs):
        if _at(other, result) == usual[0][0] and under(result, choice.rule).scores["h"] is not None:
            cell = cells[str(result.settings["contrast"]), _at(axis, result)]
            if (result.seed, result.task) in cell:
                raise UserError(
                    f"Two results of {result.row} on {result.task} with seed {result.seed} differ "
                    "in more than their views: keep them in folders of their own."
                )
            cell[result.seed, result.task] = result
    levels = Counter(contrast for contrast, _ in cells)
    if not cells or max(levels.values()) < 2:
        return []
    tasks = set.intersection(*({task for _, task in cell} for cell in cells.values()))
    return [
        Strength(NAMES.get(contrast, contrast), axis, at, score, *spread, len(means), len(tasks))
        for (contrast, at), cell in sorted(cells.items())
        for score in ("H", "AUROC")
        if (means := _seed_means(cell, tasks, score, choice.rule))
        for spread in [mean_std(means)]
    ]


def _at(axis: str, result: Result) -> float:
    if axis == "crop":
        return round(1 - float(result.settings["crop"]), 6)
    return float(result.options.get("jitter", 1.0))


def _seed_means(
    cell: dict[tuple[int, str], Result], tasks: set[str], score: str, rule: str
) -> list[float]:
    """Return the mean over tasks of each seed that has all of them, in %."""
    by_seed: dict[int, list[float]] = defaultdict(list)
    for (seed, task), result in cell.items():
        value = under(result, rule).scores["h"] if score == "H" else result.ranking.get("auroc")
        if task in tasks and value is not None:
            by_seed[seed].append(100 * value)
    return [fsum(v) / len(tasks) for v in by_seed.values() if tasks and len(v) == len(tasks)]


def draw_view_noise(data: FigureData[Strength]) -> "Picture":
    """Draw a panel per strength and score, with a line per loss."""
    places = list(dict.fromkeys((row.axis, row.score) for row in data.rows))
    contrasts = list(dict.fromkeys(row.contrast for row in data.rows))
    picture, grid = panels(len(places), width=2.4, height=2.0)
    for axes, (axis, score) in zip(grid, places, strict=True):
        for number, contrast in enumerate(contrasts):
            rows = [
                row
                for row in data.rows
                if (row.axis, row.score, row.contrast) == (axis, score, contrast)
            ]
            x, means = [row.strength for row in rows], [row.mean_percent for row in rows]
            if rows:
                draw_line(axes, number, contrast, x, means, [row.std_percent for row in rows])
        axes.set_title(f"{score} (%)", loc="left")
        axes.set_xlabel(AXES[axis])
        axes.grid(axis="y")
    legend(picture, grid)
    return picture
