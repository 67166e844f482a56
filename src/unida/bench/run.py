"""`unida bench`: a matrix of runs, from one command."""

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, TypeVar

import torch
import tyro
from rich.live import Live
from rich.table import Table

from unida.bench.folder import ResultsFolder
from unida.bench.jobs import Job, check_noise, plan
from unida.bench.local_runner import run_local
from unida.bench.ray_runner import run_on_ray
from unida.bench.results import gather
from unida.bench.worker import Places
from unida.config import current_options, split_pairs
from unida.errors import UserError, require, shorten
from unida.methods import METHODS
from unida.methods.presets import PRESETS
from unida.protocols.digits import write_whole_digits
from unida.protocols.tasks import load_protocol, parse_tasks
from unida.utils.console import console, say

N = TypeVar("N", int, float)


@dataclass(frozen=True)
class Bench:
    """Runs methods × tasks × seeds of a benchmark; what is done is not done again.

    Example: unida bench office-home --data data/office-home --out results --methods san,ovanet
    """

    protocol: Annotated[str, tyro.conf.Positional]
    """office-31, office-home, visda, domainnet, digits, or a TOML file of your own."""
    out: Path
    """Folder of the results; several benches may write to it."""
    data: Path | None = None
    """Folder of the data set, with its domains as folders. The digits need none."""
    setting: str = "unda"
    """unda, oda, pda, closed, or another of the protocol."""
    methods: str = "source_only,ovanet,san"
    """Names with commas between, 'all', or 'ablation'; a method with settings is
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
    """Numbers of target-private classes, with commas between: 10,20,50."""
    oracle: bool = False
    """Also score every checkpoint with target labels, for a column called 'oracle'."""
    on: Literal["local", "ray"] = "local"
    """Processes of this machine, or tasks of a Ray cluster."""
    workers: int | None = None
    """Processes at a time on this machine; by default one for every 4 cores, or one on a GPU."""
    runs_per_worker: int = 1
    """Runs of one process, one after the other; more than one spares short runs its start."""
    address: str = "auto"
    """Of the Ray cluster."""
    cpus: float = 1.0
    """Cores a run asks for on Ray."""
    gpus: float = 0.0
    """GPUs a run asks for on Ray; 0.25 lets four share one."""
    keep_models: bool = False
    """Keep the trained models; by default only results and what figures need are kept."""


def run_bench(given: Bench) -> None:
    """Runs what is missing, shows how it goes, and says what failed."""
    jobs = planned(given)
    folder = ResultsFolder(given.out)
    folder.make()
    root = given.data or _digits(given, folder)
    require(root.is_dir(), "data", str(root), "a folder that is there")
    places = Places(str(folder.path.absolute()), str(root.absolute()), given.keep_models)
    for job in jobs:
        if not folder.is_locked(job):
            folder.failure(job).unlink(missing_ok=True)  # it gets another try
    with _live_table(jobs, folder) as tell:
        if given.on == "ray":
            run_on_ray(jobs, places, given.address, given.cpus, given.gpus, tell)
        else:
            run_local(jobs, places, given.workers or _usual_workers(), tell, given.runs_per_worker)
    with folder.lock("results", wait=True):
        if any(folder.state(job) == "done" for job in jobs):
            gather(folder.path)
    failed = [job.name for job in jobs if folder.state(job) == "failed"]
    say(f"{len(jobs) - len(failed)} results in {folder.path}: unida table {folder.path}")
    if failed:
        reasons = folder.path / "failed"
        raise UserError(f"{len(failed)} runs failed ({shorten(failed)}): {reasons} says why.")


def planned(given: Bench) -> list[Job]:
    """The jobs of a command."""
    protocol = load_protocol(given.protocol)
    path = Path(given.protocol)
    require(given.seeds >= 1, "seeds", given.seeds, "1 or more")
    require(given.first_seed >= 0, "first_seed", given.first_seed, "0 or more")
    require(given.workers is None or given.workers >= 1, "workers", given.workers, "1 or more")
    require(given.runs_per_worker >= 1, "runs_per_worker", given.runs_per_worker, "1 or more")
    return plan(
        str(path.absolute()) if path.suffix == ".toml" else protocol.name,
        given.setting,
        _entries(given.methods),
        parse_tasks(protocol, given.tasks),
        range(given.first_seed, given.first_seed + given.seeds),
        _options(given.option),
        label_noise=[check_noise(share) for share in _numbers(given.noise, "noise", float)],
        unknown_classes=(
            [None] if given.unknowns == "all" else _numbers(given.unknowns, "unknowns", int)
        ),
        oracle=given.oracle,
    )


def _options(pairs: tuple[str, ...]) -> dict[str, str]:
    """Options of the runs; a weights file is named so that it is found from anywhere."""
    options = current_options(split_pairs(pairs, "option"))
    if Path(options.get("weights", "none")).is_file():
        options["weights"] = os.path.abspath(options["weights"])
    return options


def _entries(text: str) -> list[str]:
    groups = {"all": [*METHODS], "ablation": ["san", *(v for v in PRESETS if v[:3] == "san")]}
    names = [name.strip() for name in text.split(",") if name.strip()]
    require(bool(names), "methods", text, "one name at least")
    return [entry for name in names for entry in groups.get(name, [name])]


def _numbers(text: str, field: str, kind: Callable[[str], N]) -> list[N]:
    try:
        return [kind(part) for part in text.split(",")]
    except ValueError:
        raise UserError(f"{field} is {text!r}; allowed: numbers with commas between.") from None


def _digits(given: Bench, folder: ResultsFolder) -> Path:
    require(given.protocol == "digits", "data", "not given", "the folder of the data set")
    root = given.out / "data"
    with folder.lock("data", wait=True):
        if not (root / "complete").exists():
            write_whole_digits(root)
            (root / "complete").touch()
    return root


def _usual_workers() -> int:
    return 1 if torch.cuda.is_available() else max(1, (os.cpu_count() or 1) // 4)


@contextmanager
def _live_table(jobs: list[Job], folder: ResultsFolder) -> Iterator[Callable[[], None]]:
    """A table of what is done, redrawn while the block runs; plain lines without a terminal."""
    began = time.monotonic()
    before = _steps(jobs, folder)
    said = {job.name for job in jobs if folder.state(job) == "done"}
    if said:
        say(f"{len(said)} of {len(jobs)} runs are done already.")
    with Live(console=console, auto_refresh=False) as live:
        last = 0.0

        def tell() -> None:
            nonlocal last
            if not console.is_terminal:
                _say_news(jobs, folder, said)
            elif time.monotonic() - last > 1:
                last = time.monotonic()
                left = _seconds_left(jobs, folder, before, last - began)
                live.update(progress_table(jobs, folder, left), refresh=True)

        yield tell
        tell()


def _say_news(jobs: list[Job], folder: ResultsFolder, said: set[str]) -> None:
    for job in jobs:
        if job.name not in said and (state := folder.state(job)) in ("done", "failed"):
            said.add(job.name)
            say(f"{len(said)}/{len(jobs)} {state}: {job.name}")


def _steps(jobs: list[Job], folder: ResultsFolder) -> float:
    """Steps done in all, in runs."""
    total = 0.0
    for job in jobs:
        state = folder.state(job)
        if state == "running":
            total += folder.steps_done(job) / job.config(Path(), Path(), Path()).optim.steps
        total += state in ("done", "failed")
    return total


def _seconds_left(
    jobs: list[Job], folder: ResultsFolder, before: float, elapsed: float
) -> float | None:
    done = _steps(jobs, folder)
    return (len(jobs) - done) * elapsed / (done - before) if done > before else None


def progress_table(jobs: list[Job], folder: ResultsFolder, seconds_left: float | None) -> Table:
    """Methods down, tasks across: how many runs of each are done, running and failed."""
    states = {job.name: folder.state(job) for job in jobs}
    count = Counter(states.values())
    left = "" if not seconds_left else f", about {_in_words(seconds_left)} left"
    caption = ", ".join(f"{n} {state}" for state, n in sorted(count.items())) + left
    tasks = list(dict.fromkeys((job.source, job.target) for job in jobs))
    table = Table("method", caption=caption)
    for source, target in tasks:
        table.add_column(f"{source} → {target}", justify="right")
    for entry in dict.fromkeys(job.entry for job in jobs):
        cells = []
        for task in tasks:
            here = [j for j in jobs if j.entry == entry and (j.source, j.target) == task]
            cells.append(_cell(Counter(states[job.name] for job in here), len(here)))
        table.add_row(entry, *cells)
    return table


def _cell(count: Counter[str], total: int) -> str:
    parts = [f"{count['done']}/{total}"]
    parts += [f"{count[state]} {state}" for state in ("running", "failed") if count[state]]
    return ", ".join(parts)


def _in_words(seconds: float) -> str:
    for unit, length in (("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"
