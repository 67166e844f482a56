"""The figure of the losses during training, on one task."""

import json
import math
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from unida.bench.figures.run_selection import (
    Choice,
    clean,
    complete,
    few_rows,
    most_rows,
    with_folder,
)
from unida.bench.figures.sheet import FigureData, caption, mean_std, seeds_in_words
from unida.bench.figures.theme import columns, draw_line, labels, legend, panels
from unida.bench.results import Run
from unida.errors import UserError

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

NO_LOSS = frozenset({"step", "lr", "grad_norm", "steps_per_second"})


@dataclass(frozen=True)
class Loss:
    """A loss term at a log point: mean and sample deviation over seeds."""

    entry: str
    term: str
    step: int
    mean: float
    std: float | None
    seeds: int


def curves(runs: list[Run], choice: Choice) -> FigureData[Loss]:
    """Return every loss term of every entry over the steps of one task."""
    runs = complete(clean(with_folder(runs, "metrics.jsonl")))
    runs = list({run.folder: run for run in runs}.values())  # refinement follows training
    task = most_rows(runs, lambda run: run.result.task)
    runs, notes = few_rows([run for run in runs if run.result.task == task], choice)
    logged: dict[tuple[str, str, int], list[float]] = defaultdict(list)
    for run in runs:
        for (term, step), value in _log(run).items():
            logged[run.result.entry, term, step].append(value)
    rows = [
        Loss(entry, term, step, *mean_std(values), len(values))
        for (entry, term, step), values in logged.items()
    ]
    seeds = seeds_in_words(row.seeds for row in rows)
    text = caption(runs, seeds, "means between two log points")
    return FigureData("Losses during training", text, rows, notes=notes)


def _log(run: Run) -> dict[tuple[str, int], float]:
    """Return loss terms by name and step; the last of a step that was logged twice."""
    assert run.folder is not None
    file = run.folder / "metrics.jsonl"
    try:
        lines = [dict(json.loads(line)) for line in file.read_text().splitlines() if line.strip()]
        return {
            (term, int(line["step"])): math.nan if value is None else float(value)
            for line in lines
            for term, value in line.items()
            if term not in NO_LOSS
        }
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{file} is not the log of a run ({error!r}).") from None


def draw_curves(data: FigureData[Loss]) -> "Picture":
    """Draw a panel per loss term, with a line per entry."""
    entries = labels(row.entry for row in data.rows)
    terms = labels(row.term for row in data.rows)
    picture, grid = panels(len(terms), width=2.0, height=1.55, sharex=True)
    for axes, term in zip(grid, terms, strict=True):
        for number, (entry, label) in enumerate(entries.items()):
            rows = [row for row in data.rows if (row.term, row.entry) == (term, entry)]
            steps, means = [row.step for row in rows], [row.mean for row in rows]
            spread = [row.std for row in rows]
            draw_line(axes, number, label, steps, means, spread, every=max(1, len(rows) // 6))
        axes.set_title("total" if term == "loss" else terms[term], loc="left")
        axes.grid(axis="y")
    for axes in grid[-columns(len(terms)) :]:
        axes.set_xlabel("step")
        axes.tick_params(labelbottom=True)
    legend(picture, grid)
    return picture
