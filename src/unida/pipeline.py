"""The main job: two sets of images in; a trained model and a label for every target image out."""

import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unida.config import ModelConfig, RunConfig
from unida.data.domain import Domain
from unida.data.duplicates import duplicate_share
from unida.data.embeddings import embed
from unida.data.fingerprint import Fingerprint, fingerprint
from unida.data.holdout import hold_out
from unida.data.in_memory import InMemory, load_in_memory, wrap_place
from unida.data.samples import Samples
from unida.data.tables import is_table
from unida.decision.predictor import check_ensemble, member_backbones
from unida.decision.rejection import check_rule
from unida.errors import UserError, require, require_known, shorten
from unida.evaluation.diagnostics import DataFacts, Diagnostic, check_data, images_per_class
from unida.methods import METHODS, Method
from unida.methods.presets import configure
from unida.model import Model, load
from unida.models.backbones import build_backbone
from unida.models.backbones.base import Backbone, precomputed_features
from unida.models.slim import require_slim
from unida.models.weights import FROM_SCRATCH
from unida.report.build import report_if_possible
from unida.result import RunResult, fit_decision, log_diagnostics, write_result
from unida.source_free import no_images, open_source_model, with_source_model
from unida.training.batches import Batches
from unida.training.claim import claimed, leftovers, locked, remove_leftovers
from unida.training.loop import CheckpointCallback, StepCallback, resolve_run, train
from unida.training.run_folder import RunFolder
from unida.training.trackers import Tracking, check_trackers, tracking
from unida.types import Sizes
from unida.utils import distributed
from unida.utils.devices import pick_device
from unida.utils.logs import logger
from unida.utils.process import sharing_cores
from unida.utils.progress import NO_PROGRESS, Progress, Update, with_speed
from unida.utils.rng import derive_seed

LARGE_BACKBONE = 3_000_000
"""Parameters from which on training a whole network on a CPU is warned of."""


def adapt(
    source: str | Path = "",
    target: str | Path = "",
    out: str | Path = "",
    *,
    method: str = "san",
    source_model: str | Path | None = None,
    resume: bool = False,
    settings: Mapping[str, object] | None = None,
    **options: Any,
) -> Model:
    """Train on labelled source and unlabelled target images; the run lies in `out`.

    Args:
        source: folder with one sub-folder a class, list file or CSV; or embeddings, a .parquet or
            .npy file (docs/embeddings.md).
        target: any folder of images, list file or CSV, or embeddings; labels are not used.
        out: folder of the run.
        method: a method or a preset; `unida methods` lists them.
        source_model: instead of a source, for `glc` and `lead`: the run folder or file of a model
            of theirs, which is adapted with target images alone.
        resume: continue the unfinished run in `out`.
        settings: of the method, such as `{"beta": 0.5}`.
        **options: of the run, named flat: `backbone`, `steps`, `batch`, … (`RunConfig`).

    Returns:
        The trained model, ready to predict.
    """
    places = {"source": str(source), "target": str(target), "out": str(out)}
    options |= {"source_model": str(source_model)} if source_model else {}
    return run_adaptation(configure(method, settings, **places, **options), resume=resume)


def run_adaptation(
    config: RunConfig, resume: bool = False, progress: Progress = NO_PROGRESS
) -> Model:
    """Train by a complete configuration; a finished run is loaded."""
    folder = RunFolder(config.output.out)
    if resume and folder.done.exists():
        logger.info("%s is finished already.", folder.path)
        _conclude(folder, config)
        return load(folder.path, config.compute.device)
    return run(config, resume, progress=progress).model


def run(
    config: RunConfig,
    resume: bool = False,
    on_checkpoint: CheckpointCallback | None = None,
    progress: Progress = NO_PROGRESS,
) -> RunResult:
    """Read, decode, train, fit the decision and write the run.

    Args:
        config: complete.
        resume: continue from the last checkpoint.
        on_checkpoint: called with the method at every checkpoint.
        progress: shows what goes on.
    """
    config = check_config(config)
    device = pick_device(config.compute.device)
    distributed.setup(device)
    with claimed(RunFolder(config.output.out), config, resume):
        return run_claimed(config, on_checkpoint, progress)


def run_claimed(
    config: RunConfig,
    on_checkpoint: CheckpointCallback | None = None,
    progress: Progress = NO_PROGRESS,
) -> RunResult:
    """Do what `run` does, in a folder that this process has claimed.

    Args:
        config: checked.
        on_checkpoint: called with the method at every checkpoint.
        progress: shows what goes on.
    """
    device = pick_device(config.compute.device)
    start = open_source_model(config, str(device)) if config.data.source_model else None
    inputs = {} if start else {"source": wrap_place(config.data.source, labelled=True)}
    inputs["target"] = wrap_place(config.data.target)
    # Before the images: a missing file is found at once.
    backbone = given_features(inputs) or make_backbone(config)
    with distributed.main_process_first():
        domains = load_in_memory(config, device, inputs, lambda n: progress.task(f"reading {n}"))
        images = fingerprint(config, inputs)
    source = no_images(start, device) if start else domains["source"]
    target = domains["target"]
    return adapt_domains(config, source, target, backbone, on_checkpoint, progress, images, start)


def adapt_domains(
    config: RunConfig,
    source: Domain,
    target: Domain,
    backbone: Backbone,
    on_checkpoint: CheckpointCallback | None = None,
    progress: Progress = NO_PROGRESS,
    images: Fingerprint | None = None,
    start: Model | None = None,
) -> RunResult:
    """Train on decoded domains, from files or from memory, and write the run with its report.

    Args:
        config: checked; its source and target are noted only.
        source: labelled; without images where there is a source model.
        target: its labels, if any, are not used.
        backbone: with the weights to start from; precomputed features go with embeddings.
        on_checkpoint: called with the method at every checkpoint.
        progress: shows what goes on.
        images: fingerprint of files, for checkpoints.
        start: the source model.
    """
    folder = RunFolder(config.output.out)
    with tracking(config, folder) as trackers:
        call = (source, target, backbone, on_checkpoint, progress, images, start)
        result = _train_and_decide(config, folder, trackers, *call)
        if config.output.report:
            report_if_possible(folder)
        trackers.conclude()
    return result


def _train_and_decide(
    config: RunConfig,
    folder: RunFolder,
    trackers: Tracking,
    source: Domain,
    target: Domain,
    backbone: Backbone,
    on_checkpoint: CheckpointCallback | None,
    progress: Progress,
    images: Fingerprint | None,
    start: Model | None,
) -> RunResult:
    """Do what `adapt_domains` does, but for the report."""
    n_members = config.decision.ensemble
    require(not on_checkpoint or n_members == 1, "ensemble", n_members, "1 to score checkpoints")
    if not start:
        _check_classes(source.samples)
    if config.output.slim:
        require_slim(backbone, config.model.frozen)
    kept, held = hold_out(source.samples, config.data.holdout, config.optim.seed)
    methods = _build_methods(config, backbone, source.part(kept), target)
    if start:
        for method in methods:
            method.start_from(start.method)
    resolved = resolve_run(config, methods[0], source.device)
    if config.model.frozen and not backbone.is_precomputed:
        logger.info("Embedding %d images.", len(source) + len(target))
        views, names = (methods[0].source_views, methods[0].target_views), ("source", "target")
        with distributed.main_process_first():
            source, target = (
                embed(domain, backbone, view, config, _show_embedding(progress, name))
                if len(domain)
                else domain
                for domain, view, name in zip((source, target), views, names, strict=True)
            )
    learned, held_out = source.part(kept), source.part(held)
    members = [_member_config(resolved, number) for number in range(n_members)]
    batches = [Batches(learned, target, member) for member in members]
    folder.begin(config, resolved)
    trackers.begin(resolved)
    skipped = [*source.samples.skipped, *target.samples.skipped]
    folder.write_skipped(skipped)
    found = _diagnose_data(source.samples, target.samples, config)
    if not folder.state.exists():  # a resumed run has logged them already
        log_diagnostics(found)
        _warn_if_slow(backbone, source.device, config.model.frozen)
    history = []
    for number, (method, own) in enumerate(zip(methods, batches, strict=True)):
        place = folder.member(number)
        place.path.mkdir(exist_ok=True)
        which = f" {number + 1}/{n_members}" if n_members > 1 else ""
        update = progress.task(config.method + which)
        on_step = _show_steps(update, config.optim.steps, partial(trackers.log, number))
        call = (source.device, place, on_step, on_checkpoint, images)
        with sharing_cores():
            history.append(train(method, own, members[number], *call))
    if skipped:
        counted = "one file was" if len(skipped) == 1 else f"{len(skipped)} files were"
        logger.info("%s left out; %s gives the reasons.", counted, folder.skipped)
    reference = start.reference if start else None
    fitted = fit_decision(
        resolved, methods, backbone, learned, held_out, target, history, reference
    )
    write_result(fitted, folder, found)
    return fitted


def _conclude(folder: RunFolder, config: RunConfig) -> None:
    """Do what a kill at the end of a finished run has left undone, or a new --tracker asks for."""
    check_trackers(config.output.tracker)
    no_report = config.output.report and not folder.report.exists()
    with tracking(config, folder) as trackers:
        if distributed.is_main_process() and (
            no_report or not trackers.concluded or leftovers(folder)
        ):
            with locked(folder):
                remove_leftovers(folder)
                if no_report:
                    report_if_possible(folder)
                trackers.begin(config)
                trackers.conclude()


def _show_embedding(progress: Progress, name: str) -> Update:
    return with_speed(progress.task(f"embedding {name}"), "images")


def _show_steps(
    update: Update, steps: int, track: Callable[[dict[str, Any]], None]
) -> StepCallback:
    """Show the steps, with loss and speed at log points, where trackers get them too."""

    def on_step(done: int, line: dict[str, Any] | None) -> None:
        if line:
            track(line)
        note = f"loss {line['loss']:.3f}  {line['steps_per_second']:.1f} steps/s" if line else ""
        update(done, steps, note)

    return on_step


def check_config(config: RunConfig) -> RunConfig:
    """Check paths and names, and make paths absolute, so that a run resumes from anywhere."""
    places = {
        "source": config.data.source,
        "target": config.data.target,
        "out": config.output.out,
    }
    if config.data.source_model:
        del places["source"]
    for name, place in places.items():
        require(bool(place), name, "", "a path")
    check_names(config)
    config = _check_tables(config)
    if config.data.source_model:
        config = with_source_model(config)
    if config.model.weights not in (None, FROM_SCRATCH):
        places["weights"] = str(config.model.weights)
    if config.data.cache_dir:
        places["cache_dir"] = config.data.cache_dir
    return config.replace(**{name: os.path.abspath(place) for name, place in places.items()})


def _check_tables(config: RunConfig) -> RunConfig:
    """Check the options of a run on embeddings; its backbone, which it has not, is frozen."""
    are_tables = [is_table(place) for place in (config.data.source, config.data.target)]
    if not any(are_tables):
        return config
    require_one_kind(all(are_tables))
    default = ModelConfig()
    for name in ("backbone", "weights", "frozen_views"):
        value, usual = getattr(config.model, name), getattr(default, name)
        require(value == usual, name, value, "none, for embeddings have no backbone; leave it out")
    return config.replace(frozen=True)


def given_features(inputs: dict[str, InMemory]) -> Backbone | None:
    """Return what stands for the backbone of embeddings; None where the inputs are images."""
    contents = [one.content for one in inputs.values()]
    widths = [c.shape[-1] for c in contents if isinstance(c, Tensor)]
    require_one_kind(len(widths) in (0, len(contents)))
    if len(set(widths)) > 1:
        raise UserError(
            f"The embeddings of the source have {widths[0]} numbers, those of the target "
            f"{widths[1]}: both must come from the same network."
        )
    return precomputed_features(widths[0]) if widths else None


def require_one_kind(is_so: bool) -> None:
    """Refuse images on one side and embeddings on the other."""
    if not is_so:
        raise UserError(
            "Source and target are not of one kind: both must be images, or both embeddings of "
            "the same length."
        )


def check_names(config: RunConfig) -> None:
    """Check that method, reject rule and trackers exist."""
    require_known(config.method, METHODS, "method")
    check_rule(config.decision.reject)
    check_trackers(config.output.tracker)


def make_backbone(config: RunConfig) -> Backbone:
    """Build the backbone; its initial weights follow from the seed alone."""
    torch.manual_seed(derive_seed(config.optim.seed, "backbone"))
    backbone = build_backbone(config.model.backbone, config.model.weights)
    backbone.cpu_precision = config.compute.cpu_precision
    return backbone


def _build_methods(
    config: RunConfig, backbone: Backbone, source: Domain, target: Domain
) -> list[Method]:
    """Build the members of the ensemble; most often one."""
    n_members, frozen = config.decision.ensemble, config.model.frozen
    places = member_backbones(backbone, n_members, frozen or backbone.is_precomputed)
    sizes = Sizes(
        n_classes=len(source.samples.classes),
        n_source=len(source),
        n_target=len(target),
        batch=config.optim.batch,
        steps=config.optim.steps,
        frozen=frozen,
        schedule=config.optim.schedule,
    )
    cls, methods = METHODS[config.method], []
    for number, place in enumerate(places):
        torch.manual_seed(derive_seed(_member_config(config, number).optim.seed, "heads"))
        method = cls(config.settings or cls.Config(), place, sizes)
        check_ensemble(method, place, n_members, config.method)
        methods.append(method)
    return methods


def _member_config(config: RunConfig, number: int) -> RunConfig:
    """The first member is what a run of its own would be."""
    if number == 0:
        return config
    return config.replace(seed=derive_seed(config.optim.seed, "member", number))


def _check_classes(source: Samples) -> None:
    """Refuse a class all of whose images are unreadable; warn of a class of one image."""
    counts = images_per_class(source)
    lost, single = ([source.classes[k] for k in np.flatnonzero(counts == n)] for n in (0, 1))
    if lost:
        raise UserError(f"No image of class {shorten(lost)} can be read: mend or remove the class.")
    if single:
        logger.warning("One image only for class %s; more would help.", shorten(single))


def _warn_if_slow(backbone: Backbone, device: torch.device, frozen: bool) -> None:
    is_large = sum(p.numel() for p in backbone.parameters()) > LARGE_BACKBONE
    if device.type == "cpu" and is_large and not frozen:
        logger.warning("On a CPU a whole network takes seconds a step; --frozen is faster.")


def _diagnose_data(source: Samples, target: Samples, config: RunConfig) -> list[Diagnostic]:
    """Find what looks wrong with the images before training."""
    if not distributed.is_main_process():
        return []
    # A continued run has target images in its source.
    folder = RunFolder(config.output.out)
    continued = Path(config.data.source) in (folder.source, folder.source_embeddings)
    compared = len(source) and not continued
    duplicates = duplicate_share(source.paths, target.paths) if compared else 0.0
    return check_data(DataFacts(source.classes, images_per_class(source), len(target), duplicates))
