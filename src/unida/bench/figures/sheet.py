"""A figure without its drawing: title, caption, and the rows it shows, which are its CSV."""

import dataclasses
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from unida.bench.results import Result, RuleResult, Run
from unida.errors import require, shorten
from unida.methods import METHODS

LAST_STEP = "last step"

T = TypeVar("T")


@dataclass(frozen=True)
class FigureData(Generic[T]):
    """What a figure shows.

    Attributes:
        title: a line above it.
        caption: a line below it: the runs it was made from.
        rows: what is drawn, and the CSV.
        axis: meaning of `Point.at`; empty where it has none.
        notes: what was left out, for the user.
    """

    title: str
    caption: str
    rows: list[T]
    axis: str = ""
    notes: tuple[str, ...] = ()

    def columns(self) -> dict[str, str]:
        """Return the fields of the rows and their names in the CSV."""
        names = [field.name for field in dataclasses.fields(self.rows[0])]  # type: ignore[arg-type]
        return {
            name: self.axis if name == "at" else name for name in names if name != "at" or self.axis
        }


def under(result: Result, rule: str) -> RuleResult:
    """Return the scores under a rule; an unknown rule is an error."""
    require(rule in result.rules, "rule", rule, shorten(list(result.rules)))
    return result.rules[rule]


def mean_std(values: list[float]) -> tuple[float, float | None]:
    """Return mean and sample deviation; None for the deviation of a single value."""
    mean = math.fsum(values) / len(values)
    if len(values) == 1:
        return mean, None
    return mean, math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (len(values) - 1))


def caption(runs: list[Run], *parts: str) -> str:
    """Describe the runs of a figure: data, setting, tasks and steps, followed by `parts`."""
    first = runs[0].result
    tasks = sorted({run.result.task for run in runs})
    mean = shorten(tasks, 3) if len(tasks) < 4 else f"{len(tasks)} tasks"
    texts = [first.data, first.setting, mean]
    if len({run.result.unknown_classes for run in runs}) == 1:
        texts.append(f"{first.unknown_classes} unknown classes")
    if len({run.result.label_noise for run in runs}) == 1 and first.label_noise:
        texts.append(f"{100 * first.label_noise:g} % of source labels wrong")
    texts.append(f"{first.options.get('backbone')}, {first.options.get('steps')} steps")
    rebuilt = {n for n, method in METHODS.items() if method.about.spec == "reconstruction"}
    shown = sorted({run.result.method for run in runs} & rebuilt)
    marks = [f"reconstructed from their papers: {shorten(shown)}"] if shown else []
    return " · ".join([*texts, *parts, *marks])


def seeds_in_words(counts: Iterable[int]) -> str:
    """Describe the numbers of seeds of the points, and so what the spread is."""
    found = sorted(set(counts))
    if found == [1]:
        return "1 seed, so no spread"
    low, high = found[0], found[-1]
    number = str(low) if low == high else f"{low}–{high}"
    return f"{number} seeds, mean ± standard deviation"


def rule_in_words(runs: list[Run], rule: str) -> str:
    """Return the requested rule and how often its fallback was applied."""
    fell = sum(run.result.rules[rule].in_force != rule for run in runs)
    more = f", which fell back to own in {fell} of {len(runs)} runs" if fell else ""
    return f"reject rule {rule}{more}"
