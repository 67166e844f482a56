"""Score runs that differ only in their seed as one ensemble.

    python benchmarks/scripts/ensemble.py RESULTS --out FOLDER

RESULTS is a folder of `unida bench … --keep-models`. The models of each task are joined as those of
`unida adapt --ensemble N` are (`unida.decision.predictor`), so nothing is trained again: what one
model and the ensemble reach comes from the same runs. FOLDER/results.jsonl has a line per task;
tasks with fewer than two models are skipped.
"""

import argparse
import dataclasses
import itertools
import json
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from unida.bench.results import ALONE, Result, read_runs, write_results
from unida.bench.scoring import score_rules
from unida.data.samples import read_labelled
from unida.decision.inference import target_outputs
from unida.decision.predictor import Predictor, combine
from unida.decision.refinement import bank_index
from unida.decision.rejection import fit_rules
from unida.evaluation.evaluate import compare, defined, rank
from unida.methods.presets import load_config
from unida.model import load
from unida.training.run_folder import RunFolder


def joined_result(runs: list[RunFolder], results: list[Result]) -> Result:
    """Return the result of the models as an ensemble."""
    models, first = [load(run.path) for run in runs], results[0]
    alone = first.refine == ALONE
    members = [Predictor(model.method) if alone else model.predictor for model in models]
    predictor = combine(members, models[0].backbone).eval()  # type: ignore[arg-type]
    samples = read_labelled(load_config(runs[0].config).data.target)
    assert samples.labels is not None
    of_backbone: list[Tensor] = []
    model = dataclasses.replace(models[0], predictor=predictor)
    _, scored = model.score(samples.paths, of_backbone=of_backbone)
    some = bank_index(len(samples))
    features = torch.cat(of_backbone)[some]
    describe = partial(model.reference.describe, features)
    rules = fit_rules(target_outputs(scored, describe, some))
    names = np.array(samples.classes)[samples.labels]
    found = compare(scored, names, first.known_classes, rules)
    ranking, classes = rank(found), (first.known_classes, first.shared_classes)
    return dataclasses.replace(
        first,
        options=first.options | {"ensemble": len(runs)},
        rules=score_rules(found, ranking, rules, classes),
        ranking=defined(dataclasses.asdict(ranking)),
        seconds=round(sum(result.seconds for result in results), 2),
        parameters=sum(p.numel() for p in predictor.parameters()),
        made_with=first.made_with | {"seeds joined": " ".join(str(r.seed) for r in results)},
        oracle={},
    )


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", type=Path, help="a folder of unida bench")
    parser.add_argument("--out", type=Path, required=True, help="where to write results.jsonl")
    args = parser.parse_args(argv)
    found = [
        (result, RunFolder(folder))
        for folder, result in read_runs(args.results)
        if folder and RunFolder(folder).model.exists()
    ]
    found.sort(key=lambda one: (*_row(one[0]), one[0].seed))
    args.out.mkdir(parents=True, exist_ok=True)
    joined = []
    for row, group in itertools.groupby(found, key=lambda one: _row(one[0])):
        results, runs = map(list, zip(*group, strict=True))
        if len(runs) < 2:
            continue
        joined.append(joined_result(runs, results))
        write_results(args.out / "results.jsonl", joined)  # who is stopped keeps what there is
        print(f"{' '.join(map(str, row[:5]))}: {len(runs)} models", flush=True)


def _row(result: Result) -> tuple[str | float, ...]:
    """Return what the runs of an ensemble have in common."""
    where = (result.data, result.setting, result.row, result.source, result.target)
    return (*where, result.label_noise, result.unknown_classes, json.dumps(result.options))


if __name__ == "__main__":
    main()
