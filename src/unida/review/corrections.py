"""What a person says of a run: names for found categories, and labels of single images.

    review.json           the names and labels that count now
    review-history/       one file a save, named by its time, never written over

Both hold {"names": {category: name}, "labels": {path: label}}, and in "categories" a digest of the
categories that the names were given to: found anew, category 3 may be another one.
"""

import dataclasses
import json
import secrets
import threading
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from typing import Any

from unida.errors import UserError
from unida.training.predictions import read_predictions
from unida.training.run_folder import RunFolder, write_text
from unida.types import UNKNOWN
from unida.utils.csv_files import read_csv

LONGEST_NAME = 200
_NOT_IN_NAMES = ("Cc", "Cs", "Zl", "Zp")  # control characters, half pairs, breaks of lines


@dataclass(frozen=True)
class Corrections:
    """What was said of a run.

    Attributes:
        names: of categories, by their id as text.
        labels: of images, by their path as in predictions.csv; `unknown` is a label too.
    """

    names: dict[str, str] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.names or self.labels)


@dataclass(frozen=True)
class Member:
    """One image of a found category: its path, the category's id as text, and how sure that is."""

    path: str
    category: str
    confidence: float


@dataclass(frozen=True)
class ReviewTarget:
    """What may be spoken of: the target images of a run and its categories.

    Attributes:
        run: the folder.
        paths: of the target images.
        members: of the categories, in the order of categories.csv.
        digest: of the categories; empty where none were looked for.
    """

    run: RunFolder
    paths: frozenset[str]
    members: tuple[Member, ...]
    digest: str

    @property
    def categories(self) -> frozenset[str]:
        return frozenset(member.category for member in self.members)


def read_review_target(place: str | Path) -> ReviewTarget:
    """Reads what a finished run has to be reviewed."""
    run = RunFolder(place)
    if not run.done.exists():
        state = "is not finished" if run.config.exists() else "holds no run"
        raise UserError(f"{place} {state}: only a finished run can be reviewed.")
    paths = frozenset(read_predictions(run.predictions).paths)
    if not run.categories.exists():
        return ReviewTarget(run, paths, (), "")
    digest = blake2b(run.categories.read_bytes(), digest_size=16).hexdigest()
    return ReviewTarget(run, paths, tuple(_members(run.categories)), digest)


def read_accepted(run: RunFolder) -> tuple[Member, ...]:
    """Read the accepted target images, with their predicted class in place of a category."""
    table = read_predictions(run.predictions)
    rows = zip(table.paths, table.labels, table.confidence.tolist(), strict=True)
    return tuple(Member(*row) for row in rows if row[1] != UNKNOWN)


def read_saved(subject: ReviewTarget) -> tuple[Corrections, bool]:
    """The corrections that count now, and whether names given to other categories were left out."""
    place = subject.run.review
    if not place.exists():
        return Corrections(), False
    try:
        content = json.loads(place.read_bytes())
        saved = checked(content, subject, known_only=False)
        of = content.get("categories", subject.digest)
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(
            f"{place} cannot be used ({error}): put the newest whole file of "
            f"{subject.run.review_history} in its place."
        ) from None
    if of == subject.digest or not saved.names:
        return saved, False
    return dataclasses.replace(saved, names={}), True


def checked(content: Any, subject: ReviewTarget, known_only: bool = True) -> Corrections:
    """Corrections out of parsed JSON from anywhere; an empty name or label is none.

    Args:
        content: what was parsed.
        subject: what may be spoken of.
        known_only: refuse categories that the run does not have.
    """
    names, labels = (_texts(content, key) for key in ("names", "labels"))
    strange = names.keys() - subject.categories if known_only else set()
    if strange:
        raise UserError(f"This run has no category {min(strange)[:20]!r}.")
    for path in labels:
        if path not in subject.paths:
            raise UserError(f"No target image of this run is called {path[-LONGEST_NAME:]!r}.")
    if UNKNOWN in names.values():
        raise UserError(f"{UNKNOWN!r} is the word for 'none': a category cannot be called so.")
    return Corrections(names, labels)


class Store:
    """Saves corrections of one run; several threads may."""

    def __init__(self, subject: ReviewTarget) -> None:
        self.subject = subject
        self.lock = threading.Lock()

    def read(self) -> Corrections:
        return read_saved(self.subject)[0]

    def save(self, content: Any) -> Corrections:
        """Checks what came and makes it the state that counts.

        Args:
            content: the whole state as parsed JSON. With the state that it was made from as "base",
                only what differs from that is changed: the page may be open twice.
        """
        new = checked(content, self.subject)
        with self.lock:
            if "base" in content:
                new = merged(checked(content["base"], self.subject), new, self.read())
            self._write(new)
        return new

    def _write(self, state: Corrections) -> None:
        """History first, so that there is no state it lacks."""
        content = dataclasses.asdict(state) | {"categories": self.subject.digest}
        text = json.dumps(content, indent=2, sort_keys=True) + "\n"
        run = self.subject.run
        _make_folder(run.review_history)
        write_text(_free_name(run.review_history), text)
        # By a name of its own: another process may serve the same run.
        fresh = run.review.with_name(f".review-{secrets.token_hex(8)}.json")
        write_text(fresh, text)
        fresh.replace(run.review)


def merged(base: Corrections, new: Corrections, current: Corrections) -> Corrections:
    """The current state with what was changed from `base` to `new`."""
    return Corrections(
        _merged(base.names, new.names, current.names),
        _merged(base.labels, new.labels, current.labels),
    )


def _merged(base: dict[str, str], new: dict[str, str], current: dict[str, str]) -> dict[str, str]:
    changed = {key for key in base.keys() | new.keys() if base.get(key) != new.get(key)}
    kept = {key: value for key, value in current.items() if key not in changed}
    return kept | {key: value for key, value in new.items() if key in changed}


def _make_folder(place: Path) -> None:
    try:
        place.mkdir(exist_ok=True)
    except OSError as error:
        raise UserError(f"{place} cannot be made: {error.strerror}.") from None


def _free_name(folder: Path) -> Path:
    """Sorted by name, the files of a history are in the order of their times."""
    stamp = datetime.now(UTC).strftime("%Y-%m-%dT%H-%M-%S.%fZ")
    return folder / f"{stamp}-{secrets.token_hex(4)}.json"


def _texts(content: Any, key: str) -> dict[str, str]:
    """Text to text at `key`, tidied; what is empty then is left out."""
    values = content.get(key, {}) if isinstance(content, dict) else None
    if not isinstance(values, dict) or not all(isinstance(v, str) for v in values.values()):
        raise UserError(f"An object with texts in {key!r} is expected.")
    tidied = {k: _tidy(value) for k, value in values.items()}
    for name in tidied.values():
        if len(name) > LONGEST_NAME:
            raise UserError(
                f"{name[:20]!r}… is {len(name)} characters long: {LONGEST_NAME} are the most."
            )
    return {k: name for k, name in tidied.items() if name}


def _tidy(text: str) -> str:
    """One line without control characters; one way to write what looks the same."""
    plain = "".join(" " if unicodedata.category(c) in _NOT_IN_NAMES else c for c in text)
    name = unicodedata.normalize("NFC", " ".join(plain.split()))
    return UNKNOWN if name.casefold() == UNKNOWN else name


def _members(place: Path) -> Iterable[Member]:
    for row in read_csv(place, ("path", "category", "confidence")):
        if row["category"]:
            try:
                yield Member(row["path"], row["category"], float(row["confidence"]))
            except ValueError:
                raise UserError(
                    f"{place} gives {row['path']} the confidence {row['confidence']!r}: make the "
                    "file again."
                ) from None
