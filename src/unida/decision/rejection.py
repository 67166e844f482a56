"""Reject rules: from unknown scores to 'unknown', apart from training.

A rule is fitted to the scores of the unlabelled target or of held-out source images. The result is
one threshold, which is stored with the model, so that single images can be labelled. A rule is
named, some with a value: `mixture`, `source:0.05`, `threshold:0.3`. A new rule is a function and a
line of `RULES`.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from unida.decision import mixture_model
from unida.errors import require
from unida.types import UNKNOWN, FloatArray
from unida.utils.chunking import MAX_SAMPLES, subsample

MOST_SCORES = MAX_SAMPLES
"""Most scores that a rule is fitted to."""
SHARE = 0.02
"""Share of the held-out source images that the rule `source` may reject by default."""
STEPS = 200
"""Quantiles of the held-out scores that are kept, half a per cent apart."""


@dataclass(frozen=True)
class Rule:
    """A fitted reject rule.

    Attributes:
        name: the rule that is applied, with its value if it has one: `own` where the requested
            one could not be fitted.
        threshold: an image is unknown if its score is this or more.
        note: summary of the fit.
    """

    name: str
    threshold: float
    note: str

    def is_unknown(self, scores: FloatArray) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
        """Return which images are rejected; a score that is NaN is."""
        return ~(np.asarray(scores) < self.threshold)


def own(scores: FloatArray) -> Rule:
    """Return the method's own rule: every method shifts its score so that this is at zero."""
    return Rule("own", 0.0, "the method's own rule")


def mixture(scores: FloatArray) -> Rule:
    """Fit two components to the target's scores; the threshold is where they cross.

    Two are required: they explain the scores better (BIC) than one mode of some shape, each holds
    at least 2 % of the images, and their densities cross between the two means. Otherwise the rule
    falls back to `own`, and the note gives the reason. Both components have the same weight,
    whatever their sizes, since H weighs known and unknown classes alike. Limit: the upper component
    may also be images of known classes that look different.
    """
    values = finite(scores)
    if len(values) < 20:
        return _fall_back(f"{len(values)} scores are too few to fit a mixture")
    found = mixture_model.fit(values)
    if found is None:
        return _fall_back("all target scores are equal")
    if found.gain <= 0 or found.crossing is None:
        return _fall_back("the target's scores have one mode")
    if min(found.share, 1 - found.share) < 0.02:
        return _fall_back("nearly all of the target's scores are in one mode")
    return Rule(
        "mixture",
        found.crossing,
        f"two components in the target's scores, the upper one {found.share:.0%} of the images",
    )


def source(known: tuple[float, ...], share: float | None = None) -> Rule:
    """Reject at most a share of the held-out source images.

    On the target more images of known classes are rejected, since their scores are higher there.

    Args:
        known: `quantiles` of the scores of the held-out images; may be empty.
        share: by default `SHARE`; rounded down to the quantiles that are kept.
    """
    if not known:
        return _fall_back("there are no scores of held-out source images")
    name = "source" if share is None else f"source:{share:.10g}"
    share = SHARE if share is None else share
    place = math.ceil((1 - share) * (len(known) - 1) - 1e-9)
    return Rule(
        name,
        float(np.nextafter(known[place], math.inf)),  # an image with that score is accepted
        f"at most {100 * share:.10g} % of the held-out source images are rejected",
    )


def quantiles(scores: FloatArray) -> tuple[float, ...]:
    """Return the quantiles of held-out source scores that the rule `source` uses, rising.

    Each is the score of an image and no smaller than the quantile.
    """
    values = np.asarray(scores, dtype=np.float64)
    values = values[np.isfinite(values)]
    if not len(values):
        return ()
    levels = np.linspace(0, 1, STEPS + 1)
    return tuple(np.quantile(values, levels, method="higher").tolist())


def threshold(known: tuple[float, ...], value: float | None) -> Rule:
    """Use a fixed threshold, in the unit of the method's scores."""
    assert value is not None, "RULES requires a value"
    return Rule(f"threshold:{value:.10g}", value, "a fixed threshold")


def finite(scores: FloatArray) -> FloatArray:
    """Return the finite scores; of more than `MOST_SCORES`, a seeded sample."""
    values = np.asarray(scores, dtype=np.float64)
    values = values[np.isfinite(values)]
    return values[subsample(len(values), MOST_SCORES, 0, "scores")]


def _fall_back(reason: str) -> Rule:
    return Rule("own", 0.0, f"{reason}; the method's own rule is used instead")


@dataclass(frozen=True)
class RuleSpec:
    """A kind of rule: fitted to the target's scores after training, or made on request.

    Attributes:
        usage: how it is written.
        about: what it does, in one line.
        fit: from the target's scores.
        make: from `quantiles` of held-out source images and the value after the name.
        values: how many values may follow the name: 0, 1 or both.
    """

    usage: str
    about: str
    fit: Callable[[FloatArray], Rule] | None = None
    make: Callable[[tuple[float, ...], float | None], Rule] | None = None
    values: tuple[int, ...] = (0,)


RULES: dict[str, RuleSpec] = {
    "own": RuleSpec("own", "rejects what the method's paper would", fit=own),
    "mixture": RuleSpec(
        "mixture", "fits two components to the target's scores, rejects the upper one", fit=mixture
    ),
    "source": RuleSpec(
        "source[:SHARE]",
        "rejects at most 2 % of the held-out source images, or SHARE",
        make=source,
        values=(0, 1),
    ),
    "threshold": RuleSpec(
        "threshold:VALUE", "rejects scores of VALUE and more", make=threshold, values=(1,)
    ),
}


def fit_rules(scores: FloatArray, known: tuple[float, ...] = ()) -> dict[str, Rule]:
    """Fit every rule that can be fitted, by name.

    Args:
        scores: of the target.
        known: `quantiles` of the held-out source scores; without them there is no `source`.
    """
    rules = {name: kind.fit(scores) for name, kind in RULES.items() if kind.fit}
    return rules | {"source": source(known)} if known else rules


def pick_rule(rules: Mapping[str, Rule], requested: str, known: tuple[float, ...] = ()) -> Rule:
    """Return a fitted rule, or make the requested one.

    Args:
        rules: fitted, by name.
        requested: such as `own`, `source:0.05` or `threshold:0.3`.
        known: see `fit_rules`.
    """
    name, value = check_rule(requested)
    make = RULES[name].make
    if requested in rules or make is None:
        require(requested in rules, "reject", requested, ", ".join(rules))
        return rules[requested]
    return make(known, value)


def check_rule(requested: str) -> tuple[str, float | None]:
    """Parse the name of a rule into its kind and value."""
    name, colon, text = requested.partition(":")
    try:
        value = float(text) if colon else None
    except ValueError:
        value = math.nan
    usage = ", ".join(kind.usage for kind in RULES.values())
    is_one = name in RULES and (value is not None) in RULES[name].values
    require(is_one and math.isfinite(value or 0), "reject", requested, usage)
    require(
        name != "source" or 0 <= (value or 0) < 1, "reject", requested, "a SHARE from 0 up to 1"
    )
    return name, value


def describe_rules() -> str:
    """Describe all rules for a help text."""
    return " ".join(f"{kind.usage}: {kind.about}." for kind in RULES.values())


def describe_rule(requested: str, rule: Rule) -> str:
    """Name the requested rule and, where it could not be fitted, the one applied."""
    return requested if requested == rule.name else f"{requested} → {rule.name}"


def decide(
    probs: FloatArray, scores: FloatArray, rule: Rule, classes: tuple[str, ...]
) -> list[str]:
    """Label each image: the most likely known class, or `unknown` where the rule rejects."""
    best = probs.argmax(1)
    rejected = rule.is_unknown(scores)
    return [UNKNOWN if r else classes[k] for k, r in zip(best, rejected, strict=True)]
