"""`unida tune`: settings are searched, and chosen without target labels unless 'oracle' is said.

    study.json      what the study is, written first
    journal.log     Optuna's record of the trials, unless --storage names another
    split/          for source_validation: the images to train and to validate on
    trials/NAME     a run folder a trial
    locks/          held while a trial is worked on
    trials.csv      every trial and its value
    best.json       the settings chosen, and how

With `--oracle` the names of all of these say so.
"""

import csv
import dataclasses
import io
import json
import math
import os
import shlex
import typing
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fcntl import LOCK_EX, flock
from hashlib import blake2b
from pathlib import Path
from typing import Annotated, Any

import torch
import tyro
from rich.console import Console
from rich.table import Table

from unida.adaptation import checked, run_adaptation
from unida.assess import assess
from unida.bench.tune.space import Space, parse_space, with_values
from unida.bench.tune.study import Row, Sampler, Study, differences, grid_size
from unida.config import RunConfig
from unida.console import say
from unida.data.samples import Samples, Skipped, read_labelled, read_source, read_unlabelled
from unida.errors import UserError, require, shorten
from unida.model import Model
from unida.runs import write_text
from unida.selection import CRITERIA, ORACLE, Evidence, hide_classes

LABEL_FREE = tuple(name for name in CRITERIA if name != ORACLE)
WHERE_NOT_WHAT = frozenset(
    {"source", "target", "out", "method", "settings", "device", "cache", "cache_dir", "memory_gb"}
    | {"log_every", "checkpoint_every"}
)
"""Fields of a run in which two machines of one study may differ, and those told apart from it."""


@dataclass(frozen=True)
class Tune(RunConfig):
    """Searches settings of a method, chosen without target labels; several machines may help.

    The same command again goes on with the study, or helps with it. Options of a run and --set
    are as for unida adapt.

    Example: unida tune --source photos --target sketches --out study --space lam=0.1,0.3,1
    """

    out: str = ""
    """Folder of the study; new or empty, or one that holds this very study."""
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

    def __post_init__(self) -> None:
        """Nothing is checked while parsing: a bad value is answered in one sentence later."""


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
        retake: see `Tune`.
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
        return Path(self.config.out)

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
        run = dataclasses.asdict(self.config)
        return {
            "criterion": self.criterion,
            "method": self.config.method,
            "settings": sorted(self.config.settings),
            "space": [f"{name}={spec}" for name, spec in self.space.items()],
            "sampler": self.sampler,
            **({"shares": list(self.shares)} if self.by_validation else {}),
            **{name: value for name, value in run.items() if name not in WHERE_NOT_WHAT},
        }

    def file(self, name: str) -> Path:
        """A file of the study; what the oracle has a part in is called so."""
        return self.out / (f"{ORACLE}-{name}" if self.criterion == ORACLE else name)

    def run(self, number: int) -> Path:
        return self.out / "trials" / self.file(f"{number:03}").name


def run_tune(given: Tune) -> None:
    """Runs the trials that are left, and says which settings are best."""
    plan = make_plan(given)
    config = _prepare(plan)
    study = Study(
        plan.storage, plan.name, plan.definition, plan.space, plan.sampler, plan.config.seed
    )
    try:
        for number, values in study.take(plan.total, plan.out / "locks", plan.retake):
            name = plan.run(number).name
            say(f"Trial {name} ({number + 1} of {plan.total}): {_in_words(values)}")
            _run_trial(study, plan, config, number, values)
    except KeyboardInterrupt:
        say("The same command goes on with the study.")
        raise
    with _alone(plan.out):
        _conclude(study.rows(), plan)


def make_plan(given: Tune) -> Plan:
    """What a command asks for, with every name and value checked."""
    fields = [f.name for f in dataclasses.fields(RunConfig)]
    config = checked(RunConfig(**{name: getattr(given, name) for name in fields}))
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


def _criterion(given: Tune) -> str:
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
    places = [plan.config.source, plan.config.target, str(plan.labels)]
    content = json.dumps([plan.definition, places]).encode()
    digest = blake2b(content, digest_size=4).hexdigest()
    return f"{plan.config.method}-{plan.criterion}-{digest}"


def _prepare(plan: Plan) -> RunConfig:
    """Looks at the images, claims the folder, and returns the run that the trials vary."""
    source = read_source(plan.config.source)
    read_unlabelled(plan.config.target)
    if plan.labels:
        read_labelled(plan.labels)
    split = hide_classes(source, *plan.shares, plan.config.seed) if plan.by_validation else None
    _make_folder(plan)
    with _alone(plan.out):
        _claim(plan)
        for name, samples in zip(("train", "validation"), split or (), strict=False):
            _write_samples(plan.out / "split" / f"{name}.csv", samples)
    if split is None:
        return plan.config
    return dataclasses.replace(plan.config, source=str(plan.out / "split" / "train.csv"))


def _make_folder(plan: Plan) -> None:
    """Another process of the same study may be doing the same right now."""
    ours = ("locks", "split", "trials")
    try:
        plan.out.mkdir(parents=True, exist_ok=True)
        found = {path.name for path in plan.out.iterdir()}
        if found - set(ours) and not any(name.endswith("study.json") for name in found):
            raise UserError(f"{plan.out} is there and not an empty folder: name another --out.")
        for name in ours:
            (plan.out / name).mkdir(exist_ok=True)
    except OSError as error:
        raise UserError(f"{plan.out} cannot be used: {error.strerror}.") from None


def _claim(plan: Plan) -> None:
    """Writes what the study is; a folder with another study is refused."""
    places = {"source": plan.config.source, "target": plan.config.target}
    labels = {"labels": str(plan.labels)} if plan.labels else {}
    content = {"study": plan.name, **plan.definition, **places, **labels}
    for file in sorted(plan.out.glob("*study.json")):
        try:
            stored = dict(json.loads(file.read_text()))
        except (OSError, ValueError, TypeError) as error:
            raise UserError(f"{file} is not the study.json of a study ({error!r}).") from None
        if changed := differences(stored, content):
            raise UserError(
                f"{plan.out} holds another study ({shorten(changed)}): give it the same, or name "
                "another --out."
            )
    write_text(plan.file("study.json"), json.dumps(content, indent=2) + "\n")


def _write_samples(file: Path, samples: Samples) -> None:
    assert samples.labels is not None
    rows = [
        (os.path.abspath(path), samples.classes[k])
        for path, k in zip(samples.paths, samples.labels, strict=True)
    ]
    write_text(file, _csv([("path", "label"), *rows]))


def _run_trial(
    study: Study, plan: Plan, config: RunConfig, number: int, values: dict[str, Any]
) -> None:
    """One run, gone on with if it was begun; what fails is noted, and the study goes on."""
    config = dataclasses.replace(config, out=str(plan.run(number)))
    try:
        model = run_adaptation(with_values(config, values), resume=True)
        value = criterion_of(model, plan)
    except UserError as error:
        return _failed(study, number, str(error))
    except torch.OutOfMemoryError:
        return _failed(study, number, "The memory of the device is too small.")
    if math.isnan(value):
        return _failed(study, number, f"{plan.criterion} is undefined for what the model says.")
    say(f"{plan.criterion} = {value:.4f}")
    return study.finish(number, value)


def _failed(study: Study, number: int, reason: str) -> None:
    say(f"Trial {number:03} failed: {reason}")
    study.fail(number, reason)


def criterion_of(model: Model, plan: Plan) -> float:
    """The criterion's value of a trained model."""
    criterion, rule = CRITERIA[plan.criterion], model.rule()
    if criterion.images == "target":
        skipped: list[Skipped] = []
        _, scored = model.score(read_unlabelled(plan.config.target).paths, skipped)
        return criterion.value(Evidence(scored, rule))
    place = plan.labels or plan.out / "split" / "validation.csv"
    found = assess(model, place)
    return criterion.value(Evidence(found.scored, rule, found.labels))


def _conclude(rows: list[Row], plan: Plan) -> None:
    """Writes and shows what was found so far."""
    write_text(plan.file("trials.csv"), _trials_csv(rows, plan))
    finished = [row for row in rows if row.value is not None]
    running = sum(row.state == "running" for row in rows)
    if running:
        say(f"{running} of the trials are with other processes; if these are gone, add --retake.")
    if not finished:
        failed = [row.reason for row in rows if row.state == "failed"]
        if failed and not running:
            raise UserError(f"No trial has finished: {failed[0]}")
        return
    best = max(finished, key=lambda row: (row.value, -row.number))
    command = shlex.join(["unida", "adapt", *_arguments(plan, best.values)])
    content = {
        "chosen": plan.how,
        "about": CRITERIA[plan.criterion].about,
        "value": best.value,
        "values": best.values,
        "study": plan.name,
        "trial": best.number,
        "run": str(plan.run(best.number).relative_to(plan.out)),
        "trials": {
            state: sum(row.state == state for row in rows)
            for state in ("finished", "failed", "running")
        },
        "command": command,
    }
    write_text(plan.file("best.json"), json.dumps(content, indent=2) + "\n")
    _print_table(rows, plan, best)
    if ties := sum(row.value == best.value for row in finished) - 1:
        say(f"{ties} more of the trials reach the same value; the first was taken.")
    say(f"{plan.how} ({CRITERIA[plan.criterion].about}):")
    say(f"{_in_words(best.values)} is best. {plan.file('best.json')} has it, and")
    say(f"  {command}")
    say("runs it." if plan.by_validation else f"runs it; the same run is {plan.run(best.number)}.")


def _arguments(plan: Plan, values: dict[str, Any]) -> Iterator[str]:
    """Of the `unida adapt` that uses what was chosen, on the whole source."""
    run = with_values(dataclasses.replace(plan.config, out=str(plan.file("best"))), values)
    for field in dataclasses.fields(RunConfig):
        value = getattr(run, field.name)
        flag = "set" if field.name == "settings" else field.name.replace("_", "-")
        if value == field.default:
            continue
        if isinstance(value, bool):
            yield f"--{flag}" if value else f"--no-{flag}"
        else:
            yield f"--{flag}"
            yield from value if isinstance(value, tuple) else (str(value),)


def _trials_csv(rows: list[Row], plan: Plan) -> str:
    header = ("trial", "state", plan.criterion, *plan.space, "run", "reason")
    table = [
        (
            str(row.number),
            row.state,
            "" if row.value is None else repr(row.value),
            *(str(row.values.get(name, "")) for name in plan.space),
            str(plan.run(row.number).relative_to(plan.out)),
            row.reason,
        )
        for row in rows
    ]
    return _csv([header, *table])


def _print_table(rows: list[Row], plan: Plan, best: Row) -> None:
    table = Table(title=f"{plan.config.method}, {plan.how}")
    for name in ("trial", *plan.space, plan.criterion):
        table.add_column(name, justify="right")
    for row in sorted(rows, key=lambda row: (-_or_last(row.value), row.number)):
        value = row.state if row.value is None else f"{row.value:.4f}"
        fields = (_short(row.values.get(name, "")) for name in plan.space)
        style = "bold" if row is best else None
        table.add_row(plan.run(row.number).name, *fields, value, style=style)
    Console().print(table)


def _or_last(value: float | None) -> float:
    return -math.inf if value is None else value


def _short(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _in_words(values: dict[str, Any]) -> str:
    return " ".join(f"{name}={_short(value)}" for name, value in values.items())


def _csv(rows: list[tuple[str, ...]]) -> str:
    text = io.StringIO(newline="")
    # All quoted: before Python 3.13 the writer leaves a lone carriage return unquoted.
    csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_ALL).writerows(rows)
    return text.getvalue()


@contextmanager
def _alone(out: Path) -> Iterator[None]:
    """No other process of this folder is inside at the same time."""
    with (out / "locks" / "folder").open("a") as file:
        flock(file, LOCK_EX)
        yield
