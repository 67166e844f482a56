"""A reviewer's corrections of a run: names of found categories, labels of single images.

    review.json           the corrections in force
    review-history/       one file for each save, named by its time, never overwritten

Both hold {"names": {category: name}, "labels": {path: label}}, and in "categories" a digest of the
categories that the names belong to: after another `unida discover`, category 3 may be another one.
"""

import dataclasses
import json
import secrets
import threading
import unicodedata
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from typing import Any

from unida.discovery.categories import LabelledImage, read_categories
from unida.errors import UserError
from unida.training.predictions import read_predictions
from unida.training.run_folder import RunFolder, write_text
from unida.types import UNKNOWN

MAX_NAME_LENGTH = 200
_NOT_IN_NAMES = ("Cc", "Cs", "Zl", "Zp")  # control characters, surrogates, line separators


@dataclass(frozen=True)
class Corrections:
    """The corrections of a run.

    Attributes:
        names: of categories, by their id as text.
        labels: of images, by their path as in predictions.csv; `unknown` is a label too.
    """

    names: dict[str, str] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.names or self.labels)


@dataclass(frozen=True)
class ReviewTarget:
    """What can be corrected: the target images of a run and its categories.

    Attributes:
        run: the run.
        paths: of the target images.
        categorized: the images of the categories.
        digest: of categories.csv; empty where no categories were found.
    """

    run: RunFolder
    paths: frozenset[str]
    categorized: tuple[LabelledImage, ...]
    digest: str

    @property
    def categories(self) -> frozenset[str]:
        return frozenset(image.label for image in self.categorized)


def read_review_target(path: str | Path) -> ReviewTarget:
    """Read what can be corrected in a finished run."""
    run = RunFolder(path)
    if not run.done.exists():
        state = "is not finished" if run.config.exists() else "holds no run"
        raise UserError(f"{path} {state}: only a finished run can be reviewed.")
    paths = frozenset(read_predictions(run.predictions).paths)
    if not run.categories.exists():
        return ReviewTarget(run, paths, (), "")
    digest = blake2b(run.categories.read_bytes(), digest_size=16).hexdigest()
    return ReviewTarget(run, paths, read_categories(run.categories), digest)


def read_corrections(target: ReviewTarget) -> tuple[Corrections, bool]:
    """Read the corrections in force, and whether names of earlier categories were dropped."""
    path = target.run.review
    if not path.exists():
        return Corrections(), False
    try:
        content = json.loads(path.read_bytes())
        corrections = parse_corrections(content, target, existing_categories=False)
        digest = content.get("categories", target.digest)
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(
            f"{path} cannot be used ({error}): put the newest complete file of "
            f"{target.run.review_history} in its place."
        ) from None
    if digest == target.digest or not corrections.names:
        return corrections, False
    return dataclasses.replace(corrections, names={}), True


def parse_corrections(
    content: Any, target: ReviewTarget, existing_categories: bool = True
) -> Corrections:
    """Validate corrections in parsed JSON; an empty name or label is left out.

    Args:
        content: what was parsed, from anywhere.
        target: what can be corrected.
        existing_categories: refuse categories that the run does not have.
    """
    names, labels = (_texts(content, key) for key in ("names", "labels"))
    missing = names.keys() - target.categories if existing_categories else set()
    if missing:
        raise UserError(f"This run has no category {min(missing)[:20]!r}.")
    for path in labels:
        if path not in target.paths:
            raise UserError(f"No target image of this run is called {path[-MAX_NAME_LENGTH:]!r}.")
    if UNKNOWN in names.values():
        raise UserError(f"A category cannot be called {UNKNOWN!r}, which means 'none'.")
    return Corrections(names, labels)


class CorrectionStore:
    """Thread-safe storage of the corrections of one run."""

    def __init__(self, target: ReviewTarget) -> None:
        self.target = target
        self.lock = threading.Lock()

    def read(self) -> Corrections:
        return read_corrections(self.target)[0]

    def save(self, content: Any) -> Corrections:
        """Validate corrections and put them in force.

        Args:
            content: all corrections as parsed JSON. If "base" holds the corrections that they were
                made from, only the differences are applied: the page may be open twice.
        """
        new = parse_corrections(content, self.target)
        with self.lock:
            if "base" in content:
                new = merge(parse_corrections(content["base"], self.target), new, self.read())
            self._write(new)
        return new

    def _write(self, corrections: Corrections) -> None:
        """Write the history first, so that it has every state that was ever in force."""
        content = dataclasses.asdict(corrections) | {"categories": self.target.digest}
        text = json.dumps(content, indent=2, sort_keys=True) + "\n"
        run = self.target.run
        try:
            run.review_history.mkdir(exist_ok=True)
        except OSError as error:
            raise UserError(f"{run.review_history} cannot be made: {error.strerror}.") from None
        write_text(_new_history_file(run.review_history), text)
        # A name of its own, as another process may serve the same run.
        part = run.review.with_name(f".review-{secrets.token_hex(8)}.json")
        write_text(part, text)
        part.replace(run.review)


def merge(base: Corrections, new: Corrections, current: Corrections) -> Corrections:
    """Apply the changes from `base` to `new` to the current corrections."""
    return Corrections(
        _merge(base.names, new.names, current.names),
        _merge(base.labels, new.labels, current.labels),
    )


def _merge(base: dict[str, str], new: dict[str, str], current: dict[str, str]) -> dict[str, str]:
    changed = {key for key in base.keys() | new.keys() if base.get(key) != new.get(key)}
    kept = {key: value for key, value in current.items() if key not in changed}
    return kept | {key: value for key, value in new.items() if key in changed}


def _new_history_file(folder: Path) -> Path:
    """Return a new name; sorted by name, the files are in the order of their times."""
    stamp = datetime.now(UTC).strftime("%Y-%m-%dT%H-%M-%S.%fZ")
    return folder / f"{stamp}-{secrets.token_hex(4)}.json"


def _texts(content: Any, key: str) -> dict[str, str]:
    """Return the normalized texts at `key`, without empty ones."""
    values = content.get(key, {}) if isinstance(content, dict) else None
    if not isinstance(values, dict) or not all(isinstance(v, str) for v in values.values()):
        raise UserError(f"An object with texts in {key!r} is expected.")
    texts = {k: _normalize(value) for k, value in values.items()}
    for text in texts.values():
        if len(text) > MAX_NAME_LENGTH:
            raise UserError(
                f"{text[:20]!r}… is {len(text)} characters long: {MAX_NAME_LENGTH} are the most."
            )
    return {k: text for k, text in texts.items() if text}


def _normalize(text: str) -> str:
    """Return one line without control characters, in Unicode normal form C."""
    plain = "".join(" " if unicodedata.category(c) in _NOT_IN_NAMES else c for c in text)
    name = unicodedata.normalize("NFC", " ".join(plain.split()))
    return UNKNOWN if name.casefold() == UNKNOWN else name
