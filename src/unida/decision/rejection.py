"""Reject rules: from unknown scores to 'unknown', apart from training.

A rule is fitted to the outputs on the unlabelled target or to held-out source images. The result is
one threshold, which is stored with the model, so that single images can be labelled. A rule is
named, some with a value: `share`, `source:0.05`, `threshold:0.3`. A new rule is a function and a
line of `RULES`.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from unida.decision import mixture_model
from unida.decision.category_shift import MIN_TARGET, ShiftSigns
from unida.errors import require
from unida.types import UNKNOWN, FloatArray
from unida.utils.chunking import MAX_SAMPLES, subsample
from unida.utils.logs import logger

MOST_SCORES = MAX_SAMPLES
"""Most scores that a rule is fitted to."""
SHARE = 0.02
"""Share of the held-out source images that the rule `source` may reject by default."""
STEPS = 200
"""Quantiles of the held-out scores that are kept, half a per cent apart."""

BUDGET = 0.01
"""Share of the confidence that the rule `share` may reject where no target image is unknown."""
SQUASH = 0.5
"""Of the scores that the mixture is fitted to (`mixture_model.fit`)."""
MARGIN_WEIGHT, GAIN_WEIGHT, MAX_GAIN = 4.0, 5.0, 0.15
OPEN, CLOSED = 1.4, 2.4
"""Evidence: reach minus density plus weighted margin (`ShiftSigns`), minus the weighted gain of two
components over one mode, bounded. At `OPEN` and below the whole upper component is rejected, at
`CLOSED` and above nothing of it. The gate is wide because to miss an unknown class costs more than
a few known images (`benchmarks/experiments/2026-11-19-category-shift/NOTES.md`)."""
COUNTED, NOT_COUNTED = 1.6, 2.0
"""The same for the estimated share, which weighs both errors alike."""
NOTHING_KNOWN, UNCENTRED_NOTHING_KNOWN = 0.25, 0.3
"""Levels below which, both together, no target image is known."""
SMALL = 100
"""Images below which the signs of a target scatter: nothing known is not concluded, and the gate is
the narrow one of the estimate."""
UNCENTRED_KNOWN = 0.35
"""Uncentred level from which a target of one class has a known one."""
MAX_CLASS_SHARE, MAX_CLASS_SHARE_OF_ALL = 0.6, 0.7
"""Share of one class among the predictions for accepted images, or for all, above which the
features of a target cannot be centred: its mean is that of the class."""
CANDIDATES = 0.3
"""Share of the target that is compared with the rest where a mixture has no crossing."""
UNSURE = 0.3
"""By how much the evidence may be too low, for the interval of the estimated share."""
SLACK = 0.1
"""By how much the share of the upper component may be wrong either way, in a large target."""


@dataclass(frozen=True)
class Rule:
    """A fitted reject rule.

    Attributes:
        name: the rule that is applied, with its value if it has one: `own` where the requested
            one could not be fitted.
        threshold: an image is unknown if its score is this or more; infinite where none is.
        note: summary of the fit.
        share: estimated share of unknown images; None where the rule estimates none.
        interval: of that share.
        fell_back: why the requested rule could not be fitted; empty where it was.
    """

    name: str
    threshold: float
    note: str
    share: float | None = None
    interval: tuple[float, float] | None = None
    fell_back: str = ""

    def is_unknown(self, scores: FloatArray) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
        """Return which images are rejected; a score that is NaN is."""
        return ~(np.asarray(scores) < self.threshold)

    def to_json(self) -> dict[str, Any]:
        """Return the fields; an infinite threshold, which JSON lacks, is a text."""
        finite = math.isfinite(self.threshold)
        return asdict(self) | {"threshold": self.threshold if finite else str(self.threshold)}

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> "Rule":
        """The inverse of `to_json`."""
        interval = fields.get("interval")
        changed = {
            "threshold": float(fields["threshold"]),
            "interval": None if interval is None else tuple(interval),
        }
        return cls(**{**fields, **changed})


@dataclass(frozen=True)
class TargetOutputs:
    """What rules are fitted to.

    Attributes:
        scores: (N,), unknown scores of the target.
        probs: (N, K), class probabilities; None where only scores are known.
        compare: signs of unknown classes for a split of the target, from the backbone's features
            (`unida.decision.category_shift`), or None for a small target; itself None where there
            are no features.
    """

    scores: FloatArray
    probs: FloatArray | None = None
    compare: Callable[[npt.NDArray[np.bool_]], ShiftSigns | None] | None = None


def own(target: TargetOutputs) -> Rule:
    """Return the method's own rule: every method shifts its score so that this is at zero."""
    return Rule("own", 0.0, "the method's own rule")


def none(target: TargetOutputs) -> Rule:
    """Reject nothing, for a target that is known to have no unknown classes."""
    return Rule("none", math.inf, "nothing is rejected")


def share(target: TargetOutputs) -> Rule:
    """Reject the estimated share of unknown images, which may be none or all.

    Two components are fitted to the scores; the upper one is a candidate for the unknown images.
    The features of the backbone are evidence of whether it is (`ShiftSigns`), and so is how clearly
    the scores have two modes. Between yes and no, a part of the component is rejected. Where
    nothing seems unknown, the least confident images are rejected still, as many as hold `BUDGET`
    of the confidence of all: that costs about as much of the accuracy. The estimated share is that
    of the upper component, as far as the evidence counts it; more is rejected where the evidence is
    weak.

    Limits: below 20 images it falls back to `own`. Where most images are of one class, nothing is
    estimated: the least confident are rejected if that class seems known, otherwise it falls back
    to `own`, too.
    """
    if target.probs is None or target.compare is None:
        return _fall_back("there are no features of the target")
    scores = np.where(np.isnan(target.scores), math.inf, target.scores)
    values = finite(scores)
    if len(values) < MIN_TARGET:
        return _fall_back(f"{len(values)} images are too few to estimate the share of unknown ones")
    found, plain = mixture_model.fit(values, SQUASH), mixture_model.fit(values)
    if found is None or plain is None:
        return _fall_back("all target scores are equal")
    crossing = found.crossing
    split = float(np.quantile(values, 1 - CANDIDATES)) if crossing is None else crossing
    is_upper = scores >= split
    signs = target.compare(is_upper)
    if signs is None:
        return _fall_back("too few images have features to compare with the source")
    low_levels = signs.level < NOTHING_KNOWN and signs.uncentred_level < UNCENTRED_NOTHING_KNOWN
    if low_levels and len(scores) >= SMALL:
        note = "no sign of known classes: all are unknown"
        return Rule("share", -math.inf, note, 1.0, (0.9, 1.0))
    in_budget = _share_of_confidence(scores, target.probs.max(1), BUDGET)
    if _is_one_class(target.probs[~is_upper], MAX_CLASS_SHARE) or _is_one_class(
        target.probs, MAX_CLASS_SHARE_OF_ALL
    ):
        reason = "most target images are of one class"
        if signs.uncentred_level < UNCENTRED_KNOWN:
            return _fall_back(reason)
        note = f"{reason}: the least sure {in_budget:.0%} are rejected"
        return Rule("share", _upper_threshold(scores, in_budget), note, fell_back=note)
    gain = min(max(plain.gain, 0.0), MAX_GAIN)
    evidence = signs.reach - signs.density + MARGIN_WEIGHT * signs.margin - GAIN_WEIGHT * gain
    upper = float(is_upper.mean())
    gate = (OPEN, CLOSED) if len(scores) >= SMALL else (COUNTED, NOT_COUNTED)
    weight = _weight(evidence, *gate)
    estimate = _weight(evidence, COUNTED, NOT_COUNTED) * upper
    rejected = max(weight * upper + (1 - weight) * in_budget, in_budget)
    slack = SLACK + 1 / math.sqrt(len(scores))
    interval = (
        max(0.0, _weight(evidence + UNSURE, COUNTED, NOT_COUNTED) * upper - slack),
        min(1.0, max(weight * upper, estimate) + slack),
    )
    logger.debug("Evidence of unknown classes: %s, gain %.2f.", signs, gain)
    if estimate == 0:
        note = f"no sign of unknown classes: the least sure {rejected:.0%} are rejected"
    else:
        low, high = interval
        note = f"about {estimate:.0%} of the images are unknown, {low:.0%} to {high:.0%}"
    whole = rejected == upper and crossing is not None
    threshold = split if whole else _upper_threshold(scores, rejected)
    return Rule("share", threshold, note, estimate, interval)


def _is_one_class(probs: FloatArray, most: float) -> bool:
    """Whether more than a share are of one class; of two classes, one may be larger."""
    counts = np.bincount(probs.argmax(1), minlength=probs.shape[1])
    return bool(counts.max() > most * max(counts.sum(), 1) and len(counts) > 2)


def _weight(evidence: float, opened: float, closed: float) -> float:
    """How far the upper component is taken for unknown images, from 0 to 1."""
    return float(np.clip((closed - evidence) / (closed - opened), 0, 1))


def _share_of_confidence(scores: FloatArray, confidence: FloatArray, share: float) -> float:
    """Return the share of the images, highest scores first, that holds a share of confidence."""
    held = np.cumsum(confidence[np.argsort(-scores, kind="stable")]) / confidence.sum()
    return float(np.searchsorted(held, share)) / len(scores)


def _upper_threshold(scores: FloatArray, share: float) -> float:
    """Return a threshold that rejects a share of the scores; infinite for less than one image.

    It lies half-way between two scores, so that the last digits of a score decide nothing.
    """
    n = round(share * len(scores))
    if n == 0:
        return math.inf
    falling = -np.sort(-scores)
    return float(falling[n - 1 : n + 1].mean())


def mixture(target: TargetOutputs) -> Rule:
    """Fit two components to the target's scores; the threshold is where they cross.

    Two are required: they explain the scores better (BIC) than one mode of some shape, each holds
    at least 2 % of the images, and their densities cross between the two means. Otherwise the rule
    falls back to `own`, and the note gives the reason. Both components have the same weight,
    whatever their sizes, since H weighs known and unknown classes alike. Limit: the upper component
    may also be images of known classes that look different.
    """
    values = finite(target.scores)
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
        share=found.share,
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
    return Rule("own", 0.0, f"{reason}; the method's own rule is used instead", fell_back=reason)


@dataclass(frozen=True)
class RuleSpec:
    """A kind of rule: fitted to the target's scores after training, or made on request.

    Attributes:
        usage: how it is written.
        about: what it does, in one line.
        fit: from the outputs on the target.
        make: from `quantiles` of held-out source images and the value after the name.
        values: how many values may follow the name: 0, 1 or both.
    """

    usage: str
    about: str
    fit: Callable[[TargetOutputs], Rule] | None = None
    make: Callable[[tuple[float, ...], float | None], Rule] | None = None
    values: tuple[int, ...] = (0,)


RULES: dict[str, RuleSpec] = {
    "share": RuleSpec(
        "share", "rejects the estimated share of unknown images, maybe none or all", fit=share
    ),
    "own": RuleSpec("own", "rejects what the method's paper would", fit=own),
    "mixture": RuleSpec(
        "mixture", "fits two components to the target's scores, rejects the upper one", fit=mixture
    ),
    "none": RuleSpec("none", "rejects nothing", fit=none),
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


def fit_rules(target: TargetOutputs, known: tuple[float, ...] = ()) -> dict[str, Rule]:
    """Fit every rule that can be fitted, by name.

    Args:
        target: outputs on it.
        known: `quantiles` of the held-out source scores; without them there is no `source`.
    """
    rules = {name: kind.fit(target) for name, kind in RULES.items() if kind.fit}
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
