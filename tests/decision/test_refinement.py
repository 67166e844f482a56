"""Refinement: fitted once on the target, stored with the model, applied to every image."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.decision.test_knn import draw, in_loops
from tests.tasks import Task, assert_alike
from unida.decision import prototypes, refinement
from unida.decision.predictor import Predictor
from unida.decision.refinement import Refiner, bank_index, build_refiner, pack_outputs
from unida.model import load
from unida.pipeline import run
from unida.types import Outputs


def outputs(n: int, seed: int = 0, width: int = 5) -> Outputs:
    draws = torch.Generator().manual_seed(seed)
    return Outputs(
        torch.rand(n, 3, generator=draws).softmax(1),
        torch.randn(n, generator=draws),
        torch.randn(n, width, generator=draws),
    )


def rows(some: Outputs, index: Tensor) -> Outputs:
    return Outputs(some.probs[index], some.unknown_score[index], some.features[index])


def fitted(target: Outputs, y: Tensor, which: Any) -> Refiner:
    refiner = build_refiner(which, len(target.probs), target, y)
    assert refiner is not None
    refiner.fit(target, y)
    return refiner


def test_knn_smooths_by_the_features_of_the_method() -> None:
    target, new, y = outputs(30), outputs(4, seed=1), draw(30, 7)
    found = fitted(target, y, "knn").transform(new, draw(4, 7, seed=2))
    expected = in_loops(new.features, pack_outputs(new), target.features, pack_outputs(target), 6)
    torch.testing.assert_close(pack_outputs(found), expected)
    torch.testing.assert_close(found.probs.sum(1), torch.ones(4))
    assert torch.equal(found.features, new.features)


@pytest.mark.parametrize("of_target", [True, False])
def test_the_second_round_smooths_the_first_by_the_backbone(of_target: bool) -> None:
    target, y = outputs(30), draw(30, 7)
    some = torch.tensor([3, 17])
    new, of_new = (rows(target, some), y[some]) if of_target else (outputs(2, 1), draw(2, 7, 1))
    refiner = Refiner(30, (5, 7), 3, 4, prototypes=False)
    refiner.fit(target, y)
    z, values = target.features, pack_outputs(target)
    first = in_loops(z, values, z, values, 4)
    once = in_loops(new.features, pack_outputs(new), z, values, 4)
    expected = in_loops(of_new, once, y, first, 4)
    torch.testing.assert_close(pack_outputs(refiner.transform(new, of_new)), expected)


def test_features_that_are_the_backbone_s_own_need_one_round() -> None:
    target = outputs(30)
    refiner = build_refiner("prototypes,knn", 30, target, target.features)
    assert refiner is not None
    assert refiner.config["widths"] == [5]


def test_a_target_too_small_for_prototypes_gets_one_round_of_smoothing() -> None:
    target, y = outputs(30), draw(30, 7)
    refiner = fitted(target, y, "prototypes,knn")
    assert refiner.is_partial
    plain = fitted(target, y, "knn")
    for images, features in ((target, y), (outputs(4, seed=1), draw(4, 7, seed=1))):
        found, expected = (r.transform(images, features) for r in (refiner, plain))
        torch.testing.assert_close(pack_outputs(found), pack_outputs(expected))


def test_there_is_none_for_none_and_for_one_image() -> None:
    assert build_refiner("none", 30, outputs(30), draw(30, 7)) is None
    assert build_refiner("knn", 1, outputs(1), draw(1, 7)) is None
    small = build_refiner("knn", 3, outputs(3), draw(3, 7))
    assert small is not None
    assert small.config["k"] == 2


def test_a_sample_of_a_large_target_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refinement, "MAX_BANK", 20)
    index = bank_index(50)
    assert len(set(index.tolist())) == 20
    target = outputs(50)
    refiner = build_refiner("knn", 50, target, target.features)
    assert refiner is not None
    kept = rows(target, index)
    refiner.fit(kept, kept.features)
    assert refiner.rounds[0].bank.shape == (20, 5)
    assert torch.equal(refiner.rounds[0].values, pack_outputs(kept))


@pytest.mark.parametrize("method", ["ovanet", "dance", "source_only", "uniot"])
@pytest.mark.parametrize("which", ["knn", "prototypes,knn"])
def test_every_method_can_be_refined_and_the_model_keeps_it(
    digits: Task, out: Path, monkeypatch: pytest.MonkeyPatch, method: str, which: str
) -> None:
    monkeypatch.setattr(prototypes, "MIN_PER_CLASS", 0.1)
    result = run(digits.config(out, method=method, steps=10, refine=which))
    target = result.target
    assert (target.scored.unknown_score != target.classifier.unknown_score).any()
    assert isinstance(result.model.predictor, Predictor)
    refiner = result.model.predictor.refiner
    assert refiner is not None
    assert (refiner.prototypes is not None) == ("proto" in which)
    pictures = sorted(digits.target.rglob("*.png"))
    stored = load(out, "cpu").predict(pictures)
    assert_alike(stored, result.model.predict(pictures))
    for prediction, score in zip(stored, target.scored.unknown_score, strict=True):
        assert prediction.unknown_score == pytest.approx(score, rel=1e-3, abs=1e-4)


def test_auto_is_the_refinement_of_the_method(digits: Task, out: Path) -> None:
    for name, expected in (("san", "knn"), ("ovanet", None)):
        result = run(digits.config(out / name, method=name, steps=4))
        predictor = result.model.predictor
        assert isinstance(predictor, Predictor)
        assert (predictor.refiner is None) == (expected is None)
