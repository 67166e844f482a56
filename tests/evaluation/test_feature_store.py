"""The atlas of a run: what is written is what is read, and directions fit both domains."""

from pathlib import Path

import numpy as np
import pytest

from tests.tasks import Task
from unida.errors import UserError
from unida.evaluation.feature_store import DIMENSIONS, build_feature_store, read_feature_store
from unida.pipeline import run_adaptation
from unida.training.run_folder import RunFolder


def test_a_run_leaves_the_atlas_of_its_images(digits: Task, out: Path) -> None:
    model = run_adaptation(digits.config(out))
    atlas = read_feature_store(RunFolder(out).features)
    paths, scored = model.score(digits.target)
    assert len(atlas.features) == len(paths)
    assert atlas.best.tolist() == scored.probs.argmax(1).tolist()
    assert len(atlas.source_features) == len(atlas.source_labels) == len(atlas.source_paths)
    assert Path(atlas.source_paths[0]).exists()


def test_distances_survive_where_the_features_are_few() -> None:
    rows = np.random.default_rng(0).normal(size=(30, 5)).astype(np.float32)
    atlas = build_feature_store(
        rows[:20], np.eye(20), rows[20:], np.zeros(10, int), (Path("a"),) * 10
    )
    both = np.concatenate([atlas.features, atlas.source_features])
    assert both.shape == (30, 5)
    before, after = (np.linalg.norm(x[:, None] - x, axis=2) for x in (rows, both))
    np.testing.assert_allclose(before, after, rtol=1e-4, atol=1e-4)


def test_many_features_become_few() -> None:
    rows = np.random.default_rng(0).normal(size=(300, 100)).astype(np.float32)
    atlas = build_feature_store(
        rows[:200], np.eye(200), rows[200:], np.zeros(100, int), (Path("a"),) * 100
    )
    assert atlas.features.shape == (200, DIMENSIONS)


@pytest.mark.parametrize("content", [None, b"", b"no archive"])
def test_what_is_no_atlas_is_refused(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "features.npz"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(UserError, match="train again"):
        read_feature_store(file)
