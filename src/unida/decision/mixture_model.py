"""Two groups in one row of numbers: the scores of known images, and those of unknown ones.

The stranger group, of larger numbers, is a Gaussian. The other is a Gaussian as well or, where
scores are bounded and a sure model crowds them at the bound, a gamma distribution from the smallest
on; the likelier shape is taken.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import gammaln
from scipy.stats import yeojohnson

from unida.types import FloatArray

STARTS = (0.1, 0.3, 0.5, 0.7, 0.9)
"""Shares of the numbers, the smallest, that the fits begin with as the lower group."""
ROUNDS = 200
ENOUGH = 1e-6
"""A round that brings less than this, in nats a number, is the last."""
NARROWEST, SHORTEST = 0.02, 0.06
"""Of a bell and of a crowd, in deviations of all numbers: single numbers are no group."""
EDGE = 0.002
"""Share of the numbers below the edge that a crowd begins at: they are not of it."""
MOST_BELL_LIKE = 200.0
"""Shape of a crowd; from here on it would be a Gaussian."""
PARAMETERS = 5
"""Of two groups: two of each, and a share; the edge of a crowd is read off, not fitted."""
PLACES = 4001
"""Between the means, where a crossing is looked for."""


@dataclass(frozen=True)
class Component:
    """One of the groups.

    Attributes:
        mean: of its numbers.
        log_density: of one number, or of many.
    """

    mean: float
    log_density: Callable[[FloatArray], FloatArray]


Shape = Callable[[FloatArray, FloatArray], Component]
"""From numbers and their weights to the group of that shape that they make."""


@dataclass(frozen=True)
class MixtureFit:
    """Two densities that numbers were explained by, in their own unit.

    Attributes:
        share: of the upper group.
        crossing: where the densities are equal, each of mass one, between their means; None where
            there is no such place. The sizes of the groups have no say: neither is favoured.
        gain: by how much they explain the numbers better than one mode does: half the difference of
            the two BICs, in nats a number.
    """

    share: float
    crossing: float | None
    gain: float


def fit(values: FloatArray) -> MixtureFit | None:
    """Fits both shapes; None where all numbers are equal, for any practical purpose."""
    centre, spread = values.mean(), values.std()
    if spread <= 1e-9 * np.abs(values).max():  # relative: the unit must not matter
        return None
    x = np.sort((values - centre) / spread)
    likelihood, share, lower, upper = max(
        (
            _expect_and_maximise(x, shape, start)
            for shape in (gaussian, shifted_gamma)
            for start in STARTS
        ),
        key=lambda found: found[0],
    )
    crossing = _crossing(lower, upper)
    return MixtureFit(
        share,
        None if crossing is None else float(crossing * spread + centre),
        (_bic_of_one_mode(x) + 2 * likelihood - PARAMETERS * math.log(len(x))) / (2 * len(x)),
    )


def gaussian(x: FloatArray, weights: FloatArray) -> Component:
    """A Gaussian."""
    mean = float(np.average(x, weights=weights))
    variance = float(np.average((x - mean) ** 2, weights=weights)) + NARROWEST**2
    height = 0.5 * math.log(2 * math.pi * variance)
    return Component(mean, lambda t: -((t - mean) ** 2) / (2 * variance) - height)


def shifted_gamma(x: FloatArray, weights: FloatArray) -> Component:
    """A gamma distribution from the smallest number on, but for a few, with no pole there.

    Its shape, 1 for an exponential and more for a heap, is Thom's approximation (1958).
    """
    edge = float(np.quantile(x, EDGE, method="higher")) - NARROWEST
    inside = x > edge
    length = np.average(x[inside] - edge, weights=weights[inside])
    logs = np.average(np.log(x[inside] - edge), weights=weights[inside])
    s = max(math.log(length) - float(logs), 1e-6)
    k = min(max((3 - s + math.sqrt((s - 3) ** 2 + 24 * s)) / (12 * s), 1.0), MOST_BELL_LIKE)
    scale = max(float(length), SHORTEST) / k
    height = gammaln(k) + k * math.log(scale)

    def log_density(t: FloatArray) -> FloatArray:
        d = np.maximum(t - edge, 1e-12)
        return np.where(t > edge, (k - 1) * np.log(d) - d / scale - height, -1e9)

    return Component(edge + k * scale, log_density)


def _expect_and_maximise(
    x: FloatArray, shape: Shape, start: float
) -> tuple[float, float, Component, Component]:
    """Log-likelihood, share of the upper group, and both groups (Dempster et al., 1977).

    Args:
        x: rising.
        shape: of the lower group.
        start: share of the lower group in the beginning.
    """
    above = (np.arange(len(x)) >= start * len(x)).astype(np.float64)
    likelihood = -math.inf
    for _ in range(ROUNDS):
        share = float(above.mean().clip(1e-6, 1 - 1e-6))
        lower, upper = shape(x, 1 - above + 1e-12), gaussian(x, above + 1e-12)
        logs = (
            math.log(1 - share) + lower.log_density(x),
            math.log(share) + upper.log_density(x),
        )
        both = np.logaddexp(*logs)
        above, before, likelihood = np.exp(logs[1] - both), likelihood, float(both.sum())
        if likelihood - before < ENOUGH * len(x):
            break
    if shape is gaussian and lower.mean > upper.mean:  # they changed places on the way
        return likelihood, 1 - share, upper, lower
    return likelihood, share, lower, upper


def _crossing(lower: Component, upper: Component) -> float | None:
    """The first place between the means where the upper density is the larger; or none."""
    places = np.linspace(lower.mean, upper.mean, PLACES)
    larger = upper.log_density(places) > lower.log_density(places)
    if lower.mean >= upper.mean or larger[0] or not larger[-1]:
        return None
    return float(places[larger.argmax()])


def _bic_of_one_mode(x: FloatArray) -> float:
    """The lowest BIC of a Gaussian, of one after the best Yeo-Johnson power, of a uniform and of
    an exponential that falls off to either side."""
    n = len(x)
    warped, power = yeojohnson(x)
    stretch = (power - 1) * np.sum(np.sign(x) * np.log1p(np.abs(x)))
    plain, skewed = (n * (math.log(2 * math.pi * v.var()) + 1) for v in (x, warped))
    flat = 2 * n * math.log(np.ptp(x))
    falling = 2 * n * (math.log(min(x.mean() - x.min(), x.max() - x.mean())) + 1)
    fits = ((plain, 2), (skewed - 2 * stretch, 3), (flat, 2), (falling, 2))
    return float(min(fit + parameters * math.log(n) for fit, parameters in fits))
