"""Target prototypes: the confident images of the target show where its classes lie."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from unida.decision import prototypes
from unida.decision.prototypes import MIN_PER_CLASS, TargetPrototypes

CENTRES = F.normalize(torch.tensor([[1.0, 0, 0, 0], [0, 1, 0, 0], [0, 0, 0, 1]]))
"""Where classes 0 and 1 lie in the target, and an unknown class."""


@pytest.fixture
def small_targets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prototypes on as few images as a test has."""
    monkeypatch.setattr(prototypes, "MIN_PER_CLASS", 0.1)


def rows_around(cluster: Tensor, seed: int = 0) -> Tensor:
    draws = torch.Generator().manual_seed(seed)
    return F.normalize(CENTRES[cluster] + 0.1 * torch.randn(len(cluster), 4, generator=draws))


def clusters(each: int = 20, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Unit rows around each centre, and the cluster of each."""
    cluster = torch.arange(3).repeat_interleave(each)
    return rows_around(cluster, seed), cluster


def packed(scores: Tensor, classes: Tensor, n_classes: int = 3) -> Tensor:
    return torch.cat([scores[:, None], F.one_hot(classes, n_classes).float()], 1)


def identity(values: Tensor) -> Tensor:
    return values


def fitted(rows: Tensor, values: Tensor) -> TargetPrototypes:
    found = TargetPrototypes(4, 3)
    found.fit(rows, values, [identity])
    return found


def confident_on_a_few(cluster: Tensor, each: int = 20) -> Tensor:
    """A classifier that is right on a few images of each class and guesses all the others."""
    place = torch.arange(len(cluster)) % each
    right = (place < 5) & (cluster < 2)
    guess = torch.where(place % 6 == 0, -0.05, 0.1)
    scores = torch.where(right, -1.0 - 0.01 * place, guess)
    return packed(scores, torch.where(right, cluster, place % 2))


@pytest.mark.usefixtures("small_targets")
def test_a_few_confident_images_are_enough() -> None:
    rows, cluster = clusters()
    values = confident_on_a_few(cluster)
    found = fitted(rows, values)
    scored = found.score(rows, values)
    assert (scored[cluster < 2, 1:].argmax(1) == cluster[cluster < 2]).all()
    assert scored[cluster < 2, 0].max() < scored[cluster == 2, 0].min()
    assert (F.cosine_similarity(found.directions[:2], CENTRES[:2]) > 0.95).all()
    torch.testing.assert_close(scored[:, 1:].sum(1), torch.ones(len(rows)))
    assert (scored[:, 1:] >= 0).all()


@pytest.mark.usefixtures("small_targets")
def test_a_class_without_confident_images_has_no_prototype() -> None:
    rows, cluster = clusters()
    values = confident_on_a_few(cluster)
    found = fitted(rows, values)
    assert found.present.tolist() == [True, True, False]
    assert found.score(rows, values)[:, 3].max() < 1e-4


@pytest.mark.usefixtures("small_targets")
def test_as_many_images_are_accepted_as_by_the_classifier() -> None:
    rows, cluster = clusters()
    values = confident_on_a_few(cluster)
    for shift in (-0.5, 0.0, 0.14, 0.5):
        shifted = values - shift * F.one_hot(torch.zeros(1).long(), 4)
        scored = fitted(rows, shifted).score(rows, shifted)
        assert (scored[:, 0] < 0).sum() == (shifted[:, 0] < 0).sum(), shift


@pytest.mark.usefixtures("small_targets")
def test_the_number_is_matched_after_all_smoothings() -> None:
    rows, cluster = clusters()
    values = confident_on_a_few(cluster)

    def flatten(x: Tensor) -> Tensor:
        return 0.7 * x + 0.3 * x.roll(7, 0)

    found = TargetPrototypes(4, 3)
    found.fit(rows, values, [identity, flatten])
    of_one = fitted(rows, values)
    assert torch.equal(found.directions, of_one.directions)
    assert (flatten(found.score(rows, values))[:, 0] < 0).sum() == (values[:, 0] < 0).sum()
    assert found.shift != of_one.shift


@pytest.mark.usefixtures("small_targets")
def test_the_classifier_decides_before_fit_and_where_it_accepts_nothing() -> None:
    rows, cluster = clusters()
    values = packed(torch.ones(len(rows)), cluster)
    for found in (fitted(rows, values), TargetPrototypes(4, 3)):
        assert not found.is_fitted
        assert torch.equal(found.score(rows, values), values)


@pytest.mark.parametrize(("images", "kept"), [(9, False), (10, True), (40, True)])
def test_a_frequent_class_is_kept_where_another_is_more_confident(images: int, kept: bool) -> None:
    cluster = (torch.arange(80) < images).long()  # four classes, so an even share is 20
    found = TargetPrototypes(4, 4)
    scores = torch.where(cluster == 1, -1.0, -2.0)
    found.fit(rows_around(cluster), packed(scores, cluster, 4), [identity])
    assert found.present.tolist() == [True, kept, False, False]


@pytest.mark.parametrize("missing", [0, 1])
def test_they_require_enough_accepted_images(missing: int) -> None:
    rows, cluster = clusters(each=MIN_PER_CLASS)
    scores = torch.full((len(rows),), -1.0)
    scores[:missing] = 1.0
    assert fitted(rows, packed(scores, cluster)).is_fitted == (missing == 0)


@pytest.mark.usefixtures("small_targets")
def test_a_second_fit_forgets_the_first() -> None:
    rows, cluster = clusters()
    other, of_other = clusters(seed=1)
    again = fitted(rows, confident_on_a_few(cluster))
    again.fit(other, confident_on_a_few(of_other), [identity])
    fresh = fitted(other, confident_on_a_few(of_other))
    for name, tensor in fresh.state_dict().items():
        assert torch.equal(again.state_dict()[name], tensor), name
