"""Which runs a figure shows: whole and clean ones, and no more than a page has room for."""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from unida.bench.entries import VARIANTS
from unida.bench.results import Result, Run
from unida.bench.tables.groups import refine_place
from unida.errors import UserError, shorten

FIRST = ("san", "ovanet")
"""The paper's method and the one it is held against come first; the others follow by name."""
MOST_PANELS = 6

Key = TypeVar("Key")


@dataclass(frozen=True)
class Choice:
    """What the user picked.

    Attributes:
        rule: reject rule whose scores are shown.
        seed: of the runs that are shown one by one; None for the first.
        picked: whether the entries were named, so that all of them are wanted.
    """

    rule: str
    seed: int | None = None
    picked: bool = False


def swept(runs: list[Run], at: Callable[[Result], float], what: str) -> list[Run]:
    """The runs of entries that were run at two or more places on the axis."""
    places = defaultdict(set)
    for run in runs:
        places[run.result.row].add(at(run.result))
    found = [run for run in runs if len(places[run.result.row]) > 1]
    if not found:
        raise UserError(f"No entry was run at two or more {what}.")
    return found


def whole(runs: list[Run]) -> list[Run]:
    """The runs with every unknown class of their task; fewer are meant for one figure only."""
    most: dict[str, int] = defaultdict(int)
    for run in runs:
        most[run.result.task] = max(most[run.result.task], run.result.unknown_classes)
    return [run for run in runs if run.result.unknown_classes == most[run.result.task]]


def clean(runs: list[Run]) -> list[Run]:
    """The runs with the least label noise; more is meant for one figure only."""
    least = min((run.result.label_noise for run in runs), default=0.0)
    return [run for run in runs if run.result.label_noise == least]


def with_folder(runs: list[Run], file: str) -> list[Run]:
    found = [run for run in runs if run.folder and (run.folder / file).is_file()]
    if not found:
        raise UserError(f"No run has {file}, which lies in the run folders of a bench.")
    return found


def one_run_an_entry(runs: list[Run], choice: Choice) -> tuple[list[Run], tuple[str, ...]]:
    """The runs of one task and seed: those that most entries have."""
    runs = whole(clean(with_folder(runs, "scores.npz")))
    if choice.seed is not None:
        runs = [run for run in runs if run.result.seed == choice.seed]
        if not runs:
            raise UserError(f"No run of seed {choice.seed} has scores.npz.")
    best = most_entries(runs, lambda run: (run.result.task, run.result.seed))
    return few_entries([r for r in runs if (r.result.task, r.result.seed) == best], choice)


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


def most_entries(runs: list[Run], key: Callable[[Run], Key]) -> Key:
    """The key whose runs have the most entries; of equals, the first by name."""
    entries: dict[Key, set[str]] = defaultdict(set)
    for run in sorted(runs, key=lambda run: (run.result.task, run.result.seed)):
        entries[key(run)].add(run.result.row)
    return max(entries, key=lambda k: len(entries[k]))


def few_entries(runs: list[Run], choice: Choice) -> tuple[list[Run], tuple[str, ...]]:
    """At most as many entries as a page has room for: methods before variants."""
    refuse_duplicates(runs)
    runs = sorted(runs, key=lambda run: (order(run.result), run.result.seed))
    methods_first = sorted(runs, key=lambda run: run.result.entry != run.result.method)
    entries = list(dict.fromkeys(run.result.row for run in methods_first))
    keep = entries if choice.picked else entries[:MOST_PANELS]
    left = [entry for entry in entries if entry not in keep]
    notes = (f"entries beyond {MOST_PANELS} (name others by --entries): {shorten(left)}",)
    return [run for run in runs if run.result.row in keep], notes if left else ()


def order(result: Result) -> tuple[int, str, int, str, tuple[int, str]]:
    """Sort key of rows in a figure: a method, then its variants, each before its refinements."""
    first = FIRST.index(result.method) if result.method in FIRST else len(FIRST)
    variants = [result.method, *VARIANTS]
    variant = variants.index(result.entry) if result.entry in variants else len(variants)
    return first, result.method, variant, result.entry, refine_place(result.refine)
