"""H-score and its relatives: the check case of docs/methods/index.md, limits, invariances."""

import dataclasses
import itertools
import math
import warnings
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment
from sklearn.preprocessing import normalize

from unida.evaluation.metrics import (
    Score,
    auroc,
    best_threshold,
    cluster_accuracy,
    confusion,
    h3,
    novel_nmi,
    oscr,
    recalls,
    score,
    score_categories,
    universal_value,
)

# C = 3: shared 0 and 1, source-private 2; unknown is 3.
LABELS = [0, 0, 0, 0, 1, 1, 3, 3, 3, 3, 3]
PREDICTIONS = [0, 0, 0, 3, 1, 2, 3, 3, 3, 0, 1]
EXPECTED = {
    "known": 0.625,
    "known_instance": 0.666667,
    "unknown": 0.6,
    "h": 0.612244898,
    "h_instance": 0.631578947,
    "balanced_h": 0.613382900,
    "balanced_h_instance": 0.634615385,
    "os": 0.616666667,
    "os_star": 0.625,
}


def as_dict(result: Score) -> dict[str, float]:
    return dataclasses.asdict(result)


def test_the_check_case_of_methods() -> None:
    for n_shared in (None, 2):
        result = as_dict(score(LABELS, PREDICTIONS, unknown=3, n_shared=n_shared))
        assert result == pytest.approx(EXPECTED, abs=1e-6)


def test_a_source_private_prediction_is_an_error_like_any_other() -> None:
    other_class = [1 if p == 2 else p for p in PREDICTIONS[:4]] + [1, 0] + PREDICTIONS[6:]
    assert score(LABELS, other_class, unknown=3) == score(LABELS, PREDICTIONS, unknown=3)


def test_a_source_private_prediction_of_an_unknown_sample_is_an_error() -> None:
    assert score([0, 3, 3], [0, 2, 3], unknown=3).unknown == 0.5


def test_without_a_shared_sample_only_the_unknown_is_measured() -> None:
    result = score([3, 3], [3, 0], unknown=3)
    assert result.unknown == 0.5
    assert result.os == 0.5
    for field in ("known", "known_instance", "h", "h_instance", "balanced_h", "os_star"):
        assert math.isnan(getattr(result, field))


def test_without_an_unknown_sample_only_the_known_is_measured() -> None:
    result = score([0, 0, 1], [0, 3, 1], unknown=3)
    assert result.known == result.os == result.os_star == 0.75
    assert result.known_instance == pytest.approx(2 / 3)
    for field in ("unknown", "h", "h_instance", "balanced_h"):
        assert math.isnan(getattr(result, field))


def test_without_any_sample_nothing_is_measured() -> None:
    assert all(math.isnan(value) for value in as_dict(score([], [], unknown=3)).values())


def test_nothing_right_is_zero_not_an_error() -> None:
    assert set(as_dict(score([0, 1, 3], [1, 0, 0], unknown=3)).values()) == {0.0}


@pytest.mark.parametrize(("predictions", "right"), [([0, 1, 0], "known"), ([3, 3, 3], "unknown")])
def test_one_half_at_zero_makes_the_harmonic_means_zero(predictions: list[int], right: str) -> None:
    result = score([0, 1, 3], predictions, unknown=3)
    assert getattr(result, right) == 1
    assert result.h == result.h_instance == result.balanced_h == 0


def test_all_right_is_one_everywhere() -> None:
    assert set(as_dict(score(LABELS, LABELS, unknown=3)).values()) == {1.0}


def test_balanced_h_leans_on_the_side_with_more_samples() -> None:
    """θ = 4, A_c = .8, A_u = .6: .631579 as printed; the released code's .75 swaps the sides."""
    labels = [0] * 5 + [1] * 20
    predictions = [0] * 4 + [1] + [1] * 12 + [0] * 8
    assert score(labels, predictions, unknown=1).balanced_h == pytest.approx(0.631579, abs=1e-6)


def test_shared_classes_without_samples_do_not_count() -> None:
    assert score(LABELS, PREDICTIONS, unknown=9, n_shared=4).known == pytest.approx(
        score(LABELS, PREDICTIONS, unknown=9).known
    )


def test_unknown_may_be_any_number() -> None:
    labels = [-1 if k == 3 else k for k in LABELS]
    predictions = [-1 if k == 3 else k for k in PREDICTIONS]
    result = score(labels, predictions, unknown=-1, n_shared=2)
    assert result == score(LABELS, PREDICTIONS, unknown=3)


def test_labels_and_predictions_must_pair() -> None:
    with pytest.raises(ValueError, match="3 labels but 2 predictions"):
        score([0, 1, 3], [0, 1], unknown=3)


@pytest.mark.parametrize("labels", [[0, 2], [-1, 0]])
def test_labels_outside_the_shared_classes_are_refused(labels: list[int]) -> None:
    with pytest.raises(ValueError, match="are not all below n_shared = 2"):
        score(labels, [0, 0], unknown=3, n_shared=2)


samples = st.lists(st.tuples(st.sampled_from([0, 1, 2, 4]), st.integers(0, 4)), max_size=30)


@settings(max_examples=60)
@given(samples, st.randoms(use_true_random=False))
def test_the_order_of_the_samples_does_not_matter(
    pairs: list[tuple[int, int]], random: Random
) -> None:
    shuffled = list(pairs)
    random.shuffle(shuffled)
    one, two = (as_dict(score([y for y, _ in s], [p for _, p in s], unknown=4))
                for s in (pairs, shuffled))  # fmt: skip
    assert one == pytest.approx(two, nan_ok=True)


@settings(max_examples=60)
@given(samples, st.permutations([0, 1, 2, 3]))
def test_the_numbers_of_the_classes_do_not_matter(
    pairs: list[tuple[int, int]], names: list[int]
) -> None:
    renamed = [*names, 4]
    one = score([y for y, _ in pairs], [p for _, p in pairs], unknown=4)
    two = score([renamed[y] for y, _ in pairs], [renamed[p] for _, p in pairs], unknown=4)
    assert as_dict(one) == pytest.approx(as_dict(two), nan_ok=True)


@settings(max_examples=100)
@given(samples)
def test_scores_are_fractions_and_means_lie_between_their_parts(
    pairs: list[tuple[int, int]],
) -> None:
    result = score([y for y, _ in pairs], [p for _, p in pairs], unknown=4)
    for value in as_dict(result).values():
        assert math.isnan(value) or 0 <= value <= 1 + 1e-12
    parts = (result.known, result.unknown)
    if not any(map(math.isnan, parts)):
        for mean in (result.h, result.balanced_h, result.os):
            assert min(parts) - 1e-12 <= mean <= max(parts) + 1e-12
        assert result.h <= np.mean(parts) + 1e-12


class TestAUROC:
    def test_it_counts_pairs(self) -> None:
        assert auroc([0, 1, 3, 3], [0.1, 0.6, 0.5, 0.9], unknown=3) == 0.75

    def test_a_tie_counts_half(self) -> None:
        assert auroc([0, 3], [0.5, 0.5], unknown=3) == 0.5
        assert auroc([0, 0, 3], [0.5, 0.1, 0.5], unknown=3) == 0.75

    def test_without_a_side_it_is_undefined(self) -> None:
        assert math.isnan(auroc([0, 1], [0.1, 0.2], unknown=3))
        assert math.isnan(auroc([3], [0.1], unknown=3))
        assert math.isnan(auroc([], [], unknown=3))

    def test_nan_counts_as_the_highest_score(self) -> None:
        assert auroc([0, 3], [1e9, math.nan], unknown=3) == 1.0
        assert auroc([0, 3], [math.inf, math.nan], unknown=3) == 0.5

    def test_labels_and_scores_must_pair(self) -> None:
        with pytest.raises(ValueError, match="2 labels but 1 scores"):
            auroc([0, 3], [0.1], unknown=3)

    @settings(max_examples=60)
    @given(st.lists(st.tuples(st.sampled_from([0, 3]), st.integers(-3, 3)), max_size=20))
    def test_any_rising_function_of_the_scores_gives_the_same(
        self, pairs: list[tuple[int, int]]
    ) -> None:
        y, s = [y for y, _ in pairs], np.array([s for _, s in pairs], dtype=float)
        one, two = auroc(y, s, 3), auroc(y, np.exp(s) * 7 + 1, 3)
        assert one == pytest.approx(two, nan_ok=True)
        flipped = auroc(y, -s, 3)
        assert one + flipped == pytest.approx(1, nan_ok=True) or math.isnan(one)


def slow_oscr(labels: list[int], best: list[int], scores: list[float], unknown: int) -> float:
    """Every threshold between two scores, corners of the curve joined by straight lines."""
    known = [i for i, y in enumerate(labels) if y != unknown]
    novel = [i for i, y in enumerate(labels) if y == unknown]
    if not known or not novel:
        return math.nan
    curve = []
    for threshold in [-math.inf, *sorted(set(scores))]:
        right = sum(scores[i] <= threshold and best[i] == labels[i] for i in known)
        false = sum(scores[i] <= threshold for i in novel)
        curve.append((false / len(novel), right / len(known)))
    return sum((b[0] - a[0]) * (a[1] + b[1]) / 2 for a, b in itertools.pairwise(curve))


class TestOSCR:
    def test_it_is_the_accuracy_where_the_groups_are_apart(self) -> None:
        assert oscr([0, 1, 3], [0, 0, 1], [0.1, 0.2, 0.9], unknown=3) == 0.5

    def test_it_is_the_auroc_where_every_class_is_right(self) -> None:
        labels, scores = [0, 1, 2, 3, 3], [0.1, 0.5, 0.7, 0.5, 0.9]
        assert oscr(labels, labels, scores, 3) == pytest.approx(auroc(labels, scores, 3))

    def test_without_a_side_it_is_undefined(self) -> None:
        assert math.isnan(oscr([0], [0], [0.1], unknown=3))
        assert math.isnan(oscr([3], [0], [0.1], unknown=3))

    @settings(max_examples=150)
    @given(
        st.lists(
            st.tuples(st.sampled_from([0, 1, 3]), st.sampled_from([0, 1]), st.integers(0, 4)),
            max_size=15,
        )
    )
    def test_it_is_the_area_under_the_curve_ties_and_all(
        self, rows: list[tuple[int, int, int]]
    ) -> None:
        labels, best, scores = ([row[i] for row in rows] for i in range(3))
        slow = slow_oscr(labels, best, [float(s) for s in scores], 3)
        assert oscr(labels, best, scores, 3) == pytest.approx(slow, nan_ok=True)


class TestH3:
    def test_it_is_the_harmonic_mean_of_three(self) -> None:
        assert h3(0.8, 0.6, 0.5) == pytest.approx(3 / (1 / 0.8 + 1 / 0.6 + 1 / 0.5))
        assert h3(0.7, 0.7, 0.7) == pytest.approx(0.7)

    def test_a_zero_makes_it_zero_and_an_undefined_part_undefined(self) -> None:
        assert h3(0.8, 0.0, 0.5) == 0
        assert math.isnan(h3(0.8, 0.0, math.nan))


class TestNovelNMI:
    def groups(self, n: int = 30, wide: int = 8) -> tuple[np.ndarray, list[str]]:
        centres = np.eye(3, wide)
        draw = np.random.default_rng(0)
        features = np.repeat(centres, n, 0) + 0.05 * draw.standard_normal((3 * n, wide))
        return features, ["cat"] * n + ["dog"] * n + ["cow"] * n

    def test_clear_groups_are_found(self) -> None:
        assert novel_nmi(*self.groups(), seed=0) == pytest.approx(1)

    def test_the_length_of_a_feature_does_not_matter(self) -> None:
        features, names = self.groups()
        lengths = np.random.default_rng(1).uniform(0.1, 10, (len(features), 1))
        assert novel_nmi(features * lengths, names, seed=0) == pytest.approx(1)

    def test_noise_scores_low(self) -> None:
        noise = np.random.default_rng(0).standard_normal((300, 8))
        assert novel_nmi(noise, np.arange(300) % 3, seed=0) < 0.1

    def test_one_class_or_none_is_undefined(self) -> None:
        assert math.isnan(novel_nmi(np.ones((4, 2)), ["cat"] * 4, seed=0))
        assert math.isnan(novel_nmi(np.zeros((0, 2)), [], seed=0))
        assert math.isnan(novel_nmi([[np.nan, 1], [1, 0]], ["cat", "dog"], seed=0))

    def test_equal_features_score_zero_without_a_warning(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert novel_nmi(np.ones((4, 2)), ["cat", "dog"] * 2, seed=0) == 0

    def test_many_images_with_long_features_are_clustered_too(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("unida.evaluation.metrics.MAX_FULL_BATCH", 50)
        monkeypatch.setattr("unida.evaluation.metrics.MAX_DIMENSIONS", 20)
        assert novel_nmi(*self.groups(wide=64), seed=0) > 0.9

    def test_of_very_many_images_a_seeded_sample_is_clustered(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        clustered: list[np.ndarray] = []

        def noting(x: np.ndarray) -> np.ndarray:
            clustered.append(x)
            return normalize(x)

        monkeypatch.setattr("sklearn.preprocessing.normalize", noting)
        features, names = self.groups()
        novel_nmi(features, names, seed=0)
        monkeypatch.setattr("unida.evaluation.metrics.MAX_NMI_IMAGES", 40)
        values = [novel_nmi(features, names, seed=seed) for seed in (0, 0, 1)]
        assert [len(x) for x in clustered] == [90, 40, 40, 40]
        assert values == pytest.approx([1, 1, 1])
        assert (clustered[1] == clustered[2]).all()
        assert (clustered[1] != clustered[3]).any()

    def test_the_unknown_images_may_lie_among_others(self) -> None:
        noise = np.random.default_rng(0).standard_normal((90, 8))
        classes, rows = np.arange(90) % 3, np.arange(20, 70)
        alone = novel_nmi(noise[rows], classes[rows], seed=4)
        assert novel_nmi(noise, classes, 4, rows) == alone

    def test_the_same_seed_gives_the_same(self) -> None:
        noise = np.random.default_rng(0).standard_normal((90, 8))
        classes = np.arange(90) % 3
        assert novel_nmi(noise, classes, seed=4) == novel_nmi(noise, classes, seed=4)

    def test_features_and_classes_must_pair(self) -> None:
        with pytest.raises(ValueError, match="1 labels but 2 rows"):
            novel_nmi(np.ones((2, 2)), ["cat"], seed=0)


class TestConfusion:
    def test_the_check_case(self) -> None:
        counts = confusion(LABELS, PREDICTIONS, 3)
        assert counts.tolist() == [[3, 0, 0, 1], [0, 1, 1, 0], [0, 0, 0, 0], [1, 1, 0, 3]]

    def test_it_agrees_with_the_recalls_and_the_score(self) -> None:
        counts = confusion(LABELS, PREDICTIONS, 3)
        by_class = recalls(LABELS, PREDICTIONS)
        assert by_class == {0: 0.75, 1: 0.5, 3: 0.6}
        for k, recall in by_class.items():
            assert recall == counts[k, k] / counts[k].sum()
        assert score(LABELS, PREDICTIONS, unknown=3).known == (by_class[0] + by_class[1]) / 2

    @settings(max_examples=50)
    @given(samples)
    def test_recalls_are_counted_class_by_class(self, pairs: list[tuple[int, int]]) -> None:
        y, p = (np.array([pair[i] for pair in pairs], dtype=int) for i in (0, 1))
        slow = {int(k): float((p[y == k] == k).mean()) for k in set(y.tolist())}
        assert recalls(y, p) == slow

    def test_nothing_is_counted_where_nothing_is(self) -> None:
        assert confusion([], [], 2).tolist() == [[0, 0, 0]] * 3
        assert recalls([], []) == {}

    @pytest.mark.parametrize(("labels", "predictions"), [([4], [0]), ([0], [-1])])
    def test_a_number_that_is_no_class_is_refused(
        self, labels: list[int], predictions: list[int]
    ) -> None:
        with pytest.raises(ValueError, match="not all from 0 to 3"):
            confusion(labels, predictions, 3)


class TestClusterAccuracy:
    def test_groups_and_classes_are_paired_as_well_as_can_be(self) -> None:
        # To give group 0 to 'a', which has most in it as well, would leave nothing for 'b'.
        classes, groups = list("aaaaabbb"), [0, 0, 0, 1, 1, 0, 0, 0]
        assert cluster_accuracy(classes, groups) == pytest.approx(5 / 8)

    @settings(max_examples=25)
    @given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=12))
    def test_it_is_the_best_of_all_pairings(self, rows: list[tuple[int, int]]) -> None:
        best = max(
            sum(pairing[group] == label for label, group in rows)
            for pairing in itertools.permutations(range(4))
        )
        labels, groups = zip(*rows, strict=True)
        assert cluster_accuracy(labels, groups) == pytest.approx(best / len(rows))

    def test_what_is_in_no_group_is_wrong(self) -> None:
        assert cluster_accuracy(["a", "a", "b"], [-1, -1, 7]) == pytest.approx(1 / 3)
        assert cluster_accuracy(["a"], [-1]) == 0

    def test_of_nothing_it_is_undefined(self) -> None:
        assert math.isnan(cluster_accuracy([], []))


class TestScoreCategories:
    # Known classes a and b, novel ones x and y; predicted a is 0, b 1, categories 2 and 3, none 9.
    CLASSES = np.array([*"aaabb", *"xxxx", *"yyy"])
    CLUSTERS = np.array([0, 0, 2, 1, 9, 2, 2, 3, 0, 3, 3, 9])
    NOVEL = np.array([c in "xy" for c in CLASSES])

    def test_one_pairing_decides_for_old_and_new_images(self) -> None:
        found = score_categories(self.CLASSES, self.CLUSTERS, self.NOVEL)
        assert found.all == pytest.approx(7 / 12)  # a-0 2, b-1 1, x-2 2, y-3 2
        assert found.old == pytest.approx(3 / 5)
        assert found.new == pytest.approx(4 / 7)

    @settings(max_examples=25)
    @given(
        st.lists(
            st.tuples(st.integers(0, 4), st.integers(0, 5), st.booleans()), min_size=1, max_size=30
        )
    )
    def test_it_is_the_pairing_of_scipy(self, rows: list[tuple[int, int, bool]]) -> None:
        classes, clusters, novel = map(np.array, zip(*rows, strict=True))
        counts = np.zeros((5, 6))
        np.add.at(counts, (classes, clusters), 1)
        pairs = linear_sum_assignment(-counts)
        found = score_categories(classes, clusters, novel)
        assert found.all == pytest.approx(counts[pairs].sum() / len(rows))
        parts = [(found.old, (~novel).sum()), (found.new, novel.sum())]
        assert found.all * len(rows) == pytest.approx(sum(a * n for a, n in parts if n))

    def test_names_of_clusters_do_not_matter_and_a_perfect_division_is_one(self) -> None:
        perfect = np.unique(self.CLASSES, return_inverse=True)[1]
        found = score_categories(self.CLASSES, 100 - perfect, self.NOVEL)
        assert dataclasses.astuple(found) == pytest.approx((1, 1, 1, 1, 1))

    def test_a_novel_image_among_those_of_a_known_class_is_wrong(self) -> None:
        found = score_categories(["a", "a", "x"], [0, 0, 0], np.array([False, False, True]))
        assert (found.all, found.old, found.new) == (pytest.approx(2 / 3), 1, 0)

    def test_without_novel_images_their_scores_are_undefined(self) -> None:
        found = score_categories(["a", "b"], [0, 1], np.array([False, False]))
        assert (found.all, found.old) == (1, 1)
        assert all(map(math.isnan, (found.new, found.nmi, found.ari)))


def test_the_value_is_h_or_the_share_of_right_images() -> None:
    some, none, only = (score(y, [0, 2, 2], unknown=2) for y in ([0, 1, 2], [0, 1, 1], [2, 2, 2]))
    found = [universal_value(s.h, s.known_instance, s.unknown) for s in (some, none, only)]
    assert found == [some.h, pytest.approx(1 / 3), pytest.approx(2 / 3)]


@pytest.mark.parametrize("kind", ["some unknown", "none unknown", "all unknown"])
def test_the_best_threshold_is_the_best_of_all_that_are_tried(kind: str) -> None:
    rng, unknown = np.random.default_rng(0), 4
    for _ in range(50):
        n = int(rng.integers(1, 40))
        labels = rng.integers(0, unknown + (kind == "some unknown"), n)
        if kind == "all unknown":
            labels[:] = unknown
        scores = np.round(rng.normal(size=n) + (labels == unknown), 1)  # with ties
        for special in (math.nan, math.inf, -math.inf):
            scores[rng.random(n) < 0.05] = special
        best = np.where(rng.random(n) < 0.7, labels % unknown, rng.integers(0, unknown, n))
        tried = []
        for t in (*scores[~np.isnan(scores)], math.inf):
            found = score(labels, np.where(scores < t, best, unknown), unknown=unknown)
            tried.append(universal_value(found.h, found.known_instance, found.unknown))
        assert best_threshold(labels, best, scores, unknown) == pytest.approx(max(tried))


def test_the_best_threshold_of_no_image_is_undefined() -> None:
    assert math.isnan(best_threshold([], [], [], 3))
