"""Selection of the runs a figure shows: complete and clean ones, as many as fit on a page."""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from unida.bench.arrays import Arrays, read_arrays
from unida.bench.results import Result, Run
from unida.bench.tables.groups import refine_place
from unida.errors import UserError, shorten
from unida.methods.presets import PRESETS

FIRST = ("san", "ovanet")
"""The paper's method and its baseline come first; the others follow by name."""
MOST_PANELS = 6
ALL_METHODS = 18
"""Most panels of a figure that compares all methods."""

Key = TypeVar("Key")


@dataclass(frozen=True)
class Choice:
    """The user's selection.

    Attributes:
        rule: reject rule whose scores are shown.
        seed: of the runs that are shown one by one; None for the first.
        picked: whether the entries were named, so that all of them are shown.
    """

    rule: str
    seed: int | None = None
    picked: bool = False


def swept(runs: list[Run], at: Callable[[Result], float], what: str) -> list[Run]:
    """Return the runs of rows that have two or more places on the axis."""
    places = defaultdict(set)
    for run in runs:
        places[run.result.row].add(at(run.result))
    found = [run for run in runs if len(places[run.result.row]) > 1]
    if not found:
        raise UserError(f"No entry was run at two or more {what}.")
    return found


def complete(runs: list[Run]) -> list[Run]:
    """Return the runs with every unknown class of their task."""
    most: dict[str, int] = defaultdict(int)
    for run in runs:
        most[run.result.task] = max(most[run.result.task], run.result.unknown_classes)
    return [run for run in runs if run.result.unknown_classes == most[run.result.task]]


def clean(runs: list[Run]) -> list[Run]:
    """Return the runs with the least label noise."""
    least = min((run.result.label_noise for run in runs), default=0.0)
    return [run for run in runs if run.result.label_noise == least]


def with_folder(runs: list[Run], file: str) -> list[Run]:
    found = [run for run in runs if run.folder and (run.folder / file).is_file()]
    if not found:
        raise UserError(f"No run has {file}, which is in the run folders of a bench.")
    return found


def one_run_per_row(
    runs: list[Run], choice: Choice, most: int = MOST_PANELS
) -> tuple[list[Run], tuple[str, ...]]:
    """Return the runs of the task and seed that most rows have."""
    runs = complete(clean(with_folder(runs, "scores.npz")))
    if choice.seed is not None:
        runs = [run for run in runs if run.result.seed == choice.seed]
        if not runs:
            raise UserError(f"No run of seed {choice.seed} has scores.npz.")
    best = most_rows(runs, lambda run: (run.result.task, run.result.seed))
    return few_rows([r for r in runs if (r.result.task, r.result.seed) == best], choice, most)


def refuse_duplicates(runs: list[Run]) -> None:
    """Refuse runs that differ in nothing but options, which the figure would mix."""
    found = set()
    for r in (run.result for run in runs):
        key = (r.row, r.task, r.seed, r.label_noise, r.unknown_classes)
        if key in found:
            raise UserError(
                f"Two results of {r.row} on {r.task} with seed {r.seed} differ in their options "
                "only: keep them in folders of their own."
            )
        found.add(key)


def most_rows(runs: list[Run], key: Callable[[Run], Key]) -> Key:
    """Return the key whose runs have the most rows; of equals, the first by name."""
    entries: dict[Key, set[str]] = defaultdict(set)
    for run in sorted(runs, key=lambda run: (run.result.task, run.result.seed)):
        entries[key(run)].add(run.result.row)
    return max(entries, key=lambda k: len(entries[k]))


def few_rows(
    runs: list[Run], choice: Choice, most: int = MOST_PANELS
) -> tuple[list[Run], tuple[str, ...]]:
    """Select as many rows as fit on a page: methods before variants."""
    refuse_duplicates(runs)
    runs = sorted(runs, key=lambda run: (order(run.result), run.result.seed))
    methods_first = sorted(runs, key=lambda run: run.result.entry != run.result.method)
    entries = list(dict.fromkeys(run.result.row for run in methods_first))
    keep = entries if choice.picked else entries[:most]
    left = [entry for entry in entries if entry not in keep]
    notes = (f"entries beyond {most} (name others by --entries): {shorten(left)}",)
    return [run for run in runs if run.result.row in keep], notes if left else ()


def order(result: Result) -> tuple[int, str, int, str, tuple[int, str]]:
    """Sort key of rows in a figure: a method, then its variants, each before its refinements."""
    first = FIRST.index(result.method) if result.method in FIRST else len(FIRST)
    variants = [result.method, *PRESETS]
    variant = variants.index(result.entry) if result.entry in variants else len(variants)
    return first, result.method, variant, result.entry, refine_place(result.refine)


def arrays_of(run: Run) -> Arrays:
    """Read the arrays of a run that has a folder."""
    assert run.folder is not None
    return read_arrays(run.folder, run.result.refine)
