"""The figure of features: t-SNE of source and target in the plane, wrong predictions crossed.

The paper shows features of the backbone, for every method; those the classifier uses are a figure
of their own. Unknown classes are told apart.
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from unida.bench.arrays import Arrays
from unida.bench.figures.embedding import embed
from unida.bench.figures.run_selection import ALL_METHODS, Choice, arrays_of, one_run_per_row
from unida.bench.figures.sheet import LAST_STEP, FigureData, caption, rule_in_words, under
from unida.bench.figures.theme import COLOURS, GREY, INK, labels, panels, short
from unida.bench.results import Result, Run
from unida.errors import UserError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Picture

TARGET_MARKERS = ("^", "s", "D", "v", "P", "p", "h")
"""Of known classes; not the circle, which is the source."""
UNKNOWN_MARKERS = ("<", ">", "8", "H", "d", "|", "_", "1", "2", "3", "4", "+")
"""Of unknown classes."""
MOST_NAMED = 12
"""Largest number of classes with names in the legend; more have numbers only."""


@dataclass(frozen=True)
class Dot:
    """An image in the plane; `number` is that of its class, from 1, and from −1 down if unknown."""

    entry: str
    domain: str
    class_name: str
    number: int
    x: float
    y: float
    mistake: bool


def of_backbone(runs: list[Run], choice: Choice) -> FigureData[Dot]:
    """Return the backbone's features of both domains in the plane, as the paper does."""
    runs, notes = one_run_per_row(runs, choice, ALL_METHODS)
    found = []
    for run in runs:
        arrays = arrays_of(run)
        if arrays.backbone is not None and arrays.source_backbone is not None:
            y, source_y = arrays.backbone, arrays.source_backbone
            found.append((run, replace(arrays, features=y, source_features=source_y)))
    if not found:
        raise UserError(
            "No run has features of a trained backbone: it was frozen, or the version is an "
            "earlier one. Take tsne-z."
        )
    return _in_plane(found, choice, "Features of the backbone", notes)


def of_classifier(runs: list[Run], choice: Choice) -> FigureData[Dot]:
    """Return the features that the classifier uses in the plane."""
    runs, notes = one_run_per_row(runs, choice, ALL_METHODS)
    found = [(run, arrays_of(run)) for run in runs]
    return _in_plane(found, choice, "Features the classifier uses", notes)


def _in_plane(
    found: list[tuple[Run, Arrays]], choice: Choice, title: str, notes: tuple[str, ...]
) -> FigureData[Dot]:
    rows, counts, runs = [], set(), [run for run, _ in found]
    for run, arrays in found:
        dots = _dots(run.result, arrays, choice.rule)
        counts.add(f"{len(dots)} of {len(arrays.labels) + len(arrays.source_labels)} images")
        rows += dots
    shown = f"t-SNE of {' or '.join(sorted(counts))}, drawn evenly by class"
    seed = f"seed {runs[0].result.seed}"
    text = caption(runs, LAST_STEP, rule_in_words(runs, choice.rule), seed, shown)
    return FigureData(f"{title}, source and target", text, rows, notes=notes)


def _dots(result: Result, arrays: Arrays, rule: str) -> list[Dot]:
    unknown = len(result.known_classes)
    rejected = ~(arrays.unknown_score < under(result, rule).threshold)
    wrong = np.where(rejected, unknown, arrays.best) != arrays.labels
    numbers = {name: k for k, name in enumerate(result.known_classes, 1)}
    novel = sorted(set(arrays.true_class[arrays.labels == unknown].tolist()))
    of_novel = {name: -k for k, name in enumerate(novel, 1)}
    dots = []
    for spot in embed(arrays, unknown):
        of_source, i = spot.domain == "source", spot.number
        label = int((arrays.source_labels if of_source else arrays.labels)[i])
        is_novel = not of_source and label == unknown
        name = str(arrays.true_class[i]) if is_novel else result.known_classes[label]
        number = of_novel[name] if is_novel else numbers[name]
        mistake = not of_source and bool(wrong[i])
        dots.append(Dot(result.row, spot.domain, name, number, spot.x, spot.y, mistake))
    return dots


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
    if rows:
        middle = [sorted(values)[len(rows) // 2] for values in _coordinates(rows)]
        axes.annotate(
            str(number) if number > 0 else f"u{-number}",
            (middle[0], middle[1]),
            (0, 7),
            textcoords="offset points",
            fontsize=7 if number > 0 else 5,
            fontweight="bold" if number > 0 else "normal",
            ha="center",
            va="center",
            zorder=5,
            bbox={"boxstyle": "round,pad=0.1", "fc": "white", "ec": "none", "alpha": 0.7},
        )


def _coordinates(rows: list[Dot]) -> tuple[list[float], list[float]]:
    return [row.x for row in rows], [row.y for row in rows]


def _style(number: int, domain: str) -> dict[str, Any]:
    """Return colour and marker of a class in a domain; unknown classes are small and behind."""
    if number < 0:
        cycle, place = divmod(-number - 1, len(COLOURS))
        marker = UNKNOWN_MARKERS[cycle % len(UNKNOWN_MARKERS)]
        style = {"s": 10, "color": COLOURS[place], "marker": marker, "zorder": 1}
        return style | {"linewidths": 0.6, "alpha": 0.55}
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
        sample("target, unknown (u1, u2, …)", marker=UNKNOWN_MARKERS[0], color=GREY),
        sample("wrong prediction", marker="x", color=INK),
    ]
    classes = {row.number: row.class_name for row in rows if row.number > 0}
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
