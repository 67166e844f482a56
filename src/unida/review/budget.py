"""Which images a person with little time should label first.

Three lists are taken in turn: images that show a discovered category, one of each, largest first;
the most doubtful image of each predicted class; and the images nearest to the threshold. A second
round takes the second image of each. Images whose label was corrected already are left out. No
label of the target is used but those corrections.
"""

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from unida.errors import require
from unida.report.data import ReportData
from unida.review.corrections import read_corrections, read_review_target
from unida.types import FloatArray, IntArray


def choose_images(run: str | Path, budget: int, on_page: bool = False) -> list[str]:
    """Return the paths of the target images to label first, the most useful one first.

    Args:
        run: folder of a finished run.
        budget: images that a person has time for; fewer are returned where there are no more.
        on_page: choose among the images that the report shows; it has a part of a large target.
    """
    require(budget >= 1, "budget", budget, "1 or more")
    target = read_review_target(run)
    labelled = read_corrections(target)[0].labels
    data = ReportData(target.run)
    row = {path: i for i, path in enumerate(data.predictions.paths)}
    found = (one["representatives"] for one in data.described_categories)
    shown = [[row[path] for path in paths if path in row] for paths in found]
    distance = np.abs(data.predictions.unknown_score - data.threshold)
    order = rank_images(data.labels, data.doubt, distance, shown)
    allowed = set(data.target_rows.tolist() if on_page else order)
    paths = (data.predictions.paths[i] for i in order if i in allowed)
    return list(itertools.islice((path for path in paths if path not in labelled), budget))


def rank_images(
    labels: IntArray, doubt: FloatArray, distance: FloatArray, shown: Sequence[Sequence[int]]
) -> list[int]:
    """Return all images in the order in which their labels are wanted.

    Args:
        labels: (N,), predicted labels.
        doubt: (N,), of the predictions.
        distance: (N,), of the unknown score from the threshold.
        shown: of each category, the images that show it, the best one first.
    """
    classes, sizes = np.unique(labels, return_counts=True)
    of_class = [np.flatnonzero(labels == k) for k in classes[np.argsort(-sizes, kind="stable")]]
    doubtful = [rows[np.argsort(-doubt[rows], kind="stable")].tolist() for rows in of_class]
    nearest = np.argsort(distance, kind="stable").tolist()
    return _in_turn([list(_in_turn(shown)), list(_in_turn(doubtful)), nearest])


def _in_turn(lists: Sequence[Sequence[int]]) -> list[int]:
    """Take the first of each list, then the next of each; one that was taken counts no more."""
    taken: dict[int, None] = {}
    waiting: list[Iterator[int]] = [iter(one) for one in lists]
    while waiting:
        for one in list(waiting):
            if (new := next((i for i in one if i not in taken), None)) is None:
                waiting.remove(one)
            else:
                taken[new] = None
    return list(taken)
