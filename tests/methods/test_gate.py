"""GATE: docs/methods/gate.md, who gets a gradient from what, edge cases, its settings."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import unida.methods.gate
from tests.methods.toys import FixedOutput, build, noise, predicted_labels, train
from unida.losses import subgraph_contrast
from unida.ops.random_walk import subgraph_means
from unida.types import Batch, Sizes

LOGITS = [[2.0, 0, -1, 0.5], [0.1, 0, -0.1, 1]]  # the last is the slot for unknown


def tensor(values: object) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


SOURCE = F.normalize(tensor([[1.0, 0], [0.9, 0.2], [0, 1]]))
TARGET = F.normalize(tensor([[1.0, 0.1], [0.1, 1], [-1, 0.2]]))


def six_points(step: int = 0, **settings: Any) -> tuple[Any, Batch]:
    """A method on the six points of docs/methods/tnt.md: its input is z itself."""
    method = build("gate", Sizes(3, 3, 3, 3, 8), width=2, **settings).double()
    method.backbone, method.neck = nn.Identity(), nn.Identity()
    numbers = torch.arange(3)
    return method, Batch(step, (SOURCE,), numbers, numbers, (TARGET,), numbers)


# --- predictions


def test_the_decisions_on_the_check_case_of_methods() -> None:
    method = build("gate", Sizes(3, 4, 4, 2, 8)).double()
    method.backbone, method.neck = nn.Identity(), nn.Identity()
    method.classifier = FixedOutput(tensor(LOGITS))
    outputs = method.predict(torch.zeros(2, 3))
    assert predicted_labels(outputs) == [0, "unknown"]
    assert outputs.unknown_score.tolist() == pytest.approx([-1.5, 0.9])
    torch.testing.assert_close(outputs.probs, tensor(LOGITS)[:, :3].softmax(1))


# --- the losses


def test_the_losses_of_the_check_case_of_methods() -> None:
    method = build("gate", Sizes(3, 4, 4, 2, 8), width=2).double()
    method.backbone, method.neck = nn.Identity(), nn.Identity()
    method.classifier = FixedOutput(tensor(LOGITS))
    numbers = torch.arange(2)
    views = (tensor([[1.0, 0], [0, 1]]),)
    terms = method.losses(Batch(0, views, torch.tensor([0, 1]), numbers, views, numbers))
    ce = F.cross_entropy(tensor(LOGITS), torch.tensor([0, 1])).item()
    assert terms["ce"].item() == pytest.approx(ce, rel=1e-12)
    assert terms["ent"].item() == pytest.approx(0.1 * 0.564465827, abs=1e-9)
    p = [0.158444710, 0.474536336]
    mix = -(math.log(p[0]) + math.log(p[1])) / 2
    assert terms["mix"].item() == pytest.approx(0.5 * mix, abs=1e-7)
    known = -(math.log(1 - p[0]) + math.log(1 - p[1])) / 2
    assert terms["energy"].item() == pytest.approx(0.1 * (known + mix), abs=1e-7)


def test_the_weights_of_the_alignment_are_round_trips_over_their_mean(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given: list[Tensor] = []

    def spy(d_s: Tensor, d_t: Tensor, w_s: Tensor, w_t: Tensor) -> Tensor:
        given.extend([w_s, w_t])
        return d_s.sum() + d_t.sum()

    monkeypatch.setattr(unida.methods.gate, "domain_adversarial", spy)
    method, batch = six_points()
    method.losses(batch)
    returns = tensor([0.505175118, 0.494145020, 0.998652839])
    torch.testing.assert_close(given[0], returns / returns.mean(), rtol=0, atol=1e-8)
    assert given[1].mean().item() == pytest.approx(1)
    assert not given[0].requires_grad
    assert not given[1].requires_grad


def test_the_contrast_is_of_the_subgraphs_of_anchors() -> None:
    method, batch = six_points(sub=1.0)
    found = method.losses(batch)["sub"]
    i, j = torch.tensor([0, 2]), torch.tensor([0, 1])  # docs/methods/gate.md
    expected = subgraph_contrast(subgraph_means(SOURCE, i, 4), subgraph_means(TARGET, j, 4))
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize(("step", "sign"), [(0, 0), (4, -1)])
def test_features_go_against_the_discriminator_more_and_more(step: int, sign: int) -> None:
    method = build("gate", adv=1.0, dropout=0.0)
    batch = noise(method, step)
    term = method.losses(batch)["adv"]
    weight = method.neck[0].weight
    (against,) = torch.autograd.grad(term, weight, retain_graph=True)
    if sign == 0:
        assert not against.any()
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(unida.methods.gate, "reverse_gradient", lambda z, strength: z)
        (along,) = torch.autograd.grad(method.losses(batch)["adv"], weight)
    strength = math.tanh(10 * step / method.sizes.steps / 2)
    torch.testing.assert_close(against, -strength * along, rtol=1e-3, atol=1e-6)


def test_made_up_unknowns_reach_the_features() -> None:
    method = build("gate", mix=1.0)
    term = method.losses(noise(method, 0))["mix"]
    (slope,) = torch.autograd.grad(term, method.neck[0].weight)
    assert slope.abs().sum() > 0


def test_mixtures_follow_the_global_draws() -> None:
    method = build("gate", dropout=0.0)
    batch = noise(method, 0)

    def mix(seed: int) -> float:
        torch.manual_seed(seed)
        return float(method.losses(batch)["mix"].item())

    assert mix(1) == mix(1) != mix(2)


# --- edge cases


def test_one_class_in_a_batch_has_no_mixtures() -> None:
    method = build("gate")
    batch = replace(noise(method, 0), source_labels=torch.full((6,), 2))
    terms = method.losses(batch)
    assert terms["mix"].item() == 0
    torch.stack(list(terms.values())).sum().backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in method.parameters())


def test_no_anchor_in_a_batch_has_no_contrast(monkeypatch: pytest.MonkeyPatch) -> None:
    absent = torch.zeros(0, dtype=torch.long)
    monkeypatch.setattr(unida.methods.gate, "anchor_pairs", lambda *_: (absent, absent))
    method = build("gate")
    terms = method.losses(noise(method, 0))
    assert terms["sub"].item() == 0
    torch.stack(list(terms.values())).sum().backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in method.parameters())


def test_small_sets_train() -> None:
    for sizes in [Sizes(2, 2, 2, 2, 3), Sizes(7, 9, 5, 3, 4)]:
        train(build("gate", sizes), 3)


def test_every_switch_trains() -> None:
    for settings in [
        {},
        {"r": 0, "n": 1, "tau": 0.02},
        {"r": 3, "n": 5, "tau": 10.0},
        {"beta": 0.1, "dropout": 0.0, "hidden": 8, "width": 4},
        {"mix": 0.0, "energy": 0.0, "sub": 0.0, "ent": 0.0},
    ]:
        method = build("gate", **settings)
        assert train(method, 2) == {name for name, _ in method.named_parameters()}


# --- settings


def test_it_is_declared_a_reconstruction() -> None:
    assert build("gate").about.spec == "reconstruction"
    assert not build("gate").about.transductive
    assert unida.methods.gate.__doc__ is not None
    assert "reconstruction" in unida.methods.gate.__doc__
