"""The metrics of the tables, and the numbers of a row: mean and deviation over seeds."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from statistics import mean, stdev

from unida.bench.results import Result
from unida.bench.tables.groups import Line, ResultGroup, Stat, stat, traits
from unida.bench.tables.published import paper
from unida.bench.tables.render import Record
from unida.errors import require
from unida.evaluation.metrics import balance, universal_value


@dataclass(frozen=True)
class Metric:
    """A score a table can show.

    Attributes:
        title: its name in a table.
        is_ranking: it does not depend on a reject rule, and results have it under `ranking`.
        needs_unknown: it is undefined where no target image is unknown.
        in_full: it is a column of the long form.
    """

    title: str
    is_ranking: bool = False
    needs_unknown: bool = True
    in_full: bool = False


METRICS = {
    "known": Metric("known", needs_unknown=False, in_full=True),
    "unknown": Metric("unknown", in_full=True),
    "h": Metric("H", in_full=True),
    "balanced_h": Metric("balanced H", in_full=True),
    "balanced_h_instance": Metric("balanced H (by image)"),
    "known_instance": Metric("known (by image)", needs_unknown=False),
    "h_instance": Metric("H (by image)"),
    "os": Metric("OS", needs_unknown=False),
    "auroc": Metric("AUROC", is_ranking=True, in_full=True),
    "oscr": Metric("OSCR", is_ranking=True, in_full=True),
    "h3": Metric("H3", in_full=True),
    "nmi": Metric("NMI of unknowns", is_ranking=True),
    "closed": Metric("closed-set accuracy", is_ranking=True, needs_unknown=False),
    "value": Metric("value", needs_unknown=False),
    "best_threshold": Metric("best threshold (oracle)", is_ranking=True, needs_unknown=False),
}
"""Every score that `unida.evaluation.metrics` computes, in the order of the long form's columns."""

ALIASES = {"ucr": "oscr"}
"""Other names of metrics, as they are asked for."""

NOTHING = "none"
"""The rule that rejects nothing: a reference, shown only where it is asked for by name."""

Measure = Callable[[Result], float | None]
"""Maps a run to one of its numbers; None where undefined."""


def metric_of(metric: str, rule: str) -> Measure:
    """Return the measure of a score under a rule, in %."""

    def measure(run: Result) -> float | None:
        if METRICS[metric].is_ranking:
            return _percent(run.ranking.get(metric))
        if rule not in run.rules:
            return None
        scores = run.rules[rule].scores
        if metric == "value":
            return _percent(_value(scores))
        if metric == "balanced_h_instance":
            return _percent(_balanced_h_instance(run, scores))
        return _percent(scores.get(metric))

    return measure


def _value(scores: Mapping[str, float | None]) -> float | None:
    """Derive the value, which results do not hold, from the scores under a rule."""
    found = (scores.get(name) for name in ("h", "known_instance", "unknown"))
    value = universal_value(*(math.nan if score is None else score for score in found))
    return None if math.isnan(value) else value


def _balanced_h_instance(run: Result, scores: Mapping[str, float | None]) -> float | None:
    """Derive the score by images, which earlier results do not hold."""
    known, unknown = scores.get("known_instance"), scores.get("unknown")
    images = run.images["target"] - run.images["unknown"]
    if known is None or unknown is None or not images:
        return None
    return balance(known, unknown, run.images["unknown"] / images)


def oracle_of(rule: str) -> Measure:
    """Return the measure of H at the step selected with target labels, in %."""
    return lambda run: _percent(run.oracle.get(rule, {}).get("h"))


def _percent(value: float | None) -> float | None:
    return None if value is None else 100 * value


def task_stat(line: Line, task: str, measure: Measure) -> Stat | None:
    return stat(measure(run) for run in line.runs.get(task, {}).values())


def average(line: Line, tasks: list[str], measure: Measure) -> Stat | None:
    """Average the tasks' means; None unless there are tasks and every one has a mean.

    The deviation is that of the average over tasks between seeds that have all tasks.
    """
    cells = [task_stat(line, task, measure) for task in tasks]
    means = [cell.mean for cell in cells if cell]
    if not tasks or len(means) < len(tasks):
        return None
    return mean_of(means, list(seed_averages(line, tasks, measure).values()))


def mean_of(means: list[float], by_seed: list[float]) -> Stat:
    """Return the mean of means, with the deviation of the same mean between seeds."""
    return Stat(mean(means), stdev(by_seed) if len(by_seed) > 1 else None, len(by_seed))


def seed_averages(line: Line, tasks: list[str], measure: Measure) -> dict[int, float]:
    """Return the average over tasks of each seed that has all of them."""
    by_seed: dict[int, list[float]] = {}
    for task in tasks:
        for seed, run in line.runs.get(task, {}).items():
            value = stat([measure(run)])
            by_seed.setdefault(seed, []).extend([value.mean] if value else [])
    return {seed: mean(v) for seed, v in by_seed.items() if len(v) == len(tasks)}


def in_percent(cell: Stat | None, usual: int) -> str:
    """Format as '81.2 ± 0.4', with the number of seeds where it is not the table's usual one."""
    if cell is None:
        return "–"
    spread = "" if cell.std is None else f" ± {cell.std:.1f}"
    return f"{cell.mean:.1f}{spread}" + ("" if cell.n == usual else f" (n={cell.n})")


def rules_of(line: Line) -> list[str]:
    return list(dict.fromkeys(rule for run in line.all_runs() for rule in run.rules))


def rule_in_words(runs: Iterable[Result], rule: str) -> str:
    """Return the requested rule and, where it could not be fitted in some runs, its fallback."""
    applied = [run.rules[rule].in_force for run in runs if rule in run.rules]
    others = [name for name in applied if name != rule]
    if not others:
        return rule
    names = ", ".join(sorted(set(others)))
    if len(others) == len(applied):
        return f"{rule} → {names}"
    return f"{rule} (→ {names} in {len(others)} of {len(applied)} runs)"


def pairs(lines: list[Line], rule: str, metric: str) -> list[tuple[Line, str]]:
    """Return rows: each line under each requested rule; once where the metric needs no rule."""
    found = []
    for line in lines:
        rules = [r for r in rules_of(line) if r == rule or (rule == "both" and r != NOTHING)]
        found += [(line, name) for name in (rules[:1] if METRICS[metric].is_ranking else rules)]
    if not found:
        recorded = sorted({name for line in lines for name in rules_of(line)})
        require(False, "rule", rule, ", ".join([*recorded, "both"]))
    return found


def record(
    line: Line,
    task: str,
    rule: str,
    metric: str,
    cell: Stat,
    *,
    oracle: bool = False,
    unit: str = "%",
) -> Record:
    """Return one of our numbers with its context."""
    runs = list(line.runs[task].values()) if task in line.runs else line.all_runs()
    first = runs[0]
    options = traits(first)
    return Record(
        data=first.data,
        setting=first.setting,
        source=first.source if task in line.runs else "",
        target=first.target if task in line.runs else "",
        task=task,
        entry=line.entry,
        method=line.method,
        refine=line.refine,
        reconstruction=line.is_reconstruction,
        variant=line.variant,
        rule=rule,
        metric=metric,
        unit=unit,
        mean=cell.mean,
        std=cell.std,
        n=cell.n,
        oracle=oracle,
        seeds=" ".join(map(str, sorted({run.seed for run in runs}))),
        steps=options.get("steps", ""),
        backbone=options.get("backbone", ""),
        weights=options["weights"],
        commit=" ".join(sorted({run.made_with.get("commit", "") for run in runs})),
    )


def published_records(group: ResultGroup) -> list[Record]:
    """Return every printed number of the group's table, marked as published."""
    if not group.table:
        return []
    number, entries = group.table.number, paper().entries
    return [
        published_record(group, row.name, entries.get(row.name, ""), task, value, number)
        for row in group.table.rows.values()
        for task, value in row.everything.items()
    ]


def published_record(
    group: ResultGroup, name: str, entry: str, task: str, value: float, number: int
) -> Record:
    """Return a printed number; `entry` is our corresponding entry, which names the method."""
    first = group.results[0]
    return Record(
        data=first.data,
        setting=first.setting,
        source="",
        target="",
        task=task,
        entry=name,
        method=entry,
        refine="",
        reconstruction=False,
        variant="",
        rule="own",
        metric="h",
        unit="%",
        mean=value,
        std=None,
        n=None,
        published=f"Table {number}, {paper().name}",
    )
