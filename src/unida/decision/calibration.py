"""Temperature scaling of confidences, and the expected calibration error.

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

from unida.data.holdout import MIN_HELD_OUT
from unida.types import FloatArray, IntArray
from unida.utils.chunking import MAX_SAMPLES

BINS = 15
"""Bins of a reliability diagram, of equal width, as in the paper."""
FOLDS = 5
PRIOR = 0.5
"""Standard deviation of log T under its prior."""
LEAST = 1e-12
"""Lower bound of a probability, which may have been rounded to zero."""
_COLDEST, _HOTTEST = 0.05, 20.0


@dataclass(frozen=True)
class Bin:
    """Images of about the same confidence.

    Attributes:
        confidence: their mean confidence.
        accuracy: share of them whose most likely class is right.
        count: their number.
    """

    confidence: float
    accuracy: float
    count: int


@dataclass(frozen=True)
class Calibration:
    """The calibration of a run's confidences.

    Attributes:
        temperature: T; 1 changes nothing.
        images: held-out source images it was fitted to.
        note: summary of the fit.
        ece_before: expected calibration error without scaling; None without images.
        ece_after: with scaling, cross-validated: T is fitted without the image it scales.
        bins_before: the reliability diagram without scaling.
        bins: with scaling.
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
    """Fit a temperature to held-out source images.

    It stays 1 where there are too few images, and where it makes the calibration error larger, as
    it may if a class is never predicted.

    Args:
        probs: (N, K), class probabilities.
        labels: (N,), true classes.
    """
    n = len(labels)
    if n < MIN_HELD_OUT:
        held = f"{n} source images were" if n else "no source image was"
        return Calibration(
            1.0,
            n,
            f"{held} held out, {MIN_HELD_OUT} are required: confidence is uncalibrated",
        )
    right, fold = probs.argmax(1) == labels, np.arange(n) % FOLDS
    scaled = np.empty(n)
    for k in range(FOLDS):
        t = fit_temperature(probs[fold != k], labels[fold != k])
        scaled[fold == k] = confidence(probs[fold == k], t)
    before, after = reliability(confidence(probs, 1.0), right), reliability(scaled, right)
    error = expected_error(before), expected_error(after)
    if error[1] > error[0]:
        note = (
            f"a temperature fitted to {n} held-out source images would give an expected "
            f"calibration error of {error[1]:.3f}, not {error[0]:.3f}: confidence is uncalibrated"
        )
        return Calibration(1.0, n, note, error[0], error[0], before, before)
    temperature = fit_temperature(probs, labels)
    note = (
        f"calibrated on {n} held-out source images (temperature {temperature:.2f}): "
        f"expected calibration error {error[0]:.3f} before, {error[1]:.3f} after"
    )
    return Calibration(temperature, n, note, *error, before, after)


def fit_temperature(probs: FloatArray, labels: IntArray) -> float:
    """Return the temperature with the smallest negative log-likelihood of the true classes.

    log T has a Gaussian prior around 0. Without it, T would go to its bound for a model that is
    right on all images.
    """
    from scipy.optimize import minimize_scalar
    from scipy.special import logsumexp

    logs = _logs(probs)
    of_true = float(logs[np.arange(len(labels)), labels].sum())

    def loss(log_t: float) -> float:
        t = math.exp(log_t)
        fit = float(logsumexp(logs / t, axis=1).sum()) - of_true / t
        return fit + 0.5 * (log_t / PRIOR) ** 2

    found = minimize_scalar(loss, bounds=(math.log(_COLDEST), math.log(_HOTTEST)), method="bounded")
    return math.exp(float(found.x))


def tempered(probs: FloatArray, temperature: float) -> FloatArray:
    """Compute softmax(log p / T), (N, K); the same numbers at T = 1."""
    if temperature == 1:
        return probs
    from scipy.special import logsumexp

    logs = _logs(probs) / temperature
    return np.asarray(np.exp(logs - logsumexp(logs, axis=1, keepdims=True)))


def confidence(probs: FloatArray, temperature: float) -> FloatArray:
    """Return the calibrated probability of the most likely class, (N,)."""
    if temperature == 1:
        return np.asarray(probs.max(1))
    parts = np.array_split(probs, math.ceil(len(probs) / MAX_SAMPLES) or 1)
    return np.concatenate([tempered(part, temperature).max(1) for part in parts])


def reliability(confidences: FloatArray, right: npt.NDArray[np.bool_]) -> tuple[Bin, ...]:
    """Return a reliability diagram: `BINS` bins of equal width from 0 to 1, without empty ones."""
    number = np.clip((confidences * BINS).astype(int), 0, BINS - 1)
    groups = ((confidences[number == k], right[number == k]) for k in range(BINS))
    return tuple(Bin(float(c.mean()), float(r.mean()), len(c)) for c, r in groups if len(c))


def expected_error(bins: tuple[Bin, ...]) -> float:
    """Return the expected calibration error: the mean gap of confidence and accuracy, or NaN."""
    n = sum(b.count for b in bins)
    gaps = math.fsum(b.count * abs(b.confidence - b.accuracy) for b in bins)
    return gaps / n if n else math.nan


def _logs(probs: FloatArray) -> FloatArray:
    """Return finite logarithms: a probability may have been rounded to zero."""
    return np.asarray(np.log(np.maximum(probs, LEAST)))
