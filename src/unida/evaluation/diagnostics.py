"""How good a run seems without labels of the target, and what looks wrong, in plain words.

Nothing here is proof. The estimates are those settings are chosen by
(`unida.evaluation.selection`); a warning names what looks wrong and what to do about it. Both are
written to `quality.json`.
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
from unida.evaluation.evaluate import defined, score_rule
from unida.evaluation.metrics import recalls
from unida.evaluation.selection import CRITERIA, SelectionData
from unida.types import FloatArray, IntArray, Scored

FEW_OF_CLASS, FEW_SOURCE, FEW_TARGET = 5, 50, 50
UNBALANCED = 20
TWINS = 0.1
ALL_REJECTED, NONE_REJECTED = 0.98, 0.005
SWALLOWED, TIMES_ITS_SHARE = 0.6, 3
GROWN = 3


@dataclass(frozen=True)
class Diagnostic:
    """Something that looks wrong.

    Attributes:
        what: one sentence.
        advice: what to do about it, one sentence or two.
    """

    what: str
    advice: str


@dataclass(frozen=True)
class Data:
    """What is known before training.

    Attributes:
        classes: the known classes.
        counts: source images of each.
        n_target: images of the target.
        twins: share of the target's files that are in the source too.
    """

    classes: tuple[str, ...]
    counts: IntArray
    n_target: int
    twins: float


@dataclass(frozen=True)
class Outcome:
    """What is known after training.

    Attributes:
        classes: the known classes.
        counts: source images of each.
        verdicts: on the target: number of a class, or the number of classes for unknown.
        losses: of training, in order of the steps.
        accuracy: mean recall over the classes on source images, held-out ones if there are some.
    """

    classes: tuple[str, ...]
    counts: IntArray
    verdicts: IntArray
    losses: FloatArray
    accuracy: float

    @property
    def unknown(self) -> float:
        """Share of the target that is rejected."""
        return float((self.verdicts == len(self.classes)).mean())

    @property
    def largest(self) -> tuple[int, float]:
        """The class most accepted images are given to, and the share of them."""
        counts = np.bincount(self.verdicts, minlength=len(self.classes))[: len(self.classes)]
        most = int(counts.argmax())
        return most, float(counts[most] / counts.sum()) if counts.any() else 0.0


# What may be wrong with the images.


def source_too_small(data: Data) -> Diagnostic | None:
    few = [name for name, n in zip(data.classes, data.counts, strict=True) if n < FEW_OF_CLASS]
    total = int(data.counts.sum())
    if not few and total >= FEW_SOURCE:
        return None
    where = f", and fewer than {FEW_OF_CLASS} of {shorten(few)}" if few else ""
    return Diagnostic(
        f"The source is small: {total} images in all{where}.",
        "Add labelled images: so few do not show what a class looks like. Without them, a "
        "pretrained backbone with --frozen asks for least.",
    )


def source_unbalanced(data: Data) -> Diagnostic | None:
    most, least = int(data.counts.argmax()), int(data.counts.argmin())
    if data.counts[most] <= UNBALANCED * data.counts[least]:
        return None
    return Diagnostic(
        f"The classes are very unequal: {data.counts[most]} images of {data.classes[most]}, "
        f"{data.counts[least]} of {data.classes[least]}.",
        "Training shows every class equally often, so the few images of a rare class are shown "
        "again and again: add images of it if you can.",
    )


def target_too_small(data: Data) -> Diagnostic | None:
    if data.n_target >= FEW_TARGET:
        return None
    return Diagnostic(
        f"The target is small: {data.n_target} images.",
        "Adaptation and the reject rule 'mixture' learn from the target's images: add more of the "
        "same kind, labels are not needed, or take --reject own.",
    )


def same_files(data: Data) -> Diagnostic | None:
    if data.twins < TWINS:
        return None
    return Diagnostic(
        f"About {data.twins:.0%} of the target's files are in the source too, byte by byte.",
        "Look whether the right folders were given: there is nothing to adapt to where both are "
        "the same, and numbers on such a target say little.",
    )


# What may be wrong with the outcome.


def everything_rejected(outcome: Outcome) -> Diagnostic | None:
    if outcome.unknown < ALL_REJECTED:
        return None
    return Diagnostic(
        f"Nearly every target image was called unknown ({outcome.unknown:.1%}).",
        "Look at some of them. If they are of known classes, take another rule, which needs no "
        "training: unida predict RUN IMAGES --reject own, or threshold:VALUE with a larger value "
        "than the one in force. If that does not help, the target may look too different: more "
        "source images that look like it would help.",
    )


def nothing_rejected(outcome: Outcome) -> Diagnostic | None:
    if outcome.unknown > NONE_REJECTED:
        return None
    return Diagnostic(
        f"Hardly any target image was called unknown ({outcome.unknown:.1%}).",
        "That is right if the target has no unknown classes. If it has some, take another rule, "
        "which needs no training: unida predict RUN IMAGES --reject threshold:VALUE, with a "
        "smaller value than the one in force (predictions.csv has every unknown score).",
    )


def one_class_dominates(outcome: Outcome) -> Diagnostic | None:
    most, share = outcome.largest
    usual = outcome.counts[most] / outcome.counts.sum()
    if share <= SWALLOWED or share < TIMES_ITS_SHARE * usual:
        return None
    return Diagnostic(
        f"{share:.0%} of the accepted target images were given to one class, "
        f"{outcome.classes[most]}, which is {usual:.0%} of the source.",
        "Look at some of them. If they are of other classes, training has collapsed: take fewer "
        "--steps, a smaller --lr or another --method. If most other images were called unknown, "
        "try another rule, which needs no training: unida predict RUN IMAGES --reject own.",
    )


def training_grew(outcome: Outcome) -> Diagnostic | None:
    """Say that the loss grew; one that is not finite stops training at once."""
    losses = outcome.losses
    quarter = max(1, len(losses) // 4)
    first, last = float(np.median(losses[:quarter])), float(np.median(losses[-quarter:]))
    if len(losses) < 4 or not 0 < GROWN * first < last:
        return None
    return Diagnostic(
        f"Training diverged: the loss grew from {first:.3g} to {last:.3g}.",
        "Take a smaller --lr, a tenth of it for a start; metrics.jsonl shows which loss grew.",
    )


def nothing_learned(outcome: Outcome) -> Diagnostic | None:
    chance = 1 / len(outcome.classes)
    if not outcome.accuracy < chance + 0.2 * (1 - chance):
        return None
    return Diagnostic(
        f"The model hardly tells the source classes apart: it is right on {outcome.accuracy:.0%} "
        f"of the source images, and guessing would be right on {chance:.0%}.",
        "Look whether the labels are right; then take more --steps, another --lr or a pretrained "
        "--backbone.",
    )


OF_DATA: tuple[Callable[[Data], Diagnostic | None], ...] = (
    source_too_small,
    source_unbalanced,
    target_too_small,
    same_files,
)
OF_OUTCOME: tuple[Callable[[Outcome], Diagnostic | None], ...] = (
    nothing_learned,
    training_grew,
    everything_rejected,
    nothing_rejected,
    one_class_dominates,
)


def diagnose(facts: Data | Outcome) -> list[Diagnostic]:
    """Everything that looks wrong in what is known."""
    if isinstance(facts, Data):
        found = [check(facts) for check in OF_DATA]
    else:
        found = [check(facts) for check in OF_OUTCOME]
    return [concern for concern in found if concern]


# Estimates.

ABOUT = {
    "source_accuracy": "share of source images whose class is right, nothing rejected",
    "source_validation": "the same of held-out ones under the run's rule, unknown counted as wrong",
    "unknown": "share of the target called unknown",
    "largest_class": "share of the accepted target images that the commonest class has",
} | {name: criterion.about for name, criterion in CRITERIA.items() if criterion.images == "target"}
"""What the estimates are; of the shares, no value is good or bad by itself."""


@dataclass(frozen=True)
class Diagnostics:
    """What `quality.json` holds; an estimate that is not defined is NaN."""

    estimates: dict[str, float]
    warnings: list[Diagnostic]

    def to_json(self) -> str:
        content = {
            "estimates": defined(self.estimates),
            "about": {name: ABOUT[name] for name in self.estimates},
            "warnings": [dataclasses.asdict(concern) for concern in self.warnings],
        }
        return json.dumps(content, indent=2) + "\n"


def count_images(samples: Samples) -> IntArray:
    """Images of each class."""
    assert samples.labels is not None
    return np.bincount(samples.labels, minlength=len(samples.classes))


def mean_recall(scored: Scored, labels: IntArray) -> float:
    """Over the classes, of the most likely class; NaN of no image."""
    found = recalls(labels, scored.probs.argmax(1)).values()
    return float(np.mean(list(found))) if found else math.nan


def estimate(
    scored: Scored, rule: Rule, outcome: Outcome, held_out: tuple[Scored, IntArray]
) -> dict[str, float]:
    """The estimates by name.

    Args:
        scored: what the model says of the target.
        rule: of the run.
        outcome: of the run.
        held_out: what the model says of held-out source images, and their classes; maybe of none.
    """
    of_source = {"source_accuracy": outcome.accuracy}
    if len(held_out[1]):
        of_source["source_validation"] = score_rule(held_out[0], rule, held_out[1]).known
    of_target = {
        name: criterion.value(SelectionData(scored, rule))
        for name, criterion in CRITERIA.items()
        if criterion.images == "target"
    }
    shares = {"unknown": outcome.unknown, "largest_class": outcome.largest[1]}
    return of_source | shares | of_target


def describe(estimates: dict[str, float], outcome: Outcome) -> str:
    """The estimates on one line."""
    most, share = outcome.largest
    shares = (
        f"{estimates['source_accuracy']:.0%} of source images right, {outcome.unknown:.0%} of the "
        f"target unknown, {share:.0%} of the rest {outcome.classes[most]}"
    )
    others = (f"{name} {estimates[name]:.3g}" for name in estimates if name in CRITERIA)
    return f"{shares}; {', '.join(others)} (quality.json says what these are)"
