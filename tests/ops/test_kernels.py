"""Squared distances and the t kernel: scipy's density, heights, limits."""

import math
from itertools import product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor

from tests.losses import slow
from tests.losses.examples import few
from unida.ops.kernels import squared_distances, t_kernel

seeds = st.integers(0, 2**31)


def tensor(values: object) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


@few
@given(seeds, st.integers(1, 4), st.integers(1, 5))
def test_squared_distances_are_sums_of_squares(seed: int, n: int, width: int) -> None:
    g = torch.Generator().manual_seed(seed)
    a = torch.randn(n, width, generator=g, dtype=torch.float64)
    b = torch.randn(n + 1, width, generator=g, dtype=torch.float64)
    expected = [[slow.distance(p, q) for q in b.tolist()] for p in a.tolist()]
    torch.testing.assert_close(squared_distances(a, b), tensor(expected))


@few
@given(seeds, st.floats(1e-3, 1e6))
def test_squared_distances_are_never_negative(seed: int, offset: float) -> None:
    a = offset + torch.randn(6, 16, generator=torch.Generator().manual_seed(seed))
    assert (squared_distances(a, a) >= 0).all()


def test_the_kernel_is_students_density_at_the_distance() -> None:
    for nu in [1.0, 10.0, 100.0]:
        distance = torch.linspace(0, 30, 50, dtype=torch.float64)
        expected = tensor(stats.t.pdf(distance.numpy(), nu))
        torch.testing.assert_close(t_kernel(distance.square(), nu), expected, rtol=1e-10, atol=0)


def test_the_heights_differ_by_a_factor_only() -> None:
    for nu in [1.0, 10.0, 100.0]:
        d2 = torch.linspace(0, 50, 20, dtype=torch.float64)
        assert t_kernel(d2[:1], nu, "unit").item() == 1
        assert t_kernel(d2[:1], nu).item() == pytest.approx(slow.height(nu), rel=1e-12)
        torch.testing.assert_close(t_kernel(d2, nu), slow.height(nu) * t_kernel(d2, nu, "unit"))


def test_the_kernel_falls_with_distance_to_zero() -> None:
    for height, nu in product(["pdf", "unit"], [10.0, 100.0]):
        d2 = torch.logspace(-6, 4, 60, dtype=torch.float64)
        kernel = t_kernel(d2, nu, height)  # type: ignore[arg-type]
        assert (kernel.diff() < 0).all()
        assert t_kernel(tensor([1e300, math.inf]), nu, height).tolist() == [0, 0]  # type: ignore[arg-type]


def test_the_kernel_is_gaussian_for_many_degrees_of_freedom() -> None:
    d2 = torch.linspace(0, 10, 20, dtype=torch.float64)
    torch.testing.assert_close(t_kernel(d2, 1e7, "unit"), (-d2 / 2).exp(), rtol=1e-5, atol=0)
    assert t_kernel(d2[:1], 1e7).item() == pytest.approx(1 / math.sqrt(2 * math.pi), rel=1e-6)
