"""Label-free estimates of how good a run is, and warnings about what looks wrong with it.

Nothing here is proof. The estimates are the criteria that settings are selected by
(`unida.evaluation.selection`); a warning names a problem and what to do about it. Both are written
to `diagnostics.json`. To add a warning, write one function with `@data_check` or `@run_check`.
"""

import dataclasses
import json
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from unida.data.samples import Samples
from unida.decision.rejection import Rule
from unida.errors import shorten
from unida.evaluation.evaluate import defined, predicted_labels, score_rule
from unida.evaluation.metrics import recalls
from unida.evaluation.selection import CRITERIA, SelectionData
from unida.model import Model
from unida.types import FloatArray, IntArray, Scored
from unida.utils.json_text import finite
from unida.utils.logs import logger

SMALL_CLASS, SMALL_SOURCE, SMALL_TARGET = 5, 50, 50
"""Numbers of images below which a class, the source or the target is called small."""
MAX_IMBALANCE = 20
MAX_DUPLICATE_SHARE = 0.1
MAX_UNKNOWN_SHARE, MIN_UNKNOWN_SHARE = 0.98, 0.005
MAX_CLASS_SHARE, MAX_SHARE_RATIO = 0.6, 3
MAX_SCORE_SHIFT = 0.1
"""Kolmogorov-Smirnov distance of unknown scores from those a rule was fitted to."""
DIVERGENCE_RATIO = 3

Labelled = tuple[Scored, IntArray]
"""Outputs for labelled images, and their classes."""


@dataclass(frozen=True)
class Diagnostic:
    """A warning.

    Attributes:
        what: what looks wrong, in one sentence.
        advice: what to do about it, in one or two sentences.
    """

    what: str
    advice: str

    def __str__(self) -> str:
        return f"{self.what} {self.advice}"


@dataclass(frozen=True)
class DataFacts:
    """The facts about the images before training.

    Attributes:
        classes: the known classes.
        counts: source images of each; all 0 where a model stands for the source.
        n_target: number of target images.
        duplicates: share of the target's files that are in the source too.
    """

    classes: tuple[str, ...]
    counts: IntArray
    n_target: int
    duplicates: float


@dataclass(frozen=True)
class RunFacts:
    """The facts about a trained run.

    Attributes:
        classes: the known classes.
        counts: source images of each; all 0 where a model stands for the source.
        labels: predicted labels of the target; the number of classes stands for unknown.
        losses: of training, in order of the steps.
        accuracy: mean recall over the classes on source images, held-out ones if there are some.
        rule: the reject rule in force.
    """

    classes: tuple[str, ...]
    counts: IntArray
    labels: IntArray
    losses: FloatArray
    accuracy: float
    rule: Rule

    @property
    def unknown(self) -> float:
        """Share of the target that is rejected."""
        return float((self.labels == len(self.classes)).mean())

    @property
    def largest_class(self) -> tuple[int, float]:
        """The most frequent predicted class, and its share of the accepted images."""
        counts = np.bincount(self.labels, minlength=len(self.classes))[: len(self.classes)]
        largest = int(counts.argmax())
        return largest, float(counts[largest] / counts.sum()) if counts.any() else 0.0


_DataCheck = Callable[[DataFacts], Diagnostic | None]
_RunCheck = Callable[[RunFacts], Diagnostic | None]
DATA_CHECKS: list[_DataCheck] = []
RUN_CHECKS: list[_RunCheck] = []


def data_check(check: _DataCheck) -> _DataCheck:
    """Register a check of the images."""
    DATA_CHECKS.append(check)
    return check


def run_check(check: _RunCheck) -> _RunCheck:
    """Register a check of a trained run."""
    RUN_CHECKS.append(check)
    return check


def check_data(facts: DataFacts) -> list[Diagnostic]:
    """Return the warnings about the images."""
    return [warning for check in DATA_CHECKS if (warning := check(facts))]


def check_run(facts: RunFacts) -> list[Diagnostic]:
    """Return the warnings about a trained run."""
    return [warning for check in RUN_CHECKS if (warning := check(facts))]


@data_check
def small_source(facts: DataFacts) -> Diagnostic | None:
    counts = zip(facts.classes, facts.counts, strict=True)
    small = [name for name, n in counts if n < SMALL_CLASS]
    total = int(facts.counts.sum())
    if (not small and total >= SMALL_SOURCE) or not total:
        return None
    where = f", and fewer than {SMALL_CLASS} of {shorten(small)}" if small else ""
    return Diagnostic(
        f"The source is small: {total} images in all{where}.",
        "Add labelled images: so few do not show what a class looks like. Without them, a "
        "pretrained backbone with --frozen needs the fewest.",
    )


@data_check
def unbalanced_source(facts: DataFacts) -> Diagnostic | None:
    most, least = int(facts.counts.argmax()), int(facts.counts.argmin())
    if facts.counts[most] <= MAX_IMBALANCE * facts.counts[least]:
        return None
    return Diagnostic(
        f"The classes are very unequal: {facts.counts[most]} images of {facts.classes[most]}, "
        f"{facts.counts[least]} of {facts.classes[least]}.",
        "Batches are class-balanced, so the few images of a rare class are repeated often: add "
        "images of it if you can.",
    )


@data_check
def small_target(facts: DataFacts) -> Diagnostic | None:
    if facts.n_target >= SMALL_TARGET:
        return None
    return Diagnostic(
        f"The target is small: {facts.n_target} images.",
        "Adaptation and the reject rule learn from the target's images: add more of the same kind, "
        "labels are not needed.",
    )


@data_check
def duplicate_files(facts: DataFacts) -> Diagnostic | None:
    if facts.duplicates < MAX_DUPLICATE_SHARE:
        return None
    return Diagnostic(
        f"About {facts.duplicates:.0%} of the target's files are in the source too, byte by byte.",
        "Check that the right folders were given: where both are the same there is nothing to "
        "adapt to, and scores on such a target mean little.",
    )


@run_check
def low_source_accuracy(facts: RunFacts) -> Diagnostic | None:
    chance = 1 / len(facts.classes)
    if not facts.accuracy < chance + 0.2 * (1 - chance):
        return None
    return Diagnostic(
        f"The model hardly separates the source classes: it is right on {facts.accuracy:.0%} of "
        f"the source images, and guessing would be right on {chance:.0%}.",
        "Check that the labels are right; then take more --steps, another --lr or a pretrained "
        "--backbone.",
    )


@run_check
def diverging_loss(facts: RunFacts) -> Diagnostic | None:
    """Warn of a loss that grew; one that is not finite stops training at once."""
    quarter = max(1, len(facts.losses) // 4)
    first, last = (
        float(np.median(part)) for part in (facts.losses[:quarter], facts.losses[-quarter:])
    )
    if len(facts.losses) < 4 or not 0 < DIVERGENCE_RATIO * first < last:
        return None
    return Diagnostic(
        f"Training diverged: the loss grew from {first:.3g} to {last:.3g}.",
        "Take a smaller --lr, a tenth of it to begin with; metrics.jsonl shows which loss grew.",
    )


@run_check
def nearly_all_unknown(facts: RunFacts) -> Diagnostic | None:
    if facts.unknown < MAX_UNKNOWN_SHARE:
        return None
    return Diagnostic(
        f"Nearly every target image was called unknown ({facts.unknown:.1%}).",
        "If you know that some are of source classes, label them by another rule, without "
        f"training: {_other_rules(facts.rule, 'mixture', 'none')}; if its labels are poor and the "
        "images are no photographs, train again without --frozen, since features made for "
        "photographs may not tell them apart.",
    )


@run_check
def hardly_any_unknown(facts: RunFacts) -> Diagnostic | None:
    if facts.unknown > MIN_UNKNOWN_SHARE:
        return None
    return Diagnostic(
        f"Hardly any target image was called unknown ({facts.unknown:.1%}).",
        "That is right if the target has no unknown classes. If it has some, take another rule, "
        f"which needs no training: {_other_rules(facts.rule, 'own', 'mixture')}, or "
        "threshold:VALUE (predictions.csv has every unknown score).",
    )


@run_check
def dominant_class(facts: RunFacts) -> Diagnostic | None:
    largest, share = facts.largest_class
    has_source = facts.counts.any()
    usual = facts.counts[largest] / facts.counts.sum() if has_source else 1 / len(facts.classes)
    if share <= MAX_CLASS_SHARE or share < MAX_SHARE_RATIO * usual:
        return None
    of_source = f", which is {usual:.0%} of the source" if has_source else ""
    return Diagnostic(
        f"{share:.0%} of the accepted target images were given to one class, "
        f"{facts.classes[largest]}{of_source}.",
        "Check some of them. If they are of other classes, training has collapsed: take fewer "
        "--steps, a smaller --lr or another --method. If most other images were called unknown, "
        f"try another rule, which needs no training: {_other_rules(facts.rule, 'own', 'none')}.",
    )


@run_check
def rule_not_fitted(facts: RunFacts) -> Diagnostic | None:
    if not facts.rule.fell_back:
        return None
    in_force = " The method's own rule is in force." if facts.rule.name == "own" else ""
    return Diagnostic(
        f"The reject rule could not be fitted to the target: {facts.rule.fell_back}.{in_force}",
        "Check the images that were called unknown. If hardly any is, or should be, take another "
        f"rule, which needs no training: {_other_rules(facts.rule, 'none', 'mixture')}.",
    )


def warn_of_shift(model: Model, scores: FloatArray, rule: Rule) -> None:
    """Log a warning where unknown scores are unlike those that a rule was fitted to."""
    shift = model.score_shift(scores)
    if shift is not None and shift > MAX_SCORE_SHIFT and rule.name in ("share", "mixture"):
        logger.warning(
            "The unknown scores of these images are unlike those that the rule %r was fitted to "
            "(distance %.2f): another share of them may be unknown, or they look different. "
            "--refit-rule fits the rule to them, without training.",
            *(rule.name, shift),
        )


def _other_rules(rule: Rule, *names: str) -> str:
    """Name rules other than the one in force, for an advice."""
    others = " or ".join(f"--reject {name}" for name in names if name != rule.name)
    return f"unida predict RUN IMAGES {others}"


TARGET_CRITERIA = {name: c for name, c in CRITERIA.items() if c.images == "target"}
ABOUT = {
    "source_accuracy": "share of source images whose class is right, nothing rejected",
    "source_validation": "the same of held-out ones under the run's rule, unknown counted as wrong",
    "unknown": "share of the target called unknown",
    "largest_class": "share of the accepted target images in the most frequent class",
} | {name: criterion.about for name, criterion in TARGET_CRITERIA.items()}
"""What the estimates are; of the shares, no value is good or bad by itself."""


@dataclass(frozen=True)
class Diagnostics:
    """The content of `diagnostics.json`.

    Attributes:
        estimates: by the names of `ABOUT`, those of the source only where there are source images;
            NaN where undefined.
        warnings: about the run.
        largest_class: name of the most frequent predicted class.
    """

    estimates: dict[str, float]
    warnings: list[Diagnostic]
    largest_class: str

    def to_json(self) -> str:
        content = {
            "estimates": defined(self.estimates),
            "about": {name: ABOUT[name] for name in self.estimates},
            "warnings": [dataclasses.asdict(warning) for warning in self.warnings],
        }
        return json.dumps(finite(content), indent=2, allow_nan=False) + "\n"

    def __str__(self) -> str:
        """Return the estimates in one line."""
        accuracy = self.estimates.get("source_accuracy")
        of_source = "" if accuracy is None else f"{accuracy:.0%} of source images right, "
        shares = (
            f"{of_source}{self.estimates['unknown']:.0%} of the target unknown, "
            f"{self.estimates['largest_class']:.0%} of the rest {self.largest_class}"
        )
        criteria = (f"{name} {self.estimates[name]:.3g}" for name in TARGET_CRITERIA)
        return f"{shares}; {', '.join(criteria)} (diagnostics.json describes them)"


def diagnose(
    classes: tuple[str, ...],
    counts: IntArray,
    rule: Rule,
    target: Scored,
    source: Labelled,
    held_out: Labelled,
    losses: FloatArray,
) -> Diagnostics:
    """Estimate without target labels how good a run is, and check it.

    Args:
        classes: the known classes.
        counts: source images of each.
        rule: the reject rule of the run.
        target: outputs for the target.
        source: outputs for source images that were trained on, and their classes; maybe of none.
        held_out: outputs for held-out source images, and their classes; maybe of none.
        losses: of training, in order of the steps.
    """
    has_held_out = len(held_out[1]) > 0
    facts = RunFacts(
        classes=classes,
        counts=counts,
        labels=predicted_labels(target, rule),
        losses=losses,
        accuracy=mean_recall(*(held_out if has_held_out else source)),
        rule=rule,
    )
    largest, share = facts.largest_class
    estimates = {"source_accuracy": facts.accuracy} if has_held_out or len(source[1]) else {}
    if has_held_out:
        estimates["source_validation"] = score_rule(held_out[0], rule, held_out[1]).known
    estimates |= {"unknown": facts.unknown, "largest_class": share}
    for name, criterion in TARGET_CRITERIA.items():
        estimates[name] = criterion.value(SelectionData(target, rule))
    return Diagnostics(estimates, check_run(facts), classes[largest])


def images_per_class(samples: Samples) -> IntArray:
    """Return the number of images of each class."""
    assert samples.labels is not None
    return np.bincount(samples.labels, minlength=len(samples.classes))


def mean_recall(scored: Scored, labels: IntArray) -> float:
    """Return the mean recall of the most likely class over the classes; NaN without images."""
    values = recalls(labels, scored.probs.argmax(1)).values()
    return float(np.mean(list(values))) if values else math.nan
