"""The figure of unknown scores: histograms of known and unknown images, with the thresholds."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from unida.bench.arrays import Arrays
from unida.bench.figures.run_selection import Choice, arrays_of, one_run_per_row
from unida.bench.figures.sheet import LAST_STEP, FigureData, caption
from unida.bench.figures.theme import COLOURS, INK, columns, labels, legend, panels
from unida.bench.results import Result, Run
from unida.errors import UserError
from unida.types import UNKNOWN

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Picture

BINS = 40


@dataclass(frozen=True)
class HistogramBin:
    """Share of a group's images with scores from left to right; a threshold has no width."""

    entry: str
    group: str
    left: float
    right: float
    percent: float | None


def scores(runs: list[Run], choice: Choice) -> FigureData[HistogramBin]:
    """Return histograms of the unknown scores of known and unknown images, and thresholds."""
    runs, notes = one_run_per_row(runs, choice)
    rows = [row for run in runs for row in _histogram(run.result, arrays_of(run))]
    text = caption(
        runs,
        LAST_STEP,
        f"seed {runs[0].result.seed}",
        "true classes colour the bars and set no threshold; the outer bins hold all beyond them",
    )
    return FigureData("Unknown scores of the target images", text, rows, notes=notes)


def _histogram(result: Result, arrays: Arrays) -> Iterable[HistogramBin]:
    rules = result.rules.items()
    thresholds = {name: r.threshold for name, r in rules if math.isfinite(r.threshold)}
    values = arrays.unknown_score
    finite = values[np.isfinite(values)]
    if not len(finite):
        raise UserError(f"{result.row} gave no finite unknown score.")
    # A few outliers must not compress the rest into one bin.
    low, high = np.percentile(finite, (0.2, 99.8))
    low, high = min((low, *thresholds.values())), max((high, *thresholds.values()))
    edges = np.linspace(low, high if high > low else low + 1, BINS + 1)
    is_unknown = arrays.labels == len(result.known_classes)
    for group, part in (("known", ~is_unknown), (UNKNOWN, is_unknown)):
        counts, _ = np.histogram(np.clip(values[part & np.isfinite(values)], low, high), edges)
        for left, right, count in zip(edges[:-1], edges[1:], counts, strict=True):
            share = 100 * int(count) / max(1, int(part.sum()))
            yield HistogramBin(result.row, group, float(left), float(right), share)
    for name, threshold in thresholds.items():
        yield HistogramBin(result.row, f"threshold: {name}", threshold, threshold, None)


def draw_histograms(data: FigureData[HistogramBin]) -> "Picture":
    """Draw a panel per row: known and unknown images, and the threshold of each rule."""
    entries = labels(row.entry for row in data.rows)
    picture, grid = panels(len(entries), width=2.5, height=1.9)
    groups = (("known", COLOURS[0], ""), (UNKNOWN, COLOURS[4], "////"))
    for axes, entry in zip(grid, entries, strict=True):
        rows = [row for row in data.rows if row.entry == entry]
        for group, colour, hatch in groups:
            bins = [row for row in rows if row.group == group]
            axes.stairs(
                [row.percent or 0.0 for row in bins],
                [*(row.left for row in bins), bins[-1].right],
                fill=True,
                facecolor=(colour, 0.55),
                edgecolor=colour if group == "known" else INK,
                linewidth=0.7,
                hatch=hatch,
                label=f"{group} classes",
            )
        _thresholds(axes, [row for row in rows if row.percent is None])
        axes.set_title(entries[entry], loc="left", pad=14)
        axes.set_xlabel("unknown score")
        axes.set_ylim(bottom=0)
    for axes in grid[:: columns(len(entries))]:
        axes.set_ylabel("images of the group (%)")
    legend(picture, grid)
    return picture


def _thresholds(axes: "Axes", rows: list[HistogramBin]) -> None:
    """Draw a named line per threshold; names of equal ones are joined, of two are spread."""
    names: dict[float, list[str]] = {}
    for row in rows:
        names.setdefault(row.left, []).append(row.group.removeprefix("threshold: "))
    for number, place in enumerate(sorted(names)):
        dashes = ":" if "own" in names[place] else "--"
        axes.axvline(place, color=INK, linestyle=dashes, linewidth=1.1)
        align = "center" if len(names) == 1 else ("right", "left")[number % 2]
        text, over = " = ".join(names[place]), ("data", "axes fraction")
        axes.annotate(text, (place, 1.01), xycoords=over, ha=align, va="bottom", fontsize=7)
