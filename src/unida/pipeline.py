"""The main job: two sets of images in, a trained model and a verdict on every target image out."""

import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from unida.conclusion import conclude, log_warnings
from unida.config import RunConfig
from unida.data.domain import Domain, load_domains
from unida.data.duplicates import duplicate_share
from unida.data.embeddings import embed
from unida.data.holdout import hold_out
from unida.data.samples import Samples, read_source, read_unlabelled
from unida.decision.ensemble import backbones, check_ensemble, make_ensemble
from unida.decision.rejection import check_rule
from unida.errors import UserError, require, require_known, shorten
from unida.evaluation.diagnostics import DataFacts, Diagnostic, check_data, count_images
from unida.methods import METHODS, Method
from unida.methods.presets import configure
from unida.model import Model, load
from unida.models.backbones import build_backbone
from unida.models.backbones.base import Backbone
from unida.models.weights import FROM_SCRATCH
from unida.report.build import report_if_possible
from unida.training.loop import Batches, CheckpointCallback, Report, resolve_run, train
from unida.training.run_folder import RunFolder
from unida.types import Sizes
from unida.utils import distributed
from unida.utils.devices import pick_device
from unida.utils.progress import NO_PROGRESS, Progress, Update
from unida.utils.rng import derive_seed

logger = logging.getLogger("unida")


def adapt(
    source: str | Path,
    target: str | Path,
    out: str | Path,
    *,
    method: str = "san",
    resume: bool = False,
    settings: Mapping[str, object] | None = None,
    **options: Any,
) -> Model:
    """Trains on labelled source and unlabelled target images; the run lies in `out`.

    Args:
        source: folder with one sub-folder a class, list file or CSV.
        target: any folder of images, list file or CSV; labels are not looked at.
        out: folder of the run.
        method: a method or a preset; `unida methods` lists them.
        resume: go on with the unfinished run in `out`.
        settings: of the method, such as `{"beta": 0.5}`.
        **options: of the run, named flat: `backbone`, `steps`, `batch`, … (`RunConfig`).

    Returns:
        The trained model, ready to predict.
    """
    places = {"source": str(source), "target": str(target), "out": str(out)}
    return run_adaptation(configure(method, settings, **places, **options), resume=resume)


def run_adaptation(
    config: RunConfig,
    resume: bool = False,
    watch: CheckpointCallback | None = None,
    progress: Progress = NO_PROGRESS,
) -> Model:
    """The same for a complete configuration; `watch` sees the method at every checkpoint."""
    config = checked(config)
    run = RunFolder(config.output.out)
    if resume and run.done.exists():
        logger.info("%s is finished already.", run.path)
        return load(run.path, config.compute.device)
    device = pick_device(config.compute.device)
    distributed.setup(device)
    if distributed.is_main_process():
        run.refuse_if_taken(config, resume)
    samples = {
        "source": read_source(config.data.source),
        "target": read_unlabelled(config.data.target),
    }
    backbone = make_backbone(config)  # before the images: a missing file is found at once
    with distributed.main_process_first():
        domains = load_domains(
            config, device, samples, lambda name: progress.task(f"reading {name}")
        )
    model = adapt_domains(config, domains["source"], domains["target"], backbone, watch, progress)
    if config.output.report:
        report_if_possible(run)
    return model


def adapt_domains(
    config: RunConfig,
    source: Domain,
    target: Domain,
    backbone: Backbone,
    watch: CheckpointCallback | None = None,
    progress: Progress = NO_PROGRESS,
) -> Model:
    """The same for domains that are loaded, from files or from memory.

    Args:
        config: its names checked; what it says of source and target is noted, not looked at.
        source: labelled.
        target: its labels, if any, are not looked at.
        backbone: with the weights to start from; one of `given_features` goes with embeddings.
        watch: sees the method at every checkpoint.
        progress: shows what goes on.
    """
    run, device = RunFolder(config.output.out), source.device
    watchable = watch is None or config.decision.ensemble == 1
    require(watchable, "ensemble", config.decision.ensemble, "1 where every checkpoint is scored")
    skipped = [*source.samples.skipped, *target.samples.skipped]
    _check_classes(source.samples)
    kept, held = hold_out(source.samples, config.data.holdout, config.optim.seed)
    members = _build_members(config, backbone, source.part(kept), target)
    method = members[0]
    if config.model.frozen and not backbone.is_precomputed:
        with distributed.main_process_first():
            logger.info("Embedding %d images.", len(source) + len(target))
            shown = progress.task("embedding source")
            source = embed(source, backbone, method.source_views, config, shown)
            shown = progress.task("embedding target")
            target = embed(target, backbone, method.target_views, config, shown)
    learned, held_out = source.part(kept), source.part(held)
    numbers = range(config.decision.ensemble)
    batches = [Batches(learned, target, _of_member(config, number)) for number in numbers]
    run.begin(config, resolve_run(config, method, device))
    run.write_skipped(skipped)
    continued = Path(config.data.source) == run.source  # target images were added to the source
    concerns = _look_at_data(source.samples, target.samples, continued)
    if not run.state.exists():  # a run that is resumed was warned of when it began
        log_warnings(concerns)
        if (
            device.type == "cpu"
            and not config.model.frozen
            and config.model.backbone != "small_cnn"
        ):
            logger.warning("On a CPU a whole network takes seconds a step; --frozen is faster.")
    for number, one in enumerate(members):
        own, place = batches[number], run.member(number)
        place.path.mkdir(exist_ok=True)
        which = f" {number + 1}/{len(members)}" if len(members) > 1 else ""
        report = _report_to(progress.task(config.method + which), config.optim.steps)
        train(one, own, own.config, device, place, report, watch)
    if skipped:
        logger.info("%d files were left out; %s says why.", len(skipped), run.skipped)
    method = make_ensemble(members, backbone).to(device)
    return conclude(method, learned, held_out, target, config, concerns)


def _report_to(update: Update, steps: int) -> Report:
    """Report the steps, with loss and speed at log points."""

    def report(done: int, line: dict[str, Any] | None) -> None:
        note = f"loss {line['loss']:.3f}  {line['steps_per_second']:.1f} steps/s" if line else ""
        update(done, steps, note)

    return report


def checked(config: RunConfig) -> RunConfig:
    """The configuration with names that exist and absolute paths, to be resumed from anywhere."""
    places = {
        "source": config.data.source,
        "target": config.data.target,
        "out": config.output.out,
    }
    for name, place in places.items():
        require(bool(place), name, "", "a path")
    check_names(config)
    places = {name: os.path.abspath(place) for name, place in places.items()}
    if config.model.weights not in (None, FROM_SCRATCH):
        places["weights"] = os.path.abspath(config.model.weights)
    if config.data.cache_dir:
        places["cache_dir"] = os.path.abspath(config.data.cache_dir)
    return config.replace(**places)


def check_names(config: RunConfig) -> None:
    """Check that method and reject rule exist."""
    require_known(config.method, METHODS, "method")
    check_rule(config.decision.reject)


def make_backbone(config: RunConfig) -> Backbone:
    """The initial weights follow from the seed alone."""
    torch.manual_seed(derive_seed(config.optim.seed, "backbone"))
    return build_backbone(config.model.backbone, config.model.weights)


def _build_members(
    config: RunConfig, backbone: Backbone, source: Domain, target: Domain
) -> list[Method]:
    """The models to be trained; most often one."""
    places = backbones(
        backbone, config.decision.ensemble, config.model.frozen or backbone.is_precomputed
    )
    members = []
    for number, place in enumerate(places):
        one = _build_method(_of_member(config, number), place, source, target)
        check_ensemble(one, place, config.decision.ensemble, config.method)
        members.append(one)
    return members


def _of_member(config: RunConfig, number: int) -> RunConfig:
    """The first one is what a run of its own would be."""
    seed = derive_seed(config.optim.seed, "member", number) if number else config.optim.seed
    return config.replace(seed=seed)


def _build_method(config: RunConfig, backbone: Backbone, source: Domain, target: Domain) -> Method:
    cls = METHODS[config.method]
    n_classes = len(source.samples.classes)
    sizes = Sizes(
        n_classes,
        len(source),
        len(target),
        config.optim.batch,
        config.optim.steps,
        config.model.frozen,
        config.optim.schedule,
    )
    torch.manual_seed(derive_seed(config.optim.seed, "heads"))
    return cls(config.settings or cls.Config(), backbone, sizes)


def _check_classes(source: Samples) -> None:
    """A class all of whose images are bad cannot be learned; one image is learned, with a word."""
    counts = count_images(source)
    lost, single = ([source.classes[k] for k in np.flatnonzero(counts == n)] for n in (0, 1))
    if lost:
        raise UserError(f"No image of class {shorten(lost)} can be read: mend or remove the class.")
    if single:
        logger.warning("One image only for class %s; more would help.", shorten(single))


def _look_at_data(source: Samples, target: Samples, continued: bool) -> list[Diagnostic]:
    """What looks wrong with the images, before time is spent on them."""
    if not distributed.is_main_process():
        return []
    duplicates = 0.0 if continued else duplicate_share(source.paths, target.paths)
    return check_data(DataFacts(source.classes, count_images(source), len(target), duplicates))
