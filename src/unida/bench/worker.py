"""Run one job of a benchmark; also as a process of its own: `python -m unida.bench.worker`.

The process reads its jobs from standard input, up to an empty line. The bench that started it keeps
that pipe open; when the bench ends, whatever the reason, the pipe is closed and the process ends.
"""

import dataclasses
import json
import os
import shutil
import signal
import sys
import threading
import traceback
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

from unida.bench.arrays import scores_file
from unida.bench.folder import Preparation, ResultsFolder
from unida.bench.jobs import Job
from unida.bench.results import write_results
from unida.bench.scoring import Oracle, score_run
from unida.config import RunConfig
from unida.errors import UserError
from unida.methods.presets import load_config
from unida.pipeline import run as run_pipeline
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
    """Run a job unless it is done already; continue where a killed one stopped.

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
    _drop_if_stale(run, config)
    oracle = Oracle(task, config, run.path) if job.oracle else None
    doing = folder.doing(job)
    try:
        shown = Preparation(doing)
        result = run_pipeline(config, run.config.exists(), oracle, shown)
    finally:
        doing.unlink(missing_ok=True)
    scored = score_run(result, job, task, oracle)
    for one, arrays in scored:
        arrays.save(scores_file(run.path, one.refine))
    write_results(folder.result(job), [one for one, _ in scored])  # last: what has it is complete
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
    """Share decoded images between runs, unless told otherwise, and write no reports."""
    mode = "disk" if config.data.cache == "auto" else config.data.cache
    cache_dir = config.data.cache_dir or str((folder.path / "cache").absolute())
    return config.replace(cache=mode, cache_dir=cache_dir, report=False)


def _drop_if_stale(run: RunFolder, config: RunConfig) -> None:
    """Remove a run whose image lists were elsewhere, or that was stopped before it was scored."""
    moved = run.config.exists() and load_config(run.config).data.source != config.data.source
    if moved or run.done.exists():
        shutil.rmtree(run.path)


def to_line(job: Job, places: Places) -> str:
    """Return the line that `main` reads."""
    return json.dumps({"job": dataclasses.asdict(job), "places": dataclasses.asdict(places)})


def main(lines: str) -> int:
    """Run the jobs on these lines; return the exit status of the process."""
    status = 0
    for given in map(json.loads, lines.splitlines()):
        if not work(Job(**given["job"]), Places(**given["places"])):
            status = BUSY
    return status


def _end_with_parent() -> None:
    """End this process when standard input is closed."""

    def wait() -> None:
        while os.read(0, 1):  # sys.stdin cannot be closed at exit while a thread reads it
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, daemon=True).start()


if __name__ == "__main__":
    reuse_memory()
    jobs = "".join(takewhile(str.strip, sys.stdin))
    _end_with_parent()
    sys.exit(main(jobs))
