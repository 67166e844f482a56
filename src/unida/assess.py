"""A trained model against labelled images: how good is it, under every reject rule."""

import dataclasses
import json
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from unida.data.samples import Skipped, read_labelled
from unida.errors import UserError
from unida.metrics import Score, score
from unida.model import Model
from unida.reject import Rule
from unida.types import IntArray, Scored


@dataclass(frozen=True)
class Assessment:
    """Scores of one model on one labelled set.

    Attributes:
        scores: by the name of the reject rule asked for.
        labels: true classes, `len(model.classes)` for unknown.
        scored: what the model said.
        skipped: images left out.
    """

    scores: dict[str, Score]
    labels: IntArray
    scored: Scored
    skipped: list[Skipped]


def assess(model: Model, place: str | Path) -> Assessment:
    """Scores a model on images in class folders; a class the model does not know is unknown."""
    samples = read_labelled(place)
    assert samples.labels is not None
    if not set(samples.classes) & set(model.classes):
        raise UserError(
            f"No class folder of {place} is a known class ({', '.join(model.classes)})."
        )
    skipped: list[Skipped] = []
    paths, scored = model.score(samples.paths, skipped)
    number = {name: k for k, name in enumerate(model.classes)}
    truth = {
        path: number.get(samples.classes[k], len(model.classes))
        for path, k in zip(samples.paths, samples.labels, strict=True)
    }
    labels = np.array([truth[path] for path in paths if path is not None], dtype=np.int64)
    scores = {name: score_rule(scored, rule, labels) for name, rule in model.rules.items()}
    return Assessment(scores, labels, scored, skipped)


def score_rule(scored: Scored, rule: Rule, labels: IntArray) -> Score:
    """The score under one rule."""
    unknown = scored.probs.shape[1]
    predictions = np.where(rule.is_unknown(scored.unknown_score), unknown, scored.probs.argmax(1))
    return score(labels, predictions, unknown=unknown)


def to_json(assessment: Assessment, model: Model, place: str | Path) -> str:
    """The assessment for a file; an undefined number is null."""
    content = {
        "labels": str(place),
        "images": len(assessment.labels),
        "rules": {
            name: {
                "rule": dataclasses.asdict(model.rules[name]),
                "scores": {
                    key: None if math.isnan(value) else value
                    for key, value in dataclasses.asdict(result).items()
                },
            }
            for name, result in assessment.scores.items()
        },
    }
    return json.dumps(content, indent=2) + "\n"
