"""The figure of features: t-SNE of source and target in the plane, wrong predictions crossed."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from unida.bench.arrays import Arrays
from unida.bench.figures.embedding import embed
from unida.bench.figures.run_selection import Choice, arrays_of, one_run_per_row
from unida.bench.figures.sheet import LAST_STEP, FigureData, caption, rule_in_words, under
from unida.bench.figures.theme import COLOURS, GREY, INK, labels, panels, short
from unida.bench.results import Result, Run
from unida.types import UNKNOWN

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Picture

TARGET_MARKERS = ("^", "s", "D", "v", "P", "p", "h")
"""Not the circle, which is the source."""
MOST_NAMED = 12
"""Largest number of classes with names in the legend; more have numbers only."""


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


def tsne(runs: list[Run], choice: Choice) -> FigureData[Dot]:
    """Return the features of both domains in the plane."""
    runs, notes = one_run_per_row(runs, choice)
    rows, counts = [], set()
    for run in runs:
        arrays = arrays_of(run)
        dots = _dots(run.result, arrays, choice.rule)
        counts.add(f"{len(dots)} of {len(arrays.labels) + len(arrays.source_labels)} images")
        rows += dots
    shown = f"t-SNE of {' or '.join(sorted(counts))}, drawn evenly by class"
    seed = f"seed {runs[0].result.seed}"
    text = caption(runs, LAST_STEP, rule_in_words(runs, choice.rule), seed, shown)
    return FigureData("Features of source and target", text, rows, notes=notes)


def _dots(result: Result, arrays: Arrays, rule: str) -> list[Dot]:
    unknown = len(result.known_classes)
    rejected = ~(arrays.unknown_score < under(result, rule).threshold)
    wrong = np.where(rejected, unknown, arrays.best) != arrays.labels
    names = [*result.known_classes, UNKNOWN]
    return [
        Dot(result.row, spot.domain, names[k], (k + 1) % (unknown + 1), spot.x, spot.y, mistake)
        for spot in embed(arrays, unknown)
        for k, mistake in [_class_of(spot.domain, spot.number, arrays, wrong)]
    ]


def _class_of(
    domain: str, index: int, arrays: Arrays, wrong: npt.NDArray[np.bool_]
) -> tuple[int, bool]:
    """Return the true class of an image and whether its predicted label is wrong."""
    if domain == "source":
        return int(arrays.source_labels[index]), False
    return int(arrays.labels[index]), bool(wrong[index])


def draw_tsne(data: FigureData[Dot]) -> "Picture":
    """Draw a panel per row: source in circles, target in other shapes, colours by class."""
    entries = labels(row.entry for row in data.rows)
    picture, grid = panels(len(entries), width=2.6, height=2.6)
    for axes, entry in zip(grid, entries, strict=True):
        rows = [row for row in data.rows if row.entry == entry]
        for number in sorted({row.number for row in rows}):
            _class(axes, number, [row for row in rows if row.number == number])
        wrong = [row for row in rows if row.mistake]
        axes.scatter(*_coordinates(wrong), s=16, color=INK, marker="x", linewidths=0.7, zorder=4)
        target = sum(row.domain == "target" for row in rows)
        axes.set_title(entries[entry], loc="left")
        axes.set_xlabel(f"{len(wrong)} of {target} target images shown are wrong")
        axes.margins(0.08)
        axes.set_xticks([])
        axes.set_yticks([])
        axes.spines[:].set_visible(True)
        axes.spines[:].set_color("#BBBBBB")
    _tsne_legend(picture, data.rows)
    return picture


def _class(axes: "Axes", number: int, rows: list[Dot]) -> None:
    """Draw the dots of one class, and its number in their middle."""
    for domain in ("source", "target"):
        dots = [row for row in rows if row.domain == domain]
        axes.scatter(*_coordinates(dots), **_style(number, domain))
    if number:
        middle = [sorted(values)[len(rows) // 2] for values in _coordinates(rows)]
        axes.annotate(
            str(number),
            (middle[0], middle[1]),
            (0, 7),
            textcoords="offset points",
            fontsize=7,
            fontweight="bold",
            ha="center",
            va="center",
            zorder=5,
            bbox={"boxstyle": "round,pad=0.1", "fc": "white", "ec": "none", "alpha": 0.7},
        )


def _coordinates(rows: list[Dot]) -> tuple[list[float], list[float]]:
    return [row.x for row in rows], [row.y for row in rows]


def _style(number: int, domain: str) -> dict[str, Any]:
    """Return colour and marker of a class in a domain; unknown is grey and behind."""
    if number == 0:
        marker = {"source": "o", "target": "<"}[domain]
        return {"s": 9, "color": GREY, "marker": marker, "linewidths": 0, "zorder": 1}
    colour = COLOURS[(number - 1) % len(COLOURS)]
    cycle = (number - 1) // len(COLOURS)
    if domain == "source":
        edge = INK if cycle % 2 else "none"
        round_ = {"s": 10, "marker": "o", "linewidths": 0.5, "zorder": 2}
        return round_ | {"facecolor": colour, "edgecolor": edge}
    marker = TARGET_MARKERS[cycle % len(TARGET_MARKERS)]
    hollow = {"s": 18, "marker": marker, "linewidths": 0.9, "zorder": 3}
    return hollow | {"facecolor": "white", "edgecolor": colour}


def _tsne_legend(picture: "Picture", rows: list[Dot]) -> None:
    """Draw the meaning of the shapes and, if they are few, the names of the classes."""
    from matplotlib.lines import Line2D

    def sample(label: str, **style: Any) -> Line2D:
        return Line2D([], [], linestyle="none", markersize=4.5, label=label, **style)

    marks = [
        sample("source", marker="o", color=INK),
        sample(
            "target (other shapes)", marker=TARGET_MARKERS[0], color=INK, markerfacecolor="white"
        ),
        sample("target, unknown", marker="<", color=GREY),
        sample("wrong prediction", marker="x", color=INK),
    ]
    classes = {row.number: row.class_name for row in rows if row.number}
    if len(classes) <= MOST_NAMED:
        for number, name in sorted(classes.items()):
            colour = COLOURS[(number - 1) % len(COLOURS)]
            edge = INK if (number - 1) // len(COLOURS) % 2 else colour
            marks.append(
                sample(f"{number} {short(name)}", marker="o", color=colour, markeredgecolor=edge)
            )
    else:
        marks.append(sample(f"1–{max(classes)}: known classes", marker="", color=INK))
    picture.legend(handles=marks, loc="outside right upper", handlelength=1)
