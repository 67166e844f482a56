"""A study: settings are searched and chosen without target labels, except with `--oracle`.

    study.json      definition of the study, written first
    journal.log     Optuna's record of the trials, unless --storage names another
    split/          for source_validation: the images to train and to validate on
    trials/NAME     a run folder per trial
    locks/          held while a trial is executed
    trials.csv      every trial and its value
    task/, data/    of a study on a task of a benchmark: its lists, and the digits' images
    final/          such a study's run on the whole task, with the settings chosen
    results/        its results, for `unida table`
    best.json       the settings chosen, and how

With `--oracle` the names of all of these begin with it.
"""

import dataclasses
import json
import math
import os
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from unida.bench.tune.options import StudyOptions
from unida.bench.tune.outcome import FOLDERS, on_task, write_outcome
from unida.bench.tune.plan import Plan, make_plan
from unida.bench.tune.space import with_values
from unida.bench.tune.study import Study, Trial, differences
from unida.config import RunConfig, to_arguments
from unida.data.samples import Samples, Skipped, read_labelled, read_source, read_unlabelled
from unida.data.tables import is_table
from unida.errors import UserError, require, shorten
from unida.evaluation.evaluate import evaluate
from unida.evaluation.selection import CRITERIA, SelectionData, hide_classes
from unida.model import Model
from unida.pipeline import run_adaptation
from unida.training.run_folder import write_text
from unida.utils.csv_files import to_csv
from unida.utils.locks import held
from unida.utils.logs import logger
from unida.utils.progress import NO_PROGRESS, Progress


@dataclass(frozen=True)
class StudyResult:
    """The trials of a study so far, and the best.

    Attributes:
        plan: of the study.
        trials: those that were begun.
        best: the best of them.
        command: of `unida adapt` with its settings.
        results: folder with the outcome as a row of tables; None unless all trials of a study on a
            task of a benchmark are done.
    """

    plan: Plan
    trials: list[Trial]
    best: Trial
    command: str
    results: Path | None = None


def run_tune(
    base: RunConfig, options: StudyOptions, progress: Progress = NO_PROGRESS
) -> StudyResult | None:
    """Run the trials that are left; return what was found, or None if no trial has finished.

    Args:
        base: the run whose settings and options are varied; its `out` is the study's folder.
        options: of the study.
        progress: shows the runs.
    """
    base, options = on_task(base, options)
    plan = make_plan(base, options)
    config = _prepare(plan)
    study = Study(
        plan.storage, plan.name, plan.definition, plan.space, plan.sampler, plan.config.optim.seed
    )
    for number, values in study.take(plan.total, plan.out / "locks", plan.retake):
        name = plan.run(number).name
        logger.info("Trial %s (%d of %d): %s", name, number + 1, plan.total, format_values(values))
        _run_trial(study, plan, config, number, values, progress)
    with held(plan.lock, wait=True):
        found = _conclude(study.trials(), plan)
        done = found is not None and all(trial.state != "running" for trial in found.trials)
        if found is None or options.protocol is None or not done:
            return found
        results = write_outcome(plan, options, found.best.values)
    return dataclasses.replace(found, results=results)


def _prepare(plan: Plan) -> RunConfig:
    """Read the images, claim the folder, and return the run that the trials vary."""
    for name in ("source", "target"):
        place = getattr(plan.config.data, name)
        require(not is_table(place), name, place, "images; embeddings are for unida adapt")
    source = read_source(plan.config.data.source)
    read_unlabelled(plan.config.data.target)
    if plan.labels:
        read_labelled(plan.labels)
    split = (
        hide_classes(source, *plan.shares, plan.config.optim.seed) if plan.by_validation else None
    )
    _make_folder(plan)
    with held(plan.lock, wait=True):
        _claim(plan)
        for name, samples in zip(("train", "validation"), split or (), strict=False):
            _write_samples(plan.out / "split" / f"{name}.csv", samples)
    if split is None:
        return plan.config
    return plan.config.replace(source=str(plan.out / "split" / "train.csv"))


def _make_folder(plan: Plan) -> None:
    """Make the folder; another process of the same study may do so at the same time."""
    made = ("locks", "split", "trials")
    ours = (*made, *FOLDERS)
    try:
        plan.out.mkdir(parents=True, exist_ok=True)
        found = {path.name for path in plan.out.iterdir()}
        if found - set(ours) and not any(name.endswith("study.json") for name in found):
            raise UserError(f"{plan.out} exists and is not an empty folder: name another --out.")
        for name in made:
            (plan.out / name).mkdir(exist_ok=True)
    except OSError as error:
        raise UserError(f"{plan.out} cannot be used: {error.strerror}.") from None


def _claim(plan: Plan) -> None:
    """Write the definition of the study; refuse a folder with another study."""
    places = {"source": plan.config.data.source, "target": plan.config.data.target}
    labels = {"labels": str(plan.labels)} if plan.labels else {}
    content = {"study": plan.name, **plan.definition, **places, **labels}
    for file in sorted(plan.out.glob("*study.json")):
        try:
            stored = dict(json.loads(file.read_text()))
        except (OSError, ValueError, TypeError) as error:
            raise UserError(f"{file} is not the study.json of a study ({error!r}).") from None
        if changed := differences(stored, content):
            raise UserError(
                f"{plan.out} holds another study ({shorten(changed)}): give it the same, or name "
                "another --out."
            )
    write_text(plan.file("study.json"), json.dumps(content, indent=2) + "\n")


def _write_samples(file: Path, samples: Samples) -> None:
    assert samples.labels is not None
    rows = [
        (os.path.abspath(path), samples.classes[k])
        for path, k in zip(samples.paths, samples.labels, strict=True)
    ]
    write_text(file, to_csv(("path", "label"), rows))


def _run_trial(
    study: Study,
    plan: Plan,
    config: RunConfig,
    number: int,
    values: dict[str, Any],
    progress: Progress,
) -> None:
    """Run or resume a trial; a failure is recorded, and the study goes on."""
    config = config.replace(out=str(plan.run(number)))
    try:
        model = run_adaptation(with_values(config, values), resume=True, progress=progress)
        value = criterion_of(model, plan)
    except UserError as error:
        return _failed(study, number, str(error))
    except torch.OutOfMemoryError:
        return _failed(study, number, "The memory of the device is too small.")
    if math.isnan(value):
        return _failed(study, number, f"{plan.criterion} is undefined for the model's outputs.")
    logger.info("%s = %.4f", plan.criterion, value)
    return study.finish(number, value)


def _failed(study: Study, number: int, reason: str) -> None:
    logger.warning("Trial %03d failed: %s", number, reason)
    study.fail(number, reason)


def criterion_of(model: Model, plan: Plan) -> float:
    """Return the value of the criterion for a trained model."""
    criterion, rule = CRITERIA[plan.criterion], model.rule()
    if criterion.images == "target":
        skipped: list[Skipped] = []
        paths = read_unlabelled(plan.config.data.target).paths
        _, scored = model.score(paths, skipped, features=False)
        return criterion.value(SelectionData(scored, rule))
    place = plan.labels or plan.out / "split" / "validation.csv"
    found = evaluate(model, place)
    return criterion.value(SelectionData(found.scored, rule, found.labels))


def _conclude(trials: list[Trial], plan: Plan) -> StudyResult | None:
    """Write the trials and the best of them."""
    write_text(plan.file("trials.csv"), _trials_csv(trials, plan))
    finished = [trial for trial in trials if trial.value is not None]
    running = sum(trial.state == "running" for trial in trials)
    if running:
        logger.info(
            "%d of the trials run in other processes; if these ended, add --retake.", running
        )
    if not finished:
        failed = [trial.reason for trial in trials if trial.state == "failed"]
        if failed and not running:
            raise UserError(f"No trial has finished: {failed[0]}")
        return None
    best = max(finished, key=lambda trial: (trial.value, -trial.number))
    full = plan.config.replace(out=str(plan.file("best")))  # not a part of the source
    command = shlex.join(["unida", "adapt", *to_arguments(with_values(full, best.values))])
    content = {
        "chosen": plan.how,
        "about": CRITERIA[plan.criterion].about,
        "value": best.value,
        "values": best.values,
        "study": plan.name,
        "trial": best.number,
        "run": str(plan.run(best.number).relative_to(plan.out)),
        "trials": {
            state: sum(trial.state == state for trial in trials)
            for state in ("finished", "failed", "running")
        },
        "command": command,
    }
    write_text(plan.file("best.json"), json.dumps(content, indent=2) + "\n")
    return StudyResult(plan, trials, best, command)


def _trials_csv(trials: list[Trial], plan: Plan) -> str:
    header = ("trial", "state", plan.criterion, *plan.space, "run", "reason")
    table = [
        (
            str(trial.number),
            trial.state,
            "" if trial.value is None else repr(trial.value),
            *(str(trial.values.get(name, "")) for name in plan.space),
            str(plan.run(trial.number).relative_to(plan.out)),
            trial.reason,
        )
        for trial in trials
    ]
    return to_csv(header, table)


def _short(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def format_values(values: dict[str, Any]) -> str:
    """Return `name=value` texts, with numbers in few digits."""
    return " ".join(f"{name}={_short(value)}" for name, value in values.items())
