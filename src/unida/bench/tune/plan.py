"""What a study is: the command's options, thought through and checked."""

import dataclasses
import json
import os
import typing
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Annotated, Any

import tyro

from unida.bench.tune.space import Space, parse_space
from unida.bench.tune.study import Sampler, grid_size
from unida.config import ENVIRONMENT, RunConfig
from unida.errors import UserError, require
from unida.evaluation.selection import CRITERIA, ORACLE
from unida.pipeline import checked

LABEL_FREE = tuple(name for name in CRITERIA if name != ORACLE)
TOLD_APART = ENVIRONMENT | {"method", "settings", "checkpoint_every"}
"""Fields of a run in which two machines of one study may differ, and those told apart from it."""


@dataclass(frozen=True)
class StudyOptions:
    """The study: what is searched and how it is chosen; --out is its folder."""

    space: Annotated[tuple[str, ...], tyro.conf.arg(metavar="FIELD=SPEC")] = ()
    """What is searched: settings of the method or options of a run, as in --space lam=0.1,0.3,1
    beta=0.1..1 lr=1e-4..1e-1:log. By default, for san, a grid over lam, beta and alpha."""
    trials: int | None = None
    """Trials of the study, all machines together; by default the whole grid, or 20."""
    sampler: Sampler = "grid"
    """grid: every combination once; tpe: Optuna's model of what is good; random."""
    criterion: str | None = None
    """How settings are chosen: source_validation (the default), entropy, neighbourhood_density or
    separation. All do without target labels."""
    oracle: bool = False
    """Choose by target labels instead. For reference only: everything written says 'oracle'."""
    labels: Path | None = None
    """With --oracle: the target in class folders, a list file or a CSV."""
    storage: str | None = None
    """Where the study is kept: a journal file, by default in --out, or the URL of a database such
    as postgresql://…, so that machines without a common folder can share it."""
    study: str | None = None
    """Name of the study in the storage; by default made from what it is."""
    retake: bool = False
    """Also take over trials that other machines began and did not finish. Only if none of them
    works on the study any more."""
    share_hidden: float = 0.25
    """source_validation: share of the source classes that play unknown."""
    share_held_out: float = 0.2
    """source_validation: share of the other classes' images that are held out."""


@dataclass(frozen=True)
class Plan:
    """A study, thought through.

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
        """How the settings are chosen, as every output says it."""
        return ORACLE if self.criterion == ORACLE else f"label-free: {self.criterion}"

    @property
    def definition(self) -> dict[str, Any]:
        """What makes it this study, wherever it runs."""
        run = self.config.flat()
        return {
            "criterion": self.criterion,
            "method": self.config.method,
            "settings": run["settings"],
            "space": [f"{name}={spec}" for name, spec in self.space.items()],
            "sampler": self.sampler,
            **({"shares": list(self.shares)} if self.by_validation else {}),
            **{name: value for name, value in run.items() if name not in TOLD_APART},
        }

    def file(self, name: str) -> Path:
        """A file of the study; what the oracle has a part in is called so."""
        return self.out / (f"{ORACLE}-{name}" if self.criterion == ORACLE else name)

    @property
    def lock(self) -> Path:
        """Held by who reads or writes what the processes of the folder share."""
        return self.out / "locks" / "folder"

    def run(self, number: int) -> Path:
        return self.out / "trials" / self.file(f"{number:03}").name


def make_plan(config: RunConfig, given: StudyOptions) -> Plan:
    """Make the plan of a study, with every name and value checked."""
    config = checked(config)
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
        raise UserError("--labels are looked at only with --oracle: leave them out, or add it.")
    criterion = given.criterion or LABEL_FREE[0]
    allowed = ", ".join(LABEL_FREE) + "; or --oracle"
    require(criterion in LABEL_FREE, "criterion", criterion, allowed)
    return criterion


def _name(plan: Plan) -> str:
    """The study's name: what it is and on which images, in short."""
    if plan.name:
        marked = plan.criterion != ORACLE or ORACLE in plan.name
        return plan.name if marked else f"{ORACLE}-{plan.name}"
    places = [plan.config.data.source, plan.config.data.target, str(plan.labels)]
    content = json.dumps([plan.definition, places]).encode()
    digest = blake2b(content, digest_size=4).hexdigest()
    return f"{plan.config.method}-{plan.criterion}-{digest}"
