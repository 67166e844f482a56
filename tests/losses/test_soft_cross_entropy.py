"""Cross-entropy with soft targets: docs/methods/glc.md, a slow copy, limits."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.losses import slow
from unida.losses import soft_cross_entropy

LOGITS = [[2.0, 0.0, 0.0], [0.0, 0.0, 0.0]]


def tensor(values: object) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def unit(seed: int, n: int, width: int) -> Tensor:
    g = torch.Generator().manual_seed(seed)
    return F.normalize(torch.randn(n, width, generator=g, dtype=torch.float64))


def probs_of(seed: int, n: int, c: int) -> Tensor:
    g = torch.Generator().manual_seed(seed)
    return (2 * torch.randn(n, c, generator=g, dtype=torch.float64)).softmax(1)


def test_the_losses_of_the_check_case() -> None:
    p = tensor(LOGITS).softmax(1)
    onehot, uniform = tensor([1.0, 0.0, 0.0]) / 1.0001, torch.ones(3).double() / 3.0001
    psd = soft_cross_entropy(p, torch.stack([onehot, uniform]))
    assert psd.item() == pytest.approx(0.669026890, abs=1e-9)
    q_bar = tensor([[0.6, 0.2, 0.2], [0.3, 0.4, 0.3]])
    knn = soft_cross_entropy(p, q_bar)
    assert knn.item() == pytest.approx(1.069040938, abs=1e-9)


@pytest.mark.parametrize(("b", "c"), [(1, 2), (3, 4)])
def test_the_loss_has_the_equation_s_value_and_gradient(b: int, c: int) -> None:
    logits, t = unit(0, b, c).requires_grad_(), probs_of(1, b, c)

    def by_hand(logits: Tensor) -> float:
        total = 0.0
        for row, target in zip(logits.tolist(), t.tolist(), strict=True):
            mass = sum(math.exp(x) for x in row)
            pairs = zip(row, target, strict=True)
            total -= sum(y * math.log(math.exp(x) / mass + 1e-5) for x, y in pairs)
        return total / b

    loss = soft_cross_entropy(logits.softmax(1), t)
    assert loss.item() == pytest.approx(by_hand(logits), rel=1e-12)
    (found,) = torch.autograd.grad(loss, logits)
    torch.testing.assert_close(found, slow.slope(by_hand, logits), rtol=1e-6, atol=1e-8)
    assert torch.autograd.gradcheck(soft_cross_entropy, (probs_of(0, b, c).requires_grad_(), t))


def test_a_probability_of_zero_is_handled() -> None:
    logits = torch.tensor([[1e4, 0.0], [0.0, 1e4]], requires_grad=True)
    loss = soft_cross_entropy(logits.softmax(1), torch.tensor([[0.0, 1.0], [1.0, 0.0]]))
    loss.backward()
    assert loss.item() == pytest.approx(-math.log(1e-5), rel=1e-4)
    assert logits.grad is not None
    assert logits.grad.isfinite().all()
