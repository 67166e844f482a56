"""`predictions.csv`: the prediction for every target image of a run, written and read."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from unida.errors import UserError
from unida.types import UNKNOWN, FloatArray, IntArray, Prediction
from unida.utils.csv_files import csv_lines, read_csv

COLUMNS = ("path", "label", "confidence", "unknown_score", "rule")


@dataclass(frozen=True)
class PredictionTable:
    """The columns of `predictions.csv` for N images.

    Attributes:
        paths: files of the images.
        labels: predicted class names, or `unknown`.
        confidence: (N,), probability of the most likely known class.
        unknown_score: (N,), higher means more likely unknown.
    """

    paths: list[str]
    labels: list[str]
    confidence: FloatArray
    unknown_score: FloatArray

    def __len__(self) -> int:
        return len(self.paths)

    @property
    def is_unknown(self) -> npt.NDArray[np.bool_]:
        """(N,), which images were rejected."""
        return np.array([label == UNKNOWN for label in self.labels], dtype=bool)

    def class_numbers(self, classes: Sequence[str]) -> IntArray:
        """Return (N,) numbers of the predicted classes; `len(classes)` stands for unknown."""
        number = {name: k for k, name in enumerate([*classes, UNKNOWN])}
        if foreign := set(self.labels) - number.keys():
            raise UserError(f"{min(foreign)!r} in predictions.csv is not a class of the model.")
        return np.array([number[label] for label in self.labels], dtype=np.int64)


def prediction_lines(predictions: Iterable[Prediction]) -> Iterator[str]:
    """Yield the lines of `predictions.csv`."""
    rows = (
        (str(p.path), p.label, f"{p.confidence:.6f}", f"{p.unknown_score:.6g}", p.rule)
        for p in predictions
    )
    return csv_lines(COLUMNS, rows)


def read_predictions(path: Path) -> PredictionTable:
    """Read `predictions.csv`."""
    rows = read_csv(path, COLUMNS)
    try:
        return PredictionTable(
            paths=[row["path"] for row in rows],
            labels=[row["label"] for row in rows],
            confidence=np.array([float(row["confidence"]) for row in rows]),
            unknown_score=np.array([float(row["unknown_score"]) for row in rows]),
        )
    except ValueError as error:
        raise UserError(f"{path} does not hold the predictions of a run ({error}).") from None
