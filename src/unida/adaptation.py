"""The main job: two sets of images in, a trained model and a verdict on every target image out."""

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from unida import team
from unida.atlas import MOST_IMAGES, MOST_OF_SOURCE, Atlas, make_atlas
from unida.config import RunConfig, from_mapping, parse_settings, to_settings
from unida.console import display, say
from unida.data.domain import Domain, load_domains
from unida.data.pixels import ArrayStore
from unida.data.samples import Samples, read_source, read_unlabelled
from unida.devices import pick_device, pick_dtype
from unida.embeddings import embed
from unida.errors import UserError, require, shorten
from unida.evaluate import score_images
from unida.methods import METHODS, Method
from unida.model import Model, load, to_predictions
from unida.models.backbone import Backbone, build_backbone
from unida.reject import RULES, fit_rules
from unida.rows import sample
from unida.runs import RunFolder
from unida.streams import stream_seed
from unida.train import Batches, Watch, train
from unida.types import Scored, Sizes

_PLACES = ("source", "target", "out")


def adapt(
    source: str | Path,
    target: str | Path,
    out: str | Path,
    *,
    resume: bool = False,
    settings: Mapping[str, object] | None = None,
    **options: Any,
) -> Model:
    """Trains on labelled source and unlabelled target images; the run lies in `out`.

    Args:
        source: folder with one sub-folder a class, list file or CSV.
        target: any folder of images, list file or CSV; labels are not looked at.
        out: folder of the run.
        resume: go on with the unfinished run in `out`.
        settings: of the method, such as `{"beta": 0.5}`.
        **options: any other field of `RunConfig`: `method`, `backbone`, `steps`, `batch`, …

    Returns:
        The trained model, ready to predict.
    """
    values = {"source": str(source), "target": str(target), "out": str(out), **options}
    config = from_mapping(RunConfig, values, "a run")
    return run_adaptation(
        dataclasses.replace(config, settings=to_settings(settings or {})), resume=resume
    )


def run_adaptation(config: RunConfig, resume: bool = False, watch: Watch | None = None) -> Model:
    """The same for a complete configuration; `watch` sees the method at every checkpoint."""
    config = checked(config)
    run = RunFolder(config.out)
    if resume and run.done.exists():
        say(f"{run.path} is finished already.")
        return load(run.path, config.device)
    device = pick_device(config.device)
    team.join(device)
    if team.is_first():
        run.refuse_if_taken(config, resume)
    samples = {"source": read_source(config.source), "target": read_unlabelled(config.target)}
    backbone = _build_backbone(config)  # before the images: a missing file is found at once
    with display() as progress:
        with team.first_on_each_machine():
            domains = load_domains(config, device, samples, progress.decoding)
        source, target = domains["source"], domains["target"]
        _check_classes(source.samples)
        method = _build_method(config, backbone, source, target)
        if config.frozen:
            with team.first_on_each_machine():
                said = progress.embedding
                source = embed(source, backbone, method.source_views, config, said("source"))
                target = embed(target, backbone, method.target_views, config, said("target"))
        batches = Batches(source, target, config)
        run.begin(config, {"method": dataclasses.asdict(method.config)})
        skipped = [s for domain in domains.values() for s in domain.samples.skipped]
        run.write_skipped(skipped)
        method.backbone.dtype = pick_dtype(config.precision, device)
        report = progress.training(config.method, config.steps)
        train(method, batches, config, device, run, report, watch)
    if skipped:
        say(f"{len(skipped)} files were left out; {run.skipped} says why.")
    return _conclude(method, source, target, config, run)


def checked(config: RunConfig) -> RunConfig:
    """The configuration with names that exist and absolute paths, to be resumed from anywhere."""
    for name in _PLACES:
        require(bool(getattr(config, name)), name, "", "a path")
    require(config.method in METHODS, "method", config.method, ", ".join(METHODS))
    require(config.reject in RULES, "reject", config.reject, ", ".join(RULES))
    parse_settings(METHODS[config.method].Config, config.settings, config.method)
    source, target, out = (os.path.abspath(getattr(config, name)) for name in _PLACES)
    return dataclasses.replace(config, source=source, target=target, out=out)


def _build_backbone(config: RunConfig) -> Backbone:
    """The initial weights follow from the seed alone."""
    torch.manual_seed(stream_seed(config.seed, "backbone"))
    return build_backbone(config.backbone, config.weights)


def _build_method(config: RunConfig, backbone: Backbone, source: Domain, target: Domain) -> Method:
    cls = METHODS[config.method]
    settings: Any = parse_settings(cls.Config, config.settings, config.method)
    n_classes = len(source.samples.classes)
    sizes = Sizes(n_classes, len(source), len(target), config.batch, config.steps, config.frozen)
    torch.manual_seed(stream_seed(config.seed, "heads"))
    return cls(settings, backbone, sizes)


def _check_classes(source: Samples) -> None:
    """A class all of whose images are bad cannot be learned; one image is learned, with a word."""
    assert source.labels is not None
    counts = np.bincount(source.labels, minlength=len(source.classes))
    lost, single = ([source.classes[k] for k in np.flatnonzero(counts == n)] for n in (0, 1))
    if lost:
        raise UserError(f"No image of class {shorten(lost)} can be read: mend or remove the class.")
    if single:
        say(f"Warning: one image only for class {shorten(single)}; more would help.")


def _conclude(
    method: Method, source: Domain, target: Domain, config: RunConfig, run: RunFolder
) -> Model:
    """Fits the reject rules to the target's scores and writes what is left of the run."""
    method.backbone.dtype = None  # full precision, as the stored model will predict
    classes, mapped = source.samples.classes, len(target) <= MOST_IMAGES
    scored = score_images(method, target.pixels, config.image_size, target.device, features=mapped)
    model = Model(
        method=method,
        method_name=config.method,
        classes=classes,
        image_size=config.image_size,
        pixel_size=config.pixel_size,
        rules=fit_rules(scored.unknown_score),
        reject=config.reject,
        device=target.device,
    )
    model.save(run.model)
    rule = model.rule()
    run.write_predictions(to_predictions(target.samples.paths, scored, rule, classes))
    if mapped:
        _atlas(method, source, scored, config).save(run.atlas)
    run.finish()
    unknown = rule.is_unknown(scored.unknown_score).sum()
    say(
        f"{len(target)} target images, {unknown} of them unknown by the rule {rule.name!r} "
        f"({rule.note}): {run.predictions}"
    )
    return model


def _atlas(method: Method, source: Domain, scored: Scored, config: RunConfig) -> Atlas:
    """Of the target as scored and a sample of the source."""
    keep = sample(len(source), MOST_OF_SOURCE, config.seed, "atlas")
    shown = source.pixels.get(torch.from_numpy(keep))
    of_source = score_images(method, ArrayStore(shown), config.image_size, source.device)
    assert source.samples.labels is not None
    paths = tuple(source.samples.paths[i] for i in keep)
    return make_atlas(
        scored.features, scored.probs, of_source.features, source.samples.labels[keep], paths
    )
