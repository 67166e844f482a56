"""The style of the figures, for colour-blind readers and for print in grey.

Colours are those of Okabe and Ito without yellow, which is too pale on white; shape, line style
or hatching repeats what colour shows.
"""

import math
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from unida.errors import UserError

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Picture

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
GREY, INK = "#666666", "#222222"
LINES = ("-", "--", "-.", ":")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
LONGEST = 22
OTHER_SCRIPTS = ("Noto Sans CJK SC", "Noto Sans CJK JP", "Noto Sans", "Arial Unicode MS")
STYLE: dict[Any, Any] = {
    "font.size": 8,
    "axes.titlesize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": INK,
    "axes.axisbelow": True,
    "grid.color": "#E4E4E4",
    "grid.linewidth": 0.6,
    "hatch.linewidth": 0.6,
    "legend.frameon": False,
    "legend.handlelength": 3.0,  # long enough for a line style to show
    "text.parse_math": False,  # a class may be called $x_1
    "text.usetex": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "unida",  # the same picture is the same file
}


def need_matplotlib() -> None:
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise UserError(
            "Figures need matplotlib (extra 'plots'): pip install matplotlib."
        ) from None


def panels(
    count: int, width: float, height: float, *, sharex: bool = False, sharey: bool = False
) -> tuple["Picture", list["Axes"]]:
    """Return a picture with `count` axes, at most three per row."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Picture

    across = columns(count)
    lines = math.ceil(count / across)
    picture = Picture(
        figsize=(max(4.2, width * across + 1.2), height * lines + 0.9), layout="constrained"
    )
    FigureCanvasAgg(picture)
    grid = picture.subplots(lines, across, squeeze=False, sharex=sharex, sharey=sharey)
    for axes in grid.flat[count:]:
        axes.remove()
    return picture, list(grid.flat[:count])


def columns(count: int) -> int:
    """Return the panels per row: at most three, and four as two and two."""
    return 2 if count == 4 else min(count, 3)


def legend(picture: "Picture", parts: "Sequence[Axes]") -> None:
    """Add one legend for all panels, beside them."""
    found: dict[str, Artist] = {}
    for axes in parts:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    picture.legend(found.values(), found.keys(), loc="outside right upper")


def frame(picture: "Picture", title: str, caption: str) -> None:
    """Add the title above and the caption below, as wide as the picture."""
    inches = picture.get_size_inches()[0]
    text = " ".join(short(word, 40) for word in caption.split())
    wrapped = textwrap.fill(text, int(20 * inches), max_lines=4)
    picture.suptitle(title, x=0.01, ha="left", fontsize=10, fontweight="bold")
    picture.supxlabel(wrapped, x=0.01, ha="left", fontsize=6.5, color="#555555")


@contextmanager
def style() -> Iterator[None]:
    """Apply our style within the block, whatever the user's is."""
    import matplotlib
    from matplotlib.font_manager import fontManager

    installed = set(fontManager.get_font_names())
    fonts = ["DejaVu Sans", *(font for font in OTHER_SCRIPTS if font in installed)]
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(STYLE)
        matplotlib.rcParams["font.family"] = fonts
        yield


def labels(names: Iterable[str]) -> dict[str, str]:
    """Return a short label for every name, in order; equal labels are numbered."""
    found: dict[str, str] = {}
    for name in dict.fromkeys(names):
        label = short(name)
        equal = sum(short(other) == label for other in found)
        found[name] = f"{label} ({equal + 1})" if equal else label
    return found


def short(name: str, longest: int = LONGEST) -> str:
    """Shorten a name to one line of a label; settings often differ at their ends."""
    text = printable(name)
    half = longest // 2
    return text if len(text) <= longest else f"{text[: half - 1]}…{text[-half:]}"


def printable(text: str) -> str:
    """Replace what an SVG must not hold: control characters and surrogates."""
    return "".join(c if c.isprintable() else "�" for c in " ".join(text.split()))


def draw_line(
    axes: "Axes",
    number: int,
    label: str,
    x: Sequence[float],
    mean: list[float],
    std: list[float | None],
    every: int = 1,
) -> None:
    """Draw a line with its band; a single seed has none."""
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
