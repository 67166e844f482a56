"""The unknown logit: docs/methods/gate.md, identities, limits."""

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from tests.losses.examples import few
from unida.losses import energy_margin, unknown_entropy
from unida.ops.uncertainty import energy

seeds = st.integers(0, 2**31)


def tensor(values: object) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


LOGITS, UNKNOWN = tensor([[2.0, 0, -1], [0.1, 0, -0.1]]), tensor([0.5, 1])


def draw(seed: int, b: int = 4, k: int = 3) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(b, k, generator=g, dtype=torch.float64)
    unknown = 2 * torch.randn(b, generator=g, dtype=torch.float64)
    return logits.requires_grad_(), unknown.requires_grad_()


def test_the_probability_of_the_slot_of_methods() -> None:
    """ℓ_u + E is its log-odds, with the cross-entropy over all slots to match."""
    p = (UNKNOWN + energy(LOGITS)).sigmoid()
    assert p.tolist() == pytest.approx([0.158444710, 0.474536336], abs=1e-9)
    joint = torch.cat([LOGITS, UNKNOWN[:, None]], 1)
    torch.testing.assert_close(joint.softmax(1)[:, -1], p)
    ce = F.cross_entropy(joint, torch.tensor([0, 3])).item()
    assert ce == pytest.approx(0.543883334, abs=1e-9)


def test_entropies_of_methods() -> None:
    each = [unknown_entropy(LOGITS[i : i + 1], UNKNOWN[i : i + 1]).item() for i in range(2)]
    assert each == pytest.approx([0.437081830, 0.691849823], abs=1e-9)
    assert unknown_entropy(LOGITS, UNKNOWN).item() == pytest.approx(0.564465827, abs=1e-9)


@few
@given(seeds)
def test_the_margin_is_the_cross_entropy_of_the_open_decision(seed: int) -> None:
    logits, unknown = draw(seed)
    p_u = torch.cat([logits, unknown[:, None]], 1).softmax(1)[:, -1]
    torch.testing.assert_close(
        energy_margin(logits, unknown, known=True), -(1 - p_u).log().mean(), rtol=1e-9, atol=1e-9
    )
    torch.testing.assert_close(
        energy_margin(logits, unknown, known=False), -p_u.log().mean(), rtol=1e-9, atol=1e-9
    )


def test_gradients() -> None:
    at = draw(1)
    assert torch.autograd.gradcheck(unknown_entropy, at)
    for known in (True, False):
        assert torch.autograd.gradcheck(lambda x, u, k=known: energy_margin(x, u, known=k), at)


def test_float32_stays_finite() -> None:
    for size in [0.0, 1.0, 100.0, 1e4, 1e30]:
        logits = (size * torch.tensor([[1.0, -1.0], [-1.0, -1.0], [1.0, 1.0]])).requires_grad_()
        unknown = (size * torch.tensor([-1.0, 1.0, 1.0])).requires_grad_()
        entropy = unknown_entropy(logits, unknown)
        margins = [energy_margin(logits, unknown, known=known) for known in (True, False)]
        slopes = torch.autograd.grad(entropy + sum(margins), [logits, unknown])
        assert -1e-6 <= entropy.item() <= math.log(2) + 1e-6
        assert all(x.isfinite().all() for x in (*margins, *slopes))


@few
@given(seeds)
def test_the_entropy_lies_between_nothing_and_one_bit(seed: int) -> None:
    assert 0 <= unknown_entropy(*draw(seed)).item() <= math.log(2)
