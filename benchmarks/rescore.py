"""Fits the reject rules of this version to the stored scores of finished runs.

    python benchmarks/rescore.py RESULTS ...

RESULTS are folders of `unida bench`, whose result.json files are written anew. No model is needed:
such a rule sees the target's scores and nothing else, and what no threshold has a say in stays as
it was, but for an oracle of other rules, which goes. `made_with` then names the commit of the rules
beside that of the run.
"""

import argparse
import dataclasses
import math
from pathlib import Path

import numpy as np

from unida.bench.arrays import Arrays, read_arrays
from unida.bench.results import Result, from_json, gather, to_json
from unida.bench.scoring import commit_of_code, under_rules
from unida.decision.rejection import fit_rules
from unida.evaluation.evaluate import Ranking, compare
from unida.training.run_folder import write_text
from unida.types import Scored


def rescore(result: Result, arrays: Arrays) -> Result:
    """The result under rules that are fitted now; a rule that needs more than scores stays."""
    known, shared = result.known_classes, result.shared_classes
    rules = fit_rules(arrays.unknown_score)
    said = Scored(np.eye(len(known))[arrays.best], arrays.unknown_score, arrays.features)
    found = compare(said, arrays.true_class, known, rules)
    ranking = Ranking(**{k: math.nan if v is None else v for k, v in result.ranking.items()})
    return dataclasses.replace(
        result,
        rules=result.rules | under_rules(found, ranking, rules, (known, shared)),
        made_with=result.made_with | {"rules": commit_of_code()},
        oracle={},  # of the rules before
    )


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", type=Path, nargs="+", help="folders of unida bench")
    for place in parser.parse_args(argv).results:
        files = sorted(place.glob("runs/*/result.json"))
        for file in files:
            result = rescore(from_json(file.read_text(), str(file)), read_arrays(file.parent))
            write_text(file, to_json(result) + "\n")
        gather(place)
        print(f"{place}: {len(files)} results")


if __name__ == "__main__":
    main()
