"""Source-free adaptation: a trained model stands for source images that are not at hand.

It gives the network to start from, the names of the classes, and the features of source images that
reject rules are fitted with (`unida.decision.category_shift.SourceReference`).
"""

import json
import os
from pathlib import Path

import numpy as np
import torch

from unida.config import DataConfig, ModelConfig, RunConfig
from unida.data.domain import Domain
from unida.data.pixels import ArrayStore
from unida.data.samples import Samples
from unida.decision.predictor import Ensemble
from unida.errors import UserError, require
from unida.methods import METHODS
from unida.model import Model, load
from unida.training.run_folder import RunFolder


def with_source_model(config: RunConfig) -> RunConfig:
    """Return the config with the backbone, its weights and the image size of the source model.

    What the config has of these must be the default, or the same.
    """
    assert config.data.source_model is not None
    require(not config.data.source, "source", config.data.source, "none beside source_model")
    able = [name for name, method in METHODS.items() if method.starts_from]
    needs = f"with source_model, {' or '.join(able)}; other methods need source images"
    require(config.method in able, "method", config.method, needs)
    model = open_source_model(config, "cpu")
    file = _file(config.data.source_model)
    own = {
        "backbone": json.loads(model.backbone.spec)["name"],
        "image_size": model.image_size,
        "weights": str(file),
    }
    given = config.flat()
    for name, value in own.items():
        default = getattr(DataConfig if name == "image_size" else ModelConfig, name)
        fits = given[name] in (default, value)
        require(fits, name, given[name], f"{value!r}, that of the source model, or none")
    return config.replace(source_model=os.path.abspath(config.data.source_model), **own)


def open_source_model(config: RunConfig, device: str) -> Model:
    """Load the source model of a run, and check that the run's method can start from it."""
    place = str(config.data.source_model)
    model, allowed = load(place, device), METHODS[config.method].starts_from
    names = f"{' or '.join(allowed)}, which {config.method} can start from"
    require(model.method_name in allowed, f"the method of {place}", model.method_name, names)
    if isinstance(model.predictor, Ensemble):
        raise UserError(f"{place} is an ensemble: name a single model as the source model.")
    if model.backbone.is_precomputed:
        raise UserError(
            f"{place} was trained on embeddings and has no backbone: name a source model that was "
            "trained on images."
        )
    return model


def no_images(model: Model, device: torch.device) -> Domain:
    """Return the source domain of a source model: its classes, and no image."""
    samples = Samples((), np.empty(0, np.int64), model.classes)
    pixels = torch.empty(0, 3, model.pixel_size, model.pixel_size, dtype=torch.uint8)
    return Domain(samples, ArrayStore(pixels), device)


def _file(place: str) -> Path:
    path = Path(os.path.abspath(place))
    return RunFolder(path).model if path.is_dir() else path
