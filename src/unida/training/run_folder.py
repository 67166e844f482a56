"""A run on disk.

    config.json         what the run is made of, written first
    metrics.jsonl       one line a log point
    state.pt            training state of the last checkpoint; removed when the run is done
    model.safetensors   the trained model with its classes and reject rules
    predictions.csv     the prediction for every target image
    features.npz        principal components of the features, for maps and categories
    probabilities.npz   class probabilities of every target image
    calibration.json    how confidence was calibrated, where source images were held out
    diagnostics.json    label-free estimates of how good the run is, and warnings
    skipped.csv         images left out, and why
    done                written last
    .lock               held while the run goes on; it names the process (`unida.training.claim`)
    categories.csv      novel categories of the unknown images (`unida discover`), and in
    categories.json     how many there are, and what shows them
    report.html         the run as a page; comes after all, and anew by `unida report`
    source.csv          of a continued run: the images it learns from, and in
    source.npy          their embeddings, where it learns from embeddings
    review.json         names and labels a person gave (`unida.review`); every save is kept in
    review-history/
    tracker/            what experiment trackers write (`unida.training.trackers`)

Files are written to a temporary name and renamed, so whatever is there is whole. Runs of unida 0.x
have `atlas.npz` for `features.npz` and `quality.json` for `diagnostics.json`; both are still read.
"""

import contextlib
import errno
import json
import os
import stat
import tempfile
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, BinaryIO

import torch

from unida.config import ENVIRONMENT, FORMAT, RunConfig, to_json
from unida.data.samples import Skipped
from unida.errors import UserError
from unida.training.predictions import prediction_lines
from unida.types import Prediction
from unida.utils import distributed
from unida.utils.csv_files import csv_lines, to_bytes
from unida.utils.json_text import to_line
from unida.utils.parts import new_part


class RunFolder:
    """The files of one run."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.config = self.path / "config.json"
        self.metrics = self.path / "metrics.jsonl"
        self.state = self.path / "state.pt"
        self.model = self.path / "model.safetensors"
        self.predictions = self.path / "predictions.csv"
        self.features = self.path / "features.npz"
        self.probabilities = self.path / "probabilities.npz"
        self.calibration = self.path / "calibration.json"
        self.diagnostics = self.path / "diagnostics.json"
        self.skipped = self.path / "skipped.csv"
        self.evaluation = self.path / "evaluation.json"
        self.done = self.path / "done"
        self.report = self.path / "report.html"
        self.categories = self.path / "categories.csv"
        self.category_summary = self.path / "categories.json"
        self.source = self.path / "source.csv"
        self.source_embeddings = self.path / "source.npy"
        self.review = self.path / "review.json"
        self.review_history = self.path / "review-history"
        self.tracker = self.path / "tracker"
        self.lock = self.path / ".lock"

    @property
    def stored_features(self) -> Path:
        """The features, under the name of an earlier version where that is what there is."""
        return _first_existing(self.features, self.path / "atlas.npz")

    @property
    def stored_diagnostics(self) -> Path:
        """The diagnostics, under the name of an earlier version where that is what there is."""
        return _first_existing(self.diagnostics, self.path / "quality.json")

    def member(self, number: int) -> "RunFolder":
        """Return the folder of a member of an ensemble; the first one's is the run's own."""
        return RunFolder(self.path / f"member-{number}") if number else self

    def begin(self, config: RunConfig, resolved: RunConfig | None = None) -> None:
        """Write the configuration of a new run; a run to be resumed has it already.

        Args:
            config: as requested.
            resolved: the same with every `auto` value as it is in force.
        """
        if self.config.exists():
            return
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"{self.path} cannot be made: {error.strerror}.") from None
        content = {"format": FORMAT, "run": to_json(config)}
        if resolved:
            content["resolved"] = to_json(resolved)
        write_text(self.config, json.dumps(content, indent=2) + "\n")

    def append_metrics(self, line: dict[str, Any]) -> None:
        if not distributed.is_main_process():
            return
        with _write_errors(self.metrics), self.metrics.open("a") as file:
            file.write(to_line(line))

    def save_state(self, state: dict[str, Any]) -> None:
        write_file(self.state, lambda file: torch.save(state, file))

    def load_state(self) -> tuple[dict[str, Any] | None, list[dict[str, Any]]]:
        """Load the last checkpoint, or None, and the log lines up to it; drop later lines."""
        state: dict[str, Any] | None = None
        if self.state.exists():
            try:
                state = _read_state(self.state)
            except Exception:  # torch.load raises nearly any type on a damaged file
                raise UserError(
                    f"{self.state} is not a whole checkpoint: remove it to train from the start."
                ) from None
        step, kept = state["step"] if state else 0, list[str]()
        if self.metrics.exists():
            lines = self.metrics.read_text(errors="replace").splitlines()
            kept = [line for line in lines if _step_of(line) <= step]
            write_text(self.metrics, "".join(line + "\n" for line in kept))
        return state, [json.loads(line) for line in kept]

    def write_predictions(self, predictions: Iterable[Prediction]) -> None:
        write_lines(self.predictions, prediction_lines(predictions))

    def write_skipped(self, skipped: Iterable[Skipped]) -> None:
        rows = ((str(s.path), s.reason) for s in skipped)
        write_lines(self.skipped, csv_lines(("path", "reason"), rows))

    def finish(self) -> None:
        write_text(self.done, "")
        if distributed.is_main_process():
            for state in self.states():
                state.unlink(missing_ok=True)

    def states(self) -> list[Path]:
        """Return the checkpoints that are there, of all members."""
        return [*self.path.glob(self.state.name), *self.path.glob(f"member-*/{self.state.name}")]


def differences(stored: RunConfig, given: RunConfig) -> list[str]:
    """Return fields whose values differ, as 'steps=600'; a run may move to another device."""
    free = ENVIRONMENT - {"source", "target", "source_model"}
    then, now = ({**c.flat(), **c.flat()["settings"]} for c in (stored, given))
    return [
        f"{name}={value!r}"
        for name, value in then.items()
        if name not in free | {"settings"} and now.get(name) != value
    ]


def write_text(path: Path, text: str) -> None:
    write_lines(path, (text,))


def write_lines(path: Path, lines: Iterable[str]) -> None:
    write_file(path, lambda file: file.writelines(map(to_bytes, lines)))


def write_file(path: Path, write: Callable[[BinaryIO], Any]) -> None:
    """Write to a temporary name beside `path`, flush to disk, then rename; main process only.

    A device, a pipe or the standard output is written to, and of a link its target is replaced.
    """
    if not distributed.is_main_process():
        return
    with _write_errors(path):
        if _is_special(path):
            with open(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NOCTTY), "wb") as file:
                write(file)
            return
        path = Path(os.path.realpath(path))
        with new_part(path) as (part, file):
            write(file)
            file.flush()
            os.fsync(file.fileno())
            part.replace(path)


def require_writable(path: Path) -> None:
    """Refuse a file that cannot be written, before the work for it is done."""
    with _write_errors(path):
        if path.is_dir():
            raise UserError(f"{path} is a folder: name a file.")
        if _is_special(path):
            if not os.access(path, os.W_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        else:
            tempfile.TemporaryFile(dir=os.path.dirname(os.path.realpath(path))).close()


def _is_special(path: Path) -> bool:
    """Whether a path names no regular file, or one that this process prints to."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return False
    if not stat.S_ISREG(found.st_mode):
        return True
    for printed in (1, 2):
        with contextlib.suppress(OSError):  # closed
            if os.path.samestat(os.fstat(printed), found):
                return True
    return False


class _write_errors:  # noqa: N801 - a context manager
    """Turn a failed write, such as on a full disk, into a `UserError`."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        # Torch's writer raises another error after a failed write.
        reason = error.__context__ if isinstance(error, RuntimeError) else error
        if isinstance(reason, OSError) and not isinstance(reason, BrokenPipeError):
            raise UserError(
                f"{self.path} cannot be written: {reason.strerror or reason}. Everything written "
                "before is whole; a run goes on with --resume."
            ) from reason


def _read_state(file: Path) -> dict[str, Any]:
    """Read a checkpoint, after a comparison of its checksums: torch does not compare them."""
    with zipfile.ZipFile(file) as parts:
        if damaged := parts.testzip():
            raise zipfile.BadZipFile(damaged)
    state: dict[str, Any] = torch.load(file, map_location="cpu", weights_only=True)
    int(state["step"])
    return state


def _first_existing(path: Path, earlier: Path) -> Path:
    return earlier if earlier.exists() and not path.exists() else path


def _step_of(line: str) -> int:
    """Step of a log line; a line cut off by a kill counts as after every checkpoint."""
    try:
        return int(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError):
        return 2**63
