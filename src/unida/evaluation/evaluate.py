"""Evaluation of a trained model on labelled images, under every reject rule."""

import dataclasses
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from unida.data.samples import Skipped, read_labelled
from unida.data.tables import is_table
from unida.decision.calibration import confidence, expected_error, reliability
from unida.decision.rejection import Rule
from unida.errors import UserError
from unida.evaluation.metrics import Ranking, Score, confusion, h3, rank_scores, recalls, score
from unida.model import Model
from unida.types import UNKNOWN, IntArray, Scored
from unida.utils.lookalikes import look_of


@dataclass(frozen=True)
class Evaluation:
    """Scores of one model on one labelled set.

    Attributes:
        scores: by name of the reject rule.
        labels: true classes, `len(model.classes)` for unknown.
        scored: outputs of the model.
        skipped: images left out.
        true_classes: names of the true classes, those of unknown images too.
    """

    scores: dict[str, Score]
    labels: IntArray
    scored: Scored
    skipped: list[Skipped]
    true_classes: npt.NDArray[np.str_]


def evaluate(model: Model, place: str | Path) -> Evaluation:
    """Score a model on labelled images or embeddings; classes it does not have are unknown."""
    samples = read_labelled(place)
    assert samples.labels is not None
    if not set(samples.classes) & set(model.classes):
        raise UserError(f"No class of {place} is a known class ({', '.join(model.classes)}).")
    _refuse_near_misses(samples.classes, model.classes, place)
    skipped = list(samples.skipped)
    images = Path(place) if is_table(place) else samples.paths
    paths, scored = model.score(images, skipped)
    truth = dict(zip(samples.paths, samples.labels, strict=True))
    names = np.array(samples.classes)[[truth[path] for path in paths if path is not None]]
    return compare(scored, names, model.classes, model.rules, skipped)


def _refuse_near_misses(given: Sequence[str], known: Sequence[str], place: str | Path) -> None:
    """Refuse a class folder whose name is not that of a known class, but looks like it."""
    right = {look_of(name): name for name in known}
    for name in set(given) - set(known):
        if look_of(name) in right:
            raise UserError(
                f"{place} has the class {name!a}, and the model "
                f"{right[look_of(name)]!a}: rename it."
            )


def compare(
    scored: Scored,
    true_classes: npt.NDArray[np.str_],
    classes: Sequence[str],
    rules: Mapping[str, Rule],
    skipped: Iterable[Skipped] = (),
) -> Evaluation:
    """Score outputs against true classes, under every rule.

    Args:
        scored: outputs of the model.
        true_classes: names, those of unknown images too.
        classes: the known classes.
        rules: by name.
        skipped: images left out.
    """
    number = {name: k for k, name in enumerate(classes)}
    labels = np.array([number.get(name, len(number)) for name in true_classes], dtype=np.int64)
    scores = {name: score_rule(scored, rule, labels) for name, rule in rules.items()}
    return Evaluation(scores, labels, scored, list(skipped), true_classes)


def score_rule(scored: Scored, rule: Rule, labels: IntArray) -> Score:
    """Return the score under one rule."""
    return score(labels, predicted_labels(scored, rule), unknown=scored.probs.shape[1])


def rank(evaluation: Evaluation, seed: int = 0) -> Ranking:
    """Return the threshold-free scores; not part of `compare`, since clustering is slow."""
    return rank_scores(evaluation.labels, evaluation.scored, evaluation.true_classes, seed)


def calibration_errors(evaluation: Evaluation, temperature: float) -> dict[str, float]:
    """Return the expected calibration error on known images, before and after calibration."""
    known = evaluation.labels < evaluation.scored.probs.shape[1]
    probs = evaluation.scored.probs[known]
    right = probs.argmax(1) == evaluation.labels[known]
    return {
        f"ece_{when}": expected_error(reliability(confidence(probs, t), right))
        for when, t in (("before", 1.0), ("after", temperature))
    }


def to_json(evaluation: Evaluation, model: Model, place: str | Path) -> str:
    """Serialise an evaluation; an undefined number is null."""
    ranking = rank(evaluation)
    content = {
        "labels": str(place),
        "images": len(evaluation.labels),
        "classes": [*model.classes, UNKNOWN],
        "ranking": defined(dataclasses.asdict(ranking)),
        "calibration": defined(calibration_errors(evaluation, model.temperature)),
        "rules": {
            name: {
                "rule": model.rules[name].to_json(),
                "scores": all_scores(result, ranking),
                **_by_class(evaluation, model.rules[name], (*model.classes, UNKNOWN)),
            }
            for name, result in evaluation.scores.items()
        },
    }
    return json.dumps(content, indent=2, allow_nan=False) + "\n"


def all_scores(result: Score, ranking: Ranking) -> dict[str, float | None]:
    """Return the scores under a rule by name, H3 included; an undefined one is None."""
    three = h3(result.known, result.unknown, ranking.nmi)
    return defined(dataclasses.asdict(result) | {"h3": three})


def _by_class(evaluation: Evaluation, rule: Rule, names: tuple[str, ...]) -> dict[str, object]:
    """Return recalls by class and the confusion matrix, both in the order of `classes`."""
    labels, predicted = evaluation.labels, predicted_labels(evaluation.scored, rule)
    return {
        "recalls": {names[k]: recall for k, recall in recalls(labels, predicted).items()},
        "confusion": confusion(labels, predicted, len(names) - 1).tolist(),
    }


def predicted_labels(scored: Scored, rule: Rule) -> IntArray:
    """Return the predicted class of each image; the number of known classes for unknown."""
    labels: IntArray = scored.probs.argmax(1)
    labels[rule.is_unknown(scored.unknown_score)] = scored.probs.shape[1]
    return labels


def defined(numbers: dict[str, float]) -> dict[str, float | None]:
    """Replace NaN by None."""
    return {name: None if math.isnan(value) else value for name, value in numbers.items()}
