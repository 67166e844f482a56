"""The paper's figures from the results of a bench.

    noise      H and balanced H against wrong source labels
    unknowns   H and balanced H against the number of unknown classes
    ablation   H and balanced H of a method and its variants
    tsne       features of the backbone in the plane, mistakes crossed
    tsne-z     the same of the features the classifier uses
    curves     every loss over the steps
    scores     unknown scores of known and unknown images, with the thresholds
    views      H and AUROC against the strength of the augmentation, for each contrastive loss

Three need no results: they show the paper's losses themselves.

    gradients  pull of CL and SCL on clean and noisy pairs of views
    difference L_CL − L_SCL against distance
    snr        signal-to-noise ratio of CL and SCL

Each is written as PNG and SVG, with all that is drawn as CSV.
"""

import csv
import io
import re
import warnings
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from unida.bench.figures import (
    comparison,
    curves,
    histograms,
    pair_losses,
    signal_to_noise,
    theme,
    tsne,
    view_noise,
)
from unida.bench.figures.run_selection import Choice
from unida.bench.figures.sheet import FigureData
from unida.bench.results import Run, read_runs
from unida.bench.tables.groups import traits
from unida.errors import UserError, require, shorten
from unida.training.run_folder import write_file, write_text
from unida.utils.csv_files import to_cell
from unida.utils.logs import logger

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

Draw = Callable[[FigureData[Any]], "Picture"]


@dataclass(frozen=True)
class FigureKind:
    """A figure: from runs to rows, and from rows to a picture.

    Runs that differ in the options of `across` may be in one figure.
    """

    prepare: Callable[[list[Run], Choice], FigureData[Any]]
    draw: Draw
    across: tuple[str, ...] = ()


@dataclass(frozen=True)
class Analysis:
    """A figure without results: its rows, and from rows to a picture."""

    prepare: Callable[[], FigureData[Any]]
    draw: Draw


FIGURES: dict[str, FigureKind] = {
    "noise": FigureKind(comparison.noise, comparison.draw_lines),
    "unknowns": FigureKind(comparison.unknowns, comparison.draw_lines),
    "ablation": FigureKind(comparison.ablation, comparison.draw_bars),
    "tsne": FigureKind(tsne.of_backbone, tsne.draw_tsne),
    "tsne-z": FigureKind(tsne.of_classifier, tsne.draw_tsne),
    "curves": FigureKind(curves.curves, curves.draw_curves),
    "scores": FigureKind(histograms.scores, histograms.draw_histograms),
    "views": FigureKind(view_noise.view_noise, view_noise.draw_view_noise, ("jitter",)),
}

ANALYSES: dict[str, Analysis] = {
    "gradients": Analysis(pair_losses.gradients, pair_losses.draw_gradients),
    "difference": Analysis(pair_losses.difference, pair_losses.draw_difference),
    "snr": Analysis(signal_to_noise.signal_to_noise, signal_to_noise.draw_signal_to_noise),
}


def draw_figures(
    results: Path | None,
    out: Path | None = None,
    *,
    kinds: Iterable[str] = ("all",),
    rule: str = "own",
    task: str | None = None,
    entries: Iterable[str] = (),
    seed: int | None = None,
) -> None:
    """Draw the requested figures that the results allow; log what was left out and why.

    Args:
        results: folder of a bench, or a file of results; None for `ANALYSES` alone.
        out: folder to write to; by default `figures` in the folder of the results, or here.
        kinds: names of `FIGURES` and `ANALYSES`; `all` is all of the former.
        rule: reject rule whose scores are shown.
        task: only this task; by default all.
        entries: only these methods and variants; by default all.
        seed: of the runs in tsne and scores; by default the first.
    """
    analyses, kinds, entries = _analyses(kinds), _kinds(kinds, results), _list(entries)
    theme.need_matplotlib()
    for name in analyses:
        place = out or Path("figures")
        logger.info("Computing %s.", name)
        _write(ANALYSES[name].prepare(), ANALYSES[name].draw, place, name)
        logger.info("wrote %s.png, .svg and .csv", place / name)
    if results is None or not kinds:
        return
    runs = _filtered(read_runs(results), task, entries)
    choice = Choice(rule, seed, bool(entries))
    out = out or (results if results.is_dir() else results.parent) / "figures"
    written = 0
    for kind in kinds:
        for group, alike in _groups(runs, FIGURES[kind].across).items():
            name = f"{kind}-{group}"
            try:
                data = FIGURES[kind].prepare(alike, choice)
            except UserError as error:
                logger.info("left out: %s: %s", name, error)
                continue
            for note in data.notes:
                logger.info("left out of %s: %s", name, note)
            _write(data, FIGURES[kind].draw, out, name)
            logger.info("wrote %s.png, .svg and .csv", out / name)
            written += 1
    if not written:
        raise UserError(f"{results} has nothing to draw {shorten(kinds)} from.")


def to_csv(data: FigureData[Any]) -> str:
    """Return all that is drawn. Texts are quoted, so that a name may hold anything."""
    columns = data.columns()
    text = io.StringIO(newline="")
    table = csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)
    table.writerow(columns.values())
    rows = ([getattr(row, name) for name in columns] for row in data.rows)
    table.writerows([to_cell(v) if isinstance(v, str) else v for v in row] for row in rows)
    return text.getvalue()


def save(data: FigureData[Any], draw: Draw, files: Mapping[str, BinaryIO]) -> None:
    """Draw a figure once and write it in every format named: png, svg."""
    with theme.style(), warnings.catch_warnings():
        # A script that no font has becomes boxes in a PNG; text in an SVG stays text.
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        picture = draw(data)
        theme.frame(picture, data.title, data.caption)
        picture.draw_without_rendering()
        picture.set_layout_engine("none")  # computed once, it is the same in every format
        for kind, file in files.items():
            blank = {"png": {"Software": None}, "svg": {"Date": None, "Creator": None}}[kind]
            picture.savefig(file, format=kind, dpi=200, metadata=blank)


def _write(data: FigureData[Any], draw: Draw, out: Path, name: str) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{out} cannot be made: {error.strerror}.") from None
    pictures = {"png": io.BytesIO(), "svg": io.BytesIO()}
    save(data, draw, pictures)
    for ending, content in pictures.items():
        write_file(out / f"{name}.{ending}", partial(_copy, content))
    write_text(out / f"{name}.csv", to_csv(data))


def _copy(content: io.BytesIO, file: BinaryIO) -> None:
    file.write(content.getbuffer())


def _analyses(given: Iterable[str]) -> list[str]:
    kinds = _list(given)
    return [name for name in ANALYSES if name in kinds]


def _kinds(given: Iterable[str], results: Path | None) -> list[str]:
    kinds, allowed = _list(given), f"{', '.join([*FIGURES, *ANALYSES])}, all"
    for kind in kinds:
        require(kind in (*FIGURES, *ANALYSES, "all"), "kinds", kind, allowed)
    require(bool(kinds), "kinds", "", allowed)
    needed = [kind for kind in FIGURES if kind in kinds or "all" in kinds]
    require(results is not None or not needed, "results", "not given", "those of a bench")
    return needed


def _filtered(runs: list[Run], task: str | None, entries: list[str]) -> list[Run]:
    """Return the runs of the task and of the entries that were named."""
    if task is not None:
        tasks = {_plain_task(run.result.task): run.result.task for run in runs}
        wanted = _plain_task(task)
        require(wanted in tasks, "task", task, shorten(sorted(tasks.values())))
        runs = [run for run in runs if _plain_task(run.result.task) == wanted]
    known = sorted({name for run in runs for name in (run.result.entry, run.result.row)})
    for entry in entries:
        require(entry in known, "entries", entry, shorten(known))
    return [
        run
        for run in runs
        if not entries or run.result.entry in entries or run.result.row in entries
    ]


def _groups(runs: list[Run], across: Collection[str] = ()) -> dict[str, list[Run]]:
    """Return runs that may be compared, under a name as short as possible."""
    groups: dict[tuple[str, str, frozenset[tuple[str, str]]], list[Run]] = defaultdict(list)
    for run in runs:
        how = frozenset(item for item in traits(run.result).items() if item[0] not in across)
        groups[run.result.data, run.result.setting, how].append(run)
    named: dict[str, list[Run]] = {}
    for (data, setting, how), alike in groups.items():
        shared = frozenset.intersection(*(k[2] for k in groups if k[:2] == (data, setting)))
        apart = (f"{trait}={value}" for trait, value in sorted(how - shared))
        name = _slug(data, setting, *apart)
        while name in named:  # two names that differ only in signs a file name must not have
            name += "+"
        named[name] = alike
    return named


def _list(given: Iterable[str]) -> list[str]:
    """Split `a,b c` and `a b c` alike."""
    return [part.strip() for text in given for part in text.split(",") if part.strip()]


def _plain_task(text: str) -> str:
    return text.replace("->", "→").replace(" ", "")


def _slug(*parts: str) -> str:
    """Return texts as part of a file name."""
    return "-".join(re.sub(r"[^\w.+-]+", "_", part)[:24] for part in parts)
