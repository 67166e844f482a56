"""Fit the reject rules of this version to the stored scores of finished runs.

    python benchmarks/scripts/rescore.py RESULTS ...

RESULTS are folders of `unida bench`, whose results are rewritten. No model is needed: these rules
use the target's scores only. Numbers that depend on no threshold stay; the oracle, which belongs to
other rules, is removed. `made_with` then names the commit of the rules beside that of the run.
"""

import argparse
import dataclasses
import math
from collections import defaultdict
from pathlib import Path

import numpy as np

from unida.bench.arrays import Arrays, read_arrays
from unida.bench.results import RESULT, Result, gather, read_runs, write_results
from unida.bench.scoring import commit_of_code, score_rules
from unida.decision.rejection import fit_rules
from unida.evaluation.evaluate import compare
from unida.evaluation.metrics import Ranking
from unida.types import Scored


def rescore(result: Result, arrays: Arrays) -> Result:
    """Return the result under rules fitted now; a rule that needs more than scores stays."""
    known, shared = result.known_classes, result.shared_classes
    rules = fit_rules(arrays.unknown_score)
    scored = Scored(np.eye(len(known))[arrays.best], arrays.unknown_score, arrays.features)
    found = compare(scored, arrays.true_class, known, rules)
    ranking = Ranking(**{k: math.nan if v is None else v for k, v in result.ranking.items()})
    return dataclasses.replace(
        result,
        rules=result.rules | score_rules(found, ranking, rules, (known, shared)),
        made_with=result.made_with | {"rules": commit_of_code()},
        oracle={},  # of the rules before
    )


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", type=Path, nargs="+", help="folders of unida bench")
    for place in parser.parse_args(argv).results:
        rescored: dict[Path, list[Result]] = defaultdict(list)
        for folder, result in read_runs(place):
            if folder is None:
                parser.error(f"{place} has no run folders")
            rescored[folder].append(rescore(result, read_arrays(folder, result.refine)))
        for folder, results in rescored.items():
            write_results(folder / RESULT, results)
        gather(place)
        print(f"{place}: {len(rescored)} runs")


if __name__ == "__main__":
    main()
