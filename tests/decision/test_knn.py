"""k-NN smoothing: the similarity-weighted mean over an image and its nearest target images."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from unida.decision.knn import KNNSmoothing


def draw(n: int, width: int, seed: int = 0) -> Tensor:
    return torch.randn(n, width, generator=torch.Generator().manual_seed(seed))


def fitted(features: Tensor, values: Tensor, k: int, source: Tensor | None = None) -> KNNSmoothing:
    source = features[:0] if source is None else source
    knn = KNNSmoothing(len(features), features.shape[1], values.shape[1], k, len(source))
    knn.fit(features, values, source)
    return knn


def in_loops(x: Tensor, v: Tensor, features: Tensor, values: Tensor, k: int) -> Tensor:
    """The definition, image by image."""
    centre = features.mean(0)
    bank = F.normalize(features - centre).double()

    def nearest(row: Tensor) -> list[tuple[float, int]]:
        d2 = [float((row - other).square().sum()) for other in bank]
        return sorted((d, j) for j, d in enumerate(d2) if d > 1e-4)[:k]

    scale = sum(d for row in bank for d, _ in nearest(row)) / (k * len(bank))
    means = []
    for row, value in zip(F.normalize(x - centre).double(), v.double(), strict=True):
        near = nearest(row)
        weights = [1.0, *(math.exp(-d / scale) for d, _ in near)]
        rows = torch.stack([value, *(values[j].double() for _, j in near)])
        means.append((torch.tensor(weights, dtype=rows.dtype) @ rows) / sum(weights))
    return torch.stack(means).float()


@pytest.mark.parametrize("k", [1, 4, 29])
def test_it_is_the_weighted_mean_over_the_nearest(k: int) -> None:
    features, values = draw(30, 5), draw(30, 4, seed=1)
    knn = fitted(features, values, k)
    some = torch.tensor([3, 17])
    for x, v in ((features[some], values[some]), (draw(4, 5, seed=2), draw(4, 4, seed=3))):
        found = knn.smooth(knn.normalise(x), v)
        torch.testing.assert_close(found, in_loops(x, v, features, values, k))


def test_fit_returns_the_smoothing_of_the_kept_images() -> None:
    features, values = draw(30, 5), draw(30, 4, seed=1)
    knn = KNNSmoothing(30, 5, 4, 6)
    smoothed = knn.fit(features, values, features[:0])
    torch.testing.assert_close(smoothed, knn.smooth(knn.bank, values))


def test_an_outlier_is_outvoted_by_its_neighbours() -> None:
    """Two clusters; one image of the first has the score of the second."""
    clusters = torch.tensor([[5.0, 0], [0, 5.0]]).repeat_interleave(10, 0)
    features = clusters + 0.1 * draw(20, 2)
    scores = torch.tensor([-1.0] * 10 + [1.0] * 10)
    scores[4] = 0.8
    knn = fitted(features, scores[:, None], 6)
    found = knn.smooth(knn.bank, scores[:, None])[:, 0]
    assert (found[:10] < 0).all()
    assert (found[10:] > 0).all()


def test_an_image_that_lies_in_the_source_keeps_its_values() -> None:
    """Three groups: the target's own, one shared with the source, and one of the source alone."""
    corners = torch.tensor([[6.0, 0, 0], [0, 6.0, 0], [0, 0, 6.0]])
    target = corners[:2].repeat_interleave(12, 0) + 0.1 * draw(24, 3)
    source = corners[1:].repeat_interleave(12, 0) + 0.1 * draw(24, 3, seed=1)
    values = draw(24, 2, seed=2)
    knn = fitted(target, values, 6, source)
    of_source_class = corners[2:] + 0.1 * draw(5, 3, seed=3)
    new = draw(5, 2, seed=4)
    assert torch.equal(knn.smooth(knn.normalise(of_source_class), new), new)
    smoothed = knn.smooth(knn.bank[:12], values[:12])
    assert (smoothed != values[:12]).all()  # the target's own group


def test_source_images_are_neighbours_without_values() -> None:
    """One source image among the three nearest: its place is empty."""
    target = torch.tensor([[1.0, 0.0], [1.0, 0.1], [1.0, -0.1], [-1.0, 0.0], [-1.0, 0.1]])
    source = torch.tensor([[1.0, 0.02]])
    values = torch.arange(5.0)[:, None]
    knn = fitted(target, values, 3, source)
    rows = knn.bank[:5]
    d2 = (rows[0] - rows).square().sum(1)
    weight = torch.exp(-d2 / knn.scale)
    expected = (0 + weight[1] * 1 + weight[2] * 2) / (1 + weight[1] + weight[2])
    torch.testing.assert_close(knn.smooth(rows[:1], values[:1])[0, 0], expected)


def test_a_target_of_identical_images_stays_finite() -> None:
    knn = fitted(torch.ones(9, 5), torch.arange(9.0)[:, None], 3)
    assert knn.smooth(knn.bank, torch.arange(9.0)[:, None]).isfinite().all()
