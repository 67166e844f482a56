"""Novel categories among the images that a run called unknown."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from unida.discovery.algorithms import ALGORITHMS, DEFAULT, resolve_algorithm
from unida.discovery.categories import Categories
from unida.discovery.clustering import find_categories, representatives, select_known
from unida.discovery.clusters import KnownFeatures, normalize_rows
from unida.discovery.names import is_text_image_model, suggest_names
from unida.discovery.tree import build_tree
from unida.errors import UserError
from unida.evaluation.feature_store import read_feature_store
from unida.methods.presets import load_config
from unida.training.predictions import read_predictions
from unida.training.run_folder import RunFolder


def discover(run: RunFolder | str | Path, algorithm: str = DEFAULT, seed: int = 0) -> Categories:
    """Find novel categories among the images that a finished run called unknown.

    Args:
        run: folder of the run.
        algorithm: a name of `unida.discovery.algorithms.ALGORITHMS`.
        seed: of all random draws.
    """
    run = run if isinstance(run, RunFolder) else RunFolder(run)
    algorithm = resolve_algorithm(algorithm)
    if not run.done.exists():
        raise UserError(f"{run.path} holds no finished run: name the folder of one.")
    store, predictions = read_feature_store(run.stored_features), read_predictions(run.predictions)
    if len(predictions) != len(store.features):
        raise UserError(
            f"{run.predictions} has {len(predictions)} images but {run.stored_features} has "
            f"{len(store.features)}: they are not of the same run."
        )
    unknown = predictions.is_unknown
    features = store.features[unknown]
    known = select_known(
        store.features, store.best, ~unknown, store.source_features, store.source_labels
    )
    found = find_categories(features, known, ALGORITHMS[algorithm], seed)
    paths, x = [predictions.paths[i] for i in np.flatnonzero(unknown)], normalize_rows(features)
    unit_known = KnownFeatures(normalize_rows(known.features), known.labels)
    class_names = {int(store.best[i]): predictions.labels[i] for i in np.flatnonzero(~unknown)}
    shown = []
    for k, centre in enumerate(found.centres, 1):
        rows = np.flatnonzero(found.category == k)
        shown.append([paths[i] for i in rows[representatives(x[rows], centre)]])
    return Categories(
        paths=paths,
        category=found.category,
        confidence=found.confidence,
        representatives=shown,
        names=[None] * len(shown),
        low=found.low,
        high=found.high,
        algorithm=algorithm,
        tree=build_tree(x, found.category, unit_known, class_names, seed),
    )


def name_categories(
    categories: Categories, model: str | Path, vocabulary: Sequence[str], prompt: str
) -> Categories:
    """Suggest a name of the vocabulary for each category.

    Args:
        categories: of a run.
        model: folder of a text-image model.
        vocabulary: names to choose from.
        prompt: sentence in which `{}` is replaced by a name.
    """
    images = [[Path(path) for path in paths] for paths in categories.representatives]
    names = suggest_names(model, vocabulary, images, prompt) if images else []
    return dataclasses.replace(categories, names=list(names))


def find_text_image_model(run: RunFolder, place: Path | None) -> Path:
    """Return the folder of the text-image model: the given one, or the backbone of the run."""
    if place:
        return place
    backbone = load_config(run.config).model.backbone
    model = Path(backbone.removeprefix("hf:"))
    if backbone.startswith("hf:") and is_text_image_model(model):
        return model
    raise UserError(
        f"The run's backbone, {backbone}, is no text-image model in a folder: name one by "
        "--names-from."
    )
