"""What a finished run keeps for its pictures."""

import numpy as np
import pytest
from sklearn.decomposition import PCA

from unida.bench import scoring
from unida.bench.scoring import _in_few_directions


def rows(n: int, seed: int = 0, wide: int = 60) -> np.ndarray:
    """Few directions matter, as of features."""
    draw = np.random.default_rng(seed)
    return (draw.standard_normal((n, wide)) * 0.7 ** np.arange(wide)).astype(np.float32)


def test_both_domains_lie_in_the_same_directions() -> None:
    target, source = rows(80), rows(30, seed=1)
    of_target, of_source = _in_few_directions(target, source)
    both = PCA(50, svd_solver="randomized", random_state=0).fit_transform(
        np.concatenate([target, source])
    )
    assert (np.concatenate([of_target, of_source]) == both).all()


def test_the_directions_of_a_large_target_are_those_of_a_seeded_sample(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    target, source = rows(200), rows(30, seed=1)
    fitted: list[int] = []

    class Noted(PCA):  # type: ignore[misc]
        def fit_transform(self, x: np.ndarray) -> np.ndarray:
            fitted.append(len(x))
            return super().fit_transform(x)

    monkeypatch.setattr(scoring, "PCA", Noted)
    plain, _ = _in_few_directions(target, source)
    monkeypatch.setattr(scoring, "MAX_SAMPLES", 90)
    of_target, of_source = _in_few_directions(target, source)
    assert fitted == [230, 120]
    assert of_target.shape == (200, 50)
    assert of_source.shape == (30, 50)
    again, _ = _in_few_directions(target, source)
    assert (again == of_target).all()
    # Distances are what a picture shows, and they stay what they were.
    apart = [np.linalg.norm(x[:50, None] - x[None, :50], axis=2) for x in (plain, of_target)]
    np.testing.assert_allclose(apart[1], apart[0], atol=0.02)
