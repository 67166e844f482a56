"""`unida adapt --continue RUN`: the next run learns from a reviewed run.

Its source is the source of the reviewed run, the images of every named category, and the images
with corrected labels. It is written to source.csv in the folder of the next run. Where the reviewed
run learned from embeddings, their rows are written to source.npy: the two are a table.
"""

import unicodedata
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from unida.config import RunConfig
from unida.data.samples import read_source
from unida.data.tables import is_table, read_table
from unida.discovery.categories import LabelledImage
from unida.errors import UserError, require, shorten
from unida.methods.presets import load_config
from unida.model import Model
from unida.pipeline import check_config, run_claimed
from unida.review.corrections import Corrections, read_corrections, read_review_target
from unida.review.groups import edited_groups
from unida.training.claim import claimed
from unida.training.predictions import read_predictions
from unida.training.run_folder import RunFolder, write_file, write_text
from unida.types import UNKNOWN
from unida.utils import distributed
from unida.utils.csv_files import to_bytes, to_csv
from unida.utils.devices import pick_device
from unida.utils.logs import logger
from unida.utils.lookalikes import describe_clash
from unida.utils.progress import NO_PROGRESS, Progress

PathLabels = dict[str, str]
"""Label by path, in the order of the images."""


@dataclass(frozen=True)
class ReviewedRun:
    """What a reviewed run offers to learn from.

    Attributes:
        run: its folder.
        corrections: names and labels.
        categorized: images of all groups: the found categories, as they were edited.
        accepted: target images that were predicted to be of a known class.
    """

    run: Path
    corrections: Corrections
    categorized: tuple[LabelledImage, ...]
    accepted: tuple[LabelledImage, ...] = ()


def read_reviewed_run(path: str | Path) -> ReviewedRun:
    """Read a reviewed run; one without corrections is refused."""
    target = read_review_target(path)
    corrections, outdated = read_corrections(target)
    if outdated:
        raise UserError(
            f"The categories of {path} were found anew after they were named: name them again with "
            f"`unida review {path}`."
        )
    if not corrections:
        raise UserError(f"Nothing in {path} is named or corrected: use `unida review {path}`.")
    table = read_predictions(target.run.predictions)
    rows = zip(table.paths, table.labels, table.confidence.tolist(), strict=True)
    accepted = tuple(LabelledImage(*row) for row in rows if row[1] != UNKNOWN)
    groups = edited_groups(target.categorized, corrections.merges, corrections.moves)
    return ReviewedRun(Path(path), corrections, groups, accepted)


def next_config(path: str | Path) -> RunConfig:
    """Return the configuration to continue with: that of the run, from its trained backbone.

    A frozen backbone was not trained; it starts from the weights that the run started from.
    """
    stored = load_config(RunFolder(path).config)
    trained = str(RunFolder(path).model.absolute())
    weights = stored.model.weights if stored.model.frozen else trained
    return stored.replace(out="", weights=weights)


def drop_foreign_weights(given: RunConfig, inherited: RunConfig) -> RunConfig:
    """Drop inherited weights of another backbone."""
    now, then = given.model, inherited.model
    if now.backbone != then.backbone and now.weights == then.weights:
        given = given.replace(weights=None)
    return given


def run_continuation(
    path: str | Path,
    config: RunConfig,
    min_confidence: float,
    trust: float = 2.0,
    progress: Progress = NO_PROGRESS,
) -> Model:
    """Train with the corrections of the run at `path`.

    Args:
        path: folder of the reviewed run.
        config: of the new run; its source is what images are added to.
        min_confidence: images whose category is less sure are left out.
        trust: target images predicted to be of a known class with this confidence are added too.
        progress: shows the run.
    """
    require(bool(config.output.out), "out", "", "a new folder: name it with --out")
    require(0 <= min_confidence <= 1, "min_confidence", min_confidence, "from 0 to 1")
    if config.data.source_model:
        raise UserError(
            f"{path} was adapted from a source model: there are no source images to add to. Train "
            "with --source instead, or leave --continue out."
        )
    config = check_config(config)
    reviewed = read_reviewed_run(path)
    samples = read_source(config.data.source)
    assert samples.labels is not None
    labels = (samples.classes[k] for k in samples.labels)
    old = dict(zip(map(str, samples.paths), labels, strict=True))
    new = extend_source(old, reviewed, min_confidence, trust)
    run = RunFolder(config.output.out)
    rows = _rows_of(new, config, path) if is_table(config.data.source) else None
    place = run.source if rows is None else run.source_embeddings
    config = config.replace(source=str(place))
    distributed.setup(pick_device(config.compute.device))
    with claimed(run, config, resume=False):
        with distributed.main_process_first():
            if distributed.is_main_process():
                _write_source(new, run)
                if rows is not None:
                    write_file(place, lambda file: np.save(file, rows, allow_pickle=False))
        logger.info("%s", describe_additions(old, new))
        if all_named(reviewed) and config.decision.reject != "none":
            logger.info(
                "Every category has a name now: if nothing else is unknown, take --reject none, "
                "here or with `unida predict`."
            )
        try:
            return run_claimed(config, progress=progress).model
        finally:
            if distributed.is_main_process() and not run.config.exists():
                for file in (run.source, run.source_embeddings):
                    file.unlink(missing_ok=True)  # the run did not begin: free its folder


def _rows_of(
    labels: PathLabels, config: RunConfig, reviewed: str | Path
) -> npt.NDArray[np.float32]:
    """Return the embeddings of images of a new source.

    Args:
        labels: the new source.
        config: of the new run; its source is the old one.
        reviewed: folder of the reviewed run, whose target the other images are from.
    """
    tables = [config.data.source, load_config(RunFolder(reviewed).config).data.target]
    source, target = map(read_table, tables)
    if both := sorted(set(source.paths) & set(target.paths)):
        raise UserError(
            f"{tables[0]} and {tables[1]} both have the path {both[0]}: give the images paths that "
            "differ, so that a label can be added to one of them."
        )
    rows = {
        path: row
        for one in (source, target)
        for path, row in zip(one.paths, one.embeddings, strict=True)
    }
    if lost := [path for path in labels if path not in rows]:
        raise UserError(f"Neither {tables[0]} nor {tables[1]} has an embedding of {lost[0]}.")
    return np.stack([rows[path] for path in labels])


def extend_source(
    old: PathLabels, reviewed: ReviewedRun, min_confidence: float, trust: float = 2.0
) -> PathLabels:
    """Return the source with the reviewed images; a corrected label overrides all others.

    No class is lost: corrections that would take all images of one are refused.

    If only new classes came from the target, the target's look would give them away. So confident
    predictions of known classes that nobody corrected are added too.
    """
    corrections, run = reviewed.corrections, reviewed.run
    spelling = {unicodedata.normalize("NFC", name): name for name in old.values()}
    new = dict(old)
    for image in _confident(reviewed, min_confidence):
        name = corrections.names[image.label]
        new.setdefault(image.path, spelling.get(name, name))  # a label of an earlier round stays
    for path, label in corrections.labels.items():
        new.pop(path, None)
        if label != UNKNOWN:
            new[path] = spelling.get(label, label)
    if lost := set(old.values()) - set(new.values()):
        raise UserError(
            f"No image of class {min(lost)!r} would be left: leave one of its labels as it was, or "
            "continue an earlier run."
        )
    _refuse_lookalikes(set(new.values()), run)
    if new == old:
        raise UserError(
            f"The names and corrections of {run} change nothing: name a category with `unida "
            f"review {run}`, or lower --min-confidence."
        )
    for image in reviewed.accepted:
        if image.confidence >= trust and image.path not in corrections.labels:
            new.setdefault(image.path, image.label)
    return new


def all_named(reviewed: ReviewedRun) -> bool:
    """Return whether there are categories and all of them have names."""
    found = {image.label for image in reviewed.categorized}
    return bool(found) and found <= reviewed.corrections.names.keys()


def describe_additions(old: PathLabels, new: PathLabels) -> str:
    """Return a sentence about the images added to the source."""
    added = Counter(label for path, label in new.items() if old.get(path) != label)
    classes = set(old.values())
    counts = [
        f"{n} as {label!r}" + ("" if label in classes else " (new)") for label, n in added.items()
    ]
    return f"{len(old)} source images; added: {shorten(counts) or 'none'}."


def _confident(reviewed: ReviewedRun, min_confidence: float) -> list[LabelledImage]:
    """Return the confident images of named categories; warn of a category without any."""
    names = reviewed.corrections.names
    images = [
        image
        for image in reviewed.categorized
        if image.label in names and image.confidence >= min_confidence
    ]
    for category in sorted(set(names) - {image.label for image in images}):
        logger.warning(
            "No image is in category %s (%r) with a confidence of %g or more; it is left out.",
            category,
            names[category],
            min_confidence,
        )
    return images


def _refuse_lookalikes(names: set[str], run: Path) -> None:
    """Refuse names that look alike, before they are an error in a generated file."""
    if clash := describe_clash(sorted(names)):
        raise UserError(
            f"These classes and names {clash}: spell them alike with `unida review {run}`."
        )


def _write_source(source: PathLabels, run: RunFolder) -> None:
    """Write source.csv into a free folder."""
    text = to_csv(("path", "label"), source.items())
    try:
        if run.source.exists() and run.source.read_bytes() != to_bytes(text):
            raise UserError(f"{run.source} is there already: remove it, or name another --out.")
    except OSError as error:
        raise UserError(f"{run.path} cannot be used: {error.strerror}.") from None
    write_text(run.source, text)
