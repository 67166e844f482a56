"""A finished run against the truth: its result, and the arrays the figures are drawn from."""

import dataclasses
import functools
import json
import math
import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from sklearn.decomposition import PCA

from unida import __version__
from unida.bench.arrays import Arrays
from unida.bench.jobs import Job
from unida.bench.results import ALONE, Result, RuleResult, without_off
from unida.config import ENVIRONMENT, RunConfig
from unida.data.augmentations import View
from unida.data.domain import Domain, load_domains
from unida.data.embeddings import embed
from unida.data.pixels import ArrayStore
from unida.data.samples import Samples, read_labelled
from unida.decision.inference import predict_images
from unida.decision.rejection import Rule, fit_rules
from unida.evaluation.evaluate import (
    Evaluation,
    all_scores,
    compare,
    defined,
    predicted_labels,
    rank,
)
from unida.evaluation.metrics import Ranking, confusion
from unida.methods import Method
from unida.model import Model
from unida.protocols.tasks import TaskFiles, load_protocol
from unida.training.loop import resolve_auto
from unida.training.run_folder import RunFolder
from unida.types import IntArray
from unida.utils.chunking import MAX_SAMPLES, subsample
from unida.utils.devices import pick_device, pick_dtype

Features = npt.NDArray[np.float32]

SOURCE_SAMPLE = 2000
"""Source images whose features are kept for pictures."""


class Oracle:
    """Scores every checkpoint with target labels. For reference only: it selects nothing."""

    def __init__(self, task: TaskFiles, config: RunConfig, folder: Path) -> None:
        self.task, self.config, self.file = task, config, folder / "oracle.jsonl"
        self._target: Domain | None = None

    def __call__(self, step: int, method: Method) -> None:
        if self._target is None:
            samples = read_labelled(self.task.target)
            self._target = load_images(self.config, samples, method, method.target_views)
        target = self._target
        scored = predict_images(
            method, target.pixels, self.config.data.image_size, target.device, features=False
        )
        rules = fit_rules(scored.unknown_score)
        found = compare(scored, true_names(target.samples), self.task.known_classes, rules)
        h = {name: score.h for name, score in found.scores.items()}
        with self.file.open("a") as file:
            file.write(json.dumps({"step": step, "h": h}) + "\n")

    def best(self) -> dict[str, dict[str, float]]:
        """The best H of any checkpoint and its step, by rule; a resumed run repeats a line."""
        lines = [json.loads(line) for line in self.file.read_text().splitlines()]
        best = {}
        for rule in lines[0]["h"]:
            line = max(lines, key=lambda line: _or_less(line["h"][rule]))
            best[rule] = {"h": line["h"][rule], "step": line["step"]}
        return best


def score_run(
    model: Model, job: Job, config: RunConfig, task: TaskFiles, oracle: Oracle | None
) -> tuple[Result, Arrays]:
    """Scores the last step of a run under every rule."""
    target = load_images(
        config, read_labelled(task.target), model.method, model.method.target_views
    )
    scored = predict_images(model.method, target.pixels, config.data.image_size, model.device)
    found = compare(scored, true_names(target.samples), task.known_classes, model.rules)
    ranking = rank(found)
    unknown = int((found.labels == len(task.known_classes)).sum())
    source, from_source = _source_sample(model, config, task)
    result = Result(
        data=load_protocol(job.data).name,
        setting=job.setting,
        source=job.source,
        target=job.target,
        entry=job.entry,
        method=model.method_name,
        refine=ALONE,
        seed=job.seed,
        label_noise=job.label_noise,
        unknown_classes=task.unknown_classes,
        known_classes=list(task.known_classes),
        shared_classes=list(task.shared_classes),
        images={"source": source, "target": len(target), "unknown": unknown},
        options=_options(config, model.method),
        settings=dataclasses.asdict(model.method.config),
        rules=under_rules(found, ranking, model.rules, (task.known_classes, task.shared_classes)),
        ranking=defined(dataclasses.asdict(ranking)),
        seconds=round(
            _seconds_of_training(RunFolder(config.output.out), config.decision.ensemble), 2
        ),
        parameters=sum(p.numel() for p in model.method.parameters()),
        made_with=_made_with(model, config),
        oracle=oracle.best() if oracle else {},
    )
    return result, _arrays(found, from_source)


def true_names(samples: Samples) -> npt.NDArray[np.str_]:
    """True class of each image."""
    assert samples.labels is not None
    return np.array(samples.classes)[samples.labels]


def under_rules(
    found: Evaluation,
    ranking: Ranking,
    rules: Mapping[str, Rule],
    classes: tuple[Sequence[str], Sequence[str]],
) -> dict[str, RuleResult]:
    """How a run scored under each rule, by name; `classes` are the known and the shared ones."""
    known, shared = classes
    shown = [known.index(name) for name in shared] + [len(known)]

    def under(name: str, rule: Rule) -> RuleResult:
        counts = confusion(found.labels, predicted_labels(found.scored, rule), len(known))
        scores = all_scores(found.scores[name], ranking)
        return RuleResult(rule.name, rule.threshold, rule.note, scores, counts[shown].tolist())

    return {name: under(name, rules[name]) for name in found.scores}


def load_images(
    config: RunConfig, samples: Samples, method: Method, views: tuple[View, ...]
) -> Domain:
    """Images as the run saw them; a frozen run's embeddings are there already."""
    device = pick_device(config.compute.device)
    domain = load_domains(config, device, {"images": samples}, lambda name: _quietly)["images"]
    return (
        embed(domain, method.backbone, views, config, _quietly) if config.model.frozen else domain
    )


def _quietly(done: int, total: int) -> None:
    """Nothing to show: the pixels are cached, or few."""


def _source_sample(
    model: Model, config: RunConfig, task: TaskFiles
) -> tuple[int, tuple[IntArray, Features]]:
    """How many source images there are; labels and features of some, evenly spaced."""
    samples = read_labelled(task.source)
    n, views = len(samples), model.method.source_views
    if config.model.frozen:  # embeddings are looked up by the whole domain
        domain = _some(load_images(config, samples, model.method, views))
    else:
        domain = load_images(config, samples.keep(_evenly(n), ()), model.method, views)
    scored = predict_images(model.method, domain.pixels, config.data.image_size, model.device)
    assert domain.samples.labels is not None
    return n, (domain.samples.labels, scored.features)


def _some(domain: Domain) -> Domain:
    keep = _evenly(len(domain))
    rows = ArrayStore(domain.pixels.get(torch.from_numpy(keep)))
    return Domain(domain.samples.keep(keep, ()), rows, domain.device)


def _evenly(n: int) -> IntArray:
    return np.unique(np.linspace(0, n - 1, SOURCE_SAMPLE).astype(np.int64))


def _arrays(found: Evaluation, source: tuple[IntArray, Features]) -> Arrays:
    """Features of both domains in the same few directions: all a picture needs."""
    labels, features = source
    scored = found.scored
    of_target, of_source = _in_few_directions(scored.features, features)
    return Arrays(
        labels=found.labels,
        true_class=found.true_classes,
        best=scored.probs.argmax(1),
        confidence=scored.probs.max(1),
        unknown_score=scored.unknown_score,
        features=of_target.astype(np.float32),
        source_labels=labels,
        source_features=of_source.astype(np.float32),
    )


def _in_few_directions(target: Features, source: Features) -> tuple[Features, Features]:
    """Principal components, 50 at the most; those of a sample, where the target is very large."""
    some = subsample(len(target), MAX_SAMPLES, 0, "directions")
    both = np.concatenate([target[some], source])
    pca = PCA(min(50, *both.shape), svd_solver="randomized", random_state=0)
    of_target, of_source = np.split(pca.fit_transform(both), [len(some)])
    if len(some) < len(target):
        parts = np.array_split(target, math.ceil(len(target) / MAX_SAMPLES))
        of_target = np.concatenate([pca.transform(part) for part in parts])
    return of_target, of_source


def _options(config: RunConfig, method: Method) -> dict[str, Any]:
    """As they were in force; a frozen network has no use for those left to its weights."""
    config = config if config.model.frozen else resolve_auto(config, method.backbone)
    left_out = ENVIRONMENT | {"method", "settings", "seed", "refine"}
    values = without_off(config.flat())
    return {k: v for k, v in values.items() if k not in left_out} | {
        "weights": Path(config.model.weights).name if config.model.weights else None
    }


def _seconds_of_training(run: RunFolder, members: int) -> float:
    """Over all members, and all the stretches of a run that was stopped and resumed."""
    total = 0.0
    for number in range(members):
        last = 0
        for line in map(json.loads, run.member(number).metrics.read_text().splitlines()):
            total += (line["step"] - last) / line["steps_per_second"]
            last = line["step"]
    return total


def _made_with(model: Model, config: RunConfig) -> dict[str, str]:
    cuda = model.device.type == "cuda"
    return {
        "unida": __version__,
        "commit": commit_of_code(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "precision": _precision(config, model.device),
        "device": torch.cuda.get_device_name(model.device) if cuda else platform.machine(),
        "cores": str(os.cpu_count()),
    }


def _precision(config: RunConfig, device: torch.device) -> str:
    """What `auto` came to."""
    if config.compute.precision != "auto":
        return config.compute.precision
    return "bf16" if pick_dtype("auto", device) else "fp32"


@functools.cache
def commit_of_code() -> str:
    """From UNIDA_COMMIT where the code was copied without its history."""
    here = str(Path(__file__).parent)
    command = ["git", "-C", here, "describe", "--always", "--dirty", "--abbrev=9"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:
        found = ""
    return os.environ.get("UNIDA_COMMIT") or found or "unknown"


def _or_less(value: float) -> float:
    return -1.0 if math.isnan(value) else value
