"""Tables as the paper lays them out: methods down, tasks across, then the average.

Our numbers are those of the last step. Published numbers have columns of their own, marked with a
dagger. Numbers that depend on target labels are called oracle and only shown on request.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from unida.bench.results import Result
from unida.bench.tables import footers
from unida.bench.tables.groups import Line, ResultGroup, one_group
from unida.bench.tables.measures import (
    ALIASES,
    METRICS,
    average,
    in_percent,
    metric_of,
    oracle_of,
    pairs,
    published_records,
    record,
    rule_in_words,
    task_stat,
)
from unida.bench.tables.published import paper
from unida.bench.tables.render import Record, Table
from unida.errors import require

NO_ORACLE = "An oracle was requested, but no run of this table recorded one."


@dataclass(frozen=True)
class PaperStyle:
    """The layout of a table.

    Attributes:
        metric: the score shown, a key of `METRICS`.
        rule: a reject rule, or `both` for all that were recorded.
        oracle: adds the H of the best step by target labels.
        published: adds the published number of every task, and methods that were only published.
        searched: tasks, as (source, target), whose target labels were used to choose settings; they
            are marked, and an average without them is added.
    """

    metric: str = "h"
    rule: str = "both"
    oracle: bool = False
    published: bool = False
    searched: frozenset[tuple[str, str]] = frozenset()

    def __post_init__(self) -> None:
        object.__setattr__(self, "metric", ALIASES.get(self.metric, self.metric))
        require(self.metric in METRICS, "metric", self.metric, ", ".join([*METRICS, *ALIASES]))


def paper_table(results: list[Result], style: PaperStyle | None = None) -> Table:
    """Build a table like the paper's Tables 1 to 4: methods down, tasks across, then the average.

    Args:
        results: of one data set and setting.
        style: its layout.
    """
    return _Builder(one_group(results), style or PaperStyle()).table()


class _Builder:
    """The parts of one table."""

    def __init__(self, group: ResultGroup, style: PaperStyle) -> None:
        self.group, self.metric = group, style.metric
        self.rule, self.oracle = style.rule, style.oracle
        self.usual = footers.usual_count(group.lines)
        # Published numbers are H; beside another score they would be misread.
        self.printed = group.table if style.metric == "h" else None
        self.per_task = style.published and self.printed is not None
        self.many = len(group.tasks) > 1
        self.searched = group.among(style.searched)
        self.records: list[Record] = []

    def table(self) -> Table:
        rows = [self._row(*pair) for pair in pairs(self.group.lines, self.rule, self.metric)]
        rows += self._published_only()
        self.records += published_records(self.group) if self.printed else []
        name = METRICS[self.metric].title
        number = f", as Table {self.printed.number} of the paper" if self.printed else ""
        return Table(
            title=f"{self.group.title}: {name} in %{number}",
            columns=self._columns(),
            labels=2,
            rows=tuple(rows),
            notes=tuple(self._notes(rows)),
            records=tuple(self.records),
        )

    def _columns(self) -> tuple[str, ...]:
        columns = ["method", "rule"]
        for task in self.group.shown:
            columns.append(f"{task}‡" if task in self.searched else task)
            columns += [f"{task} published†"] if self.per_task else []
        columns += ["Avg"] if self.many else []
        columns += ["Avg held out"] if self.searched else []
        if self.printed and (self.many or not self.per_task):
            columns.append("Avg published†" if self.many else "published†")
        columns += ["Avg H oracle" if self.many else "H oracle"] if self.oracle else []
        return tuple(columns)

    def _row(self, line: Line, rule: str) -> tuple[str, ...]:
        measure = metric_of(self.metric, rule)
        # Papers use the methods' own rules: shown beside another rule only where own is not shown.
        row = self._published_row(line) if rule == "own" or self.rule != "both" else {}
        cells = [
            line.label,
            rule_in_words(line.all_runs(), rule) if not METRICS[self.metric].is_ranking else "any",
        ]
        for task in self.group.shown:
            cell = task_stat(line, task, measure)
            cells.append(in_percent(cell, self.usual))
            cells += [row.get(task, "–")] if self.per_task else []
            if cell:
                self.records.append(record(line, task, rule, self.metric, cell))
        if self.many:
            mean = average(line, self.group.tasks, measure)
            cells.append(in_percent(mean, self.usual))
            if mean:
                self.records.append(record(line, "Avg", rule, self.metric, mean))
        if self.searched:
            held_out = [task for task in self.group.tasks if task not in self.searched]
            mean = average(line, held_out, measure)
            cells.append(in_percent(mean, self.usual))
            if mean:
                self.records.append(record(line, "Avg held out", rule, self.metric, mean))
        if self.printed and (self.many or not self.per_task):
            cells.append(row.get("Avg", "–"))
        return (*cells, self._oracle(line, rule)) if self.oracle else tuple(cells)

    def _oracle(self, line: Line, rule: str) -> str:
        mean = average(line, self.group.tasks, oracle_of(rule))
        if mean:
            self.records.append(record(line, "Avg", rule, "h", mean, oracle=True))
        return in_percent(mean, self.usual)

    def _published_row(self, line: Line) -> dict[str, str]:
        """Return printed numbers by task; none with label noise or fewer unknown classes."""
        name = paper().printed_name(line.entry)
        return self._printed(name) if name and line.is_plain else {}

    def _printed(self, name: str) -> dict[str, str]:
        row = self.printed.rows.get(name) if self.printed else None
        numbers = row.values | {"Avg": row.overall} if row else {}
        return {task: f"{value:.1f}" for task, value in numbers.items()}

    def _published_only(self) -> list[tuple[str, ...]]:
        """Return rows of the paper's table that correspond to no entry of ours."""
        if not self.per_task or not self.printed:
            return []
        rows = []
        for name in (n for n in self.printed.rows if n not in self._names()):
            numbers = self._printed(name)
            cells = [f"{name} (published only)", "own"]
            for task in self.group.shown:
                cells += ["–", numbers[task]]
            cells += ["–", *(["–"] if self.searched else []), numbers["Avg"]] if self.many else []
            rows.append((*cells, "–") if self.oracle else tuple(cells))
        return rows

    def _names(self) -> list[str]:
        """Return printed names of the rows that correspond to one of ours."""
        names = (paper().printed_name(line.entry) for line in self.group.lines if line.is_plain)
        return [name for name in names if name]

    def _notes(self, rows: list[tuple[str, ...]]) -> Iterable[str]:
        lines = self.group.lines
        yield footers.how_measured(f"{METRICS[self.metric].title} in %", lines)
        yield from footers.footer(self.group, lines)
        yield from footers.other_counts(rows, self.usual)
        yield from footers.incomplete(lines, self.group.tasks)
        if self.group.classes[2] == 0 and METRICS[self.metric].needs_unknown:
            yield footers.NO_UNKNOWN
        if self.searched:
            yield f"{footers.SEARCHED}; 'Avg held out' is the average over the other tasks."
        if self.oracle:
            recorded = any(run.oracle for line in lines for run in line.all_runs())
            yield footers.ORACLE if recorded else NO_ORACLE
        if self.printed:
            shown = list(self.printed.rows) if self.per_task else self._names()
            yield from footers.published_notes(self.group, shown)
