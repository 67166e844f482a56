"""DCC's losses: docs/methods/dcc.md, slow copies of the equations, limits."""

import math
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from tests.losses import slow
from unida.losses import contrastive_domain_discrepancy, memory_contrast
from unida.losses.dcc import _distances
from unida.ops.consensus import update_centres

S = [[0.0, 0.0], [0.0, 1.0], [3.0, 0.0], [3.0, 1.0]]


T = [[0.5, 0.0], [0.5, 1.0], [2.5, 0.0], [2.5, 1.0]]


FEATURES, IDS = [[0.8, 0.6], [1.0, 0.2], [0.1, 0.9]], [0, 0, 1]


def tensor(values: object) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def draw(seed: int, *shape: int) -> Tensor:
    g = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=g, dtype=torch.float64)


def slow_bandwidth(s: slow.Rows, t: slow.Rows) -> float:
    rows = [*s, *t]
    total = sum(slow.distance(a, b) for a in rows for b in rows)
    n_s, n_t = len(s), len(t)
    return total / (n_s**2 + n_t**2 + 2 * n_s * n_t - n_s - n_t)


def slow_mmd(s: slow.Rows, t: slow.Rows, g: float) -> float:
    def mean(a: slow.Rows, b: slow.Rows) -> float:
        values = []
        for x in a:
            for y in b:
                for r in range(5):
                    scale = max(g * 2.0 ** (r - 2), 1e-5)
                    values.append(math.exp(-min(max(slow.distance(x, y) / scale, 1e-5), 1e5)))
        return sum(values) / (len(a) * len(b))

    return mean(s, s) + mean(t, t) - 2 * mean(s, t)


def slow_cdd(
    s: slow.Rows, t: slow.Rows, blocks: int, c: int, gs: Sequence[Sequence[float]] | None = None
) -> float:
    """`gs` may be given, since no gradient goes through the bandwidths."""
    q = len(s) // blocks
    intra = inter = 0.0
    for a in range(blocks):
        for b in range(blocks):
            s_a, t_b = s[a * q : a * q + q], t[b * q : b * q + q]
            mmd = slow_mmd(s_a, t_b, slow_bandwidth(s_a, t_b) if gs is None else gs[a][b])
            if a == b:
                intra += mmd / c
            elif c > 1:
                inter += mmd / (c * (c - 1))
    return intra - inter


def bandwidths(s: slow.Rows, t: slow.Rows, blocks: int) -> list[list[float]]:
    q = len(s) // blocks
    cut = range(0, len(s), q)
    return [[slow_bandwidth(s[a : a + q], t[b : b + q]) for b in cut] for a in cut]


def test_cdd_is_the_check_case_of_methods() -> None:
    s, t = tensor(S), tensor(T)
    first, second = (
        contrastive_domain_discrepancy(a[:2], b[:2], 1) for a, b in ((s, t), (s.flip(0), t))
    )
    assert first.item() == pytest.approx(1.875394426, abs=1e-9)  # the diagonal of mmd
    assert second.item() == pytest.approx(5.724539183, abs=1e-9)  # and off it
    assert contrastive_domain_discrepancy(s, t, 2).item() == pytest.approx(-3.849144757, abs=1e-9)


def test_cdd_divides_by_the_matched_classes_as_released() -> None:
    cdd = contrastive_domain_discrepancy(tensor(S), tensor(T), 2, n_classes=3).item()
    assert cdd == pytest.approx(1.250262950 - 1.908179728, abs=2e-9)
    assert cdd == pytest.approx(-0.657916777, abs=1e-9)


@pytest.mark.parametrize(("blocks", "q", "width", "c"), [(1, 3, 2, 1), (2, 2, 3, 2), (3, 2, 2, 5)])
def test_cdd_is_the_equation(blocks: int, q: int, width: int, c: int) -> None:
    s, t = draw(0, blocks * q, width), draw(9, blocks * q, width) + 0.5
    s.requires_grad_()
    t.requires_grad_()
    cdd = contrastive_domain_discrepancy(s, t, blocks, c)
    rows_s, rows_t = slow.rows(s), slow.rows(t)
    assert cdd.item() == pytest.approx(slow_cdd(rows_s, rows_t, blocks, c), rel=1e-10)
    gs = bandwidths(rows_s, rows_t, blocks)
    found = torch.autograd.grad(cdd, (s, t))
    by_steps = (
        slow.slope(lambda x: slow_cdd(slow.rows(x), rows_t, blocks, c, gs), s),
        slow.slope(lambda x: slow_cdd(rows_s, slow.rows(x), blocks, c, gs), t),
    )
    for a, b in zip(found, by_steps, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-8)


def test_cdd_of_one_class_has_no_second_term() -> None:
    s, t = draw(0, 4, 3), draw(1, 4, 3)
    assert contrastive_domain_discrepancy(s, s, 1).item() == pytest.approx(0, abs=1e-12)
    assert contrastive_domain_discrepancy(s, t, 1).item() > 0
    released = contrastive_domain_discrepancy(s, t, 2, n_classes=1)  # repeated slots of one class
    same = sum(contrastive_domain_discrepancy(s[i : i + 2], t[i : i + 2], 1) for i in (0, 2))
    torch.testing.assert_close(released, same)


def test_cdd_falls_as_domains_meet_and_classes_part() -> None:
    s, t = tensor(S), tensor(T)
    values = [
        contrastive_domain_discrepancy(s, s + x * (t - s), 2).item() for x in (0.0, 0.5, 1.0, 1.5)
    ]
    assert values == sorted(values)


def test_the_order_of_blocks_does_not_matter() -> None:
    s, t = draw(2, 6, 3), draw(3, 6, 3)
    order = [4, 5, 0, 1, 2, 3]
    torch.testing.assert_close(
        contrastive_domain_discrepancy(s[order], t[order], 3),
        contrastive_domain_discrepancy(s, t, 3),
    )


def test_cdd_and_its_gradient_are_finite() -> None:
    for size in [0.0, 1e-20, 1e-3, 1.0, 1e4, 1e9]:
        s, t = (size * draw(seed, 6, 3).float() for seed in (0, 1))
        s.requires_grad_()
        cdd = contrastive_domain_discrepancy(s, t, 3)
        (found,) = torch.autograd.grad(cdd, s)
        assert cdd.isfinite()
        assert found.isfinite().all()


def test_distances_of_a_row_to_itself_are_nothing() -> None:
    x = 1000 + torch.randn(5, 64, generator=torch.Generator().manual_seed(0))
    assert (_distances(x, x).diagonal() == 0).all()


def test_blocks_that_do_not_fit_are_refused() -> None:
    for s, t, blocks in ((4, 6, 2), (5, 5, 2), (4, 4, 0)):
        with pytest.raises(ValueError, match="the same shape"):
            contrastive_domain_discrepancy(draw(0, s, 2), draw(1, t, 2), blocks)


def test_the_memory_is_the_check_case_of_methods() -> None:
    centres, features, ids = tensor(torch.eye(2).tolist()), tensor(FEATURES), torch.tensor(IDS)
    moved = update_centres(centres, features, ids)
    expected = [[0.999359051, 0.035797879], [0.000675454, 0.999999772]]
    torch.testing.assert_close(moved, tensor(expected), rtol=0, atol=1e-9)
    unit = features / features.norm(dim=1, keepdim=True)
    b_0 = unit[:2].sum(0) / unit[:2].sum(0).norm()
    assert b_0[0].item() == pytest.approx(0.912906036, abs=1e-9)  # ω₀ = ⟨m₀, b₀⟩, m₀ = (1, 0)
    loss = memory_contrast(features, ids, moved)
    assert loss.item() == pytest.approx(0.035078976, abs=1e-9)


def test_the_memory_loss_has_the_right_gradient() -> None:
    centres = torch.nn.functional.normalize(draw(0, 4, 3))
    ids = torch.tensor([0, 3, 3])
    features = draw(1, 3, 3).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: memory_contrast(x, ids, centres, 0.1), features)
    assert torch.autograd.gradcheck(lambda x: memory_contrast(x, ids, centres, 0.7), features)


def test_the_length_of_a_feature_does_not_matter_to_the_memory_loss() -> None:
    centres, ids = torch.nn.functional.normalize(draw(0, 4, 3)), torch.tensor([0, 3, 3])
    x = draw(1, 3, 3)
    torch.testing.assert_close(
        memory_contrast(100 * x, ids, centres), memory_contrast(x, ids, centres)
    )
