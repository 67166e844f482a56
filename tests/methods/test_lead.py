"""LEAD: docs/methods/lead.md, its second stage uses no source, its pseudo labels and certainty."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from tests.methods.test_glc import BEGIN, SIZES, do_steps, extract, refreshed
from tests.methods.toys import build, noise
from unida.errors import UserError
from unida.losses import soft_cross_entropy, space_separation
from unida.ops.decomposition import RATIOS, decomposition_labels, space_norms
from unida.ops.knn import knn_probs
from unida.ops.pseudo_labels import soft_targets


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> list[tuple[float, ...]]:
    """Candidates of each search of C_t, which takes seconds and is spared."""
    found: list[tuple[float, ...]] = []

    def search(features: object, n_classes: int, ratios: tuple[float, ...]) -> float:
        found.append(ratios)
        return 1.0

    monkeypatch.setattr("unida.methods.lead.estimate_class_ratio", search)
    return found


def made(**settings: Any) -> Any:
    return build("lead", SIZES, **({"width": 8} | settings))


@pytest.mark.usefixtures("searches")
def test_the_second_stage_needs_no_source_and_leaves_the_classifier() -> None:
    method = made()
    do_steps(method, range(BEGIN))
    before = [p.clone() for p in method.classifier.parameters()]
    reached = do_steps(method, range(BEGIN, SIZES.steps), blind=True)
    for one, other in zip(before, method.classifier.parameters(), strict=True):
        torch.testing.assert_close(one, other)
    assert not any(name.startswith("classifier") for names in reached for name in names)
    assert any(name.startswith("neck") for name in reached[0])


@pytest.mark.usefixtures("searches")
def test_pseudo_labels_are_those_of_the_decomposition() -> None:
    for released in (False, True):
        method = refreshed(made(released_weights=released))
        rows = F.normalize(extract("target", method.eval().neck))
        expected = decomposition_labels(
            rows, method.bank_probs, method.classifier.weight, 1.0, certain=not released
        )
        assert method.labels.equal(expected[0])
        torch.testing.assert_close(method.certainty, expected[1])


@pytest.mark.usefixtures("searches")
def test_the_losses_are_the_released_ones() -> None:
    method = refreshed(made(lambda_psd=2.0))
    batch = noise(method, BEGIN)
    with torch.no_grad():
        found = method.losses(batch)
        e = method.neck(method.backbone(batch.target_views[0]))
        p, unit = method.classifier(e).softmax(1), F.normalize(e)
        labels, w = (x[batch.target_index] for x in (method.labels, method.certainty))
        y_hat = soft_targets(labels, 4) * w[:, None]
        q_bar = knn_probs(unit, method.bank.rows, method.bank_probs, 4)
        norms = space_norms(unit, method.classifier.weight)
        lr = method._lr_factor(BEGIN)
    torch.testing.assert_close(found["psd"], lr * 2 * soft_cross_entropy(p, y_hat))
    torch.testing.assert_close(found["knn"], lr * soft_cross_entropy(p, q_bar))
    torch.testing.assert_close(found["reg"], lr * space_separation(*norms, labels == 4, w))
    assert found["ce"] == 0


def test_the_number_of_classes_is_searched_every_ten_epochs(
    searches: list[tuple[float, ...]],
) -> None:
    method = made()
    method.begin, method.refresh_every = 0, 1
    for step in range(12):
        refreshed(method, step)
    assert searches == [RATIOS, RATIOS]


def test_there_must_be_room_for_an_unknown_space() -> None:
    with pytest.raises(UserError, match="width is 4; allowed: more than 4"):
        made(width=4)
