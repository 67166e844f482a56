"""A reviewer's corrections of a run: names and edits of found categories, labels of images.

    review.json           the corrections in force
    review-history/       one file for each save, named by its time, never overwritten

Both hold {"names": {group: name}, "labels": {path: label}, "merges": {group: group}, "moves":
{path: group}}, in "revision" the number of the save, and in "categories" a digest of the categories
that all but the labels belong to: after another `unida discover`, category 3 may be another one.
What merges and moves mean is in `unida.review.groups`; files of earlier versions have neither. A
save holds the lock `review-history/.lock`, so that two servers of one run do not mix.
"""

import dataclasses
import json
import secrets
import threading
import unicodedata
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from typing import Any

from unida.discovery.categories import LabelledImage, read_categories
from unida.errors import UserError
from unida.review.groups import NO_GROUP, check_groups, final_group, is_group
from unida.training.predictions import read_predictions
from unida.training.run_folder import RunFolder, write_text
from unida.types import UNKNOWN
from unida.utils.files import read_file
from unida.utils.locks import NO_LOCKS, held
from unida.utils.lookalikes import look_of

MAX_NAME_LENGTH = 200
PARTS = ("names", "labels", "merges", "moves")
"""What can be corrected, each by key."""
OF_GROUPS = ("names", "merges")
"""Those whose keys are groups; of the others they are paths."""
_NOT_IN_NAMES = ("Cc", "Cs", "Zl", "Zp")  # control characters, surrogates, line separators


@dataclass(frozen=True)
class Corrections:
    """The corrections of a run.

    Attributes:
        names: of groups, by their id as text; a category is a group.
        labels: of images, by their path as in predictions.csv; `unknown` is a label too.
        merges: groups that are part of another, `0` for discarded ones.
        moves: groups of images that were moved, by path; `0` for none.
        revision: number of the save; 0 before the first.
    """

    names: dict[str, str] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    merges: dict[str, str] = field(default_factory=dict)
    moves: dict[str, str] = field(default_factory=dict)
    revision: int = field(default=0, compare=False)

    def __bool__(self) -> bool:
        return bool(self.names or self.labels or self.merges or self.moves)


class ConflictError(UserError):
    """Corrections that contradict others, saved since those they were made from.

    Attributes:
        current: the corrections in force.
        groups: whether edits of groups contradict each other, rather than single values.
    """

    def __init__(self, reason: str, current: Corrections, groups: bool = False) -> None:
        super().__init__(reason)
        self.current, self.groups = current, groups


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
    digest = blake2b(read_file(run.categories), digest_size=16).hexdigest()
    return ReviewTarget(run, paths, read_categories(run.categories), digest)


def read_corrections(target: ReviewTarget) -> tuple[Corrections, bool]:
    """Read the corrections in force, and whether those of earlier categories were dropped."""
    path = target.run.review
    if not path.exists():
        return Corrections(), False
    try:
        content = json.loads(read_file(path))
        corrections = parse_corrections(content, target, existing_categories=False)
        digest = content.get("categories", target.digest)
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(
            f"{path} cannot be used ({error}): put the newest complete file of "
            f"{target.run.review_history} in its place."
        ) from error
    of_groups = (corrections.names, corrections.merges, corrections.moves)
    if digest == target.digest or not any(of_groups):
        return corrections, False
    return Corrections(labels=corrections.labels, revision=corrections.revision), True


def parse_corrections(
    content: Any, target: ReviewTarget, existing_categories: bool = True
) -> Corrections:
    """Validate corrections in parsed JSON; an empty name or label is left out.

    Args:
        content: what was parsed, from anywhere.
        target: what can be corrected.
        existing_categories: refuse categories that the run does not have.
    """
    names, labels, merges, moves = (_texts(content, key) for key in PARTS)
    if existing_categories:
        _check_existing({*names, *merges}, target)
        _check_existing({*merges.values(), *moves.values()} - {NO_GROUP}, target)
    if why := check_groups(names, merges):
        raise UserError(why)
    for path in (*labels, *moves):
        if path not in target.paths:
            raise UserError(f"No target image of this run is called {path[-MAX_NAME_LENGTH:]!r}.")
    if UNKNOWN in names.values():
        raise UserError(f"A category cannot be called {UNKNOWN!r}, which means 'none'.")
    revision = content.get("revision", 0)
    if type(revision) is not int or revision < 0:
        raise UserError("A whole number of 0 or more is expected in 'revision'.")
    return Corrections(names, labels, merges, moves, revision)


def _check_existing(groups: set[str], target: ReviewTarget) -> None:
    """Refuse groups that the run cannot have."""
    for group in sorted(groups):
        if not is_group(group, target.categories):
            raise UserError(f"This run has no category {group[:20]!r}.")


class CorrectionStore:
    """Storage of the corrections of one run, safe between threads and between processes."""

    def __init__(self, target: ReviewTarget) -> None:
        self.target = target
        self.lock = threading.Lock()

    def read(self) -> Corrections:
        return read_corrections(self.target)[0]

    def save(self, content: Any) -> Corrections:
        """Validate corrections and put them in force; return what is in force.

        Args:
            content: all corrections as parsed JSON. If "base" holds the corrections that they were
                made from, only the differences are applied: the page may be open twice. Without
                it, "revision" is the only save that they may replace.

        Raises:
            ConflictError: what was changed here was changed elsewhere too, and differently.
        """
        new = parse_corrections(content, self.target)
        base = parse_corrections(content["base"], self.target) if "base" in content else None
        with self._locked():
            current = self.read()
            if base is not None:
                new = merge(base, new, current)
            elif "revision" in content and new.revision != current.revision:
                raise ConflictError(
                    f"The corrections are at revision {current.revision} by now, not "
                    f"{new.revision}: read them anew.",
                    current,
                )
            new = dataclasses.replace(new, revision=current.revision + 1)
            self._write(new)
        return new

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the lock of the run, within this process and among others."""
        history = self.target.run.review_history
        with self.lock, ExitStack() as stack:
            try:
                history.mkdir(exist_ok=True)
                stack.enter_context(held(history / ".lock", wait=True))
            except OSError as error:
                if error.errno not in NO_LOCKS:
                    raise UserError(f"{history} cannot be used: {error.strerror}.") from error
            yield

    def _write(self, corrections: Corrections) -> None:
        """Write the history first, so that it has every state that was ever in force."""
        content = dataclasses.asdict(corrections) | {"categories": self.target.digest}
        text = json.dumps(content, indent=2, sort_keys=True) + "\n"
        write_text(_new_history_file(self.target.run.review_history), text)
        write_text(self.target.run.review, text)


def merge(base: Corrections, new: Corrections, current: Corrections) -> Corrections:
    """Apply the changes from `base` to `new` to the current corrections."""
    parts: dict[str, Any] = {}
    for part in PARTS:
        old, ours, theirs = (getattr(state, part) for state in (base, new, current))
        changed = {key for key in old.keys() | ours.keys() if old.get(key) != ours.get(key)}
        for key in sorted(changed):
            if theirs.get(key) not in (old.get(key), ours.get(key)):
                what = f"category {key}" if part in OF_GROUPS else key[-MAX_NAME_LENGTH:]
                raise ConflictError(
                    f"{what} is {theirs.get(key, '')!r} in another window by now, "
                    f"and {ours.get(key, '')!r} in this one.",
                    current,
                )
        kept = {key: value for key, value in theirs.items() if key not in changed}
        parts[part] = kept | {key: value for key, value in ours.items() if key in changed}
    merged = Corrections(**parts)
    if why := check_groups(merged.names, merged.merges) or _check_moves(base, new, current, merged):
        raise ConflictError(f"Groups were edited in another window too. {why}", current, True)
    return merged


def _check_moves(
    base: Corrections, new: Corrections, current: Corrections, merged: Corrections
) -> str | None:
    """Return which image was moved into a group that was discarded at the same time, or None."""
    for side in (new, current):
        for path, group in side.moves.items():
            is_changed = base.moves.get(path) != group and merged.moves.get(path) == group
            was, now = (final_group(group, state.merges) for state in (side, merged))
            if is_changed and now == NO_GROUP != was:
                return f"The group of {path[-MAX_NAME_LENGTH:]!r} was discarded."
    return None


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
    return UNKNOWN if look_of(name) == UNKNOWN else name
