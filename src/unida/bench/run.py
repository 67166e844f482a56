"""Execution of a benchmark's jobs, on this machine or on a Ray cluster."""

import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import torch

from unida.bench.folder import ResultsFolder
from unida.bench.jobs import Job
from unida.bench.local_runner import run_local
from unida.bench.ray_runner import run_on_ray
from unida.bench.results import FEW_UNKNOWN, SETTINGS, gather
from unida.bench.worker import Places
from unida.config import current_options, split_pairs
from unida.errors import require
from unida.methods import METHODS
from unida.methods.presets import PRESETS
from unida.protocols.digits import write_whole_digits
from unida.protocols.schema import Protocol
from unida.protocols.tasks import split_of


@dataclass(frozen=True)
class RayOptions:
    """Where the tasks of a Ray cluster run.

    Attributes:
        address: of the cluster.
        cpus: cores per run.
        gpus: GPUs per run; 0.25 lets four share one.
    """

    address: str = "auto"
    cpus: float = 1.0
    gpus: float = 0.0


def run_jobs(
    jobs: list[Job],
    folder: ResultsFolder,
    root: Path,
    report: Callable[[], None],
    *,
    workers: int | None = None,
    runs_per_worker: int = 1,
    ray: RayOptions | None = None,
    keep_models: bool = False,
) -> None:
    """Run the jobs that are not done yet, and gather the results.

    Args:
        jobs: of one benchmark.
        folder: of the results; it exists.
        root: of the data set.
        report: called a few times a second, to show progress.
        workers: processes at a time on this machine; by default one for every 4 cores, or one on a
            GPU.
        runs_per_worker: most runs of one process, one after the other.
        ray: a cluster to run on instead.
        keep_models: keep the trained models.
    """
    places = Places(str(folder.path.absolute()), str(root.absolute()), keep_models)
    for job in jobs:
        if not folder.is_locked(job):
            folder.failure(job).unlink(missing_ok=True)  # failed runs are tried again
    if ray:
        run_on_ray(jobs, places, ray.address, ray.cpus, ray.gpus, report)
    else:
        usual = 1 if torch.cuda.is_available() else max(1, (os.cpu_count() or 1) // 4)
        run_local(jobs, places, workers or usual, report, runs_per_worker)
    with folder.lock("results", wait=True):
        if any(folder.state(job) == "done" for job in jobs):
            gather(folder.path)


def resolve_entries(text: str) -> list[str]:
    """Return the entries of a list with commas between.

    Groups are `all`, `ablation` and `views`: SAN with SCL, InfoNCE and neither, on views that cut
    away more and more.
    """
    groups = {
        "all": [*METHODS],
        "ablation": ["san", *(v for v in PRESETS if v[:3] == "san")],
        "views": [
            f"{preset}:crop={crop}"
            for preset in ("san", "san-info-nce", "san-no-scl")
            for crop in (0.9, 0.7, 0.5, 0.3, 0.1)
        ],
    }
    names = [name.strip() for name in text.split(",") if name.strip()]
    require(bool(names), "methods", text, "one name at least")
    return [entry for name in names for entry in groups.get(name, [name])]


def resolve_settings(protocol: Protocol, text: str) -> dict[str, list[int | None]]:
    """Return settings with their numbers of unknown classes, where None stands for all of them.

    Args:
        protocol: of the data set.
        text: settings with commas between. `oda-2` is `oda` with its first two unknown classes;
            `all` is `SETTINGS` and `FEW_UNKNOWN`, as far as the protocol has them.
    """
    names = [name.strip() for name in text.split(",") if name.strip()]
    require(bool(names), "setting", text, "one setting at least")
    found: dict[str, list[int | None]] = {}
    for name in names:
        for setting, number in _every(protocol) if name == "all" else [_setting(protocol, name)]:
            split = split_of(protocol, setting, number)
            is_whole = split == protocol.splits[setting]
            numbers = found.setdefault(setting, [])
            numbers += [n for n in [None if is_whole else number] if n not in numbers]
    return found


def _every(protocol: Protocol) -> list[tuple[str, int | None]]:
    every: list[tuple[str, int | None]] = [(n, None) for n in SETTINGS if n in protocol.splits]
    require(bool(every), f"a setting of {protocol.name}", "all", ", ".join(protocol.splits))
    oda = protocol.splits.get("oda")
    most = len(oda.target_private) if oda else 0
    return every + [("oda", n) for n in FEW_UNKNOWN if n < most]


def _setting(protocol: Protocol, name: str) -> tuple[str, int | None]:
    match = re.fullmatch(r"(.+)-(\d+)", name)
    if match and name not in protocol.splits:
        return match[1], int(match[2])
    return name, None


def resolve_options(pairs: Iterable[str]) -> dict[str, str]:
    """Return options of runs; a weights file is named so that it is found from anywhere."""
    options = current_options(split_pairs(pairs, "option"))
    if Path(options.get("weights", "none")).is_file():
        options["weights"] = os.path.abspath(options["weights"])
    return options


def write_digits_once(folder: ResultsFolder) -> Path:
    """Write the images of the digits protocol beside the results, and return their folder."""
    root = folder.path / "data"
    with folder.lock("data", wait=True):
        if not (root / "complete").exists():
            write_whole_digits(root)
            (root / "complete").touch()
    return root
