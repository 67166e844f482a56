"""List results of several files in one Markdown table, a row per entry, backbone and length.

    python benchmarks/scripts/office_home/listing.py FILE-OF-RESULTS…

A cell is H under the own rule / H under the mixture rule / AUROC, in %, the mean over seeds where
there are several. `frozen` rows trained heads on stored embeddings, the others the whole network;
options that these searches varied are named where they were set; `batch_norm auto` is the
default, stored statistics and a slow backbone. A method is named with the settings that differ from
the defaults.
"""

import argparse
import dataclasses
from collections import defaultdict
from pathlib import Path
from statistics import mean
from typing import Any

from unida.bench.results import Result, read_results, row_name
from unida.methods import METHODS

Row = tuple[str, str, int]
VARIED = ("batch_norm", "backbone_lr", "jitter", "batch")
USUAL = {"jitter": 1.0, "batch": 36}
BEFORE: dict[str, dict[str, Any]] = {"san": {"bandwidth": 0.3}}
"""Values of settings before they were introduced."""
RESOLVED = {"lam": 3.0, "bandwidth": 1.0, "hidden": 1.0, "projection_lr": 1.0, "width": 512}
"""SAN's settings where none is given, on these features."""


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
    resolved = RESOLVED if result.method == "san" else {}
    settings = BEFORE.get(result.method, {}) | result.settings
    defaults = dataclasses.asdict(method.Config())
    usual = {k: (v, resolved.get(k, v)) for k, v in defaults.items()}
    other = [f"{k}={v}" for k, v in settings.items() if k not in usual or v not in usual[k]]
    return " ".join([row_name(result.method, result.refine), *other])


def task(result: Result) -> str:
    setting = "" if result.setting == "unda" else f" ({result.setting})"
    return f"{result.source} → {result.target}{setting}"


def is_set(name: str, value: object) -> bool:
    return value not in (None, USUAL.get(name))


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", type=Path, nargs="+")
    args = parser.parse_args(argv)
    table: dict[Row, dict[str, list[Result]]] = defaultdict(lambda: defaultdict(list))
    for file in args.files:
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
