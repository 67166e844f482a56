"""Jobs as processes of this machine, several at a time."""

import math
import os
import subprocess
import sys
import time
from collections.abc import Callable

from unida.bench.folder import ResultsFolder
from unida.bench.jobs import Job
from unida.bench.worker import BUSY, Places, to_line


def run_local(
    jobs: list[Job],
    places: Places,
    workers: int,
    report: Callable[[], None],
    runs_per_worker: int = 1,
) -> None:
    """Run all jobs; return when each has a result or a recorded failure.

    Args:
        jobs: jobs that are done are skipped; those another bench is executing are waited for, and
            taken over if it dies.
        places: of data and results.
        workers: processes at a time; they may share one GPU.
        report: called a few times a second, to show progress.
        runs_per_worker: most jobs of one process, one after the other.
    """
    folder = ResultsFolder(places.results)
    running: list[tuple[list[Job], subprocess.Popen[bytes]]] = []
    try:
        while True:
            for batch, process in [pair for pair in running if pair[1].poll() is not None]:
                running.remove((batch, process))
                _close(process)
                _record_if_killed(folder, batch, process.returncode)
            open_jobs = [job for job in jobs if not _ended(folder, job)]
            if not open_jobs and not running:
                return
            taken = {job.name for batch, _ in running for job in batch}
            free = [j for j in open_jobs if j.name not in taken and not folder.is_locked(j)]
            while free and len(running) < workers:
                length = min(
                    runs_per_worker, math.ceil(len(free) / workers)
                )  # every process gets some
                batch, free = free[:length], free[length:]
                running.append((batch, _start(batch, places, folder, workers)))
            report()
            time.sleep(0.2)
    finally:
        for _, process in running:  # an interrupt: each resumes from its checkpoint
            process.terminate()
        for _, process in running:
            process.wait()
            _close(process)


def _ended(folder: ResultsFolder, job: Job) -> bool:
    return folder.state(job) in ("done", "failed")


def _start(
    batch: list[Job], places: Places, folder: ResultsFolder, workers: int
) -> subprocess.Popen[bytes]:
    """Start a process for some jobs; its output goes to the log of the first.

    It ends when its standard input is closed, so at the latest when this process ends.
    """
    threads = max(1, (os.cpu_count() or 1) // workers)
    with folder.log(batch[0]).open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "unida.bench.worker"],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            env={"OMP_NUM_THREADS": str(threads)} | os.environ,
        )
    assert process.stdin is not None
    process.stdin.write("".join(f"{to_line(job, places)}\n" for job in batch).encode() + b"\n")
    process.stdin.flush()
    return process


def _close(process: subprocess.Popen[bytes]) -> None:
    if process.stdin is not None:
        process.stdin.close()


def _record_if_killed(folder: ResultsFolder, batch: list[Job], status: int) -> None:
    """Record the failure of a process that was killed, for example for lack of memory."""
    left = [job for job in batch if not _ended(folder, job)]
    if status not in (0, BUSY) and left:  # the first was running; the others get another process
        log = folder.log(batch[0])
        folder.fail(left[0], f"the process ended with status {status}; {log} may say why")
