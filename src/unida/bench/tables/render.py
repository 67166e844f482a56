"""A table and its three formats: Markdown, LaTeX and CSV."""

import csv
import dataclasses
import io
import re
from dataclasses import dataclass

from unida.utils.csv_files import to_cell


@dataclass(frozen=True)
class Record:
    """A number of a table with its context: a line of the CSV.

    Attributes:
        task: as in the table; `Avg` for the mean over all tasks.
        refine: how predictions were refined.
        variant: how the runs differ from the table's usual ones.
        mean: over seeds, in `unit`.
        std: sample standard deviation over seeds; empty for one seed.
        n: number of seeds; empty for a published number.
        published: the table it was printed in; empty for our own numbers.
        oracle: whether the step was selected with target labels.
    """

    data: str
    setting: str
    source: str
    target: str
    task: str
    entry: str
    method: str
    refine: str
    reconstruction: bool
    variant: str
    rule: str
    metric: str
    unit: str
    mean: float
    std: float | None
    n: int | None
    published: str = ""
    oracle: bool = False
    seeds: str = ""
    steps: str = ""
    backbone: str = ""
    weights: str = ""
    commit: str = ""


@dataclass(frozen=True)
class Table:
    """Plain text in rows and columns; `to_markdown`, `to_latex` and `to_csv` escape it.

    Attributes:
        title: its heading.
        columns: headers.
        labels: number of leading columns that hold words and not numbers.
        rows: cells, one for each column.
        notes: sentences under the table.
        records: its numbers in long form.
    """

    title: str
    columns: tuple[str, ...]
    labels: int
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...]
    records: tuple[Record, ...]


def to_markdown(table: Table) -> str:
    marks = ["---"] * table.labels + ["---:"] * (len(table.columns) - table.labels)
    lines = [
        f"## {_markdown(table.title)}",
        "",
        _markdown_row(table.columns),
        "|" + "|".join(marks) + "|",
        *(_markdown_row(row) for row in table.rows),
        "",
        *(f"- {_markdown(note)}" for note in table.notes),
    ]
    return "\n".join(lines) + "\n"


def _markdown_row(cells: tuple[str, ...]) -> str:
    return "| " + " | ".join(map(_markdown, cells)) + " |"


def _markdown(text: str) -> str:
    """Escape text for Markdown, table cells included."""
    text = _one_line(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    text = re.sub(r"([\\|*`\[\]$~])", r"\\\1", text)
    # Inside a word, as in source_only, an underscore means nothing and stays readable.
    return re.sub(r"(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])", r"\_", text)


def to_latex(table: Table) -> str:
    """Return a table environment for a document that uses booktabs."""
    columns = "l" * table.labels + "r" * (len(table.columns) - table.labels)
    lines = [
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{_latex(table.title)}}}",
        rf"\begin{{tabular}}{{{columns}}}",
        r"\toprule",
        _latex_row(table.columns),
        r"\midrule",
        *map(_latex_row, table.rows),
        r"\bottomrule",
        r"\end{tabular}",
        r"\par\footnotesize\raggedright",
        *(rf"{_latex(note)}\par" for note in table.notes),
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def _latex_row(cells: tuple[str, ...]) -> str:
    return " & ".join(map(_latex, cells)) + r" \\"


_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "[": "{[}",  # after \\ a bracket would be read as a length
    "]": "{]}",
    "*": "{*}",  # and so would a star
    "±": r"$\pm$",
    "→": r"$\rightarrow$",
    "†": r"$\dagger$",
    "‡": r"$\ddagger$",
    "–": "--",
    "…": r"\ldots{}",
} | {sign: f"\\{sign}" for sign in "&%$#_{}"}


def _latex(text: str) -> str:
    return "".join(_LATEX.get(sign, sign) for sign in _one_line(text))


def to_csv(*tables: Table) -> str:
    """Return all numbers of the tables, one per line."""
    text = io.StringIO(newline="")
    header = [field.name for field in dataclasses.fields(Record)]
    # All text is quoted: before Python 3.13 a lone carriage return would not be.
    writer = csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)
    writer.writerow(header)
    for record in dict.fromkeys(record for table in tables for record in table.records):
        writer.writerow([_csv(getattr(record, name)) for name in header])
    return text.getvalue()


def _csv(value: object) -> object:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return to_cell(value)
    return round(value, 4) if isinstance(value, float) else value


def _one_line(text: str) -> str:
    return " ".join(text.split())
