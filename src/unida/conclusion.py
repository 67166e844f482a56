"""What is left of a run once its method is trained: a model, verdicts, and how good they seem."""

import dataclasses
import json
import logging
from dataclasses import dataclass

import numpy as np

from unida.config import RunConfig
from unida.data.domain import Domain
from unida.decision.calibration import Calibration, calibrate
from unida.decision.inference import predict_images
from unida.decision.prototypes import FEWEST, Anchors
from unida.decision.rejection import fit_rules, pick_rule, quantiles
from unida.evaluation.diagnostics import (
    Diagnostic,
    count_images,
    diagnose,
)
from unida.evaluation.feature_store import MOST_IMAGES, MOST_OF_SOURCE, build_feature_store
from unida.methods import Method
from unida.model import Model, to_predictions
from unida.training.run_folder import RunFolder, write_text
from unida.types import IntArray, Scored
from unida.utils import distributed
from unida.utils.chunking import subsample

logger = logging.getLogger("unida")


@dataclass(frozen=True)
class ScoredDomain:
    """A domain, or some of it, and what the method says of its images."""

    domain: Domain
    scored: Scored

    @property
    def labels(self) -> IntArray:
        assert self.domain.samples.labels is not None
        return self.domain.samples.labels


def conclude(
    method: Method,
    source: Domain,
    held_out: Domain,
    target: Domain,
    config: RunConfig,
    concerns: list[Diagnostic],
) -> Model:
    """Calibrates, fits the reject rules, writes what is left of the run, and says what it is.

    Args:
        method: trained.
        source: what it learned from.
        held_out: source images that it did not see; maybe none.
        target: every image of it gets a verdict.
        config: of the run.
        concerns: about the images, said already.
    """
    run, mapped = RunFolder(config.output.out), len(target) <= MOST_IMAGES
    some = source.part(subsample(len(source), MOST_OF_SOURCE, config.optim.seed, "atlas"))
    learned = _see(method, some, config, features=mapped)
    known, strange = _see(method, held_out, config), _see(method, target, config, features=mapped)
    calibration = calibrate(known.scored.probs, known.labels)
    model = _model(method, known, strange, calibration, config)
    model.save(run.model)
    _write_verdicts(model, strange, run)
    if calibration.images:
        write_text(run.calibration, calibration.to_json())
    if mapped:
        _write_atlas(learned, strange, run)
    _log_if_unanchored(method)
    logger.info(f"Confidence: {calibration.note}.")
    if distributed.is_main_process():
        _judge(model, learned, known, strange, run, concerns)
    run.finish()
    return model


def log_warnings(concerns: list[Diagnostic]) -> None:
    for concern in concerns:
        logger.warning("%s", concern)


def _see(method: Method, domain: Domain, config: RunConfig, features: bool = False) -> ScoredDomain:
    """Looks at all images of a domain; there may be none."""
    if len(domain):
        size, where = config.data.image_size, domain.device
        return ScoredDomain(
            domain, predict_images(method, domain.pixels, size, where, features=features)
        )
    nothing = np.empty((0, method.sizes.n_classes))
    return ScoredDomain(domain, Scored(nothing, np.empty(0), np.empty((0, 0), np.float32)))


def _model(
    method: Method,
    known: ScoredDomain,
    strange: ScoredDomain,
    calibration: Calibration,
    config: RunConfig,
) -> Model:
    """The method with its reject rules and its temperature."""
    # A verdict that depends on the images beside it says nothing about those beside others.
    alone = not method.about.transductive
    held_out = quantiles(known.scored.unknown_score if alone else np.empty(0))
    rules = fit_rules(strange.scored.unknown_score, held_out)
    return Model(
        method=method,
        method_name=config.method,
        classes=known.domain.samples.classes,
        image_size=config.data.image_size,
        pixel_size=config.data.pixel_size,
        rules=rules | {config.decision.reject: pick_rule(rules, config.decision.reject, held_out)},
        reject=config.decision.reject,
        device=strange.domain.device,
        temperature=calibration.temperature,
        known=held_out,
    )


def _write_verdicts(model: Model, target: ScoredDomain, run: RunFolder) -> None:
    rule, paths = model.rule(), target.domain.samples.paths
    run.write_predictions(
        to_predictions(paths, target.scored, rule, model.classes, model.temperature)
    )
    unknown = rule.is_unknown(target.scored.unknown_score).sum()
    logger.info(
        f"{len(paths)} target images, {unknown} of them unknown by the rule {rule.name!r} "
        f"({rule.note}): {run.predictions}"
    )


def _write_atlas(source: ScoredDomain, target: ScoredDomain, run: RunFolder) -> None:
    """Of the target and a sample of the source."""
    atlas = build_feature_store(
        target.scored.features,
        target.scored.probs,
        source.scored.features,
        source.labels,
        source.domain.samples.paths,
    )
    atlas.save(run.features)


def _log_if_unanchored(method: Method) -> None:
    """A target too small for anchors is judged by the classifier; nothing else shows that."""
    if any(isinstance(part, Anchors) and not part.decide for part in method.modules()):
        logger.info(
            f"Anchors: fewer than {FEWEST} target images a class were accepted, too few to place "
            "them; the classifier decides."
        )


def _judge(
    model: Model,
    learned: ScoredDomain,
    known: ScoredDomain,
    strange: ScoredDomain,
    run: RunFolder,
    concerns: list[Diagnostic],
) -> None:
    """Writes and says how good the run seems without labels, and what looks wrong."""
    lines = map(json.loads, run.metrics.read_text().splitlines())
    found = diagnose(
        classes=model.classes,
        counts=count_images(learned.domain.samples),
        rule=model.rule(),
        target=strange.scored,
        source=(learned.scored, learned.labels),
        held_out=(known.scored, known.labels),
        losses=np.array([line["loss"] for line in lines]),
    )
    everything = dataclasses.replace(found, warnings=[*concerns, *found.warnings])
    write_text(run.diagnostics, everything.to_json())
    logger.info(f"Without labels: {found}.")
    log_warnings(found.warnings)
