"""How a setting is chosen without target labels, and, for reference, with them.

A criterion turns what a trained model says into one number; larger is better. Three look at the
unlabelled target, one at source images that were held out, and one, `oracle`, at target labels:
what is chosen by that one is called 'oracle' wherever it appears. None of the others is safe
everywhere; the description of each says how it is fooled.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.special import entr, logsumexp

from unida.data.samples import Samples
from unida.decision import mixture_model
from unida.decision.rejection import Rule, finite
from unida.errors import UserError, require
from unida.evaluation.evaluate import score_rule
from unida.types import FloatArray, IntArray, Scored
from unida.utils.chunking import MAX_SAMPLES, subsample
from unida.utils.rng import derive_seed

ORACLE = "oracle"

MOST_NEIGHBOURS = 4000
"""Images `neighbourhood_density` looks at: its cost grows with their square."""
TEMPERATURE = 0.05
"""Of `neighbourhood_density`, as in its paper."""


@dataclass(frozen=True)
class SelectionData:
    """What a criterion may look at.

    Attributes:
        scored: what the model says of the images.
        rule: the reject rule of the run.
        labels: classes of the images, the number of known classes for unknown; None where there
            are none to look at.
    """

    scored: Scored
    rule: Rule
    labels: IntArray | None = None


@dataclass(frozen=True)
class Criterion:
    """A way to choose.

    Attributes:
        about: what it is and how it is fooled, in one line.
        images: those it is measured on.
        value: the number; NaN where undefined.
    """

    about: str
    images: Literal["target", "held-out source", "labelled target"]
    value: Callable[[SelectionData], float]


def h_score(evidence: SelectionData) -> float:
    """H of labelled images under the run's rule."""
    assert evidence.labels is not None
    return score_rule(evidence.scored, evidence.rule, evidence.labels).h


def entropy(probs: FloatArray) -> float:
    """Negative mean entropy of the class probabilities, in nats.

    It rewards certainty, right or wrong: a model that calls every image the same class, or that
    is trained to be certain of unknown images too, is its ideal.
    """
    if not len(probs):
        return math.nan
    parts = np.array_split(probs, math.ceil(len(probs) / MAX_SAMPLES))
    return float(-np.concatenate([entr(part).sum(1) for part in parts]).mean())


def neighbourhood_density(probs: FloatArray, seed: int = 0) -> float:
    """Soft neighbourhood density (Saito et al., "Tune it the right way", ICCV 2021).

    How many neighbours an image has: the entropy of a softmax over its cosine similarities to all
    others, temperature 0.05, averaged. Neighbours are judged by class probabilities, as in the
    paper. It rewards tight groups without asking how many: a model that calls every image the
    same class has the largest value there is, ln(N − 1).

    Args:
        probs: (N, K), class probabilities.
        seed: of the draw where there are too many images.
    """
    if len(probs) < 2:
        return math.nan
    x = np.asarray(probs, dtype=np.float64)
    x = x[subsample(len(x), MOST_NEIGHBOURS, seed, "neighbourhood")]
    x = x / np.linalg.norm(x, axis=1, keepdims=True)
    rows = np.array_split(np.arange(len(x)), math.ceil(len(x) / 500))
    return float(np.concatenate([_density(x, row) for row in rows]).mean())


def _density(x: FloatArray, rows: IntArray) -> FloatArray:
    """Entropies of the neighbourhoods of some rows."""
    logits = x[rows] @ x.T / TEMPERATURE
    logits[np.arange(len(rows)), rows] = -np.inf  # an image is not its own neighbour
    logs = logits - logsumexp(logits, axis=1, keepdims=True)
    return np.asarray(entr(np.exp(logs)).sum(1))


def separation(scores: FloatArray) -> float:
    """How much better two groups explain the unknown scores than one mode does, in nats.

    Half the difference of the two BICs, per image: below zero where one mode is enough, and the
    same in whatever unit the scores are. It rewards two clear groups, be they known and unknown
    classes or two kinds of camera; with no unknown image in the target it means nothing. Of very
    many scores a sample is fitted, as for the mixture rule.
    """
    values = finite(scores)
    groups = mixture_model.fit(values) if len(values) >= 3 else None
    return groups.gain if groups else math.nan


CRITERIA: dict[str, Criterion] = {
    "source_validation": Criterion(
        "H on held-out source images, some source classes hidden; knows nothing of the target",
        "held-out source",
        h_score,
    ),
    "entropy": Criterion(
        "certainty on the target; fooled by a model that is certain of everything",
        "target",
        lambda evidence: entropy(evidence.scored.probs),
    ),
    "neighbourhood_density": Criterion(
        "tight neighbourhoods in the target; fooled by a model that sees one class only",
        "target",
        lambda evidence: neighbourhood_density(evidence.scored.probs),
    ),
    "separation": Criterion(
        "two clear groups of unknown scores; fooled by groups that are not known and unknown",
        "target",
        lambda evidence: separation(evidence.scored.unknown_score),
    ),
    ORACLE: Criterion(
        "H by target labels, which nobody has; for reference only",
        "labelled target",
        h_score,
    ),
}


def hide_classes(
    samples: Samples, share_hidden: float, share_held_out: float, seed: int
) -> tuple[Samples, Samples]:
    """Splits labelled images so that unknown classes can be played with known ones.

    Some classes are hidden: training never sees them, and all their images are for validation,
    as unknowns. Of every other class a share of the images is held out for validation as well;
    one image at least stays in training. The same arguments give the same split.

    Args:
        samples: labelled images of three classes or more.
        share_hidden: of the classes; one at least is hidden and two at least remain.
        share_held_out: of the images of each remaining class; one at least, where it has two.
        seed: of both draws.

    Returns:
        Images to train on, whose classes are those that remain, and images to validate on, whose
        classes are all.
    """
    require(0 < share_hidden < 1, "share_hidden", share_hidden, "between 0 and 1")
    require(0 < share_held_out < 1, "share_held_out", share_held_out, "between 0 and 1")
    n_classes = len(samples.classes)
    if samples.labels is None or n_classes < 3:
        raise UserError(
            f"Hiding classes needs three or more, and there are {n_classes}: choose by the "
            "unlabelled target instead."
        )
    draw = np.random.default_rng(derive_seed(seed, "hidden classes"))
    n_hidden = min(max(1, round(share_hidden * n_classes)), n_classes - 2)
    hidden = np.isin(np.arange(n_classes), draw.permutation(n_classes)[:n_hidden])
    for_validation = hidden[samples.labels]
    order = np.argsort(samples.labels, kind="stable")
    by_class = np.split(order, np.bincount(samples.labels, minlength=n_classes).cumsum()[:-1])
    for k in np.flatnonzero(~hidden):
        index = by_class[k]
        draw = np.random.default_rng(derive_seed(seed, "held out", samples.classes[k]))
        n_out = min(max(1, round(share_held_out * len(index))), len(index) - 1)
        for_validation[draw.permutation(index)[:n_out]] = True
    if not (for_validation & ~hidden[samples.labels]).any():
        raise UserError("No class has two images: none can be held out for validation.")
    train = samples.keep(np.flatnonzero(~for_validation), ())
    validation = samples.keep(np.flatnonzero(for_validation), ())
    return _renumbered(train), validation


def _renumbered(samples: Samples) -> Samples:
    """The same with those classes only that have an image."""
    present, labels = np.unique(np.asarray(samples.labels), return_inverse=True)
    classes = tuple(samples.classes[k] for k in present)
    return Samples(samples.paths, labels.astype(np.int64), classes, samples.skipped)
