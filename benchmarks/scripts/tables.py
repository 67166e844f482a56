"""Regenerate the committed tables from the committed results, and those of the README and docs.

    python benchmarks/scripts/tables.py
    python benchmarks/scripts/tables.py --long benchmarks/results/office-home/frozen/unda

Every folder of `benchmarks/results` with results gets its `tables.md`: every category shift in one
table in folders whose name begins with universal, all scores for digits, else the paper's layout.
`--long` prints the long form of a folder instead. In the README and in docs, the lines between

    <!-- table: FILE; rows: A, B; rules: R; columns: C, D --> … <!-- end -->

become the rows of the first table in FILE (in `benchmarks/results`); rules and columns may be left
out. Deviations of single tasks are left to the whole table.
"""

import argparse
import re
from collections.abc import Iterable, Iterator
from itertools import dropwhile, takewhile
from pathlib import Path

from unida.bench.results import RESULTS, read_results
from unida.bench.tables.run import (
    FORMATS,
    PaperStyle,
    make_tables,
    paper_tables,
    read_notes,
)

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "benchmarks" / "results"
SLOT = re.compile(r"<!-- table: ([^;>]+?)((?:; \w+: [^;>]+?)*) -->.*?<!-- end -->", re.DOTALL)


def folders() -> list[Path]:
    """Return every folder with results."""
    return sorted(file.parent for file in FOLDER.rglob(RESULTS))


def table_file(place: Path) -> tuple[Path, str]:
    """Return the path of a folder's `tables.md` and the text it should have."""
    if place.name.startswith("universal"):
        made = make_tables(place, universal=True)
    elif "digits" in place.relative_to(FOLDER).parts:
        made = make_tables(place, full=True)
    else:
        results, searched = read_results(place), read_notes(place).searched
        made = []
        for setting in dict.fromkeys(result.setting for result in results):
            style = PaperStyle("closed" if setting == "closed" else "h", searched=searched)
            made += paper_tables([r for r in results if r.setting == setting], style)
    return place / "tables.md", FORMATS["md"](made)


def fill(text: str) -> str:
    """Return a page with every table as the results have it now."""
    return SLOT.sub(_excerpt, text)


def pages() -> Iterator[Path]:
    """Yield the pages that have slots for tables."""
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        if SLOT.search(page.read_text()):
            yield page


def _excerpt(match: re.Match[str]) -> str:
    file, chosen = match[1], dict(re.findall(r"; (\w+): ([^;>]+)", match[2]))
    opening = f"<!-- table: {file}{match[2]} -->"
    if not (FOLDER / file).exists():  # the slot stays empty until there are results
        return f"{opening}\n<!-- end -->"
    head, line, *rows = _first_table((FOLDER / file).read_text())
    # A column may be called "mean of four, held out".
    names = {kind: re.split(r", (?!held out)", text) for kind, text in chosen.items()}
    shown = names.get("rows", [row[0] for row in rows])
    rules = names.get("rules", [row[1].partition(" ")[0] for row in rows])
    missing = set(shown) - {row[0] for row in rows}
    assert not missing, f"{file} has no row of {missing}"
    rows = [row for row in rows if row[0] in shown and row[1].partition(" ")[0] in rules]
    kept = [head.index(name) for name in names.get("columns", head)]
    averages = {n for n, name in enumerate(head) if name.startswith(("Avg", "mean"))}
    short = ([c if n in averages else c.split(" ± ")[0] for n, c in enumerate(r)] for r in rows)
    lines = (_line(row[n] for n in kept) for row in (head, line, *short))
    return "\n".join([opening, *lines, "<!-- end -->"])


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _first_table(text: str) -> list[list[str]]:
    after = dropwhile(lambda line: not line.startswith("|"), text.splitlines())
    lines = takewhile(lambda line: line.startswith("|"), after)
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--long", type=Path, help="print the long form of this folder instead")
    args = parser.parse_args(argv)
    if args.long:
        print(FORMATS["md"](make_tables(args.long, full=True)))
        return
    for place in folders():
        file, text = table_file(place)
        file.write_text(text)
    for page in pages():
        page.write_text(fill(page.read_text()))


if __name__ == "__main__":
    main()
