"""One-vs-all pseudo labels and the class ratio: docs/methods/glc.md, a slow copy, limits, edges."""

import math
from itertools import product

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from tests.losses.examples import few
from tests.losses.sizes import Largest
from unida.ops import chunked, pseudo_labels
from unida.ops.kmeans import kmeans
from unida.ops.knn import knn_probs
from unida.ops.pseudo_labels import (
    estimate_class_ratio,
    group_sizes,
    one_vs_all_labels,
    soft_targets,
)

seeds = st.integers(0, 2**31)


def tensor(values: object) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def unit(seed: int, n: int, width: int) -> Tensor:
    g = torch.Generator().manual_seed(seed)
    return F.normalize(torch.randn(n, width, generator=g, dtype=torch.float64))


def probs_of(seed: int, n: int, c: int) -> Tensor:
    g = torch.Generator().manual_seed(seed)
    return (2 * torch.randn(n, c, generator=g, dtype=torch.float64)).softmax(1)


def groups(per_group: int, width: int, centres: Tensor, spread: float = 0.1) -> Tensor:
    g = torch.Generator().manual_seed(0)
    noise = torch.randn(len(centres), per_group, width, generator=g, dtype=torch.float64)
    return F.normalize((centres[:, None] + spread * noise).flatten(0, 1))


def test_the_targets_of_the_check_case() -> None:
    expected = torch.tensor([[1 / 1.0001, 0, 0], [1 / 3.0001] * 3])
    torch.testing.assert_close(soft_targets(torch.tensor([0, 3]), 3), expected)


def test_how_many_stand_for_a_class() -> None:
    for coefficient, n_positive in [(0.5, 10), (3.0, 1), (1.0, 5), (0.25, 20)]:
        assert group_sizes(100, 20, coefficient)[0] == n_positive


def test_the_scale_of_the_check_case() -> None:
    """Mean p of (0.9, 0.4) gives .975 and .85: just there does a negative prototype win."""
    for mean_p, scale in ((0.9, 0.975), (0.4, 0.85)):
        for angle, accepted in ((scale + 1e-3, False), (scale - 1e-3, True)):
            # Two images make up class 0 and each is e_1; the two others are one cluster each,
            # and image 0 is as near to the nearest of them as the angle gives.
            near = tensor([angle, math.sqrt(1 - angle**2)])
            far = tensor([-1.0, 0.0])
            features = torch.stack([tensor([1.0, 0.0]), tensor([1.0, 0.0]), near, far])
            p = tensor([mean_p, mean_p, 0.01, 0.01])
            probs = torch.stack([p, 1 - p], 1)
            labels = one_vs_all_labels(features, probs, ratio=1.0, rho=0.75)
            assert (labels[0] == 0).item() is accepted


def slow_labels(
    features: Tensor, probs: Tensor, negatives: list[Tensor], n_positive: int, rho: float
) -> list[int]:
    """Class by class and image by image, every class checked, negatives given."""
    n, c = probs.shape
    prototypes, scales = [], []
    for k in range(c):
        order = sorted(range(n), key=lambda i, k=k: -float(probs[i, k]))[:n_positive]
        mean = torch.stack([features[i] for i in order]).mean(0)
        prototypes.append(mean / mean.norm())
        scales.append(rho + (1 - rho) * float(sum(probs[i, k] for i in order)) / n_positive)
    labels = []
    for i in range(n):
        accepts = []
        for k in range(c):
            positive = scales[k] * float(features[i] @ prototypes[k])
            accepts.append(all(positive >= float(features[i] @ row) for row in negatives[k]))
        nearest = max(range(c), key=lambda k, i=i: float(features[i] @ prototypes[k]))
        labels.append(nearest if accepts[nearest] else c)
    return labels


@few
@given(seeds, st.integers(4, 30), st.integers(2, 4), st.sampled_from([0.5, 1.0, 2.0]))
def test_pseudo_labels_are_one_vs_all(seed: int, n: int, c: int, coefficient: float) -> None:
    features, probs = unit(seed, n, 5), probs_of(seed + 1, n, c)
    n_positive, k = group_sizes(n, c, coefficient)
    found = one_vs_all_labels(features, probs, coefficient, 0.75)
    rest = probs.argsort(dim=0, descending=True)[n_positive:]
    negatives = [kmeans(features[rest[:, j]], k, 1)[0] for j in range(c)]
    assert found.tolist() == slow_labels(features, probs, negatives, n_positive, 0.75)


def test_labels_in_chunks_are_those_of_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    features, probs = groups(40, 6, torch.eye(5, 6).double(), 0.3), probs_of(0, 200, 4)
    whole = one_vs_all_labels(features, probs, 0.5, 0.75)
    assert len(set(whole.tolist())) > 2
    for most in (6 * 199, 60, 1):
        monkeypatch.setattr(chunked, "MAX_ENTRIES", most)
        assert torch.equal(one_vs_all_labels(features, probs, 0.5, 0.75), whole)


def test_no_table_of_all_images_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunked, "MAX_ENTRIES", 600)
    features, probs = groups(500, 3, torch.eye(3, 3).double()), probs_of(0, 1500, 3)
    with Largest() as made:
        knn_probs(features[:8], features, probs)
    assert made.entries <= 600
    with Largest() as made:
        one_vs_all_labels(features, probs, 0.5, 0.75)
    assert made.entries <= 2 * 256 * 3  # the images that two clusters are made of


def test_known_groups_get_their_class_and_an_unknown_group_none() -> None:
    centres = torch.eye(4, 6).double()
    features = groups(25, 6, centres)
    logits = 4 * features[:, :3]  # three classes; the fourth group is none of them
    labels = one_vs_all_labels(features, logits.softmax(1), ratio=4 / 3, rho=0.75)
    assert labels.tolist() == [0] * 25 + [1] * 25 + [2] * 25 + [3] * 25


def test_few_images_and_few_classes_are_handled() -> None:
    for coefficient, (n, c) in product(
        [0.25, 0.5, 1.0, 2.0, 3.0], [(2, 2), (3, 2), (5, 4), (6, 20), (40, 3), (80, 4)]
    ):
        n_positive, k = group_sizes(n, c, coefficient)
        assert 1 <= n_positive < n
        assert 1 <= k <= n - n_positive
        labels = one_vs_all_labels(unit(n, n, 3), probs_of(c, n, c), coefficient, 0.75)
        assert labels.shape == (n,)
        assert ((labels >= 0) & (labels <= c)).all()


def test_equal_images_are_handled() -> None:
    features = F.normalize(torch.ones(12, 4))
    labels = one_vs_all_labels(features, torch.full((12, 3), 1 / 3), 1.0, 0.75)
    assert labels.tolist() == [3] * 12  # the scaled prototype is behind its own copies


def test_a_class_without_assigned_images_is_not_clustered() -> None:
    features = torch.cat([groups(10, 3, torch.eye(2, 3).double(), 0.01)])
    p = torch.cat(
        [tensor([[0.9, 0.05, 0.05]]).expand(10, 3), tensor([[0.05, 0.9, 0.05]]).expand(10, 3)]
    )
    labels = one_vs_all_labels(features, p, 1.0, 0.75)
    assert set(labels.tolist()) <= {0, 1, 2, 3}


def test_of_many_images_a_part_is_clustered() -> None:
    centres = torch.eye(3, 8).double()
    features = groups(700, 8, centres, 0.05)
    logits = 6 * features[:, :2]
    labels = one_vs_all_labels(
        features, logits.softmax(1), 1.5, 0.75
    )  # 2 or 3 centres: ≤ 768 points
    assert (labels[:700] == 0).double().mean() > 0.95
    assert (labels[1400:] == 2).double().mean() > 0.95


def test_a_part_is_drawn_from_the_others_alone() -> None:
    p = probs_of(0, 1000, 2)[:, 0]
    positive, rest = pseudo_labels._split(p, 300, 50)
    assert set(positive.tolist()) == set(p.argsort(descending=True)[:300].tolist())
    assert len(set(rest.tolist())) == 50
    assert not set(rest.tolist()) & set(positive.tolist())


def test_the_images_used_are_bounded_for_any_number_of_clusters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    recorded: list[int] = []

    def note(rows: Tensor, *args: int, **kwargs: int) -> tuple[Tensor, Tensor]:
        recorded.append(len(rows))
        return kmeans(rows, *args, **kwargs)

    monkeypatch.setattr(pseudo_labels, "kmeans", note)
    monkeypatch.setattr(pseudo_labels, "_MAX_ROWS", 200)
    one_vs_all_labels(groups(700, 8, torch.eye(3, 8).double()), probs_of(0, 2100, 3), 1.0, 0.75)
    assert recorded
    assert set(recorded) == {200}


def test_the_number_of_groups_is_found() -> None:
    for n_groups, coefficient in [(4, 0.5), (8, 1.0), (16, 2.0)]:
        features = groups(240 // n_groups, 16, torch.eye(16).double()[:n_groups])
        assert estimate_class_ratio(features, 8) == coefficient


def test_a_search_among_features_without_structure() -> None:
    """t-SNE of equal rows has killed the interpreter."""
    for value in [1.0, math.nan, math.inf]:
        assert estimate_class_ratio(torch.full((20, 8), value), 4) == 1.0


def test_the_search_repeats() -> None:
    features = unit(0, 60, 8).float()
    assert estimate_class_ratio(features, 4) == estimate_class_ratio(features, 4)


def test_a_small_sample_is_handled() -> None:
    for n, c in [(4, 2), (8, 4), (10, 20)]:
        assert estimate_class_ratio(unit(0, n, 8).float(), c) in (0.25, 0.5, 1.0, 2.0, 3.0)
