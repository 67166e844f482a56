"""`unida adapt --continue RUN`: what was said of a run becomes knowledge of the next.

The next run's source is the old one, the images of every category that was given a name, and the
images whose labels were corrected. It is written down as source.csv in the new run's folder.
"""

import dataclasses
import unicodedata
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from unida.config import RunConfig, load_config
from unida.data.samples import read_source
from unida.errors import UserError, require, shorten
from unida.model import Model
from unida.pipeline import checked, run_adaptation
from unida.review.corrections import (
    Corrections,
    Member,
    read_accepted,
    read_review_target,
    read_saved,
)
from unida.training.run_folder import RunFolder, write_text
from unida.types import UNKNOWN
from unida.utils import distributed
from unida.utils.console import say
from unida.utils.csv_files import to_bytes, to_csv
from unida.utils.devices import pick_device

Labelled = dict[str, str]
"""Path to label, in the order of the images."""


@dataclass(frozen=True)
class ReviewedRun:
    """What a person said of a run, ready to be learned from.

    Attributes:
        run: the run.
        corrections: names and labels.
        members: images of all found categories.
        verdicts: target images that the model gave to a known class; the class in the place of the
            category.
    """

    run: Path
    corrections: Corrections
    members: tuple[Member, ...]
    verdicts: tuple[Member, ...] = ()


def read_reviewed(place: str | Path) -> ReviewedRun:
    """The corrections of a run; that there are none is an error."""
    subject = read_review_target(place)
    saved, outdated = read_saved(subject)
    if outdated:
        raise UserError(
            f"The categories of {place} were found anew after they were given names: look at them "
            f"again with `unida review {place}`."
        )
    if not saved:
        raise UserError(
            f"Nothing in {place} was named or corrected yet: do so with `unida review {place}`."
        )
    return ReviewedRun(Path(place), saved, subject.members, read_accepted(subject.run))


def next_config(place: str | Path) -> RunConfig:
    """The configuration to go on with: that of the run, from its trained backbone, to a new place.

    A frozen backbone was not trained; it starts from the weights that the run started from.
    """
    stored = load_config(RunFolder(place).config)
    trained = str(RunFolder(place).model.absolute())
    return dataclasses.replace(stored, out="", weights=stored.weights if stored.frozen else trained)


def fitted(given: RunConfig, begun: RunConfig) -> RunConfig:
    """What was meant for another method or backbone than the one asked for is left out."""
    if given.method != begun.method and given.settings == begun.settings:
        given = dataclasses.replace(given, settings=())
    if given.backbone != begun.backbone and given.weights == begun.weights:
        given = dataclasses.replace(given, weights=None)
    return given


def run_continuation(
    place: str | Path, config: RunConfig, min_confidence: float, trust: float = 2.0
) -> Model:
    """Trains with what was named and corrected in the run at `place`.

    Args:
        place: folder of the reviewed run.
        config: of the new run; its source is what the run's images are added to.
        min_confidence: an image less sure to be in its category is not learned from.
        trust: target images given to a known class with this confidence are learned from as well.
    """
    require(bool(config.out), "out", "", "a new folder: name it with --out")
    require(0 <= min_confidence <= 1, "min_confidence", min_confidence, "from 0 to 1")
    config = checked(config)
    said = read_reviewed(place)
    source = read_source(config.source)
    assert source.labels is not None
    labels = (source.classes[k] for k in source.labels)
    old = dict(zip(map(str, source.paths), labels, strict=True))
    new = joined(old, said, min_confidence, trust)
    run = RunFolder(config.out)
    distributed.setup(pick_device(config.device))
    with distributed.main_process_first():
        if distributed.is_main_process():
            _place(new, run, config)
    say(in_words(old, new))
    try:
        return run_adaptation(dataclasses.replace(config, source=str(run.source)))
    finally:
        _tidy_up(run)


def joined(old: Labelled, said: ReviewedRun, min_confidence: float, trust: float = 2.0) -> Labelled:
    """The source with what was said; a corrected label wins over everything.

    Where nothing but new classes came from the target, the target itself would look like them: so
    what the model was sure of, and nobody corrected, is taken for true.
    """
    corrections = said.corrections
    spelt = {unicodedata.normalize("NFC", name): name for name in old.values()}
    new = dict(old)
    for member in _named(said, min_confidence):
        name = corrections.names[member.category]
        new.setdefault(member.path, spelt.get(name, name))  # it may have a label from before
    for path, label in corrections.labels.items():
        new.pop(path, None)
        if label != UNKNOWN:
            new[path] = spelt.get(label, label)
    _refuse_case(set(new.values()), said.run)
    if new == old:
        raise UserError(
            f"What was named and corrected in {said.run} changes nothing: name a category with "
            f"`unida review {said.run}`, or let less sure images in with --min-confidence."
        )
    for verdict in said.verdicts:
        if verdict.confidence >= trust and verdict.path not in corrections.labels:
            new.setdefault(verdict.path, verdict.category)
    return new


def in_words(old: Labelled, new: Labelled) -> str:
    """What was added to the source, for a person."""
    more = Counter(label for path, label in new.items() if old.get(path) != label)
    classes = set(old.values())
    names = [
        f"{n} as {label!r}" + ("" if label in classes else " (new)") for label, n in more.items()
    ]
    return f"{len(old)} source images; learned from as well: {shorten(names) or 'none'}."


def _named(said: ReviewedRun, min_confidence: float) -> Iterable[Member]:
    """Members of named categories, sure ones; a named category without any is spoken of."""
    names = said.corrections.names
    named = [member for member in said.members if member.category in names]
    sure = [member for member in named if member.confidence >= min_confidence]
    for category in sorted(set(names) - {member.category for member in sure}):
        say(
            f"Warning: no image is in category {category} ({names[category]!r}) with a confidence "
            f"of {min_confidence:g} or more; it is left out."
        )
    return sure


def _refuse_case(names: set[str], run: Path) -> None:
    """Said here rather than of a file that nobody wrote by hand."""
    folded = Counter(name.casefold() for name in names)
    clash = sorted(name for name in names if folded[name.casefold()] > 1)
    if clash:
        raise UserError(
            f"These classes and names differ only in case: {shorten(clash)}. Spell them alike with "
            f"`unida review {run}`."
        )


def _place(source: Labelled, run: RunFolder, config: RunConfig) -> None:
    """Writes the source into a free folder."""
    run.refuse_if_taken(config, resume=False)
    text = to_csv(("path", "label"), source.items())
    try:
        if run.source.exists() and run.source.read_bytes() != to_bytes(text):
            raise UserError(f"{run.source} is there already: remove it, or name another --out.")
        run.path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{run.path} cannot be used: {error.strerror}.") from None
    write_text(run.source, text)


def _tidy_up(run: RunFolder) -> None:
    """A run that could not even begin leaves its folder free for the next attempt."""
    if distributed.is_main_process() and not run.config.exists():
        run.source.unlink(missing_ok=True)
