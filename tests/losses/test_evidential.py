"""Evidential losses: docs/methods/tnt.md, slow copies, limits, gradients."""

import math
from itertools import product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from tests.losses.examples import few
from unida.losses import evidential, evidential_kl, uncertainty_separation
from unida.ops.uncertainty import dirichlet
from unida.ops.uncertainty import dirichlet_uncertainty as uncertainty

LOGITS = [[2.0, 0, -1], [0, 0, 0]]


LABELS = [0, 2]


EVIDENCE = ("softplus", "exp", "relu")


FORMS = ("digamma", "log", "squared")


seeds = st.integers(0, 2**31)


def tensor(values: object) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def alphas(seed: int, b: int = 4, k: int = 5) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    alpha = 1 + 5 * torch.rand(b, k, generator=g, dtype=torch.float64)
    return alpha.requires_grad_(), torch.randint(k, (b,), generator=g)


def each(alpha: Tensor, form: str) -> list[float]:
    """The loss of every sample of the check case on its own."""
    return [
        evidential(alpha[i : i + 1], torch.tensor([y]), form).item()  # type: ignore[arg-type]
        for i, y in enumerate(LABELS)
    ]


def penalties(alpha: Tensor) -> list[float]:
    return [evidential_kl(alpha[i : i + 1], torch.tensor([y])).item() for i, y in enumerate(LABELS)]


def test_softplus_evidence_of_methods() -> None:
    alpha = dirichlet(tensor(LOGITS))
    expected = [[3.126928011, 1.693147181, 1.313261688], [1.693147181] * 3]
    torch.testing.assert_close(alpha, tensor(expected), rtol=0, atol=1e-9)
    assert uncertainty(alpha).tolist() == pytest.approx([0.489130152, 0.590616109], abs=1e-9)
    assert each(alpha, "log") == pytest.approx([0.673687898, 1.098612289], abs=1e-9)
    assert each(alpha, "digamma") == pytest.approx([0.758297610, 1.320449956], abs=1e-9)
    assert each(alpha, "squared") == pytest.approx([0.448964473, 0.776325862], abs=1e-9)
    assert penalties(alpha) == pytest.approx([0.140663935, 0.194664402], abs=1e-9)


def test_exp_evidence_of_methods() -> None:
    alpha = dirichlet(tensor(LOGITS), "exp")
    assert uncertainty(alpha).tolist() == pytest.approx([0.255168533, 0.5], abs=1e-9)
    assert each(alpha, "digamma") == pytest.approx([0.355168682, 1.283333333], abs=1e-9)
    assert penalties(alpha) == pytest.approx([0.230181331, 0.318239983], abs=1e-9)


def test_relu_evidence_of_methods() -> None:
    alpha = dirichlet(tensor(LOGITS), "relu")
    assert uncertainty(alpha).tolist() == pytest.approx([0.6, 1], abs=1e-9)
    assert each(alpha, "digamma") == pytest.approx([0.583333333, 1.5], abs=1e-9)
    assert penalties(alpha) == pytest.approx([0, 0], abs=1e-12)


def test_the_loss_is_the_mean_over_the_batch() -> None:
    alpha = dirichlet(tensor(LOGITS))
    for form in FORMS:
        found = evidential(alpha, torch.tensor(LABELS), form).item()  # type: ignore[arg-type]
        assert found == pytest.approx(sum(each(alpha, form)) / 2, rel=1e-12)
    found = evidential_kl(alpha, torch.tensor(LABELS)).item()
    assert found == pytest.approx(sum(penalties(alpha)) / 2, rel=1e-12)


def test_the_forms_are_expectations_under_the_dirichlet() -> None:
    alpha, y = tensor([[2.5, 1.2, 4.0]]), 2
    torch.manual_seed(0)
    p = torch.distributions.Dirichlet(alpha[0]).sample((200_000,))
    label = torch.tensor([y])
    mean_log = -p[:, y].log().mean().item()
    assert evidential(alpha, label).item() == pytest.approx(mean_log, abs=0.01)
    of_mean = -p[:, y].mean().log().item()
    assert evidential(alpha, label, "log").item() == pytest.approx(of_mean, abs=0.01)
    squares = (tensor([0, 0, 1]) - p).square().sum(1).mean().item()
    assert evidential(alpha, label, "squared").item() == pytest.approx(squares, abs=0.01)


def test_the_penalty_is_the_divergence_torch_finds() -> None:
    for seed in range(3):
        alpha, labels = alphas(seed)
        with torch.no_grad():
            wrong = alpha.clone()
            for i, y in enumerate(labels.tolist()):
                wrong[i, y] = 1
            flat = torch.distributions.Dirichlet(torch.ones_like(wrong))
            kl = torch.distributions.kl_divergence(torch.distributions.Dirichlet(wrong), flat)
        assert evidential_kl(alpha, labels).item() == pytest.approx(kl.mean().item(), rel=1e-9)


@few
@given(seeds)
def test_the_log_form_bounds_the_digamma_form_from_below(seed: int) -> None:
    alpha, labels = alphas(seed)
    assert evidential(alpha, labels, "log").item() <= evidential(alpha, labels).item() + 1e-12


@pytest.mark.parametrize("form", FORMS)
def test_gradient_of_the_loss(form: str) -> None:
    alpha, labels = alphas(1)
    assert torch.autograd.gradcheck(lambda a: evidential(a, labels, form), alpha)  # type: ignore[arg-type]


def test_gradient_of_the_penalty() -> None:
    alpha, labels = alphas(2)
    assert torch.autograd.gradcheck(lambda a: evidential_kl(a, labels), alpha)


def test_float32_stays_finite() -> None:
    for size, evidence, form in product([0.0, 1.0, 50.0, 1e4, 1e30], EVIDENCE, FORMS):
        corners = torch.tensor([[1.0, -1.0], [-1.0, -1.0], [1.0, 1.0], [-1.0, 1.0]])
        logits = (size * corners).requires_grad_()
        alpha = dirichlet(logits, evidence)  # type: ignore[arg-type]
        labels = torch.tensor([0, 0, 1, 0])
        loss = evidential(alpha, labels, form) + evidential_kl(alpha, labels)  # type: ignore[arg-type]
        (found,) = torch.autograd.grad(loss + uncertainty(alpha).sum(), logits)
        assert loss.isfinite()
        assert found.isfinite().all()


def test_relu_evidence_is_dead_below_zero() -> None:
    logits = torch.tensor([[-1.0, -2.0]], requires_grad=True)
    alpha = dirichlet(logits, "relu")
    (found,) = torch.autograd.grad(evidential(alpha, torch.tensor([0])), logits)
    assert uncertainty(alpha).item() == 1
    assert not found.any()


def test_a_wrong_name_is_refused() -> None:
    with pytest.raises(ValueError, match="evidence is 'tanh'; allowed: softplus, exp, relu"):
        dirichlet(tensor(LOGITS), "tanh")  # type: ignore[arg-type]
    alpha, labels = alphas(0)
    with pytest.raises(ValueError, match="form is 'cubed'; allowed: digamma, log, squared"):
        evidential(alpha, labels, "cubed")  # type: ignore[arg-type]


def slow_away(u: list[float], delta: list[float], m: float, counts: list[bool]) -> float:
    gaps = [max(abs(a - b), m) for a, b, c in zip(u, delta, counts, strict=True) if c]
    return -math.fsum(gaps) / len(gaps)


def test_away_from_the_threshold() -> None:
    u, delta = [0.2, 0.55, 0.9, 0.4], [0.5, 0.5, 0.6, 0.1]
    counts = [True, True, True, False]
    at = tensor(u).requires_grad_()
    found = uncertainty_separation(at, tensor(delta), tensor(0.1), torch.tensor(counts))
    assert found.item() == pytest.approx(slow_away(u, delta, 0.1, counts), rel=1e-12)
    (slope,) = torch.autograd.grad(found, at)
    # Below goes down, within the margin stays, above goes up, what does not count stays.
    assert slope.tolist() == pytest.approx([1 / 3, 0, -1 / 3, 0])


def test_away_from_the_threshold_gives_the_thresholds_no_gradient() -> None:
    delta, m = tensor([0.5]).requires_grad_(), tensor(0.1).requires_grad_()
    found = uncertainty_separation(tensor([0.2]).requires_grad_(), delta, m, torch.tensor([True]))
    grads = torch.autograd.grad(found, [delta, m], allow_unused=True)
    assert grads == (None, None)


def test_an_empty_mask_has_loss_zero() -> None:
    u = tensor([0.2, 0.8]).requires_grad_()
    found = uncertainty_separation(u, tensor([1.0, 1]), tensor(0.0), torch.tensor([False, False]))
    (slope,) = torch.autograd.grad(found, u)
    assert found.item() == 0
    assert not slope.any()


def test_gradient_of_away_from_the_threshold() -> None:
    u = tensor([0.2, 0.55, 0.9]).requires_grad_()
    counts = torch.tensor([True, True, False])
    delta, m = tensor([0.5, 0.5, 0.6]), tensor(0.1)
    assert torch.autograd.gradcheck(lambda x: uncertainty_separation(x, delta, m, counts), u)
