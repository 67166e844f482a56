"""A study on a task of a benchmark, and its outcome as a row of tables: the paper's SAN※.

The settings chosen are trained once more, on the whole task, and scored as every run of a bench.
"""

import dataclasses
import os
import re
import shutil
from pathlib import Path
from typing import Any

from unida.bench.folder import ResultsFolder
from unida.bench.jobs import GIVEN_BY_THE_JOB, Job
from unida.bench.results import RESULT, gather, read_runs, write_results
from unida.bench.tables.groups import SEARCHED
from unida.bench.tune.options import StudyOptions
from unida.bench.tune.plan import Plan
from unida.bench.tune.space import with_values
from unida.bench.worker import Places, work
from unida.config import RunConfig
from unida.errors import UserError, require
from unida.methods import METHODS
from unida.protocols.digits import write_whole_digits
from unida.protocols.tasks import load_protocol, parse_tasks, write_task
from unida.training.run_folder import write_text
from unida.utils.locks import held

FOLDERS = ("task", "data", "final", "results")
"""Of a study on a task, in its folder."""


def on_task(config: RunConfig, given: StudyOptions) -> tuple[RunConfig, StudyOptions]:
    """Return run and study with the images of the task, if they name one.

    The target's labels are passed on only where the study is said to choose by them.
    """
    if given.protocol is None:
        for name in ("task", "root", "results"):
            value = getattr(given, name)
            require(not value, name, str(value), "only with --protocol")
        return config, given
    source, target = task_of(given)
    for name, place in (("source", config.data.source), ("target", config.data.target)):
        require(not place, name, place, "none, with --protocol")
    require(given.labels is None, "labels", str(given.labels), "none: the task has them")
    require(bool(config.output.out), "out", "", "a path")
    out = Path(os.path.abspath(config.output.out))
    (out / "locks").mkdir(parents=True, exist_ok=True)
    with held(out / "locks" / "task", wait=True):
        protocol, root = load_protocol(given.protocol), root_of(given, out)
        files = write_task(protocol, given.setting, source, target, root, out / "task")
    labels = files.target if given.oracle else None
    config = config.replace(source=str(files.source), target=str(files.target), out=str(out))
    return config, dataclasses.replace(given, labels=labels)


def task_of(given: StudyOptions) -> tuple[str, str]:
    """Return source and target domain of the study's task."""
    assert given.protocol is not None
    tasks = parse_tasks(load_protocol(given.protocol), given.task or "all")
    require(len(tasks) == 1, "task", given.task, "one of the protocol, as in Art-Product")
    return tasks[0]


def root_of(given: StudyOptions, out: Path) -> Path:
    """Return the folder of the data set; the digits are written into the study's."""
    if given.root is not None:
        require(given.root.is_dir(), "root", str(given.root), "a folder that exists")
        return given.root
    require(given.protocol == "digits", "root", "not given", "the folder of the data set")
    data = out / "data"
    if not (data / "complete").exists():
        write_whole_digits(data)
        (data / "complete").touch()
    return data


def entry_of(plan: Plan) -> str:
    """Return the name of the outcome's row: 'SAN※, oracle' or 'SAN※, label-free: entropy'."""
    return f"{METHODS[plan.config.method].__name__}{SEARCHED}, {plan.how}"


def write_outcome(plan: Plan, given: StudyOptions, values: dict[str, Any]) -> Path:
    """Train and score with the values chosen; return the folder of results with the row.

    Args:
        plan: of the study.
        given: its options, with protocol and task.
        values: chosen, by field.
    """
    assert given.protocol is not None
    job = _job(plan, given, values)
    final = ResultsFolder(plan.out / "final")
    work(job, Places(str(final.path), str(root_of(given, plan.out).absolute())))
    if final.state(job) != "done":
        raise UserError(f"The run with the settings chosen failed: see {final.failure(job)}.")
    results = given.results or plan.out / "results"
    slug = re.sub(r"[^\w.-]+", "", f"{plan.name}_{job.shift}_{job.source}_{job.target}")
    place = results / "runs" / f"{slug}_s{job.seed}"
    place.mkdir(parents=True, exist_ok=True)
    for arrays in final.run(job).glob("scores*.npz"):
        shutil.copy(arrays, place)
    chosen = " ".join(f"{name}={value}" for name, value in values.items())
    found = [
        dataclasses.replace(
            one.result,
            entry=entry_of(plan),
            made_with=one.result.made_with | {"settings chosen": f"{one.result.task}: {chosen}"},
        )
        for one in read_runs(final.path)
        if one.folder == final.run(job)
    ]
    write_results(place / RESULT, found)
    (results / "locks").mkdir(exist_ok=True)
    with held(results / "locks" / "results", wait=True):
        gather(results)
    write_text(plan.file("row.txt"), f"{entry_of(plan)}: {results}\n")
    return results


def _job(plan: Plan, given: StudyOptions, values: dict[str, Any]) -> Job:
    """Return the run of a bench that has the study's options and the values chosen."""
    config = with_values(plan.config, values)
    settings = dataclasses.asdict(config.settings)
    usual = dataclasses.asdict(type(config.settings)())
    pairs = [f"{name}={value}" for name, value in settings.items() if value != usual[name]]
    options = {k: v for k, v in config.flat().items() if k not in GIVEN_BY_THE_JOB}
    source, target = task_of(given)
    return Job(
        data=str(given.protocol),
        setting=given.setting,
        source=source,
        target=target,
        entry=":".join([config.method, *pairs]),
        seed=config.optim.seed,
        options=options,
    )
