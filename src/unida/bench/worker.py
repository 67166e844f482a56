"""Runs one job of a benchmark; also as a process of its own: `python -m unida.bench.worker`."""

import dataclasses
import json
import shutil
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path

from unida.bench.folder import ResultsFolder
from unida.bench.jobs import Job
from unida.bench.results import write_results
from unida.bench.scoring import Oracle, score_run
from unida.config import RunConfig
from unida.errors import UserError
from unida.methods.presets import load_config
from unida.pipeline import run_adaptation
from unida.protocols.tasks import TaskFiles, load_protocol, write_task
from unida.training.run_folder import RunFolder
from unida.utils.process import reuse_memory

BUSY = 75
"""Exit status: another process works on this job."""


@dataclass(frozen=True)
class Places:
    """Where a job finds its data and leaves its result."""

    results: str
    root: str
    keep_models: bool = False


def work(job: Job, places: Places) -> bool:
    """Runs a job unless it is done already; goes on where a killed one stopped.

    A failure is recorded, not raised.

    Returns:
        False where another process works on it.
    """
    folder = ResultsFolder(places.results)
    folder.make()
    with folder.lock(job.name) as mine:
        if not mine:
            return False
        if folder.result(job).exists():
            return True
        try:
            _run(job, folder, places)
            folder.failure(job).unlink(missing_ok=True)
        except UserError as error:
            folder.fail(job, str(error))
        except Exception:
            folder.fail(job, traceback.format_exc())
    return True


def _run(job: Job, folder: ResultsFolder, places: Places) -> None:
    task = _task_files(job, folder, places)
    config = _cached(job.config(task.source, task.target, folder.run(job).absolute()), folder)
    run = RunFolder(config.output.out)
    _drop_if_moved(run, config)
    oracle = Oracle(task, config, run.path) if job.oracle else None
    model = run_adaptation(config, resume=run.config.exists(), watch=oracle)
    result, arrays = score_run(model, job, config, task, oracle)
    arrays.save(run.path / "scores.npz")
    write_results(folder.result(job), [result])  # last: what has it is complete
    if not places.keep_models:
        run.model.unlink(missing_ok=True)


def _task_files(job: Job, folder: ResultsFolder, places: Places) -> TaskFiles:
    place = folder.task(job).absolute()
    with folder.lock(f"task-{place.name}", wait=True):
        return write_task(
            load_protocol(job.data),
            job.setting,
            job.source,
            job.target,
            Path(places.root),
            place,
            unknown_classes=job.unknown_classes,
            label_noise=job.label_noise,
            noise_seed=job.seed,
        )


def _cached(config: RunConfig, folder: ResultsFolder) -> RunConfig:
    """Runs share their decoded images, unless told otherwise, and leave no reports."""
    mode = "disk" if config.data.cache == "auto" else config.data.cache
    cache_dir = config.data.cache_dir or str((folder.path / "cache").absolute())
    return config.replace(cache=mode, cache_dir=cache_dir, report=False)


def _drop_if_moved(run: RunFolder, config: RunConfig) -> None:
    """An unfinished run whose image lists lay elsewhere is begun anew."""
    if run.config.exists() and load_config(run.config).data.source != config.data.source:
        shutil.rmtree(run.path)


def to_line(job: Job, places: Places) -> str:
    """What `main` reads."""
    return json.dumps({"job": dataclasses.asdict(job), "places": dataclasses.asdict(places)})


def main(lines: str) -> int:
    """Exit status of a process that runs the jobs on these lines."""
    status = 0
    for given in map(json.loads, lines.splitlines()):
        if not work(Job(**given["job"]), Places(**given["places"])):
            status = BUSY
    return status


if __name__ == "__main__":
    reuse_memory()
    sys.exit(main(sys.stdin.read()))
