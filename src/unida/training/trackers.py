"""Experiment trackers: TensorBoard, Weights & Biases and MLflow, through Accelerate's classes.

They get the lines of metrics.jsonl, then the estimates of the finished run and its report. What
they write lies in `tracker/` of the run folder, and none needs a network. `tracker/state.json` has
what each got last, so that a resumed run goes on in the same place and no step is logged twice.
"""

import contextlib
import importlib.util
import json
import math
import os
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from accelerate.tracking import LOGGER_TYPE_TO_CLASS, GeneralTracker
from accelerate.utils import LoggerType
from safetensors import safe_open

from unida.config import ENVIRONMENT, RunConfig
from unida.errors import UserError, require_known
from unida.training.predictions import read_predictions
from unida.training.run_folder import RunFolder, write_text
from unida.utils import distributed
from unida.utils.logs import logger

PROJECT = "unida"
"""Name of the project of Weights & Biases and of the experiment of MLflow."""

Arguments = dict[str, Any]


@dataclass(frozen=True)
class Kind:
    """What a tracker needs.

    Attributes:
        package: that it imports.
        arguments: of Accelerate's class, from the run and the tracker's own name of the run, which
            is None in a new one.
        environment: variables to set while it runs where they are not set.
        new_name: makes the tracker's name of a new run, where it takes one.
    """

    package: str
    arguments: Callable[[RunFolder, str | None], Arguments]
    environment: Callable[[RunFolder], dict[str, str]] = lambda run: {}
    new_name: Callable[[], str | None] = lambda: None


def _wandb_arguments(run: RunFolder, name: str | None) -> Arguments:
    import wandb

    settings = {"console": "off", "disable_git": True, "save_code": False, "x_disable_meta": True}
    return {
        "run_name": os.environ.get("WANDB_PROJECT", PROJECT),
        "name": run.path.name,
        "id": name,
        "resume": "allow",
        "mode": os.environ.get("WANDB_MODE", "offline"),
        "dir": str(run.tracker),
        "settings": wandb.Settings(silent=True, **settings),
    }


def _wandb_environment(run: RunFolder) -> dict[str, str]:
    place = str(run.tracker / "wandb")
    return {"WANDB_DATA_DIR": place, "WANDB_CACHE_DIR": place, "WANDB_ERROR_REPORTING": "false"}


def _mlflow_arguments(run: RunFolder, name: str | None) -> Arguments:
    own = os.environ["MLFLOW_TRACKING_URI"] == _mlflow_environment(run)["MLFLOW_TRACKING_URI"]
    artifacts = (run.tracker / "mlflow" / "artifacts").as_uri() if own else None
    more = {"run_id": name} if name else {"run_name": run.path.name}
    return {"experiment_name": PROJECT, "logging_dir": artifacts} | more


def _mlflow_environment(run: RunFolder) -> dict[str, str]:
    file = run.tracker / "mlflow" / "mlflow.db"
    uri = f"sqlite:///{quote(str(file))}"
    return {"MLFLOW_TRACKING_URI": uri, "MLFLOW_DISABLE_TELEMETRY": "true"}


KINDS: dict[str, Kind] = {
    "tensorboard": Kind(
        "tensorboard", lambda run, name: {"run_name": "tensorboard", "logging_dir": run.tracker}
    ),
    "wandb": Kind(
        "wandb", _wandb_arguments, _wandb_environment, new_name=lambda: secrets.token_hex(4)
    ),
    "mlflow": Kind("mlflow", _mlflow_arguments, _mlflow_environment),
}


def check_trackers(names: tuple[str, ...]) -> None:
    """Refuse a tracker that does not exist, lacks its package or would ask for an account.

    A tracker of one's own that was registered with Accelerate (`register_tracker_class`) is one.
    """
    custom = set(LOGGER_TYPE_TO_CLASS) - set(map(str, LoggerType))
    for name in names:
        require_known(name, [*KINDS, *sorted(custom)], "tracker")
        if name in KINDS:
            spec = importlib.util.find_spec(KINDS[name].package)
            if spec is None or spec.origin is None:  # a folder of that name is no package
                raise UserError(
                    f"tracker {name!r} needs a package that is not installed: "
                    f"pip install 'unida[{name}]'."
                )
    if "wandb" in names and os.environ.get("WANDB_MODE") == "online":
        import wandb

        if not wandb.login(prompt=False):
            raise UserError(
                "WANDB_MODE is 'online', but Weights & Biases has no key here: run `wandb login`, "
                "or leave WANDB_MODE out, which writes into the run folder."
            )


@contextmanager
def tracking(config: RunConfig, run: RunFolder) -> Iterator["Tracking"]:
    """Close the trackers of a run when the block ends; they are started by `Tracking.begin`.

    Args:
        config: of the run; checked.
        run: its folder.
    """
    names = tuple(dict.fromkeys(config.output.tracker)) if distributed.is_main_process() else ()
    with contextlib.ExitStack() as stack:
        for name in KINDS.keys() & names:
            stack.enter_context(_environment(KINDS[name].environment(run)))
        trackers = Tracking(names, run, config.optim.steps)
        stack.callback(trackers.close)
        yield trackers


class Tracking:
    """The trackers of a run.

    One that fails after its start is left out with a warning: training is worth more.
    """

    def __init__(self, names: tuple[str, ...], run: RunFolder, steps: int) -> None:
        self.names, self.run, self.steps = names, run, steps
        self.file = run.tracker / "state.json"
        self.state: dict[str, dict[str, Any]] = {}
        self.started: dict[str, GeneralTracker] = {}

    def begin(self, resolved: RunConfig) -> None:
        """Start the trackers and log what the run has already, but they have not."""
        if not self.names:
            return
        self.state = _read_state(self.file)
        options = _options(resolved)
        for name in self.names:
            is_new = name not in self.state
            if is_new:
                new_name = KINDS[name].new_name() if name in KINDS else None
                self.state[name] = {"name": new_name, "step": 0, "concluded": False}
            try:
                self.run.tracker.mkdir(exist_ok=True)
                self._start(name, options if is_new else None)
            except Exception as error:  # of any type: the packages are others'
                text = " ".join(str(error).split())[:200]
                raise UserError(
                    f"tracker {name!r} cannot be started ({type(error).__name__}: {text}): leave "
                    "it out, or mend it; --resume goes on with the run."
                ) from error
            logger.info("Tracker %s: %s.", name, _hint(name, self.run))
        for number in range(resolved.decision.ensemble):
            for line in _read_lines(self.run.member(number).metrics):
                self.log(number, line)

    def log(self, member: int, line: Mapping[str, Any]) -> None:
        """Log a line of metrics.jsonl, unless a tracker has had it.

        Args:
            member: of the ensemble; the steps of one follow those of the one before.
            line: with its `step`.
        """
        step = member * self.steps + int(line["step"])
        group = f"member-{member}" if member else "train"
        values = {f"{group}/{key}": v for key, v in _numbers(line).items() if key != "step"}
        for name in tuple(self.started):
            if step > self.state[name]["step"]:
                self.state[name]["step"] = step
                self._save_state()  # before: a kill in between loses a line and doubles none
                self._log(name, values, step)

    def conclude(self) -> None:
        """Log the estimates of the finished run, and its report where a tracker takes files."""
        if not self.started:
            return
        values = {f"final/{name}": v for name, v in final_values(self.run).items()}
        for name in tuple(self.started):  # one that fails leaves it
            if not self.state[name]["concluded"]:
                self.state[name]["concluded"] = True
                self._save_state()
                self._log(name, values, self.state[name]["step"])
                if name in self.started and self.run.report.exists():
                    self._try(name, lambda tracker: _log_file(tracker, self.run.report))

    def close(self) -> None:
        """Finish the trackers."""
        for name in tuple(self.started):
            self._try(name, lambda tracker: tracker.finish())
            self.started.pop(name, None)

    @property
    def concluded(self) -> bool:
        """Whether every tracker has had all."""
        state = _read_state(self.file) if self.names else {}
        return all(state.get(name, {}).get("concluded") for name in self.names)

    def _start(self, name: str, options: dict[str, Any] | None) -> None:
        cls, own = LOGGER_TYPE_TO_CLASS[name], self.state[name]
        if name in KINDS:
            (self.run.tracker / name).mkdir(exist_ok=True)
            tracker = cls(**KINDS[name].arguments(self.run, own["name"]))
        else:
            place = [self.run.tracker] if cls.requires_logging_directory else []
            tracker = cls(PROJECT, *place)
        tracker.start()
        self.started[name] = tracker
        if name == "mlflow":
            own["name"] = tracker.tracker.info.run_id
        self._save_state()
        if options is not None:
            tracker.store_init_configuration(options)

    def _log(self, name: str, values: dict[str, float], step: int) -> None:
        self._try(name, lambda tracker: tracker.log(values, step=step))

    def _try(self, name: str, do: Callable[[Any], Any]) -> None:
        try:
            do(self.started[name])
        except Exception as error:
            del self.started[name]
            logger.warning("Tracker %s failed and is left out from here on: %r.", name, error)

    def _save_state(self) -> None:
        write_text(self.file, json.dumps(self.state, indent=2) + "\n")


def final_values(run: RunFolder) -> dict[str, float]:
    """Return the estimates of a finished run as plain numbers, by name.

    They need no target labels: those of diagnostics.json, the share of unknown images that the
    reject rule estimates, with its interval, and confidences.
    """
    values = _numbers(_read_json(run.stored_diagnostics).get("estimates", {}))
    rules = _description(run).get("rules", {})
    share = rules.get("share", {})
    names = ("unknown_share", "unknown_share_low", "unknown_share_high")
    found = (share.get("share"), *(share.get("interval") or (None, None)))
    values |= _numbers(dict(zip(names, found, strict=True)))
    calibration = _read_json(run.calibration)
    values |= _numbers({k: calibration.get(k) for k in ("temperature", "ece_before", "ece_after")})
    if run.predictions.exists():
        values["confidence"] = float(read_predictions(run.predictions).confidence.mean())
    return values


def _log_file(tracker: Any, file: Path) -> None:
    """Log a file where the tracker has files."""
    if hasattr(tracker, "log_artifact"):  # that of MLflow, and of one's own
        tracker.log_artifact(str(file))
    elif tracker.name == "wandb":
        import wandb

        artifact = wandb.Artifact(f"report-{tracker.tracker.id}", type="report")
        artifact.add_file(str(file))
        tracker.tracker.log_artifact(artifact)


def _hint(name: str, run: RunFolder) -> str:
    """Return how to see what a tracker has."""
    if name == "tensorboard":
        return f"tensorboard --logdir {run.tracker / name}"
    if name == "mlflow":
        return f"mlflow ui --backend-store-uri '{os.environ['MLFLOW_TRACKING_URI']}'"
    if name == "wandb" and os.environ.get("WANDB_MODE", "offline") == "offline":
        return f"offline; `wandb sync {run.tracker / 'wandb'}/offline-run-*` uploads it"
    return "started"


def _options(config: RunConfig) -> dict[str, Any]:
    """Return what a run is made of, flat and plain; no path of this machine is in it."""
    flat = config.flat()
    settings = {f"set.{name}": value for name, value in flat.pop("settings").items()}
    options = {name: v for name, v in flat.items() if name not in ENVIRONMENT | {"weights"}}
    plain = (bool, int, float, str)
    return {k: v if isinstance(v, plain) else str(v) for k, v in (options | settings).items()}


def _numbers(values: Mapping[str, Any]) -> dict[str, float]:
    """Return the values that are finite numbers."""
    return {
        name: value
        for name, value in values.items()
        if isinstance(value, int | float) and math.isfinite(value)
    }


def _read_lines(metrics: Path) -> Iterator[dict[str, Any]]:
    """Yield the lines of a metrics.jsonl; a kill may have cut the last."""
    if metrics.exists():
        for line in metrics.read_text(errors="replace").splitlines():
            with contextlib.suppress(ValueError):
                content = json.loads(line)
                if isinstance(content, dict) and isinstance(content.get("step"), int):
                    yield content


def _read_json(file: Path) -> dict[str, Any]:
    """Read a file of the run that may be missing."""
    content = json.loads(file.read_bytes()) if file.exists() else {}
    return content if isinstance(content, dict) else {}


def _read_state(file: Path) -> dict[str, dict[str, Any]]:
    """Read what the trackers got last; a damaged file is as none."""
    with contextlib.suppress(ValueError):
        state = _read_json(file)
        if all(isinstance(v, dict) and isinstance(v.get("step"), int) for v in state.values()):
            return {name: {"name": None, "concluded": False} | v for name, v in state.items()}
    return {}


def _description(run: RunFolder) -> dict[str, Any]:
    """Read the description of the stored model, without its tensors."""
    with safe_open(run.model, "pt") as file:
        metadata = file.metadata() or {}
    return dict(json.loads(metadata.get("unida", "{}")))


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set the environment variables that are not set, while the block runs."""
    missing = {name: value for name, value in variables.items() if name not in os.environ}
    os.environ |= missing
    try:
        yield
    finally:
        for name in missing:
            os.environ.pop(name, None)
