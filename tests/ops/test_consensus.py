"""Consensus of clusters and classes: docs/methods/dcc.md, a slow copy, edges, the memory."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.losses import slow
from tests.losses.clusters import draws, make_clusters
from unida.ops.consensus import (
    class_means,
    consensus,
    match_clusters,
    pick_k,
    search_centres,
    update_centres,
)
from unida.ops.kmeans import kmeans

MEANS = [[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]]


CENTRES = [[0.9, 0.1], [0.1, 0.9], [0.3, -1.0]]


SOURCE = [[1, 0.1], [0.6, 0.8], [1, -0.2], [0, 1], [0.2, 1], [-1, 0], [-1, 0.1]]


LABELS = [0, 0, 0, 1, 1, 2, 2]


TARGET = [[0.9, 0], [0.8, 0.3], [0.1, 1], [0.5, 0.7], [0.3, -1]]


IDS = [0, 0, 1, 1, 2]


def unit(values: object) -> Tensor:
    return F.normalize(torch.tensor(values, dtype=torch.float64))


def test_the_check_case_of_methods() -> None:
    pairs, scores = consensus(
        unit(MEANS),
        unit(CENTRES),
        unit(SOURCE),
        torch.tensor(LABELS),
        unit(TARGET),
        torch.tensor(IDS),
    )
    assert pairs.tolist() == [[0, 0], [1, 1]]
    assert scores.tolist() == pytest.approx([(2 / 3 + 1) / 2, 1], abs=1e-7)
    assert scores.mean().item() == pytest.approx(0.916666667, abs=1e-7)


def slow_consensus(
    means: slow.Rows,
    centres: slow.Rows,
    source: slow.Rows,
    labels: list[int],
    target: slow.Rows,
    ids: list[int],
) -> dict[tuple[int, int], float]:
    def nearest(x: object, rows: slow.Rows) -> int:
        return min(range(len(rows)), key=lambda i: slow.distance(x, rows[i]))  # type: ignore[arg-type]

    def share(hits: list[bool]) -> float:
        return sum(hits) / len(hits) if hits else 0.0

    found = {}
    for i, s in enumerate(means):
        j = nearest(s, centres)
        if nearest(centres[j], means) == i:
            p_ij = share(
                [nearest(x, centres) == j for x, y in zip(source, labels, strict=True) if y == i]
            )
            p_ji = share(
                [nearest(x, means) == i for x, k in zip(target, ids, strict=True) if k == j]
            )
            found[i, j] = (p_ij + p_ji) / 2
    return found


def test_consensus_is_the_slow_copy() -> None:
    for n_classes, k in [(2, 2), (3, 7), (6, 3), (5, 5)]:
        for seed in range(5):
            g = draws(seed)
            rows = [
                F.normalize(torch.randn(n, 3, generator=g, dtype=torch.float64))
                for n in (n_classes, k, 40, 30)
            ]
            labels = torch.randint(n_classes, (40,), generator=g)
            ids = torch.randint(k, (30,), generator=g)
            pairs, scores = consensus(rows[0], rows[1], rows[2], labels, rows[3], ids)
            expected = slow_consensus(
                *(r.tolist() for r in rows[:3]), labels.tolist(), rows[3].tolist(), ids.tolist()
            )
            assert [tuple(pair) for pair in pairs.tolist()] == list(expected)
            assert scores.tolist() == pytest.approx(list(expected.values()), abs=1e-6)


def test_a_class_and_a_cluster_come_in_one_pair_only() -> None:
    source, labels = make_clusters([5, 5, 5])
    target, ids = make_clusters([4, 4, 4, 4])
    pairs, scores = match_clusters(source, labels, target, ids, class_means(target, ids, 4), 3)
    assert pairs.tolist() == [[0, 0], [1, 1], [2, 2]]  # the fourth cluster has no class
    assert scores.tolist() == [1, 1, 1]


def test_an_empty_cluster_has_no_agreement() -> None:
    source, labels = make_clusters([5, 5])
    target = source[:5]
    centres = class_means(source, labels, 2)
    ids = torch.zeros(5, dtype=torch.long)
    _, scores = match_clusters(source, labels, target, ids, centres, 2)
    assert scores.tolist() == [1, 0.5]


def test_class_means_are_means_of_unit_rows_at_unit_length() -> None:
    rows = torch.tensor([[2.0, 0.0], [0.0, 1.0], [0.0, -3.0]], dtype=torch.float64)
    means = class_means(rows, torch.tensor([0, 0, 1]), 2)
    half = math.sqrt(0.5)
    torch.testing.assert_close(means, torch.tensor([[half, half], [0, -1]], dtype=torch.float64))


def test_the_search_stops_early_as_in_the_check_case() -> None:
    scores = [0.5, 0.6, 0.55, 0.5, 0.45]
    ks = [20, 22, 24, 26, 28]
    choices = [pick_k(scores[:n]) for n in range(1, 6)]
    assert [over for _, over in choices] == [False, False, False, False, True]
    assert ks[choices[-1][0]] == 22


def test_which_k_is_taken() -> None:
    for scores, chosen, over in [
        ([0.3], 0, False),
        ([0.3, 0.7, 0.5], 1, False),
        ([0.7, 0.7, 0.6], 0, False),  # the first of equals
        ([0.5, 0.5, 0.5, 0.5], 0, True),  # not rising is enough
        ([0.9, 0.5, 0.6, 0.5, 0.5, 0.4], 2, True),  # as released, not the 0.9
        ([0.0, 0.0, 0.1], 2, False),
    ]:
        assert pick_k(scores) == (chosen, over)


def test_the_search_finds_the_clusters_that_are_there() -> None:
    source, labels = make_clusters([30, 30, 30])
    target, _ = make_clusters([20, 20, 0, 20, 20])  # two classes shared, two new
    assert len(search_centres(source, labels, target, 3, range(2, 9))) == 4


def test_a_search_without_any_pair_scores_nothing_and_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Someone is always nearest to someone, unless a tie is broken two ways; so it is forced here.
    absent = (torch.zeros(0, 2, dtype=torch.long), torch.zeros(0))
    monkeypatch.setattr("unida.ops.consensus.match_clusters", lambda *_: absent)
    source, labels = make_clusters([5, 5])
    assert len(search_centres(source, labels, source, 2, range(2, 8))) == 2


def test_consensus_in_chunks_is_the_plain_one(monkeypatch: pytest.MonkeyPatch) -> None:
    source, labels = make_clusters([40, 30, 20], spread=0.5)
    target, _ = make_clusters([20, 20, 0, 30], spread=0.5)
    centres, ids = kmeans(target, 5)
    plain = match_clusters(source, labels, target, ids, centres, 3)
    monkeypatch.setattr("unida.ops.chunked.MAX_ENTRIES", 21)
    parted = match_clusters(source, labels, target, ids, centres, 3)
    assert plain[0].equal(parted[0])
    assert plain[1].equal(parted[1])
    assert len(plain[0])


def test_the_search_uses_evenly_spaced_rows_of_a_large_source(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    recorded: list[Tensor] = []

    def pairs(source: Tensor, labels: Tensor, *_: object) -> tuple[Tensor, Tensor]:
        recorded.append(labels)
        return torch.zeros(0, 2, dtype=torch.long), torch.zeros(0)

    monkeypatch.setattr("unida.ops.consensus.match_clusters", pairs)
    source, labels = make_clusters([40, 20])
    for most, counts in ((60, [40, 20]), (20, [14, 6])):
        monkeypatch.setattr("unida.ops.consensus.MAX_ROWS", most)
        search_centres(source, labels, source, 2, [2])
        assert recorded[-1].bincount().tolist() == counts


def tensor(values: object) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def draw(seed: int, *shape: int) -> Tensor:
    g = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=g, dtype=torch.float64)


def test_the_memory_moves_only_where_the_batch_has_members_and_stays_of_unit_length() -> None:
    centres = torch.nn.functional.normalize(draw(0, 4, 3))
    features = draw(1, 5, 3).requires_grad_()
    moved = update_centres(centres, features, torch.tensor([0, 0, 2, 2, 2]))
    assert not moved.requires_grad
    assert moved[[1, 3]].equal(centres[[1, 3]])
    assert not torch.isclose(moved[[0, 2]], centres[[0, 2]]).all(1).any()
    torch.testing.assert_close(moved.norm(dim=1), torch.ones(4, dtype=torch.float64))


def test_the_memory_stays_finite_whatever_the_batch() -> None:
    for feature in [[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]:
        moved = update_centres(tensor([[1.0, 0.0]]), tensor([feature]), torch.tensor([0]))
        assert moved.isfinite().all()
