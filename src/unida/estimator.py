"""Universal domain adaptation with the habits of scikit-learn."""

import contextlib
import logging
import os
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    check_consistent_length,
    check_is_fitted,
    column_or_1d,
    validate_data,
)

from unida.config import RunConfig
from unida.data.holdout import hold_out
from unida.data.in_memory import (
    InMemory,
    kind_of,
    labels_of,
    load_in_memory,
    wrap_dataset,
    wrap_embeddings,
    wrap_images,
    wrap_place,
)
from unida.data.samples import Samples
from unida.decision.calibration import tempered
from unida.errors import UserError, require
from unida.methods.presets import configure
from unida.model import Model
from unida.models.backbones.base import Backbone
from unida.pipeline import adapt_domains, check_names, given_features, make_backbone
from unida.training.claim import claimed
from unida.training.run_folder import RunFolder
from unida.types import UNKNOWN, FloatArray, Scored
from unida.utils import distributed
from unida.utils.devices import pick_device
from unida.utils.logs import logger
from unida.utils.lookalikes import look_of
from unida.utils.progress import ignore

Array = npt.NDArray[Any]

_SHARED = (
    "method", "backbone", "weights", "image_size", "steps", "batch", "lr", "frozen", "reject",
    "device",
)  # fmt: skip
"""Parameters that are fields of `RunConfig` by the same name."""


class UniversalAdapter(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Classifier for labelled source and unlabelled target images: a known class or unknown.

    Images come as a folder, a list file or a CSV (with the labels in it); as a sequence of paths
    or PIL images; as an array of images, uint8 (N, H, W), (N, H, W, 3) or (N, 3, H, W); as a
    Hugging Face `datasets.Dataset`; or as embeddings, an array (N, D) or a file of them, .parquet
    or .npy: then there is no backbone, and heads are trained on the rows as they are.

    Args:
        method: see `unida methods`.
        settings: of the method, such as `{"beta": 0.5}`.
        backbone: its name; unused where embeddings are given.
        weights: of the backbone: a file, or 'none' to start from scratch.
        image_size: side of the square the network sees.
        steps: optimiser steps.
        batch: images a step and domain; a smaller domain lowers it.
        lr: learning rate of the heads at the first step.
        frozen: leave the backbone as it is and train the heads on its embeddings.
        reject: the reject rule.
        random_state: the seed of a run if it is a number.
        device: auto, cpu, cuda, cuda:N or mps.
        out: folder of the run; None leaves nothing behind.
        options: any other field of `unida.config.RunConfig`, such as `{"flip": False}`.
        image_column: of a `datasets.Dataset`; by default its one column of images.
        label_column: likewise, its one column of class labels.
        verbose: log what happens (level INFO of the logger `unida`); otherwise errors only.

    Attributes:
        classes_: the known classes, as they were given.
        unknown_label_: the label of an image that is none of them: 'unknown' among
            names, -1 among numbers (one less than the least of them where -1 is a class).
        model_: the trained `unida.model.Model`.
        n_features_in_: length of an embedding, where those were given.
    """

    def __init__(
        self,
        method: str = "san",
        *,
        settings: Mapping[str, object] | None = None,
        backbone: str = "resnet50",
        weights: str | None = None,
        image_size: int = 224,
        steps: int = 2000,
        batch: int = 36,
        lr: float = 0.01,
        frozen: bool = False,
        reject: str = "share",
        random_state: Any = 0,
        device: str = "auto",
        out: str | Path | None = None,
        options: Mapping[str, object] | None = None,
        image_column: str | None = None,
        label_column: str | None = None,
        verbose: bool = False,
    ) -> None:
        self.method = method
        self.settings = settings
        self.backbone = backbone
        self.weights = weights
        self.image_size = image_size
        self.steps = steps
        self.batch = batch
        self.lr = lr
        self.frozen = frozen
        self.reject = reject
        self.random_state = random_state
        self.device = device
        self.out = out
        self.options = options
        self.image_column = image_column
        self.label_column = label_column
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None, target: Any = None) -> "UniversalAdapter":  # noqa: N803
        """Train.

        Args:
            X: the source.
            y: its labels. A source that has its labels with it, a folder or a data set, needs
                none: what comes second is then the target, as in `fit(source, target)`.
            target: unlabelled images of the same kind, or of another; labels in it are not
                used. By default the source is all there is.
        """
        if kind_of(X) in ("place", "dataset") and y is not None:
            require(target is None, "y", type(y).__name__, "none, for the source has its labels")
            y, target = None, y
        source = self._read_labelled(X, y)
        unlabelled = replace(source, samples=Samples(source.samples.paths))
        in_memory = {
            "source": source,
            "target": unlabelled if target is None else self._read(target),
        }
        given = given_features(in_memory)
        with self._folder() as out, _log_level(self.verbose):
            self.model_ = _train(self._config(X, target, out), in_memory, given)
        return self

    def predict(self, X: Any) -> Array:  # noqa: N803
        """Return a label of `classes_` for each image, or `unknown_label_`."""
        scored = self._score(X)
        best = self.classes_[scored.probs.argmax(1)]
        if best.dtype.kind in "bu":  # -1 is no value of these
            best = best.astype(np.int64)
        unknown = self.model_.rule().is_unknown(scored.unknown_score)
        return np.where(unknown, self.unknown_label_, best)

    def predict_proba(self, X: Any) -> FloatArray:  # noqa: N803
        """Return probabilities of `classes_`, given that an image is one of them."""
        return tempered(self._score(X).probs, self.model_.temperature)

    def unknown_score(self, X: Any) -> FloatArray:  # noqa: N803
        """Return unknown scores; an image is unknown from `model_.rule().threshold` on."""
        return self._score(X).unknown_score

    def _score(self, X: Any) -> Scored:  # noqa: N803
        check_is_fitted(self)
        return self.model_.score(self._read(X).items, features=False)[1]

    def _read(self, X: Any) -> InMemory:  # noqa: N803
        """Images without labels."""
        kind = kind_of(X)
        if kind == "place":
            return wrap_place(X)
        if kind == "dataset":
            return wrap_dataset(X, self.image_column)
        if kind == "images":
            return wrap_images(X)
        return wrap_embeddings(validate_data(self, X, reset=False, dtype=np.float32))

    def _read_labelled(self, X: Any, y: Any) -> InMemory:  # noqa: N803
        """Images with labels; learns the classes, and how long an embedding is."""
        for name in ("n_features_in_", "feature_names_in_"):  # of an earlier fit
            self.__dict__.pop(name, None)
        kind = kind_of(X)
        if kind == "place":
            in_memory = wrap_place(X, labelled=True)
            self._set_classes(np.array(in_memory.samples.classes))
            return in_memory
        if kind == "embeddings":
            rows, y = validate_data(self, X, y, dtype=np.float32)
            in_memory = wrap_embeddings(rows)
        else:
            in_memory = self._read(X)
            y = labels_of(X, self.label_column) if kind == "dataset" else y
            require(y is not None, "y", None, "a label for each image")
            y = column_or_1d(y, warn=True)
            check_consistent_length(in_memory.samples.paths, y)
        check_classification_targets(y)
        classes, numbers = np.unique(y, return_inverse=True)
        self._set_classes(classes)
        names = tuple(map(str, classes))
        samples = Samples(in_memory.samples.paths, numbers.astype(np.int64), names)
        return replace(in_memory, samples=samples)

    def _set_classes(self, classes: Array) -> None:
        numeric = classes.dtype.kind in "biuf"
        if len(classes) < 2:
            raise UserError(f"There is one class, {classes[0]!r}: two or more are needed.")
        if unknown := [name for name in map(str, classes) if look_of(name) == UNKNOWN]:
            raise UserError(f"A class is called {unknown[0]!a}, the word for 'none': rename it.")
        self.classes_ = classes
        lowest = min(int(classes.min()), 0) if numeric else 0
        self.unknown_label_ = (lowest - 1 if -1 in classes else -1) if numeric else UNKNOWN

    def _config(self, source: Any, target: Any, out: Path) -> RunConfig:
        values: dict[str, Any] = {name: getattr(self, name) for name in _SHARED}
        values |= {"seed": self._seed(), "out": str(out)}
        more: dict[str, Any] = {"report": self.out is not None} | dict(self.options or {})
        places = {"source": source, "target": source if target is None else target}
        values |= {k: os.path.abspath(v) for k, v in places.items() if kind_of(v) == "place"}
        for name in more:
            require(name not in (*values, "settings"), "options", name, "what is no parameter")
        config = configure(settings=self.settings, **values, **more)
        place = config.data.source_model
        require(not place, "source_model", place, "none; unida.adapt starts from a source model")
        check_names(config)
        kept = self.out is not None
        require(kept or not config.output.tracker, "tracker", more.get("tracker"), "one with out=")
        return config

    def _seed(self) -> int:
        if isinstance(self.random_state, int | np.integer):
            return int(self.random_state)
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    @contextlib.contextmanager
    def _folder(self) -> Iterator[Path]:
        """The folder of the run; one that nobody named goes when the block ends."""
        if self.out is not None:
            yield Path(os.path.abspath(self.out))
            return
        with tempfile.TemporaryDirectory(prefix="unida-") as folder:
            yield Path(folder)


@contextlib.contextmanager
def _log_level(verbose: bool) -> Iterator[None]:
    """Set the level of the `unida` logger: INFO, or ERROR if not verbose."""
    level = logger.level
    logger.setLevel(logging.INFO if verbose else logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def _train(config: RunConfig, in_memory: dict[str, InMemory], given: Backbone | None) -> Model:
    """Loads both domains and adapts."""
    device = pick_device(config.compute.device)
    distributed.setup(device)
    with claimed(RunFolder(config.output.out), config, resume=False):
        return _train_claimed(config, device, in_memory, given)


def _train_claimed(
    config: RunConfig, device: torch.device, in_memory: dict[str, InMemory], given: Backbone | None
) -> Model:
    if given:
        config = config.replace(frozen=True)
    backbone = given or make_backbone(config)
    with distributed.main_process_first():
        domains = load_in_memory(config, device, in_memory, lambda name: ignore)
    source, target = domains["source"], domains["target"]
    learned, _ = hold_out(source.samples, config.data.holdout, config.optim.seed)
    config = config.replace(batch=max(2, min(config.optim.batch, len(learned), len(target))))
    return adapt_domains(config, source, target, backbone).model
