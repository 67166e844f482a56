"""H-score and its relatives, on arrays of class numbers."""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

NAN = math.nan


@dataclass(frozen=True)
class Score:
    """Accuracies as fractions. One that has no sample to be measured on is NaN.

    Attributes:
        known: mean recall over the shared classes (those with samples).
        known_instance: share of known samples that are right.
        unknown: share of unknown samples called unknown.
        h: harmonic mean of `known` and `unknown`; 0 if both are 0, NaN if either is.
        h_instance: the same of `known_instance` and `unknown`.
        balanced_h: the paper's Balance-H of `known` and `unknown`,
            (1 + θ) a_k a_u / (θ a_k + a_u) with θ = unknown samples / known samples.
        os: mean recall over the shared classes and unknown as one more class.
        os_star: mean recall over the shared classes; equals `known`.
    """

    known: float
    known_instance: float
    unknown: float
    h: float
    h_instance: float
    balanced_h: float
    os: float
    os_star: float


def score(
    labels: npt.ArrayLike,
    predictions: npt.ArrayLike,
    *,
    unknown: int,
    n_shared: int | None = None,
) -> Score:
    """Scores predictions on a target with known and unknown classes.

    Args:
        labels: true classes; `unknown` for every class the source does not have.
        predictions: predicted classes or `unknown`. A source-private class is simply wrong.
        unknown: the number that stands for unknown.
        n_shared: shared classes are 0 … n_shared − 1; None takes the known classes in `labels`.
    """
    y, p = np.asarray(labels).ravel(), np.asarray(predictions).ravel()
    if y.shape != p.shape:
        raise ValueError(f"{y.size} labels but {p.size} predictions")
    is_unknown = y == unknown
    classes = np.unique(y[~is_unknown])
    if n_shared is not None and classes.size and not 0 <= classes[0] <= classes[-1] < n_shared:
        raise ValueError(f"labels {classes.tolist()} are not all below n_shared = {n_shared}")

    right = y == p
    recalls = [_mean(right[y == k]) for k in classes]
    known, known_instance = _mean(np.array(recalls)), _mean(right[~is_unknown])
    of_unknown = _mean(right[is_unknown])
    theta = is_unknown.sum() / (~is_unknown).sum() if classes.size else NAN
    seen = recalls if math.isnan(of_unknown) else [*recalls, of_unknown]
    return Score(
        known=known,
        known_instance=known_instance,
        unknown=of_unknown,
        h=_harmonic(known, of_unknown, 1.0),
        h_instance=_harmonic(known_instance, of_unknown, 1.0),
        balanced_h=_harmonic(known, of_unknown, theta),
        os=_mean(np.array(seen)),
        os_star=known,
    )


def _mean(values: npt.NDArray[np.generic]) -> float:
    return float(values.astype(float).mean()) if values.size else NAN


def _harmonic(known: float, unknown: float, theta: float) -> float:
    """(1 + θ)·k·u / (θ·k + u); 0 where both are 0."""
    if known == 0 and unknown == 0:
        return 0.0
    if math.isnan(known) or math.isnan(unknown):
        return NAN
    return float((1 + theta) * known * unknown / (theta * known + unknown))
