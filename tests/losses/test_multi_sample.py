"""Mutual neighbours and the multi-sample contrast: METHODS.md §10.8, slow copies, empty cases."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.losses.sizes import Largest
from unida.losses import memory_pairs, multi_sample_contrast, mutual_neighbours, unseen
from unida.losses.multi_sample import Candidates
from unida.ops import chunked

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
    near, itself = torch.tensor([positives]), torch.tensor([anchor])
    candidates = (POINTS, near, torch.ones_like(near, dtype=torch.bool), itself)
    return multi_sample_contrast(POINTS[itself], [candidates], tau, form).item()  # type: ignore[arg-type]


def mutual(
    anchors: Tensor, others: Tensor, k: int, *, index: Tensor, own: Tensor | None = None
) -> Tensor:
    """`mutual_neighbours` as a mask (B, M)."""
    near, found = mutual_neighbours(anchors, others, k, index=index, own=own)
    assert near.shape == (len(anchors), min(k, len(others)))
    return torch.zeros(len(anchors), len(others), dtype=torch.bool).scatter(1, near, found)


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
    forth = mutual(SOURCE, TARGET, 1, index=numbers, own=SOURCE)
    back = mutual(TARGET, SOURCE, 1, index=numbers, own=TARGET)
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
    found = mutual(here, there, k, index=torch.arange(12), own=here)
    assert found.tolist() == slow_mutual(here, there, k, within=False)


@pytest.mark.parametrize("k", [1, 2, 5, 30])
@pytest.mark.parametrize("seed", range(3))
def test_neighbours_within_are_the_lists_both_ways(seed: int, k: int) -> None:
    here = unit(seed, 12)
    found = mutual(here, here, k, index=torch.arange(12))
    assert found.tolist() == slow_mutual(here, here, k, within=True)
    assert not found.diagonal().any()


def test_a_batch_asks_for_its_own_rows_only() -> None:
    here, there = unit(0, 12), unit(1, 9)
    rows = torch.tensor([7, 2, 7])
    everything = mutual(here, there, 3, index=torch.arange(12), own=here)
    found = mutual(here[rows], there, 3, index=rows, own=here)
    assert found.equal(everything[rows])


def test_an_anchor_stands_for_its_row_in_the_memory() -> None:
    """The memory's row of the anchor may be old, or not be there yet."""
    here, there, row = unit(0, 6), unit(1, 5), torch.tensor([4])
    fresh = mutual(here[row], there, 2, index=row, own=here)
    for old in (torch.zeros(3), -here[4]):
        memory = here.clone()
        memory[4] = old
        assert mutual(here[row], there, 2, index=row, own=memory).equal(fresh)


@pytest.mark.parametrize("k", [1, 4])
def test_rows_not_seen_are_nobodys_neighbours_and_nobodys_rivals(k: int) -> None:
    here, there = unit(0, 8), unit(1, 7)
    holes_here, holes_there = here.clone(), there.clone()
    holes_here[5:], holes_there[3:] = 0, 0
    rows = torch.arange(5)
    across = mutual(here[:5], holes_there, k, index=rows, own=holes_here)
    assert across[:, :3].tolist() == slow_mutual(here[:5], there[:3], k, within=False)
    assert not across[:, 3:].any()
    within = mutual(here[:5], holes_here, k, index=rows)
    assert within[:, :5].tolist() == slow_mutual(here[:5], here[:5], k, within=True)
    assert not within[:, 5:].any()


def test_an_empty_memory_has_no_neighbours() -> None:
    nothing = torch.zeros(6, 3, dtype=torch.float64)
    rows = torch.arange(4)
    assert not mutual(unit(0, 4), nothing, 5, index=rows).any()
    assert not mutual(unit(0, 4), nothing, 5, index=rows, own=nothing).any()
    assert unseen(nothing).all()
    assert not unseen(unit(0, 4)).any()


def test_pairs_of_two_memories() -> None:
    here, there = unit(0, 8), unit(1, 7)
    here[6], there[0] = 0, 0
    rows = (torch.tensor([1, 5]), torch.tensor([3, 2]))
    memories = (here, there)
    found = memory_pairs((here[rows[0]], there[rows[1]]), rows, memories, 3)
    for b, (memory, near, positive, itself) in enumerate(found):
        assert memory is memories[b]
        assert itself.tolist() == ([1, 5, -1, -1] if b == 0 else [-1, -1, 3, 2])
        for a, own in enumerate(memories):
            anchors, of_a = own[rows[a]], slice(2 * a, 2 * a + 2)
            expected = mutual_neighbours(
                anchors, memory, 3, index=rows[a], own=None if a == b else own
            )
            assert near[of_a].equal(expected[0])
            assert positive[of_a].equal(expected[1])


@pytest.mark.parametrize("rows_at_once", [1, 5, 29])
@pytest.mark.parametrize("seed", range(3))
def test_neighbours_in_parts_are_those_of_the_whole(
    seed: int, rows_at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there, index = unit(seed, 30), unit(seed + 9, 40), torch.tensor([3, 29, 11, 0])
    here[5:9], there[20:35] = 0, 0
    ways = ((there, here), (here, None))
    anchors = unit(seed + 20, 4)
    whole = [mutual(anchors, others, 3, index=index, own=own) for others, own in ways]
    assert any(found.any() for found in whole)
    monkeypatch.setattr(chunked, "MOST", 4 * 3 * rows_at_once)
    for expected, (others, own) in zip(whole, ways, strict=True):
        assert mutual(anchors, others, 3, index=index, own=own).equal(expected)


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


def case(seed: int) -> tuple[Tensor, list[Candidates]]:
    """Two memories with holes; an anchor may be of the first one, and one has no positive."""
    g = torch.Generator().manual_seed(seed)
    candidates = []
    for n, itself in ((9, torch.tensor([0, 3, -1, 8, -1])), (7, torch.full((5,), -1))):
        rows = unit(seed + 50 + n, n)
        rows[torch.randperm(n, generator=g)[:2]] = 0
        near = torch.rand(5, n, generator=g).argsort(1)[:, :5]
        positive = torch.rand(5, 5, generator=g) < 0.5
        positive &= ~unseen(rows)[near] & (near != itself[:, None])
        positive[1] = False
        candidates.append((rows, near, positive, itself))
    return unit(seed, 5).requires_grad_(), candidates


def masks(candidates: list[Candidates]) -> tuple[Tensor, Tensor, Tensor]:
    """All rows, and P and A as masks."""
    positives, allowed = [], []
    for rows, near, positive, itself in candidates:
        nobody = torch.zeros(len(near), len(rows), dtype=torch.bool)
        positives.append(nobody.scatter(1, near, positive))
        allowed.append(~unseen(rows) & (torch.arange(len(rows)) != itself[:, None]))
    return torch.cat([c[0] for c in candidates]), torch.cat(positives, 1), torch.cat(allowed, 1)


@pytest.mark.parametrize("most", [chunked.MOST, 5 * 4, 5])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("seed", range(3))
def test_the_contrast_is_the_equation_and_so_is_its_gradient(
    seed: int, form: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunked, "MOST", most)  # the whole memories, or four rows or one at a time
    anchors, candidates = case(seed)

    def loss(a: Tensor) -> Tensor:
        return multi_sample_contrast(a, candidates, 0.2, form)  # type: ignore[arg-type]

    expected = slow_contrast(anchors, *masks(candidates), 0.2, form)
    assert loss(anchors).item() == pytest.approx(expected, rel=1e-10)
    assert torch.autograd.gradcheck(loss, anchors)
    (slope,) = torch.autograd.grad(loss(anchors), anchors)
    assert not slope[1].any()


@pytest.mark.parametrize("most", [chunked.MOST, 6])
@pytest.mark.parametrize("form", FORMS)
def test_no_mutual_pair_at_all(form: str, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunked, "MOST", most)
    anchors = unit(0, 3).float().requires_grad_()
    near, nobody = torch.zeros(3, 2).long(), torch.full((3,), -1)
    for rows in (unit(1, 4).float(), torch.zeros(4, 3)):
        candidates = [(rows, near, near > 0, nobody)]
        loss = multi_sample_contrast(anchors, candidates, 0.05, form)  # type: ignore[arg-type]
        (slope,) = torch.autograd.grad(loss, anchors)
        assert loss.item() == 0
        assert not slope.any()


@pytest.mark.parametrize("form", FORMS)
def test_float32_stays_finite_at_small_temperatures(form: str) -> None:
    anchors = torch.tensor([[1.0, 0], [-1, 0]], requires_grad=True)
    rows, near = torch.tensor([[1.0, 0], [-1, 0]]), torch.tensor([[1], [1]])
    candidates = [(rows, near, near > 0, torch.full((2,), -1))]
    loss = multi_sample_contrast(anchors, candidates, 0.005, form)  # type: ignore[arg-type]
    (slope,) = torch.autograd.grad(loss, anchors)
    assert loss.item() == pytest.approx(200)  # the worst and the best positive there can be
    assert slope.isfinite().all()


def test_no_table_of_batch_and_memory_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunked, "MOST", 600)
    memories = unit(0, 1500).float(), unit(1, 2000).float()
    index = torch.arange(6), torch.arange(6) + 900
    anchors = [unit(2 + i, 6).float().requires_grad_() for i in range(2)]
    with Largest() as made:
        candidates = memory_pairs((anchors[0], anchors[1]), index, memories, 4)
        multi_sample_contrast(torch.cat(anchors), candidates).backward()
    assert all(a.grad is not None for a in anchors)
    assert made.entries <= 600


def test_the_memory_gets_no_gradient() -> None:
    anchors, [(rows, *rest), _] = case(0)
    rows.requires_grad_()
    loss = multi_sample_contrast(anchors, [(rows, *rest)])
    assert torch.autograd.grad(loss, [rows], allow_unused=True) == (None,)


def test_a_wrong_form_is_refused() -> None:
    anchors, candidates = case(0)
    with pytest.raises(ValueError, match="form is 'sum'; allowed: log_of_sum, mean_of_logs"):
        multi_sample_contrast(anchors, candidates, 0.1, "sum")  # type: ignore[arg-type]
