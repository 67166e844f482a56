"""Whole runs on embeddings whose target lacks classes, has unknown ones, or is small and odd."""

from collections.abc import Sequence

import numpy as np
import pytest

from unida import UniversalAdapter
from unida.decision.predictor import Predictor
from unida.decision.rejection import decide
from unida.types import FloatArray

WIDTH = 48
MEANS = np.random.default_rng(0).normal(size=(10, WIDTH))
SHIFT = np.random.default_rng(1).normal(scale=0.5, size=WIDTH)
KNOWN = range(6)

Labels = np.ndarray[tuple[int], np.dtype[np.str_]]


def draw(classes: Sequence[int], n: int, seed: int, of_target: bool) -> tuple[FloatArray, Labels]:
    """Embeddings of classes in turn, and their labels; those the source lacks are unknown."""
    labels = np.array(classes)[np.arange(n) % len(classes)]
    noise = np.random.default_rng(seed).normal(size=(n, WIDTH))
    rows = MEANS[labels] + noise + SHIFT * of_target
    names = [f"class {k}" if k in KNOWN else "unknown" for k in labels]
    return rows.astype(np.float32), np.array(names)


def fit(target: FloatArray, method: str = "san") -> UniversalAdapter:
    adapter = UniversalAdapter(method, steps=200, device="cpu")
    return adapter.fit(*draw(KNOWN, 240, 2, of_target=False), target=target)


def accuracy(adapter: UniversalAdapter, rows: FloatArray, labels: Labels) -> float:
    return float((adapter.predict(rows) == labels).mean())


@pytest.mark.slow
@pytest.mark.parametrize("method", ["san", "source_only"])
@pytest.mark.parametrize("classes", [range(6), range(4), range(7), [0, 1, 2, 6, 7, 8, 9]], ids=str)
def test_the_default_is_right_whatever_is_missing_where(
    classes: Sequence[int], method: str
) -> None:
    """Closed-set, partial, one unknown class of seven, and classes missing on both sides."""
    rows, labels = draw(classes, 400, 3, of_target=True)
    adapter = fit(rows, method)
    assert accuracy(adapter, rows, labels) >= 0.9
    share, true = adapter.model_.rule().share, (labels == "unknown").mean()
    assert share == pytest.approx(true, abs=0.05)


@pytest.mark.slow
def test_a_class_that_the_target_lacks_is_not_forgotten() -> None:
    """Its images are recognised, though the predictions are refined on a target without them."""
    adapter = fit(draw([0, 1, 2, 3, 6, 7], 400, 3, of_target=True)[0])
    predictor = adapter.model_.predictor
    assert isinstance(predictor, Predictor)
    assert predictor.refiner is not None
    for k in (4, 5):
        rows, labels = draw([k], 200, 4, of_target=False)
        best = adapter._score(rows).probs.argmax(1)
        assert (best == adapter.model_.classes.index(f"class {k}")).mean() >= 0.98
        assert accuracy(adapter, rows, labels) >= 0.9


@pytest.mark.slow
@pytest.mark.parametrize("n", [20, 50, 200])
@pytest.mark.parametrize("classes", [range(6), [0, 1, 2, 6, 7, 8, 9]], ids=str)
def test_a_small_target_is_labelled_as_well_as_by_the_classifier_alone(
    classes: Sequence[int], n: int
) -> None:
    rows, labels = draw(classes, n, 3, of_target=True)
    adapter = fit(rows)
    alone = adapter._score(rows).probs
    nothing_rejected = decide(
        alone, np.zeros(n), adapter.model_.rule("none"), adapter.model_.classes
    )
    assert accuracy(adapter, rows, labels) >= (np.array(nothing_rejected) == labels).mean() - 0.05
    if n > 20:  # 20 say little: in doubt they are accepted
        assert accuracy(adapter, rows, labels) >= 0.9


@pytest.mark.slow
@pytest.mark.parametrize("classes", [[0], [0] * 27 + [1, 6, 7]], ids=["one", "nine tenths"])
def test_a_target_of_one_known_class_is_not_rejected(classes: Sequence[int]) -> None:
    rows, labels = draw(classes, 200, 3, of_target=True)
    adapter = fit(rows)
    rule = adapter.model_.rule()
    assert rule.fell_back.startswith("most target images are of one class")
    assert (adapter.predict(rows) == "unknown").mean() < 0.1
    assert accuracy(adapter, rows, labels) >= 0.65


@pytest.mark.slow
@pytest.mark.parametrize("classes", [[6], [6, 7, 8, 9]], ids=str)
def test_where_nothing_is_known_all_is_unknown(classes: Sequence[int]) -> None:
    rows, labels = draw(classes, 200, 3, of_target=True)
    adapter = fit(rows)
    assert accuracy(adapter, rows, labels) == 1
    assert adapter.model_.rule().note == "no sign of known classes: all are unknown"
