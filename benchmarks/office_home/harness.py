"""Our results beside the published ones, by the metric as it is meant and as it was first released.

    python benchmarks/office_home/harness.py benchmarks/office_home/unda
    python benchmarks/office_home/harness.py FOLDER-OR-JSONL --entry san

Until its authors corrected it in November 2021 (issues 1 and 2 of their repository), OVANet's
evaluation took the mean over `per_class_acc[:open_class - 1]` for the known classes. That list has
one entry a shared class and a last one for unknown, while `open_class` counts the source's private
classes too: wherever there are such classes, the recall of unknown was averaged into that of known.
`h_first_released` is H computed that way. The paper's numbers are older than the correction.
"""

import argparse
from statistics import harmonic_mean, mean

from unida.bench.results import Result, read_results
from unida.bench.tables.published import paper

WITNESS = [0.8, 0.1607, 0.2969, 0.1531, 0.8990, 0.4040, 0.4932, 0.9130, 0.2949, 0.3333]
WITNESS_UNKNOWN = 0.8319
"""Recalls that issue 1 of VisionLearningGroup/OVANet quotes: Art → Clipart, 10,000 steps."""


def witness() -> str:
    """That run by the metric as it is meant and as it was first released."""
    known = mean(WITNESS)
    first = mean([*WITNESS, WITNESS_UNKNOWN])
    h, h_first = (harmonic_mean([k, WITNESS_UNKNOWN]) for k in (known, first))
    return (
        f"known {100 * known:.1f}, unknown {100 * WITNESS_UNKNOWN:.1f}, H {100 * h:.1f}, "
        f"first released {100 * h_first:.1f}"
    )


def h_first_released(result: Result) -> float:
    """H with the recall of unknown among those of the known classes, as first released."""
    scores = result.rules["own"].scores
    known, unknown = scores["known"] or 0.0, scores["unknown"] or 0.0
    n = len(result.shared_classes)
    if len(result.known_classes) == n:
        raise SystemExit("Only where the source has private classes do the two metrics differ so.")
    return harmonic_mean([(n * known + unknown) / (n + 1), unknown])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("results", nargs="?", default="benchmarks/office_home/unda")
    parser.add_argument("--entry", default="ovanet")
    parser.add_argument("--witness", action="store_true", help="the run quoted in that issue")
    args = parser.parse_args()
    if args.witness:
        print(witness())
        return
    results = [r for r in read_results(args.results) if r.entry == args.entry]
    data = paper().find_data("office-home")
    assert data is not None
    table = paper().find_table(data, results[0].setting)
    name = paper().printed_name(args.entry)
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
