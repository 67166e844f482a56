"""`categories.csv` and `categories.json`: the novel categories of a run, written and read.

categories.csv    path, category, confidence: a row for each image that was called unknown
categories.json   how many categories there are, and the size, suggested name, representative
                  images, stability, nearest known class and odd images of each; in "tree", their
                  merges and splits (unida.discovery.tree), absent in files of earlier versions
"""

import dataclasses
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from unida.discovery.clustering import MIN_IMAGES, NO_CATEGORY
from unida.discovery.tree import GroupTree, to_json
from unida.errors import UserError
from unida.training.run_folder import RunFolder, write_lines, write_text
from unida.types import FloatArray, IntArray
from unida.utils.csv_files import csv_lines, read_csv

COLUMNS = ("path", "category", "confidence")


@dataclass(frozen=True)
class Suggestion:
    """A name for a category.

    Attributes:
        name: of the vocabulary; None for none of these.
        confidence: mean over the images of the probability of the name, or of none of these.
        resembles: the known class that the name is the same as or a synonym of, if any.
    """

    name: str | None
    confidence: float
    resembles: str | None = None


@dataclass(frozen=True)
class Categories:
    """Novel categories of N images that a run called unknown.

    Attributes:
        paths: files of the images.
        category: (N,), from 1 in falling size; 0 for none.
        confidence: (N,), how sure the category is; 0 for none.
        representatives: of each category, images that show it.
        names: of each category, a suggested name or None.
        low: lower end of the interval for the number of categories.
        high: upper end.
        algorithm: that found them.
        tree: over the images; None where it was not built.
        note: why the features do not support a number; empty where they do.
        suggestions: what the names come from; empty where none were asked for.
    """

    paths: list[str]
    category: IntArray
    confidence: FloatArray
    representatives: list[list[str]]
    names: list[str | None]
    low: int
    high: int
    algorithm: str
    tree: GroupTree | None = None
    note: str = ""
    suggestions: list[Suggestion] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.representatives)

    def save(self, run: RunFolder) -> None:
        """Write categories.csv and categories.json."""
        rows = (
            (path, "" if k == NO_CATEGORY else str(k), f"{confidence:.6f}")
            for path, k, confidence in zip(self.paths, self.category, self.confidence, strict=True)
        )
        write_lines(run.categories, csv_lines(COLUMNS, rows))
        write_text(run.category_summary, json.dumps(self._summary(), indent=2) + "\n")

    def _summary(self) -> dict[str, Any]:
        sizes = np.bincount(self.category, minlength=len(self) + 1)
        described = zip(self.representatives, self.names, strict=True)
        about = [self._about(k) for k in range(len(self))]
        tree = {"tree": to_json(self.tree, self.category)} if self.tree else {}
        return {
            "count": {
                "estimate": len(self),
                "low": self.low,
                "high": self.high,
                "supported": not self.note,
                "note": self.note,
            },
            "method": self.algorithm,
            "images": len(self.paths),
            "none_of_these": int(sizes[NO_CATEGORY]),
            "categories": [
                {"id": k, "size": int(sizes[k]), "name": name, "representatives": paths}
                | about[k - 1]
                | self._suggestion(k - 1)
                for k, (paths, name) in enumerate(described, 1)
            ],
            **tree,
        }

    def _about(self, k: int) -> dict[str, Any]:
        """Return what the tree says about the category of index k."""
        if not self.tree:
            return {}
        nearest = self.tree.known[k]
        return {
            "stability": round(self.tree.stability[k], 4),
            "nearest_known": dataclasses.asdict(nearest) if nearest else None,
            "odd": [self.paths[i] for i in self.tree.odd[k]],
        }

    def _suggestion(self, index: int) -> dict[str, Any]:
        """Return how sure a name is, where names were asked for."""
        if not self.suggestions:
            return {}
        one = self.suggestions[index]
        return {"name_confidence": round(one.confidence, 4), "name_resembles": one.resembles}

    def __str__(self) -> str:
        n = len(self.paths)
        if n < MIN_IMAGES:
            return f"{n} images were called unknown: at least {MIN_IMAGES} are needed."
        outside = int((self.category == NO_CATEGORY).sum())
        found = "one category" if len(self) == 1 else f"{len(self)} categories"
        if self.low != self.high:
            found += f" (between {self.low} and {self.high} are likely)"
        doubt = f"; the number is a guess: {self.note}" if self.note else ""
        return f"{found} among {n} images called unknown; {outside} images are in none{doubt}"


@dataclass(frozen=True)
class LabelledImage:
    """An image with a label found for it: the id of a category as text, or a predicted class."""

    path: str
    label: str
    confidence: float


def read_categories(path: Path) -> tuple[LabelledImage, ...]:
    """Read the images of categories.csv that are in a category, in their order."""
    rows = (row for row in read_csv(path, COLUMNS) if row["category"])
    try:
        return tuple(
            LabelledImage(row["path"], row["category"], float(row["confidence"])) for row in rows
        )
    except ValueError as error:
        raise UserError(f"{path} is damaged ({error}): write it again with `discover`.") from None
