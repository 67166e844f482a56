"""A made-up run: what `adapt`, `discover`, `evaluate` leave, without training anything."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw
from safetensors.numpy import save_file

from unida.config import RunConfig
from unida.data.samples import Skipped
from unida.evaluation.feature_store import FeatureStore, build_feature_store
from unida.training.run_folder import RunFolder, write_text
from unida.types import Prediction
from unida.utils.csv_files import to_csv

HOSTILE = "<img src=x onerror=alert(1)>"
CLASSES = ("apple", "bicycle", "</script><script>alert(2)</script>", "cup", "dog & 'cat'", HOSTILE)
THRESHOLD = 0.5
COLOURS = ("#c0392b", "#2471a3", "#1e8449", "#b7950b", "#76448a", "#117a65", "#d35400", "#5d6d7e")
SHAPES = ("ellipse", "rectangle", "pie", "line")


def make_run(
    folder: Path,
    per_class: int = 8,
    unknown: int = 16,
    classes: Sequence[str] = CLASSES,
    extras: bool = True,
    pictures: bool = True,
    threshold: float | str = THRESHOLD,
) -> RunFolder:
    """A finished run in `folder/run` on images in `folder/target` and `folder/source`.

    Args:
        folder: new.
        per_class: target images of each known class, and half as many of the source.
        unknown: target images called unknown, in four categories.
        classes: their names.
        extras: write what `discover`, `evaluate` and calibration leave too.
        pictures: draw every image; otherwise one file stands for all.
        threshold: of the reject rule, as it is stored.
    """
    rng = np.random.default_rng(0)
    run, k = RunFolder(folder / "run"), len(classes)
    labels = np.r_[np.repeat(np.arange(k), per_class), np.full(unknown, k)]
    group = np.where(labels == k, k + np.arange(len(labels)) % 4, labels)
    target = _draw(folder / "target", group, rng, pictures)
    of_source = np.repeat(np.arange(k), max(1, per_class // 2))
    source = _draw(folder / "source", of_source, rng, pictures)
    config = RunConfig.from_flat(
        source=str(folder / "source"), target=str(folder / "target"), out=str(run.path), steps=100
    )
    run.begin(config)
    _write_model(run, classes, threshold)
    confidence = np.where(labels < k, rng.beta(6, 1.5, len(labels)), rng.beta(2, 3, len(labels)))
    scores = np.where(labels < k, rng.beta(2, 6, len(labels)), 1 - rng.beta(2, 6, len(labels)))
    scores = np.where(labels < k, np.minimum(scores, 0.49), np.maximum(scores, 0.5))
    names = [*classes, "unknown"]
    rows = zip(target, labels, confidence, scores, strict=True)
    run.write_predictions(
        Prediction(p, names[y], float(c), float(s), "mixture") for p, y, c, s in rows
    )
    _features(group, of_source, source, k, rng).save(run.features)
    run.write_skipped([Skipped(folder / "target" / f"{HOSTILE}.gif", "not an image")])
    for step in range(10, 101, 10):
        loss = {"ce": 2.0 / step, "scl": 1 + rng.random() / 10}
        run.append_metrics({"step": step, "loss": sum(loss.values()), **loss, "lr": 0.01})
    if extras:
        _write_extras(run, target, labels, names, rng)
    run.finish()
    return run


def _draw(
    folder: Path, group: np.ndarray[Any, Any], rng: np.random.Generator, pictures: bool
) -> tuple[Path, ...]:
    folder.mkdir()
    if not pictures:
        path = folder / "one.png"
        Image.new("RGB", (8, 8), "#8fb").save(path)
        return (path,) * len(group)
    paths = []
    for i, g in enumerate(group):
        width = int(rng.integers(70, 130))
        image = Image.new("RGB", (width, 96), tuple(int(v) for v in rng.integers(215, 250, 3)))
        x, y, r = int(rng.integers(30, width - 29)), int(rng.integers(35, 60)), 22 + int(i % 9)
        box, pen = (x - r, y - r, x + r, y + r), ImageDraw.Draw(image)
        kind, colour = SHAPES[int(g) % 4], COLOURS[int(g) % 8]
        if kind == "pie":
            pen.pieslice(box, 30 + i % 40, 330, fill=colour)
        elif kind == "line":
            pen.line(box, fill=colour, width=12)
        else:
            getattr(pen, kind)(box, fill=colour)
        name = f"{HOSTILE}.png" if i == 0 else f"picture {i:05}.png"
        paths.append(folder / name)
        image.save(paths[-1])
    return tuple(paths)


def _write_model(run: RunFolder, classes: Sequence[str], threshold: float | str) -> None:
    note = "the target's scores have two modes, the higher one 25% of the images"
    header = {
        "method": "san",
        "settings": {"beta": 0.5},
        "backbone": '{"name": "small_cnn"}',
        "sizes": {"n_classes": len(classes)},
        "image_size": 16,
        "pixel_size": 18,
        "temperature": 1.0,
        "classes": classes,
        "reject": "mixture",
        "rules": {"mixture": {"name": "mixture", "threshold": threshold, "note": note}},
    }
    save_file({"x": np.zeros(1)}, run.model, metadata={"unida": json.dumps(header)})


def _features(
    group: np.ndarray[Any, Any],
    of_source: np.ndarray[Any, Any],
    source: tuple[Path, ...],
    k: int,
    rng: np.random.Generator,
) -> FeatureStore:
    centres = rng.normal(size=(k + 4, 16)) * 2
    features = centres[group] + rng.normal(size=(len(group), 16)) * 0.9
    of = centres[of_source] + 0.6 + rng.normal(size=(len(of_source), 16)) * 0.8
    probs = rng.random((len(group), k))
    return build_feature_store(
        features.astype(np.float32), probs, of.astype(np.float32), of_source, source
    )


def _write_extras(
    run: RunFolder,
    target: tuple[Path, ...],
    labels: np.ndarray[Any, Any],
    names: list[str],
    rng: np.random.Generator,
) -> None:
    k = len(names) - 1
    rows = [(str(p), str(1 + i % 4), "0.9") for i, p in enumerate(target) if labels[i] == k]
    write_text(run.path / "categories.csv", to_csv(("path", "category", "confidence"), rows))
    groups = [
        {
            "id": g,
            "size": sum(row[1] == str(g) for row in rows),
            "name": "<b>bold</b>" if g == 2 else None,
            "representatives": [row[0] for row in rows if row[1] == str(g)][:2],
        }
        for g in (1, 2, 3, 4)
    ]
    found = {
        "count": {"estimate": 4, "low": 3, "high": 6},
        "method": "k-means",
        "categories": groups,
    }
    write_text(run.path / "categories.json", json.dumps(found))
    counts = rng.integers(0, 3, (k + 1, k + 1)) + np.diag(rng.integers(5, 20, k + 1))
    scores = {"known": 0.81, "unknown": 0.72, "h": 0.76, "balanced_h": 0.74, "h3": None}
    evaluation = {
        "labels": str(run.path.parent / "labels"),
        "images": int(counts.sum()),
        "classes": names,
        "rules": {r: {"scores": scores, "confusion": counts.tolist()} for r in ("own", "mixture")},
    }
    write_text(run.evaluation, json.dumps(evaluation))
    bins = [{"confidence": c, "accuracy": c - 0.03, "count": 20} for c in (0.45, 0.65, 0.85, 0.95)]
    calibration = {"temperature": 1.4, "ece_before": 0.12, "ece_after": 0.03, "bins": bins}
    before = [bin | {"accuracy": bin["confidence"] - 0.15} for bin in bins]
    write_text(run.calibration, json.dumps(calibration | {"bins_before": before}))
    diagnostics = {
        "estimates": {"source_accuracy": 0.93, "agreement": None},
        "about": {"source_accuracy": "Share of held-out source images that are right."},
        "warnings": [{"what": "Class cup has few images.", "advice": "More would help."}],
    }
    write_text(run.diagnostics, json.dumps(diagnostics))
