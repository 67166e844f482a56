"""Compare methods on one task, and read the table.

    python examples/compare_methods.py OUT [--steps 200]

Trains three methods on the digits by `unida bench` and leaves OUT/tables/tables.md and, in
OUT/figures, the unknown scores of each method with the thresholds of its rules.
"""

import argparse
from pathlib import Path

from unida.bench.results import read_results
from unida.cli.main import main as unida

METHODS = "source_only,dance,san"


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--steps", type=int, default=200)
    args = parser.parse_args(argv)
    results = str(args.out / "results")

    # The same as the commands `unida bench`, `unida table` and `unida figure`.
    bench = ["bench", "digits", "--out", results, "--methods", METHODS, "--tasks", "mnist-uci"]
    options = ["--option", f"steps={args.steps}", "device=cpu"]
    commands = (
        [*bench, "--seeds", "1", "--runs-per-worker", "3", *options],
        ["table", results, "--full", "--out", str(args.out / "tables")],
        ["figure", results, "--kinds", "scores", "--out", str(args.out / "figures")],
    )
    for words in commands:
        print("unida", *words)
        if status := unida(words):
            raise SystemExit(status)

    # How to read it: `auroc` says how well a method ranks unknown images above known ones, whatever
    # the threshold. H says what is left of that under a rule. A method with a high AUROC and a low
    # H has a bad threshold, not bad features.
    for r in read_results(results):
        best = r.ranking["best_threshold"] or 0.0
        h = {name: f"{100 * (rule.scores['h'] or 0.0):.0f}" for name, rule in r.rules.items()}
        print(f"{r.row}: AUROC {100 * (r.ranking['auroc'] or 0.0):.0f}, H by rule {h}, ", end="")
        print(f"with the best threshold (oracle) {100 * best:.0f}")


if __name__ == "__main__":
    main()
