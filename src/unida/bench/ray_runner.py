"""Jobs as tasks of a Ray cluster (extra `ray`). All machines see one folder of results."""

import logging
from collections.abc import Callable
from typing import Any

from unida.bench.folder import ResultsFolder
from unida.bench.jobs import Job
from unida.bench.worker import BUSY, Places, main, to_line
from unida.errors import UserError

RETRIES = 5
"""How often Ray restarts a job whose worker died; it resumes from its checkpoint."""


def run_on_ray(
    jobs: list[Job],
    places: Places,
    address: str,
    cpus: float,
    gpus: float,
    report: Callable[[], None],
) -> None:
    """Run all jobs; return when each has a result or a recorded failure.

    Args:
        jobs: jobs that are done are skipped.
        places: of data and results, the same on all machines.
        address: of the cluster; `auto` finds the one this machine belongs to.
        cpus: cores a job reserves.
        gpus: GPUs a job reserves; a fraction lets several share one.
        report: called about once a second, to show progress.
    """
    ray = _connect(address)
    folder = ResultsFolder(places.results)
    # One call a worker process, so that a finished job leaves no memory behind on a GPU.
    task = ray.remote(num_cpus=cpus, num_gpus=gpus, max_retries=RETRIES, max_calls=1)(main)

    def submit(job: Job) -> Any:
        return task.remote(to_line(job, places))

    pending = {submit(job): job for job in jobs if folder.state(job) != "done"}
    try:
        while pending:
            ended, _ = ray.wait(list(pending), timeout=1.0)
            for ref in ended:
                job = pending.pop(ref)
                if _status(ray, ref, folder, job) == BUSY:
                    pending[submit(job)] = job  # another bench is executing it: check again later
            report()
    finally:
        for ref in pending:
            ray.cancel(ref, force=True)


def _connect(address: str) -> Any:
    try:
        import ray
    except ImportError:
        raise UserError("--on ray needs Ray (extra 'ray'): pip install ray.") from None
    if not ray.is_initialized():
        try:
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise UserError(
                f"No Ray cluster at {address!r} ({error}): start one with `ray start --head`."
            ) from None
    return ray


def _status(ray: Any, ref: Any, folder: ResultsFolder, job: Job) -> int:
    try:
        return int(ray.get(ref))
    except ray.exceptions.RayError as error:
        folder.fail(job, f"its worker died {RETRIES + 1} times: {error}")
        return 1
