"""Mutual neighbours and the multi-sample contrast: METHODS.md §10.8, slow copies, empty cases."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from unida.losses import memory_pairs, multi_sample_contrast, mutual_neighbours, unseen

FORMS = ("log_of_sum", "mean_of_logs")


def tensor(values: object) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


SOURCE = F.normalize(tensor([[1.0, 0], [0.9, 0.2], [0, 1]]))
TARGET = F.normalize(tensor([[1.0, 0.1], [0.1, 1], [-1, 0.2]]))
POINTS = torch.cat([SOURCE, TARGET])
S1, T0, T1 = 1, 3, 4


def unit(seed: int, n: int, d: int = 3) -> Tensor:
    g = torch.Generator().manual_seed(seed)
    return F.normalize(torch.randn(n, d, generator=g, dtype=torch.float64))


def contrast(anchor: int, positives: list[int], form: str, tau: float = 0.1) -> float:
    """The loss of one of the six points, all others being candidates."""
    positive = torch.zeros(1, 6, dtype=torch.bool)
    positive[0, positives] = True
    allowed = torch.ones(1, 6, dtype=torch.bool)
    allowed[0, anchor] = False
    at = POINTS[anchor : anchor + 1]
    return multi_sample_contrast(at, POINTS, positive, allowed, tau, form).item()  # type: ignore[arg-type]


def slow_mutual(here: Tensor, there: Tensor, k: int, within: bool) -> list[list[bool]]:
    """k-NN lists in both directions, one dot product at a time."""

    def nearest(a: Tensor, i: int, b: Tensor) -> set[int]:
        others = [j for j in range(len(b)) if not (within and j == i)]
        return set(sorted(others, key=lambda j: -float(a[i] @ b[j]))[:k])

    return [
        [j in nearest(here, i, there) and i in nearest(there, j, here) for j in range(len(there))]
        for i in range(len(here))
    ]


# --- the check cases of METHODS.md §10.8


def test_mutual_pairs_of_methods() -> None:
    numbers = torch.arange(3)
    forth = mutual_neighbours(SOURCE, TARGET, 1, index=numbers, own=SOURCE)
    back = mutual_neighbours(TARGET, SOURCE, 1, index=numbers, own=TARGET)
    assert forth.nonzero().tolist() == [[0, 0], [2, 1]]
    assert back.T.equal(forth)


@pytest.mark.parametrize("form", FORMS)
def test_one_positive_of_methods(form: str) -> None:
    assert contrast(T0, [0], form) == pytest.approx(0.682895740, abs=1e-9)
    assert contrast(T1, [2], form) == pytest.approx(0.001690998, abs=1e-9)


def test_two_positives_of_methods() -> None:
    assert contrast(T0, [0, S1], "log_of_sum") == pytest.approx(0.000239809, abs=1e-9)
    assert contrast(T0, [0, S1], "mean_of_logs") == pytest.approx(0.693442607, abs=1e-9)


# --- neighbours


@pytest.mark.parametrize("k", [1, 2, 5, 30])
@pytest.mark.parametrize("seed", range(3))
def test_neighbours_across_are_the_lists_both_ways(seed: int, k: int) -> None:
    here, there = unit(seed, 12), unit(seed + 100, 9)
    found = mutual_neighbours(here, there, k, index=torch.arange(12), own=here)
    assert found.tolist() == slow_mutual(here, there, k, within=False)


@pytest.mark.parametrize("k", [1, 2, 5, 30])
@pytest.mark.parametrize("seed", range(3))
def test_neighbours_within_are_the_lists_both_ways(seed: int, k: int) -> None:
    here = unit(seed, 12)
    found = mutual_neighbours(here, here, k, index=torch.arange(12))
    assert found.tolist() == slow_mutual(here, here, k, within=True)
    assert not found.diagonal().any()


def test_a_batch_asks_for_its_own_rows_only() -> None:
    here, there = unit(0, 12), unit(1, 9)
    rows = torch.tensor([7, 2, 7])
    everything = mutual_neighbours(here, there, 3, index=torch.arange(12), own=here)
    found = mutual_neighbours(here[rows], there, 3, index=rows, own=here)
    assert found.equal(everything[rows])


def test_an_anchor_stands_for_its_row_in_the_memory() -> None:
    """The memory's row of the anchor may be old, or not be there yet."""
    here, there, row = unit(0, 6), unit(1, 5), torch.tensor([4])
    fresh = mutual_neighbours(here[row], there, 2, index=row, own=here)
    for old in (torch.zeros(3), -here[4]):
        memory = here.clone()
        memory[4] = old
        assert mutual_neighbours(here[row], there, 2, index=row, own=memory).equal(fresh)


@pytest.mark.parametrize("k", [1, 4])
def test_rows_not_seen_are_nobodys_neighbours_and_nobodys_rivals(k: int) -> None:
    here, there = unit(0, 8), unit(1, 7)
    holes_here, holes_there = here.clone(), there.clone()
    holes_here[5:], holes_there[3:] = 0, 0
    rows = torch.arange(5)
    across = mutual_neighbours(here[:5], holes_there, k, index=rows, own=holes_here)
    assert across[:, :3].tolist() == slow_mutual(here[:5], there[:3], k, within=False)
    assert not across[:, 3:].any()
    within = mutual_neighbours(here[:5], holes_here, k, index=rows)
    assert within[:, :5].tolist() == slow_mutual(here[:5], here[:5], k, within=True)
    assert not within[:, 5:].any()


def test_an_empty_memory_has_no_neighbours() -> None:
    nothing = torch.zeros(6, 3, dtype=torch.float64)
    rows = torch.arange(4)
    assert not mutual_neighbours(unit(0, 4), nothing, 5, index=rows).any()
    assert not mutual_neighbours(unit(0, 4), nothing, 5, index=rows, own=nothing).any()
    assert unseen(nothing).all()
    assert not unseen(unit(0, 4)).any()


def test_pairs_of_two_memories() -> None:
    here, there = unit(0, 8), unit(1, 7)
    here[6], there[0] = 0, 0
    rows = (torch.tensor([1, 5]), torch.tensor([3, 2]))
    positive, allowed = memory_pairs((here[rows[0]], there[rows[1]]), rows, (here, there), 3)
    for a, own, other in ((0, here, there), (1, there, here)):
        within = mutual_neighbours(own[rows[a]], own, 3, index=rows[a])
        across = mutual_neighbours(own[rows[a]], other, 3, index=rows[a], own=own)
        in_order = (within, across) if a == 0 else (across, within)
        assert positive[2 * a : 2 * a + 2].equal(torch.cat(in_order, 1))
    forbidden = {0: {1, 6, 8}, 1: {5, 6, 8}, 2: {8 + 3, 6, 8}, 3: {8 + 2, 6, 8}}
    for anchor, columns in forbidden.items():
        assert set((~allowed[anchor]).nonzero()[:, 0].tolist()) == columns
    assert not (positive & ~allowed).any()


# --- the contrast


def slow_contrast(
    anchors: Tensor, rows: Tensor, positive: Tensor, allowed: Tensor, tau: float, form: str
) -> float:
    losses = []
    for a, p, ok in zip(anchors.detach(), positive.tolist(), allowed.tolist(), strict=True):
        e = [math.exp(float(a @ row) / tau) for row in rows]
        everything = math.fsum(x for x, o in zip(e, ok, strict=True) if o)
        chosen = [x for x, o in zip(e, p, strict=True) if o]
        if not chosen:
            continue
        if form == "log_of_sum":
            losses.append(-math.log(math.fsum(chosen) / everything))
        else:
            losses.append(-math.fsum(math.log(x / everything) for x in chosen) / len(chosen))
    return math.fsum(losses) / len(losses)


def case(seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    allowed = torch.rand(5, 9, generator=g) < 0.8
    positive = allowed & (torch.rand(5, 9, generator=g) < 0.4)
    positive[1] = False  # one without a positive
    return unit(seed, 5).requires_grad_(), unit(seed + 50, 9), positive, allowed


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("seed", range(3))
def test_the_contrast_is_the_equation_and_so_is_its_gradient(seed: int, form: str) -> None:
    anchors, rows, positive, allowed = case(seed)

    def loss(a: Tensor) -> Tensor:
        return multi_sample_contrast(a, rows, positive, allowed, 0.2, form)  # type: ignore[arg-type]

    expected = slow_contrast(anchors, rows, positive, allowed, 0.2, form)
    assert loss(anchors).item() == pytest.approx(expected, rel=1e-10)
    assert torch.autograd.gradcheck(loss, anchors)
    (slope,) = torch.autograd.grad(loss(anchors), anchors)
    assert not slope[1].any()


@pytest.mark.parametrize("form", FORMS)
def test_no_mutual_pair_at_all(form: str) -> None:
    anchors = unit(0, 3).float().requires_grad_()
    nothing = torch.zeros(3, 4, dtype=torch.bool)
    rows = unit(1, 4).float()
    for allowed in (~nothing, nothing):
        loss = multi_sample_contrast(anchors, rows, nothing, allowed, 0.05, form)  # type: ignore[arg-type]
        (slope,) = torch.autograd.grad(loss, anchors)
        assert loss.item() == 0
        assert not slope.any()


@pytest.mark.parametrize("form", FORMS)
def test_float32_stays_finite_at_small_temperatures(form: str) -> None:
    anchors = torch.tensor([[1.0, 0], [-1, 0]], requires_grad=True)
    rows = torch.tensor([[1.0, 0], [-1, 0]])
    loss = multi_sample_contrast(
        anchors,
        rows,
        torch.tensor([[False, True], [False, True]]),
        torch.ones(2, 2, dtype=torch.bool),
        0.005,
        form,  # type: ignore[arg-type]
    )
    (slope,) = torch.autograd.grad(loss, anchors)
    assert loss.item() == pytest.approx(200)  # the worst and the best positive there can be
    assert slope.isfinite().all()


def test_the_memory_gets_no_gradient() -> None:
    anchors, rows, positive, allowed = case(0)
    rows.requires_grad_()
    loss = multi_sample_contrast(anchors, rows, positive, allowed)
    assert torch.autograd.grad(loss, [rows], allow_unused=True) == (None,)


def test_a_wrong_form_is_refused() -> None:
    anchors, rows, positive, allowed = case(0)
    with pytest.raises(ValueError, match="form is 'sum'; allowed: log_of_sum, mean_of_logs"):
        multi_sample_contrast(anchors, rows, positive, allowed, 0.1, "sum")  # type: ignore[arg-type]
