"""The sections of the page, as plain values that JSON can hold."""

import dataclasses
import hashlib
import platform
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from unida import __version__
from unida.data.tables import is_table
from unida.methods import METHODS
from unida.models.description import refusing_damage
from unida.report import sentences
from unida.report.data import ReportData, common_root, read_json
from unida.report.layout import layout_2d, to_grid
from unida.training.run_folder import RunFolder
from unida.types import FloatArray

SCORE_BINS = 40
MAX_SKIPPED = 2_000
MAX_CURVE_POINTS = 400
"""Log points drawn; of more, evenly spaced ones."""
NO_CURVES = frozenset({"step", "epoch", "seconds", "time"})


def collect(run: RunFolder) -> dict[str, Any]:
    """Return the content of the page of a finished run, by section."""
    run.path.exists()  # raises where the system refuses the name, which is no damage
    with refusing_damage(str(run.path)):
        data = ReportData(run)
        return {name: section(data) for name, section in SECTIONS.items()}


def run_info(data: ReportData) -> dict[str, Any]:
    """Return what the run is called and how to make it again."""
    model, about = data.model, METHODS[data.model["method"]].about
    return {
        "id": hashlib.sha256(data.run.predictions.read_bytes()).hexdigest()[:16],
        "name": data.run.path.resolve().name,
        "method": model["method"],
        "paper": f"{about.paper}, {about.venue}",
        "reject": model["reject"],
        "rule": data.rule,
        "classes": data.classes,
        "counts": data.counts.tolist(),
        "total": len(data.predictions),
        "root": data.target_root,
        "command": sentences.command(data.config),
        "config": {key: _text(value) for key, value in data.config.flat().items()},
        "settings": {key: _text(value) for key, value in model["settings"].items()},
        "versions": {
            "unida": __version__,
            "torch": torch.__version__,
            "Python": platform.python_version(),
        },
    }


def notes(data: ReportData) -> list[str]:
    """Return what is missing from the page."""
    shown, missing = len(data.target_paths), len(data.sprites.missing)
    n, without = shown + len(data.source_paths), _has_no_pictures(data)
    candidates = (
        sentences.sampled(shown, len(data.predictions)),
        sentences.no_pictures(n) if without else sentences.unreadable(missing, n),
    )
    return [note for note in candidates if note]


def scores(data: ReportData) -> dict[str, Any] | None:
    """Return a histogram of the unknown scores; outliers are counted into the outer bins."""
    threshold, values = data.threshold, data.predictions.unknown_score
    values = values[np.isfinite(values)]
    if not len(values):
        return None
    low, high = np.quantile(values, (0.005, 0.995))
    low, high = min(low, threshold), max(high, threshold)
    if not low < high:
        return None
    counts, edges = np.histogram(np.clip(values, low, high), SCORE_BINS, (low, high))
    return {"counts": counts.tolist(), "edges": edges.tolist(), "threshold": threshold}


def target(data: ReportData) -> dict[str, Any]:
    """Return the columns of the target images shown; shares are in thousandths."""
    rows, predictions = data.target_rows, data.predictions
    best = data.features.best if data.features else data.labels
    return {
        "path": _relative(data.target_paths, data.target_root),
        "label": data.labels[rows].tolist(),
        "best": best[rows].tolist(),
        "confidence": _thousandths(predictions.confidence[rows]),
        "score": [float(f"{score:.5g}") for score in predictions.unknown_score[rows]],
        "doubt": _thousandths(data.doubt[rows]),
        "category": [data.categories.get(path, 0) for path in data.target_paths],
        "truth": [data.true_classes.get(path) for path in data.target_paths]
        if data.true_classes
        else None,
    }


def source(data: ReportData) -> dict[str, Any]:
    """Return the columns of the source images shown."""
    labels = data.features.source_labels[data.source_rows].tolist() if data.features else []
    root = common_root(data.config.data.source, data.source_paths)
    return {"path": _relative(data.source_paths, root), "label": labels}


def map_of_images(data: ReportData) -> dict[str, Any] | None:
    """Return places of the target images shown, then of the source images."""
    store = data.features
    if store is None:
        return None
    features = np.concatenate(
        [store.features[data.target_rows], store.source_features[data.source_rows]]
    )
    if not np.isfinite(features).all():
        return None
    places, how = layout_2d(features, data.config.optim.seed)
    grid = to_grid(places)
    return {"x": grid[:, 0].tolist(), "y": grid[:, 1].tolist(), "how": how}


def sprites(data: ReportData) -> dict[str, Any]:
    """Return the thumbnails; no sheet where a run on embeddings has no image that can be read."""
    made = dataclasses.asdict(data.sprites)
    return made | {"sheets": []} if _has_no_pictures(data) else made


def categories(data: ReportData) -> dict[str, Any] | None:
    """Return the categories, and their images that are not shown, so that an export is complete."""
    summary = data.category_summary
    if summary is None:
        return None
    shown = set(data.target_paths)
    others = [path for path in data.categories if path not in shown]
    found = []
    for category in summary.get("categories", ()):
        paths = _relative(category.get("representatives", ()), data.target_root)
        odd = _relative(category.get("odd", ()), data.target_root)
        found.append(category | {"representatives": paths, "odd": odd})
    splits = data.splits
    text = repr(sorted(data.categories.items())).encode("utf-8", "surrogateescape")
    return {
        "id": hashlib.sha256(text).hexdigest()[:8],
        "found": found,
        "count": summary.get("count"),
        "method": summary.get("method"),
        "others": {
            "path": _relative(others, data.target_root),
            "category": [data.categories[path] for path in others],
        },
        "tree": splits
        and {
            "merges": summary["tree"]["merges"],
            "splits": [splits.get(path, "") for path in data.target_paths],
            "other_splits": [splits[path] for path in others],
        },
    }


def curves(data: ReportData) -> dict[str, Any] | None:
    """Return every number that was logged more than once, over the steps."""
    lines = data.metrics
    if len(lines) < 2:
        return None
    kept = [
        lines[i] for i in np.unique(np.linspace(0, len(lines) - 1, MAX_CURVE_POINTS).astype(int))
    ]
    values = {name: [line.get(name) for line in kept] for name in kept[-1] if name not in NO_CURVES}
    numeric = {k: v for k, v in values.items() if any(isinstance(x, int | float) for x in v)}
    return {"step": [line["step"] for line in kept], "values": numeric}


SECTIONS: dict[str, Callable[[ReportData], Any]] = {
    "run": run_info,
    "summary": sentences.summary,
    "notes": notes,
    "scores": scores,
    "target": target,
    "source": source,
    "map": map_of_images,
    "sprites": sprites,
    "categories": categories,
    "curves": curves,
    "evaluation": lambda data: data.evaluation,
    "calibration": lambda data: read_json(data.run.calibration),
    "diagnostics": lambda data: read_json(data.run.stored_diagnostics),
    "skipped": lambda data: {"files": data.skipped[:MAX_SKIPPED], "count": len(data.skipped)},
}
"""A function for each section of the page; page.*.js read the values by these names."""


def _has_no_pictures(data: ReportData) -> bool:
    """Whether a run learned from embeddings whose paths are no images that can be read."""
    shown = len(data.target_paths) + len(data.source_paths)
    return is_table(data.config.data.target) and len(data.sprites.missing) == shown


def _relative(paths: Any, root: str) -> list[str]:
    return [path.removeprefix(root) for path in paths]


def _thousandths(shares: FloatArray) -> list[int]:
    return [round(1000 * share) for share in np.nan_to_num(shares).tolist()]


def _text(value: object) -> str:
    return " ".join(map(str, value)) if isinstance(value, tuple | list) else str(value)
