"""Sure, or not: confidences that are right as often as they say, and how far they are from it.

One number, a temperature T, sharpens or softens the probabilities of a model: softmax(log p / T)
(Guo et al., "On Calibration of Modern Neural Networks", ICML 2017). It is fitted to source images
that training did not see. The most likely class stays the same, and so does the unknown score.
"""

import dataclasses
import json
import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp

from unida.data.holdout import MIN_HELD_OUT
from unida.types import FloatArray, IntArray
from unida.utils.chunking import MAX_SAMPLES

BINS = 15
"""Of a reliability diagram: of equal width, as in the paper."""
FOLDS = 5
PRIOR = 0.5
"""Deviation of log T before any image was seen."""
LEAST = 1e-12
"""A probability below this counts as this: it may have been rounded to zero."""
_COLDEST, _HOTTEST = 0.05, 20.0


@dataclass(frozen=True)
class Bin:
    """Images of about the same confidence.

    Attributes:
        confidence: their mean confidence.
        accuracy: share of them whose most likely class is right.
        count: how many they are.
    """

    confidence: float
    accuracy: float
    count: int


@dataclass(frozen=True)
class Calibration:
    """How the confidences of a run were mended.

    Attributes:
        temperature: T; 1 leaves everything as it is.
        images: held-out source images it was fitted to.
        note: what was done, in words.
        ece_before: expected calibration error of the plain confidences; None without images.
        ece_after: of the mended ones, each mended by a temperature fitted without that image.
        bins_before: the reliability diagram of the plain confidences.
        bins: of the mended ones.
    """

    temperature: float
    images: int
    note: str
    ece_before: float | None = None
    ece_after: float | None = None
    bins_before: tuple[Bin, ...] = ()
    bins: tuple[Bin, ...] = ()

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self), indent=2) + "\n"


def calibrate(probs: FloatArray, labels: IntArray) -> Calibration:
    """Fits a temperature to held-out source images; too few of them leave it at 1.

    So do images on which it makes the confidences worse: the likeliest temperature does, where a
    class is never thought of, since its images are then as unlikely as can be.

    Args:
        probs: (N, K), class probabilities.
        labels: (N,), true classes.
    """
    n = len(labels)
    if n < MIN_HELD_OUT:
        held = f"{n} source images were" if n else "no source image was"
        return Calibration(
            1.0, n, f"{held} held out, and {MIN_HELD_OUT} are needed: confidence is plain"
        )
    right, fold = probs.argmax(1) == labels, np.arange(n) % FOLDS
    mended = np.empty(n)
    for k in range(FOLDS):
        t = fit_temperature(probs[fold != k], labels[fold != k])
        mended[fold == k] = confidence(probs[fold == k], t)
    before, after = reliability(confidence(probs, 1.0), right), reliability(mended, right)
    error = expected_error(before), expected_error(after)
    if error[1] > error[0]:
        note = (
            f"a temperature fitted to {n} held-out source images would make the expected "
            f"calibration error {error[1]:.3f} instead of {error[0]:.3f}: confidence is plain"
        )
        return Calibration(1.0, n, note, error[0], error[0], before, before)
    temperature = fit_temperature(probs, labels)
    note = (
        f"calibrated on {n} held-out source images (temperature {temperature:.2f}): "
        f"expected calibration error {error[0]:.3f} before, {error[1]:.3f} after"
    )
    return Calibration(temperature, n, note, *error, before, after)


def fit_temperature(probs: FloatArray, labels: IntArray) -> float:
    """The temperature with the smallest negative log-likelihood of the true classes.

    log T has a Gaussian prior around 0, of weight in a few images only: without it, a model that
    is right on all of them would be made certain of everything.
    """
    logs = _logs(probs)
    of_true = float(logs[np.arange(len(labels)), labels].sum())

    def loss(log_t: float) -> float:
        t = math.exp(log_t)
        fit = float(logsumexp(logs / t, axis=1).sum()) - of_true / t
        return fit + 0.5 * (log_t / PRIOR) ** 2

    found = minimize_scalar(loss, bounds=(math.log(_COLDEST), math.log(_HOTTEST)), method="bounded")
    return math.exp(float(found.x))


def tempered(probs: FloatArray, temperature: float) -> FloatArray:
    """softmax(log p / T), of shape (N, K); at 1 the very same numbers."""
    if temperature == 1:
        return probs
    logs = _logs(probs) / temperature
    return np.asarray(np.exp(logs - logsumexp(logs, axis=1, keepdims=True)))


def confidence(probs: FloatArray, temperature: float) -> FloatArray:
    """Mended probability of the most likely class, (N,)."""
    if temperature == 1:
        return np.asarray(probs.max(1))
    parts = np.array_split(probs, math.ceil(len(probs) / MAX_SAMPLES) or 1)
    return np.concatenate([tempered(part, temperature).max(1) for part in parts])


def reliability(confidences: FloatArray, right: npt.NDArray[np.bool_]) -> tuple[Bin, ...]:
    """A reliability diagram: `BINS` bins of equal width from 0 to 1, those with images in them."""
    number = np.clip((confidences * BINS).astype(int), 0, BINS - 1)
    groups = ((confidences[number == k], right[number == k]) for k in range(BINS))
    return tuple(Bin(float(c.mean()), float(r.mean()), len(c)) for c, r in groups if len(c))


def expected_error(bins: tuple[Bin, ...]) -> float:
    """Expected calibration error: the mean gap between confidence and accuracy; NaN of none."""
    n = sum(b.count for b in bins)
    gaps = math.fsum(b.count * abs(b.confidence - b.accuracy) for b in bins)
    return gaps / n if n else math.nan


def _logs(probs: FloatArray) -> FloatArray:
    """Finite ones: a probability may have been rounded to zero."""
    return np.asarray(np.log(np.maximum(probs, LEAST)))
