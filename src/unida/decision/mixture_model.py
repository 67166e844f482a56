"""A mixture of two components: the scores of known images, and those of unknown ones.

The upper component is a Gaussian. The lower one is a Gaussian or, where scores are bounded and a
confident model accumulates them at the bound, a shifted gamma distribution, whichever is likelier.
Both are fitted by expectation maximisation.
"""

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from unida.types import FloatArray

STARTS = (0.1, 0.3, 0.5, 0.7, 0.9)
"""Shares of the numbers, the smallest, that start as the lower component."""
ROUNDS = 200
ENOUGH = 1e-6
"""Gain of likelihood, in nats a number, below which the fit has converged."""
MIN_GAUSSIAN_WIDTH, MIN_GAMMA_MEAN = 0.02, 0.06
"""In standard deviations of all numbers: single numbers are no component."""
EDGE = 0.002
"""Share of the numbers below the edge of the shifted gamma: they do not belong to it."""
MAX_GAMMA_SHAPE = 200.0
"""From here on a gamma distribution is nearly a Gaussian."""
PARAMETERS = 5
"""Two of each component, and a share; the edge of the gamma is a quantile, not fitted."""
PLACES = 4001
"""Grid between the means on which the crossing is searched."""


@dataclass(frozen=True)
class Component:
    """One component.

    Attributes:
        mean: of its numbers.
        log_density: of one number, or of many.
    """

    mean: float
    log_density: Callable[[FloatArray], FloatArray]


Shape = Callable[[FloatArray, FloatArray], Component]
"""From numbers and their weights to the fitted component."""


@dataclass(frozen=True)
class MixtureFit:
    """A fitted mixture, in the unit of the numbers.

    Attributes:
        share: of the upper component.
        crossing: where the densities, each of mass one, are equal between their means; None where
            there is no such place. The sizes of the components do not matter.
        gain: half the difference to the BIC of one mode, in nats a number; above zero, two
            components explain the numbers better.
    """

    share: float
    crossing: float | None
    gain: float


def fit(values: FloatArray, squash: float = 0.0) -> MixtureFit | None:
    """Fit both shapes; None where all numbers are equal.

    Args:
        values: any numbers.
        squash: fit to tanh(squash · x) of the standardised numbers x instead; 0 fits to x. Far
            numbers would otherwise widen a component. The order of the numbers stays.
    """
    if squash:
        centre, spread = float(values.mean()), float(values.std()) or 1.0
        found = fit(np.tanh(squash * (values - centre) / spread))
        if found is None or found.crossing is None:
            return found
        place = math.atanh(found.crossing) / squash * spread + centre
        return dataclasses.replace(found, crossing=place)
    centre, spread = float(values.mean()), float(values.std())
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
    """Fit a Gaussian."""
    mean = float(np.average(x, weights=weights))
    variance = float(np.average((x - mean) ** 2, weights=weights)) + MIN_GAUSSIAN_WIDTH**2
    height = 0.5 * math.log(2 * math.pi * variance)
    return Component(mean, lambda t: -((t - mean) ** 2) / (2 * variance) - height)


def shifted_gamma(x: FloatArray, weights: FloatArray) -> Component:
    """Fit a gamma distribution that starts at the smallest numbers, without a pole there.

    Its shape, at least 1, is Thom's approximation (1958).
    """
    from scipy.special import gammaln

    edge = float(np.quantile(x, EDGE, method="higher")) - MIN_GAUSSIAN_WIDTH
    inside = x > edge
    length = np.average(x[inside] - edge, weights=weights[inside])
    logs = np.average(np.log(x[inside] - edge), weights=weights[inside])
    s = max(math.log(length) - float(logs), 1e-6)
    k = min(max((3 - s + math.sqrt((s - 3) ** 2 + 24 * s)) / (12 * s), 1.0), MAX_GAMMA_SHAPE)
    scale = max(float(length), MIN_GAMMA_MEAN) / k
    height = gammaln(k) + k * math.log(scale)

    def log_density(t: FloatArray) -> FloatArray:
        d = np.maximum(t - edge, 1e-12)
        return np.where(t > edge, (k - 1) * np.log(d) - d / scale - height, -1e9)

    return Component(edge + k * scale, log_density)


def _expect_and_maximise(
    x: FloatArray, shape: Shape, start: float
) -> tuple[float, float, Component, Component]:
    """Return log-likelihood, share of the upper component, and both (Dempster et al., 1977).

    Args:
        x: rising.
        shape: of the lower component.
        start: share of the lower component in the beginning.
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
    if shape is gaussian and lower.mean > upper.mean:  # they changed places
        return likelihood, 1 - share, upper, lower
    return likelihood, share, lower, upper


def _crossing(lower: Component, upper: Component) -> float | None:
    """Return the first place between the means where the upper density is larger, if any."""
    places = np.linspace(lower.mean, upper.mean, PLACES)
    larger = upper.log_density(places) > lower.log_density(places)
    if lower.mean >= upper.mean or larger[0] or not larger[-1]:
        return None
    return float(places[larger.argmax()])


def _bic_of_one_mode(x: FloatArray) -> float:
    """Return the lowest BIC of a Gaussian, one after the best Yeo-Johnson power, a uniform and an
    exponential that falls off to either side."""
    from scipy.stats import yeojohnson

    n = len(x)
    warped, power = yeojohnson(x)
    stretch = (power - 1) * np.sum(np.sign(x) * np.log1p(np.abs(x)))
    plain, skewed = (n * (math.log(2 * math.pi * v.var()) + 1) for v in (x, warped))
    flat = 2 * n * math.log(np.ptp(x))
    falling = 2 * n * (math.log(min(x.mean() - x.min(), x.max() - x.mean())) + 1)
    fits = ((plain, 2), (skewed - 2 * stretch, 3), (flat, 2), (falling, 2))
    return float(min(fit + parameters * math.log(n) for fit, parameters in fits))
