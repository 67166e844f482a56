"""Mutual neighbours, k-NN predictions: docs/methods/glc.md and tnt.md, slow copies, empty rows."""

from itertools import product

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from tests.losses.examples import few
from unida.ops import chunked
from unida.ops.knn import empty_rows, knn_probs, memory_pairs, mutual_neighbours


def tensor(values: object) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


SOURCE = F.normalize(tensor([[1.0, 0], [0.9, 0.2], [0, 1]]))


TARGET = F.normalize(tensor([[1.0, 0.1], [0.1, 1], [-1, 0.2]]))


def unit(seed: int, n: int, d: int = 3) -> Tensor:
    g = torch.Generator().manual_seed(seed)
    return F.normalize(torch.randn(n, d, generator=g, dtype=torch.float64))


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


def test_mutual_pairs_of_methods() -> None:
    numbers = torch.arange(3)
    forth = mutual(SOURCE, TARGET, 1, index=numbers, own=SOURCE)
    back = mutual(TARGET, SOURCE, 1, index=numbers, own=TARGET)
    assert forth.nonzero().tolist() == [[0, 0], [2, 1]]
    assert back.T.equal(forth)


def test_neighbours_across_are_the_lists_both_ways() -> None:
    for k, seed in product([1, 2, 5, 30], range(3)):
        here, there = unit(seed, 12), unit(seed + 100, 9)
        found = mutual(here, there, k, index=torch.arange(12), own=here)
        assert found.tolist() == slow_mutual(here, there, k, within=False)


def test_neighbours_within_are_the_lists_both_ways() -> None:
    for k, seed in product([1, 2, 5, 30], range(3)):
        here = unit(seed, 12)
        found = mutual(here, here, k, index=torch.arange(12))
        assert found.tolist() == slow_mutual(here, here, k, within=True)
        assert not found.diagonal().any()


def test_a_batch_uses_its_own_rows_only() -> None:
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


def test_empty_rows_are_neither_neighbours_nor_rivals() -> None:
    for k in [1, 4]:
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
    assert empty_rows(nothing).all()
    assert not empty_rows(unit(0, 4)).any()


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


def test_neighbours_in_chunks_are_those_of_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    for rows_at_once, seed in product([1, 5, 29], range(3)):
        here, there, index = unit(seed, 30), unit(seed + 9, 40), torch.tensor([3, 29, 11, 0])
        here[5:9], there[20:35] = 0, 0
        ways = ((there, here), (here, None))
        anchors = unit(seed + 20, 4)
        monkeypatch.undo()
        whole = [mutual(anchors, others, 3, index=index, own=own) for others, own in ways]
        assert any(found.any() for found in whole)
        monkeypatch.setattr(chunked, "MAX_ENTRIES", 4 * 3 * rows_at_once)
        for expected, (others, own) in zip(whole, ways, strict=True):
            assert mutual(anchors, others, 3, index=index, own=own).equal(expected)


seeds = st.integers(0, 2**31)


def probs_of(seed: int, n: int, c: int) -> Tensor:
    g = torch.Generator().manual_seed(seed)
    return (2 * torch.randn(n, c, generator=g, dtype=torch.float64)).softmax(1)


@few
@given(seeds, st.integers(2, 12), st.integers(1, 6))
def test_neighbours_are_the_nearest_after_the_first(seed: int, n: int, k: int) -> None:
    bank, probs, features = unit(seed, n, 3), probs_of(seed + 1, n, 4), unit(seed + 2, 5, 3)
    found = knn_probs(features, bank, probs, k)
    for i in range(5):
        order = sorted(range(n), key=lambda j, i=i: -float(features[i] @ bank[j]))[1 : k + 1]
        torch.testing.assert_close(found[i], torch.stack([probs[j] for j in order]).mean(0))
    torch.testing.assert_close(found.sum(1), torch.ones(5).double())


def test_neighbours_carry_no_gradient() -> None:
    features = unit(0, 3, 4).requires_grad_()
    assert not knn_probs(features, unit(1, 6, 4), probs_of(2, 6, 3)).requires_grad


def test_neighbours_in_chunks_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    features, bank, probs = unit(0, 5, 3), unit(1, 50, 3), probs_of(2, 50, 4)
    whole = knn_probs(features, bank, probs)
    for most in (5 * 49, 5 * 7, 1):
        monkeypatch.setattr(chunked, "MAX_ENTRIES", most)
        assert torch.equal(knn_probs(features, bank, probs), whole)
