"""Collect results of `frozen_bench.py` in a folder of benchmarks/results.

    python benchmarks/scripts/collect.py FOLDER OUT/NAME.jsonl …

FOLDER/results.jsonl.gz has the results of all files, compact as `unida bench` writes them; a run
that is in them twice is refused. `tables.py` makes the tables.
"""

import argparse
from collections import Counter
from pathlib import Path

from unida.bench.results import RESULTS, Result, compact, read_results, write_results


def identity(result: Result) -> tuple[str | float, ...]:
    """What names a result among those of a folder."""
    task = (result.data, result.setting, result.task, result.unknown_classes)
    return (*task, result.row, result.seed, result.label_noise, str(sorted(result.options.items())))


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("files", type=Path, nargs="+")
    given = parser.parse_args(argv)
    results = [result for file in given.files for result in read_results(file)]
    twice = [run for run, n in Counter(map(identity, results)).items() if n > 1]
    if twice:
        raise SystemExit(f"twice: {twice[0]}")
    given.folder.mkdir(parents=True, exist_ok=True)
    write_results(given.folder / RESULTS, map(compact, results))
    print(f"{len(results)} results")


if __name__ == "__main__":
    main()
