"""The long form of a table: every task, row and rule with all scores, time and size."""

from unida.bench.results import Result
from unida.bench.tables import footers
from unida.bench.tables.groups import Line, Pairs, one_group, stat
from unida.bench.tables.measures import (
    METRICS,
    in_percent,
    metric_of,
    oracle_of,
    pairs,
    record,
    rule_in_words,
    task_stat,
)
from unida.bench.tables.render import Record, Table

FULL_SCORES = [name for name, metric in METRICS.items() if metric.in_full]


def full_table(
    results: list[Result],
    *,
    rule: str = "both",
    oracle: bool = False,
    notes: dict[str, str] | None = None,
    searched: Pairs = frozenset(),
) -> Table:
    """Build a table of every task, row and rule, with all scores, time and size.

    Args:
        results: of one data set and setting.
        rule: a reject rule, or `both` for all that were recorded.
        oracle: adds the H of the best step by target labels.
        notes: explanations by entry or row.
        searched: tasks whose target labels were used to choose settings; they are marked.
    """
    group = one_group(results)
    usual, marked = footers.usual_count(group.lines), group.among(searched)
    rows, records = [], []
    for task in group.shown:
        for line, name in pairs(group.lines, rule, "h"):
            if task in line.runs:
                cells, more = _full_row(line, task, name, usual, oracle)
                rows.append((f"{task}‡" if task in marked else task, *cells))
                records += more
    scores = (METRICS[metric].title for metric in FULL_SCORES)
    columns = ("task", "method", "rule", *scores, *(["H oracle"] if oracle else []))
    under = [footers.how_measured("Scores in %", group.lines)]
    under += footers.footer(group, group.lines) + footers.other_counts(rows, usual)
    under += [f"{footers.SEARCHED}."] if marked else []
    under += [footers.ORACLE] if oracle else []
    under += footers.explanations(group.lines, notes or {})
    return Table(
        title=f"{group.title}: all scores",
        columns=(*columns, "seconds", "parameters"),
        labels=3,
        rows=tuple(rows),
        notes=tuple(under),
        records=tuple(records),
    )


def _full_row(
    line: Line, task: str, rule: str, usual: int, oracle: bool
) -> tuple[tuple[str, ...], list[Record]]:
    cells, records = [line.label, rule_in_words(line.runs[task].values(), rule)], []
    for metric in FULL_SCORES:
        cell = task_stat(line, task, metric_of(metric, rule))
        cells.append(in_percent(cell, usual))
        records += [record(line, task, rule, metric, cell)] if cell else []
    if oracle:
        cell = task_stat(line, task, oracle_of(rule))
        cells.append(in_percent(cell, usual))
        records += [record(line, task, rule, "h", cell, oracle=True)] if cell else []
    runs = line.runs[task].values()
    for metric, unit, show, values in (
        ("seconds", "s", "{:.0f}", [run.seconds for run in runs]),
        ("parameters", "", "{:,.0f}", [float(run.parameters) for run in runs]),
    ):
        if cell := stat(values):
            cells.append(show.format(cell.mean))
            records.append(record(line, task, rule, metric, cell, unit=unit))
    return tuple(cells), records
