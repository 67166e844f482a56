"""Criteria to select settings without target labels and, for reference, with them.

A criterion turns the outputs of a trained model into one number; larger is better. Three use the
unlabelled target, one held-out source images, and one, `oracle`, target labels: what is selected by
that one is called 'oracle' wherever it appears. None of the others is safe everywhere; the
description of each says how it fails. To add one, write a function and an entry of `CRITERIA`.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from unida.data.samples import Samples
from unida.decision import mixture_model
from unida.decision.rejection import Rule, finite
from unida.errors import UserError, require
from unida.evaluation.evaluate import score_rule
from unida.types import FloatArray, IntArray, Scored
from unida.utils.chunking import MAX_SAMPLES, subsample
from unida.utils.rng import derive_seed

ORACLE = "oracle"

MAX_DENSITY_IMAGES = 4000
"""Images that `neighbourhood_density` uses: its cost grows with their square."""
DENSITY_TEMPERATURE = 0.05
"""As in the paper of `neighbourhood_density`."""


@dataclass(frozen=True)
class SelectionData:
    """The data a criterion is computed on.

    Attributes:
        scored: outputs of the model for the images.
        rule: the reject rule of the run.
        labels: classes of the images, the number of known classes for unknown; None without labels.
    """

    scored: Scored
    rule: Rule
    labels: IntArray | None = None


@dataclass(frozen=True)
class Criterion:
    """A selection criterion.

    Attributes:
        about: what it is and how it fails, in one line.
        images: that it is computed on.
        value: the function; NaN where undefined.
    """

    about: str
    images: Literal["target", "held-out source", "labelled target"]
    value: Callable[[SelectionData], float]


def h_score(data: SelectionData) -> float:
    """Compute the H-score of labelled images under the run's rule."""
    assert data.labels is not None
    return score_rule(data.scored, data.rule, data.labels).h


def entropy(probs: FloatArray) -> float:
    """Compute the negative mean entropy of the class probabilities, in nats.

    It rewards confidence, right or wrong: it is largest for a model that predicts one class for
    every image, or that is trained to be confident on unknown images too.
    """
    if not len(probs):
        return math.nan
    from scipy.special import entr

    parts = np.array_split(probs, math.ceil(len(probs) / MAX_SAMPLES))
    return float(-np.concatenate([entr(part).sum(1) for part in parts]).mean())


def neighbourhood_density(probs: FloatArray, seed: int = 0) -> float:
    """Compute soft neighbourhood density (Saito et al., "Tune it the right way", ICCV 2021).

    The mean entropy of a softmax over the cosine similarities of an image's class probabilities to
    those of all others, temperature 0.05. It rewards tight clusters whatever their number: a model
    that predicts one class for every image has the largest value, ln(N − 1).

    Args:
        probs: (N, K), class probabilities.
        seed: of the sample where there are too many images.
    """
    if len(probs) < 2:
        return math.nan
    x = np.asarray(probs, dtype=np.float64)
    x = x[subsample(len(x), MAX_DENSITY_IMAGES, seed, "neighbourhood")]
    x = x / np.linalg.norm(x, axis=1, keepdims=True)
    rows = np.array_split(np.arange(len(x)), math.ceil(len(x) / 500))
    return float(np.concatenate([_density(x, row) for row in rows]).mean())


def _density(x: FloatArray, rows: IntArray) -> FloatArray:
    """Return the entropies of the neighbourhoods of some rows."""
    from scipy.special import entr, logsumexp

    logits = x[rows] @ x.T / DENSITY_TEMPERATURE
    logits[np.arange(len(rows)), rows] = -np.inf  # an image is not its own neighbour
    logs = logits - logsumexp(logits, axis=1, keepdims=True)
    return np.asarray(entr(np.exp(logs)).sum(1))


def separation(scores: FloatArray) -> float:
    """Compute how much better two modes explain the unknown scores than one does, in nats.

    Half the difference of the two BICs, per image: negative where one mode is enough, and
    independent of the scale of the scores. It rewards two clear modes, be they known and unknown
    classes or two cameras; without unknown images in the target it means nothing. Of very many
    scores a sample is fitted, as for the mixture rule.
    """
    values = finite(scores)
    fitted = mixture_model.fit(values) if len(values) >= 3 else None
    return fitted.gain if fitted else math.nan


CRITERIA: dict[str, Criterion] = {
    "source_validation": Criterion(
        "H on held-out source images, some source classes hidden; independent of the target",
        "held-out source",
        h_score,
    ),
    "entropy": Criterion(
        "confidence on the target; fails for a model that is confident of everything",
        "target",
        lambda data: entropy(data.scored.probs),
    ),
    "neighbourhood_density": Criterion(
        "tight neighbourhoods in the target; fails for a model that predicts one class only",
        "target",
        lambda data: neighbourhood_density(data.scored.probs),
    ),
    "separation": Criterion(
        "two clear modes of unknown scores; fails for modes that are not known and unknown",
        "target",
        lambda data: separation(data.scored.unknown_score),
    ),
    ORACLE: Criterion(
        "H by target labels, which are not available in practice; for reference only",
        "labelled target",
        h_score,
    ),
}


def hide_classes(
    samples: Samples, share_hidden: float, share_held_out: float, seed: int
) -> tuple[Samples, Samples]:
    """Split labelled images so that known classes can stand in for unknown ones.

    Some classes are hidden: they are left out of training, and all their images are for
    validation, as unknowns. Of every other class a share of the images is held out for validation
    as well; at least one image stays in training. The same arguments give the same split.

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
            f"Hiding classes needs three or more, and there are {n_classes}: select by the "
            "unlabelled target instead."
        )
    rng = np.random.default_rng(derive_seed(seed, "hidden classes"))
    n_hidden = min(max(1, round(share_hidden * n_classes)), n_classes - 2)
    hidden = np.isin(np.arange(n_classes), rng.permutation(n_classes)[:n_hidden])
    for_validation = hidden[samples.labels]
    order = np.argsort(samples.labels, kind="stable")
    by_class = np.split(order, np.bincount(samples.labels, minlength=n_classes).cumsum()[:-1])
    for k in np.flatnonzero(~hidden):
        index = by_class[k]
        rng = np.random.default_rng(derive_seed(seed, "held out", samples.classes[k]))
        n_out = min(max(1, round(share_held_out * len(index))), len(index) - 1)
        for_validation[rng.permutation(index)[:n_out]] = True
    if not (for_validation & ~hidden[samples.labels]).any():
        raise UserError("No class has two images: none can be held out for validation.")
    train = samples.keep(np.flatnonzero(~for_validation), ())
    validation = samples.keep(np.flatnonzero(for_validation), ())
    return _renumbered(train), validation


def _renumbered(samples: Samples) -> Samples:
    """Keep only the classes that have an image."""
    present, labels = np.unique(np.asarray(samples.labels), return_inverse=True)
    classes = tuple(samples.classes[k] for k in present)
    return Samples(samples.paths, labels.astype(np.int64), classes, samples.skipped)
