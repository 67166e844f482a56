"""The run in sentences."""

import shlex
from typing import Any

import numpy as np

from unida.config import RunConfig, to_arguments
from unida.report.run_reader import PredictionTable, StoredCategories
from unida.types import UNKNOWN

HARD_TO_SAY = 0.75
"""Doubt from which a verdict is called doubtful."""


def summary(
    config: RunConfig,
    said: dict[str, Any],
    verdicts: PredictionTable,
    found: StoredCategories | None,
) -> list[str]:
    """What came out, for somebody who was not there."""
    n, classes = len(verdicts), said["classes"]
    unknown = int((verdicts.labels == len(classes)).sum())
    seen = len(np.unique(verdicts.labels[verdicts.labels < len(classes)]))
    rule = said["rules"][said["reject"]]
    sentences = [
        f"The method {said['method']} learned {count(len(classes), 'class')} from the source and "
        f"looked at {count(n, 'target image')}.",
        f"It put {count(n - unknown, 'image')} ({share(n - unknown, n)}) into {seen} of them and "
        f"called {unknown} ({share(unknown, n)}) {UNKNOWN}.",
        f"What is unknown was decided by the rule '{rule['name']}': {rule['note']}.",
    ]
    return sentences + ([categories(found)] if found else [])


def categories(found: StoredCategories) -> str:
    """How many groups there seem to be among the unknown images."""
    guess = found.summary.get("count") or {}
    groups, images = len(found.summary.get("categories") or ()), len(found.category)
    text = f"Among the unknown images {count(groups, 'category')} stand out"
    if guess.get("low") is not None and guess.get("high") is not None:
        text += f" (between {guess['low']} and {guess['high']} are likely)"
    return f"{text}, with {count(images, 'image')} in all; they can be named below."


def shown(n_shown: int, n: int) -> str | None:
    """Where not all target images are in the page, a sentence that says so."""
    if n_shown == n:
        return None
    return (
        f"{n_shown:,} of {n:,} target images are shown: the most doubtful and the surest of each "
        "class, and a random sample of the others. All counts are of all images."
    )


def gone(missing: int, n: int) -> str | None:
    """Where images cannot be read any more, a sentence that says so."""
    if not missing:
        return None
    return (
        f"{missing:,} of {n:,} pictures could not be read when this page was written and are grey: "
        "the files were moved, changed or deleted."
    )


def command(config: RunConfig) -> str:
    """What makes this run again, for a shell."""
    return shlex.join(["unida", "adapt", *to_arguments(config)])


def count(n: int, name: str) -> str:
    """A number with its noun."""
    plural = name[:-1] + "ies" if name.endswith("y") else name + ("es" if name[-1] == "s" else "s")
    return f"{n:,} {name if n == 1 else plural}"


def share(part: int, whole: int) -> str:
    return f"{part / whole:.0%}" if whole else "none"
