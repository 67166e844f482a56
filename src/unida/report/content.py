"""All the page shows, as plain values that JSON can hold."""

import dataclasses
import hashlib
import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from unida import __version__
from unida.config import RunConfig
from unida.evaluation.feature_store import FeatureStore, read_feature_store
from unida.methods import METHODS
from unida.methods.presets import load_config
from unida.report import summary_text
from unida.report.layout import layout_2d, to_grid
from unida.report.run_reader import (
    PredictionTable,
    StoredCategories,
    read_categories,
    read_json,
    read_metrics,
    read_model,
    read_predictions,
    read_rows,
    read_truth,
)
from unida.report.selection import MOST_OF_SOURCE, choose, doubt_of
from unida.report.thumbnails import make_sprites
from unida.training.run_folder import RunFolder
from unida.types import FloatArray, IntArray
from unida.utils.chunking import subsample

FORMAT = 1
SCORE_BINS = 40
MOST_SKIPPED = 2_000
MOST_LINES = 400
"""Log points drawn; of more, evenly spaced ones."""
_NO_CURVE = frozenset({"step", "epoch", "seconds", "time"})


@dataclass(frozen=True)
class Shown:
    """The images in the page: numbers of target images, and the source images of the atlas.

    Attributes:
        target: rows of predictions.csv.
        source: rows of the atlas's source.
        atlas: features; None where the run has none.
    """

    target: IntArray
    source: IntArray
    atlas: FeatureStore | None


def collect(run: RunFolder) -> dict[str, Any]:
    """Everything there is to show of a finished run."""
    said, config = read_model(run), load_config(run.config)
    classes = said["classes"]
    verdicts, found = read_predictions(run, classes), read_categories(run)
    rule = said["rules"][said["reject"]]
    doubt = doubt_of(verdicts, rule["threshold"], len(classes))
    pick = _pick(run, verdicts, doubt, config.optim.seed)
    evaluation, skipped = read_json(run.evaluation), read_rows(run.skipped)
    truth = read_truth(evaluation["labels"], verdicts.paths) if evaluation else {}
    root = _root(config.data.target, verdicts.paths)
    paths = [verdicts.paths[i] for i in pick.target] + _source_paths(pick)
    sprites = make_sprites(paths)
    return {
        "format": FORMAT,
        "run": _about(run, config, said),
        "summary": summary_text.summary(config, said, verdicts, found),
        "notes": [
            note
            for note in (
                summary_text.shown(len(pick.target), len(verdicts)),
                summary_text.gone(len(sprites.missing), len(paths)),
            )
            if note
        ],
        "classes": classes,
        "counts": np.bincount(verdicts.labels, minlength=len(classes) + 1).tolist(),
        "total": len(verdicts),
        "scores": _scores(verdicts, rule),
        "root": root,
        "target": _target(verdicts, pick, doubt, root, found, truth),
        "source": _source(pick, _root(config.data.source, _source_paths(pick))),
        "map": _map(pick, config.optim.seed),
        "sprites": dataclasses.asdict(sprites),
        "categories": _categories(found, verdicts, pick, root),
        "curves": _curves(read_metrics(run)),
        "evaluation": evaluation,
        "calibration": read_json(run.calibration),
        "quality": read_json(run.stored_diagnostics),
        "skipped": [[row.get("path", ""), row.get("reason", "")] for row in skipped[:MOST_SKIPPED]],
        "n_skipped": len(skipped),
    }


def _pick(run: RunFolder, verdicts: PredictionTable, doubt: FloatArray, seed: int) -> Shown:
    atlas = read_feature_store(stored) if (stored := run.stored_features).exists() else None
    if atlas is not None and len(atlas.features) != len(verdicts):
        atlas = None  # of another run: better no map than a wrong one
    n_source = len(atlas.source_labels) if atlas else 0
    source = subsample(n_source, MOST_OF_SOURCE, seed, "report source")
    return Shown(choose(verdicts.labels, doubt, seed), source, atlas)


def _about(run: RunFolder, config: RunConfig, said: dict[str, Any]) -> dict[str, Any]:
    """How to make the run again, and what it is called."""
    about = METHODS[said["method"]].about
    return {
        "id": hashlib.sha256(run.predictions.read_bytes()).hexdigest()[:16],
        "name": run.path.resolve().name,
        "method": said["method"],
        "paper": f"{about.paper}, {about.venue}",
        "asked": said["reject"],
        "rule": said["rules"][said["reject"]],
        "command": summary_text.command(config),
        "config": {key: _text(value) for key, value in config.flat().items()},
        "settings": {key: _text(value) for key, value in said["settings"].items()},
        "versions": {
            "unida": __version__,
            "torch": torch.__version__,
            "Python": platform.python_version(),
        },
    }


def _target(
    verdicts: PredictionTable,
    pick: Shown,
    doubt: FloatArray,
    root: str,
    found: StoredCategories | None,
    truth: dict[str, str],
) -> dict[str, Any]:
    """The target images shown, by columns; shares are in thousandths."""
    rows = pick.target
    paths = [verdicts.paths[i] for i in rows]
    category = found.category if found else {}
    return {
        "path": [path.removeprefix(root) for path in paths],
        "label": verdicts.labels[rows].tolist(),
        "best": (pick.atlas.best[rows] if pick.atlas else verdicts.labels[rows]).tolist(),
        "confidence": _thousandths(verdicts.confidence[rows]),
        "score": [float(f"{score:.5g}") for score in verdicts.scores[rows]],
        "doubt": _thousandths(doubt[rows]),
        "category": [category.get(path, 0) for path in paths],
        "truth": [truth.get(path) for path in paths] if truth else None,
    }


def _source(pick: Shown, root: str) -> dict[str, Any]:
    labels = pick.atlas.source_labels[pick.source].tolist() if pick.atlas else []
    paths = [path.removeprefix(root) for path in _source_paths(pick)]
    return {"path": paths, "label": labels}


def _source_paths(pick: Shown) -> list[str]:
    return pick.atlas.source_paths[pick.source].tolist() if pick.atlas else []


def _map(pick: Shown, seed: int) -> dict[str, Any] | None:
    """Places of the target images, then of the source images."""
    if pick.atlas is None:
        return None
    both = [pick.atlas.features[pick.target], pick.atlas.source_features[pick.source]]
    features = np.concatenate(both)
    if not np.isfinite(features).all():
        return None
    place, how = layout_2d(features, seed)
    grid = to_grid(place)
    return {"x": grid[:, 0].tolist(), "y": grid[:, 1].tolist(), "how": how}


def _scores(verdicts: PredictionTable, rule: dict[str, Any]) -> dict[str, Any] | None:
    """A histogram of the unknown scores; the few far ends are counted into the outer bins."""
    values = verdicts.scores[np.isfinite(verdicts.scores)]
    if not len(values):
        return None
    low, high = np.quantile(values, (0.005, 0.995))
    low, high = min(low, rule["threshold"]), max(high, rule["threshold"])
    if not low < high:
        return None
    counts, edges = np.histogram(np.clip(values, low, high), SCORE_BINS, (low, high))
    return {"counts": counts.tolist(), "edges": edges.tolist(), "threshold": rule["threshold"]}


def _categories(
    found: StoredCategories | None, verdicts: PredictionTable, pick: Shown, root: str
) -> dict[str, Any] | None:
    """The groups, with those of their images that are not shown, so that an export is whole."""
    if found is None:
        return None
    seen = {verdicts.paths[i] for i in pick.target}
    others = [path for path in found.category if path not in seen]
    groups = []
    for group in found.summary.get("categories", ()):
        first = [path.removeprefix(root) for path in group.get("representatives", ())]
        groups.append(group | {"representatives": first})
    text = repr(sorted(found.category.items())).encode("utf-8", "surrogateescape")
    return {
        "id": hashlib.sha256(text).hexdigest()[:8],
        "groups": groups,
        "count": found.summary.get("count"),
        "method": found.summary.get("method"),
        "others": {
            "path": [path.removeprefix(root) for path in others],
            "category": [found.category[path] for path in others],
        },
    }


def _curves(lines: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Every number that was logged more than once, over the steps."""
    if len(lines) < 2:
        return None
    rows = np.unique(np.linspace(0, len(lines) - 1, MOST_LINES).astype(int))
    kept = [lines[i] for i in rows]
    names = [name for name in kept[-1] if name not in _NO_CURVE]
    numbers = {name: [line.get(name) for line in kept] for name in names}
    return {
        "step": [line["step"] for line in kept],
        "values": {
            name: values
            for name, values in numbers.items()
            if any(isinstance(value, int | float) for value in values)
        },
    }


def _root(place: str, paths: Sequence[str]) -> str:
    """What all paths begin with and need not be repeated: the domain's folder where they lie."""
    folder = os.path.join(place, "")
    if all(path.startswith(folder) for path in paths):
        return folder
    parents = {os.path.dirname(path) for path in paths}
    try:
        return os.path.join(os.path.commonpath(parents), "")
    except ValueError:  # some absolute, some not, or on several drives
        return ""


def _thousandths(shares: FloatArray) -> list[int]:
    return [round(1000 * share) for share in np.nan_to_num(shares).tolist()]


def _text(value: object) -> str:
    return " ".join(map(str, value)) if isinstance(value, tuple | list) else str(value)
