"""`unida bench`: a matrix of runs, from one command."""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, TypeVar

import tyro
from rich.live import Live
from rich.table import Table

from unida.cli.parser import Command
from unida.cli.terminal import console
from unida.errors import UserError, require, shorten
from unida.utils.logs import logger
from unida.utils.progress import duration

if TYPE_CHECKING:
    from unida.bench.folder import ResultsFolder
    from unida.bench.jobs import Job

N = TypeVar("N", int, float)

LINE_SECONDS = 30
"""Between two lines on images that are embedded, where there is no terminal."""


@dataclass(frozen=True)
class Bench(Command):
    """Run methods × tasks × seeds of a benchmark.

    Finished runs are not repeated. Runs under way end with the command.

    Example: unida bench digits --out results --seeds 1

    Example: unida bench office-31 --data office31 --out results --methods all
    """

    headings: ClassVar[dict[str, tuple[str, ...]]] = {
        "data": ("data", "setting", "tasks", "noise", "unknowns"),
        "run": ("methods", "option", "seeds", "first_seed"),
        "output": ("out", "oracle", "keep_models"),
        "compute": ("on", "workers", "runs_per_worker"),
        "ray": ("address", "cpus", "gpus"),
    }

    protocol: Annotated[str, tyro.conf.Positional]
    """office-31, office-home, office-caltech10, visda, domainnet, digits, or a TOML file of your
    own."""
    out: Path
    """Folder of the results; several benches may write to it."""
    data: Path | None = None
    """Folder of the data set, with its domains as folders. The digits need none."""
    setting: str = "unda"
    """unda, oda, pda, closed, or another of the protocol; several with commas between. oda-2 is oda
    with two unknown classes. 'all' is closed, pda, oda, unda, oda-1, oda-2 and oda-5, as far as the
    protocol has them."""
    methods: str = "source_only,ovanet,san"
    """Methods and presets with commas between, 'all', or 'ablation'; one with settings is
    san:lam=0.3:beta=1."""
    tasks: str = "all"
    """Tasks with commas between, such as Art-Clipart,Product-Art, or 'all'."""
    seeds: int = 3
    """Runs of each, with the seeds 0, 1, …"""
    first_seed: int = 0
    """Where the seeds begin: --first-seed 2 --seeds 1 is the third run alone."""
    option: tuple[str, ...] = ()
    """Options of the runs, as in --option steps=1000 weights=resnet50.safetensors."""
    noise: str = "0"
    """Shares of source labels to make wrong, with commas between: 0,0.1,0.3."""
    unknowns: str = "all"
    """Numbers of target-private classes of the one setting, with commas between: 10,20,50."""
    oracle: bool = False
    """Also score every checkpoint with target labels, for a column called 'oracle'."""
    discover: bool = False
    """Also find novel categories in every run and score them: unida table --discover."""
    on: Literal["local", "ray"] = "local"
    """Processes of this machine, or tasks of a Ray cluster."""
    workers: int | None = None
    """Processes at a time on this machine; by default one for every 4 cores, or one on a GPU."""
    runs_per_worker: int = 1
    """Runs of one process, one after the other; more than one spares short runs its start."""
    address: str = "auto"
    """Of the Ray cluster."""
    cpus: float = 1.0
    """Cores a run reserves on Ray."""
    gpus: float = 0.0
    """GPUs a run reserves on Ray; 0.25 lets four share one."""
    keep_models: bool = False
    """Keep the trained models; by default only results and what figures need are kept."""

    def execute(self) -> None:
        """Run what is missing, show the progress, and report what failed."""
        from unida.bench.folder import ResultsFolder
        from unida.bench.run import RayOptions, run_jobs, write_digits_once

        jobs = self.jobs()
        folder = ResultsFolder(self.out)
        folder.make()
        if self.data is None:
            require(self.protocol == "digits", "data", "not given", "the folder of the data set")
        root = self.data or write_digits_once(folder)
        require(root.is_dir(), "data", str(root), "a folder that exists")
        on_ray = RayOptions(self.address, self.cpus, self.gpus) if self.on == "ray" else None
        with _live_table(jobs, folder) as report:
            run_jobs(
                jobs,
                folder,
                root,
                report,
                workers=self.workers,
                runs_per_worker=self.runs_per_worker,
                ray=on_ray,
                keep_models=self.keep_models,
            )
        failed = [job.name for job in jobs if folder.state(job) == "failed"]
        done = len(jobs) - len(failed)
        logger.info("%d results in %s: unida table %s", done, folder.path, folder.path)
        if failed:
            reasons = folder.path / "failed"
            raise UserError(f"{len(failed)} runs failed ({shorten(failed)}): see {reasons}.")

    def jobs(self) -> "list[Job]":
        """Return the jobs of the command."""
        from unida.bench.jobs import check_noise, plan
        from unida.bench.run import resolve_entries, resolve_options, resolve_settings
        from unida.protocols.tasks import load_protocol, parse_tasks

        for name, least in (
            ("seeds", 1),
            ("first_seed", 0),
            ("workers", 1),
            ("runs_per_worker", 1),
        ):
            value = getattr(self, name)
            require(value is None or value >= least, name, value, f"{least} or more")
        protocol, path = load_protocol(self.protocol), Path(self.protocol)
        settings = resolve_settings(protocol, self.setting)
        if self.unknowns != "all":
            is_one = list(settings.values()) == [[None]]
            require(is_one, "unknowns", self.unknowns, "'all' unless --setting is one setting")
            settings = {s: [*_numbers(self.unknowns, "unknowns", int)] for s in settings}
        jobs = [
            job
            for setting, unknowns in settings.items()
            for job in plan(
                str(path.absolute()) if path.suffix == ".toml" else protocol.name,
                setting,
                resolve_entries(self.methods),
                parse_tasks(protocol, self.tasks),
                range(self.first_seed, self.first_seed + self.seeds),
                resolve_options(self.option),
                label_noise=[check_noise(share) for share in _numbers(self.noise, "noise", float)],
                unknown_classes=unknowns,
                oracle=self.oracle,
                discover=self.discover,
            )
        ]
        return sorted(jobs, key=lambda job: job.seed)  # a seed of all settings before the next


def _numbers(text: str, field: str, kind: Callable[[str], N]) -> list[N]:
    try:
        return [kind(part) for part in text.split(",")]
    except ValueError:
        raise UserError(f"{field} is {text!r}; allowed: numbers with commas between.") from None


@contextmanager
def _live_table(jobs: "list[Job]", folder: "ResultsFolder") -> Iterator[Callable[[], None]]:
    """Show a table of what is done while the block runs; plain lines without a terminal."""
    began = time.monotonic()
    before = _steps(jobs, folder)
    shown = {job.name for job in jobs if folder.state(job) == "done"}
    if shown:
        logger.info("%d of %d runs are done already.", len(shown), len(jobs))
    with Live(console=console, auto_refresh=False) as live:
        last = 0.0

        def report() -> None:
            nonlocal last
            if not console.is_terminal:
                _log_news(jobs, folder, shown)
                if time.monotonic() - max(last, began) > LINE_SECONDS:
                    last = time.monotonic()
                    for line in _preparations(jobs, folder):
                        logger.info("%s", line)
            elif time.monotonic() - last > 1:
                last = time.monotonic()
                left = _seconds_left(jobs, folder, before, last - began)
                live.update(progress_table(jobs, folder, left), refresh=True)

        yield report
        report()


def _log_news(jobs: "list[Job]", folder: "ResultsFolder", shown: set[str]) -> None:
    for job in jobs:
        if job.name not in shown and (state := folder.state(job)) in ("done", "failed"):
            shown.add(job.name)
            logger.info("%d/%d %s: %s", len(shown), len(jobs), state, job.name)


def _preparations(jobs: "list[Job]", folder: "ResultsFolder") -> list[str]:
    """Return what runs that do not train yet are doing: reading or embedding images."""
    running = [job for job in jobs if folder.state(job) == "running"]
    found = [(job.name, folder.preparation(job)) for job in running]
    return [f"{name}: {text}" for name, text in found if text]


def _steps(jobs: "list[Job]", folder: "ResultsFolder") -> float:
    """Return the steps that are done, in runs."""
    total = 0.0
    for job in jobs:
        state = folder.state(job)
        if state == "running":
            total += folder.steps_done(job) / job.config(Path(), Path(), Path()).optim.steps
        total += state in ("done", "failed")
    return total


def _seconds_left(
    jobs: "list[Job]", folder: "ResultsFolder", before: float, elapsed: float
) -> float | None:
    done = _steps(jobs, folder)
    return (len(jobs) - done) * elapsed / (done - before) if done > before else None


def progress_table(jobs: "list[Job]", folder: "ResultsFolder", seconds_left: float | None) -> Table:
    """Return how many runs are done, running and failed: methods down, tasks across.

    A row is a method, or a method in one of several settings.
    """
    states = {job.name: folder.state(job) for job in jobs}
    count = Counter(states.values())
    left = "" if not seconds_left else f", about {duration(seconds_left)} left"
    caption = ", ".join(f"{n} {state}" for state, n in sorted(count.items())) + left
    caption = "\n".join([caption, *_preparations(jobs, folder)])
    tasks = list(dict.fromkeys((job.source, job.target) for job in jobs))
    table = Table("method", caption=caption)
    for source, target in tasks:
        table.add_column(f"{source} → {target}", justify="right")
    many = len({job.shift for job in jobs}) > 1
    rows: dict[str, list[Job]] = {}
    for job in jobs:
        rows.setdefault(f"{job.entry}, {job.shift}" if many else job.entry, []).append(job)
    for name, of_row in rows.items():
        cells = []
        for task in tasks:
            here = [job for job in of_row if (job.source, job.target) == task]
            cells.append(_cell(Counter(states[job.name] for job in here), len(here)))
        table.add_row(name, *cells)
    return table


def _cell(count: Counter[str], total: int) -> str:
    parts = [f"{count['done']}/{total}"]
    parts += [f"{count[state]} {state}" for state in ("running", "failed") if count[state]]
    return ", ".join(parts)
