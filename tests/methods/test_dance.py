"""DANCE: docs/methods/dance.md, its memory, its view of the target, its settings."""

import math

import pytest
import torch
import torch.nn.functional as F

from tests.methods.toys import FixedOutput, build, noise, predicted_labels, train
from unida.data.augmentations import EVAL_VIEW, WEAK_VIEW
from unida.losses import entropy_separation, neighbourhood_clustering
from unida.models.layers import MemoryBank
from unida.types import Sizes

IMAGES = torch.rand(4, 3, 16, 16)


def test_the_decisions_are_by_entropy_above_half_its_maximum() -> None:
    method = build("dance", Sizes(3, 40, 24, 6, 8))
    assert method.rho == pytest.approx(0.549306144, abs=1e-9)
    logits = torch.tensor([[2.0, 0, 0], [0, 0, 0], [0, 3, 0], [0, 0, 200]])
    method.prototypes = FixedOutput(logits)
    outputs = method.eval().predict(IMAGES)
    entropies = (outputs.unknown_score + method.rho).tolist()
    assert entropies[:2] == pytest.approx([0.665542683, 1.098582289], abs=4e-5)  # ε = 1e−5 in these
    assert entropies[3] == 0  # a probability of 0 is handled
    assert predicted_labels(outputs) == ["unknown", "unknown", 1, 2]


def test_the_losses_are_the_papers() -> None:
    method = build("dance", eta=0.3, rho=0.4, m=0.2, tau=0.1)
    train(method)  # to fill the memory
    batch = noise(method, 5)
    memory = method.memory.rows.clone()
    assert 0 < (memory.norm(dim=1) > 0).sum() < 24
    with torch.no_grad():
        terms = method.losses(batch)
        source = F.normalize(method.backbone(batch.source_views[0]))
        target = F.normalize(method.backbone(batch.target_views[0]))
        rows = F.normalize(method.prototypes.weight)
    logits = target @ rows.T / 0.1
    nc = neighbourhood_clustering(logits, target, memory, batch.target_index, 0.1)
    expected = {
        "ce": F.cross_entropy(source @ rows.T / 0.1, batch.source_labels),
        "nc": 0.3 * nc,
        "es": 0.3 * entropy_separation(logits, 0.4 * math.log(4), 0.2),
    }
    assert terms.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(terms[name], value)


def test_the_memory_holds_the_features_the_step_was_made_with() -> None:
    method = build("dance")
    assert method.memory.rows.shape == (24, 128)
    assert method.memory.rows.abs().sum() == 0
    batch = noise(method, 0)
    method.losses(batch)
    with torch.no_grad():
        expected = F.normalize(method.backbone(batch.target_views[0]))
        for p in method.parameters():
            p.add_(1)  # the optimiser's step comes before the memory's update
        method.after_step(batch)
    torch.testing.assert_close(method.memory.rows[batch.target_index], expected)
    others = torch.ones(24, dtype=torch.bool)
    others[batch.target_index] = False
    assert method.memory.rows[others].abs().sum() == 0
    assert "memory.rows" in method.state_dict()
    assert not method.memory.rows.requires_grad


def test_the_first_update_of_the_check_case() -> None:
    bank = MemoryBank(4, 3)
    features = torch.tensor([[1.0, 0.2, 0], [0.1, 1, 0.1]])
    bank.update(torch.tensor([0, 3]), features, momentum=0.9)  # first: no momentum
    torch.testing.assert_close(bank.rows[[0, 3]], F.normalize(features))
    assert bank.rows[[1, 2]].abs().sum() == 0


def test_momentum_keeps_a_part_of_what_is_remembered() -> None:
    methods = [build("dance", momentum=mu) for mu in (0.0, 0.9)]
    moved = []
    for method in methods:
        for step, seed in enumerate((0, 1)):
            batch = noise(method, seed)
            index = torch.arange(6)
            batch = type(batch)(**{**batch.__dict__, "target_index": index})
            before = method.memory.rows[index].clone()
            with torch.no_grad():
                method.losses(batch)
                method.after_step(batch)
            lengths = method.memory.rows[index].norm(dim=1)
            torch.testing.assert_close(lengths, torch.ones(6))
            if step == 1:
                moved.append((method.memory.rows[index] - before).norm())
    assert moved[1] < 0.3 * moved[0]


def test_every_parameter_learns_and_prototypes_keep_unit_length() -> None:
    method = build("dance")
    assert train(method) == {name for name, _ in method.named_parameters()}
    torch.testing.assert_close(method.prototypes.weight.norm(dim=1), torch.ones(4))


def test_two_classes_a_batch_of_one_class_and_a_target_of_one_batch() -> None:
    method = build("dance", Sizes(2, 40, 6, 6, 8))
    assert train(method) == {name for name, _ in method.named_parameters()}
    batch = noise(method, 0)
    batch.source_labels.fill_(1)
    terms = method.losses(batch)
    assert all(term.isfinite() for term in terms.values())
    assert terms["es"].item() == pytest.approx(-0.05 * 0.5)  # the margin covers everything


def test_the_target_s_view_is_the_source_s_or_as_released() -> None:
    assert build("dance").target_views == (WEAK_VIEW,)
    released = build("dance", target_view="centre")
    assert released.target_views == (EVAL_VIEW,)
    assert released.source_views == (WEAK_VIEW,)
    assert not EVAL_VIEW.flip
