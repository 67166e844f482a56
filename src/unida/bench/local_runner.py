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
    jobs: list[Job], places: Places, at_once: int, tell: Callable[[], None], in_a_row: int = 1
) -> None:
    """Runs all jobs; returns when each has a result or a recorded failure.

    Args:
        jobs: those that are done already are passed over; those another bench works on are
            waited for, and taken over if it dies.
        places: of data and results.
        at_once: processes at a time; they may share one GPU.
        tell: called a few times a second.
        in_a_row: jobs of one process, one after the other, at the most.
    """
    folder = ResultsFolder(places.results)
    running: list[tuple[list[Job], subprocess.Popen[bytes]]] = []
    try:
        while True:
            for row, process in [pair for pair in running if pair[1].poll() is not None]:
                running.remove((row, process))
                _note_if_killed(folder, row, process.returncode)
            open_jobs = [job for job in jobs if not _ended(folder, job)]
            if not open_jobs and not running:
                return
            taken = {job.name for row, _ in running for job in row}
            free = [j for j in open_jobs if j.name not in taken and not folder.is_locked(j)]
            while free and len(running) < at_once:
                length = min(in_a_row, math.ceil(len(free) / at_once))  # no process without any
                row, free = free[:length], free[length:]
                running.append((row, _start(row, places, folder, at_once)))
            tell()
            time.sleep(0.2)
    finally:
        for _, process in running:  # an interrupt: each goes on from its checkpoint
            process.terminate()
        for _, process in running:
            process.wait()


def _ended(folder: ResultsFolder, job: Job) -> bool:
    return folder.state(job) in ("done", "failed")


def _start(
    row: list[Job], places: Places, folder: ResultsFolder, at_once: int
) -> subprocess.Popen[bytes]:
    """A process for some jobs; what it says goes to the log of the first."""
    threads = max(1, (os.cpu_count() or 1) // at_once)
    with folder.log(row[0]).open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "unida.bench.worker"],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            env={"OMP_NUM_THREADS": str(threads)} | os.environ,
        )
    assert process.stdin is not None
    process.stdin.write("\n".join(to_line(job, places) for job in row).encode())
    process.stdin.close()
    return process


def _note_if_killed(folder: ResultsFolder, row: list[Job], status: int) -> None:
    """A process that ended without a word: out of memory, or killed by someone."""
    left = [job for job in row if not _ended(folder, job)]
    if status not in (0, BUSY) and left:  # the first was under way; the others get another process
        log = folder.log(row[0])
        folder.fail(left[0], f"the process ended with status {status}; {log} may say why")
