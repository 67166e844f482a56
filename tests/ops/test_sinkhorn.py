"""Transport: docs/methods/uniot.md, slow copies of both scalings, the problem's own conditions."""

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from tests.losses.examples import few
from unida.ops.sinkhorn import (
    adaptive_filling,
    normalised_plan,
    pseudo_labels,
    sinkhorn,
    unbalanced_sinkhorn,
)

SCORES = [[0.9, 0.1], [0.8, 0.3], [0.2, 0.7], [0.1, 0.4]]
SIMILARITY = [[0.9, 0.1], [0.2, 0.8], [0.3, 0.35], [0.1, -0.2]]

seeds = st.integers(0, 2**31)


def tensor(values: object) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def draw(seed: int, n: int, k: int) -> Tensor:
    g = torch.Generator().manual_seed(seed)
    return 2 * torch.rand(n, k, generator=g, dtype=torch.float64) - 1


def unit(seed: int, n: int, width: int) -> Tensor:
    g = torch.Generator().manual_seed(seed)
    return F.normalize(torch.randn(n, width, generator=g, dtype=torch.float64))


def uniform(k: int) -> Tensor:
    return torch.full((k,), 1 / k, dtype=torch.float64)


# --- slow copies, on lists


def slow_sinkhorn(scores: list[list[float]], epsilon: float, rounds: int) -> list[list[float]]:
    n, k = len(scores), len(scores[0])
    q = [[math.exp(s / epsilon) for s in row] for row in scores]
    for _ in range(rounds):
        for j in range(k):
            mass = math.fsum(q[i][j] for i in range(n))
            for i in range(n):
                q[i][j] /= mass * k
        for i in range(n):
            mass = math.fsum(q[i])
            q[i] = [x / (mass * n) for x in q[i]]
    return [[n * x for x in row] for row in q]


def slow_unbalanced(s: list[list[float]], beta: list[float], rounds: int) -> list[list[float]]:
    n, k = len(s), len(s[0])
    kernel = [[math.exp(x / 0.01) for x in row] for row in s]
    u, v = [1 / n] * n, [1 / k] * k
    power = 0.5 / 0.51
    for _ in range(rounds):
        u = [(1 / n / math.fsum(kernel[i][j] * v[j] for j in range(k))) ** power for i in range(n)]
        v = [
            (beta[j] / math.fsum(kernel[i][j] * u[i] for i in range(n))) ** power for j in range(k)
        ]
    return [[u[i] * kernel[i][j] * v[j] for j in range(k)] for i in range(n)]


# --- the check cases of docs/methods/uniot.md


def test_sinkhorn_of_the_check_case() -> None:
    q = sinkhorn(tensor(SCORES))
    expected = tensor(
        [
            [0.999993082, 0.000006918],
            [0.997216917, 0.002783083],
            [7.385e-7, 0.999999261],
            [4.032e-5, 0.999959679],
        ]
    )
    torch.testing.assert_close(q[:3], expected[:3], rtol=0, atol=1e-9)
    assert q[3].tolist() == pytest.approx([4.032e-5, 0.999959679], abs=1.5e-9)
    assert q[2:, 0].tolist() == pytest.approx([7.385e-7, 4.032e-5], rel=1e-4)
    assert q.mean(0).tolist() == pytest.approx([0.499312765, 0.500687235], abs=1e-9)


def test_unbalanced_transport_of_the_check_case() -> None:
    plan = unbalanced_sinkhorn(tensor(SIMILARITY), tensor([0.5, 0.5]), stop=1e-6)
    assert plan.sum().item() == pytest.approx(1.897549, abs=5e-7)
    q = normalised_plan(tensor(SIMILARITY), tensor([0.5, 0.5]), stop=1e-6)
    torch.testing.assert_close(q, plan / plan.sum())
    expected = [[0.417726, 0], [0, 0.350289], [0.000351152, 0.144608], [0.087025, 0]]
    torch.testing.assert_close(q, tensor(expected), rtol=0, atol=5e-7)
    assert q[2, 0].item() == pytest.approx(0.000351152, abs=5e-10)
    tiny = [q[0, 1].item(), q[1, 0].item(), q[3, 1].item()]
    assert [f"{x:.0e}" for x in tiny] == ["2e-35", "1e-27", "2e-14"]
    assert q.sum(0).tolist() == pytest.approx([0.505103, 0.494897], abs=5e-7)


def test_the_decisions_of_the_check_case() -> None:
    q = normalised_plan(tensor(SIMILARITY), tensor([0.5, 0.5]), stop=1e-6)
    label, confident, kept = pseudo_labels(q)
    labels = [k if c else "unk" for k, c in zip(label.tolist(), confident.tolist(), strict=True)]
    assert labels == [0, 1, "unk", "unk"]
    assert kept.tolist() == [True, False, False, False]  # class 1 holds less than half


def test_the_filling_of_the_check_case() -> None:
    features = F.normalize(tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.1], [0.2, 1.0]]))
    draws = tensor([0.0, 0.3, 0.6, 0.9])  # one of each
    fill = adaptive_filling(features, torch.eye(2).double(), uniform(2), 0.7, draws)
    assert fill.shape == (4, 2)
    farthest = tensor([[0.0, 1.0], [1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
    torch.testing.assert_close(fill, F.normalize(features + farthest))


# --- the equations


def test_sinkhorn_is_the_scaling_of_both_sides() -> None:
    for n, k, rounds in [(1, 2, 3), (5, 3, 1), (7, 2, 3), (4, 6, 10)]:
        for seed in range(3):
            scores = draw(seed, n, k)
            slow = slow_sinkhorn(scores.tolist(), 0.05, rounds)
            torch.testing.assert_close(sinkhorn(scores, rounds=rounds), tensor(slow))


def test_unbalanced_transport_is_the_scaling_with_an_exponent() -> None:
    for n, k, rounds in [(1, 2, 5), (5, 3, 20), (6, 2, 100)]:
        for seed in range(3):
            similarity, beta = draw(seed, n, k), torch.softmax(draw(seed + 10, 1, k)[0], 0)
            slow = slow_unbalanced(similarity.tolist(), beta.tolist(), rounds)
            found = unbalanced_sinkhorn(similarity, beta, stop=0.0, rounds=rounds)
            torch.testing.assert_close(found, tensor(slow), rtol=1e-9, atol=0)


def test_the_plan_is_where_the_objective_is_least() -> None:
    similarity, beta = draw(0, 4, 3), tensor([0.5, 0.3, 0.2])
    plan = unbalanced_sinkhorn(similarity, beta, reg=0.2, stop=0.0, rounds=2000).requires_grad_()
    rows, columns = plan.sum(1), plan.sum(0)
    entropy = (plan * (plan.log() - 1)).sum()  # against ones: what docs/methods/uniot.md fixes

    def kl(a: Tensor, b: Tensor) -> Tensor:
        return (a * (a / b).log() - a + b).sum()

    objective = -(plan * similarity).sum() + 0.2 * entropy
    objective = objective + 0.5 * (kl(rows, uniform(4)) + kl(columns, beta))
    (slope,) = torch.autograd.grad(objective, plan)
    assert slope.abs().max() < 1e-9


def test_the_stop_is_at_the_first_small_change() -> None:
    similarity, beta = tensor(SIMILARITY), uniform(2)
    loose = unbalanced_sinkhorn(similarity, beta, stop=1e-4)
    assert loose.sum().item() == pytest.approx(1.897371, abs=5e-5)  # POT ends after 222 rounds
    assert torch.equal(loose, unbalanced_sinkhorn(similarity, beta, stop=0, rounds=230))


@few
@given(seeds, st.permutations(range(5)), st.permutations(range(3)))
def test_the_order_does_not_matter(seed: int, images: list[int], classes: list[int]) -> None:
    s, beta = draw(seed, 5, 3), torch.softmax(draw(seed + 1, 1, 3)[0], 0)
    torch.testing.assert_close(sinkhorn(s[images][:, classes]), sinkhorn(s)[images][:, classes])
    shuffled = normalised_plan(s[images][:, classes], beta[classes])
    torch.testing.assert_close(shuffled, normalised_plan(s, beta)[images][:, classes])


@few
@given(seeds, st.floats(-5, 5))
def test_targets_are_distributions_and_a_constant_does_not_matter(seed: int, c: float) -> None:
    s = draw(seed, 6, 4)
    q = sinkhorn(s)
    torch.testing.assert_close(q.sum(1), torch.ones(6).double())
    torch.testing.assert_close(sinkhorn(s + c), q, rtol=1e-6, atol=1e-12)


# --- numbers, edges


def test_targets_carry_no_gradient_and_keep_their_type() -> None:
    s = draw(0, 6, 4).float().requires_grad_()
    for q in (sinkhorn(s), normalised_plan(s, uniform(4).float())):
        assert q.dtype == torch.float32
        assert not q.requires_grad


def test_float32_loses_little() -> None:
    s, beta = draw(1, 50, 8), uniform(8)
    torch.testing.assert_close(sinkhorn(s.float()).double(), sinkhorn(s), rtol=0, atol=1e-4)
    low, high = normalised_plan(s.float(), beta.float()), normalised_plan(s, beta)
    torch.testing.assert_close(low.double(), high, rtol=0, atol=1e-5)


def test_equal_similarities_are_handled() -> None:
    for value in [-1.0, 0.0, 1.0]:
        s = torch.full((6, 3), value)
        torch.testing.assert_close(sinkhorn(s), torch.full((6, 3), 1 / 3))
        torch.testing.assert_close(
            normalised_plan(s, uniform(3).float()), torch.full((6, 3), 1 / 18)
        )


def test_extreme_similarities_are_handled() -> None:
    s = torch.tensor([[1.0, -1.0, -1.0], [-1.0, 1.0, -1.0], [-1.0, -1.0, -1.0]])
    for q in (sinkhorn(s), sinkhorn(1e4 * s), normalised_plan(s, uniform(3).float())):
        assert q.isfinite().all()
        assert (q >= 0).all()


def test_a_class_without_mass_gets_none() -> None:
    q = normalised_plan(draw(0, 6, 3), tensor([0.5, 0.5, 0.0]))
    assert q[:, 2].sum() == 0
    assert q.sum().item() == pytest.approx(1)


def test_a_kernel_beyond_float64_is_refused() -> None:
    with pytest.raises(ValueError, match=r"reg is 0\.001; 0\.005 or more"):
        unbalanced_sinkhorn(draw(0, 2, 2), uniform(2), reg=0.001)


def test_a_row_with_just_its_share_is_not_confident() -> None:
    label, confident, kept = pseudo_labels(tensor([[0.5, 0.0], [0.25, 0.25]]))
    assert label[0] == 0
    assert confident.tolist() == [False, False]
    assert kept.tolist() == [False, False]


# --- filling


def test_with_few_known_rows_confident_ones_are_copied() -> None:
    prototypes = torch.eye(3).double()
    features = F.normalize(tensor([[1.0, 0, 0], [0.6, 0.5, 0.6], [0.5, 0.6, 0.6], [-1, -1, -1]]))
    fill = adaptive_filling(features, prototypes, uniform(3), 0.7, tensor([0.0, 0.5, 0.9, 0.99]))
    similarity = features @ prototypes.T
    kept = pseudo_labels(normalised_plan(similarity, uniform(3)))[2]
    assert fill.shape == (2, 3)  # 1 known, 3 unknown
    assert 0 < kept.sum() < 4
    rows = similarity[kept].tolist()
    assert all(row in rows for row in fill.tolist())


def test_where_none_is_confident_nothing_is_copied() -> None:
    features = tensor([[0.0, 1.0]]).expand(4, 2)  # the same cosine with both prototypes
    prototypes = F.normalize(tensor([[1.0, 0.1], [-1.0, 0.1]]))
    fill = adaptive_filling(features, prototypes, uniform(2), 0.7, torch.rand(4))
    assert fill.shape == (0, 2)


def test_where_known_and_unknown_balance_nothing_is_added() -> None:
    features = F.normalize(tensor([[1.0, 0.0], [-1.0, -1.0]]))
    fill = adaptive_filling(features, torch.eye(2).double(), uniform(2), 0.7, torch.rand(2))
    assert fill.shape == (0, 2)


@few
@given(seeds, st.integers(1, 30), st.floats(-1, 1))
def test_the_filling_evens_out_what_it_can(seed: int, n: int, gamma: float) -> None:
    features, prototypes = unit(seed, n, 4), unit(seed + 1, 3, 4)
    draws = torch.rand(n, generator=torch.Generator().manual_seed(seed))
    fill = adaptive_filling(features, prototypes, uniform(3), gamma, draws)
    n_known = int(((features @ prototypes.T).amax(1) > gamma).sum())
    allowed = {abs(2 * n_known - n)} | ({0} if 2 * n_known <= n else set())
    assert len(fill) in allowed
    assert fill.isfinite().all()
    assert (fill.abs() <= 1 + 1e-6).all()


def test_draws_up_to_one_pick_existing_rows() -> None:
    features = F.normalize(torch.tensor([[1.0, 0.0]])).expand(5, 2)
    almost = torch.full((5,), 1 - 2**-24)
    fill = adaptive_filling(features, torch.eye(2), uniform(2).float(), 0.7, almost)
    assert fill.shape == (5, 2)


def test_made_up_rows_in_chunks_are_the_plain_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    features, prototypes, draws = unit(0, 40, 6), unit(1, 5, 6), torch.rand(40)
    plain = adaptive_filling(features, prototypes, uniform(5), -0.9, draws)
    monkeypatch.setattr("unida.ops.chunked.MAX_ENTRIES", 20)  # three rows at a time
    assert len(plain) == 40
    torch.testing.assert_close(
        adaptive_filling(features, prototypes, uniform(5), -0.9, draws), plain
    )


def test_what_is_worked_on_in_place_is_a_copy() -> None:
    similarity, beta = draw(0, 9, 4), uniform(4)
    before = similarity.clone(), beta.clone()
    sinkhorn(similarity)
    unbalanced_sinkhorn(similarity, beta)
    assert similarity.equal(before[0])
    assert beta.equal(before[1])
