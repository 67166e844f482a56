"""Results of several files in one Markdown table, a row for each entry, backbone and length.

    python benchmarks/office_home/listing.py benchmarks/office_home/search/*.jsonl > listing.md

A cell is H under the own rule / H under the mixture rule / AUROC, in %, the mean over seeds where
there are several. `frozen` rows trained heads on stored embeddings, the others the whole network.
"""

import argparse
import json
from collections import defaultdict
from pathlib import Path
from statistics import mean

from unida.bench.results import FORMAT, Result, read_results

Row = tuple[str, str, int]


def cell(results: list[Result]) -> str:
    rules = [[r.rules[name].scores["h"] or 0.0 for r in results] for name in ("own", "mixture")]
    columns = [*rules, [r.ranking["auroc"] or 0.0 for r in results]]
    return " / ".join(f"{100 * mean(column):.1f}" for column in columns)


def is_of_bench(file: Path) -> bool:
    """The very first runs were written by a script of their own, in another form."""
    first = json.loads(file.read_text().splitlines()[0])
    return first.get("format") == FORMAT


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", type=Path, nargs="+")
    args = parser.parse_args()
    table: dict[Row, dict[str, list[Result]]] = defaultdict(lambda: defaultdict(list))
    for file in filter(is_of_bench, args.files):
        for r in read_results(file):
            how = "frozen" if r.options.get("frozen") else "whole"
            cells = table[(r.entry, how, r.options["steps"])][f"{r.source} → {r.target}"]
            cells[:] = [c for c in cells if c.seed != r.seed] + [r]  # run twice: the later one
    tasks = sorted({task for cells in table.values() for task in cells})
    print(f"| entry | network | steps | {' | '.join(tasks)} |")
    print(f"|---|---|---:|{'---|' * len(tasks)}")
    for (entry, how, steps), cells in sorted(table.items(), key=lambda item: item[0][1:] + item[0]):
        shown = " | ".join(cell(cells[task]) if task in cells else "–" for task in tasks)
        print(f"| {entry} | {how} | {steps} | {shown} |")


if __name__ == "__main__":
    main()
