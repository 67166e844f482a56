"""Results grouped into rows that may be averaged: they differ in task and seed only."""

import dataclasses
import json
import math
import zlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import mean, stdev

from unida.bench.results import (
    ALONE,
    FEW_UNKNOWN,
    OFF,
    REFINED,
    SETTINGS,
    Result,
    row_name,
    shift_name,
)
from unida.bench.tables.published import Classes, PaperData, PublishedTable, paper
from unida.config import ENVIRONMENT
from unida.errors import UserError
from unida.methods import METHODS
from unida.protocols.sets import set_names
from unida.protocols.tasks import load_protocol

NO_TRAIT = ENVIRONMENT | {
    "seed", "method", "settings", "refine", "checkpoint_every", "reject", "weights", "precision",
}  # fmt: skip
"""Options that change no number of a table, or that are handled separately."""

ORDER = (
    "source_only",
    "uan",
    "cmu",
    "dance",
    "dcc",
    "ovanet",
    "tnt",
    "gate",
    "spa",
    "uniot",
    "glc",
    "lead",
    "mlnet",
)
"""The paper's order of methods, with others inserted by year; the rest follows."""

SEARCHED = "※"
"""In the name of a row whose settings `unida tune` chose, for each task apart."""

LATER: dict[str, dict[str, object]] = {
    "san": {
        "sigma_y": 10.0,
        "near_rate": 1e4,
        "projection_momentum": True,
        "projection_decay": None,
        "score": "largest",
    }
}
"""Settings that results from before their introduction lack, and what was in force then."""

FEW = tuple(shift_name("oda", number) for number in FEW_UNKNOWN)
"""Names of the category shifts with few unknown classes."""

REFINE_ORDER = (ALONE, "knn (z)", "knn", f"{REFINED} (z)", REFINED)
"""A method alone comes first, then its refinements."""

Pairs = frozenset[tuple[str, str]]
"""Tasks, as (source, target)."""


@dataclass(frozen=True)
class Stat:
    """Mean and sample standard deviation over `n` seeds; one seed has no deviation."""

    mean: float
    std: float | None
    n: int


def stat(values: Iterable[float | None]) -> Stat | None:
    """Summarise the defined values; None where there are none."""
    defined = [v for v in values if v is not None and not math.isnan(v)]
    if not defined:
        return None
    return Stat(mean(defined), stdev(defined) if len(defined) > 1 else None, len(defined))


@dataclass(frozen=True)
class Line:
    """One row: an entry and refinement with one set of options.

    Attributes:
        entry: as in the results.
        method: of that entry.
        refine: as in the results.
        variant: how it differs from the table's usual runs, in words; mostly empty.
        is_plain: no label noise and all unknown classes, as in the paper's tables.
        runs: by task and seed.
    """

    entry: str
    method: str
    refine: str
    variant: str
    is_plain: bool
    runs: dict[str, dict[int, Result]]

    @property
    def label(self) -> str:
        """Its name in a table; reconstructions are marked."""
        marks = ["reconstruction"] if self.is_reconstruction else []
        marks += [self.variant] if self.variant else []
        return f"{self.row} ({'; '.join(marks)})" if marks else self.row

    @property
    def row(self) -> str:
        """Its name without marks."""
        return row_name(self.entry, self.refine)

    @property
    def is_reconstruction(self) -> bool:
        known = METHODS.get(self.method)
        return known is not None and known.about.spec == "reconstruction"

    def all_runs(self) -> list[Result]:
        return [run for seeds in self.runs.values() for run in seeds.values()]


@dataclass(frozen=True)
class ResultGroup:
    """All results of one data set and setting.

    Attributes:
        results: all of them.
        lines: the rows they make, in the order of the table.
        tasks: tasks of an average: the paper's, or all that occur.
        shown: those of them with a result.
        data: the paper's data set, if it is one of them with the paper's tasks.
        table: the paper's table, if data, setting and class numbers are the paper's.
        classes: numbers of classes, all unknown ones counted.
    """

    results: list[Result]
    lines: list[Line]
    tasks: list[str]
    shown: list[str]
    data: PaperData | None
    table: PublishedTable | None
    classes: Classes

    def among(self, pairs: Pairs) -> set[str]:
        """Return the tasks shown that are pairs of these domains."""
        by_task = (
            (task, run)
            for line in self.lines
            for task, runs in line.runs.items()
            for run in runs.values()
        )
        return {task for task, run in by_task if (run.source, run.target) in pairs}

    @property
    def data_title(self) -> str:
        return self.data.title if self.data else self.results[0].data

    @property
    def title(self) -> str:
        numbers = " / ".join(map(str, self.classes))
        return f"{self.data_title}, {self.results[0].setting.upper()} ({numbers})"


@dataclass(frozen=True)
class DataGroup:
    """All results of one data set.

    Attributes:
        results: all of them.
        shifts: by name of the category shift (`shift_name`), in the order of the columns. Their
            tasks are those with a result.
        rows: for each row of a table, its lines by shift.
    """

    results: list[Result]
    shifts: dict[str, ResultGroup]
    rows: list[dict[str, Line]]

    @property
    def title(self) -> str:
        return next(iter(self.shifts.values())).data_title


def group_results(results: list[Result]) -> list[ResultGroup]:
    """Return a group for every data set and setting, in order of appearance."""
    groups: dict[tuple[str, str], list[Result]] = {}
    for result in results:
        groups.setdefault((result.data, result.setting), []).append(result)
    return [_make_group(group) for group in groups.values()]


def group_shifts(results: list[Result]) -> list[DataGroup]:
    """Return a group for every data set; runs with other options than most are rows of their own.

    A run with fewer unknown classes than its setting has is of a shift of its own, such as `oda-2`.
    """
    by_data: dict[str, list[Result]] = {}
    for result in results:
        by_data.setdefault(result.data, []).append(result)
    return [_make_data_group(group) for group in by_data.values()]


def _make_data_group(results: list[Result]) -> DataGroup:
    by_setting: dict[str, list[Result]] = {}
    for result in results:
        by_setting.setdefault(result.setting, []).append(result)
    found: dict[str, list[Result]] = {}
    for setting, runs in by_setting.items():
        most = _all_unknown(runs)
        for run in runs:
            number = run.unknown_classes if run.unknown_classes < most else None
            found.setdefault(shift_name(setting, number), []).append(run)
    usual = _usual_traits(results)
    first = [name for name in (*SETTINGS, *FEW) if name in found]
    shifts = {name: _make_group(found[name], usual) for name in dict.fromkeys([*first, *found])}
    rows: dict[tuple[str, str, str], dict[str, Line]] = {}
    for name, group in shifts.items():
        for line in group.lines:
            rows.setdefault((line.entry, line.refine, line.variant), {})[name] = line
    return DataGroup(
        results,
        {name: dataclasses.replace(group, tasks=group.shown) for name, group in shifts.items()},
        sorted(rows.values(), key=lambda lines: _place(next(iter(lines.values())))),
    )


def _all_unknown(results: list[Result]) -> int:
    """Return the unknown classes of a setting: the protocol's, or the most that occur."""
    first, most = results[0], max(run.unknown_classes for run in results)
    splits = load_protocol(first.data).splits if first.data in set_names() else {}
    split = splits.get(first.setting)
    return max(most, len(split.target_private)) if split else most


def one_group(results: list[Result]) -> ResultGroup:
    """Return the group of results that all belong to one data set and setting."""
    kinds = {(r.data, r.setting) for r in results}
    if len(kinds) != 1:
        raise UserError(f"A table is of one data set and setting, not of {len(kinds)}.")
    return _make_group(results)


def _make_group(
    results: list[Result], usual: dict[tuple[object, ...], str] | None = None
) -> ResultGroup:
    """Arrange the results of one data set and setting in rows.

    Args:
        results: of one data set and setting; with `usual`, of one category shift.
        usual: traits of most results of the data set; by default of these results.
    """
    data = paper().find_data(results[0].data)
    if data and not all(data.task(r.source, r.target) for r in results):
        data = None  # other domains than the paper's
    table = paper().find_table(data, results[0].setting) if data and usual is None else None
    classes = _classes(results, table)
    lines = _lines(results, data, classes, usual or _usual_traits(results))
    present = list(dict.fromkeys(_task(r, data) for r in results))
    tasks = list(data.tasks) if data else present
    return ResultGroup(
        results=results,
        lines=lines,
        tasks=tasks,
        shown=[task for task in tasks if task in present],
        data=data,
        table=table if table and table.classes == classes else None,
        classes=classes,
    )


def _classes(results: list[Result], table: PublishedTable | None) -> Classes:
    """Return the class numbers of most runs.

    The number of unknown classes is the paper's, or the largest that occurs.
    """
    pairs = ((len(r.shared_classes), len(r.known_classes) - len(r.shared_classes)) for r in results)
    shared, private = Counter(pairs).most_common(1)[0][0]
    most = max(r.unknown_classes for r in results)
    if table and table.classes[:2] == (shared, private) and most <= table.classes[2]:
        most = table.classes[2]
    return shared, private, most


def _task(result: Result, data: PaperData | None) -> str:
    return (data and data.task(result.source, result.target)) or result.task


def _lines(
    results: list[Result],
    data: PaperData | None,
    classes: Classes,
    usual: dict[tuple[object, ...], str],
) -> list[Line]:
    lines: dict[tuple[str, str, str], Line] = {}
    for result in results:
        variant = _variant(result, usual, classes)
        is_plain = not result.label_noise and result.unknown_classes == classes[2]
        new = Line(result.entry, result.method, result.refine, variant, is_plain, {})
        line = lines.setdefault((result.entry, result.refine, variant), new)
        seeds = line.runs.setdefault(_task(result, data), {})
        if result.seed in seeds:
            raise UserError(
                f"There are two results of {line.label} on {result.task} with seed {result.seed}: "
                "keep one."
            )
        seeds[result.seed] = result
    return sorted(lines.values(), key=_place)


def _place(line: Line) -> tuple[int, str, bool, str, tuple[int, str], bool, str]:
    """Sort key: methods in the paper's order, each before its variants and refinements."""
    place = ORDER.index(line.method) if line.method in ORDER else len(ORDER)
    is_variant, refine = line.entry != line.method, refine_place(line.refine)
    return place, line.method, is_variant, line.entry, refine, bool(line.variant), line.variant


def refine_place(refine: str) -> tuple[int, str]:
    """Return the sort key of a refinement."""
    known = refine in REFINE_ORDER
    return (REFINE_ORDER.index(refine) if known else len(REFINE_ORDER)), refine


def traits(result: Result) -> dict[str, str]:
    """Return what a number depends on, except task, seed, refinement and the method's settings."""
    options = {k: v for k, v in sorted(result.options.items()) if k not in NO_TRAIT}
    texts = {name: str(value) for name, value in (OFF | options).items()}
    return texts | {"weights": _weights(result), "precision": _precision(result)}


def _weights(result: Result) -> str:
    found = result.made_with.get("weights") or result.options.get("weights")
    return str(found or "the backbone's default")


def _precision(result: Result) -> str:
    """Return the precision; what `auto` means depends on the device."""
    found = result.made_with.get("precision") or str(result.options.get("precision", "unknown"))
    device = result.made_with.get("device", "")
    if found != "auto" or not device:
        return found
    is_processor = device.lower() in ("cpu", "x86_64", "amd64", "aarch64", "arm64", "mps")
    return "auto: fp32" if is_processor else f"auto on {device}"


def _of_task(result: Result) -> dict[str, str]:
    """Return what must be equal for all runs on a task with the same setting and classes."""
    names = json.dumps([result.known_classes, result.shared_classes])
    images = " / ".join(f"{count} {name}" for name, count in result.images.items())
    return {"classes": f"list {zlib.crc32(names.encode()):08x}", "images": images}


def _keyed_traits(result: Result) -> Iterable[tuple[tuple[object, ...], str, str]]:
    """Yield every trait: key of the runs it is compared with, name and value."""
    for name, value in traits(result).items():
        yield (None, name), name, value
    # Searched settings differ from task to task; the row's footer has them.
    own = {} if SEARCHED in result.entry else LATER.get(result.method, {}) | result.settings
    for name, setting in own.items():
        yield (result.row, name), name, str(setting)
    for name, value in _of_task(result).items():
        task = (result.setting, result.source, result.target, result.unknown_classes)
        yield (*task, name), name, value


def _usual_traits(results: list[Result]) -> dict[tuple[object, ...], str]:
    counts: dict[tuple[object, ...], Counter[str]] = {}
    for result in results:
        for key, _, value in _keyed_traits(result):
            counts.setdefault(key, Counter())[value] += 1
    return {key: counter.most_common(1)[0][0] for key, counter in counts.items()}


def _variant(result: Result, usual: dict[tuple[object, ...], str], classes: Classes) -> str:
    words = [f"label noise {100 * result.label_noise:g} %"] if result.label_noise else []
    if result.unknown_classes != classes[2]:
        words.append(f"{result.unknown_classes} unknown classes")
    own = {key: (name, value) for key, name, value in _keyed_traits(result)}
    words += [f"{name}={value}" for key, (name, value) in own.items() if usual[key] != value]
    # A setting that other runs of the row have and this one lacks: made by other code.
    lacking = (key for key in usual if key[0] in (None, result.row) and len(key) == 2)
    words += [f"{key[1]} not recorded" for key in lacking if key not in own]
    return ", ".join(words)


def usual_options(results: list[Result]) -> dict[str, str]:
    """Return the options that most runs share."""
    usual = _usual_traits(results)
    return {str(key[1]): value for key, value in usual.items() if key[0] is None}
