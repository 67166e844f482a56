"""`unida discover`: categories among the images that a run called unknown."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tyro

from unida.config import load_config
from unida.discovery.algorithms import DEFAULT, WAYS
from unida.discovery.find import FEWEST, NONE, Categories, class_means, find, representatives
from unida.discovery.groups import Features, unit
from unida.discovery.names import is_text_image_model, read_words, suggest
from unida.errors import UserError, require
from unida.evaluation.feature_store import read_feature_store
from unida.training.predictions import read_predictions
from unida.training.run_folder import RunFolder, write_lines, write_text
from unida.utils.console import say
from unida.utils.csv_files import csv_lines


@dataclass(frozen=True)
class Discover:
    """Groups the images that a run called unknown into novel categories.

    Example: unida discover runs/first
    """

    run: Annotated[Path, tyro.conf.Positional]
    """Folder of a finished run."""
    way: str = DEFAULT
    """How: sized, hdbscan, anchored or kmeans (docs/discover.md)."""
    seed: int = 0
    """Everything random follows from it."""
    vocabulary: Path | None = None
    """File with a name on every line: names for the categories are suggested from it by a
    text-image model."""
    names_from: Path | None = None
    """Folder of that model, such as a downloaded CLIP; by default the run's own backbone, if it is
    one. Nothing is downloaded."""
    prompt: str = "a photo of a {}."
    """Sentence that a name is put into, at {}, before the model reads it."""


@dataclass(frozen=True)
class Rejected:
    """The images of a run that were called unknown.

    Attributes:
        paths: their files.
        found: their categories.
        rows: unit features.
    """

    paths: list[str]
    found: Categories
    rows: Features


def run_discover(given: Discover) -> None:
    """Writes categories.csv and categories.json beside the run and says what was found."""
    require(given.way in WAYS, "way", given.way, ", ".join(WAYS))
    model, words = _naming(given)
    run = RunFolder(given.run)
    rejected = discover(run, given.way, given.seed)
    shown = _shown(rejected)
    names: list[str | None] = [None] * len(shown)
    if model and shown:
        files = [[Path(path) for path in paths] for paths in shown]
        names = list(suggest(model, words, files, given.prompt))
    write_lines(run.categories, _lines(rejected))
    summary = _summary(rejected.found, given.way, shown, names)
    write_text(run.category_summary, json.dumps(summary, indent=2) + "\n")
    say(_sentence(rejected.found, run))


def discover(run: RunFolder, way: str, seed: int) -> Rejected:
    """Looks for categories in a finished run."""
    if not run.done.exists():
        raise UserError(f"{run.path} holds no finished run: name the folder of one.")
    atlas = read_feature_store(run.stored_features)
    table = read_predictions(run.predictions)
    if len(table) != len(atlas.features):
        raise UserError(
            f"{run.predictions} has {len(table)} images but {run.stored_features} has "
            f"{len(atlas.features)}: they are not of the same run."
        )
    unknown = table.is_unknown
    known = (atlas.source_features, atlas.source_labels)
    anchors = class_means(atlas.features, atlas.best, ~unknown, *known)
    features = atlas.features[unknown]
    found = find(features, anchors, WAYS[way], seed)
    return Rejected([table.paths[i] for i in np.flatnonzero(unknown)], found, unit(features))


def _naming(given: Discover) -> tuple[Path | None, list[str]]:
    """The text-image model and the names to choose from; no model where none is asked for."""
    if given.vocabulary is None:
        if given.names_from:
            raise UserError("--names-from needs --vocabulary, a file with a name on every line.")
        return None, []
    words, model = read_words(given.vocabulary), given.names_from
    require("{}" in given.prompt, "prompt", given.prompt, "a sentence with {} in it")
    if model is None:
        backbone = load_config(RunFolder(given.run).config).backbone
        model = Path(backbone.removeprefix("hf:"))
        if not backbone.startswith("hf:") or not is_text_image_model(model):
            raise UserError(
                f"The run's backbone, {backbone}, is no text-image model in a folder: name one by "
                "--names-from."
            )
    return model, words


def _shown(rejected: Rejected) -> list[list[str]]:
    """Paths that show each category."""
    shown = []
    for k, centre in enumerate(rejected.found.centres):
        members = np.flatnonzero(rejected.found.category == k + 1)
        chosen = representatives(rejected.rows[members], centre)
        shown.append([rejected.paths[i] for i in members[chosen]])
    return shown


def _lines(rejected: Rejected) -> Any:
    found = rejected.found
    rows = (
        (path, "" if category == NONE else str(category), f"{confidence:.6f}")
        for path, category, confidence in zip(
            rejected.paths, found.category, found.confidence, strict=True
        )
    )
    return csv_lines(("path", "category", "confidence"), rows)


def _summary(
    found: Categories, way: str, shown: list[list[str]], names: list[str | None]
) -> dict[str, Any]:
    sizes = np.bincount(found.category, minlength=len(shown) + 1)
    return {
        "count": {"estimate": len(found.centres), "low": found.low, "high": found.high},
        "method": way,
        "images": len(found.category),
        "none_of_these": int(sizes[NONE]),
        "categories": [
            {"id": k, "size": int(sizes[k]), "name": name, "representatives": paths}
            for k, (paths, name) in enumerate(zip(shown, names, strict=True), 1)
        ],
    }


def _sentence(found: Categories, run: RunFolder) -> str:
    n = len(found.category)
    if n < FEWEST:
        return f"{n} images were called unknown: categories are looked for among {FEWEST} or more."
    outside = int((found.category == NONE).sum())
    return (
        f"{len(found.centres)} categories ({found.low} to {found.high}) among {n} images called "
        f"unknown, {outside} of them in none: {run.categories}"
    )
