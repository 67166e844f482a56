"""Puts the committed tables into the README, between `<!-- table: FILE rows: A, B -->` and
`<!-- end -->`.

    python benchmarks/readme.py

Only the rows of these methods are shown; deviations of single tasks are left to the whole table.
"""

import re
from itertools import dropwhile, takewhile
from pathlib import Path

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks"


def render(text: str) -> str:
    """The README's text with every table as its results file has it now."""
    pattern = r"<!-- table: (\S+) rows: (.+?) -->.*?<!-- end -->"
    return re.sub(pattern, lambda match: _table(*match.groups()), text, flags=re.DOTALL)


def _table(file: str, methods: str) -> str:
    head, line, *rows = _first_table((RESULTS / file).read_text())
    average = [name.startswith("Avg") for name in head]
    wanted, there = methods.split(", "), {row[0] for row in rows}
    assert there.issuperset(wanted), f"{file} has no row of {set(wanted) - there}"
    shown = [
        [
            cell if keeps else cell.partition(" ± ")[0]
            for cell, keeps in zip(row, average, strict=True)
        ]
        for row in rows
        if row[0] in wanted
    ]
    lines = [f"| {' | '.join(row)} |" for row in (head, line, *shown)]
    return "\n".join([f"<!-- table: {file} rows: {methods} -->", *lines, "<!-- end -->"])


def _first_table(text: str) -> list[list[str]]:
    after = dropwhile(lambda line: not line.startswith("|"), text.splitlines())
    lines = takewhile(lambda line: line.startswith("|"), after)
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


if __name__ == "__main__":
    readme = ROOT / "README.md"
    readme.write_text(render(readme.read_text()))
