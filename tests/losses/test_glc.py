"""GLC's losses and pseudo labels: METHODS.md §9, slow copies, limits, edges."""

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from tests.losses import slow
from tests.losses.examples import few
from tests.losses.sizes import Largest
from unida.losses import (
    glc,
    global_labels,
    neighbours_say,
    search_coefficient,
    smoothed_cross_entropy,
    to_targets,
)
from unida.losses.glc import group_sizes
from unida.ops import chunked
from unida.ops.clustering import kmeans

LOGITS = [[2.0, 0.0, 0.0], [0.0, 0.0, 0.0]]

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


# --- the check cases of METHODS.md §9


def test_the_losses_of_the_check_case() -> None:
    p = tensor(LOGITS).softmax(1)
    onehot, uniform = tensor([1.0, 0.0, 0.0]) / 1.0001, torch.ones(3).double() / 3.0001
    psd = smoothed_cross_entropy(p, torch.stack([onehot, uniform])).mean()
    assert psd.item() == pytest.approx(0.669026890, abs=1e-9)
    heard = tensor([[0.6, 0.2, 0.2], [0.3, 0.4, 0.3]])
    knn = smoothed_cross_entropy(p, heard).mean()
    assert knn.item() == pytest.approx(1.069040938, abs=1e-9)


def test_the_entropies_of_the_check_case() -> None:
    p = tensor(LOGITS).softmax(1)
    entropies = (smoothed_cross_entropy(p, p) / math.log(3)).tolist()
    assert entropies == pytest.approx([0.605803057, 0.999972693], abs=1e-9)
    assert [e > 0.55 for e in entropies] == [True, True]


def test_the_targets_of_the_check_case() -> None:
    expected = torch.tensor([[1 / 1.0001, 0, 0], [1 / 3.0001] * 3])
    torch.testing.assert_close(to_targets(torch.tensor([0, 3]), 3), expected)


@pytest.mark.parametrize(("coefficient", "n_positive"), [(0.5, 10), (3.0, 1), (1.0, 5), (0.25, 20)])
def test_how_many_stand_for_a_class(coefficient: float, n_positive: int) -> None:
    assert group_sizes(100, 20, coefficient)[0] == n_positive


def test_the_scale_of_the_check_case() -> None:
    """Mean p of (0.9, 0.4) gives .975 and .85: just there does a negative prototype win."""
    for mean_p, scale in ((0.9, 0.975), (0.4, 0.85)):
        for angle, accepted in ((scale + 1e-3, False), (scale - 1e-3, True)):
            # Two images make up class 0 and each is e_1; the two others are one cluster each,
            # and image 0 is as near to the nearest of them as the angle says.
            near = tensor([angle, math.sqrt(1 - angle**2)])
            far = tensor([-1.0, 0.0])
            features = torch.stack([tensor([1.0, 0.0]), tensor([1.0, 0.0]), near, far])
            p = tensor([mean_p, mean_p, 0.01, 0.01])
            probs = torch.stack([p, 1 - p], 1)
            labels = global_labels(features, probs, coefficient=1.0, rho=0.75)
            assert (labels[0] == 0).item() is accepted


# --- the equations


@pytest.mark.parametrize(("b", "c"), [(1, 2), (3, 4)])
def test_the_loss_has_the_equation_s_value_and_gradient(b: int, c: int) -> None:
    logits, t = unit(0, b, c).requires_grad_(), probs_of(1, b, c)

    def by_hand(logits: Tensor) -> float:
        total = 0.0
        for row, target in zip(logits.tolist(), t.tolist(), strict=True):
            mass = sum(math.exp(x) for x in row)
            pairs = zip(row, target, strict=True)
            total -= sum(y * math.log(math.exp(x) / mass + 1e-5) for x, y in pairs)
        return total / b

    loss = smoothed_cross_entropy(logits.softmax(1), t).mean()
    assert loss.item() == pytest.approx(by_hand(logits), rel=1e-12)
    (found,) = torch.autograd.grad(loss, logits)
    torch.testing.assert_close(found, slow.slope(by_hand, logits), rtol=1e-6, atol=1e-8)
    assert torch.autograd.gradcheck(smoothed_cross_entropy, (probs_of(0, b, c).requires_grad_(), t))


def test_a_probability_of_zero_is_no_trouble() -> None:
    logits = torch.tensor([[1e4, 0.0], [0.0, 1e4]], requires_grad=True)
    loss = smoothed_cross_entropy(logits.softmax(1), torch.tensor([[0.0, 1.0], [1.0, 0.0]])).sum()
    loss.backward()
    assert loss.item() == pytest.approx(-2 * math.log(1e-5), rel=1e-4)
    assert logits.grad is not None
    assert logits.grad.isfinite().all()


@few
@given(seeds, st.integers(2, 12), st.integers(1, 6))
def test_neighbours_are_the_nearest_after_the_first(seed: int, n: int, k: int) -> None:
    bank, probs, features = unit(seed, n, 3), probs_of(seed + 1, n, 4), unit(seed + 2, 5, 3)
    found = neighbours_say(features, bank, probs, k)
    for i in range(5):
        order = sorted(range(n), key=lambda j, i=i: -float(features[i] @ bank[j]))[1 : k + 1]
        torch.testing.assert_close(found[i], torch.stack([probs[j] for j in order]).mean(0))
    torch.testing.assert_close(found.sum(1), torch.ones(5).double())


def test_neighbours_carry_no_gradient() -> None:
    features = unit(0, 3, 4).requires_grad_()
    assert not neighbours_say(features, unit(1, 6, 4), probs_of(2, 6, 3)).requires_grad


def slow_labels(
    features: Tensor, probs: Tensor, negatives: list[Tensor], n_positive: int, rho: float
) -> list[int]:
    """Class by class and image by image, all classes asked, negatives given."""
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
    found = global_labels(features, probs, coefficient, 0.75)
    rest = probs.argsort(dim=0, descending=True)[n_positive:]
    negatives = [kmeans(features[rest[:, j]], k, 1)[0] for j in range(c)]
    assert found.tolist() == slow_labels(features, probs, negatives, n_positive, 0.75)


def test_labels_in_parts_are_those_of_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    features, probs = groups(40, 6, torch.eye(5, 6).double(), 0.3), probs_of(0, 200, 4)
    whole = global_labels(features, probs, 0.5, 0.75)
    assert len(set(whole.tolist())) > 2
    for most in (6 * 199, 60, 1):
        monkeypatch.setattr(chunked, "MOST", most)
        assert torch.equal(global_labels(features, probs, 0.5, 0.75), whole)


def test_neighbours_in_parts_say_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    features, bank, probs = unit(0, 5, 3), unit(1, 50, 3), probs_of(2, 50, 4)
    whole = neighbours_say(features, bank, probs)
    for most in (5 * 49, 5 * 7, 1):
        monkeypatch.setattr(chunked, "MOST", most)
        assert torch.equal(neighbours_say(features, bank, probs), whole)


def test_no_table_of_all_images_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunked, "MOST", 600)
    features, probs = groups(500, 3, torch.eye(3, 3).double()), probs_of(0, 1500, 3)
    with Largest() as made:
        neighbours_say(features[:8], features, probs)
    assert made.entries <= 600
    with Largest() as made:
        global_labels(features, probs, 0.5, 0.75)
    assert made.entries <= 2 * 256 * 3  # the images that two clusters are made of


def test_known_groups_get_their_class_and_an_unknown_group_none() -> None:
    centres = torch.eye(4, 6).double()
    features = groups(25, 6, centres)
    logits = 4 * features[:, :3]  # three classes; the fourth group is none of them
    labels = global_labels(features, logits.softmax(1), coefficient=4 / 3, rho=0.75)
    assert labels.tolist() == [0] * 25 + [1] * 25 + [2] * 25 + [3] * 25


# --- edges


@pytest.mark.parametrize("coefficient", [0.25, 0.5, 1.0, 2.0, 3.0])
@pytest.mark.parametrize(("n", "c"), [(2, 2), (3, 2), (5, 4), (6, 20), (40, 3), (80, 4)])
def test_few_images_and_few_classes_are_no_trouble(n: int, c: int, coefficient: float) -> None:
    n_positive, k = group_sizes(n, c, coefficient)
    assert 1 <= n_positive < n
    assert 1 <= k <= n - n_positive
    labels = global_labels(unit(n, n, 3), probs_of(c, n, c), coefficient, 0.75)
    assert labels.shape == (n,)
    assert ((labels >= 0) & (labels <= c)).all()


def test_equal_images_are_no_trouble() -> None:
    features = F.normalize(torch.ones(12, 4))
    labels = global_labels(features, torch.full((12, 3), 1 / 3), 1.0, 0.75)
    assert labels.tolist() == [3] * 12  # the scaled prototype is behind its own copies


def test_a_class_that_nobody_is_nearest_to_is_never_asked() -> None:
    features = torch.cat([groups(10, 3, torch.eye(2, 3).double(), 0.01)])
    p = torch.cat(
        [tensor([[0.9, 0.05, 0.05]]).expand(10, 3), tensor([[0.05, 0.9, 0.05]]).expand(10, 3)]
    )
    labels = global_labels(features, p, 1.0, 0.75)
    assert set(labels.tolist()) <= {0, 1, 2, 3}


def test_of_many_images_a_part_is_clustered() -> None:
    centres = torch.eye(3, 8).double()
    features = groups(700, 8, centres, 0.05)
    logits = 6 * features[:, :2]
    labels = global_labels(features, logits.softmax(1), 1.5, 0.75)  # 2 or 3 centres: ≤ 768 points
    assert (labels[:700] == 0).double().mean() > 0.95
    assert (labels[1400:] == 2).double().mean() > 0.95


def test_a_part_is_drawn_from_the_others_alone() -> None:
    p = probs_of(0, 1000, 2)[:, 0]
    positive, rest = glc._positive_and_rest(p, 300, 50)
    assert set(positive.tolist()) == set(p.argsort(descending=True)[:300].tolist())
    assert len(set(rest.tolist())) == 50
    assert not set(rest.tolist()) & set(positive.tolist())


def test_however_many_clusters_the_images_looked_at_are_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[int] = []

    def note(rows: Tensor, *args: int, **kwargs: int) -> tuple[Tensor, Tensor]:
        seen.append(len(rows))
        return kmeans(rows, *args, **kwargs)

    monkeypatch.setattr(glc, "kmeans", note)
    monkeypatch.setattr(glc, "_POINTS", 200)
    global_labels(groups(700, 8, torch.eye(3, 8).double()), probs_of(0, 2100, 3), 1.0, 0.75)
    assert seen
    assert set(seen) == {200}


# --- the number of target classes


@pytest.mark.parametrize(("n_groups", "coefficient"), [(4, 0.5), (8, 1.0), (16, 2.0)])
def test_the_number_of_groups_is_found(n_groups: int, coefficient: float) -> None:
    features = groups(240 // n_groups, 16, torch.eye(16).double()[:n_groups])
    assert search_coefficient(features, 8) == coefficient


@pytest.mark.parametrize("value", [1.0, math.nan, math.inf])
def test_a_search_among_features_that_say_nothing(value: float) -> None:
    """t-SNE of equal rows has killed the interpreter."""
    assert search_coefficient(torch.full((20, 8), value), 4) == 1.0


def test_the_search_repeats() -> None:
    features = unit(0, 60, 8).float()
    assert search_coefficient(features, 4) == search_coefficient(features, 4)


@pytest.mark.parametrize(("n", "c"), [(4, 2), (8, 4), (10, 20)])
def test_a_small_sample_is_no_trouble(n: int, c: int) -> None:
    assert search_coefficient(unit(0, n, 8).float(), c) in (0.25, 0.5, 1.0, 2.0, 3.0)
