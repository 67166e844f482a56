"""A result: what one run of a benchmark was, and how it scored at the last step.

A trained run has a result for the method alone and, where its predictions were refined
(`unida.decision`), a second one. They are lines of one JSON Lines file: `result.jsonl` in the run's
folder under `runs/`, and `results.jsonl.gz`, compressed and with one confusion matrix per result,
for all runs. The latter is what is committed.
"""

import dataclasses
import gzip
import io
import json
import math
import reprlib
import sys
import types
import typing
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from unida.errors import UserError
from unida.training.run_folder import write_file, write_text
from unida.utils.files import read_file

FORMAT = 2
"""Of a line; lines of format 1 are migrated as they are read, others are refused."""
RESULT = "result.jsonl"
"""File of a finished run's results."""
RESULTS = "results.jsonl.gz"
"""File of all results of a folder."""
PLAIN_RESULTS = "results.jsonl"
"""The same before version 0.2, not compressed; still read."""
GZIP = b"\x1f\x8b"
"""The first bytes of a compressed file."""
MAX_TEXT = 2**29
"""Bytes of results, decompressed."""
ALONE = "none"
"""`refine` of a method alone."""
REFINED = "prototypes,knn"
"""`refine` of the full refinement, whose rows are named `+ refinement`."""
SETTINGS = ("closed", "pda", "oda", "unda")
"""The four settings of universal domain adaptation."""
FEW_UNKNOWN = (1, 2, 5)
"""Numbers of unknown classes with which `oda` is run too, where it has more."""
OFF: dict[str, Any] = {"holdout": 0.0, "ensemble": 1, "schedule": "inverse_decay"}
"""Options that are recorded only where they are in use, so that results from before they were
introduced stand in one row with later ones."""


@dataclass(frozen=True)
class RuleResult:
    """How a run scored under one reject rule.

    Attributes:
        in_force: the rule that was applied: `own` where the requested one could not be fitted.
        threshold: scores from here on are unknown; infinity where nothing is rejected.
        note: summary of the fit.
        scores: by name, as fractions: the fields of `unida.evaluation.metrics.Score` and `h3`;
            None where undefined.
        confusion: rows are true classes (the shared ones, then unknown), columns predictions (all
            known classes, then unknown); counts. None in a list of results (`compact`), except of
            the rule that was asked for.
        share: estimated share of unknown images, by a rule that estimates it.
        interval: of that estimate, where there is one.
    """

    in_force: str
    threshold: float
    note: str
    scores: dict[str, float | None]
    confusion: list[list[int]] | None
    share: float | None = None
    interval: tuple[float, float] | None = None


@dataclass(frozen=True)
class Result:
    """The scores of one finished run, with or without refinement.

    Attributes:
        data: name of the protocol.
        setting: unda, oda, pda, closed or one of the protocol's own.
        source: name of the source domain.
        target: name of the target domain.
        entry: method with its settings, such as `san` or `san-no-scl` (`unida.bench.entries`).
        method: the method of that entry.
        refine: how predictions were refined on the target: `none`, `knn` or `prototypes,knn`.
            Migrated results have other values too, such as `knn (z)`.
        seed: of everything random in the run.
        label_noise: share of source labels that were made wrong.
        unknown_classes: target-private classes that were in the target.
        known_classes: names of the source's classes, in order.
        shared_classes: those of them that are in the target.
        images: numbers of images: source, target, unknown (in the target).
        options: fields of `RunConfig` except paths and `refine`: steps, batch, backbone, …
        settings: all settings of the method.
        rules: by the name of the requested reject rule.
        ranking: numbers that no rule is needed for: auroc, oscr, nmi, closed (accuracy of the most
            likely class on known images), best_threshold (oracle).
        oracle: computed with target labels, for reference only, and only on request: `h` at the
            best step and that `step`, by rule.
        seconds: of training.
        parameters: numbers in the model, the backbone's among them.
        made_with: versions, commit, device, weights.
        discovery: scores of the novel categories (`unida.bench.discovery`); empty where they were
            not asked for.
    """

    data: str
    setting: str
    source: str
    target: str
    entry: str
    method: str
    refine: str
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
    discovery: dict[str, float | None] = field(default_factory=dict)

    @property
    def task(self) -> str:
        return f"{self.source} → {self.target}"

    @property
    def row(self) -> str:
        """Name of its row in tables and figures."""
        return row_name(self.entry, self.refine)


class Run(NamedTuple):
    """A result and the folder of its run; None where the result was read from a list."""

    folder: Path | None
    result: Result


def row_name(entry: str, refine: str) -> str:
    """Return the row of an entry: the method alone, `+ refinement`, or another refinement."""
    if refine == ALONE:
        return entry
    return f"{entry} + {'refinement' if refine == REFINED else refine}"


def shift_name(setting: str, unknown_classes: int | None) -> str:
    """Return the name of a category shift: a setting, or `oda-2` with that many unknown classes."""
    return setting if unknown_classes is None else f"{setting}-{unknown_classes}"


def without_off(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options except those in `OFF` that are not in use."""
    return {name: value for name, value in options.items() if name not in OFF or OFF[name] != value}


def to_json(result: Result) -> str:
    """Serialise a result as one line.

    JSON has no infinity: a threshold of infinity is null, of minus infinity the lowest number.
    """
    values = dataclasses.asdict(result)
    for rule in values["rules"].values():
        if math.isinf(rule["threshold"]):
            rule["threshold"] = None if rule["threshold"] > 0 else -sys.float_info.max
    return json.dumps({"format": FORMAT} | values, allow_nan=False)


def from_json(text: str, where: str) -> Result:
    """Parse a line of `to_json`, of this format or format 1.

    Raises:
        UserError: for anything else; the message starts with `where`.
    """
    try:
        values = dict(json.loads(text))
        if (found := values.pop("format")) not in (1, FORMAT):
            raise UserError(
                f"{where} is a result of format {found}; this version reads formats 1 and "
                f"{FORMAT}: run the bench again, or use the version of unida that wrote it."
            )
        if found == 1:
            values = _migrate(values)
        rules = {name: _rule(**rule) for name, rule in values.pop("rules").items()}
        result = Result(rules=rules, **values)
        _check_types(result)
        for rule in rules.values():
            _check_types(rule)
        return result
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{where} is not a result of unida bench ({error!r}).") from None


def _check_types(part: Result | RuleResult) -> None:
    """Raise a `TypeError` unless texts, numbers, lists and objects are where they belong."""
    for name, hint in typing.get_type_hints(type(part)).items():
        kinds = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
        allowed = tuple(typing.get_origin(kind) or kind for kind in kinds)
        value = getattr(part, name)
        if not isinstance(value, allowed + ((int,) if float in allowed else ())):
            raise TypeError(f"{name} is {reprlib.repr(value)}")
        if hint == list[str] and not all(isinstance(item, str) for item in value):
            raise TypeError(f"{name} is {reprlib.repr(value)}")
        is_flat = allowed == (dict,) and name not in ("rules", "oracle")
        if is_flat and any(isinstance(item, list | dict) for item in value.values()):
            raise TypeError(f"{name} is {reprlib.repr(value)}")


def _rule(
    threshold: float | None, interval: list[float] | None = None, **values: Any
) -> RuleResult:
    pair = None if interval is None else (interval[0], interval[1])
    return RuleResult(
        threshold=math.inf if threshold is None else threshold, interval=pair, **values
    )


def _migrate(values: dict[str, Any]) -> dict[str, Any]:
    """Convert format 1: refinement was a setting of SAN and OVANet, `ensemble` was `members`."""
    settings, options = dict(values["settings"]), dict(values["options"])
    refine = ALONE
    if values["method"] in ("san", "ovanet"):
        # A result from before a setting was introduced lacks it; a null stands for the default 6.
        absent = {"neighbours": 0, "anchors": False, "nearest_by": "z"}
        k, prototypes, by = (settings.pop(name, value) for name, value in absent.items())
        details = (["z"] if by != "z_then_y" else []) + ([] if k in (None, 6) else [f"k={k}"])
        if k != 0:
            refine = (REFINED if prototypes else "knn") + f" ({', '.join(details)})" * bool(details)
        kept = (p for p in values["entry"].split(":") if p.partition("=")[0] not in absent)
        values["entry"] = ":".join(kept)
        for name, value in (("by_mass", False), ("reads", "z")):  # settings that were removed
            if settings.get(name) == value:
                del settings[name]
    if "members" in options:
        options["ensemble"] = options.pop("members")
    return values | {"refine": refine, "settings": settings, "options": options}


def read_runs(place: str | Path) -> list[Run]:
    """Read the results of a folder or file, with their run folders where there are any.

    A folder without runs, as it is committed, has its results in `results.jsonl.gz` or, from before
    version 0.2, in `results.jsonl`. A file may have either form, whatever its name.
    """
    place = Path(place)
    # A run of format 1 has result.json; where both are present, the later name is the newer file.
    files = {file.parent: file for file in sorted(place.glob("runs/*/result.json*"))}
    runs = [Run(run, result) for run, file in files.items() for result in _read_lines(file)]
    if not files:
        lists = [place / RESULTS, place / PLAIN_RESULTS] if place.is_dir() else [place]
        file = next((file for file in lists if file.exists()), None)
        runs = [Run(None, result) for result in _read_lines(file)] if file else []
    if not runs:
        raise UserError(f"{place} holds no result: run `unida bench` into it first.")
    return runs


def read_results(place: str | Path) -> list[Result]:
    """Read all results of a folder or `.jsonl` file, in a fixed order."""

    def order(r: Result) -> tuple[str | int, ...]:
        return (r.data, r.setting, r.entry, r.refine, r.source, r.target, r.seed)

    return sorted((run.result for run in read_runs(place)), key=order)


def write_results(file: Path, results: Iterable[Result]) -> None:
    """Write results as lines, compressed where the name ends in `.gz`; appears when complete."""
    text = "".join(to_json(result) + "\n" for result in results)
    if file.suffix != ".gz":
        return write_text(file, text)
    # Without a time in it, the same results are the same file.
    packed = gzip.compress(text.encode(), mtime=0)
    write_file(file, lambda stream: stream.write(packed))


def compact(result: Result) -> Result:
    """Return a result with one confusion matrix only, of the rule that was asked for."""
    kept = result.options.get("reject")
    kept = kept if kept in result.rules else next(iter(result.rules), None)
    rules = {
        name: rule if name == kept else dataclasses.replace(rule, confusion=None)
        for name, rule in result.rules.items()
    }
    return dataclasses.replace(result, rules=rules)


def gather(place: Path) -> None:
    """Collect the results of a folder's runs in its `results.jsonl.gz`."""
    write_results(place / RESULTS, map(compact, read_results(place)))
    (place / PLAIN_RESULTS).unlink(missing_ok=True)  # of an earlier version: now out of date


def _unpack(content: bytes) -> bytes:
    """Decompress results; a small file may hold an endless text."""
    with gzip.open(io.BytesIO(content)) as file:
        text = file.read(MAX_TEXT + 1)
    if len(text) > MAX_TEXT:
        raise OSError(f"it holds more than {MAX_TEXT} bytes")
    return text


def _read_lines(file: Path) -> Iterable[Result]:
    try:
        content = read_file(file)
        text = (_unpack(content) if content.startswith(GZIP) else content).decode()
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise UserError(f"{file} cannot be read ({error}).") from None
    lines = text.splitlines()
    for number, line in enumerate(lines, 1):
        if line.strip():
            yield from_json(line, f"{file}, line {number}" if len(lines) > 1 else str(file))
