"""What a run leaves: outputs on its domains, the fitted decision, and the files of the run."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unida.config import RunConfig
from unida.data.domain import Domain, cache_folder
from unida.data.samples import Samples
from unida.decision.calibration import Calibration, calibrate, tempered
from unida.decision.category_shift import SourceReference, balanced_index
from unida.decision.inference import fit_target, mean_scored, predict_images
from unida.decision.predictor import AnyPredictor, combine
from unida.decision.rejection import TargetOutputs, fit_rules, pick_rule, quantiles
from unida.evaluation.diagnostics import Diagnostic, diagnose, images_per_class
from unida.evaluation.feature_store import MOST_IMAGES, MOST_OF_SOURCE, build_feature_store
from unida.evaluation.probabilities import write_probabilities
from unida.methods import Method
from unida.model import Model, to_predictions
from unida.models.backbones.base import Backbone
from unida.ops.pca import Projection
from unida.training.run_folder import RunFolder, write_text
from unida.types import Features, IntArray, Scored
from unida.utils import distributed
from unida.utils.chunking import subsample
from unida.utils.logs import logger


@dataclass(frozen=True)
class ScoredDomain:
    """Images of a domain with the outputs of a trained model.

    Attributes:
        samples: the images.
        scored: outputs after refinement.
        classifier: outputs of the method alone; of the target only, elsewhere as `scored`.
        backbone: principal components of the backbone's features, of target and source sample
            the same; (N, 0) elsewhere, and where no features are kept.
        alone: what reject rules of the method alone are fitted to; of the target only.
    """

    samples: Samples
    scored: Scored
    classifier: Scored
    backbone: Features
    alone: TargetOutputs | None = None

    @property
    def labels(self) -> IntArray:
        assert self.samples.labels is not None
        return self.samples.labels


@dataclass(frozen=True)
class RunResult:
    """What a run leaves.

    Attributes:
        config: as it was in force, no value `auto`.
        model: trained.
        source: a sample of the images it was trained on.
        held_out: source images kept out of training; there may be none.
        target: all target images.
        calibration: of the confidences, on the held-out images.
        counts: source images of each class that were trained on.
        history: the lines of metrics.jsonl, of each member of the ensemble.
    """

    config: RunConfig
    model: Model
    source: ScoredDomain
    held_out: ScoredDomain
    target: ScoredDomain
    calibration: Calibration
    counts: IntArray
    history: list[list[dict[str, Any]]]


def fit_decision(
    config: RunConfig,
    methods: list[Method],
    backbone: Backbone,
    source: Domain,
    held_out: Domain,
    target: Domain,
    history: list[list[dict[str, Any]]],
    reference: SourceReference | None = None,
) -> RunResult:
    """Fit refinement, reject rules and calibration, with every image forwarded once.

    A source without images is one whose images are not at hand; `reference` stands for them.
    """
    size, device = config.data.image_size, target.device
    features = len(target) <= MOST_IMAGES
    some_source = balanced(source)
    fitted = [
        fit_target(
            method, target.pixels, some_source, size, config.decision.refine, features, reference
        )
        for method in methods
    ]
    predictor = combine([one.predictor for one in fitted], backbone).to(device)
    refined = mean_scored([one.refined for one in fitted])
    classifier = mean_scored([one.classifier for one in fitted])
    some = source.part(subsample(len(source), MOST_OF_SOURCE, config.optim.seed, "atlas"))
    known = _score(predictor, held_out, size)
    calibration = calibrate(known.scored.probs, known.labels)
    # A transductive method's outputs depend on the images beside an image: they do not carry over.
    alone = not predictor.method.about.transductive
    of_known = quantiles(known.scored.unknown_score if alone else np.empty(0))
    rules, reject = fit_rules(fitted[0].outputs(refined), of_known), config.decision.reject
    model = Model(
        predictor=predictor,
        method_name=config.method,
        classes=source.samples.classes,
        image_size=size,
        pixel_size=config.data.pixel_size,
        rules=rules | {reject: pick_rule(rules, reject, of_known)},
        reject=reject,
        device=device,
        temperature=calibration.temperature,
        known=of_known,
        target=quantiles(refined.unknown_score),
        reference=fitted[0].reference,
        origin=Path(config.output.out),
        cache_dir=cache_folder(config),
    )
    return RunResult(
        config=config,
        model=model,
        calibration=calibration,
        source=_score(predictor, some, size, fitted[0].projection if features else None),
        held_out=known,
        target=ScoredDomain(
            target.samples, refined, classifier, fitted[0].backbone, fitted[0].outputs(classifier)
        ),
        counts=images_per_class(source.samples),
        history=history,
    )


def balanced(source: Domain) -> Domain:
    """Return the source images that a target is compared with, as many of each class."""
    assert source.samples.labels is not None
    if not len(source):
        return source
    return source.part(balanced_index(torch.from_numpy(source.samples.labels)).numpy())


def _score(
    predictor: AnyPredictor, domain: Domain, size: int, projection: Projection | None = None
) -> ScoredDomain:
    """Score all images of a domain, if any; with a projection features are kept."""
    backbone = np.empty((len(domain), 0), np.float32)
    if len(domain):
        y: list[Tensor] | None = [] if projection else None
        scored = predict_images(predictor, domain.pixels, size, domain.device, bool(projection), y)
        if projection and y:
            backbone = projection(y[0]).cpu().numpy()
    else:
        n_classes = predictor.method.sizes.n_classes
        scored = Scored(np.empty((0, n_classes)), np.empty(0), np.empty((0, 0), np.float32))
    return ScoredDomain(domain.samples, scored, scored, backbone)


def write_result(result: RunResult, folder: RunFolder, found: list[Diagnostic]) -> None:
    """Write the model, what it says about the target, and diagnostics; log a summary.

    Args:
        result: of the run.
        folder: of the run.
        found: what looked wrong with the images.
    """
    model, target, source = result.model, result.target, result.source
    of_source, y_of_source = source.scored.features, source.backbone
    if not len(source.samples):  # as wide as those of the target
        of_source, y_of_source = target.scored.features[:0], target.backbone[:0]
    model.save(folder.model, slim=result.config.output.slim, half=result.config.output.half)
    rule = model.rule()
    labels = to_predictions(
        target.samples.paths, target.scored, rule, model.classes, model.temperature
    )
    folder.write_predictions(labels)
    if result.calibration.images:
        write_text(folder.calibration, result.calibration.to_json())
    if target.scored.features.shape[1]:
        build_feature_store(
            target.scored.features,
            target.scored.probs,
            of_source,
            source.labels,
            source.samples.paths,
            (target.backbone, y_of_source),
        ).save(folder.features)
        probs = tempered(target.scored.probs, model.temperature)
        write_probabilities(folder.probabilities, probs)
    n_unknown = int(rule.is_unknown(target.scored.unknown_score).sum())
    logger.info(
        "%d target images, %d of them unknown by the rule %r (%s): %s",
        *(len(target.samples), n_unknown, rule.name, rule.note, folder.predictions),
    )
    logger.info("Confidence: %s.", result.calibration.note)
    if distributed.is_main_process():
        diagnostics = diagnose(
            classes=model.classes,
            counts=result.counts,
            rule=rule,
            target=target.scored,
            source=(source.scored, source.labels),
            held_out=(result.held_out.scored, result.held_out.labels),
            losses=np.array([line["loss"] for line in result.history[0]]),
        )
        complete = dataclasses.replace(diagnostics, warnings=[*found, *diagnostics.warnings])
        write_text(folder.diagnostics, complete.to_json())
        logger.info("Without labels: %s.", diagnostics)
        log_diagnostics(diagnostics.warnings)
    folder.finish()


def log_diagnostics(found: list[Diagnostic]) -> None:
    """Log each as a warning."""
    for one in found:
        logger.warning("%s", one)
