"""The matrix of a benchmark: its runs and their names."""

import dataclasses
import functools
import hashlib
import itertools
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from unida.bench.entries import parse_entry
from unida.bench.results import FORMAT, shift_name
from unida.config import ENVIRONMENT, RunConfig, current_options
from unida.errors import require
from unida.protocols.tasks import load_protocol

GIVEN_BY_THE_JOB = frozenset(
    {"source", "target", "source_model", "out", "method", "settings", "seed"}
)
"""Fields of `RunConfig` that are derived from the job and cannot be given as options."""


@dataclass(frozen=True)
class Job:
    """One run of a benchmark: everything its result depends on, without paths.

    Attributes:
        data: name of a protocol, or path of its TOML file.
        setting: of the protocol: unda, oda, …
        source: labelled domain.
        target: domain to label.
        entry: method with its settings (`unida.bench.entries`).
        seed: of everything random.
        label_noise: share of source labels made wrong.
        unknown_classes: target-private classes left in the target; None for all.
        options: fields of `RunConfig` that override the protocol's.
        oracle: also score every checkpoint with target labels.
        discover: also find novel categories and score them.
    """

    data: str
    setting: str
    source: str
    target: str
    entry: str
    seed: int
    label_noise: float = 0.0
    unknown_classes: int | None = None
    options: dict[str, Any] = field(default_factory=dict)
    oracle: bool = False
    discover: bool = False

    @property
    def shift(self) -> str:
        """Name of its category shift: the setting, or `oda-2` with two unknown classes."""
        return shift_name(self.setting, self.unknown_classes)

    def config(self, source: Path, target: Path, out: Path) -> RunConfig:
        """Return the config of the run, with the files of its task."""
        entry, protocol = parse_entry(self.entry), load_protocol(self.data)
        # The papers train on all source images.
        usual = {"holdout": 0.0} | protocol.run
        places = {"source": str(source), "target": str(target), "out": str(out)}
        options = current_options(self.options) | places
        return entry.config(usual, protocol, **options, seed=self.seed)

    @functools.cached_property
    def name(self) -> str:
        """Name of the run folder: a few readable words, then a hash of the full configuration."""
        words = (self.entry, self.source, self.target, f"s{self.seed}")
        readable = "_".join(re.sub(r"[^A-Za-z0-9.=-]+", "", word)[:40] for word in words)
        return f"{readable}_{_digest(self._everything())}"

    def _everything(self) -> dict[str, Any]:
        protocol = load_protocol(self.data)
        run = self.config(Path(), Path(), Path()).flat()
        weights = run["weights"]
        if weights is not None and Path(weights).is_file():
            run["weights"] = _digest_of_file(weights)
        values = dataclasses.asdict(self)
        if not self.discover:  # runs from before this option keep their names
            del values["discover"]
        return values | {
            "data": protocol.name,
            "split": dataclasses.asdict(protocol.splits[self.setting]),
            "options": {k: v for k, v in run.items() if k not in ENVIRONMENT},
            "format": FORMAT,
        }


def plan(
    data: str,
    setting: str,
    entries: Iterable[str],
    tasks: Iterable[tuple[str, str]],
    seeds: Iterable[int],
    options: Mapping[str, Any],
    *,
    label_noise: Iterable[float] = (0.0,),
    unknown_classes: Iterable[int | None] = (None,),
    oracle: bool = False,
    discover: bool = False,
) -> list[Job]:
    """Return every combination once: all methods of a task and seed before the next."""
    protocol = load_protocol(data)
    require(setting in protocol.splits, "setting", setting, ", ".join(protocol.splits))
    for name in options:
        require(name not in GIVEN_BY_THE_JOB, "an option", name, "a field the bench does not set")
    rows = [parse_entry(text).name for text in dict.fromkeys(entries)]
    combinations = itertools.product(seeds, label_noise, unknown_classes, tasks, rows)
    jobs = [
        Job(data, setting, *task, row, seed, noise, unknowns, dict(options), oracle, discover)
        for seed, noise, unknowns, task, row in combinations
    ]
    for job in jobs:
        job.config(Path(), Path(), Path())  # a bad option is reported before the first run
    return jobs


def check_noise(share: float) -> float:
    require(0 <= share < 1, "noise", share, "from 0 up to, not including, 1")
    return share


def _digest(values: Mapping[str, Any]) -> str:
    text = json.dumps(values, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


@functools.lru_cache
def _digest_of_file(path: str) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
