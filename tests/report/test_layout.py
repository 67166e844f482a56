"""Places on the map: neighbours lie together, and the same seed gives the same map."""

import numpy as np
from sklearn.neighbors import NearestNeighbors

from unida.report.layout import layout_2d, to_grid


def groups(n: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    group = np.arange(n) % 4
    return (rng.normal(size=(4, 12))[group] * 3 + rng.normal(size=(n, 12))).astype("f4"), group


def test_groups_stay_together() -> None:
    features, group = groups(160)
    place, how = layout_2d(features, 0)
    near = NearestNeighbors(n_neighbors=6).fit(place).kneighbors(place)[1][:, 1:]
    assert (group[near] == group[:, None]).mean() > 0.95
    assert "similar features" in how


def test_the_same_seed_gives_the_same_map() -> None:
    features, _ = groups(60)
    first, again, other = (layout_2d(features, seed)[0] for seed in (0, 0, 1))
    assert (first == again).all()
    assert (first != other).any()


def test_few_images_are_placed_by_their_principal_components() -> None:
    for shape in ((1, 3), (3, 1), (8, 8)):
        features = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
        place, how = layout_2d(features, 0)
        assert place.shape == (shape[0], 2)
        assert (place[:, 0] == features[:, 0]).all()
        assert "principal components" in how


def test_images_that_are_all_equal_or_nearly_have_places() -> None:
    duplicates = np.repeat(groups(4)[0], 20, axis=0)
    for features in (np.ones((40, 5), np.float32), duplicates):
        assert np.isfinite(layout_2d(features, 0)[0]).all()


def test_the_grid_is_filled_the_longer_way() -> None:
    grid = to_grid(np.array([[0.0, 0.0], [0.1, 3.0], [1.0, 6.0]]), steps=100)
    assert (grid[:, 0].min(), grid[:, 0].max()) == (0, 100)
    assert (grid >= 0).all()
    assert (grid <= 100).all()
    assert (to_grid(np.zeros((3, 2)), steps=100) == 50).all()
