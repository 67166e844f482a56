"""A result: what one run of a benchmark was, and how it scored at the last step.

A folder of results has a folder a run under `runs/`; in it, beside the files of any run
(`unida.training.run_folder`), lie `result.json` and `scores.npz`. Results can also be kept as
lines of one `.jsonl` file, which is how they are committed.
"""

import dataclasses
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from unida.errors import UserError
from unida.training.run_folder import write_text

FORMAT = 1
"""Of result.json; a file of another format is refused."""
OFF: dict[str, Any] = {"holdout": 0.0, "members": 1}
"""Options that are named only where they are in use: runs and results from before they were there
are the same."""
UNSAID = (
    ("san", "by_mass", False),
    ("san", "anchors", False),
    ("san", "nearest_by", "z"),
    ("ovanet", "anchors", False),
)
"""Method, name and value of settings that came or went when every run had that value: results are
read without them, so that older and newer ones stand in one row."""


@dataclass(frozen=True)
class RuleResult:
    """How a run scored under one reject rule.

    Attributes:
        in_force: the rule that decided, `own` where the one asked for found no ground.
        threshold: scores from here on are unknown.
        note: what the fit found, in words.
        scores: by name, as fractions: the fields of `unida.evaluation.metrics.Score` and `h3`;
        None where
            undefined.
        confusion: rows are true classes (the shared ones, then unknown), columns predictions (all
            known classes, then unknown); counts.
    """

    in_force: str
    threshold: float
    note: str
    scores: dict[str, float | None]
    confusion: list[list[int]]


@dataclass(frozen=True)
class Result:
    """One finished run.

    Attributes:
        data: name of the protocol.
        setting: unda, oda, pda, closed or one of the protocol's own.
        source: name of the source domain.
        target: name of the target domain.
        entry: the row it belongs to, such as `san` or `san-no-scl` (`unida.bench.entries`).
        method: the method of that row.
        seed: of everything random in the run.
        label_noise: share of source labels that were made wrong.
        unknown_classes: target-private classes that were in the target.
        known_classes: names of the source's classes, in order.
        shared_classes: those of them that are in the target.
        images: numbers of images: source, target, unknown (in the target).
        options: fields of `RunConfig` but for paths: steps, batch, backbone, …
        settings: all settings of the method.
        rules: by the name of the reject rule asked for.
        ranking: threshold-free numbers: auroc, oscr, nmi, closed (accuracy of the most likely
            class on known images).
        oracle: found with target labels, for reference only, and only if asked for: `h` at the
            best step and that `step`, by rule.
        seconds: of training.
        parameters: numbers in the model, the backbone's among them.
        made_with: versions, commit, device, weights.
    """

    data: str
    setting: str
    source: str
    target: str
    entry: str
    method: str
    seed: int
    label_noise: float
    unknown_classes: int
    known_classes: list[str]
    shared_classes: list[str]
    images: dict[str, int]
    options: dict[str, Any]
    settings: dict[str, Any]
    rules: dict[str, RuleResult]
    ranking: dict[str, float | None]
    seconds: float
    parameters: int
    made_with: dict[str, str]
    oracle: dict[str, dict[str, float]] = field(default_factory=dict)

    @property
    def task(self) -> str:
        return f"{self.source} → {self.target}"


def without_off(options: dict[str, Any]) -> dict[str, Any]:
    """The options but for those in `OFF` that are not in use."""
    return {name: value for name, value in options.items() if name not in OFF or OFF[name] != value}


def to_json(result: Result) -> str:
    """One line."""
    return json.dumps({"format": FORMAT} | dataclasses.asdict(result))


def from_json(text: str, where: str) -> Result:
    """Reads what `to_json` wrote; anything else is refused in one sentence."""
    try:
        values = dict(json.loads(text))
        if (found := values.pop("format")) != FORMAT:
            raise UserError(
                f"{where} is a result of format {found}; this version reads format {FORMAT}: "
                "run the bench again, or use the version of unida that wrote it."
            )
        rules = {k: RuleResult(**v) for k, v in values.pop("rules").items()}
        method, settings = values["method"], values.pop("settings").items()
        settings = {k: v for k, v in settings if (method, k, v) not in UNSAID}
        return Result(rules=rules, settings=settings, **values)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{where} is not a result of unida bench ({error!r}).") from None


def read_results(place: str | Path) -> list[Result]:
    """All results of a folder or of one `.jsonl` file, in a fixed order.

    A folder without runs, as it is committed, has them in `results.jsonl`.
    """
    place = Path(place)
    files = [place]
    if place.is_dir():
        files = sorted(place.glob("runs/*/result.json")) or [place / "results.jsonl"]
        files = [file for file in files if file.exists()]
    results = [result for file in files for result in _read_lines(file)]
    if not results:
        raise UserError(f"{place} holds no result: run `unida bench` into it first.")
    return sorted(results, key=lambda r: (r.data, r.setting, r.entry, r.source, r.target, r.seed))


def gather(place: Path) -> None:
    """Writes all results of a folder's runs into its `results.jsonl`."""
    lines = [to_json(result) + "\n" for result in read_results(place)]
    write_text(place / "results.jsonl", "".join(lines))


def _read_lines(file: Path) -> Iterable[Result]:
    try:
        lines = file.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{file} cannot be read ({error!r}).") from None
    for number, line in enumerate(lines, 1):
        if line.strip():
            yield from_json(line, f"{file}, line {number}" if len(lines) > 1 else str(file))
