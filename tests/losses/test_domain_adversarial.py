"""The weighted domain loss: docs/methods/uan.md, a slow copy, limits."""

import math

import pytest
import torch
from torch import Tensor

from unida.losses import domain_adversarial


def tensor(values: object) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


W_S_NORMALISED = [0, 1.097833818, 1.902166182]


W_T_NORMALISED = [2.684164065, 0.315835935, 0]


D_S, D_T = tensor([0.7, 0.6, 0.4]), tensor([0.3, 0.5, 0.8])


def test_the_adversarial_loss_of_methods() -> None:
    loss = domain_adversarial(
        D_S.logit(), D_T.logit(), tensor(W_S_NORMALISED), tensor(W_T_NORMALISED)
    )
    assert loss.item() == pytest.approx(1.160011248, abs=2e-9)


def slow_domain_adversarial(source: Tensor, target: Tensor, w_s: Tensor, w_t: Tensor) -> float:
    on_source = [-w * math.log(d) for w, d in zip(w_s.tolist(), source.tolist(), strict=True)]
    on_target = [-w * math.log(1 - d) for w, d in zip(w_t.tolist(), target.tolist(), strict=True)]
    return sum(on_source) / len(on_source) + sum(on_target) / len(on_target)


def test_the_loss_equals_a_slow_copy_and_its_gradient_the_finite_differences() -> None:
    g = torch.Generator().manual_seed(0)
    source, target, w_s, w_t = (
        torch.randn(n, generator=g, dtype=torch.float64) for n in (4, 6, 4, 6)
    )
    w_s, w_t = w_s.abs(), w_t.abs()
    slow = slow_domain_adversarial(source.sigmoid(), target.sigmoid(), w_s, w_t)
    assert domain_adversarial(source, target, w_s, w_t).item() == pytest.approx(slow, rel=1e-12)
    assert torch.autograd.gradcheck(
        lambda a, b: domain_adversarial(a, b, w_s, w_t),
        (source.requires_grad_(), target.requires_grad_()),
    )


def test_without_weights_every_image_counts_the_same() -> None:
    source, target = tensor([1.0, -2, 0.5]), tensor([0.3, -0.2])
    ones = domain_adversarial(source, target, torch.ones(3), torch.ones(2))
    assert domain_adversarial(source, target).item() == pytest.approx(ones.item())


def test_a_sure_discriminator_gives_finite_values_and_gradients() -> None:
    for size in [1e4, 1e30]:
        logits = torch.tensor([size, -size]).requires_grad_()
        loss = domain_adversarial(logits, logits)
        (gradient,) = torch.autograd.grad(loss, logits)
        assert loss.isfinite()
        assert gradient.isfinite().all()
