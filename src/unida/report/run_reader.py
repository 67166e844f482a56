"""What a run folder holds, read for the report: a file that is not there is None or empty."""

import csv
import io
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open

from unida.data.samples import read_labelled
from unida.errors import UserError
from unida.training.run_folder import RunFolder
from unida.types import UNKNOWN, FloatArray, IntArray


@dataclass(frozen=True)
class PredictionTable:
    """predictions.csv by columns.

    Attributes:
        paths: as in the file.
        labels: numbers of known classes; the number of them stands for unknown.
        confidence: probability of the most likely known class.
        scores: unknown scores.
        rule: the reject rule that decided.
    """

    paths: list[str]
    labels: IntArray
    confidence: FloatArray
    scores: FloatArray
    rule: str

    def __len__(self) -> int:
        return len(self.paths)


@dataclass(frozen=True)
class StoredCategories:
    """What `unida discover` left: categories.json, and category and confidence by path."""

    summary: dict[str, Any]
    category: dict[str, int]
    confidence: dict[str, float]


def read_model(run: RunFolder) -> dict[str, Any]:
    """What the model file says of itself, without its weights."""
    if not run.model.exists():
        state = "is not finished" if run.config.exists() else "holds no run"
        raise UserError(f"{run.path} {state}: there is no model.safetensors in it.")
    try:
        with safe_open(run.model, framework="numpy") as file:
            said: dict[str, Any] = json.loads(file.metadata()["unida"])
    except (SafetensorError, OSError, TypeError, KeyError, ValueError):
        raise UserError(f"{run.model} is not a model of unida.") from None
    return said


def read_predictions(run: RunFolder, classes: Sequence[str]) -> PredictionTable:
    """The verdict on every target image."""
    rows = read_rows(run.predictions)
    number = {name: k for k, name in enumerate([*classes, UNKNOWN])}
    try:
        return PredictionTable(
            paths=[row["path"] for row in rows],
            labels=np.array([number[row["label"]] for row in rows], np.int64),
            confidence=np.array([float(row["confidence"]) for row in rows]),
            scores=np.array([float(row["unknown_score"]) for row in rows]),
            rule=rows[0]["rule"],
        )
    except (KeyError, ValueError, TypeError, IndexError) as error:
        raise UserError(f"{run.predictions} is not that of a finished run ({error!r}).") from None


def read_categories(run: RunFolder) -> StoredCategories | None:
    """The categories among the unknown images, if they were looked for."""
    summary = read_json(run.path / "categories.json")
    if summary is None:
        return None
    rows = [row for row in read_rows(run.path / "categories.csv") if row.get("category")]
    return StoredCategories(
        summary,
        {row["path"]: int(row["category"]) for row in rows},
        {row["path"]: float(row.get("confidence") or "nan") for row in rows},
    )


def read_truth(place: str, paths: Sequence[str]) -> dict[str, str]:
    """True class by path of the images that lie in the labelled place; none if it has gone."""
    try:
        samples = read_labelled(place)
    except UserError:
        return {}
    assert samples.labels is not None
    wanted = {os.path.abspath(path): path for path in paths}
    pairs = zip(map(os.path.abspath, samples.paths), samples.labels, strict=True)
    return {wanted[path]: samples.classes[k] for path, k in pairs if path in wanted}


def read_metrics(run: RunFolder) -> list[dict[str, Any]]:
    """The lines of metrics.jsonl; one that a kill cut off is left out."""
    lines = run.metrics.read_text(errors="replace").splitlines() if run.metrics.exists() else []
    found = (_parsed(line) for line in lines)
    return [line for line in found if isinstance(line, dict) and "step" in line]


def read_rows(path: Path) -> list[dict[str, str]]:
    """A CSV file by column names; names that are not UTF-8 survive."""
    if not path.exists():
        return []
    text = path.read_bytes().decode("utf-8", "surrogateescape")
    return list(csv.DictReader(io.StringIO(text, newline="")))


def read_json(path: Path) -> dict[str, Any] | None:
    """A JSON file, or None where there is none or it holds something else."""
    content = _parsed(path.read_text(errors="replace")) if path.exists() else None
    return content if isinstance(content, dict) else None


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None
