"""An Optuna study that many processes and machines may share and resume.

Trials are numbered from 0 and created waiting; the values of a trial are derived from its number
(and, for `tpe`, from the trials finished so far). A process takes a trial by changing its state
from waiting to running, which the storage permits to one process. While it runs, the process holds
a lock in the folder, which the system releases if the process dies: then another may resume it.
"""

import math
import os
import platform
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal

from unida.bench.tune.options import Sampler
from unida.bench.tune.space import Choices, Range, Space
from unida.errors import UserError, shorten
from unida.utils.locks import held
from unida.utils.rng import derive_seed

if TYPE_CHECKING:
    import optuna


@dataclass(frozen=True)
class Trial:
    """A trial that was begun.

    Attributes:
        number: of the trial.
        state: `finished`, `failed` or `running`.
        value: of the criterion, if finished.
        values: of the searched fields.
        reason: why it failed.
    """

    number: int
    state: Literal["finished", "failed", "running"]
    value: float | None
    values: dict[str, Any]
    reason: str


class Study:
    """Trials of a search space in a shared storage."""

    def __init__(
        self,
        storage: str,
        name: str,
        definition: Mapping[str, Any],
        space: Space,
        sampler: Sampler,
        seed: int,
    ) -> None:
        """Join the study of that name, or create it.

        Args:
            storage: path of a journal file, or URL of a database.
            name: of the study.
            definition: of the study; a study of the same name must have the same.
            space: the fields searched.
            sampler: how values are picked.
            seed: of the picks.
        """
        self._optuna = _import_optuna()
        self._storage = _open(storage)
        self.name, self._space, self._sampler, self._seed = name, space, sampler, seed
        self._study: optuna.Study = self._optuna.create_study(
            storage=self._storage, study_name=name, direction="maximize", load_if_exists=True
        )
        self._join(dict(definition))

    def take(
        self, total: int, locks: Path, retake: bool = False
    ) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield trials for this process, until all are finished or run elsewhere.

        Each must be ended by `finish` or `fail` before the next is taken.

        Args:
            total: trials of the study.
            locks: folder of the locks.
            retake: also take trials that run on other machines, as far as the storage knows.
        """
        while len(self._trials()) < total:  # one too many, by a race, stays waiting
            template = self._optuna.trial.create_trial(state=self._optuna.trial.TrialState.WAITING)
            self._study.add_trial(template)
        taken = True
        while taken:  # a process may have died meanwhile
            taken = False
            for number in range(total):
                with held(locks / f"{number:03}") as lock:
                    if lock is not None and self._begin(number, lock, retake):
                        taken = True
                        yield number, self._values(number)

    def finish(self, number: int, value: float) -> None:
        state = self._optuna.trial.TrialState.COMPLETE
        self._storage.set_trial_state_values(self._id(number), state, [value])

    def fail(self, number: int, reason: str) -> None:
        self._storage.set_trial_user_attr(self._id(number), "reason", reason)
        state = self._optuna.trial.TrialState.FAIL
        self._storage.set_trial_state_values(self._id(number), state)

    def trials(self) -> list[Trial]:
        """Return every trial that was begun, by number."""
        states = self._optuna.trial.TrialState
        names: dict[Any, Literal["finished", "failed", "running"]]
        names = {states.COMPLETE: "finished", states.FAIL: "failed", states.RUNNING: "running"}
        return [
            Trial(
                number=trial.number,
                state=names[trial.state],
                value=trial.value if trial.state == states.COMPLETE else None,
                values=dict(trial.params),
                reason=trial.user_attrs.get("reason", ""),
            )
            for trial in self._trials()
            if trial.state in names
        ]

    def _trials(self) -> "list[optuna.trial.FrozenTrial]":
        return self._study.get_trials(deepcopy=False)

    def _id(self, number: int) -> int:
        study = self._storage.get_study_id_from_name(self.name)
        return self._storage.get_trial_id_from_study_id_trial_number(study, number)

    def _join(self, definition: dict[str, Any]) -> None:
        stored = self._study.user_attrs.get("definition")
        if stored is None:
            self._study.set_user_attr("definition", definition)
        elif changed := differences(stored, definition):
            raise UserError(
                f"The study {self.name!r} was started with other settings ({shorten(changed)}): "
                "give it the same, or name another --study."
            )

    def _begin(self, number: int, lock: IO[str], retake: bool) -> bool:
        """Take a trial for this process, if it is waiting or was abandoned."""
        states = self._optuna.trial.TrialState
        trial_id = self._id(number)
        state = self._storage.get_trial(trial_id).state
        if state == states.RUNNING:
            # The mark shows that the trial ran here, not on a machine with other locks.
            mine = retake or bool(lock.read())
        elif state == states.WAITING:
            mine = self._from_waiting(trial_id)
        else:
            mine = False
        if mine:
            lock.write(f"{platform.node()} {os.getpid()}\n")
            lock.flush()
        return mine

    def _from_waiting(self, trial_id: int) -> bool:
        """Return whether this process changed the trial from waiting to running."""
        try:
            running = self._optuna.trial.TrialState.RUNNING
            return bool(self._storage.set_trial_state_values(trial_id, running))
        except self._optuna.exceptions.UpdateFinishedTrialError:
            return False

    def _values(self, number: int) -> dict[str, Any]:
        """Return the values of a trial; a resumed one has them already."""
        self._study.sampler = self._sampler_of(number)
        trial = self._optuna.trial.Trial(self._study, self._id(number))
        return {name: _suggest(trial, name, spec) for name, spec in self._space.items()}

    def _sampler_of(self, number: int) -> "optuna.samplers.BaseSampler":
        from optuna import samplers

        if self._sampler == "grid":  # trial N is point N of the shuffled grid
            return samplers.GridSampler(_points(self._space), seed=self._seed)
        # A seed for every trial: processes that start alike must not draw alike.
        seed = derive_seed(self._seed, "trial", number) % 2**32
        if self._sampler == "tpe":
            return samplers.TPESampler(seed=seed)
        return samplers.RandomSampler(seed=seed)


def grid_size(space: Space) -> int:
    """Return the number of points of the grid."""
    return math.prod(len(values) for values in _points(space).values())


def _points(space: Space) -> dict[str, tuple[str, ...]]:
    """Return values by field; a range is an error."""
    points = {}
    for name, spec in space.items():
        if isinstance(spec, Range):
            raise UserError(
                f"A grid needs values, and {name} is the range {spec}: list values with commas, "
                "or take --sampler tpe or random."
            )
        points[name] = spec.values
    return points


def differences(stored: Mapping[str, Any], given: Mapping[str, Any]) -> list[str]:
    """Return entries that differ, as `steps=600` in the stored one."""
    names = [*stored, *(name for name in given if name not in stored)]
    return [f"{name}={stored.get(name)!r}" for name in names if stored.get(name) != given.get(name)]


def _suggest(trial: "optuna.trial.Trial", name: str, spec: Choices | Range) -> Any:
    if isinstance(spec, Choices):
        return trial.suggest_categorical(name, spec.values)
    suggest: Callable[..., float] = trial.suggest_int if spec.whole else trial.suggest_float
    return suggest(name, spec.low, spec.high, log=spec.log)


def _open(storage: str) -> "optuna.storages.BaseStorage":
    from optuna.storages import JournalStorage, RDBStorage
    from optuna.storages.journal import JournalFileBackend

    if "://" in storage:
        try:
            return RDBStorage(storage)
        except Exception as error:  # a database driver raises nearly any type
            # The URL is not shown: it may hold a password.
            raise UserError(f"The database of --storage: {type(error).__name__}.") from None
    try:
        return JournalStorage(JournalFileBackend(storage))
    except OSError as error:
        raise UserError(f"{storage} cannot be used: {error.strerror}.") from None
    except (ValueError, KeyError, TypeError, AssertionError):
        raise UserError(f"{storage} is not a journal of Optuna: name another --storage.") from None


def _import_optuna() -> Any:
    try:
        import optuna
    except ImportError:
        raise UserError("unida tune needs Optuna (extra 'tune'): pip install optuna.") from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna
