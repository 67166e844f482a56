"""K-means: what it finds, as scikit-learn finds it, whatever the rows and wherever they are."""

from collections import Counter
from itertools import product

import pytest
import torch
import torch.nn.functional as F
from sklearn.cluster import KMeans
from torch import Tensor

import unida.ops.kmeans
from tests.losses.clusters import draws, make_clusters
from unida.ops.kmeans import kmeans, kmeans_plus_plus, nearest_centre


def scattered(n: int, width: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return F.normalize(torch.randn(n, width, generator=draws(), dtype=dtype))


def spread(rows: Tensor, ids: Tensor) -> float:
    """Sum of squared distances to the mean of the own cluster."""
    groups = [rows[ids == k] for k in ids.unique()]
    return sum(float((group - group.mean(0)).square().sum()) for group in groups)


def test_it_finds_clusters_and_gives_unit_centres() -> None:
    rows, truth = make_clusters([10, 20, 5])
    centres, ids = kmeans(rows, 3)
    assert centres.shape == (3, 8)
    torch.testing.assert_close(centres.norm(dim=1), torch.ones(3, dtype=torch.float64))
    assert len(set(zip(ids.tolist(), truth.tolist(), strict=True))) == 3
    assert centres.dtype == rows.dtype


def test_from_centres_it_keeps_their_order() -> None:
    rows, truth = make_clusters([10, 20, 5])
    _, ids = kmeans(rows, torch.eye(8, dtype=torch.float64)[[2, 0, 1]])
    assert ids.tolist() == [[1, 2, 0][t] for t in truth.tolist()]


def test_from_the_same_centres_it_goes_where_scikit_learn_goes() -> None:
    for k in [2, 7, 40]:
        rows = scattered(400, 6)
        fit = KMeans(k, init=rows[:k].numpy(), n_init=1).fit(rows.numpy())
        centres, ids = kmeans(rows, rows[:k])
        assert ids.tolist() == fit.labels_.tolist()
        expected = F.normalize(torch.as_tensor(fit.cluster_centers_))
        torch.testing.assert_close(centres, expected, rtol=0, atol=1e-2)


def test_its_own_starts_are_as_good_as_those_of_scikit_learn() -> None:
    for k in [5, 20, 60]:
        rows, _ = make_clusters([30] * 20, width=32, spread=0.15)
        _, ids = kmeans(rows, k)
        assert len(ids.unique()) == k
        theirs = KMeans(k, n_init=10, random_state=0).fit(rows.numpy())
        assert spread(rows, ids) < 1.03 * theirs.inertia_


def test_more_restarts_are_never_worse() -> None:
    rows = scattered(300, 5)
    spreads = [spread(rows, kmeans(rows, 12, restarts)[1]) for restarts in (1, 10)]
    assert spreads[1] <= spreads[0]


def test_no_cluster_is_empty_where_fewer_rows_differ() -> None:
    for dtype, k in product([torch.float32, torch.float64], [2, 4, 6, 9]):
        rows = torch.eye(3, dtype=dtype)[[0, 0, 0, 1, 1, 1]]
        centres, ids = kmeans(rows, k)
        assert len(centres) == 2
        assert sorted(Counter(ids.tolist()).values()) == [3, 3]


def test_a_centre_far_from_every_row_is_sent_to_one() -> None:
    rows, truth = make_clusters([10, 20, 5])
    start = torch.full((3, 8), -50.0, dtype=torch.float64)
    start[0] = rows[0]
    centres, ids = kmeans(rows, start)
    assert len(centres) == 3
    assert len(set(zip(ids.tolist(), truth.tolist(), strict=True))) == 3


def test_it_repeats() -> None:
    rows = scattered(600, 16, torch.float32)
    first, second = kmeans(rows, 7), kmeans(rows, 7)
    assert first[0].equal(second[0])
    assert first[1].equal(second[1])


def test_starts_are_rows_that_differ() -> None:
    for restarts in [1, 4]:
        rows = scattered(50, 4)
        starts = kmeans_plus_plus(rows, 12, restarts, draws())
        assert starts.shape == (restarts, 12, 4)
        for start in starts:
            assert len({tuple(row) for row in start.tolist()}) == 12
            assert nearest_centre(start, rows)[0].max() < 1e-12
        assert len({tuple(start[0].tolist()) for start in starts}) == restarts


def test_nearest_is_nearest_in_chunks_too(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, centres = scattered(300, 4), 2 * scattered(6, 4)
    table = torch.cdist(rows, centres).square()
    monkeypatch.setattr("unida.ops.chunked.MAX_ENTRIES", 50)  # eight rows at a time
    away, ids = nearest_centre(rows, centres)
    assert ids.equal(table.argmin(1))
    torch.testing.assert_close(away, table.amin(1))


def test_in_chunks_it_finds_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, _ = make_clusters([40, 30, 20])
    plain = kmeans(rows, 4)
    monkeypatch.setattr("unida.ops.chunked.MAX_ENTRIES", 50)
    centres, ids = kmeans(rows, 4)
    assert ids.equal(plain[1])
    torch.testing.assert_close(centres, plain[0])


@pytest.fixture
def moved_by(monkeypatch: pytest.MonkeyPatch) -> list[Tensor]:
    """The rows that move the centres, of every call."""
    recorded: list[Tensor] = []
    original = unida.ops.kmeans._lloyd

    def moved(rows: Tensor, centres: Tensor) -> tuple[Tensor, Tensor]:
        recorded.append(rows)
        return original(rows, centres)

    monkeypatch.setattr("unida.ops.kmeans._lloyd", moved)
    return recorded


def test_of_many_rows_a_seeded_part_moves_the_centres_and_all_are_assigned(
    monkeypatch: pytest.MonkeyPatch, moved_by: list[Tensor]
) -> None:
    monkeypatch.setattr("unida.ops.kmeans.MAX_ROWS", 150)
    for start in [3, "centres"]:
        moved_by.clear()
        rows, truth = make_clusters([100, 200, 50])
        given = torch.eye(8, dtype=torch.float64)[:3] if start == "centres" else 3
        centres, ids = kmeans(rows, given, 1)
        assert [len(part) for part in moved_by] == [150]
        assert len(ids) == 350
        assert len(set(zip(ids.tolist(), truth.tolist(), strict=True))) == 3
        torch.testing.assert_close(centres.norm(dim=1), torch.ones(3, dtype=torch.float64))
        again = kmeans(rows, given, 1)
        assert again[0].equal(centres)
        assert again[1].equal(ids)
        kmeans(rows[:150], given, 1)
        assert moved_by[-1].equal(rows[:150])  # no draw where there are no more


def test_many_centres_get_forty_rows_each(
    monkeypatch: pytest.MonkeyPatch, moved_by: list[Tensor]
) -> None:
    monkeypatch.setattr("unida.ops.kmeans.MAX_ROWS", 10)
    kmeans(make_clusters([200, 200])[0], 4, 2)
    assert [len(rows) for rows in moved_by] == [160, 160]


@pytest.mark.gpu
def test_the_gpu_finds_what_the_cpu_finds() -> None:
    rows, _ = make_clusters([40, 30, 20])
    centres, ids = kmeans(rows.cuda(), 3)
    assert ids.is_cuda
    plain = kmeans(rows, 3)
    assert ids.cpu().equal(plain[1])
    torch.testing.assert_close(centres.cpu(), plain[0])
