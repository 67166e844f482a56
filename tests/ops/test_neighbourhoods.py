"""Neighbourhoods and their agreement: docs/methods/mlnet.md, a slow copy, bounds."""

import pytest
import torch
import torch.nn.functional as F

from unida.ops import chunked
from unida.ops.neighbourhoods import jaccard, near_nearest, neighbourhoods


def unit(n: int = 12) -> torch.Tensor:
    return F.normalize(torch.rand(n, 5, generator=torch.Generator().manual_seed(0)))


def slow_sets(rows: torch.Tensor, share: float) -> list[set[int]]:
    found = []
    for i, row in enumerate(rows):
        cosines = {j: (row @ other).item() for j, other in enumerate(rows) if j != i}
        limit = share * max(cosines.values())
        found.append({j for j, value in cosines.items() if value > limit})
    return found


@pytest.mark.parametrize("memory", [None, 40])
def test_neighbourhoods_and_their_agreement_are_those_of_sets(
    memory: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if memory:
        monkeypatch.setattr(chunked, "MAX_ENTRIES", memory)
    rows, index = unit(), torch.tensor([3, 0, 7])
    expected = slow_sets(rows, 0.9)
    sets = neighbourhoods(rows, 0.9, 11)
    assert [{j for j in row if j >= 0} for row in sets.tolist()] == expected
    near = near_nearest((rows[index] @ rows.T).masked_fill(F.one_hot(index, 12).bool(), -1), 0.7)
    found = jaccard(sets, index, near)
    for b, i in enumerate(index.tolist()):
        for j in range(12):
            a, c = expected[i], expected[j]
            value = len(a & c) / max(1, len(a | c)) if near[b, j] and i != j else 0
            assert found[b, j].item() == pytest.approx(value)
    assert found.sum() > 0


def test_of_many_neighbours_the_nearest_are_kept() -> None:
    rows = unit()
    sets = neighbourhoods(rows, 0.1, 3)
    assert sets.shape == (12, 3)
    cosines = (rows @ rows.T).fill_diagonal_(-1)
    assert [set(row) for row in sets.tolist()] == [set(r) for r in cosines.topk(3).indices.tolist()]


def test_no_neighbour_at_all_agrees_with_nothing() -> None:
    sets = torch.full((3, 2), -1)
    assert jaccard(sets, torch.tensor([0]), torch.ones(1, 3).bool()).sum() == 0
    nothing = torch.zeros(1, 3).bool()
    assert jaccard(torch.tensor([[1], [0], [0]]), torch.tensor([0]), nothing).sum() == 0
