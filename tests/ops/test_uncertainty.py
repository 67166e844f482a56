"""Entropy, energy and evidence: docs/methods/glc.md, tnt.md and gate.md, gradients, limits."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from tests.losses.examples import few
from unida.ops.uncertainty import dirichlet, energy, normalised_entropy
from unida.ops.uncertainty import dirichlet_uncertainty as uncertainty


def tensor(values: object) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def test_the_entropy_goes_from_0_to_1() -> None:
    for k in [2, 3, 200]:
        uniform, certain = torch.full((k,), 1 / k, dtype=torch.float64), torch.eye(k)[0].double()
        found = normalised_entropy(torch.stack([uniform, certain])[None])
        assert found.shape == (1, 2)
        assert found[0].tolist() == pytest.approx([1, 0], abs=1e-7)


def test_the_entropy_has_a_gradient_everywhere() -> None:
    logits = tensor([[2, 0, 0], [0.5, 1, -1]]).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: normalised_entropy(x.softmax(1)), logits)
    extreme = torch.tensor([[1e4, 0, -1e4]]).requires_grad_()
    (gradient,) = torch.autograd.grad(normalised_entropy(extreme.softmax(1)).sum(), extreme)
    assert gradient.isfinite().all()


def test_the_entropies_of_the_check_case() -> None:
    p = tensor([[2.0, 0.0, 0.0], [0.0, 0.0, 0.0]]).softmax(1)
    entropies = normalised_entropy(p, eps=1e-5).tolist()
    assert entropies == pytest.approx([0.605803057, 0.999972693], abs=1e-9)
    assert [e > 0.55 for e in entropies] == [True, True]


def test_energies_of_methods() -> None:
    assert energy(tensor([[2.0, 0, -1], [0.1, 0, -0.1]])).tolist() == pytest.approx(
        [-2.169846020, -1.101942848], abs=1e-9
    )


EVIDENCE = ("softplus", "exp", "relu")


seeds = st.integers(0, 2**31)


def alphas(seed: int, b: int = 4, k: int = 5) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    alpha = 1 + 5 * torch.rand(b, k, generator=g, dtype=torch.float64)
    return alpha.requires_grad_(), torch.randint(k, (b,), generator=g)


@pytest.mark.parametrize("evidence", EVIDENCE)
def test_gradient_of_the_evidence(evidence: str) -> None:
    logits = tensor([[2.0, 0.3, -1], [-0.2, 5, -7]]).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: uncertainty(dirichlet(x, evidence)), logits)  # type: ignore[arg-type]


@few
@given(seeds)
def test_uncertainty_lies_in_0_1_and_falls_with_evidence(seed: int) -> None:
    alpha, _ = alphas(seed)
    u = uncertainty(alpha)
    assert ((u > 0) & (u <= 1)).all()
    assert (uncertainty(alpha + 1) < u).all()
