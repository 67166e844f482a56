"""A model against labelled images: what is kept, ranked and written."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from tests.tasks import Task
from unida.decision.rejection import Rule
from unida.errors import UserError
from unida.evaluation.evaluate import (
    Evaluation,
    _refuse_near_misses,
    evaluate,
    rank,
    score_rule,
    to_json,
)
from unida.model import Model, load
from unida.types import Scored

RULE = Rule("own", 0.0, "")


@pytest.fixture(scope="module")
def model(finished_run: Path) -> Model:
    return load(finished_run, "cpu")


def made_up(labels: list[int], names: list[str]) -> Evaluation:
    """Two known classes; image i has the score i."""
    n = len(labels)
    probs = np.tile([0.9, 0.1], (n, 1))
    features = np.eye(max(n, 2), dtype=np.float32)[:n]
    scored = Scored(probs, np.arange(n, dtype=float), features)
    truth = np.array(labels, dtype=np.int64)
    return Evaluation({"own": score_rule(scored, RULE, truth)}, truth, scored, [], np.array(names))


def test_a_class_that_only_looks_like_a_known_one_is_refused() -> None:
    known = ("caf\u00e9", "cat", "Cat")  # of a model from Python, whose labels are told apart
    _refuse_near_misses(("cat", "Cat", "dog"), known, "here")
    for name in ("cafe\u0301", "c\u200bat", "CAT"):
        with pytest.raises(UserError, match="here has the class") as error:
            _refuse_near_misses(("cat", name), known, "here")
        assert ascii(name) in str(error.value)


def test_the_true_classes_of_unknown_images_are_kept(model: Model, digits: Task) -> None:
    found = evaluate(model, digits.target)
    assert len(found.true_classes) == len(found.labels) == 80
    for name, label in zip(found.true_classes, found.labels, strict=True):
        assert label == (int(name) if name in model.classes else 4)
    assert set(found.true_classes[found.labels == 4]) == {"8", "9"}


def test_the_ranking_needs_no_threshold() -> None:
    ranking = rank(made_up([0, 1, 2, 2], ["a", "b", "x", "y"]))
    assert ranking.auroc == 1
    assert ranking.oscr == ranking.closed == 0.5
    assert ranking.nmi == pytest.approx(1)


def test_what_has_no_image_is_undefined() -> None:
    for labels, names, undefined in (
        ([0, 1], ["a", "b"], {"auroc", "oscr", "nmi"}),
        ([2, 2], ["x", "x"], {"closed", "nmi"}),
    ):
        ranking = rank(made_up(labels, names))
        assert all(math.isnan(getattr(ranking, name)) for name in undefined)


def test_the_file_has_all_of_it_and_null_for_the_undefined(
    model: Model, digits: Task, tmp_path: Path
) -> None:
    content = json.loads(to_json(evaluate(model, digits.target), model, digits.target))
    assert content["classes"] == ["0", "1", "2", "3", "unknown"]
    assert content["ranking"].keys() == {"auroc", "oscr", "nmi", "closed", "best_threshold"}
    own = content["rules"]["own"]
    assert {"known", "unknown", "h", "h3"} <= own["scores"].keys()
    assert own["recalls"].keys() == {"0", "1", "2", "unknown"}
    assert [sum(row) for row in own["confusion"]] == [16, 16, 16, 0, 32]
    assert own["recalls"]["unknown"] == pytest.approx(own["scores"]["unknown"])
    nothing = content["rules"]["none"]["rule"]
    assert (nothing["threshold"], nothing["share"]) == ("inf", None)  # JSON has no infinity

    known = tmp_path / "known"
    known.mkdir()
    (known / "0").symlink_to(digits.target / "0")
    content = json.loads(to_json(evaluate(model, known), model, known))
    assert content["ranking"]["auroc"] is content["rules"]["own"]["scores"]["h3"] is None
