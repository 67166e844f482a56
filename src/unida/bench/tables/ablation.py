"""The paper's ablation: SAN without some of its parts, average H on each data set."""

from dataclasses import dataclass

from unida.bench.tables import footers
from unida.bench.tables.groups import Line, Pairs, ResultGroup, refine_place
from unida.bench.tables.measures import (
    METRICS,
    Measure,
    average,
    in_percent,
    metric_of,
    pairs,
    published_record,
    record,
    rule_in_words,
)
from unida.bench.tables.published import paper
from unida.bench.tables.render import Record, Table


@dataclass(frozen=True)
class _Column:
    """A data set: its rows of the ablation, and its published numbers in % by printed name."""

    group: ResultGroup
    lines: list[Line]
    published: dict[str, float]
    usual: int


def ablation_table(
    groups: list[ResultGroup],
    *,
    metric: str = "h",
    rule: str = "both",
    searched: Pairs = frozenset(),
) -> Table | None:
    """Build a table of SAN's variants (rows) on data sets (columns); None without variants.

    Args:
        groups: of one setting.
        metric: the score shown.
        rule: a reject rule, or `both` for all that were recorded.
        searched: tasks whose target labels were used to choose settings; named under the table.
    """
    columns = [column for group in groups if (column := _column(group, metric))]
    if not columns:
        return None
    records: list[Record] = []
    rows = _rows(columns, metric, rule, records)
    records += [printed for column in columns for printed in _published_records(column)]
    headers = ["method", "rule"]
    for column in columns:
        headers += [column.group.title]
        headers += [f"{column.group.title} published†"] if column.published else []
    number = f", as Table {paper().ablation.number} of the paper"
    return Table(
        title=f"Ablation: {METRICS[metric].title} in %, mean over all tasks"
        + (number if any(column.published for column in columns) else ""),
        columns=tuple(headers),
        labels=2,
        rows=tuple(rows),
        notes=tuple(_notes(columns, metric, rows, searched)),
        records=tuple(records),
    )


def _column(group: ResultGroup, metric: str) -> _Column | None:
    names = paper().ablation.names
    lines = [line for line in group.lines if line.entry in names and line.is_plain]
    if not any(line.entry != line.method for line in lines):
        return None
    is_printed = group.table and metric == "h" and group.table.setting == paper().ablation.setting
    key = group.data.key if group.data else ""
    rows = paper().ablation.rows
    published = {name: row[key] for name, row in rows.items()} if is_printed else {}
    return _Column(group, lines, published, footers.usual_count(lines))


def _rows(
    columns: list[_Column], metric: str, rule: str, records: list[Record]
) -> list[tuple[str, ...]]:
    """Return a row for every line and rule in any column, in the paper's order."""
    names = paper().ablation.names
    cells_of: dict[tuple[str, str, str, str], dict[int, Line]] = {}
    for place, column in enumerate(columns):
        for line, name in pairs(column.lines, rule, metric):
            cells_of.setdefault((line.entry, line.refine, line.variant, name), {})[place] = line
    entries, rules = list(names), list(dict.fromkeys(key[3] for key in cells_of))

    def order(key: tuple[str, str, str, str]) -> tuple[object, ...]:
        return entries.index(key[0]), refine_place(key[1]), key[2], rules.index(key[3])

    rows = []
    for key in sorted(cells_of, key=order):
        lines, printed, name = cells_of[key], names[key[0]], key[3]
        first = next(iter(lines.values()))
        runs = [run for line in lines.values() for run in line.all_runs()]
        rule_words = "any" if METRICS[metric].is_ranking else rule_in_words(runs, name)
        cells = [f"{first.label}, in the paper {printed!r}", rule_words]
        for place, column in enumerate(columns):
            own_rule = name == "own" or rule != "both"  # as in the paper
            known = column.published.get(printed) if own_rule else None
            cells += _cells(column, lines.get(place), known, metric_of(metric, name))
            records += _record(column, lines.get(place), metric, name)
        rows.append(tuple(cells))
    return rows


def _cells(
    column: _Column, line: Line | None, published: float | None, measure: Measure
) -> list[str]:
    mean = average(line, column.group.tasks, measure) if line else None
    ours = in_percent(mean, column.usual)
    theirs = "–" if published is None else f"{published:.1f}"
    return [ours, theirs] if column.published else [ours]


def _record(column: _Column, line: Line | None, metric: str, rule: str) -> list[Record]:
    mean = average(line, column.group.tasks, metric_of(metric, rule)) if line else None
    return [record(line, "Avg", rule, metric, mean)] if line and mean else []


def _published_records(column: _Column) -> list[Record]:
    printed = paper().ablation
    return [
        published_record(column.group, name, printed.entries[name], "Avg", value, printed.number)
        for name, value in column.published.items()
    ]


def _notes(
    columns: list[_Column], metric: str, rows: list[tuple[str, ...]], searched: Pairs
) -> list[str]:
    lines = [line for column in columns for line in column.lines]
    notes = [footers.how_measured(f"{METRICS[metric].title} in %", lines)]
    for column in columns:
        notes += footers.footer(column.group, column.lines)
        notes += footers.incomplete(column.lines, column.group.tasks)
        notes += footers.other_counts(rows, column.usual)
        if marked := sorted(column.group.among(searched)):
            notes.append(f"Settings were chosen with target labels of {', '.join(marked)}.")
    printed = [c.group.data.key for c in columns if c.published and c.group.data]
    if printed:
        ablation = paper().ablation
        notes.append(f"† published: Table {ablation.number} of the {paper().name}, as printed.")
        notes += [note.text for note in ablation.notes if note.concerns(printed)]
    return list(dict.fromkeys(notes))
