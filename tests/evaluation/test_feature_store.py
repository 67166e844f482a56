"""The features of a run: both domains in the same few dimensions, written and read."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from unida.errors import UserError
from unida.evaluation.feature_store import DIMENSIONS, build_feature_store, read_feature_store
from unida.model import load
from unida.training.run_folder import RunFolder


def test_a_run_leaves_the_features_of_its_images(finished_run: Path) -> None:
    store = read_feature_store(RunFolder(finished_run).features)
    model = load(finished_run, "cpu")
    paths, scored = model.score(Path(store.source_paths[0]).parents[2] / "target")
    assert len(store.features) == len(paths)
    assert store.best.tolist() == scored.probs.argmax(1).tolist()
    assert len(store.source_features) == len(store.source_labels) == len(store.source_paths)
    assert Path(store.source_paths[0]).exists()


def test_a_store_is_read_as_it_was_built_and_anything_else_refused(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).normal(size=(300, 100)).astype(np.float32)
    built = build_feature_store(
        rows[:200], np.eye(200), rows[200:], np.zeros(100, int), (Path("\udcff.png"),) * 100
    )
    assert built.features.shape == (200, DIMENSIONS)
    file = tmp_path / "features.npz"
    built.save(file)
    read = read_feature_store(file)
    assert (read.features == built.features).all()
    assert (read.source_features == built.source_features).all()
    assert read.source_paths.tolist() == ["\udcff.png"] * 100
    for content in (b"", b"no archive"):
        file.write_bytes(content)
        with pytest.raises(UserError, match="train again"):
            read_feature_store(file)
    with pytest.raises(UserError, match="train again"):
        read_feature_store(tmp_path / "gone.npz")


def test_arrays_that_do_not_fit_are_refused_without_memory_for_them(tmp_path: Path) -> None:
    file = tmp_path / "features.npz"
    good: dict[str, Any] = {
        "features": np.zeros((3, 2), np.float32),
        "best": np.zeros(3, int),
        "source_features": np.zeros((1, 2), np.float32),
        "source_labels": np.zeros(1, int),
        "source_paths": np.array(["a"]),
    }
    np.savez(file, **good)
    read_feature_store(file)
    for name, value in (
        ("features", np.zeros((2, 2), np.float32)),
        ("features", np.zeros((3, 2, 1), np.float32)),
        ("features", np.array(["a", "b", "c"])),
        ("source_features", np.zeros((1, 3), np.float32)),
        ("best", np.zeros(2, int)),
        ("best", np.zeros(3)),
        ("source_paths", np.zeros(1)),
        ("features", np.zeros((2**27, 3), np.float32)),  # 1.5 GB, of 1.5 MB
    ):
        np.savez_compressed(file, **good | {name: value})
        with pytest.raises(UserError, match="train again"):
            read_feature_store(file)
