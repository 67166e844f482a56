"""Refinement: fitted once on the target, stored with the model, applied to every image."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from tests.tasks import Task, assert_alike
from unida.decision import refinement
from unida.decision.knn import K, KNNSmoothing
from unida.decision.predictor import Predictor
from unida.decision.refinement import Refiner, bank_index, build_refiner, pack_outputs
from unida.model import load
from unida.pipeline import run
from unida.types import Outputs

N, M = 30, 12
"""Target and source images."""


def draw(n: int, width: int, seed: int = 0) -> Tensor:
    return torch.randn(n, width, generator=torch.Generator().manual_seed(seed))


def outputs(n: int, seed: int = 0, width: int = 5) -> Outputs:
    draws = torch.Generator().manual_seed(seed)
    return Outputs(
        torch.rand(n, 3, generator=draws).softmax(1),
        torch.randn(n, generator=draws),
        torch.randn(n, width, generator=draws),
    )


def rows(some: Outputs, index: Tensor) -> Outputs:
    return Outputs(some.probs[index], some.unknown_score[index], some.features[index])


TARGET, SOURCE = (outputs(N), draw(N, 7)), (outputs(M, seed=8), draw(M, 7, seed=9))


def smoothing(features: Tensor, values: Tensor, source: Tensor) -> tuple[KNNSmoothing, Tensor]:
    """A round by itself, and the smoothed values of the target."""
    knn = KNNSmoothing(N, features.shape[1], 4, K, M)
    return knn, knn.fit(features, values, source)


def two_rounds() -> tuple[Refiner, Outputs]:
    """A refiner of two rounds, and the refined outputs on its target."""
    refiner = Refiner(N, (5, 7), 3, K, M)
    return refiner, refiner.fit(TARGET, SOURCE)


def test_one_round_smooths_by_the_features_of_the_method() -> None:
    target, source, new = TARGET[0], SOURCE[0], outputs(4, seed=1)
    refiner = build_refiner("knn", N, M, target, target.features)
    assert refiner is not None
    assert refiner.config["widths"] == [5]  # they are the backbone's own
    refined = refiner.fit((target, target.features), (source, source.features))
    knn, smoothed = smoothing(target.features, pack_outputs(target), source.features)
    assert torch.equal(pack_outputs(refined), smoothed)
    found = refiner.transform(new, new.features)
    expected = knn.smooth(knn.normalise(new.features), pack_outputs(new))
    assert torch.equal(pack_outputs(found), expected)
    torch.testing.assert_close(found.probs.sum(1), torch.ones(4))
    assert torch.equal(found.features, new.features)


def test_the_second_round_smooths_the_first_by_the_backbone() -> None:
    refiner, refined = two_rounds()
    target, of_target = TARGET
    first, once = smoothing(target.features, pack_outputs(target), SOURCE[0].features)
    second, twice = smoothing(of_target, once, SOURCE[1])
    assert torch.equal(pack_outputs(refined), twice)
    new, of_new = outputs(4, seed=1), draw(4, 7, seed=2)
    expected = first.smooth(first.normalise(new.features), pack_outputs(new))
    expected = second.smooth(second.normalise(of_new), expected)
    assert torch.equal(pack_outputs(refiner.transform(new, of_new)), expected)


def test_target_images_are_refined_later_as_they_were_at_the_fit() -> None:
    refiner, refined = two_rounds()
    some = torch.tensor([3, 17])
    again = refiner.transform(rows(TARGET[0], some), TARGET[1][some])
    torch.testing.assert_close(pack_outputs(again), pack_outputs(refined)[some])


def test_an_image_among_source_images_keeps_its_outputs() -> None:
    """In both rounds: the source lies far from the target, and the new image within it."""
    far = outputs(M)
    source = Outputs(far.probs, far.unknown_score, draw(M, 5) + 9), draw(M, 7) + 9
    refiner = Refiner(N, (5, 7), 3, K, M)
    refiner.fit(TARGET, source)
    new = Outputs(far.probs[:1], far.unknown_score[:1], torch.full((1, 5), 9.0))
    found = refiner.transform(new, torch.full((1, 7), 9.0))
    assert torch.equal(pack_outputs(found), pack_outputs(new))


def test_there_is_none_for_none_and_for_one_image() -> None:
    assert build_refiner("none", N, M, *TARGET) is None
    assert build_refiner("knn", 1, M, outputs(1), draw(1, 7)) is None
    for n_target, n_source, k in ((3, 0, 2), (3, 2, 4), (3, M, K), (N, 0, K)):
        refiner = build_refiner("knn", n_target, n_source, *TARGET)
        assert refiner is not None
        assert refiner.config["k"] == k


def test_a_sample_of_a_large_target_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refinement, "MAX_BANK", 20)
    index = bank_index(50)
    assert len(set(index.tolist())) == 20
    target = outputs(50)
    refiner = build_refiner("knn", 50, M, target, target.features)
    assert refiner is not None
    kept = rows(target, index)
    refiner.fit((kept, kept.features), (SOURCE[0], SOURCE[0].features))
    assert refiner.rounds[0].bank.shape == (20 + M, 5)
    assert torch.equal(refiner.rounds[0].values, pack_outputs(kept))


@pytest.mark.parametrize("method", ["ovanet", "dance", "source_only", "uniot"])
def test_every_method_is_refined_by_default_and_the_model_keeps_it(
    digits: Task, out: Path, method: str
) -> None:
    result = run(digits.config(out, method=method, steps=10))
    target = result.target
    assert (target.scored.unknown_score != target.classifier.unknown_score).any()
    assert isinstance(result.model.predictor, Predictor)
    assert result.model.predictor.refiner is not None
    pictures = sorted(digits.target.rglob("*.png"))
    stored = load(out, "cpu").predict(pictures)
    assert_alike(stored, result.model.predict(pictures))
    for prediction, score in zip(stored, target.scored.unknown_score, strict=True):
        assert prediction.unknown_score == pytest.approx(score, rel=1e-3, abs=1e-4)
