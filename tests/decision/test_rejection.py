"""Reject rules: the estimated share, own at zero, a mixture, a share of the source, a number."""

import dataclasses
import math
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from threadpoolctl import threadpool_limits

from unida.decision import rejection
from unida.decision.category_shift import ShiftSigns
from unida.decision.rejection import (
    RULES,
    Rule,
    TargetOutputs,
    check_rule,
    decide,
    describe_rule,
    describe_rules,
    finite,
    pick_rule,
    quantiles,
    source,
)
from unida.errors import UserError
from unida.types import UNKNOWN, FloatArray


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    """k-means of so few numbers in several threads waits ten times longer than it computes."""
    with threadpool_limits(1):
        yield


def two_groups(n: int = 2000, unknown: float = 0.4, seed: int = 0) -> FloatArray:
    """Known around −2 with deviation 1, unknown around 3 with deviation ½."""
    rng = np.random.default_rng(seed)
    n_unknown = int(n * unknown)
    return np.concatenate([rng.normal(-2, 1, n - n_unknown), rng.normal(3, 0.5, n_unknown)])


def mixture(scores: FloatArray) -> Rule:
    return rejection.mixture(TargetOutputs(scores))


def own(scores: FloatArray) -> Rule:
    return rejection.own(TargetOutputs(scores))


def fit_rules(scores: FloatArray, known: tuple[float, ...] = ()) -> dict[str, Rule]:
    return rejection.fit_rules(TargetOutputs(scores), known)


def density(x: FloatArray, mean: float, deviation: float) -> FloatArray:
    return np.exp(-(((x - mean) / deviation) ** 2) / 2) / deviation


def grid_crossing(low: tuple[float, float], high: tuple[float, float]) -> float:
    """Where two Gaussians are nearest to equal between their means, on a grid."""
    x = np.linspace(low[0], high[0], 200_001)[1:-1]
    gap = np.log(density(x, *low)) - np.log(density(x, *high))
    return float(x[np.abs(gap).argmin()])


def test_own_rejects_at_zero_and_a_tie_is_unknown() -> None:
    rule = own(np.array([5.0, 6.0]))
    assert rule.threshold == 0
    assert rule.is_unknown(np.array([-1e-9, 0.0, 1e-9])).tolist() == [False, True, True]


@pytest.mark.parametrize("unknown", [0.1, 0.4, 0.8])
def test_mixture_finds_where_the_densities_cross_whatever_the_sizes(unknown: float) -> None:
    rule = mixture(two_groups(4000, unknown))
    assert rule.name == "mixture"
    assert rule.threshold == pytest.approx(grid_crossing((-2, 1), (3, 0.5)), abs=0.12)


@pytest.mark.parametrize("unknown", [0.3, 0.6, 0.8])
def test_known_scores_may_lie_at_their_bound(unknown: float) -> None:
    rng, n = np.random.default_rng(0), 4000
    n_unknown = int(n * unknown)
    scores = np.concatenate(
        [-3 + rng.exponential(0.4, n - n_unknown), rng.normal(0.5, 1.4, n_unknown).clip(-3)]
    )
    x = np.linspace(-3, 0.5, 100_001)
    gap = -(x + 3) / 0.4 - math.log(0.4) - np.log(density(x, 0.5, 1.4) / math.sqrt(2 * math.pi))
    rule = mixture(scores)
    assert rule.name == "mixture"
    assert rule.threshold == pytest.approx(x[np.abs(gap).argmin()], abs=0.2)
    share = int(rule.note.split("one ")[1].split("%")[0]) / 100
    assert share == pytest.approx(unknown, abs=0.04)


@pytest.mark.parametrize(("scale", "shift"), [(1e-12, 0.0), (0.01, 5.0), (1.0, -300.0), (1e6, 1.0)])
def test_mixture_moves_with_the_scores(scale: float, shift: float) -> None:
    scores = two_groups(500)
    plain, moved = mixture(scores), mixture(scale * scores + shift)
    assert moved.name == plain.name == "mixture"
    assert moved.threshold == pytest.approx(scale * plain.threshold + shift, rel=1e-6)
    assert moved.note == plain.note


def test_the_order_of_the_scores_does_not_matter() -> None:
    scores = two_groups(500)
    shuffled = np.random.default_rng(1).permutation(scores)
    assert mixture(shuffled).threshold == pytest.approx(mixture(scores).threshold, abs=1e-3)


def test_fitting_twice_gives_the_same_rule() -> None:
    np.random.seed(1)
    first = mixture(two_groups(500))
    np.random.seed(2)
    assert mixture(two_groups(500)) == first


@pytest.mark.parametrize("unknown", [0.1, 0.4, 0.8])
def test_the_weights_estimate_the_share_of_unknowns(unknown: float) -> None:
    rule = mixture(two_groups(4000, unknown))
    assert f"the upper one {unknown:.0%} of the images" in rule.note


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("n", [50, 3000])
def test_one_gaussian_falls_back_to_own_with_a_note(n: int, seed: int) -> None:
    rule = mixture(np.random.default_rng(seed).normal(2.0, 3.0, n))
    assert (rule.name, rule.threshold) == ("own", 0.0)
    assert rule.note == ("the target's scores have one mode; the method's own rule is used instead")


@pytest.mark.parametrize("shape", ["lognormal", "gamma", "uniform", "exponential", "falling"])
def test_one_mode_of_another_shape_falls_back_to_own(shape: str) -> None:
    rng = np.random.default_rng(0)
    scores = {
        "lognormal": rng.lognormal(0, 0.5, 1000),
        "gamma": rng.gamma(2, size=1000),
        "uniform": rng.uniform(size=1000),
        "exponential": rng.exponential(size=1000),
        "falling": -rng.exponential(size=1000),
    }
    assert mixture(scores[shape]).name == "own"


def test_a_few_outliers_are_not_a_group() -> None:
    rng = np.random.default_rng(0)
    scores = np.concatenate([rng.normal(0, 1, 990), rng.normal(30, 1, 10)])
    rule = mixture(scores)
    assert rule.name == "own"
    assert "in one mode" in rule.note


def test_a_wide_group_around_a_narrow_one_is_not_a_threshold() -> None:
    rng = np.random.default_rng(0)
    assert mixture(np.concatenate([rng.normal(0, 1, 500), rng.normal(0, 8, 500)])).name == "own"


@pytest.mark.parametrize("scores", [[], [1.0], list(range(19))])
def test_few_scores_fall_back_to_own_and_are_counted(scores: list[float]) -> None:
    rule = mixture(np.array(scores, dtype=float))
    assert (rule.name, rule.threshold) == ("own", 0.0)
    assert rule.note.startswith(f"{len(scores)} scores are too few to fit a mixture; ")


def test_twenty_scores_in_two_groups_are_enough() -> None:
    scores = np.concatenate([np.linspace(-3, -2, 10), np.linspace(2, 3, 10)])
    assert mixture(scores).threshold == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("value", [0.0, 0.1, -1e8, 1e-12])
def test_equal_scores_fall_back_to_own(value: float) -> None:
    rule = mixture(np.full(50, value))
    assert (rule.name, rule.threshold) == ("own", 0.0)
    assert rule.note.startswith("all target scores are equal; ")


def test_two_values_only_are_two_groups() -> None:
    rule = mixture(np.repeat([1.0, 5.0], 30))
    assert rule.name == "mixture"
    assert rule.threshold == pytest.approx(3.0, abs=0.01)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_scores_that_are_not_numbers_are_left_out_of_the_fit(bad: float) -> None:
    scores = two_groups(500)
    assert mixture(np.append(scores, [bad] * 5)) == mixture(scores)
    assert "0 scores are too few" in mixture(np.full(50, bad)).note


def test_every_rule_is_fitted_under_its_requested_name() -> None:
    rules = fit_rules(np.zeros(5))
    assert list(rules) == ["share", "own", "mixture", "none"]
    assert rules["share"].name == rules["mixture"].name == "own"  # too few images for either
    assert list(fit_rules(np.zeros(5), quantiles(np.zeros(5)))) == [*rules, "source"]


def test_decide_takes_the_likeliest_class_unless_the_rule_rejects() -> None:
    probs = np.array([[0.9, 0.1], [0.2, 0.8], [0.4, 0.6], [0.7, 0.3]])
    scores = np.array([-1.0, 0.4, 0.5, 2.0])
    labels = decide(probs, scores, Rule("mixture", 0.5, ""), ("cat", "dog"))
    assert labels == ["cat", "dog", UNKNOWN, UNKNOWN]


def test_decide_refuses_arrays_that_do_not_pair() -> None:
    with pytest.raises(ValueError, match="zip"):
        decide(np.ones((3, 2)), np.zeros(2), own(np.zeros(2)), ("cat", "dog"))


def test_pick_rule_names_the_rules_there_are() -> None:
    rules = fit_rules(np.zeros(5))
    assert pick_rule(rules, "own") is rules["own"]
    usage = r"share, own, mixture, none, source\[:SHARE\], threshold:VALUE"
    with pytest.raises(UserError, match=rf"^reject is 'oracle'; allowed: {usage}\.$"):
        pick_rule(rules, "oracle")
    with pytest.raises(UserError, match=r"^reject is 'mixture'; allowed: own\.$"):
        pick_rule({"own": rules["own"]}, "mixture")


def test_of_very_many_scores_a_seeded_sample_is_fitted(monkeypatch: pytest.MonkeyPatch) -> None:
    scores = two_groups(4000)
    whole = mixture(scores)
    assert (finite(scores) == scores).all()
    monkeypatch.setattr("unida.decision.rejection.MOST_SCORES", 1500)
    some = finite(np.append(scores, np.nan))
    assert len(some) == 1500
    assert np.isin(some, scores).all()
    assert (some == finite(scores)).all()
    rule = mixture(scores)
    assert rule == mixture(scores)
    assert rule.name == "mixture"
    assert rule.threshold == pytest.approx(whole.threshold, abs=0.2)
    assert rule.threshold == mixture(some).threshold


def test_every_rule_has_a_plain_line_and_is_in_the_help() -> None:
    assert list(RULES) == ["share", "own", "mixture", "none", "source", "threshold"]
    for name, kind in RULES.items():
        assert kind.usage.startswith(name)
        assert 0 < len(kind.about) <= 100
        assert f"{kind.usage}: {kind.about}." in describe_rules()
        assert (kind.fit is None) != (kind.make is None)


@settings(max_examples=100)
@given(
    st.lists(st.floats(-5, 5).map(lambda x: round(x, 1)), min_size=1, max_size=400),
    st.floats(0, 0.99),
)
def test_source_rejects_at_most_its_share_of_the_held_out(
    scores: list[float], share: float
) -> None:
    held_out = np.array(scores)
    rejected = source(quantiles(held_out), share).is_unknown(held_out)
    assert rejected.mean() <= share + 1e-9


@pytest.mark.parametrize("share", [0.0, 0.02, 0.1, 0.5])
def test_source_rejects_about_its_share_where_scores_differ(share: float) -> None:
    held_out = np.random.default_rng(0).normal(size=1000)
    assert source(quantiles(held_out), share).is_unknown(held_out).mean() == pytest.approx(
        share, abs=2e-3
    )


def test_what_is_kept_of_the_held_out_scores_is_short_and_of_images() -> None:
    scores = np.random.default_rng(0).normal(size=100_000)
    kept = quantiles(np.append(scores, [np.nan, np.inf]))
    assert len(kept) == 201
    assert np.isin(kept, scores).all()
    assert list(kept) == sorted(kept)
    assert (kept[0], kept[-1]) == (scores.min(), scores.max())
    assert quantiles(np.array([np.nan])) == ()


def test_source_is_two_per_cent_unless_another_share_is_given() -> None:
    known = quantiles(np.arange(1000.0))
    rules = fit_rules(np.zeros(5), known)
    assert pick_rule(rules, "source") is rules["source"]
    assert rules["source"].note == "at most 2 % of the held-out source images are rejected"
    five = pick_rule(rules, "source:0.05", known)
    assert five.name == "source:0.05"
    assert five.note.startswith("at most 5 % of")
    assert (
        five.threshold < rules["source"].threshold == pick_rule({}, "source:0.02", known).threshold
    )


def test_source_without_held_out_images_falls_back_with_a_note() -> None:
    rule = pick_rule(fit_rules(np.zeros(5)), "source:0.1")
    assert (rule.name, rule.threshold) == ("own", 0.0)
    assert rule.note == (
        "there are no scores of held-out source images; the method's own rule is used instead"
    )
    assert describe_rule("source:0.1", rule) == "source:0.1 → own"


def test_a_fixed_threshold_is_used_as_given() -> None:
    rule = pick_rule({}, "threshold:-1.5")
    assert rule == Rule("threshold:-1.5", -1.5, "a fixed threshold")
    assert describe_rule("threshold:-1.5", rule) == "threshold:-1.5"
    assert rule.is_unknown(np.array([-1.6, -1.5])).tolist() == [False, True]


@pytest.mark.parametrize(
    "reject",
    ["", "always", "own:1", "mixture:0.1", "threshold", "threshold:", "threshold:nan",
     "threshold:inf", "threshold:much", "source:", "source:x", ":1"],
)  # fmt: skip
def test_an_unknown_rule_is_an_error_that_lists_the_rules(reject: str) -> None:
    with pytest.raises(
        UserError, match=r"allowed: share, own, mixture, none, source\[:SHARE\], threshold:VALUE"
    ):
        check_rule(reject)


@pytest.mark.parametrize("reject", ["source:1", "source:-0.1", "source:2"])
def test_a_share_is_less_than_all(reject: str) -> None:
    with pytest.raises(UserError, match=f"reject is '{reject}'; allowed: a SHARE from 0 up to 1"):
        check_rule(reject)


def outputs(
    scores: FloatArray, n_classes: int = 4, one_class: bool = False, **signs: float
) -> TargetOutputs:
    """Target outputs with given signs; the likeliest class is each in turn, or the first."""
    rng, n = np.random.default_rng(0), len(scores)
    best = np.zeros(n, dtype=int) if one_class else np.arange(n) % n_classes
    probs = np.full((n, n_classes), 0.02)
    probs[np.arange(n), best] = rng.uniform(0.5, 0.94, n)
    found = {"reach": 1.0, "density": -0.4, "margin": 0.45, "level": 0.6, "uncentred_level": 0.6}
    return TargetOutputs(scores, probs, lambda is_rejected: ShiftSigns(**(found | signs)))


UNKNOWN_SIGNS = {"reach": 0.6, "density": -0.1, "margin": 0.2}


@pytest.mark.parametrize("unknown", [0.2, 0.5, 0.8])
def test_share_rejects_the_upper_component_where_the_features_agree(unknown: float) -> None:
    scores = two_groups(2000, unknown)
    rule = rejection.share(outputs(scores, **UNKNOWN_SIGNS))
    assert rule.share == pytest.approx(unknown, abs=0.02)
    assert rule.is_unknown(scores).mean() == pytest.approx(unknown, abs=0.02)
    assert rule.interval is not None
    assert rule.interval[0] < unknown < rule.interval[1]
    assert f"about {rule.share:.0%} of the images are unknown" in rule.note


def test_share_rejects_hardly_any_where_nothing_seems_unknown() -> None:
    scores = two_groups(2000, 0.5)
    target = outputs(scores)
    rule = rejection.share(target)
    assert rule.note.startswith("no sign of unknown classes")
    assert rule.share == 0
    rejected = rule.is_unknown(scores)
    assert 0 < rejected.mean() < 0.06
    assert scores[rejected].min() > scores[~rejected].max()
    assert target.probs is not None
    confidence = target.probs.max(1)
    assert confidence[rejected].sum() <= rejection.BUDGET * confidence.sum()


def test_share_rejects_more_the_more_the_features_speak_for_unknown_classes() -> None:
    scores, shares, rejected = two_groups(2000, 0.5), [], []
    for margin in (0.52, 0.4, 0.36, 0.33, 0.25):
        rule = rejection.share(outputs(scores, reach=0.8, density=-0.3, margin=margin))
        assert rule.share is not None
        shares.append(rule.share)
        rejected.append(rule.is_unknown(scores).mean())
    assert shares == sorted(shares)
    assert rejected == sorted(rejected)
    assert (shares[0], shares[-1]) == (0, pytest.approx(0.5, abs=0.02))
    assert 0 < shares[2] < 0.5
    assert rejected[1] > shares[1] + 0.1  # weak evidence: cautious, but not counted


def test_share_rejects_more_of_scores_with_two_modes() -> None:
    two, one = two_groups(2000, 0.5), np.random.default_rng(0).normal(size=2000)
    signs = {"reach": 0.8, "density": -0.3, "margin": 0.33}
    (of_two, of_one) = (rejection.share(outputs(scores, **signs)) for scores in (two, one))
    assert of_two.share is not None
    assert of_one.share == 0 < of_two.share


def test_share_concludes_that_all_are_unknown() -> None:
    rule = rejection.share(outputs(two_groups(200), level=0.1, uncentred_level=0.2))
    assert rule.is_unknown(two_groups(200)).all()
    assert rule.share == 1
    few = rejection.share(outputs(two_groups(99), level=0.1, uncentred_level=0.2))
    assert few.is_unknown(two_groups(99)).mean() < 0.1
    assert Rule.from_json(rule.to_json()) == rule


def test_a_target_of_one_known_class_is_accepted_and_the_rule_says_so() -> None:
    scores = two_groups(200, 0.5)
    rule = rejection.share(outputs(scores, one_class=True, level=0.1, uncentred_level=0.6))
    assert rule.name == "share"
    assert rule.is_unknown(scores).mean() < 0.06
    assert rule.fell_back.startswith("most target images are of one class: the least sure")
    assert rule.note == rule.fell_back


def test_a_class_may_be_most_of_a_target_without_being_most_of_the_accepted_images() -> None:
    scores, target = two_groups(200, 0.5), outputs(two_groups(200, 0.5), **UNKNOWN_SIGNS)
    assert target.probs is not None
    probs = target.probs.copy()
    probs[scores > np.median(scores)] = [0.9, 0.03, 0.03, 0.04]
    probs[np.argsort(scores)[:60]] = [0.9, 0.03, 0.03, 0.04]
    rule = rejection.share(dataclasses.replace(target, probs=probs))
    assert rule.fell_back.startswith("most target images are of one class")


def test_weak_evidence_counts_less_in_a_small_target() -> None:
    signs = {"reach": 0.8, "density": -0.3, "margin": 0.42}
    small, large = (
        rejection.share(outputs(scores, **signs)).is_unknown(scores).mean()
        for scores in (two_groups(90, 0.5), two_groups(2000, 0.5))
    )
    assert small < 0.1 < large


def test_a_target_of_one_class_that_looks_unknown_falls_back_to_own() -> None:
    rule = rejection.share(outputs(two_groups(200), one_class=True, uncentred_level=0.32))
    assert (rule.name, rule.threshold) == ("own", 0)
    assert rule.fell_back == "most target images are of one class"


def test_of_two_classes_one_may_be_most_images() -> None:
    rule = rejection.share(outputs(two_groups(200), n_classes=2, one_class=True, **UNKNOWN_SIGNS))
    assert rule.fell_back == ""
    assert rule.share == pytest.approx(0.4, abs=0.02)


@pytest.mark.parametrize("n", [1, 19])
def test_share_of_few_images_falls_back_to_own(n: int) -> None:
    rule = rejection.share(outputs(np.linspace(-1, 1, n)))
    assert rule.fell_back == f"{n} images are too few to estimate the share of unknown ones"
    assert (rule.name, rule.threshold) == ("own", 0)


def test_share_without_features_or_of_equal_scores_falls_back_to_own() -> None:
    assert rejection.share(TargetOutputs(two_groups(100))).fell_back.startswith("there are no feat")
    assert rejection.share(outputs(np.zeros(50))).fell_back == "all target scores are equal"
    some = dataclasses.replace(outputs(two_groups(50)), compare=lambda is_rejected: None)
    assert rejection.share(some).fell_back.startswith("too few images have features")


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_scores_that_are_not_numbers_are_unknown(bad: float) -> None:
    scores = np.append(two_groups(500), [bad] * 5)
    rule = rejection.share(outputs(scores, **UNKNOWN_SIGNS))
    assert rule.is_unknown(scores)[-5:].all()
    assert rule.share == pytest.approx(0.4, abs=0.02)


def test_a_threshold_lies_between_two_scores() -> None:
    scores = two_groups(400, 0.5)
    rule = rejection.share(outputs(scores))
    below, above = scores[scores < rule.threshold].max(), scores[scores >= rule.threshold].min()
    assert rule.threshold == pytest.approx((below + above) / 2)


def test_share_is_the_same_for_scores_of_another_unit() -> None:
    scores = two_groups(400, 0.5)
    for signs in ({}, UNKNOWN_SIGNS):
        plain = rejection.share(outputs(scores, **signs))
        moved = rejection.share(outputs(100 * scores - 3, **signs))
        assert moved.share == plain.share
        assert moved.threshold == pytest.approx(100 * plain.threshold - 3)
