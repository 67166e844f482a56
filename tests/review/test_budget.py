"""Which images are offered first."""

from pathlib import Path

import pytest

from tests.report.made_up import make_run
from unida.errors import UserError
from unida.review.budget import choose_images
from unida.review.corrections import CorrectionStore, read_review_target
from unida.training.predictions import read_predictions
from unida.training.run_folder import RunFolder


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return make_run(tmp_path, pictures=True)


def test_a_larger_draw_contains_a_smaller_one(run: RunFolder) -> None:
    some, more = choose_images(run.path, 12), choose_images(run.path, 20)
    assert more[:12] == some
    paths = read_predictions(run.predictions).paths
    assert sorted(choose_images(run.path, 10**6)) == sorted(paths)
    assert choose_images(run.path, 10**6) != paths
    assert choose_images(run.path, 20, on_page=True) == more  # a small target is there as a whole


def test_corrected_images_are_not_drawn_again(run: RunFolder) -> None:
    before = choose_images(run.path, 10)
    CorrectionStore(read_review_target(run.path)).save(
        {"names": {}, "labels": dict.fromkeys(before[:3], "apple")}
    )
    assert choose_images(run.path, 7) == before[3:]


def test_a_budget_is_a_number_of_images(run: RunFolder) -> None:
    with pytest.raises(UserError, match="budget is 0; allowed: 1 or more"):
        choose_images(run.path, 0)
