"""The numbers of a row: mean and deviation over seeds, of a task or over all tasks."""

from collections.abc import Callable, Iterable
from statistics import mean, stdev

from unida.bench.results import Result
from unida.bench.tables.groups import Group, Line, Stat, stat, traits
from unida.bench.tables.published import paper
from unida.bench.tables.render import Record
from unida.errors import require

METRICS = {
    "known": "known",
    "unknown": "unknown",
    "h": "H",
    "balanced_h": "balanced H",
    "known_instance": "known (by image)",
    "h_instance": "H (by image)",
    "os": "OS",
    "h3": "H3",
    "auroc": "AUROC",
    "oscr": "OSCR",
    "nmi": "NMI of unknowns",
    "closed": "closed-set accuracy",
}
"""Scores a table can show, with their names in it."""

RANKING = ("auroc", "oscr", "nmi", "closed")
"""Those no reject rule has a say in."""

WITHOUT_UNKNOWN = ("known", "known_instance", "os", "closed")
"""Those that are defined where no image is unknown."""

Measure = Callable[[Result], float | None]
"""From a run to a number of it, None where undefined."""


def metric_of(metric: str, rule: str) -> Measure:
    """A score under a rule, in %."""

    def measure(run: Result) -> float | None:
        if metric in RANKING:
            return _percent(run.ranking.get(metric))
        return _percent(run.rules[rule].scores.get(metric)) if rule in run.rules else None

    return measure


def oracle_of(rule: str) -> Measure:
    """H at the step that target labels chose, in %."""
    return lambda run: _percent(run.oracle.get(rule, {}).get("h"))


def _percent(value: float | None) -> float | None:
    return None if value is None else 100 * value


def task_stat(line: Line, task: str, measure: Measure) -> Stat | None:
    return stat(measure(run) for run in line.runs.get(task, {}).values())


def average(line: Line, tasks: list[str], measure: Measure) -> Stat | None:
    """The mean over tasks of their means; None unless every task has one, or where there is none.

    The deviation is that of the average over tasks, from seed to seed, among seeds with all tasks.
    """
    cells = [task_stat(line, task, measure) for task in tasks]
    means = [cell.mean for cell in cells if cell]
    if not tasks or len(means) < len(tasks):
        return None
    by_seed: dict[int, list[float]] = {}
    for task in tasks:
        for seed, run in line.runs[task].items():
            value = stat([measure(run)])
            by_seed.setdefault(seed, []).extend([value.mean] if value else [])
    whole = [mean(values) for values in by_seed.values() if len(values) == len(tasks)]
    return Stat(mean(means), stdev(whole) if len(whole) > 1 else None, len(whole))


def in_percent(cell: Stat | None, usual: int) -> str:
    """'81.2 ± 0.4', with its number of seeds where that is not the table's usual one."""
    if cell is None:
        return "–"
    spread = "" if cell.std is None else f" ± {cell.std:.1f}"
    return f"{cell.mean:.1f}{spread}" + ("" if cell.n == usual else f" (n={cell.n})")


def rules_of(line: Line) -> list[str]:
    return list(dict.fromkeys(rule for run in line.all_runs() for rule in run.rules))


def rule_in_words(runs: Iterable[Result], rule: str) -> str:
    """The rule asked for and, where it found no ground in some runs, the one in force."""
    forces = [run.rules[rule].in_force for run in runs if rule in run.rules]
    others = [force for force in forces if force != rule]
    if not others:
        return rule
    names = ", ".join(sorted(set(others)))
    if len(others) == len(forces):
        return f"{rule} → {names}"
    return f"{rule} (→ {names} in {len(others)} of {len(forces)} runs)"


def pairs(lines: list[Line], rule: str, metric: str) -> list[tuple[Line, str]]:
    """Rows: each line under each rule asked for; once where rules have no say."""
    found = []
    for line in lines:
        rules = [name for name in rules_of(line) if rule in ("both", name)]
        found += [(line, name) for name in (rules[:1] if metric in RANKING else rules)]
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
    """One of our numbers with what it is about."""
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


def published_records(group: Group) -> list[Record]:
    """Every printed number of the group's table, flagged as such."""
    if not group.table:
        return []
    number, entries = group.table.number, paper().entries
    return [
        published_record(group, row.name, entries.get(row.name, ""), task, value, number)
        for row in group.table.rows.values()
        for task, value in row.everything.items()
    ]


def published_record(
    group: Group, name: str, entry: str, task: str, value: float, number: int
) -> Record:
    """A printed number; `entry` is ours that stands for it, and names the method."""
    first = group.results[0]
    return Record(
        data=first.data,
        setting=first.setting,
        source="",
        target="",
        task=task,
        entry=name,
        method=entry,
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
