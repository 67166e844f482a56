"""Outputs on many images: every image forwarded once, whatever the batch and whatever is kept."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.methods.toys import build
from tests.tasks import labelled
from unida.data.pixels import ArrayStore
from unida.decision import inference, refinement
from unida.decision.inference import fit_target, predict_batches, predict_images
from unida.decision.predictor import Predictor
from unida.types import Outputs, Scored

CPU = torch.device("cpu")
IMAGES, OF_SOURCE = (
    torch.randint(256, (n, 3, 16, 16), generator=torch.Generator().manual_seed(n)).byte()
    for n in (50, 20)
)
SOURCE = labelled(OF_SOURCE)


def scored(method: Any, **options: Any) -> Scored:
    return predict_images(Predictor(method), ArrayStore(IMAGES), 16, CPU, **options)


def assert_close(one: Scored, other: Scored) -> None:
    for name in ("probs", "unknown_score", "features"):
        np.testing.assert_allclose(getattr(one, name), getattr(other, name), atol=1e-5)


def test_the_batch_size_does_not_change_outputs(monkeypatch: pytest.MonkeyPatch) -> None:
    method = build("ovanet")
    whole = scored(method)
    monkeypatch.setattr(inference, "BATCH", 7)
    assert_close(scored(method), whole)
    assert whole.features.shape == (50, 128)
    assert whole.probs.dtype == whole.unknown_score.dtype == np.float64


def test_there_may_be_fewer_images_than_expected() -> None:
    method = build("ovanet")
    few = predict_batches(Predictor(method), iter(IMAGES[:20].split(8)), 50, 16, CPU)
    assert [len(x) for x in (few.probs, few.unknown_score, few.features)] == [20, 20, 20]
    np.testing.assert_allclose(few.probs, scored(method).probs[:20], atol=1e-5)


@pytest.mark.parametrize("name", ["ovanet", "uniot"])
def test_features_that_are_not_needed_are_not_kept(name: str) -> None:
    method = build(name)
    whole, lean = scored(method), scored(method, features=False)
    assert lean.features.shape == (50, 0)
    assert (lean.probs == whole.probs).all()
    assert (lean.unknown_score == whole.unknown_score).all()


def test_only_a_transductive_method_gets_all_outputs_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, shapes in (("ovanet", []), ("uniot", [(50, 256)])):
        method, recorded = build(name), []
        postprocess = method.postprocess

        def note(
            outputs: Outputs, of: Any = postprocess, recorded: list[Any] = recorded
        ) -> Outputs:
            recorded.append(tuple(outputs.features.shape))
            whole: Outputs = of(outputs)
            return whole

        monkeypatch.setattr(method, "postprocess", note)
        scored(method, features=False)
        assert recorded == shapes


@pytest.mark.parametrize("name", ["san", "uniot"])
@pytest.mark.parametrize("bank", [100, 20])
def test_a_fit_forwards_every_image_once(
    monkeypatch: pytest.MonkeyPatch, name: str, bank: int
) -> None:
    monkeypatch.setattr(refinement, "MAX_BANK", bank)
    monkeypatch.setattr(inference, "BATCH", 8)
    method, forwarded = build(name), []
    forward = method.backbone.forward

    def count(images: Tensor) -> Tensor:
        if images.ndim == 4:
            forwarded.append(len(images))
        features: Tensor = forward(images)
        return features

    monkeypatch.setattr(method.backbone, "forward", count)
    fitted = fit_target(method, ArrayStore(IMAGES), SOURCE, 16, "knn")
    assert sum(forwarded) == 50 + 20
    assert_close(fitted.classifier, scored(method))
    refined = predict_images(fitted.predictor, ArrayStore(IMAGES), 16, CPU)
    assert_close(fitted.refined, refined)
    assert (fitted.refined.unknown_score != fitted.classifier.unknown_score).any()


def test_without_refinement_both_outputs_are_one() -> None:
    fitted = fit_target(build("san"), ArrayStore(IMAGES), SOURCE, 16, "none", features=False)
    assert fitted.refined is fitted.classifier
    assert fitted.predictor.refiner is None
    assert fitted.classifier.features.shape == (50, 0)


@pytest.mark.parametrize("name", ["san", "source_only", "uniot"])
def test_rules_get_all_scores_and_features_of_the_kept_images(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(refinement, "MAX_BANK", 20)
    fitted = fit_target(build(name), ArrayStore(IMAGES), SOURCE, 16, "knn", features=False)
    outputs = fitted.outputs(fitted.refined)
    assert outputs.scores is fitted.refined.unknown_score
    of_backbone: list[Tensor] = []
    predict_images(fitted.predictor, ArrayStore(IMAGES), 16, CPU, of_backbone=of_backbone)
    kept = torch.cat(of_backbone)[fitted.sample]
    torch.testing.assert_close(fitted.features, kept, atol=1e-5, rtol=1e-4)
    is_rejected = outputs.scores > np.median(outputs.scores)
    assert outputs.compare is not None
    found = outputs.compare(is_rejected)
    described = fitted.reference.describe(kept)
    assert described is not None
    assert found == described.compare(torch.from_numpy(is_rejected)[fitted.sample])
    assert found is not None
    assert found.margin != 1
