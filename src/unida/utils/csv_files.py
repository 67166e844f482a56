"""CSV files whose cells may hold anything, and whose file names need not be valid UTF-8.

A spreadsheet runs a cell that begins with `=`, `+`, `-` or `@` as a formula. Such a text is written
with an apostrophe before it, and read without; a number stays as it is.
"""

import csv
import io
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from unida.errors import UserError
from unida.utils.files import read_file

_FORMULA = re.compile(r"'*[=+\-@\t\r]")
_NUMBER = re.compile(r"[+-]?(([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|inf|nan)")


def to_bytes(text: str) -> bytes:
    """Encode text; file names that are not valid UTF-8 come out as the bytes they are."""
    return text.encode("utf-8", "surrogateescape")


def to_csv(header: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """Return the text of a CSV file."""
    return "".join(csv_lines(header, rows))


def to_cell(text: str) -> str:
    """Return the text of a cell, which no spreadsheet takes for a formula."""
    return f"'{text}" if _FORMULA.match(text) and not _NUMBER.fullmatch(text) else text


def from_cell(text: str) -> str:
    """Return the text that `to_cell` was given."""
    return text[1:] if text.startswith("'") and _FORMULA.match(text) else text


def csv_lines(header: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    """Yield the text of a CSV file row by row."""
    text = io.StringIO(newline="")
    quote_all = csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_ALL)
    quote_few = csv.writer(text, lineterminator="\n")
    for row in itertools.chain([header], rows):
        row = tuple(map(to_cell, row))
        # Before Python 3.13 the writer leaves a lone carriage return unquoted.
        has_return = any("\r" in cell for cell in row)
        (quote_all if has_return else quote_few).writerow(row)
        yield text.getvalue()
        text.seek(0)
        text.truncate()


def read_csv(
    path: Path, columns: Sequence[str], optional: Sequence[str] = ()
) -> list[dict[str, str]]:
    """Read the rows of a CSV file by column name.

    Args:
        path: the file.
        columns: names of the columns that every row must have.
        optional: names of columns that are read where every row has them.
    """
    try:
        text = read_file(path).decode("utf-8-sig", "surrogateescape")
        rows = list(csv.DictReader(io.StringIO(text, newline="")))
    except (OSError, csv.Error) as error:
        raise UserError(f"{path} cannot be read: {error}.") from None
    if any(row.get(column) is None for row in rows for column in columns):
        raise UserError(f"{path} is incomplete: it needs the columns {', '.join(columns)}.")
    found = [name for name in optional if all(row.get(name) is not None for row in rows)]
    return [{column: from_cell(row[column]) for column in (*columns, *found)} for row in rows]
