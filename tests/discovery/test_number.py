"""The number of categories: at the granularity of the known classes, with an interval."""

import numpy as np
import pytest

from tests.discovery.test_clustering import blobs, novel_and_known
from unida.discovery.clusters import KnownFeatures, normalize_rows
from unida.discovery.number import (
    best_f1,
    count_categories,
    count_novel,
    cut_tree,
    weighted_quantile,
    weights_of,
)


def test_f1_is_that_of_the_best_cluster() -> None:
    labels = np.array([0, 0, 0, 1, 1])
    clusters = np.array([0, 0, 1, 1, 2])
    assert best_f1(labels, clusters) == pytest.approx([2 * 2 / (3 + 2), 2 / 3])
    assert best_f1(labels, labels) == pytest.approx([1, 1])


def test_a_novel_cluster_holds_a_larger_share_of_the_rejected_images() -> None:
    known, rejected = [0] * 8 + [1] * 2, [0] * 5 + [1] * 5 + [2] * 6 + [3] * 4
    assert count_novel(np.array(known + rejected), 10) == 2  # 1 and 2; 3 is too small
    assert count_novel(np.array([0] * 10 + [0] * 5), 10) == 1


def test_weights_fall_with_the_distance_to_the_best_score() -> None:
    weights = weights_of(np.array([0.5, 0.8, 0.8]), np.array([1.0, 1.0, 3.0]))
    assert weights.sum() == pytest.approx(1)
    assert weights[2] == pytest.approx(3 * weights[1])
    assert weights[1] > 1000 * weights[0]


def test_quantiles_are_of_the_weights() -> None:
    counts, weights = np.array([9, 2, 5]), np.array([1.0, 1.0, 2.0])
    found = [weighted_quantile(counts, weights, q) for q in (0.2, 0.5, 0.74, 0.76, 1)]
    assert found == [2, 5, 5, 9, 9]


def test_a_cut_counts_by_the_range_of_heights_where_it_is_the_cut() -> None:
    x, labels = blobs([20, 20, 20])
    cuts, dwell = cut_tree(x)
    numbers = [len(np.unique(cut)) for cut in cuts]
    assert numbers[:3] == [2, 3, 4]
    assert numbers[int(dwell.argmax())] == 3
    assert best_f1(labels, cuts[1]) == pytest.approx([1, 1, 1])


def test_the_same_data_has_more_categories_where_known_classes_are_narrower() -> None:
    # Two wide kinds of three narrow ones each: known classes say which of the two counts.
    rng = np.random.default_rng(0)
    wide = np.repeat(np.eye(6)[:2], 90, 0)
    narrow = np.repeat(rng.normal(size=(6, 6)) * 0.25, 30, 0)
    x = wide + narrow + rng.normal(size=(180, 6)) * 0.03
    others = np.repeat(np.eye(6)[2:], 90, 0)
    parts = np.repeat(rng.normal(size=(12, 6)) * 0.25, 30, 0)
    known = normalize_rows(others + parts + rng.normal(size=(360, 6)) * 0.03)
    x = normalize_rows(x)
    coarse = count_categories(x, KnownFeatures(known, np.arange(360) // 90), 0)
    fine = count_categories(x, KnownFeatures(known, np.arange(360) // 30), 0)
    assert coarse.estimate < fine.estimate
    assert coarse.low <= 2 <= coarse.high
    assert fine.low <= 6 <= fine.high


def test_the_interval_holds_the_estimate() -> None:
    x, _, known = novel_and_known([20, 30, 40, 25], width=0.25)
    found = count_categories(normalize_rows(x), known, 0)
    assert 1 <= found.low <= found.estimate <= found.high <= len(x) // 5
    assert found == count_categories(normalize_rows(x), known, 0)


def test_without_known_classes_no_number_is_supported() -> None:
    x, _ = blobs([20, 20])
    for classes in (0, 1):
        known = KnownFeatures(x[: 20 * classes], np.zeros(20 * classes, np.int64))
        found = count_categories(x, known, 0)
        assert not found.supported
        assert (found.low, found.high) == (1, 8)
    _, _, few = novel_and_known([20, 20], known_classes=2)
    assert "only 2 known classes" in count_categories(x, few, 0).note
