"""Reject rules: from unknown scores to 'unknown', apart from training.

A rule is fitted to the scores of the unlabelled target, or to those of source images that were
held out, and leaves one number, a threshold, which is stored with the model; so a single image can
be judged. A rule is asked for by name, some with a value: `mixture`, `source:0.05`,
`threshold:0.3`.
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
"""Scores a rule is fitted to."""
SHARE = 0.02
"""Of the held-out source images, those the rule `source` may reject unless another is given."""
STEPS = 200
"""Quantiles of the held-out scores that are kept: half a per cent apart."""


@dataclass(frozen=True)
class Rule:
    """A fitted reject rule.

    Attributes:
        name: the rule that is in force, with its value if it was given one: `own` where another
            was asked for and found no ground.
        threshold: an image is unknown if its score is this or more.
        note: what the fit found, in words.
    """

    name: str
    threshold: float
    note: str

    def is_unknown(self, scores: FloatArray) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
        return ~(np.asarray(scores) < self.threshold)  # a score that is no number is unknown


def own(scores: FloatArray) -> Rule:
    """The method's own rule: every method shifts its score so that this is at zero."""
    return Rule("own", 0.0, "the method's own rule")


def mixture(scores: FloatArray) -> Rule:
    """Fit two components to the target's scores; the threshold is where they cross.

    There must be two: they explain the scores better (BIC) than one mode of some shape, each holds
    2 % of the images at least, and their densities cross between the two means. Otherwise the rule
    says so and falls back to `own`. The groups weigh the same, however many images each has: to
    lose a share of either is as bad. What it cannot know: whether the stranger group is unknown
    classes or strange images of known ones. Of very many scores a sample is fitted (`finite`).
    """
    values = finite(scores)
    if len(values) < 20:
        return _fall_back(f"{len(values)} scores are too few to fit a mixture")
    groups = mixture_model.fit(values)
    if groups is None:
        return _fall_back("all target scores are equal")
    if groups.gain <= 0 or groups.crossing is None:
        return _fall_back("the target's scores show one mode only")
    if min(groups.share, 1 - groups.share) < 0.02:
        return _fall_back("all but a few of the target's scores lie in one mode")
    return Rule(
        "mixture",
        groups.crossing,
        f"the target's scores form two groups, the stranger one {groups.share:.0%} of the images",
    )


def source(known: tuple[float, ...], share: float | None = None) -> Rule:
    """The threshold that rejects at most a share of the source images that were held out.

    On the target it rejects more than that of the known classes: they look stranger there.

    Args:
        known: what `quantiles` keeps of the scores of the held-out images; may be empty.
        share: by default `SHARE`; finer than the quantiles, it is rounded down.
    """
    if not known:
        return _fall_back("no scores of held-out source images are at hand")
    name = "source" if share is None else f"source:{share:.10g}"
    share = SHARE if share is None else share
    place = math.ceil((1 - share) * (len(known) - 1) - 1e-9)
    return Rule(
        name,
        float(np.nextafter(known[place], math.inf)),  # the image of that very score is accepted
        f"at most {100 * share:.10g} % of the held-out source images are rejected",
    )


def quantiles(scores: FloatArray) -> tuple[float, ...]:
    """What is kept of the scores of held-out source images, for the rule `source`, rising.

    Each is the score of an image and no smaller than the quantile, so that a rule between two
    images rejects the fewer.
    """
    values = np.asarray(scores, dtype=np.float64)
    values = values[np.isfinite(values)]
    if not len(values):
        return ()
    levels = np.linspace(0, 1, STEPS + 1)
    return tuple(np.quantile(values, levels, method="higher").tolist())


def threshold(known: tuple[float, ...], value: float | None) -> Rule:
    """A threshold somebody chose, in the unit of the method's scores."""
    assert value is not None, "see RULES: it is asked for with a value"
    return Rule(f"threshold:{value:.10g}", value, "a fixed threshold")


def finite(scores: FloatArray) -> FloatArray:
    """The scores that are numbers; of more than `MOST_SCORES`, a seeded sample of them."""
    values = np.asarray(scores, dtype=np.float64)
    values = values[np.isfinite(values)]
    return values[subsample(len(values), MOST_SCORES, 0, "scores")]


def _fall_back(reason: str) -> Rule:
    return Rule("own", 0.0, f"{reason}; the method's own rule is used instead")


@dataclass(frozen=True)
class RuleSpec:
    """A kind of rule: it is either fitted to the target's scores, once, or made when asked for.

    Attributes:
        usage: how it is asked for.
        about: what it does, in one plain line.
        fit: from the target's scores.
        make: from `quantiles` of held-out source images and the value that came with the name.
        values: how many may come with the name, 0, 1 or both.
    """

    usage: str
    about: str
    fit: Callable[[FloatArray], Rule] | None = None
    make: Callable[[tuple[float, ...], float | None], Rule] | None = None
    values: tuple[int, ...] = (0,)


RULES: dict[str, RuleSpec] = {
    "own": RuleSpec("own", "rejects what the method's paper would", fit=own),
    "mixture": RuleSpec(
        "mixture", "looks for two groups in the target's scores, rejects the stranger", fit=mixture
    ),
    "source": RuleSpec(
        "source[:SHARE]",
        "rejects at most a share of what I know: 2 % of held-out source images, or SHARE",
        make=source,
        values=(0, 1),
    ),
    "threshold": RuleSpec(
        "threshold:VALUE", "rejects scores of VALUE and more", make=threshold, values=(1,)
    ),
}


def fit_rules(scores: FloatArray, known: tuple[float, ...] = ()) -> dict[str, Rule]:
    """Every rule that has something to be fitted to, by the name it is asked for.

    Args:
        scores: of the target.
        known: `quantiles` of the held-out source images' scores; without them there is no `source`.
    """
    rules = {name: kind.fit(scores) for name, kind in RULES.items() if kind.fit}
    return rules | {"source": source(known)} if known else rules


def pick_rule(rules: Mapping[str, Rule], asked: str, known: tuple[float, ...] = ()) -> Rule:
    """The rule asked for: one that is there already, or one made now.

    Args:
        rules: by the name they were asked for.
        asked: such as `own`, `source:0.05` or `threshold:0.3`.
        known: see `fit_rules`.
    """
    name, value = check_rule(asked)
    make = RULES[name].make
    if asked in rules or make is None:
        require(asked in rules, "reject", asked, ", ".join(rules))
        return rules[asked]
    return make(known, value)


def check_rule(asked: str) -> tuple[str, float | None]:
    """Name and value of the rule asked for; what is none is refused in one sentence."""
    name, colon, text = asked.partition(":")
    try:
        value = float(text) if colon else None
    except ValueError:
        value = math.nan
    usage = ", ".join(kind.usage for kind in RULES.values())
    is_one = name in RULES and (value is not None) in RULES[name].values
    require(is_one and math.isfinite(value or 0), "reject", asked, usage)
    require(name != "source" or 0 <= (value or 0) < 1, "reject", asked, "a SHARE from 0 up to 1")
    return name, value


def describe_rules() -> str:
    """The rules for a help text."""
    return " ".join(f"{kind.usage}: {kind.about}." for kind in RULES.values())


def describe_rule(asked: str, rule: Rule) -> str:
    """The rule asked for and, where it found no ground, the one in force."""
    return asked if asked == rule.name else f"{asked} → {rule.name}"


def decide(
    probs: FloatArray, scores: FloatArray, rule: Rule, classes: tuple[str, ...]
) -> list[str]:
    """A label an image: the most likely known class, or `unknown` where the rule rejects."""
    best = probs.argmax(1)
    rejected = rule.is_unknown(scores)
    return [UNKNOWN if r else classes[k] for k, r in zip(best, rejected, strict=True)]
