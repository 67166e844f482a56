"""The prose of the page."""

import shlex

from unida.config import RunConfig, to_arguments
from unida.report.data import ReportData
from unida.types import UNKNOWN


def summary(data: ReportData) -> list[str]:
    """Describe the result of the run."""
    n, n_classes, rule = len(data.predictions), len(data.classes), data.rule
    unknown, found = int(data.counts[-1]), int((data.counts[:-1] > 0).sum())
    lines = [
        f"The method {data.model['method']} was trained on {count(n_classes, 'class')} of the "
        f"source and applied to {count(n, 'target image')}.",
        f"It predicted {found} of the classes for {count(n - unknown, 'image')} "
        f"({share(n - unknown, n)}) and called {unknown} ({share(unknown, n)}) {UNKNOWN}.",
        f"Images were rejected by the rule '{rule['name']}': {rule['note']}.",
    ]
    return lines + ([_categories(data)] if data.category_summary is not None else [])


def _categories(data: ReportData) -> str:
    assert data.category_summary is not None
    interval = data.category_summary.get("count") or {}
    found = len(data.category_summary.get("categories") or ())
    verb = "was" if found == 1 else "were"
    text = f"Among the unknown images {count(found, 'category')} {verb} found"
    low, high = interval.get("low"), interval.get("high")
    if low is not None and high is not None and low != high:
        text += f" (between {low} and {high} are likely)"
    return f"{text}, with {count(len(data.categories), 'image')} in all; they can be named below."


def sampled(shown: int, n: int) -> str | None:
    """Say that not all target images are shown, where that is so."""
    if shown == n:
        return None
    return (
        f"{shown:,} of {n:,} target images are shown: the most and the least doubtful of each "
        "class, and a random sample of the others. All counts are of all images."
    )


def unreadable(missing: int, n: int) -> str | None:
    """Say that images could not be read, where that is so."""
    if not missing:
        return None
    return (
        f"{missing:,} of {n:,} images could not be read when this page was written and are grey: "
        "the files were moved, changed or deleted."
    )


def no_pictures(n: int) -> str:
    """Say that a run on embeddings is shown without images."""
    return (
        f"This run learned from embeddings, and none of the {n:,} paths shown is an image that can "
        "be read here: the page has no thumbnails."
    )


def command(config: RunConfig) -> str:
    """Return the shell command that makes the run again."""
    return shlex.join(["unida", "adapt", *to_arguments(config)])


def count(n: int, name: str) -> str:
    """Return a number with its noun."""
    plural = name[:-1] + "ies" if name.endswith("y") else name + ("es" if name[-1] == "s" else "s")
    return f"{n:,} {name if n == 1 else plural}"


def share(part: int, whole: int) -> str:
    return f"{part / whole:.0%}" if whole else "none"
