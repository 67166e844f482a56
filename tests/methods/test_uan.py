"""UAN: docs/methods/uan.md, who gets a gradient from what, its switches, its settings."""

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import unida.methods.uan
from tests.methods.toys import FixedOutput, build, noise, predicted_labels
from unida.losses import domain_adversarial
from unida.models.layers import Discriminator, reversal_strength
from unida.types import Batch, Sizes

LOGITS = [[2.0, 0, 0], [0, 0, 0], [1, 1, -1]]


def tensor(values: object) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


class OutputsInTurn(nn.Module):
    """Replaces a discriminator; returns the output for the source, then for the target."""

    def __init__(self, *probabilities: list[float]) -> None:
        super().__init__()
        self.logits = [tensor(p).logit() for p in probabilities]

    def forward(self, x: Tensor) -> Tensor:
        return self.logits.pop(0)


def check_case(**settings: Any) -> dict[str, Tensor]:
    """The losses of docs/methods/uan.md: parts of the network are replaced by their outputs."""
    method = build("uan", Sizes(3, 40, 24, 3, 8), **settings)
    method.backbone, method.bottleneck, method.classifier = (nn.Identity() for _ in range(3))
    method.auxiliary = OutputsInTurn([0.9, 0.5, 0.2], [0.9, 0.5, 0.2])
    method.adversary = OutputsInTurn([0.7, 0.6, 0.4], [0.3, 0.5, 0.8])
    views = (tensor(LOGITS),)
    labels = torch.tensor([0, 1, 2])
    return method.losses(Batch(0, views, labels, labels, views, labels))


def test_the_losses_of_methods() -> None:
    terms = check_case()
    assert terms["ce"].item() == pytest.approx(1.365593577, abs=1e-9)
    assert terms["adversarial"].item() == pytest.approx(1.160011248, abs=2e-9)
    of_domains = sum(-math.log(d) - math.log(1 - d) for d in (0.9, 0.5, 0.2)) / 3
    assert terms["auxiliary"].item() == pytest.approx(of_domains, rel=1e-12)
    assert check_case(lam=0.5)["adversarial"].item() == pytest.approx(1.160011248 / 2, abs=2e-9)


def test_the_released_loss_of_methods_takes_two_softmaxes() -> None:
    assert check_case(double_softmax=True)["ce"].item() == pytest.approx(1.061335946, abs=1e-9)


def test_the_decisions_of_methods() -> None:
    method = build("uan", Sizes(3, 40, 24, 3, 8))
    method.classifier = FixedOutput(tensor(LOGITS))
    method.auxiliary = FixedOutput(tensor([0.9, 0.5, 0.2]).logit())
    outputs = method.eval().predict(torch.rand(3, 3, 16, 16))
    w_t = [0.294169637, -0.500000000, -0.605909019]
    assert (-0.5 - outputs.unknown_score).tolist() == pytest.approx(w_t, abs=1e-9)
    assert predicted_labels(outputs) == [0, 0, "unknown"]
    assert outputs.features.shape == (3, 256)


def test_the_reversal_rises_as_in_the_released_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """2,500 steps are 5,000 calls; Office-31 has 20,000 steps."""
    recorded: list[float] = []
    monkeypatch.setattr(
        unida.methods.uan, "reverse_gradient", lambda x, strength: recorded.append(strength) or x
    )
    method = build("uan", Sizes(4, 40, 24, 6, 20_000))
    for step in (0, 500, 2500):
        method.losses(noise(method, step))
    assert recorded[::2] == pytest.approx([0, 0.462117157, 0.986614298], abs=1e-9)
    assert recorded[1::2] == recorded[::2]  # source and target
    assert reversal_strength(1e6) == 1


def gradients(method: Any, term: str, step: int = 8) -> dict[str, Tensor]:
    torch.manual_seed(0)  # dropout
    method.zero_grad()
    method.losses(noise(method, step))[term].backward()
    return {n: p.grad.clone() for n, p in method.named_parameters() if p.grad is not None}


def parts(names: dict[str, Tensor]) -> set[str]:
    return {name.partition(".")[0] for name, grad in names.items() if grad.abs().sum() > 0}


def test_each_loss_reaches_the_parts_it_should() -> None:
    method = build("uan").train()
    assert parts(gradients(method, "ce")) == {"backbone", "bottleneck", "classifier"}
    assert parts(gradients(method, "auxiliary")) == {"auxiliary"}
    # The weights of the adversarial loss are numbers: no classifier, no D'.
    assert parts(gradients(method, "adversarial")) == {"backbone", "bottleneck", "adversary"}
    assert parts(gradients(method, "adversarial", step=0)) == {"adversary"}


def test_the_features_go_against_the_adversary(monkeypatch: pytest.MonkeyPatch) -> None:
    method = build("uan", ramp=0.5).train()
    turned = gradients(method, "adversarial", step=2)
    monkeypatch.setattr(unida.methods.uan, "reverse_gradient", lambda x, strength: x)
    straight = gradients(method, "adversarial", step=2)
    strength = math.tanh(10 * 2 / (0.5 * 8) / 2)
    for name, gradient in straight.items():
        factor = 1 if name.startswith("adversary") else -strength
        torch.testing.assert_close(turned[name], factor * gradient, atol=1e-6, rtol=1e-3)


def test_one_class_in_a_batch_and_two_classes_at_all_are_handled() -> None:
    method = build("uan", Sizes(2, 40, 24, 6, 8)).train()
    batch = noise(method, 3)
    batch.source_labels.zero_()
    assert all(term.isfinite() for term in method.losses(batch).values())


# --- the discriminator


def test_a_discriminator_gives_one_logit_an_image() -> None:
    net = Discriminator(6, 8, dropout=0.5)
    assert net(torch.randn(5, 6)).shape == (5,)
    assert [type(layer) for layer in net][:4] == [nn.Linear, nn.ReLU, nn.Dropout, nn.Linear]
    shapes = [tuple(p.shape) for p in net.parameters()]
    assert shapes == [(8, 6), (8,), (8, 8), (8,), (1, 8), (1,)]
    normed = Discriminator(6, 8, batch_norm=True)
    assert [type(layer) for layer in normed][:3] == [nn.Linear, nn.BatchNorm1d, nn.ReLU]


def test_a_discriminator_learns_to_separate_domains() -> None:
    torch.manual_seed(0)
    net = Discriminator(2, 16)
    source, target = torch.randn(64, 2) + 2, torch.randn(64, 2) - 2
    optimizer = torch.optim.Adam(net.parameters(), 0.01)
    for _ in range(50):
        optimizer.zero_grad()
        domain_adversarial(net(source), net(target)).backward()
        optimizer.step()
    assert (net(source) > 0).float().mean() > 0.95  # positive is source
    assert (net(target) < 0).float().mean() > 0.95
    assert F.sigmoid(net(torch.tensor([[3.0, 3.0]]))).item() > 0.9


# --- settings
