"""Tables over every category shift: what a reject rule is worth where the shift is not known.

The first table has methods and rules down and category shifts across; a number is the mean over
tasks of the value (`unida.evaluation.metrics.universal_value`). Rows that depend on target labels
are called oracle. The second table compares estimated with true shares of unknown images.
"""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from statistics import mean

from unida.bench.results import SETTINGS, Result, RuleResult
from unida.bench.tables import footers
from unida.bench.tables.groups import FEW, DataGroup, Line, Pairs, Stat, group_shifts
from unida.bench.tables.measures import (
    NOTHING,
    Measure,
    average,
    in_percent,
    mean_of,
    metric_of,
    pairs,
    record,
    rule_in_words,
    rules_of,
    seed_averages,
    task_stat,
)
from unida.bench.tables.render import Record, Table

MEAN_OF_FOUR, MEAN_FEW = "mean of four", "mean few"
MEANS = {MEAN_OF_FOUR: SETTINGS, MEAN_FEW: FEW}
"""The columns of each mean. That of four is undefined where one is missing."""
CLOSE = 10
"""Points between the estimated and the true share, up to which the estimate is called close."""
VALUE = (
    "Value: H where the target has unknown images, else the share of images that are right, a "
    "rejected image counted wrong. A column is the mean over tasks. oda-2 is oda with two unknown "
    f"classes; 'mean of four' is that of {', '.join(SETTINGS)}, 'mean few' that of the columns "
    "with few unknown classes."
)
ORACLE = (
    "oracle: depends on target labels; for reference only. 'nothing rejected' accepts every image. "
    "'best rule in hindsight' is in each column the recorded rule with the best mean, or rejecting "
    "nothing. 'best threshold' is the mean of the best value of any threshold."
)
SHARES = (
    "Shares in % of the target's images: means over the runs with an estimate, where a run is a "
    "task and seed. 'error' is the mean absolute difference in points. 'close' is the share of "
    f"these runs that are within {CLOSE} points, 'in interval' that of those whose interval holds "
    "the true share."
)

Tasks = dict[str, list[str]]
"""The tasks of an average, by category shift."""
Measures = dict[str, Measure]
"""What is measured, by category shift."""


def universal_tables(
    results: list[Result], *, rule: str = "both", searched: Pairs = frozenset()
) -> list[Table]:
    """Return for every data set a table of values and one of estimated shares.

    Args:
        results: of any data sets and settings.
        rule: a reject rule, or `both` for all that were recorded.
        searched: tasks whose target labels were used to choose settings. Where there are some, the
            means have one over the other tasks beside them, and further tables have only those.
    """
    return [
        table
        for group in group_shifts(results)
        for table in _Builder(group, rule, searched).tables()
    ]


@dataclass(frozen=True)
class _Row:
    """A row of values.

    Attributes:
        lines: of a method, by shift.
        rule: its name.
        words: the rule as shown.
        measures: returns what is measured where these tasks are averaged.
        oracle: whether it depends on target labels.
    """

    lines: dict[str, Line]
    rule: str
    words: str
    measures: Callable[[Tasks], Measures]
    oracle: bool = False

    def cells(self, tasks: Tasks) -> dict[str, Stat]:
        """Return the defined numbers by column: shifts, and means of several."""
        measures = self.measures(tasks)
        found = {s: average(line, tasks[s], measures[s]) for s, line in self.lines.items()}
        cells = {shift: cell for shift, cell in found.items() if cell}
        for title, shifts in MEANS.items():
            parts = [s for s in shifts if s in tasks or title == MEAN_OF_FOUR]
            if parts and all(s in cells for s in parts):
                averages = [seed_averages(self.lines[s], tasks[s], measures[s]) for s in parts]
                seeds = set(averages[0]).intersection(*averages)
                by_seed = [mean(of_shift[seed] for of_shift in averages) for seed in seeds]
                cells[title] = mean_of([cells[s].mean for s in parts], by_seed)
        return cells


@dataclass(frozen=True)
class _Estimates:
    """Estimated shares of unknown images.

    Attributes:
        pairs: the true share and the rule that estimates it, of every run with an estimate.
        seeds: of these runs.
        n_runs: number of runs, those without an estimate included.
    """

    pairs: list[tuple[float, RuleResult]]
    seeds: set[int]
    n_runs: int

    def numbers(self) -> dict[str, float]:
        """Return the defined means in %, by name of the column."""
        found = [(true, rule.share, rule.interval) for true, rule in self.pairs]
        errors = [100 * abs(share - true) for true, share, _ in found if share is not None]
        holds = [pair[0] <= true <= pair[1] for true, _, pair in found if pair]
        return {
            "true": 100 * mean(true for true, _, _ in found),
            "estimated": 100 * mean(share for _, share, _ in found if share is not None),
            "error": mean(errors),
            "close": 100 * mean(error <= CLOSE + 1e-9 for error in errors),
        } | ({"in interval": 100 * mean(holds)} if holds else {})


SHARE_COLUMNS = ("true", "estimated", "error", "close", "in interval")


class _Builder:
    """The tables of one data set."""

    def __init__(self, group: DataGroup, rule: str, searched: Pairs) -> None:
        self.group = group
        self.lines = [line for lines in group.rows for line in lines.values()]
        self.rules = {name for _, name in pairs(self.lines, rule, "value")} - {NOTHING}
        self.usual = footers.usual_count(self.lines)
        shifts = group.shifts
        marked = {task for shift in shifts.values() for task in shift.among(searched)}
        self.searched = sorted(marked)
        self.tasks = {name: shift.tasks for name, shift in shifts.items()}
        self.held_out = {
            name: [task for task in tasks if task not in marked]
            for name, tasks in self.tasks.items()
        }

    def tables(self) -> list[Table]:
        """Return both tables, then those of the held-out tasks where some tasks are not."""
        if not self.searched or not any(self.held_out.values()):
            return [self._values(self.tasks), *self._shares(self.tasks)]
        return [
            self._values(self.tasks, beside=self.held_out),
            *self._shares(self.tasks),
            self._values(self.held_out),
            *self._shares(self.held_out),
        ]

    def _values(self, tasks: Tasks, beside: Tasks | None = None) -> Table:
        """Build a table of values; each mean has that over the tasks `beside` next to it."""
        columns = self._columns(beside)
        rows, records = [], []
        for row in self._rows(tasks):
            cells = row.cells(tasks)
            records += self._records(row, tasks, cells)
            held_out = row.cells(beside) if beside else {}
            records += self._mean_records(row, beside or tasks, held_out)
            cells |= {_held_out(name): cell for name, cell in held_out.items()}
            texts = (in_percent(cells.get(name), self.usual) for name in columns)
            rows.append((_label(row.lines), row.words, *texts))
        notes = [footers.how_measured("Value in %", self.lines), VALUE, ORACLE]
        notes += footers.shifts_footer(self.group, self.lines)
        notes += footers.other_counts(rows, self.usual)
        for name, shift in self.group.shifts.items():
            missing = footers.incomplete(shift.lines, tasks[name])
            notes += [f"{name}: {note}" for note in missing]
        return Table(
            title=f"{self._title(tasks)}: value in % by category shift",
            columns=("method", "rule", *columns),
            labels=2,
            rows=tuple(rows),
            notes=(*notes, *self._searched_note()),
            records=tuple(records),
        )

    def _title(self, tasks: Tasks) -> str:
        return self.group.title + (", held-out tasks only" if tasks is self.held_out else "")

    def _columns(self, beside: Tasks | None) -> list[str]:
        few = [name for name in FEW if name in self.tasks]
        names = [name for name in SETTINGS if name in self.tasks]
        names += [MEAN_OF_FOUR, *few, *([MEAN_FEW] if few else [])]
        names += [name for name in self.tasks if name not in names]
        both = [[n, _held_out(n)] if beside and n in MEANS else [n] for n in names]
        return [name for pair in both for name in pair]

    def _searched_note(self) -> list[str]:
        if not self.searched:
            return []
        tasks = ", ".join(self.searched)
        return [f"Settings were chosen with target labels of {tasks}; the others are held out."]

    def _rows(self, tasks: Tasks) -> list[_Row]:
        """Return each method under each rule, then the oracles that were recorded."""
        rows: list[_Row] = []
        for lines in self.group.rows:
            rows += self._under_rules(lines)
            rows += [row for row in _oracles(lines) if row.cells(tasks)]
        return rows

    def _under_rules(self, lines: dict[str, Line]) -> list[_Row]:
        runs = [run for line in lines.values() for run in line.all_runs()]
        return [
            _Row(lines, rule, rule_in_words(runs, rule), _same(lines, metric_of("value", rule)))
            for rule in _recorded(lines)
            if rule in self.rules
        ]

    def _records(self, row: _Row, tasks: Tasks, cells: dict[str, Stat]) -> list[Record]:
        measures = row.measures(tasks)
        found = []
        for name, line in row.lines.items():
            for task in tasks[name]:
                if cell := task_stat(line, task, measures[name]):
                    one = record(line, task, row.rule, "value", cell, oracle=row.oracle)
                    found.append(dataclasses.replace(one, setting=name))
        return found + self._mean_records(row, tasks, cells)

    def _mean_records(self, row: _Row, tasks: Tasks, cells: dict[str, Stat]) -> list[Record]:
        first, task = next(iter(row.lines.values())), self._average(tasks)
        return [
            dataclasses.replace(
                record(
                    row.lines.get(name, first), task, row.rule, "value", cell, oracle=row.oracle
                ),
                setting=name,
            )
            for name, cell in cells.items()
        ]

    def _average(self, tasks: Tasks) -> str:
        return "Avg held out" if tasks is self.held_out else "Avg"

    def _shares(self, tasks: Tasks) -> list[Table]:
        """Build a table of estimated shares; none where no rule estimates them."""
        rows: list[tuple[str, ...]] = []
        records: list[Record] = []
        for lines in self.group.rows:
            for row in self._under_rules(lines):
                for name, found in _estimates(row, tasks).items():
                    numbers = found.numbers()
                    texts = (f"{numbers[c]:.1f}" if c in numbers else "–" for c in SHARE_COLUMNS)
                    n, total = len(found.pairs), found.n_runs
                    count = str(n) if n == total else f"{n} of {total}"
                    rows.append((_label(lines), row.words, name, *texts, count))
                    line = lines.get(name, next(iter(lines.values())))
                    records += [
                        dataclasses.replace(
                            record(
                                line,
                                self._average(tasks),
                                row.rule,
                                f"unknown share: {metric}",
                                Stat(value, None, len(found.seeds)),
                            ),
                            setting=name,
                        )
                        for metric, value in numbers.items()
                    ]
        if not rows:
            return []
        notes = [SHARES, *footers.shifts_footer(self.group, self.lines), *self._searched_note()]
        table = Table(
            title=f"{self._title(tasks)}: estimated share of unknown images",
            columns=("method", "rule", "setting", *SHARE_COLUMNS, "runs"),
            labels=3,
            rows=tuple(rows),
            notes=tuple(notes),
            records=tuple(records),
        )
        return [table]


def _oracles(lines: dict[str, Line]) -> list[_Row]:
    """Return the rows of a method that depend on target labels."""
    candidates = [_nothing_rejected, *(metric_of("value", rule) for rule in _recorded(lines))]

    def in_hindsight(tasks: Tasks) -> Measures:
        def quality(name: str, measure: Measure) -> float:
            cell = average(lines[name], tasks[name], measure)
            return cell.mean if cell else -1.0

        return {name: max(candidates, key=lambda measure: quality(name, measure)) for name in lines}

    kinds = {
        "best rule in hindsight": in_hindsight,
        "best threshold": _same(lines, metric_of("best_threshold", "")),
    }
    runs = [run for line in lines.values() for run in line.all_runs()]
    if any(not run.images["unknown"] for run in runs):  # elsewhere it is zero
        kinds = {"nothing rejected": _same(lines, _nothing_rejected)} | kinds
    return [
        _Row(lines, name, f"{name} (oracle)", measures, oracle=True)
        for name, measures in kinds.items()
    ]


def _nothing_rejected(run: Result) -> float | None:
    """Return the value in % where every image is accepted; results of any version have it."""
    return 0.0 if run.images["unknown"] else metric_of("closed", "")(run)


def _same(lines: dict[str, Line], measure: Measure) -> Callable[[Tasks], Measures]:
    return lambda tasks: dict.fromkeys(lines, measure)


def _recorded(lines: dict[str, Line]) -> list[str]:
    return list(dict.fromkeys(rule for line in lines.values() for rule in rules_of(line)))


def _estimates(row: _Row, tasks: Tasks) -> dict[str, _Estimates]:
    """Return the estimates of a method under a rule by shift, then over all shifts."""
    found: dict[str, _Estimates] = {}
    for name, line in row.lines.items():
        runs = [run for task in tasks[name] for run in line.runs.get(task, {}).values()]
        some = [run for run in runs if row.rule in run.rules]
        some = [run for run in some if run.rules[row.rule].share is not None]
        if some:
            pairs = [
                (run.images["unknown"] / run.images["target"], run.rules[row.rule]) for run in some
            ]
            found[name] = _Estimates(pairs, {run.seed for run in some}, len(runs))
    if len(found) > 1:
        every = list(found.values())
        found["all"] = _Estimates(
            [pair for one in every for pair in one.pairs],
            set().union(*(one.seeds for one in every)),
            sum(one.n_runs for one in every),
        )
    return found


def _label(lines: dict[str, Line]) -> str:
    return next(iter(lines.values())).label


def _held_out(name: str) -> str:
    return f"{name}, held out"
