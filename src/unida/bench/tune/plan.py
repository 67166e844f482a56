"""The plan of a study: its options, resolved and checked."""

import dataclasses
import json
import os
import typing
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

from unida.bench.tune.options import Sampler, StudyOptions
from unida.bench.tune.space import Space, parse_space
from unida.bench.tune.study import grid_size
from unida.config import ENVIRONMENT, RunConfig
from unida.errors import UserError, require
from unida.evaluation.selection import CRITERIA, ORACLE
from unida.pipeline import check_config

LABEL_FREE = tuple(name for name in CRITERIA if name != ORACLE)
NOT_DEFINING = ENVIRONMENT | {"method", "settings", "checkpoint_every"}
"""Fields of a run that do not define a study, or that `definition` has separately."""


@dataclass(frozen=True)
class Plan:
    """A study, with every option resolved.

    Attributes:
        config: the run whose fields are varied; its `out` is the folder of the study.
        space: the fields.
        sampler: how values are picked.
        total: trials.
        criterion: key of `CRITERIA`.
        labels: labelled target, for the oracle.
        shares: hidden and held-out, for `source_validation`.
        storage: path or URL.
        name: of the study.
        retake: see `StudyOptions`.
    """

    config: RunConfig
    space: Space
    sampler: Sampler
    total: int
    criterion: str
    labels: Path | None
    shares: tuple[float, float]
    storage: str
    name: str
    retake: bool

    @property
    def out(self) -> Path:
        return Path(self.config.output.out)

    @property
    def by_validation(self) -> bool:
        return CRITERIA[self.criterion].images == "held-out source"

    @property
    def how(self) -> str:
        """How the settings are chosen, as written in every output."""
        return ORACLE if self.criterion == ORACLE else f"label-free: {self.criterion}"

    @property
    def definition(self) -> dict[str, Any]:
        """Everything that identifies the study, on every machine."""
        run = self.config.flat()
        return {
            "criterion": self.criterion,
            "method": self.config.method,
            "settings": run["settings"],
            "space": [f"{name}={spec}" for name, spec in self.space.items()],
            "sampler": self.sampler,
            **({"shares": list(self.shares)} if self.by_validation else {}),
            **{name: value for name, value in run.items() if name not in NOT_DEFINING},
        }

    def file(self, name: str) -> Path:
        """Return a file of the study; files of the oracle are named so."""
        return self.out / (f"{ORACLE}-{name}" if self.criterion == ORACLE else name)

    @property
    def lock(self) -> Path:
        """Lock of the files that the processes of the folder share."""
        return self.out / "locks" / "folder"

    def run(self, number: int) -> Path:
        return self.out / "trials" / self.file(f"{number:03}").name


def make_plan(config: RunConfig, given: StudyOptions) -> Plan:
    """Make the plan of a study, with every name and value checked."""
    require(
        not config.data.source_model, "source_model", config.data.source_model, "none in a study"
    )
    config = check_config(config)
    criterion = _criterion(given)
    space = parse_space(given.space, config)
    samplers = typing.get_args(Sampler)
    require(given.sampler in samplers, "sampler", given.sampler, ", ".join(samplers))
    most = grid_size(space) if given.sampler == "grid" else None
    trials = given.trials if given.trials is not None else (most or 20)
    require(trials >= 1, "trials", given.trials, "1 or more")
    plan = Plan(
        config=config,
        space=space,
        sampler=given.sampler,
        total=min(trials, most) if most else trials,
        criterion=criterion,
        labels=Path(os.path.abspath(given.labels)) if given.labels else None,
        shares=(given.share_hidden, given.share_held_out),
        storage=given.storage or "",
        name=given.study or "",
        retake=given.retake,
    )
    return dataclasses.replace(
        plan, name=_name(plan), storage=plan.storage or str(plan.file("journal.log"))
    )


def _criterion(given: StudyOptions) -> str:
    if given.oracle:
        if given.labels is None:
            raise UserError("--oracle chooses by target labels: name them by --labels.")
        if given.criterion is not None:
            raise UserError("--oracle is a criterion of its own: leave --criterion out.")
        return ORACLE
    if given.labels is not None:
        raise UserError("--labels are used only with --oracle: leave them out, or add it.")
    criterion = given.criterion or LABEL_FREE[0]
    allowed = ", ".join(LABEL_FREE) + "; or --oracle"
    require(criterion in LABEL_FREE, "criterion", criterion, allowed)
    return criterion


def _name(plan: Plan) -> str:
    """Return the study's name: method, criterion and a hash of the definition and images."""
    if plan.name:
        marked = plan.criterion != ORACLE or ORACLE in plan.name
        return plan.name if marked else f"{ORACLE}-{plan.name}"
    places = [plan.config.data.source, plan.config.data.target, str(plan.labels)]
    content = json.dumps([plan.definition, places]).encode()
    digest = blake2b(content, digest_size=4).hexdigest()
    return f"{plan.config.method}-{plan.criterion}-{digest}"
