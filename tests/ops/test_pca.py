"""Joint principal components: distances survive, and large sets are fitted on a sample."""

import numpy as np
import pytest

from unida.ops import pca
from unida.ops.pca import joint_pca


def test_sets_share_components_that_keep_distances(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = np.random.default_rng(0).normal(size=(30, 5)).astype(np.float32)
    for most in (pca.MAX_SAMPLES, 12):
        monkeypatch.setattr(pca, "MAX_SAMPLES", most)
        parts = joint_pca([rows[:20], rows[20:]], 8)
        assert [part.shape for part in parts] == [(20, 5), (10, 5)]
        before, after = (
            np.linalg.norm(x[:, None] - x, axis=2) for x in (rows, np.concatenate(parts))
        )
        np.testing.assert_allclose(before, after, rtol=1e-4, atol=1e-4)


def test_few_dimensions_are_kept() -> None:
    rows = np.random.default_rng(0).normal(size=(40, 9)).astype(np.float32)
    (reduced,) = joint_pca([rows], 3)
    assert reduced.shape == (40, 3)
    assert (np.diff(reduced.var(0)) < 0).all()
