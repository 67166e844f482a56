"""What a run and its reviewer say about each target image, read for export."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from unida import __version__
from unida.errors import UserError
from unida.evaluation.probabilities import read_probabilities
from unida.report.data import ReportData
from unida.review.corrections import read_corrections, read_review_target
from unida.types import UNKNOWN, Features, FloatArray


@dataclass(frozen=True)
class RunRecords:
    """The target images of a finished run, N of them.

    Attributes:
        name: of the run's folder.
        classes: the known classes, K of them.
        paths: files of the images.
        labels: predicted classes, or `unknown`.
        confidence: (N,), probability of the most likely known class.
        unknown_score: (N,), higher means more likely unknown.
        doubt: (N,), from 0 (sure) to 1, as in the report.
        categories: novel category by path, of the images that are in one; an id as text.
        category_names: by id; given by a person, or suggested by `unida discover`.
        corrections: labels given by a person, by path.
        probabilities: (N, K), calibrated; None where the run does not have them.
        embedding: (N, D), principal components of the features; None where the run has none.
    """

    name: str
    classes: list[str]
    paths: list[str]
    labels: list[str]
    confidence: FloatArray
    unknown_score: FloatArray
    doubt: FloatArray
    categories: Mapping[str, str]
    category_names: Mapping[str, str]
    corrections: Mapping[str, str]
    probabilities: Features | None
    embedding: Features | None

    def __len__(self) -> int:
        return len(self.paths)

    @property
    def model_version(self) -> str:
        """What made the predictions, for tools that show predictions of several models."""
        return f"unida {__version__} {self.name}"

    @cached_property
    def final_labels(self) -> list[str]:
        """The corrected label of each image, or else the predicted one."""
        pairs = zip(self.paths, self.labels, strict=True)
        return [self.corrections.get(path, label) for path, label in pairs]

    @cached_property
    def final_categories(self) -> list[str]:
        """The category of each image whose final label is `unknown`; empty for none."""
        pairs = zip(self.paths, self.final_labels, strict=True)
        return [self.categories.get(path, "") if y == UNKNOWN else "" for path, y in pairs]

    @cached_property
    def all_labels(self) -> list[str]:
        """The known classes, then other names that a person gave, then `unknown`."""
        given = {*self.category_names.values(), *self.corrections.values()}
        return [*self.classes, *sorted(given - {*self.classes, UNKNOWN}), UNKNOWN]

    def require_text(self, what: str) -> None:
        """Refuse texts that a format with UTF-8 only cannot hold."""
        texts: Sequence[str] = [*self.paths, *self.all_labels]
        if bad := next((text for text in texts if not _is_utf8(text)), None):
            raise UserError(f"{what} cannot hold {bad!r}, which is not valid UTF-8: rename it.")


def read_records(run: str | Path) -> RunRecords:
    """Read a finished run.

    Args:
        run: its folder.
    """
    target = read_review_target(run)
    corrections = read_corrections(target)[0]
    data = ReportData(target.run)
    table, stored = data.predictions, target.run.probabilities
    suggested = {str(one["id"]): one["name"] for one in data.described_categories if one["name"]}
    shape = (len(table), len(data.classes))
    return RunRecords(
        name=target.run.path.absolute().name,
        classes=data.classes,
        paths=table.paths,
        labels=table.labels,
        confidence=table.confidence,
        unknown_score=table.unknown_score,
        doubt=data.doubt,
        categories={image.path: image.label for image in target.categorized},
        category_names=suggested | corrections.names,
        corrections=corrections.labels,
        probabilities=read_probabilities(stored, shape) if stored.exists() else None,
        embedding=data.features.features if data.features else None,
    )


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
