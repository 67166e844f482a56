"""Regenerate the committed tables from the committed results, and the tables of the README.

    python benchmarks/scripts/tables.py

Beside every results.jsonl the tables that are there are written anew, in the long form in folders
called full. In the README, `<!-- table: FILE rows: A, B -->` … `<!-- end -->` shows rows of a file;
deviations of single tasks are left to the whole table.
"""

import argparse
import re
from collections.abc import Iterator
from itertools import dropwhile, takewhile
from pathlib import Path

from unida.bench.tables.run import FORMATS, make_tables

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks"
FULL = ("full", "digits")
"""Folders whose tables are in the long form."""


def tables(place: Path) -> Iterator[tuple[Path, str]]:
    """Yield every table file of a folder of results, with its text."""
    for folder in (place, place / "full"):
        files = [folder / f"tables.{ending}" for ending in FORMATS]
        files = [file for file in files if file.exists()]
        if not files:
            continue
        if folder.name in FULL:
            made = make_tables(place, full=True)
        else:
            made = make_tables(place, metric="closed" if "closed" in place.name else "h")
        for file in files:
            yield file, FORMATS[file.suffix[1:]](made)


def readme(text: str) -> str:
    """Return the README's text with every table as its file has it now."""
    pattern = r"<!-- table: (\S+) rows: (.+?) -->.*?<!-- end -->"
    return re.sub(pattern, lambda match: _excerpt(*match.groups()), text, flags=re.DOTALL)


def _excerpt(file: str, names: str) -> str:
    head, line, *rows = _first_table((RESULTS / file).read_text())
    is_average = [name.startswith("Avg") for name in head]
    shown, present = names.split(", "), {row[0] for row in rows}
    assert present.issuperset(shown), f"{file} has no row of {set(shown) - present}"
    kept = [
        [
            cell if average else cell.partition(" ± ")[0]
            for cell, average in zip(row, is_average, strict=True)
        ]
        for row in rows
        if row[0] in shown
    ]
    lines = [f"| {' | '.join(row)} |" for row in (head, line, *kept)]
    return "\n".join([f"<!-- table: {file} rows: {names} -->", *lines, "<!-- end -->"])


def _first_table(text: str) -> list[list[str]]:
    after = dropwhile(lambda line: not line.startswith("|"), text.splitlines())
    lines = takewhile(lambda line: line.startswith("|"), after)
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.parse_args(argv)
    for results in sorted(RESULTS.rglob("results.jsonl")):
        for file, text in tables(results.parent):
            file.write_text(text)
    page = ROOT / "README.md"
    page.write_text(readme(page.read_text()))


if __name__ == "__main__":
    main()
