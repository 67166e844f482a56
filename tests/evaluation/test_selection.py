"""Criteria on arrays of known order, and the split in which known classes stand in for unknown."""

import ast
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import unida.evaluation.selection as selection
from unida.data.samples import Samples
from unida.decision.rejection import Rule, finite
from unida.errors import UserError
from unida.evaluation.selection import (
    CRITERIA,
    SelectionData,
    entropy,
    hide_classes,
    neighbourhood_density,
    separation,
)
from unida.types import Scored

RULE = Rule("own", 0.0, "")


def one_hot(classes: list[int], n_classes: int = 3) -> np.ndarray:
    return np.eye(n_classes)[classes]


def softmaxes(n: int, n_classes: int = 4, sharp: float = 1.0, seed: int = 0) -> np.ndarray:
    logits = sharp * np.random.default_rng(seed).standard_normal((n, n_classes))
    return np.exp(logits) / np.exp(logits).sum(1, keepdims=True)


class TestTable:
    def test_it_is_a_literal_dict_of_one_line_descriptions(self) -> None:
        tree = ast.parse(Path(selection.__file__).read_text())
        tables = [n.value for n in tree.body if isinstance(n, ast.AnnAssign)]
        assert any(isinstance(table, ast.Dict) for table in tables)
        for criterion in CRITERIA.values():
            assert 0 < len(criterion.about) <= 100
            assert "\n" not in criterion.about

    def test_only_the_oracle_uses_target_labels(self) -> None:
        using = [name for name, c in CRITERIA.items() if c.images == "labelled target"]
        assert using == ["oracle"]

    @pytest.mark.parametrize("name", [n for n, c in CRITERIA.items() if c.images == "target"])
    def test_a_criterion_of_the_target_needs_no_labels(self, name: str) -> None:
        scores = np.random.default_rng(0).standard_normal(50)
        scored = Scored(softmaxes(50), scores, np.zeros((50, 2), np.float32))
        assert math.isfinite(CRITERIA[name].value(SelectionData(scored, RULE)))

    @pytest.mark.parametrize("name", ["source_validation", "oracle"])
    def test_h_is_under_the_rule_of_the_run(self, name: str) -> None:
        probs, labels = one_hot([0, 1, 2, 0]), np.array([0, 1, 0, 3])
        scored = Scored(probs, np.array([-1.0, -1.0, -1.0, 1.0]), np.zeros((4, 2), np.float32))
        known, unknown = 0.75, 1.0
        value = CRITERIA[name].value(SelectionData(scored, RULE, labels))
        assert value == pytest.approx(2 * known * unknown / (known + unknown))
        none_rejected = SelectionData(scored, Rule("own", 9.0, ""), labels)
        assert CRITERIA[name].value(none_rejected) == 0


class TestEntropy:
    def test_confidence_is_best_and_uniform_probabilities_worst(self) -> None:
        sharp, soft, flat = (entropy(softmaxes(20, sharp=s)) for s in (8, 1, 0))
        assert sharp > soft > flat
        assert flat == pytest.approx(-math.log(4))
        assert entropy(one_hot([0, 1, 2])) == 0

    def test_one_image_and_two_classes(self) -> None:
        assert entropy(np.array([[0.5, 0.5]])) == pytest.approx(-math.log(2))

    def test_parts_do_not_show(self, monkeypatch: pytest.MonkeyPatch) -> None:
        probs = softmaxes(53)
        whole = entropy(probs)
        monkeypatch.setattr(selection, "MAX_SAMPLES", 10)
        assert entropy(probs) == whole

    def test_without_an_image_it_is_undefined(self) -> None:
        assert math.isnan(entropy(np.zeros((0, 3))))

    @settings(max_examples=30)
    @given(st.permutations(range(4)), st.integers(0, 9))
    def test_the_order_of_classes_and_images_does_not_matter(
        self, order: list[int], seed: int
    ) -> None:
        probs = softmaxes(12, seed=seed)
        assert entropy(probs[::-1, order]) == pytest.approx(entropy(probs))


def slow_density(probs: np.ndarray) -> float:
    """Saito et al. 2021, one pair at a time."""
    total = 0.0
    for i, p in enumerate(probs):
        others = [q for j, q in enumerate(probs) if j != i]
        cosines = [float(p @ q / math.sqrt(p @ p) / math.sqrt(q @ q)) for q in others]
        weights = [math.exp(c / 0.05) for c in cosines]
        shares = [w / sum(weights) for w in weights]
        total -= sum(s * math.log(s) for s in shares if s > 0)
    return total / len(probs)


class TestNeighbourhoodDensity:
    @pytest.mark.parametrize("sharp", [0.5, 3.0])
    @pytest.mark.parametrize("n", [2, 7, 40])
    def test_it_equals_a_slow_copy(self, n: int, sharp: float) -> None:
        probs = softmaxes(n, sharp=sharp)
        assert neighbourhood_density(probs) == pytest.approx(slow_density(probs))

    def test_chunks_do_not_show(self) -> None:
        probs = softmaxes(1203, sharp=3.0)
        x = probs / np.linalg.norm(probs, axis=1, keepdims=True)
        whole = selection._density(x, np.arange(len(x))).mean()
        assert neighbourhood_density(probs) == pytest.approx(whole)

    def test_tight_groups_beat_loose_ones(self) -> None:
        """Sixty images in three classes: certain of them, hesitant, or at random."""
        groups = one_hot([0, 1, 2] * 20)
        noise = softmaxes(60, 3, sharp=2.0)
        tight, loose, none = (0.98 * groups + 0.02 * noise, 0.5 * groups + 0.5 * noise, noise)
        best = neighbourhood_density(tight)
        assert best > neighbourhood_density(loose)
        assert best > neighbourhood_density(none)

    def test_it_is_largest_for_one_class_as_described(self) -> None:
        assert neighbourhood_density(one_hot([1] * 30)) == pytest.approx(math.log(29))
        assert neighbourhood_density(one_hot([0, 1, 2] * 10)) < math.log(29)

    def test_equal_groups_have_the_size_of_a_group(self) -> None:
        """Images of other classes weigh e^(−20) as much."""
        value = neighbourhood_density(one_hot([0, 1] * 10, 2))
        assert value == pytest.approx(math.log(9), abs=1e-6)

    def test_one_image_has_no_neighbour(self) -> None:
        assert math.isnan(neighbourhood_density(one_hot([0])))
        assert neighbourhood_density(one_hot([0, 1])) == 0

    def test_of_many_images_a_seeded_sample_is_used(self, monkeypatch: pytest.MonkeyPatch) -> None:
        probs = softmaxes(300, sharp=3.0)
        monkeypatch.setattr(selection, "MAX_DENSITY_IMAGES", 100)
        one, same, other = (neighbourhood_density(probs, seed) for seed in (0, 0, 1))
        assert one == same
        assert one != other
        assert one == pytest.approx(other, rel=0.05)

    def test_the_order_of_the_images_does_not_matter(self) -> None:
        probs = softmaxes(50, sharp=2.0)
        assert neighbourhood_density(probs[::-1]) == pytest.approx(neighbourhood_density(probs))


class TestSeparation:
    def two_groups(self, gap: float, n: int = 200) -> np.ndarray:
        draw = np.random.default_rng(0)
        return np.concatenate([draw.standard_normal(n), gap + draw.standard_normal(n)])

    def test_wider_gaps_are_better(self) -> None:
        values = [separation(self.two_groups(gap)) for gap in (0, 4, 8, 16)]
        assert values == sorted(values)
        assert values[0] < 0 < values[1]

    def test_one_skewed_mode_is_not_two_groups(self) -> None:
        skewed = np.exp(np.random.default_rng(0).standard_normal(400) / 2)
        assert separation(skewed) < separation(self.two_groups(4))

    @pytest.mark.parametrize(("factor", "shift"), [(1e-6, 0), (1e6, 3.0), (1, -50)])
    def test_the_unit_of_the_scores_does_not_matter(self, factor: float, shift: float) -> None:
        scores = self.two_groups(5)
        assert separation(factor * scores + shift) == pytest.approx(separation(scores), rel=1e-3)

    @pytest.mark.parametrize("scores", [[], [1.0], [0.0, 1.0], [2.0] * 30, [np.nan] * 30])
    def test_where_there_is_nothing_to_fit_it_is_undefined(self, scores: list[float]) -> None:
        assert math.isnan(separation(np.array(scores)))

    def test_of_very_many_scores_a_seeded_sample_is_fitted(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        scores = self.two_groups(5, 1000)
        whole = separation(scores)
        monkeypatch.setattr("unida.decision.rejection.MOST_SCORES", 500)
        some = finite(scores)
        assert len(some) == 500
        assert separation(scores) == separation(scores) == separation(some)
        assert separation(scores) == pytest.approx(whole, rel=0.15)

    def test_two_points_are_as_clear_as_it_gets(self) -> None:
        points = np.array([0.0] * 30 + [1.0] * 30)
        assert separation(points) > separation(self.two_groups(8))


def labelled(counts: dict[str, int]) -> Samples:
    names = sorted(counts)
    labels = np.repeat(np.arange(len(names)), [counts[name] for name in names])
    paths = tuple(Path(f"{names[k]}/{i}.png") for i, k in enumerate(labels))
    return Samples(paths, labels.astype(np.int64), tuple(names))


def classes_of(samples: Samples) -> list[str]:
    assert samples.labels is not None
    return [samples.classes[k] for k in samples.labels]


class TestHideClasses:
    source = labelled(dict.fromkeys("abcdefgh", 10))

    def test_every_image_is_on_one_side_under_its_own_class(self) -> None:
        train, validation = hide_classes(self.source, 0.25, 0.2, seed=0)
        assert sorted((*train.paths, *validation.paths)) == sorted(self.source.paths)
        for part in (train, validation):
            assert classes_of(part) == [path.parent.name for path in part.paths]

    def test_the_shares_are_kept(self) -> None:
        train, validation = hide_classes(self.source, 0.25, 0.2, seed=0)
        assert len(train.classes) == 6
        assert len(train) == 6 * 8
        hidden = set(validation.classes) - set(train.classes)
        assert len(hidden) == 2
        counts = {name: classes_of(validation).count(name) for name in validation.classes}
        assert counts == {name: 10 if name in hidden else 2 for name in "abcdefgh"}

    def test_the_same_seed_gives_the_same_and_another_another(self) -> None:
        splits = [hide_classes(self.source, 0.25, 0.2, seed)[0].paths for seed in (0, 0, 1)]
        assert splits[0] == splits[1] != splits[2]

    def test_two_classes_remain_and_one_is_hidden(self) -> None:
        for share in (0.01, 0.99):
            train, _ = hide_classes(labelled({"a": 4, "b": 4, "c": 4}), share, 0.2, seed=0)
            assert len(train.classes) == 2

    def test_a_class_of_one_image_stays_in_training(self) -> None:
        for seed in range(6):
            train, validation = hide_classes(labelled({"a": 1, "b": 3, "c": 3}), 0.3, 0.9, seed)
            assert len(train.classes) == 2
            assert classes_of(validation).count("a") == (0 if "a" in train.classes else 1)

    def test_two_classes_are_too_few(self) -> None:
        with pytest.raises(UserError, match="three or more, and there are 2"):
            hide_classes(labelled({"a": 5, "b": 5}), 0.25, 0.2, seed=0)

    def test_single_images_cannot_be_held_out(self) -> None:
        with pytest.raises(UserError, match="No class has two images"):
            hide_classes(labelled({"a": 1, "b": 1, "c": 1}), 0.25, 0.2, seed=0)

    @pytest.mark.parametrize("share", [0.0, 1.0, -1.0, math.nan])
    def test_a_share_lies_between_none_and_all(self, share: float) -> None:
        with pytest.raises(UserError, match="share_hidden is"):
            hide_classes(self.source, share, 0.2, seed=0)
        with pytest.raises(UserError, match="share_held_out is"):
            hide_classes(self.source, 0.2, share, seed=0)
