"""Novel categories are found where they are, none where there are none, in any order of images."""

import numpy as np
import pytest

from unida.discovery import clustering
from unida.discovery.clustering import (
    MIN_IMAGES,
    NO_CATEGORY,
    assign,
    co_assignment_stability,
    find_categories,
    half_whiten,
    representatives,
    select_known,
)
from unida.discovery.clusters import KnownFeatures, normalize_rows
from unida.evaluation.metrics import cluster_accuracy
from unida.types import Features, IntArray


@pytest.fixture(autouse=True)
def few_half_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clustering, "HALF_SAMPLES", 2)


def blobs(counts: list[int], seed: int = 0, width: float = 0.02) -> tuple[Features, IntArray]:
    """Rows around one axis for each count, and the number of the axis."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(len(counts)), counts)
    x = np.eye(16)[labels] + width * rng.normal(size=(len(labels), 16))
    return x.astype(np.float32), labels


def novel_and_known(
    counts: list[int], known_classes: int = 5, width: float = 0.02
) -> tuple[Features, IntArray, KnownFeatures]:
    """Blobs of novel categories, and known classes of their mean size."""
    size = round(sum(counts) / len(counts))
    x, labels = blobs([*counts, *[size] * known_classes], width=width)
    known = labels >= len(counts)
    return x[~known], labels[~known], KnownFeatures(x[known], labels[known])


def test_blobs_are_categories_and_scattered_images_are_in_none() -> None:
    x, labels, known = novel_and_known([40, 30, 20, 20, 15])
    noise = np.random.default_rng(1).normal(size=(4, 16)).astype(np.float32)
    found = find_categories(np.concatenate([x, noise]), known)
    assert len(found.centres) == 5
    assert found.low <= 5 <= found.high
    inside = found.category[: len(x)] != NO_CATEGORY
    assert inside.mean() > 0.9
    assert cluster_accuracy(labels[inside], found.category[: len(x)][inside]) == 1
    assert (np.diff(np.bincount(found.category)[1:]) <= 0).all()
    assert (found.confidence[found.category == NO_CATEGORY] == 0).all()
    assert np.median(found.confidence[: len(x)][inside]) > 0.9


def test_one_blob_or_equal_images_are_one_category() -> None:
    x, _, known = novel_and_known([60])
    found = find_categories(x, known)
    assert len(found.centres) == 1
    assert (found.category == 1).mean() > 0.9
    same = np.ones((20, 4), np.float32)
    found = find_categories(same, KnownFeatures(same[:0], np.zeros(0, np.int64)))
    assert set(found.category.tolist()) == {1}
    assert "fewer than two known classes" in found.note


@pytest.mark.parametrize("most", [clustering.MAX_CLUSTERED, 40])
def test_the_order_of_the_images_does_not_matter(
    most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clustering, "MAX_CLUSTERED", most)
    x, _, known = novel_and_known([30, 20, 20], width=0.2)
    order = np.random.default_rng(3).permutation(len(x))
    reverse = KnownFeatures(known.features[::-1], known.labels[::-1])
    one, other = find_categories(x, known), find_categories(x[order], reverse)
    np.testing.assert_array_equal(one.category[order], other.category)
    np.testing.assert_array_equal(one.confidence[order], other.confidence)
    assert (one.low, one.high) == (other.low, other.high)


def test_a_sample_finds_the_same_categories(monkeypatch: pytest.MonkeyPatch) -> None:
    x, labels, known = novel_and_known([200, 200, 200])
    monkeypatch.setattr(clustering, "MAX_CLUSTERED", 150)
    found = find_categories(x, known)
    assert len(found.centres) == 3
    inside = found.category != NO_CATEGORY
    assert inside.mean() > 0.9
    assert cluster_accuracy(labels[inside], found.category[inside]) == 1


def test_a_given_number_is_taken() -> None:
    x, _, known = novel_and_known([30, 30, 30])
    found = find_categories(x, known, count=2)
    assert (len(found.centres), found.low, found.high, found.note) == (2, 2, 2, "")


def test_too_few_images_are_in_no_category() -> None:
    x, _, known = novel_and_known([20])
    for n in (0, 1, MIN_IMAGES - 1):
        found = find_categories(x[:n], known)
        assert found.category.tolist() == [NO_CATEGORY] * n
        assert (len(found.centres), found.low, found.high) == (0, 0, n)
        assert "too few" in found.note


def test_confidence_is_half_between_two_centres() -> None:
    x, _ = blobs([30, 30], width=0.3)
    centres = np.eye(16, dtype=np.float32)[:2]
    between = centres.mean(0, keepdims=True)
    category, confidence, _ = assign(np.concatenate([x, between]), centres)
    assert category[-1] != NO_CATEGORY
    assert confidence[-1] == pytest.approx(0.5)
    assert confidence[:-1].mean() > 0.9


def test_stability_is_the_share_of_the_own_category_in_the_cluster() -> None:
    x = np.eye(4, dtype=np.float32)[[0, 0, 1, 1, 2, 3]]
    category = np.array([1, 1, 1, 2, 2, NO_CATEGORY])
    alike = np.eye(4, dtype=np.float32)  # 1 1 | 1 2 | 2 | none
    one = x[:1]  # three of 1, two of 2 in one cluster
    stability = co_assignment_stability(x, category, [alike, one])
    assert stability == pytest.approx([(1 + 0.6) / 2] * 2 + [0.55, 0.45, (1 + 0.4) / 2, 0])


def test_an_image_without_a_stable_category_is_less_confident() -> None:
    x, _, known = novel_and_known([60, 60, 60], width=0.1)
    scattered = np.random.default_rng(1).normal(size=(120, 16)).astype(np.float32)
    found = find_categories(np.concatenate([x, scattered]), known)
    clear, vague = found.confidence[: len(x)], found.confidence[len(x) :]
    assert np.median(vague) < np.median(clear)


def test_known_images_are_the_accepted_ones_least_like_unknown() -> None:
    x, labels = blobs([4, 4, 4])
    score = np.array([0.1, 0.2, 0.3, 0.4] * 3)
    known = select_known(x, labels, labels < 2, score)
    np.testing.assert_array_equal(known.features, x[(labels < 2) & (score <= 0.25)])
    assert known.labels.tolist() == [0, 0, 1, 1]
    assert len(select_known(x, labels, labels < 0, score).labels) == 0


def test_half_whitening_takes_the_root_of_the_deviation() -> None:
    x = np.random.default_rng(0).normal(size=(50, 3)) * [9.0, 1.0, 0.0]
    wide = half_whiten(x.astype(np.float32))
    np.testing.assert_allclose(wide.std(0), x.std(0) ** 0.5, rtol=1e-5)


def test_representatives_are_near_and_no_copies_of_each_other() -> None:
    x, _ = blobs([40], width=0.1)
    x = normalize_rows(np.concatenate([x, x, -x[:2]]))
    rows = representatives(x, x[:40].mean(0), 5)
    assert len(rows) == len(np.unique(x[rows], axis=0)) == 5
    assert rows.max() < 80
    assert len(representatives(np.repeat(x[:1], 4, 0), x[0], 5)) == 1
