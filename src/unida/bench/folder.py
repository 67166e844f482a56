"""A folder of results, which several processes and machines may work on at once.

    runs/NAME         a run folder with result.json and scores.npz
    failed/NAME.json  why a run failed; gone once it has a result
    tasks/            image lists of the tasks
    cache/            decoded images, shared by the runs; may be removed when all is done
    logs/NAME.log     what a run said
    locks/NAME        held while a run is worked on; the system lets go of it if the holder dies
    results.jsonl     all results, a line each

NAME is that of a job: a few words and a hash of its configuration.
"""

import json
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from unida.bench.jobs import Job
from unida.training.run_folder import write_text
from unida.utils.locks import held, is_held

State = Literal["waiting", "running", "done", "failed"]


class ResultsFolder:
    """Where the runs of a benchmark lie."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def run(self, job: Job) -> Path:
        return self.path / "runs" / job.name

    def result(self, job: Job) -> Path:
        return self.run(job) / "result.json"

    def failure(self, job: Job) -> Path:
        return self.path / "failed" / f"{job.name}.json"

    def log(self, job: Job) -> Path:
        return self.path / "logs" / f"{job.name}.log"

    def task(self, job: Job) -> Path:
        """Folder of the image lists: one a task, so that runs of a task share them."""
        parts = [job.setting, job.source, job.target, f"noise{job.label_noise:g}"]
        # The noise is drawn by the run's seed, so that seeds differ in it too.
        parts += [f"seed{job.seed}"] if job.label_noise else []
        parts += [] if job.unknown_classes is None else [f"unknown{job.unknown_classes}"]
        return self.path / "tasks" / "_".join(parts).replace(" ", "").replace("/", "-")

    def make(self) -> None:
        for name in ("runs", "failed", "logs", "locks", "tasks"):
            (self.path / name).mkdir(parents=True, exist_ok=True)

    @contextmanager
    def lock(self, name: str, wait: bool = False) -> Iterator[bool]:
        """Whether this process holds the lock of that name while the block runs.

        The file says which process held it last.
        """
        with held(self.path / "locks" / name, wait) as file:
            if file is not None:
                file.truncate(0)
                file.write(f"{platform.node()} {os.getpid()}\n")
                file.flush()
            yield file is not None

    def is_locked(self, job: Job) -> bool:
        """Whether some process works on a job."""
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

    def steps_done(self, job: Job) -> int:
        """Of a run in progress, by the last line of its log."""
        try:
            last = (self.run(job) / "metrics.jsonl").read_text().splitlines()[-1]
            return int(json.loads(last)["step"])
        except (OSError, IndexError, ValueError, KeyError):
            return 0
