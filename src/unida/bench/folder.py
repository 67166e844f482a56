"""A folder of results, which several processes and machines may write to at once.

    runs/NAME         a run folder with result.jsonl and scores.npz
    failed/NAME.json  why a run failed; removed once it has a result
    tasks/            image lists of the tasks
    cache/            decoded images, shared by the runs; may be removed after the last run
    logs/NAME.log     output of the process that executed the run
    doing/NAME        what a run that does not train yet is doing
    locks/NAME        held while a run is executed; the system releases it if the holder dies
    results.jsonl.gz  all results, one per line

NAME is that of a job: a few words and a hash of its configuration.
"""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from unida.bench.jobs import Job
from unida.bench.results import RESULT
from unida.training.run_folder import write_text
from unida.utils.locks import held, is_held, write_holder
from unida.utils.progress import Timer, Update, duration, ignore

State = Literal["waiting", "running", "done", "failed"]


class ResultsFolder:
    """The files of a benchmark."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def run(self, job: Job) -> Path:
        return self.path / "runs" / job.name

    def result(self, job: Job) -> Path:
        return self.run(job) / RESULT

    def failure(self, job: Job) -> Path:
        return self.path / "failed" / f"{job.name}.json"

    def log(self, job: Job) -> Path:
        return self.path / "logs" / f"{job.name}.log"

    def task(self, job: Job) -> Path:
        """Return the folder of the image lists, which the runs of a task share."""
        parts = [job.setting, job.source, job.target, f"noise{job.label_noise:g}"]
        # Noise is drawn with the run's seed, so seeds differ in it too.
        parts += [f"seed{job.seed}"] if job.label_noise else []
        parts += [] if job.unknown_classes is None else [f"unknown{job.unknown_classes}"]
        return self.path / "tasks" / "_".join(parts).replace(" ", "").replace("/", "-")

    def make(self) -> None:
        for name in ("runs", "failed", "logs", "doing", "locks", "tasks"):
            (self.path / name).mkdir(parents=True, exist_ok=True)

    @contextmanager
    def lock(self, name: str, wait: bool = False) -> Iterator[bool]:
        """Hold the lock of that name within the block; yield False where another process has it.

        The file records the process that held it last.
        """
        with held(self.path / "locks" / name, wait) as file:
            if file is not None:
                write_holder(file)
            yield file is not None

    def is_locked(self, job: Job) -> bool:
        """Return whether a process is executing a job."""
        return is_held(self.path / "locks" / job.name)

    def fail(self, job: Job, reason: str) -> None:
        content = {"task": f"{job.source} → {job.target}", "entry": job.entry, "seed": job.seed}
        write_text(self.failure(job), json.dumps(content | {"reason": reason}, indent=2) + "\n")

    def state(self, job: Job) -> State:
        if self.result(job).exists():
            return "done"
        if self.failure(job).exists():
            return "failed"
        return "running" if self.is_locked(job) else "waiting"

    def doing(self, job: Job) -> Path:
        return self.path / "doing" / job.name

    def preparation(self, job: Job) -> str:
        """Return what a run that does not train yet is doing, or nothing."""
        try:
            return self.doing(job).read_text()
        except OSError:
            return ""

    def steps_done(self, job: Job) -> int:
        """Return the steps of a run in progress, from the last line of its log."""
        try:
            last = (self.run(job) / "metrics.jsonl").read_text().splitlines()[-1]
            return int(json.loads(last)["step"])
        except (OSError, IndexError, ValueError, KeyError):
            return 0


class Preparation:
    """Progress of a run that others can read: of the tasks before the training, such as embedding.

    Args:
        file: to write; it is removed when a task is done.
    """

    def __init__(self, file: Path) -> None:
        self.file = file

    def task(self, title: str) -> Update:
        """Begin a task; a training is read from its own log."""
        if not title.startswith(("reading", "embedding")):
            return ignore
        timer, last = Timer(), 0.0

        def update(done: int, total: int, note: str = "") -> None:
            nonlocal last
            if done == total:
                self.file.unlink(missing_ok=True)
            elif time.monotonic() - last >= 1:
                last, left = time.monotonic(), timer.seconds_left(done, total)
                words = [f"{title} {done}/{total}", note]
                words += [] if left is None else [f"{duration(left)} left"]
                write_text(self.file, ", ".join(filter(None, words)))

        return update
