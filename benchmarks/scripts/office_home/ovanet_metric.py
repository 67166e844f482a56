"""Our results beside published ones, by OVANet's metric as intended and as first released.

    python benchmarks/scripts/office_home/ovanet_metric.py FOLDER-OF-RESULTS
    python benchmarks/scripts/office_home/ovanet_metric.py FOLDER-OR-JSONL --entry san
    python benchmarks/scripts/office_home/ovanet_metric.py --closed FOLDER…

Until its authors corrected it in November 2021 (issues 1 and 2 of their repository), OVANet's
evaluation took the mean over `per_class_acc[:open_class - 1]` for the known classes. That list has
one entry a shared class and a last one for unknown, while `open_class` counts the source's private
classes too: wherever there are such classes, the recall of unknown was averaged into that of known.
`h_first_released` is H computed that way. The paper's numbers are older than the correction.
"""

import argparse
from pathlib import Path
from statistics import harmonic_mean, mean

from unida.bench.results import Result, read_results
from unida.bench.tables.published import paper

RESULTS = Path(__file__).parents[2] / "results"
DEFAULT = RESULTS / "office-home" / "finetuned" / "unda-published-recipe"

QUOTED = [0.8, 0.1607, 0.2969, 0.1531, 0.8990, 0.4040, 0.4932, 0.9130, 0.2949, 0.3333]
QUOTED_UNKNOWN = 0.8319
"""Recalls that issue 1 of VisionLearningGroup/OVANet quotes: Art → Clipart, 10,000 steps."""


TASKS = ("A2C", "A2P", "A2R", "C2A", "C2P", "C2R", "P2A", "P2C", "P2R", "R2A", "R2C", "R2P")
SOURCE_ONLY = {
    "SHOT": (44.6, 67.3, 74.8, 52.7, 62.7, 64.8, 53.0, 40.6, 73.2, 65.3, 45.4, 78.0),
    "TLlib": (41.1, 65.9, 73.7, 53.1, 60.1, 63.3, 52.2, 36.7, 71.8, 64.8, 42.6, 75.2),
}
"""Accuracy without adaptation, all 65 classes, ResNet-50 with torchvision's weights, as printed in
results.md of tim-learn/SHOT (three seeds; a bottleneck with batch norm, smoothed labels) and in the
README of thuml's Transfer-Learning-Library ("ERM"; plain, the best epoch on the target)."""


def quoted() -> str:
    """Score the quoted run by the metric as intended and as first released."""
    known = mean(QUOTED)
    first = mean([*QUOTED, QUOTED_UNKNOWN])
    h, h_first = (harmonic_mean([k, QUOTED_UNKNOWN]) for k in (known, first))
    return (
        f"known {100 * known:.1f}, unknown {100 * QUOTED_UNKNOWN:.1f}, H {100 * h:.1f}, "
        f"first released {100 * h_first:.1f}"
    )


def h_first_released(result: Result) -> float:
    """Return H with the recall of unknown averaged into that of known, as first released."""
    scores = result.rules["own"].scores
    known, unknown = scores["known"] or 0.0, scores["unknown"] or 0.0
    n = len(result.shared_classes)
    if len(result.known_classes) == n:
        raise SystemExit("Only where the source has private classes do the two metrics differ so.")
    return harmonic_mean([(n * known + unknown) / (n + 1), unknown])


def closed(folders: list[str]) -> str:
    """Return accuracy without adaptation, a column per folder, beside external references."""
    columns = {**SOURCE_ONLY, **{Path(folder).name: _accuracy(folder) for folder in folders}}
    table = zip(TASKS, *columns.values(), strict=True)
    means = ("mean", *(mean(column) for column in columns.values()))
    lines = ["".join(f"{name:>18}" for name in ("task", *columns))]
    for task, *values in [*table, means]:
        lines.append(f"{task:>18}" + "".join(f"{value:18.1f}" for value in values))
    return "\n".join(lines)


def _accuracy(folder: str) -> tuple[float, ...]:
    """Return the mean over seeds for each of the twelve tasks."""
    found: dict[str, list[float]] = {task: [] for task in TASKS}
    for r in read_results(folder):
        if r.setting == "closed" and r.entry == "source_only":
            found[f"{r.source[0]}2{r.target[0]}"].append(100 * (r.ranking["closed"] or 0.0))
    return tuple(mean(values) for values in found.values())


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("results", nargs="*", default=[str(DEFAULT)])
    parser.add_argument("--entry", default="ovanet")
    parser.add_argument("--quoted", action="store_true", help="the run quoted in that issue")
    parser.add_argument("--closed", action="store_true", help="accuracy without adaptation")
    args = parser.parse_args(argv)
    if args.quoted:
        print(quoted())
    elif args.closed:
        print(closed(args.results))
    else:
        for results in args.results:
            beside_published([r for r in read_results(results) if r.entry == args.entry])


def beside_published(results: list[Result]) -> None:
    """Print every run of one method beside the number in the paper's table."""
    data = paper().find_data("office-home")
    assert data is not None
    table = paper().find_table(data, results[0].setting)
    name = paper().printed_name(results[0].entry)
    printed = table.rows[name].values if table and name in table.rows else {}
    columns: list[list[float]] = [[], [], []]
    print("task        steps seed  known unknown      H  first released  published")
    for r in results:
        scores, task = r.rules["own"].scores, data.task(r.source, r.target) or ""
        row = [scores["h"] or 0.0, h_first_released(r), printed.get(task, float("nan")) / 100]
        for column, value in zip(columns, row, strict=True):
            column.append(value)
        print(
            f"{task:10} {r.options['steps']:6} {r.seed:4} {100 * (scores['known'] or 0):6.1f} "
            f"{100 * (scores['unknown'] or 0):7.1f} {100 * row[0]:6.1f} {100 * row[1]:15.1f} "
            f"{100 * row[2]:10.1f}"
        )
    print(f"{'mean':38} {'{:6.1f} {:15.1f} {:10.1f}'.format(*(100 * mean(c) for c in columns))}")


if __name__ == "__main__":
    main()
