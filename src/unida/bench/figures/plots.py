"""Drawings of sheets. Nothing here knows of runs: what is drawn stands in the rows."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO

from unida.bench.figures.plot_data import SCORES, Bin, Dot, Loss, Point, Sheet
from unida.bench.figures.theme import (
    COLOURS,
    GREY,
    INK,
    LINES,
    MARKERS,
    columns,
    frame,
    labels,
    legend,
    panels,
    short,
    style,
)
from unida.types import UNKNOWN

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Picture

MOST_TICKS = 12
TARGET_MARKERS = ("^", "s", "D", "v", "P", "p", "h")
"""Not the circle: that is the source."""
MOST_NAMED = 12
"""Classes with their names in a legend; more have their numbers only."""


def save(sheet: Sheet[Any], draw: "Draw", files: Mapping[str, BinaryIO]) -> None:
    """Draws a sheet once and writes it in every format named: png, svg."""
    with style(), warnings.catch_warnings():
        # A script that no font has shows as boxes in a PNG; text in an SVG stays text.
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        picture = draw(sheet)
        frame(picture, sheet.title, sheet.caption)
        picture.draw_without_rendering()
        picture.set_layout_engine("none")  # found once, it is the same in every format
        for kind, file in files.items():
            blank = {"png": {"Software": None}, "svg": {"Date": None, "Creator": None}}[kind]
            picture.savefig(file, format=kind, dpi=200, metadata=blank)


def draw_lines(sheet: Sheet[Point]) -> "Picture":
    """A panel a score, a line an entry, a band for the spread."""
    picture, grid = panels(len(SCORES), width=2.9, height=2.4, sharey=True)
    entries = labels(row.entry for row in sheet.rows)
    for axes, score in zip(grid, SCORES.values(), strict=True):
        for number, (entry, label) in enumerate(entries.items()):
            rows = [row for row in sheet.rows if (row.score, row.entry) == (score, entry)]
            spread = [row.std_percent for row in rows]
            _line(axes, number, label, [r.at for r in rows], [r.mean_percent for r in rows], spread)
        axes.set_title(score, loc="left")
        axes.set_xlabel(sheet.axis)
        places = sorted({row.at for row in sheet.rows})
        if len(places) <= MOST_TICKS:
            axes.set_xticks(places)
        axes.grid(axis="y")
    grid[0].set_ylabel("%")
    legend(picture, grid)
    return picture


def draw_bars(sheet: Sheet[Point]) -> "Picture":
    """Two bars an entry, lying, so that long names have room."""
    entries = labels(row.entry for row in sheet.rows)
    order = list(entries)
    picture, (axes,) = panels(1, width=6.0, height=0.9 + 0.42 * len(entries))
    for number, score in enumerate(SCORES.values()):
        rows = [row for row in sheet.rows if row.score == score]
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


def draw_curves(sheet: Sheet[Loss]) -> "Picture":
    """A panel a loss term, a line an entry."""
    entries = labels(row.entry for row in sheet.rows)
    terms = labels(row.term for row in sheet.rows)
    picture, grid = panels(len(terms), width=2.0, height=1.55, sharex=True)
    for axes, term in zip(grid, terms, strict=True):
        for number, (entry, label) in enumerate(entries.items()):
            rows = [row for row in sheet.rows if (row.term, row.entry) == (term, entry)]
            steps, means = [row.step for row in rows], [row.mean for row in rows]
            spread = [row.std for row in rows]
            _line(axes, number, label, steps, means, spread, every=max(1, len(rows) // 6))
        axes.set_title("total" if term == "loss" else terms[term], loc="left")
        axes.grid(axis="y")
    for axes in grid[-columns(len(terms)) :]:
        axes.set_xlabel("step")
        axes.tick_params(labelbottom=True)
    legend(picture, grid)
    return picture


def draw_histograms(sheet: Sheet[Bin]) -> "Picture":
    """A panel an entry: known and unknown images, and where each rule cuts."""
    entries = labels(row.entry for row in sheet.rows)
    picture, grid = panels(len(entries), width=2.5, height=1.9)
    looks = (("known", COLOURS[0], ""), (UNKNOWN, COLOURS[4], "////"))
    for axes, entry in zip(grid, entries, strict=True):
        rows = [row for row in sheet.rows if row.entry == entry]
        for group, colour, hatch in looks:
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


def draw_tsne(sheet: Sheet[Dot]) -> "Picture":
    """A panel an entry: source in circles, target in other shapes, colours by class."""
    entries = labels(row.entry for row in sheet.rows)
    picture, grid = panels(len(entries), width=2.6, height=2.6)
    for axes, entry in zip(grid, entries, strict=True):
        rows = [row for row in sheet.rows if row.entry == entry]
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
    _tsne_legend(picture, sheet.rows)
    return picture


Draw = Callable[[Sheet[Any]], "Picture"]


def _class(axes: "Axes", number: int, rows: list[Dot]) -> None:
    """The dots of one class, and its number in their middle."""
    for domain in ("source", "target"):
        dots = [row for row in rows if row.domain == domain]
        axes.scatter(*_coordinates(dots), **_look(number, domain))
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


def _look(number: int, domain: str) -> dict[str, Any]:
    """Colour and marker of a class in a domain; unknown is grey and behind."""
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
    """What the shapes mean and, if they are few, the names of the classes."""
    from matplotlib.lines import Line2D

    def sample(label: str, **look: Any) -> Line2D:
        return Line2D([], [], linestyle="none", markersize=4.5, label=label, **look)

    marks = [
        sample("source", marker="o", color=INK),
        sample(
            "target (other shapes)", marker=TARGET_MARKERS[0], color=INK, markerfacecolor="white"
        ),
        sample("target, unknown", marker="<", color=GREY),
        sample("wrong verdict", marker="x", color=INK),
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


def _line(
    axes: "Axes",
    number: int,
    label: str,
    x: Sequence[float],
    mean: list[float],
    std: list[float | None],
    every: int = 1,
) -> None:
    """A line with its band; a single seed has none."""
    colour = COLOURS[number % len(COLOURS)]
    axes.plot(
        x,
        mean,
        color=colour,
        linestyle=LINES[number % len(LINES)],
        marker=MARKERS[number % len(MARKERS)],
        markersize=4.5,
        markeredgecolor=INK,
        markeredgewidth=0.5,
        markevery=every,
        linewidth=1.4,
        label=label,
    )
    if any(std):
        low = [m - (s or 0.0) for m, s in zip(mean, std, strict=True)]
        high = [m + (s or 0.0) for m, s in zip(mean, std, strict=True)]
        axes.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0)


def _thresholds(axes: "Axes", rows: list[Bin]) -> None:
    """A named line a threshold; names of equal ones are joined, of two they lean apart."""
    names: dict[float, list[str]] = {}
    for row in rows:
        names.setdefault(row.left, []).append(row.group.removeprefix("threshold: "))
    for number, place in enumerate(sorted(names)):
        dashes = ":" if "own" in names[place] else "--"
        axes.axvline(place, color=INK, linestyle=dashes, linewidth=1.1)
        lean = "center" if len(names) == 1 else ("right", "left")[number % 2]
        text, over = " = ".join(names[place]), ("data", "axes fraction")
        axes.annotate(text, (place, 1.01), xycoords=over, ha=lean, va="bottom", fontsize=7)
