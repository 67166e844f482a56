"""Outputs of many images: as of one batch, and no more of them kept than is wanted."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.methods.toys import build
from unida.data.pixels import ArrayStore
from unida.decision.inference import predict_batches, predict_images
from unida.types import Outputs, Scored

CPU = torch.device("cpu")
IMAGES = torch.randint(
    256, (50, 3, 16, 16), generator=torch.Generator().manual_seed(0), dtype=torch.uint8
)


def scored(method: Any, **options: Any) -> Scored:
    return predict_images(method, ArrayStore(IMAGES), 16, CPU, **options)


def test_batches_do_not_show() -> None:
    method = build("ovanet")
    whole, parts = scored(method), scored(method, batch=7)
    for name in ("probs", "unknown_score", "features"):
        np.testing.assert_allclose(getattr(parts, name), getattr(whole, name), atol=1e-5)
    assert whole.features.shape == (50, 128)
    assert whole.probs.dtype == whole.unknown_score.dtype == np.float64


def test_there_may_be_fewer_images_than_expected() -> None:
    method = build("ovanet")
    few = predict_batches(method, iter(IMAGES[:20].split(8)), 50, 16, CPU)
    assert [len(x) for x in (few.probs, few.unknown_score, few.features)] == [20, 20, 20]
    np.testing.assert_allclose(few.probs, scored(method).probs[:20], atol=1e-5)


@pytest.mark.parametrize("name", ["ovanet", "uniot"])
def test_features_nobody_wants_are_not_kept_and_nothing_else_changes(name: str) -> None:
    method = build(name)
    whole, lean = scored(method), scored(method, features=False)
    assert lean.features.shape == (50, 0)
    kept: Any = lean.features.base  # the tensor it is a view of
    assert kept.untyped_storage().nbytes() == 0
    assert (lean.probs == whole.probs).all()
    assert (lean.unknown_score == whole.unknown_score).all()


def test_only_a_verdict_on_the_whole_set_gets_features_nobody_wants(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, width in (("ovanet", 0), ("uniot", 256)):
        method, seen = build(name), []
        judge = method.postprocess

        def noting(outputs: Outputs, judge: Any = judge, seen: list[Tensor] = seen) -> Outputs:
            seen.append(outputs.features)
            judged: Outputs = judge(outputs)
            return judged

        monkeypatch.setattr(method, "postprocess", noting)
        scored(method, features=False)
        assert [x.shape for x in seen] == [(50, width)]
