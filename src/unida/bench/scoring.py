"""A finished run against the true labels: its results, and the arrays figures are drawn from."""

import dataclasses
import functools
import json
import os
import platform
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from unida import __version__
from unida.bench.arrays import Arrays
from unida.bench.discovery import score_discovery
from unida.bench.jobs import Job
from unida.bench.results import ALONE, Result, RuleResult, without_off
from unida.config import ENVIRONMENT, RunConfig
from unida.data.domain import Domain, load_domains
from unida.data.embeddings import embed
from unida.data.samples import read_labelled
from unida.decision.inference import fit_target, predict_images
from unida.decision.predictor import Predictor
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
from unida.ops.pca import joint_pca
from unida.protocols.tasks import TaskFiles, load_protocol
from unida.result import RunResult, ScoredDomain, balanced
from unida.types import Features, Scored
from unida.utils.devices import pick_device
from unida.utils.progress import NO_PROGRESS, ignore

DIMENSIONS = 50
"""Of the features that figures are drawn from."""


class Oracle:
    """Score every checkpoint with target labels. For reference only: it selects nothing."""

    def __init__(self, task: TaskFiles, config: RunConfig, folder: Path) -> None:
        self.task, self.config, self.file = task, config, folder / "oracle.jsonl"
        self._domains: dict[str, Domain] = {}

    def __call__(self, step: int, method: Method) -> None:
        if not self._domains:
            self._domains = _load_domains(self.config, self.task, method)
        source, target = self._domains["source"], self._domains["target"]
        refine, size = self.config.decision.refine, self.config.data.image_size
        fitted = fit_target(method, target.pixels, source, size, refine, features=False)
        names = true_names(target.samples.paths, self.task)
        line: dict[str, Any] = {"step": step}
        for name, scored in ((ALONE, fitted.classifier), (refine, fitted.refined)):
            found = compare(
                scored, names, self.task.known_classes, fit_rules(fitted.outputs(scored))
            )
            line[name] = defined({rule: score.h for rule, score in found.scores.items()})
        with self.file.open("a") as file:
            file.write(json.dumps(line) + "\n")

    def best(self, refine: str) -> dict[str, dict[str, float]]:
        """Return the best H of any checkpoint and its step, by rule; none where H is undefined."""
        lines = [json.loads(line) for line in self.file.read_text().splitlines()]
        best = {}
        for rule in lines[0][refine]:
            found = [line for line in lines if line[refine][rule] is not None]
            if found:
                line = max(found, key=lambda line: float(line[refine][rule]))
                best[rule] = {"h": line[refine][rule], "step": line["step"]}
        return best


def score_run(
    run: RunResult, job: Job, task: TaskFiles, oracle: Oracle | None = None
) -> list[tuple[Result, Arrays]]:
    """Score the last step of a run under every rule: the method alone, then refined if it was."""
    refine, target, model = run.config.decision.refine, run.target, run.model
    assert target.alone is not None
    alone = (ALONE, target.classifier, fit_rules(target.alone))
    if refine == ALONE:
        alone = (ALONE, target.classifier, model.rules)
    refined = [(refine, target.scored, model.rules)] if refine != ALONE else []
    names = true_names(target.samples.paths, task)
    backbone = functools.cache(functools.partial(backbone_features, run))
    return [
        _score(run, job, task, names, which, scored, rules, oracle, backbone)
        for which, scored, rules in (alone, *refined)
    ]


def _score(
    run: RunResult,
    job: Job,
    task: TaskFiles,
    names: npt.NDArray[np.str_],
    refine: str,
    scored: Scored,
    rules: Mapping[str, Rule],
    oracle: Oracle | None,
    backbone: Callable[[], list[Features]],
) -> tuple[Result, Arrays]:
    found = compare(scored, names, task.known_classes, rules)
    ranking = rank(found)
    model, config = run.model, run.config
    n_unknown = int((found.labels == len(task.known_classes)).sum())
    result = Result(
        data=load_protocol(job.data).name,
        setting=job.setting,
        source=job.source,
        target=job.target,
        entry=job.entry,
        method=model.method_name,
        refine=refine,
        seed=job.seed,
        label_noise=job.label_noise,
        unknown_classes=task.unknown_classes,
        known_classes=list(task.known_classes),
        shared_classes=list(task.shared_classes),
        images={"source": int(run.counts.sum()), "target": len(names), "unknown": n_unknown},
        options=_options(config),
        settings=dataclasses.asdict(model.method.config),
        rules=score_rules(found, ranking, rules, (task.known_classes, task.shared_classes)),
        ranking=defined(dataclasses.asdict(ranking)),
        seconds=round(training_seconds(run.history), 2),
        parameters=sum(p.numel() for p in model.predictor.parameters()),
        made_with=_made_with(model, config),
        oracle=oracle.best(refine) if oracle else {},
        discovery=_discovery(run, found, rules) if job.discover else {},
    )
    return result, _arrays(found, run.source, backbone)


def _discovery(
    run: RunResult, found: Evaluation, rules: Mapping[str, Rule]
) -> dict[str, float | None]:
    name = run.config.decision.reject
    rejected = rules[name].is_unknown(found.scored.unknown_score)
    return score_discovery(found, name, rejected, run.target.backbone, run.config.optim.seed)


def backbone_features(run: RunResult) -> list[Features]:
    """Return the backbone's features of target and source sample, in one PCA space.

    Of a frozen backbone there are none: they are the same for every method.
    """
    if run.config.model.frozen:
        return []
    samples = {"source": run.source.samples, "target": run.target.samples}
    device = run.model.device
    domains = load_domains(run.config, device, samples, NO_PROGRESS.task)
    found: list[Tensor] = []
    predictor, size = Predictor(run.model.method), run.config.data.image_size
    for name in ("target", "source"):
        predict_images(predictor, domains[name].pixels, size, device, False, found)
    return joint_pca([features.float().cpu().numpy() for features in found], DIMENSIONS)


def true_names(paths: Sequence[Path], task: TaskFiles) -> npt.NDArray[np.str_]:
    """Return the true class of each target image."""
    samples = read_labelled(task.target)
    assert samples.labels is not None
    label_of = dict(zip(samples.paths, samples.labels, strict=True))
    return np.array(samples.classes)[[label_of[path] for path in paths]]


def score_rules(
    found: Evaluation,
    ranking: Ranking,
    rules: Mapping[str, Rule],
    classes: tuple[Sequence[str], Sequence[str]],
) -> dict[str, RuleResult]:
    """Return the scores under each rule, by name; `classes` are the known and the shared ones."""
    known, shared = classes
    rows = [known.index(name) for name in shared] + [len(known)]

    def under(name: str, rule: Rule) -> RuleResult:
        counts = confusion(found.labels, predicted_labels(found.scored, rule), len(known))
        scores = all_scores(found.scores[name], ranking)
        return RuleResult(
            rule.name,
            rule.threshold,
            rule.note,
            scores,
            counts[rows].tolist(),
            rule.share,
            rule.interval,
        )

    return {name: under(name, rules[name]) for name in found.scores}


def training_seconds(history: Sequence[Sequence[Mapping[str, Any]]]) -> float:
    """Return the time of training over all members of an ensemble."""
    total = 0.0
    for lines in history:
        last = 0
        for line in lines:
            total += (line["step"] - last) / line["steps_per_second"]
            last = line["step"]
    return total


def _load_domains(config: RunConfig, task: TaskFiles, method: Method) -> dict[str, Domain]:
    """Load the domains as the run does, of the source a sample; embeddings are cached."""
    samples = {"source": read_labelled(task.source), "target": read_labelled(task.target)}
    domains = load_domains(config, pick_device(config.compute.device), samples, NO_PROGRESS.task)
    if config.model.frozen:
        views = {"source": method.source_views, "target": method.target_views}
        domains = {
            name: embed(domain, method.backbone, views[name], config, ignore)
            for name, domain in domains.items()
        }
    return domains | {"source": balanced(domains["source"])}


def _arrays(
    found: Evaluation, source: ScoredDomain, backbone: Callable[[], list[Features]]
) -> Arrays:
    """Collect what figures need; features of both domains in the same PCA space."""
    scored = found.scored
    y = backbone()
    of_target, of_source = joint_pca([scored.features, source.scored.features], DIMENSIONS)
    return Arrays(
        labels=found.labels,
        true_class=found.true_classes,
        best=scored.probs.argmax(1),
        confidence=scored.probs.max(1),
        unknown_score=scored.unknown_score,
        features=of_target,
        source_labels=source.labels,
        source_features=of_source,
        backbone=y[0] if y else None,
        source_backbone=y[1] if y else None,
    )


def _options(config: RunConfig) -> dict[str, Any]:
    """Return the options that were in force; a frozen network has no use for some."""
    left_out = ENVIRONMENT | {"method", "settings", "seed", "refine"}
    if config.model.frozen:
        unused = {"backbone_lr": None, "batch_norm": "auto", "precision": "auto"}
    else:
        unused = {"precision": "auto"}
    values = without_off(config.flat() | unused)
    weights = config.model.weights
    return {k: v for k, v in values.items() if k not in left_out} | {
        "weights": Path(weights).name if weights else None
    }


def _made_with(model: Model, config: RunConfig) -> dict[str, str]:
    cuda = model.device.type == "cuda"
    return {
        "unida": __version__,
        "commit": commit_of_code(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "precision": config.compute.precision,
        "device": torch.cuda.get_device_name(model.device) if cuda else platform.machine(),
        "cores": str(os.cpu_count()),
    }


@functools.cache
def commit_of_code() -> str:
    """Return the commit; from UNIDA_COMMIT where the code was copied without its history."""
    folder = str(Path(__file__).parent)
    command = ["git", "-C", folder, "describe", "--always", "--dirty", "--abbrev=9"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:
        found = ""
    return os.environ.get("UNIDA_COMMIT") or found or "unknown"
