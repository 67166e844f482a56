"""Fit the reject rules of this version to the stored outputs of frozen runs.

    python benchmarks/scripts/refit_rules.py PLAN.json DUMPS OUT

PLAN and DUMPS are those of `frozen_bench.py --dump`. The outputs are scored again under the rules
of this version; nothing is trained. OUT/NAME.jsonl has the results as `unida bench` writes them.
`made_with` names the commit of the training and, as `rules`, that of the rules.
"""

import argparse
import dataclasses
import functools
import io
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from frozen_bench import Worker, embed_all, network_key, read_plan

from unida.bench.jobs import Job
from unida.bench.results import Result, read_results, write_results
from unida.bench.scoring import commit_of_code, score_rules
from unida.data.samples import read_labelled
from unida.decision.category_shift import (
    SourceReference,
    TargetSigns,
    balanced_index,
    build_reference,
)
from unida.decision.inference import target_outputs
from unida.decision.refinement import bank_index
from unida.decision.rejection import fit_rules
from unida.evaluation.evaluate import compare
from unida.evaluation.metrics import Ranking
from unida.protocols.tasks import load_protocol, write_task
from unida.types import Scored

Signs = tuple[Callable[[], TargetSigns | None], torch.Tensor]
"""What the features of some target images say, and the indices of these images."""
Lookup = Callable[[Job], tuple[list[Result], str]]


def signs_of(worker: Worker, part: dict[str, Any], job: Job) -> Signs:
    """Return what the backbone's features say, as a frozen run has it."""
    protocol, root = load_protocol(job.data), Path(part["root"])
    with tempfile.TemporaryDirectory() as place:
        task = write_task(
            protocol,
            job.setting,
            job.source,
            job.target,
            root,
            Path(place) / "task",
            unknown_classes=job.unknown_classes,
            label_noise=job.label_noise,
            noise_seed=job.seed,
        )
        samples = [read_labelled(task.source), read_labelled(task.target)]
    rows = (worker.domain(job, one).pixels for one in samples)
    of_source, of_target = (store.get(torch.arange(len(store)))[:, 0] for store in rows)
    labels = torch.from_numpy(np.asarray(samples[0].labels))
    some, bank = balanced_index(labels), bank_index(len(of_target))
    kept = of_target[bank]
    described = build_reference(of_source[some], labels[some], kept).describe(kept)
    return lambda: described, bank


def stored_signs(content: bytes) -> Signs:
    """Return what the features of a trained backbone said, from the outputs of a run.

    Rows that are centred like the source are not stored: the target is taken to have known images.
    """
    arrays = np.load(io.BytesIO(content), allow_pickle=False)
    rows, images = (
        torch.from_numpy(arrays[name].astype(np.float32)) for name in ("rows", "reference_images")
    )
    reference = SourceReference(rows.shape[1], rows.shape[1], len(images))
    reference.images.copy_(images)
    reference.labels.copy_(torch.from_numpy(arrays["reference_labels"].astype(np.int64)))
    reference.transform = lambda target, centred=True: target  # type: ignore[method-assign]
    described = reference.describe(rows)
    assert described is not None
    known = dataclasses.replace(described, uncentred_level=float("inf"))
    return lambda: known, torch.arange(len(rows))


def stored_outputs(content: bytes, refined: bool, n_classes: int) -> tuple[Scored, Any]:
    """Return outputs and names of the true classes; of the probabilities, the four largest."""
    arrays = np.load(io.BytesIO(content), allow_pickle=False)
    prefix = "refined" if refined else "alone"
    best, score = arrays[f"{prefix}_class"], arrays[f"{prefix}_score"]
    probs = np.zeros((len(score), n_classes))
    np.put_along_axis(probs, best.astype(np.int64), arrays[f"{prefix}_prob"].astype(np.float64), 1)
    names = arrays["classes"][arrays["labels"]]
    return Scored(probs, score.astype(np.float64), np.empty((len(score), 0), np.float32)), names


def refit(result: Result, content: bytes, kept: Signs) -> Result:
    """Score a result again under the rules of this version."""
    classes = (result.known_classes, result.shared_classes)
    scored, names = stored_outputs(content, result.refine != "none", len(result.known_classes))
    rules = fit_rules(target_outputs(scored, *kept))
    found = compare(scored, names, result.known_classes, rules)
    nan = {k: float("nan") if v is None else v for k, v in result.ranking.items()}
    scores = score_rules(found, Ranking(**nan), rules, classes)
    made_with = result.made_with | {"rules": commit_of_code()}
    return dataclasses.replace(result, rules=scores, made_with=made_with)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("plan", type=Path)
    parser.add_argument("dumps", type=Path)
    parser.add_argument("out", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    worker = Worker(dump=False)
    given.out.mkdir(parents=True, exist_ok=True)
    refitted: dict[str, list[Result]] = {}
    signs: dict[tuple[Any, ...], Signs] = {}
    for part, job in read_plan(given.plan):
        stored, archive = read_dump(given.dumps, part["name"])
        results, member = stored(job)
        if not results:
            continue
        target = (network_key(job), job.shift, job.source, job.target, job.label_noise)
        if job.label_noise:
            target += (job.seed,)
        if not job.options.get("frozen"):
            signs[target] = stored_signs(archive.read(member))
        elif target not in signs:
            embed_all(part, job)
            signs[target] = signs_of(worker, part, job)
        for one in results:
            found = refit(one, archive.read(member), signs[target])
            refitted.setdefault(part["name"], []).append(found)
    for name, results in refitted.items():
        write_results(given.out / f"{name}.jsonl", results)
        print(name, len(results), flush=True)


@functools.cache
def read_dump(folder: Path, name: str) -> tuple[Lookup, zipfile.ZipFile]:
    """Read the results of a part of the plan and its outputs.

    Returns:
        A function from a job to its results, none where it has not run, and to the name of its
        outputs in the archive. The hash in that name may be of an earlier version.
    """
    archive = zipfile.ZipFile(folder / f"dump-{name}.zip")
    stored: dict[tuple[str | int | float, ...], list[Result]] = {}
    for one in read_results(folder / f"{name}.jsonl"):
        key = (one.entry, one.setting, one.unknown_classes, one.source, one.target, one.seed)
        key += (one.label_noise,)
        stored.setdefault(key, []).append(one)

    def lookup(job: Job) -> tuple[list[Result], str]:
        whole = len(load_protocol(job.data).splits[job.setting].target_private)
        n_unknown = whole if job.unknown_classes is None else job.unknown_classes
        key = (job.entry, job.setting, n_unknown, job.source, job.target, job.seed)
        key += (job.label_noise,)
        begin = f"{job.shift}_{job.name.rpartition('_')[0]}_"
        members = [one for one in archive.namelist() if one.startswith(begin)]
        if len(members) > 1:  # runs that differ in something that the readable name lacks
            members = [one for one in members if one == f"{job.shift}_{job.name}.npz"]
        return (stored.get(key, []), members[0]) if members else ([], "")

    return lookup, archive


if __name__ == "__main__":
    main()
