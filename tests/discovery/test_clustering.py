"""Novel categories are found where they are, none where there are none, in any order of images."""

import numpy as np
import pytest

from unida.discovery import clustering
from unida.discovery.algorithms import (
    ALGORITHMS,
    DEFAULT,
    balance,
    candidate_counts,
    resolve_algorithm,
)
from unida.discovery.clustering import (
    MIN_IMAGES,
    NO_CATEGORY,
    assign,
    co_assignment_stability,
    find_categories,
    representatives,
    select_known,
)
from unida.discovery.clusters import Centres, KnownFeatures, lloyd, normalize_rows
from unida.evaluation.metrics import cluster_accuracy
from unida.types import Features, IntArray

every_algorithm = pytest.mark.parametrize("name", ALGORITHMS)


@pytest.fixture(autouse=True)
def few_half_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clustering, "HALF_SAMPLES", 2)


def blobs(counts: list[int], seed: int = 0, width: float = 0.02) -> tuple[Features, IntArray]:
    """Rows around one axis for each count, and the number of the axis."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(len(counts)), counts)
    x = np.eye(16)[labels] + width * rng.normal(size=(len(labels), 16))
    return x.astype(np.float32), labels


def novel_and_known(counts: list[int]) -> tuple[Features, IntArray, KnownFeatures]:
    """Blobs of novel categories, and three known classes of their mean size."""
    size = round(sum(counts) / len(counts))
    x, labels = blobs([*counts, size, size, size])
    known = labels >= len(counts)
    return x[~known], labels[~known], KnownFeatures(x[known], labels[known])


@every_algorithm
def test_blobs_are_categories_and_scattered_images_are_in_none(name: str) -> None:
    x, labels, known = novel_and_known([40, 30, 20, 20, 15])
    noise = np.random.default_rng(1).normal(size=(8, 16)).astype(np.float32)
    found = find_categories(np.concatenate([x, noise]), known, ALGORITHMS[name])
    assert len(found.centres) == 5
    assert found.low <= 5 <= found.high
    inside = found.category[: len(x)] != NO_CATEGORY
    assert inside.mean() > 0.9
    assert cluster_accuracy(labels[inside], found.category[: len(x)][inside]) == 1
    assert (np.diff(np.bincount(found.category)[1:]) <= 0).all()
    assert (found.category[-8:] == NO_CATEGORY).sum() >= 7
    assert (found.confidence[found.category == NO_CATEGORY] == 0).all()
    assert np.median(found.confidence[: len(x)][inside]) > 0.9


@every_algorithm
def test_one_blob_or_equal_images_are_one_category(name: str) -> None:
    x, _, known = novel_and_known([60])
    found = find_categories(x, known, ALGORITHMS[name])
    assert len(found.centres) == 1
    assert (found.category == 1).mean() > 0.9
    same = np.ones((20, 4), np.float32)
    found = find_categories(same, KnownFeatures(same[:0], np.zeros(0, np.int64)), ALGORITHMS[name])
    assert set(found.category.tolist()) == {1}


@every_algorithm
def test_the_order_of_the_images_does_not_matter(name: str) -> None:
    x, _, known = novel_and_known([30, 20, 20])
    x += np.random.default_rng(2).normal(size=x.shape).astype(np.float32) * 0.2
    order = np.random.default_rng(3).permutation(len(x))
    reverse = KnownFeatures(known.features[::-1], known.labels[::-1])
    one = find_categories(x, known, ALGORITHMS[name])
    other = find_categories(x[order], reverse, ALGORITHMS[name])
    np.testing.assert_array_equal(one.category[order], other.category)
    np.testing.assert_array_equal(one.confidence[order], other.confidence)
    assert (one.low, one.high) == (other.low, other.high)


def test_rejected_images_of_known_classes_are_in_no_category() -> None:
    x, labels = blobs([40, 40, 60, 60])
    of_known = labels >= 2
    accepted = of_known & (np.arange(len(x)) % 2 == 0)
    known = select_known(x, labels, accepted, x[:0], labels[:0])
    found = find_categories(x[~accepted], known, ALGORITHMS["semi_supervised"])
    assert len(found.centres) == 2
    assert (found.category[labels[~accepted] >= 2] == NO_CATEGORY).all()


def test_the_class_size_prior_counts_by_the_median_size_of_known_classes() -> None:
    x, _ = blobs([30, 30, 30, 30], width=0.1)
    for size, count in ((30, 4), (60, 2), (15, 8), (1000, 1), (1, 24)):
        features, labels = blobs([size, size, 5 * size])
        centres = ALGORITHMS["class_size_prior"](x, KnownFeatures(features, labels), 0)
        assert len(centres.novel) == count  # 24: a category has at least five images


def test_the_class_size_prior_does_not_depend_on_the_sample(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x, labels, known = novel_and_known([400, 400, 400])
    for most in (clustering.MAX_CLUSTERED, 150):
        monkeypatch.setattr(clustering, "MAX_CLUSTERED", most)
        found = find_categories(x, known, ALGORITHMS["class_size_prior"])
        assert len(found.centres) == 3
    inside = found.category != NO_CATEGORY
    assert cluster_accuracy(labels[inside], found.category[inside]) == 1


def test_the_interval_is_wider_where_known_classes_differ_in_size() -> None:
    x, _ = blobs([40] * 6, width=0.1)
    spans = []
    for sizes in ([40] * 6, [10, 20, 40, 40, 80, 160]):
        found = find_categories(x, KnownFeatures(*blobs(sizes)), ALGORITHMS["class_size_prior"])
        assert found.low <= 6 <= found.high
        spans.append(found.high - found.low)
    assert spans[0] < spans[1]


def test_too_few_images_are_in_no_category() -> None:
    x, _, known = novel_and_known([20])
    for n in (0, 1, MIN_IMAGES - 1):
        found = find_categories(x[:n], known, ALGORITHMS[DEFAULT])
        assert found.category.tolist() == [NO_CATEGORY] * n
        assert (len(found.centres), found.low, found.high) == (0, 0, n)


def test_confidence_is_half_between_two_centres() -> None:
    x, _ = blobs([30, 30], width=0.3)
    centres = np.eye(16, dtype=np.float32)[:2]
    between = centres.mean(0, keepdims=True)
    category, confidence, _ = assign(np.concatenate([x, between]), Centres(centres, x[:0]))
    assert category[-1] != NO_CATEGORY
    assert confidence[-1] == pytest.approx(0.5)
    assert confidence[:-1].mean() > 0.9


def test_stability_is_the_share_of_the_own_category_in_the_cluster() -> None:
    x = np.eye(4, dtype=np.float32)[[0, 0, 1, 1, 2, 3]]
    category = np.array([1, 1, 1, 2, 2, NO_CATEGORY])
    alike = Centres(np.eye(4, dtype=np.float32), x[:0])  # 1 1 | 1 2 | 2 | none
    one = Centres(x[:1], x[:0])  # three of 1, two of 2 in one cluster
    stability = co_assignment_stability(x, category, [alike, one])
    assert stability == pytest.approx([(1 + 0.6) / 2] * 2 + [0.55, 0.45, (1 + 0.4) / 2, 0])


def test_an_image_without_a_stable_category_is_less_confident() -> None:
    x, labels = blobs([60, 60, 60], width=0.1)
    scattered = np.random.default_rng(1).normal(size=(120, 16)).astype(np.float32)
    known = KnownFeatures(x[:0], labels[:0])
    found = find_categories(np.concatenate([x, scattered]), known, ALGORITHMS["kmeans"])
    clear, vague = found.confidence[: len(x)], found.confidence[len(x) :]
    assert (vague[found.category[len(x) :] != NO_CATEGORY] < clear.min()).all()
    assert clear.mean() > 0.9


def test_known_images_keep_their_cluster_in_semi_supervised_k_means() -> None:
    x = np.array([[0.0], [1.0], [9.0], [10.0]], np.float32)
    known = KnownFeatures(np.full((6, 1), -2, np.float32), np.zeros(6, np.int64))
    start = Centres(np.array([[8.0]], np.float32), np.array([[-1.0]], np.float32))
    centres = lloyd(x, known, start)
    assert centres.novel.tolist() == [[9.5]]
    assert centres.known[0, 0] == pytest.approx((0 + 1 - 12) / 8)


def test_known_images_are_accepted_ones_or_else_the_shifted_source() -> None:
    x, labels = blobs([10, 10, 10])
    source, source_labels = x[:5] + 7, labels[:5]
    accepted = select_known(x, labels, labels < 2, source, source_labels)
    np.testing.assert_array_equal(accepted.features, x[labels < 2])
    shifted = select_known(x, labels, labels < 1, source, source_labels)
    np.testing.assert_allclose(shifted.features.mean(0), x.mean(0), atol=1e-5)
    assert shifted.labels is source_labels


def test_known_classes_are_balanced_and_renumbered() -> None:
    x, labels = blobs([200, 7])
    assert np.bincount(balance(KnownFeatures(x, labels * 5 + 3), 0).labels).tolist() == [60, 7]


def test_candidate_counts_leave_a_few_images_for_each_cluster() -> None:
    assert candidate_counts(9) == []
    assert candidate_counts(25) == [2, 3, 4, 5]
    assert candidate_counts(1000)[-1] <= 200


def test_representatives_are_near_and_no_copies_of_each_other() -> None:
    x, _ = blobs([40], width=0.1)
    x = normalize_rows(np.concatenate([x, x, -x[:2]]))
    rows = representatives(x, x[:40].mean(0), 5)
    assert len(rows) == len(np.unique(x[rows], axis=0)) == 5
    assert rows.max() < 80
    assert len(representatives(np.repeat(x[:1], 4, 0), x[0], 5)) == 1


def test_names_of_an_earlier_version_are_understood_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert [resolve_algorithm(name) for name in ("sized", "anchored", "hdbscan")] == [
        "class_size_prior",
        "semi_supervised",
        "hdbscan",
    ]
    assert len(caplog.records) == 2
