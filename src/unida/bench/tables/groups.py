"""Which results may be averaged: runs of one entry that differ in task and seed only."""

import json
import math
import zlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import mean, stdev

from unida.bench.results import OFF, Result
from unida.bench.tables.published import Classes, PaperData, PublishedTable, paper
from unida.config import WHERE_NOT_WHAT
from unida.errors import UserError
from unida.methods import METHODS

NO_SAY = WHERE_NOT_WHAT | {
    "seed", "method", "settings", "checkpoint_every", "reject", "weights", "precision",
}  # fmt: skip
"""Options that have no say in a number of a table, or that `traits` treats apart."""

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
)
"""The paper's order of methods, with those it does not have by year; the rest comes after."""


Pairs = frozenset[tuple[str, str]]
"""Tasks, as (source, target)."""


@dataclass(frozen=True)
class Stat:
    """Mean and sample standard deviation over `n` seeds; one seed has no deviation."""

    mean: float
    std: float | None
    n: int


def stat(values: Iterable[float | None]) -> Stat | None:
    """Of the defined values; None where there is none."""
    defined = [v for v in values if v is not None and not math.isnan(v)]
    if not defined:
        return None
    return Stat(mean(defined), stdev(defined) if len(defined) > 1 else None, len(defined))


@dataclass(frozen=True)
class Line:
    """One row: an entry with one set of options.

    Attributes:
        entry: as in the results.
        method: of that entry.
        variant: what sets it apart from the table's usual runs, in words; mostly nothing.
        is_plain: no label noise and all unknown classes, as in the paper's tables.
        runs: by task and seed.
    """

    entry: str
    method: str
    variant: str
    is_plain: bool
    runs: dict[str, dict[int, Result]]

    @property
    def label(self) -> str:
        """Its name in a table; a reconstruction says so wherever it appears."""
        marks = ["reconstruction"] if self.is_reconstruction else []
        marks += [self.variant] if self.variant else []
        return f"{self.entry} ({'; '.join(marks)})" if marks else self.entry

    @property
    def is_reconstruction(self) -> bool:
        known = METHODS.get(self.method)
        return known is not None and known.about.spec == "reconstruction"

    def all_runs(self) -> list[Result]:
        return [run for seeds in self.runs.values() for run in seeds.values()]


@dataclass(frozen=True)
class Group:
    """All results of one data set and setting.

    Attributes:
        results: all of them.
        lines: the rows they make, in the order of the table.
        tasks: those an average is over: the paper's, or all that were seen.
        shown: those of them with a result.
        data: the paper's data set, if it is one with the paper's tasks.
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
        """Those of the tasks shown that are pairs of these domains."""
        by_task = (
            (task, run)
            for line in self.lines
            for task, runs in line.runs.items()
            for run in runs.values()
        )
        return {task for task, run in by_task if (run.source, run.target) in pairs}

    @property
    def title(self) -> str:
        first = self.results[0]
        name = self.data.title if self.data else first.data
        return f"{name}, {first.setting.upper()} ({' / '.join(map(str, self.classes))})"


def group_results(results: list[Result]) -> list[Group]:
    """A group for every data set and setting, in order of appearance."""
    groups: dict[tuple[str, str], list[Result]] = {}
    for result in results:
        groups.setdefault((result.data, result.setting), []).append(result)
    return [_make_group(members) for members in groups.values()]


def one_group(results: list[Result]) -> Group:
    """The group of results that are all of one data set and setting."""
    kinds = {(r.data, r.setting) for r in results}
    if len(kinds) != 1:
        raise UserError(f"A table is of one data set and setting, not of {len(kinds)}.")
    return _make_group(results)


def _make_group(results: list[Result]) -> Group:
    """Sorts the results of one data set and setting into rows."""
    data = paper().find_data(results[0].data)
    if data and not all(data.task(r.source, r.target) for r in results):
        data = None  # other domains than the paper's
    table = paper().find_table(data, results[0].setting) if data else None
    classes = _classes(results, table)
    lines = _lines(results, data, classes)
    seen = list(dict.fromkeys(_task(r, data) for r in results))
    tasks = list(data.tasks) if data else seen
    return Group(
        results=results,
        lines=lines,
        tasks=tasks,
        shown=[task for task in tasks if task in seen],
        data=data,
        table=table if table and table.classes == classes else None,
        classes=classes,
    )


def _classes(results: list[Result], table: PublishedTable | None) -> Classes:
    """Of the usual run. All unknown classes are the paper's number, or the most that were seen."""
    pairs = ((len(r.shared_classes), len(r.known_classes) - len(r.shared_classes)) for r in results)
    shared, private = Counter(pairs).most_common(1)[0][0]
    most = max(r.unknown_classes for r in results)
    if table and table.classes[:2] == (shared, private) and most <= table.classes[2]:
        most = table.classes[2]
    return shared, private, most


def _task(result: Result, data: PaperData | None) -> str:
    return (data and data.task(result.source, result.target)) or result.task


def _lines(results: list[Result], data: PaperData | None, classes: Classes) -> list[Line]:
    usual = _usual_traits(results)
    lines: dict[tuple[str, str], Line] = {}
    for result in results:
        variant = _variant(result, usual, classes)
        is_plain = not result.label_noise and result.unknown_classes == classes[2]
        new = Line(result.entry, result.method, variant, is_plain, {})
        line = lines.setdefault((result.entry, variant), new)
        seeds = line.runs.setdefault(_task(result, data), {})
        if result.seed in seeds:
            raise UserError(
                f"There are two results of {line.label} on {result.task} with seed {result.seed}: "
                "keep one."
            )
        seeds[result.seed] = result
    return sorted(lines.values(), key=_place)


def _place(line: Line) -> tuple[int, str, bool, str, bool, str]:
    """Methods in the paper's order, each before its variants."""
    place = ORDER.index(line.method) if line.method in ORDER else len(ORDER)
    is_variant = line.entry != line.method
    return place, line.method, is_variant, line.entry, bool(line.variant), line.variant


def traits(result: Result) -> dict[str, str]:
    """What has a say in a number, but for task, seed and the method's settings."""
    options = {k: v for k, v in sorted(result.options.items()) if k not in NO_SAY}
    texts = {name: str(value) for name, value in (OFF | options).items()}
    return texts | {"weights": _weights(result), "precision": _precision(result)}


def _weights(result: Result) -> str:
    found = result.made_with.get("weights") or result.options.get("weights")
    return str(found or "the backbone's default")


def _precision(result: Result) -> str:
    """`auto` means something else on another device."""
    found = result.made_with.get("precision") or str(result.options.get("precision", "unknown"))
    device = result.made_with.get("device", "")
    if found != "auto" or not device:
        return found
    is_processor = device.lower() in ("cpu", "x86_64", "amd64", "aarch64", "arm64", "mps")
    return "auto: fp32" if is_processor else f"auto on {device}"


def _of_task(result: Result) -> dict[str, str]:
    """What must be the same for all runs on a task with as many unknown classes."""
    names = json.dumps([result.known_classes, result.shared_classes])
    images = " / ".join(f"{count} {name}" for name, count in result.images.items())
    return {"classes": f"list {zlib.crc32(names.encode()):08x}", "images": images}


def _keyed_traits(result: Result) -> Iterable[tuple[tuple[object, ...], str, str]]:
    """Every trait with whom it is compared with, its name and its value."""
    for name, value in traits(result).items():
        yield (None, name), name, value
    for name, setting in result.settings.items():
        yield (result.entry, name), name, str(setting)
    for name, value in _of_task(result).items():
        yield (result.source, result.target, result.unknown_classes, name), name, value


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
    # A setting that other runs of the entry have and this one has not: made by other code.
    lacking = (key for key in usual if key[0] in (None, result.entry) and len(key) == 2)
    words += [f"{key[1]} not recorded" for key in lacking if key not in own]
    return ", ".join(words)


def usual_options(group: Group) -> dict[str, str]:
    """The options most runs of the group share."""
    usual = _usual_traits(group.results)
    return {str(key[1]): value for key, value in usual.items() if key[0] is None}
