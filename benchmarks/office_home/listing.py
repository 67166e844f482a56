"""Results of several files in one Markdown table, a row for each entry, backbone and length.

    python benchmarks/office_home/listing.py benchmarks/office_home/search/*.jsonl > listing.md

A cell is H under the own rule / H under the mixture rule / AUROC, in %, the mean over seeds where
there are several. `frozen` rows trained heads on stored embeddings, the others the whole network;
options that these searches varied are named where they were set; `batch_norm auto` is today's
default, statistics as stored and a slow backbone. A method is named with the settings that are not
today's defaults, whatever they were then.
"""

import argparse
import dataclasses
import json
from collections import defaultdict
from pathlib import Path
from statistics import mean
from typing import Any

from unida.bench.results import FORMAT, Result, read_results
from unida.methods import METHODS
from unida.methods.san import SAN, WITH_WEIGHTS

Row = tuple[str, str, int]
VARIED = ("batch_norm", "backbone_lr", "jitter", "batch")
USUAL = {"jitter": 1.0, "batch": 36}
BEFORE: dict[str, dict[str, Any]] = {"san": {"neighbours": 0, "bandwidth": 0.3, "anchors": False}}
"""What settings were when they were none yet."""
TODAY = WITH_WEIGHTS | {"anchors": True, "nearest_by": "z_then_y"}
"""SAN's settings where none is given."""


def cell(results: list[Result]) -> str:
    rules = [[r.rules[name].scores["h"] or 0.0 for r in results] for name in ("own", "mixture")]
    columns = [*rules, [r.ranking["auroc"] or 0.0 for r in results]]
    return " / ".join(f"{100 * mean(column):.1f}" for column in columns)


def network(result: Result) -> str:
    options = result.options
    set_ = [f"{name} {options[name]}" for name in VARIED if is_set(name, options.get(name))]
    if options.get("frozen"):
        set_ = ["plain", *set_] if options["frozen_views"] == 0 else set_
        return ", ".join(["frozen", *set_])
    return ", ".join(["whole", *set_])


def name(result: Result) -> str:
    method = METHODS[result.method]
    usual = dataclasses.asdict(method.Config()) | (TODAY if method is SAN else {})
    settings = BEFORE.get(result.method, {}) | result.settings
    other = {k: v for k, v in settings.items() if k not in usual or v != usual[k]}
    if result.method == "san" and other.get("width") == 512:
        del other["width"]  # today's default on these features, then written out
    return " ".join([result.method, *(f"{k}={v}" for k, v in other.items())])


def task(result: Result) -> str:
    setting = "" if result.setting == "unda" else f" ({result.setting})"
    return f"{result.source} → {result.target}{setting}"


def is_set(name: str, value: object) -> bool:
    return value not in (None, USUAL.get(name))


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
            cells = table[(name(r), network(r), r.options["steps"])][task(r)]
            cells[:] = [c for c in cells if c.seed != r.seed] + [r]  # run twice: the later one
    tasks = sorted({task for cells in table.values() for task in cells})
    print(f"| method | network | steps | {' | '.join(tasks)} |")
    print(f"|---|---|---:|{'---|' * len(tasks)}")
    for (who, how, steps), cells in sorted(table.items(), key=lambda item: item[0][1:] + item[0]):
        shown = " | ".join(cell(cells[task]) if task in cells else "–" for task in tasks)
        print(f"| {who} | {how} | {steps} | {shown} |")


if __name__ == "__main__":
    main()
