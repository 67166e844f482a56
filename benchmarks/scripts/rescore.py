"""Fit refinement and reject rules of this version to the trained models of finished runs.

    python benchmarks/scripts/rescore.py RUNS OUT

RUNS is a folder of `unida bench --keep-models`; OUT gets `results.jsonl`. Training is left as it
was; everything after it is done as `unida bench` does it. `made_with` names the commit of the
training and, as `rules`, that of the rules.
"""

import argparse
import dataclasses
import json
from pathlib import Path

import numpy as np
import torch

from unida.bench.jobs import Job
from unida.bench.results import RESULT, Result, read_results, write_results
from unida.bench.scoring import commit_of_code, score_run
from unida.data.domain import load_domains
from unida.data.embeddings import embed
from unida.data.samples import read_labelled, read_unlabelled
from unida.methods.presets import load_config
from unida.model import load
from unida.protocols.tasks import TaskFiles
from unida.result import fit_decision
from unida.training.run_folder import RunFolder
from unida.utils.devices import pick_device
from unida.utils.progress import NO_PROGRESS, ignore


def rescore(folder: Path, protocol: Path | None = None) -> list[Result]:
    """Return the results of a run, the method alone and refined, under the rules of today.

    Args:
        folder: of the run.
        protocol: of its data set, where that is none of ours.
    """
    run = RunFolder(folder)
    before = read_results(folder / RESULT)[0]
    config = load_config(run.config).replace(refine="knn", reject="share")
    model, device = load(folder, "cpu"), pick_device("cpu")
    method, backbone = model.method, model.backbone
    samples = {
        "source": read_labelled(config.data.source),
        "target": read_unlabelled(config.data.target),
    }
    domains = load_domains(config, device, samples, NO_PROGRESS.task)
    if config.model.frozen:
        domains = {k: embed(domain, backbone, (), config, ignore) for k, domain in domains.items()}
    source, target = domains["source"], domains["target"]
    history = [[json.loads(line) for line in run.metrics.read_text().splitlines()]]
    held_out = source.part(np.arange(0))
    config = config.replace(settings=method.config)
    result = fit_decision(config, [method], backbone, source, held_out, target, history)
    made_with = before.made_with | {"rules": commit_of_code()}
    task = _task(before, config.data.source, config.data.target)
    scored = score_run(result, _job(before, protocol), task)
    return [
        dataclasses.replace(one, made_with=made_with, options=before.options) for one, _ in scored
    ]


def _job(result: Result, protocol: Path | None) -> Job:
    return Job(
        str(protocol or result.data),
        result.setting,
        result.source,
        result.target,
        result.entry,
        result.seed,
        label_noise=result.label_noise,
    )


def _task(result: Result, source: str, target: str) -> TaskFiles:
    return TaskFiles(
        source=Path(source),
        target=Path(target),
        known_classes=tuple(result.known_classes),
        shared_classes=tuple(result.shared_classes),
        unknown_classes=result.unknown_classes,
        source_images=result.images["source"],
        target_images=result.images["target"],
        unknown_images=result.images["unknown"],
        changed_labels=0,
    )


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", type=Path, help="folder of unida bench --keep-models")
    parser.add_argument("out", type=Path, help="folder of the new results")
    parser.add_argument("--protocol", type=Path, help="file of the data set, if it is none of ours")
    parser.add_argument("--part", default="0/1", help="I/N: every N-th run from the I-th on")
    given = parser.parse_args(argv)
    torch.set_num_threads(1)
    first, every = map(int, given.part.split("/"))
    finished = sorted(file.parent for file in given.runs.glob(f"runs/*/{RESULT}"))
    for folder in finished[first::every]:
        place = given.out / "runs" / folder.name
        if not (place / RESULT).exists():
            place.mkdir(parents=True, exist_ok=True)
            write_results(place / RESULT, rescore(folder, given.protocol))
            print(folder.name, flush=True)


if __name__ == "__main__":
    main()
