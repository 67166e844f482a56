"""Temperatures that are known, errors by hand, and what a run does with held-out images."""

import importlib
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tasks import Task, write_task
from unida.bench.arrays import Arrays
from unida.bench.results import read_runs
from unida.data.holdout import MIN_CLASS_IMAGES, MIN_HELD_OUT, hold_out
from unida.data.samples import Samples
from unida.decision.calibration import (
    BINS,
    Bin,
    calibrate,
    confidence,
    expected_error,
    fit_temperature,
    reliability,
    tempered,
)
from unida.methods.presets import load_config
from unida.model import Model, load
from unida.pipeline import run_adaptation
from unida.training.run_folder import RunFolder
from unida.types import FloatArray, IntArray, Prediction

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
COMMITTED = BENCHMARKS / "results" / "office-home" / "finetuned" / "unda-published-recipe"


def softmaxes(n: int, n_classes: int = 6, seed: int = 0) -> FloatArray:
    logits = 3 * np.random.default_rng(seed).standard_normal((n, n_classes))
    return np.asarray(np.exp(logits) / np.exp(logits).sum(1, keepdims=True))


def labels_of(probs: FloatArray, seed: int = 1) -> IntArray:
    """Drawn from the probabilities: these are calibrated."""
    draws = np.random.default_rng(seed).random((len(probs), 1))
    return np.asarray((probs.cumsum(1) < draws).sum(1))


class TestTemperature:
    @pytest.mark.parametrize("t", [0.5, 1.0, 2.0, 4.0])
    def test_it_is_found_again(self, t: float) -> None:
        true = softmaxes(4000)
        probs = tempered(true, 1 / t)
        assert fit_temperature(probs, labels_of(true)) == pytest.approx(t, rel=0.06)

    def test_few_images_that_are_all_right_do_not_make_it_certain(self) -> None:
        probs = np.tile([0.9, 0.05, 0.05], (60, 1))
        assert 0.4 < fit_temperature(probs, np.zeros(60, dtype=np.int64)) < 1

    def test_a_probability_of_zero_does_no_harm(self) -> None:
        probs = np.array([[1.0, 0.0], [1.0, 0.0]] * 40)
        labels = np.array([0, 1] * 40)
        assert math.isfinite(fit_temperature(probs, labels))
        assert np.isfinite(tempered(probs, 3.0)).all()

    @settings(max_examples=50)
    @given(st.integers(0, 1000), st.floats(0.05, 20))
    def test_the_winner_stays_and_rows_sum_to_one(self, seed: int, t: float) -> None:
        probs = softmaxes(20, seed=seed)
        mended = tempered(probs, t)
        assert (mended.argmax(1) == probs.argmax(1)).all()
        assert mended.sum(1) == pytest.approx(1)
        assert confidence(probs, t) == pytest.approx(mended.max(1))

    def test_at_one_nothing_changes_by_a_bit(self) -> None:
        probs = softmaxes(20)
        assert tempered(probs, 1.0) is probs
        assert (confidence(probs, 1.0) == probs.max(1)).all()


class TestError:
    def test_by_hand(self) -> None:
        confidences = np.array([0.95, 0.99, 0.6, 0.62])
        bins = reliability(confidences, np.array([True, False, True, True]))
        assert bins == (Bin(0.61, 1.0, 2), Bin(0.97, 0.5, 2))
        assert expected_error(bins) == pytest.approx((2 * 0.39 + 2 * 0.47) / 4)

    def test_bins_are_of_equal_width_and_certainty_is_in_the_last(self) -> None:
        confidences = np.append((np.arange(1500) + 0.5) / 1500, 1.0)
        bins = reliability(confidences, np.ones(1501, dtype=bool))
        assert len(bins) == BINS
        assert [b.count for b in bins] == [100] * (BINS - 1) + [101]

    def test_of_nothing_it_is_undefined(self) -> None:
        assert math.isnan(expected_error(reliability(np.empty(0), np.empty(0, dtype=bool))))

    def test_calibrated_probabilities_have_a_small_one(self) -> None:
        probs = softmaxes(20_000)
        right = probs.argmax(1) == labels_of(probs)
        assert expected_error(reliability(probs.max(1), right)) < 0.01


class TestCalibrate:
    def test_it_mends_a_model_that_is_too_sure(self) -> None:
        true = softmaxes(1500)
        found = calibrate(tempered(true, 1 / 3), labels_of(true))
        assert found.temperature == pytest.approx(3, rel=0.15)
        assert found.ece_before is not None
        assert found.ece_after is not None
        assert found.ece_after < found.ece_before / 3
        assert sum(b.count for b in found.bins) == sum(b.count for b in found.bins_before) == 1500
        assert f"temperature {found.temperature:.2f}" in found.note

    def test_a_temperature_that_makes_it_worse_is_not_kept(self) -> None:
        """A class that is never thought of, as one without an anchor: it softens all the others."""
        true = softmaxes(600)
        blind = true * (np.arange(6) > 0) + 1e-9 * (np.arange(6) == 0)
        found = calibrate(blind / blind.sum(1, keepdims=True), labels_of(true))
        assert found.temperature == 1
        assert found.ece_after == found.ece_before
        assert found.bins == found.bins_before
        assert "would give an expected calibration error" in found.note

    @pytest.mark.parametrize(
        ("n", "note"), [(0, "no source image was held out"), (49, "49 source")]
    )
    def test_too_few_leave_it_at_one_with_a_note(self, n: int, note: str) -> None:
        found = calibrate(softmaxes(n), labels_of(softmaxes(n)))
        assert (found.temperature, found.ece_before, found.bins) == (1.0, None, ())
        assert found.note.startswith(note)
        assert str(MIN_HELD_OUT) in found.note

    def test_the_file_has_what_a_diagram_needs(self) -> None:
        probs = softmaxes(200)
        content = json.loads(calibrate(probs, labels_of(probs)).to_json())
        assert {"temperature", "ece_before", "ece_after", "bins", "bins_before"} <= content.keys()
        assert content["bins"][0].keys() == {"confidence", "accuracy", "count"}


def made_up(counts: list[int]) -> Samples:
    labels = np.repeat(np.arange(len(counts)), counts)
    names = tuple(f"c{k}" for k in range(len(counts)))
    return Samples(tuple(Path(str(i)) for i in range(len(labels))), labels, names)


class TestHoldOut:
    def test_every_class_that_is_large_enough_gives_its_share(self) -> None:
        samples = made_up([300, MIN_CLASS_IMAGES - 1, 200, MIN_CLASS_IMAGES])
        kept, held = hold_out(samples, 0.2, 0)
        assert samples.labels is not None
        assert np.bincount(samples.labels[held], minlength=4).tolist() == [60, 0, 40, 4]
        assert sorted([*kept, *held]) == list(range(len(samples)))
        assert (np.diff(kept) > 0).all()
        assert (np.diff(held) > 0).all()

    def test_the_draw_follows_from_the_seed_and_the_class(self) -> None:
        first = hold_out(made_up([300, 300]), 0.1, 0)[1]
        assert (first == hold_out(made_up([300, 300]), 0.1, 0)[1]).all()
        assert (first != hold_out(made_up([300, 300]), 0.1, 1)[1]).any()
        more = hold_out(made_up([300, 300, 300]), 0.1, 0)[1]
        assert (more[: len(first)] == first).all()

    @pytest.mark.parametrize("share", [0.0, 0.1])
    def test_none_is_held_out_where_they_would_be_too_few(self, share: float) -> None:
        kept, held = hold_out(made_up([100, 100]), share, 0)
        assert (len(kept), len(held)) == (200, 0)


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> Task:
    """Enough images for some to be held out."""
    return write_task(tmp_path_factory.mktemp("sure"), (0, 1, 2), (0, 1, 8), 60)


@pytest.fixture(scope="module")
def run(task: Task, tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    out = tmp_path_factory.mktemp("calibrated") / "run"
    run_adaptation(task.config(out, holdout=0.3, method="source_only"))
    return RunFolder(out)


@pytest.fixture(scope="module")
def model(run: RunFolder) -> Model:
    return load(run.path, "cpu")


class TestARun:
    def test_it_writes_how_it_was_calibrated(self, run: RunFolder, model: Model) -> None:
        content = json.loads(run.calibration.read_text())
        assert content["images"] == 54
        assert content["temperature"] == model.temperature != 1
        assert len(model.known) == 201
        assert model.method.sizes.n_source == 3 * 60 - 54

    def test_predictions_are_calibrated_and_labels_as_before(
        self, task: Task, run: RunFolder, model: Model
    ) -> None:
        predictions = model.predict(task.target)
        _, scored = model.score(task.target)
        plain = scored.probs.max(1)
        assert [p.confidence for p in predictions] == pytest.approx(
            confidence(scored.probs, model.temperature).tolist()
        )
        assert any(abs(p.confidence - c) > 1e-3 for p, c in zip(predictions, plain, strict=True))
        rows = run.predictions.read_text().splitlines()[1:]
        written = [float(row.split(",")[2]) for row in rows]
        assert written == pytest.approx([p.confidence for p in predictions], rel=1e-4, abs=1e-5)

    def test_the_rule_changes_without_training(self, task: Task, model: Model) -> None:
        assert list(model.rules) == ["share", "own", "mixture", "none", "source"]
        shares = [
            np.mean([p.label == "unknown" for p in model.predict(task.target, reject=rule)])
            for rule in ("none", "source:0", "source", "source:0.3", "source:0.9", "threshold:-1e9")
        ]
        assert shares == sorted(shares)
        assert (shares[0], shares[-1]) == (0, 1)
        assert model.predict(task.target, reject="threshold:1e9")[0].rule == "threshold:1000000000"

    def test_nothing_is_held_out_with_a_share_of_zero(self, task: Task, tmp_path: Path) -> None:
        whole = run_adaptation(task.config(tmp_path / "run", holdout=0.0, steps=2))
        assert (whole.temperature, whole.known) == (1.0, ())
        assert whole.method.sizes.n_source == 180
        assert not RunFolder(tmp_path / "run").calibration.exists()

    def test_frozen_heads_are_calibrated_too(self, task: Task, tmp_path: Path) -> None:
        heads = run_adaptation(
            task.config(tmp_path / "run", holdout=0.3, frozen=True, steps=5, reject="source:0.1")
        )
        assert heads.method.sizes.n_source == 126
        assert len(heads.known) == 201
        assert load(tmp_path / "run", "cpu").rule().name == "source:0.1"

    def test_a_run_from_before_there_was_this_was_trained_on_all(self, run: RunFolder) -> None:
        content = json.loads(run.config.read_text())
        assert load_config(run.config).data.holdout == content["run"]["data"]["holdout"] == 0.3
        old = run.path / "old.json"
        old.write_text(json.dumps({"format": 1, "run": {"method": "source_only"}}))
        assert load_config(old).data.holdout == 0


class TestTheTableOfRules:
    """`benchmarks/scripts/office_home/rules.py`, on a result that is made up."""

    @pytest.fixture
    def rules(self, monkeypatch: pytest.MonkeyPatch) -> Any:
        monkeypatch.syspath_prepend(str(BENCHMARKS / "scripts" / "office_home"))
        return importlib.import_module("rules")

    def test_committed_results_have_h_of_their_rules(self, rules: Any) -> None:
        folder, result = read_runs(COMMITTED)[0]
        assert folder is None
        assert rules.h_of_rules(result, folder, [0.5]).keys() == {"own", "mixture"}
        assert rules.errors(result, folder) == {}

    def test_a_run_has_fixed_thresholds_and_errors_too(self, rules: Any, tmp_path: Path) -> None:
        result = read_runs(COMMITTED)[0].result
        unknown = len(result.known_classes)
        sure = np.array([0.9, 0.5, 0.7, 0.8])
        arrays = Arrays(
            labels=np.array([0, 1, 1, unknown]),
            true_class=np.array(["a", "b", "b", "x"]),
            best=np.array([0, 1, 0, 0]),
            confidence=sure,
            unknown_score=np.array([0.1, 0.2, 0.3, 0.9]),
            features=np.zeros((4, 2), np.float32),
            source_labels=np.array([0]),
            source_features=np.zeros((1, 2), np.float32),
        )
        arrays.save(tmp_path / "scores.npz")
        run = RunFolder(tmp_path)
        run.calibration.write_text('{"ece_before": 0.2, "ece_after": 0.1}')
        run.write_predictions(
            Prediction(None, "a", c, u, "own")
            for c, u in zip(sure / 2, arrays.unknown_score, strict=True)
        )
        row = rules.h_of_rules(result, tmp_path, [0.5])
        assert row["threshold:0.5"] == pytest.approx(2 * 0.75 / 1.75)
        assert rules.errors(result, tmp_path) == pytest.approx(
            {
                "source before": 0.2,
                "source after": 0.1,
                "target before": (0.1 + 0.5 + 0.7) / 3,
                "target after": (0.55 + 0.75 + 0.35) / 3,
            }
        )
        lines = rules.table("H", [(("san", "A → B", "0"), row)], 100)
        assert lines[-2].startswith("| san | mean of 1 runs |")
