"""Which images a person with little time should label first: a random draw.

A ranking by discovered category, predicted class and nearness to the threshold was measured
against it and was not shown to be better (`benchmarks/scripts/label_budget.py`). Labels of a random
draw also tell how often the model is right.
"""

import itertools
from pathlib import Path

import torch

from unida.errors import require
from unida.report.data import ReportData
from unida.review.corrections import read_corrections, read_review_target
from unida.utils.rng import generator


def choose_images(run: str | Path, budget: int, on_page: bool = False) -> list[str]:
    """Draw target images to label; the same run gives the same draw, a larger one contains it.

    Args:
        run: folder of a finished run.
        budget: images to draw, without those whose label was corrected already; fewer are returned
            where there are no more.
        on_page: draw from the images that the report shows; it has a part of a large target.
    """
    require(budget >= 1, "budget", budget, "1 or more")
    target = read_review_target(run)
    labelled = read_corrections(target)[0].labels
    data = ReportData(target.run)
    paths = data.target_paths if on_page else data.predictions.paths
    random = generator(data.config.optim.seed, "label budget")
    order = torch.randperm(len(paths), generator=random).tolist()
    left = (paths[i] for i in order if paths[i] not in labelled)
    return list(itertools.islice(left, budget))
