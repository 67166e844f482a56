"""Jobs as processes of this machine, several at a time."""

import os
import subprocess
import sys
import time
from collections.abc import Callable

from unida.bench.folder import ResultsFolder
from unida.bench.jobs import Job
from unida.bench.worker import BUSY, Places, to_line


def run_local(jobs: list[Job], places: Places, at_once: int, tell: Callable[[], None]) -> None:
    """Runs all jobs; returns when each has a result or a recorded failure.

    Args:
        jobs: those that are done already are passed over; those another bench works on are
            waited for, and taken over if it dies.
        places: of data and results.
        at_once: processes at a time; they may share one GPU.
        tell: called a few times a second.
    """
    folder = ResultsFolder(places.results)
    running: dict[str, tuple[Job, subprocess.Popen[bytes]]] = {}
    try:
        while True:
            for name, (job, process) in list(running.items()):
                if process.poll() is not None:
                    del running[name]
                    _note_if_killed(folder, job, process.returncode)
            open_jobs = [job for job in jobs if not _ended(folder, job)]
            if not open_jobs and not running:
                return
            for job in open_jobs:
                if len(running) >= at_once:
                    break
                if job.name not in running and not folder.is_locked(job):
                    running[job.name] = (job, _start(job, places, folder, at_once))
            tell()
            time.sleep(0.2)
    finally:
        for _, process in running.values():  # an interrupt: each goes on from its checkpoint
            process.terminate()
        for _, process in running.values():
            process.wait()


def _ended(folder: ResultsFolder, job: Job) -> bool:
    return folder.state(job) in ("done", "failed")


def _start(
    job: Job, places: Places, folder: ResultsFolder, at_once: int
) -> subprocess.Popen[bytes]:
    threads = max(1, (os.cpu_count() or 1) // at_once)
    with folder.log(job).open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "unida.bench.worker"],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            env={"OMP_NUM_THREADS": str(threads)} | os.environ,
        )
    assert process.stdin is not None
    process.stdin.write(to_line(job, places).encode())
    process.stdin.close()
    return process


def _note_if_killed(folder: ResultsFolder, job: Job, status: int) -> None:
    """A process that ended without a word: out of memory, or killed by someone."""
    if status not in (0, BUSY) and not _ended(folder, job):
        folder.fail(job, f"the process ended with status {status}; {folder.log(job)} may say why")
