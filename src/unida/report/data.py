"""The content of a run folder, read for its report; a file that is missing is None or empty."""

import json
import os
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open

from unida.data.samples import read_labelled
from unida.discovery.categories import LabelledImage, read_categories
from unida.discovery.tree import read_splits
from unida.errors import UserError, require
from unida.evaluation.feature_store import FeatureStore, read_feature_store
from unida.methods.presets import load_config
from unida.models.description import parse_description
from unida.report.sampling import MAX_SOURCE, prediction_doubt, sample_target
from unida.report.thumbnails import Sprites, make_sprites
from unida.training.predictions import read_predictions
from unida.training.run_folder import RunFolder
from unida.types import IntArray
from unida.utils.chunking import subsample
from unida.utils.csv_files import read_csv
from unida.utils.files import open_regular, read_file


class ReportData:
    """What the sections of a report are made of.

    Attributes:
        run: the finished run.
        model: the header of its model file.
        config: its configuration.
        predictions: for every target image.
        labels: (N,), numbers of the predicted classes.
        doubt: (N,), of the predictions.
        features: of the images; None where the run has none.
        target_rows: rows of the predictions that are shown.
        source_rows: rows of the source features that are shown.
    """

    def __init__(self, run: RunFolder) -> None:
        self.run = run
        self.model = read_model_header(run)
        self.config = load_config(run.config)
        self.predictions = read_predictions(run.predictions)
        self.labels = self.predictions.class_numbers(self.classes)
        self.doubt = prediction_doubt(
            self.labels,
            self.predictions.confidence,
            self.predictions.unknown_score,
            self.threshold,
            len(self.classes),
        )
        self.features = _read_features(run, len(self.predictions))
        seed, n_source = (
            self.config.optim.seed,
            len(self.features.source_labels) if self.features else 0,
        )
        self.target_rows = sample_target(self.labels, self.doubt, seed)
        self.source_rows = subsample(n_source, MAX_SOURCE, seed, "report source")

    @property
    def classes(self) -> list[str]:
        return list(self.model["classes"])

    @property
    def rule(self) -> dict[str, Any]:
        """The reject rule of the run."""
        return dict(self.model["rules"][self.model["reject"]])

    @property
    def threshold(self) -> float:
        """Threshold of the rule; an infinite one is the outermost score."""
        scores = self.predictions.unknown_score
        scores = scores[np.isfinite(scores)]
        value = float(self.rule["threshold"])
        if np.isfinite(value) or not len(scores):
            return value
        return float(np.clip(value, scores.min(), scores.max()))

    @cached_property
    def counts(self) -> IntArray:
        """Target images of each predicted class, then of unknown."""
        return np.bincount(self.labels, minlength=len(self.classes) + 1)

    @cached_property
    def target_paths(self) -> list[str]:
        """Files of the target images shown."""
        return [self.predictions.paths[i] for i in self.target_rows]

    @cached_property
    def source_paths(self) -> list[str]:
        """Files of the source images shown."""
        return self.features.source_paths[self.source_rows].tolist() if self.features else []

    @cached_property
    def target_root(self) -> str:
        """Beginning of all target paths, which is left out of the page's lists."""
        return common_root(self.config.data.target, self.predictions.paths)

    @cached_property
    def sprites(self) -> Sprites:
        """Thumbnails of the target images shown, then of the source images."""
        return make_sprites(self.target_paths + self.source_paths)

    @cached_property
    def evaluation(self) -> dict[str, Any] | None:
        return read_json(self.run.evaluation)

    @cached_property
    def true_classes(self) -> dict[str, str]:
        """True classes by path, where the run was evaluated."""
        if not self.evaluation:
            return {}
        return read_true_classes(self.evaluation["labels"], self.predictions.paths)

    @cached_property
    def category_summary(self) -> dict[str, Any] | None:
        """The content of categories.json."""
        return read_json(self.run.category_summary)

    @property
    def described_categories(self) -> list[dict[str, Any]]:
        """The categories of categories.json, each with its name and representative images."""
        found = (self.category_summary or {}).get("categories", [])
        if not isinstance(found, list) or not all(
            isinstance(one, dict) and {"id", "name", "representatives"} <= one.keys()
            for one in found
        ):
            file = self.run.category_summary
            raise UserError(f"{file} is damaged: write it again with `unida discover`.")
        return found

    @cached_property
    def categories(self) -> dict[str, int]:
        """Category by path, of the images that are in one."""
        if self.category_summary is None:
            return {}
        return {image.path: int(image.label) for image in self._categorized}

    @cached_property
    def splits(self) -> dict[str, str] | None:
        """How images of categories are split further, by path; None where that is unknown."""
        categories = [image.label for image in self._categorized]
        tree = self.category_summary and self.category_summary.get("tree")
        codes = read_splits(tree, categories)
        if codes is None:
            return None
        return {image.path: code for image, code in zip(self._categorized, codes, strict=True)}

    @cached_property
    def _categorized(self) -> tuple[LabelledImage, ...]:
        return read_categories(self.run.categories)

    @cached_property
    def skipped(self) -> list[list[str]]:
        """Path and reason of each file that was left out."""
        if not self.run.skipped.exists():
            return []
        return [
            [row["path"], row["reason"]] for row in read_csv(self.run.skipped, ("path", "reason"))
        ]

    @cached_property
    def metrics(self) -> list[dict[str, Any]]:
        """The lines of metrics.jsonl; one that a kill cut off is left out."""
        file = self.run.metrics
        lines = read_file(file).decode(errors="replace").splitlines() if file.exists() else []
        parsed = (_parse(line) for line in lines)
        return [line for line in parsed if isinstance(line, dict) and "step" in line]


def read_model_header(run: RunFolder) -> dict[str, Any]:
    """Read the header of the model file, without the weights."""
    if not run.model.exists():
        state = "is not finished" if run.config.exists() else "holds no run"
        raise UserError(f"{run.path} {state}: there is no model.safetensors in it.")
    try:
        open_regular(run.model).close()
        with safe_open(run.model, framework="numpy") as file:
            text = file.metadata()["unida"]
    except (SafetensorError, OSError, TypeError, KeyError, ValueError):
        raise UserError(f"{run.model} is not a model of unida.") from None
    header = parse_description(text, str(run.model))
    rules = header["rules"]
    require(header["reject"] in rules, f"reject of {run.model}", header["reject"], ", ".join(rules))
    return header


def read_true_classes(place: str, paths: Sequence[str]) -> dict[str, str]:
    """Return the true classes by path of the images in a labelled place; none if it is gone."""
    try:
        samples = read_labelled(place)
    except UserError:
        return {}
    assert samples.labels is not None
    wanted = {os.path.abspath(path): path for path in paths}
    labelled = zip(map(os.path.abspath, samples.paths), samples.labels, strict=True)
    return {wanted[path]: samples.classes[k] for path, k in labelled if path in wanted}


def read_json(path: Path) -> dict[str, Any] | None:
    """Read a JSON object; None where there is none."""
    content = _parse(read_file(path).decode(errors="replace")) if path.exists() else None
    return content if isinstance(content, dict) else None


def common_root(place: str, paths: Sequence[str]) -> str:
    """Return the folder that all paths are in: the domain's, or else their common one."""
    folder = os.path.join(place, "")
    if all(path.startswith(folder) for path in paths):
        return folder
    parents = {os.path.dirname(path) for path in paths}
    try:
        return os.path.join(os.path.commonpath(parents), "")
    except ValueError:  # some absolute, some not, or on several drives
        return ""


def _read_features(run: RunFolder, n: int) -> FeatureStore | None:
    """Read the features; those of another run are left out, as they would make a wrong map."""
    if not run.stored_features.exists():
        return None
    features = read_feature_store(run.stored_features)
    return features if len(features.features) == n else None


def _parse(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None
