"""H under every reject rule of a bench, and expected calibration error before and after.

    unida bench office-home --data DIR --out RESULTS --methods san,ovanet,source_only \
        --option holdout=0.1
    python benchmarks/scripts/office_home/rules.py RESULTS --threshold 0.5 \
        --to FILE

Without `holdout=` nothing is held out: there is no rule `source` and nothing is calibrated. ECE is
in 15 bins of equal width: on held-out source images (each calibrated without
itself) and, with the truth that a bench has, on known target images. A results.jsonl without its
run folders has H of the recorded rules only.
"""

import argparse
import csv
import json
import math
from collections.abc import Iterable
from pathlib import Path
from statistics import mean

import numpy as np

from unida.bench.arrays import Arrays, read_arrays
from unida.bench.results import Result, read_runs
from unida.decision.calibration import expected_error, reliability
from unida.decision.rejection import pick_rule
from unida.evaluation.metrics import score
from unida.training.run_folder import RunFolder

Row = dict[str, float]
ECE = ("source before", "source after", "target before", "target after")


def h_of_rules(result: Result, folder: Path | None, thresholds: Iterable[float]) -> Row:
    """Return H under the recorded rules, and at fixed thresholds where scores are available."""
    values = {name: rule.scores["h"] for name, rule in result.rules.items()}
    row = {name: math.nan if h is None else h for name, h in values.items()}
    if folder:
        arrays, unknown = read_arrays(folder, result.refine), len(result.known_classes)
        for value in thresholds:
            rule = pick_rule({}, f"threshold:{value}")
            predicted = np.where(rule.is_unknown(arrays.unknown_score), unknown, arrays.best)
            row[rule.name] = score(arrays.labels, predicted, unknown=unknown).h
    return row


def errors(result: Result, folder: Path | None) -> Row:
    """Return calibration errors before and after; empty where nothing was calibrated."""
    run = RunFolder(folder or "")
    if folder is None or not run.calibration.exists():
        return {}
    held_out = json.loads(run.calibration.read_text())
    arrays = read_arrays(folder, result.refine)
    with run.predictions.open(newline="") as file:
        calibrated = np.array([float(row["confidence"]) for row in csv.DictReader(file)])
    assert len(calibrated) == len(arrays.confidence), "both are in the order of the target"
    on_target = [_on_target(arrays, c, result) for c in (arrays.confidence, calibrated)]
    found = (held_out["ece_before"], held_out["ece_after"], *on_target)
    return dict(zip(ECE, found, strict=True))


def _on_target(arrays: Arrays, confidence: np.ndarray, result: Result) -> float:
    known = arrays.labels < len(result.known_classes)
    right = arrays.best == arrays.labels
    return expected_error(reliability(confidence[known], right[known]))


def table(title: str, rows: list[tuple[tuple[str, str, str], Row]], scale: float) -> list[str]:
    """Return Markdown with a line per run, then the mean of each method."""
    names = list(dict.fromkeys(name for _, row in rows for name in row))
    lines = [f"## {title}", "", f"| method | task | seed | {' | '.join(names)} |"]
    lines.append("|---|---|---:|" + "---:|" * len(names))
    entries = dict.fromkeys(key[0] for key, _ in rows)
    for entry in entries:
        mine = [(key, row) for key, row in rows if key[0] == entry]
        means = {
            name: mean(row[name] for _, row in mine)
            for name in names
            if all(name in row for _, row in mine)
        }
        for key, row in [*mine, ((entry, f"mean of {len(mine)} runs", ""), means)]:
            cells = (f"{scale * row[n]:.1f}" if n in row else "–" for n in names)
            lines.append(f"| {' | '.join((*key, *cells))} |")
    return [*lines, ""]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("results", type=Path)
    parser.add_argument("--threshold", type=float, nargs="*", default=[])
    parser.add_argument("--to", type=Path, help="also write NAME.md")
    args = parser.parse_args()
    runs = read_runs(args.results)
    keys = [(r.row, r.task, str(r.seed)) for _, r in runs]
    h = [h_of_rules(result, folder, args.threshold) for folder, result in runs]
    ece = [errors(result, folder) for folder, result in runs]
    lines = table("H under each reject rule, in %", list(zip(keys, h, strict=True)), 100)
    if any(ece):
        title = "Expected calibration error, in %"
        lines += table(title, [(k, e) for k, e in zip(keys, ece, strict=True) if e], 100)
    text = "\n".join(lines)
    print(text)
    if args.to:
        args.to.with_suffix(".md").write_text(text)


if __name__ == "__main__":
    main()
