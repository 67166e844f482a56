"""Which images are offered first."""

from pathlib import Path

import numpy as np
import pytest

from tests.report.made_up import make_run
from unida.errors import UserError
from unida.review.budget import choose_images, rank_images
from unida.review.corrections import CorrectionStore, read_review_target
from unida.training.predictions import read_predictions
from unida.training.run_folder import RunFolder


def test_categories_classes_and_the_threshold_take_turns() -> None:
    labels = np.array([0, 0, 0, 1, 1, 2, 2, 2, 2])  # 2 stands for unknown
    doubt = np.array([0.1, 0.9, 0.2, 0.3, 0.8, 0.0, 0.1, 0.7, 0.2])
    distance = np.array([9, 1, 8, 7, 2, 6, 5, 3, 4.0])
    order = rank_images(labels, doubt, distance, [[6, 8], [5]])
    # a category, the most doubtful of the largest class, the nearest to the threshold; then the next
    # category, the most doubtful of a class that was not shown, the nearest that was not taken
    assert order[:6] == [6, 7, 1, 5, 4, 8]
    assert sorted(order) == list(range(9))
    assert rank_images(labels, doubt, distance, [])[:2] == [7, 1]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return make_run(tmp_path_factory.mktemp("budget"), pictures=True)


def test_a_small_budget_has_every_category_and_is_part_of_a_larger_one(run: RunFolder) -> None:
    some, more = choose_images(run.path, 12), choose_images(run.path, 20)
    assert more[:12] == some
    assert len(set(more)) == 20
    table = read_predictions(run.predictions)
    label = dict(zip(table.paths, table.labels, strict=True))
    assert len({label[path] for path in more}) >= 4
    assert choose_images(run.path, 10**6, on_page=True)[:20] == more
    assert sorted(choose_images(run.path, 10**6)) == sorted(table.paths)


def test_corrected_images_are_not_offered_again(run: RunFolder, tmp_path: Path) -> None:
    first = choose_images(run.path, 3)
    store = CorrectionStore(read_review_target(run.path))
    store.save({"names": {}, "labels": dict.fromkeys(first, "apple")})
    try:
        assert not set(first) & set(choose_images(run.path, 10))
    finally:
        store.save({"names": {}, "labels": {}})


def test_a_budget_is_a_number_of_images(run: RunFolder) -> None:
    with pytest.raises(UserError, match="budget is 0; allowed: 1 or more"):
        choose_images(run.path, 0)
