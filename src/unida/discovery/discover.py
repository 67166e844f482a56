"""Novel categories among the images that a run called unknown."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from unida.discovery.categories import Categories
from unida.discovery.clustering import (
    find_categories,
    half_whiten,
    representatives,
    select_known,
)
from unida.discovery.clusters import KnownFeatures, normalize_rows
from unida.discovery.names import is_text_image_model, suggest_names
from unida.discovery.tree import build_tree
from unida.errors import UserError, require
from unida.evaluation.feature_store import read_feature_store
from unida.methods.presets import load_config
from unida.training.predictions import read_predictions
from unida.training.run_folder import RunFolder
from unida.utils.logs import logger

METHOD = "known_classes"
EARLIER = ("class_size_prior", "kmeans", "hdbscan", "semi_supervised", "sized", "anchored")
"""Algorithms of earlier versions."""


def discover(
    run: RunFolder | str | Path,
    algorithm: str | None = None,
    seed: int = 0,
    count: int | None = None,
) -> Categories:
    """Find novel categories among the images that a finished run called unknown.

    Args:
        run: folder of the run.
        algorithm: of an earlier version; understood with a warning.
        seed: of all random draws.
        count: of categories, where it is known; else it is estimated.
    """
    run = run if isinstance(run, RunFolder) else RunFolder(run)
    if algorithm is not None:
        require(algorithm in (METHOD, *EARLIER), "algorithm", algorithm, METHOD)
        if algorithm != METHOD:
            logger.warning("The algorithm %r was replaced by %r.", algorithm, METHOD)
    require(count is None or count >= 1, "count", count, "1 or more")
    if not run.done.exists():
        raise UserError(f"{run.path} holds no finished run: name the folder of one.")
    store, predictions = read_feature_store(run.stored_features), read_predictions(run.predictions)
    if len(predictions) != len(store.features):
        raise UserError(
            f"{run.predictions} has {len(predictions)} images but {run.stored_features} has "
            f"{len(store.features)}: they are not of the same run."
        )
    unknown = predictions.is_unknown
    # Of earlier versions there are only the features of the method.
    features = half_whiten(store.features if store.backbone is None else store.backbone)
    known = select_known(features, store.best, ~unknown, predictions.unknown_score)
    found = find_categories(features[unknown], known, seed, count)
    paths = [predictions.paths[i] for i in np.flatnonzero(unknown)]
    unit_known = KnownFeatures(normalize_rows(known.features), known.labels)
    class_names = {int(store.best[i]): predictions.labels[i] for i in np.flatnonzero(~unknown)}
    tree = build_tree(
        normalize_rows(features[unknown]), found.category, unit_known, class_names, seed
    )
    shown = []
    for k, centre in enumerate(found.centres, 1):
        rows = np.flatnonzero(found.category == k)
        shown.append([paths[i] for i in rows[representatives(found.diffused[rows], centre)]])
    return Categories(
        paths=paths,
        category=found.category,
        confidence=found.confidence,
        representatives=shown,
        names=[None] * len(shown),
        low=found.low,
        high=found.high,
        algorithm=METHOD if count is None else "given",
        tree=tree,
        note=found.note,
    )


def name_categories(
    categories: Categories,
    model: str | Path,
    vocabulary: Sequence[str],
    prompt: str,
    known: Sequence[str] = (),
) -> Categories:
    """Suggest a name of the vocabulary for each category, or none.

    Args:
        categories: of a run.
        model: folder of a text-image model.
        vocabulary: names to choose from.
        prompt: sentence in which `{}` is replaced by a name.
        known: classes of the run; a name that is one of them, or a synonym, is warned of.
    """
    images = [[Path(path) for path in paths] for paths in categories.representatives]
    found = suggest_names(model, vocabulary, images, prompt, known) if images else []
    for k, one in enumerate(found, 1):
        if one.resembles:
            logger.warning(
                "Category %d looks like %r, which is the known class %r: its images may have been "
                "rejected wrongly.",
                *(k, one.name, one.resembles),
            )
    names = [one.name for one in found]
    return dataclasses.replace(categories, names=names, suggestions=found)


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
