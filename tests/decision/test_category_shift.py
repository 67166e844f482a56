"""Signs of unknown classes in features: reach, density and margin of synthetic clusters."""

from collections.abc import Sequence
from dataclasses import astuple

import pytest
import torch
from torch import Tensor

from unida.decision import category_shift
from unida.decision.category_shift import (
    ShiftSigns,
    SourceReference,
    balanced_index,
    build_reference,
)

WIDTH = 32
MEANS = torch.randn(12, WIDTH, generator=torch.Generator().manual_seed(0))
SHIFT = 0.5 * torch.randn(WIDTH, generator=torch.Generator().manual_seed(1))
KNOWN = range(6)


def draw(classes: Sequence[int], n: int, seed: int, of_target: bool = False) -> Tensor:
    draws = torch.Generator().manual_seed(seed)
    labels = torch.tensor(list(classes))[torch.arange(n) % len(classes)]
    return MEANS[labels] + 0.7 * torch.randn(n, WIDTH, generator=draws) + SHIFT * of_target


def reference(target: Tensor) -> SourceReference:
    return build_reference(draw(KNOWN, 180, 2), torch.arange(180) % 6, target)


def split(fitted: SourceReference, target: Tensor, is_rejected: Tensor) -> ShiftSigns | None:
    described = fitted.describe(target)
    return described and described.compare(is_rejected)


def compare(classes: Sequence[int], n: int = 300, n_rejected: int = 100) -> ShiftSigns:
    """Signs of a target whose images of the highest classes are rejected."""
    target = draw(classes, n, 3, of_target=True)
    labels = torch.tensor(list(classes))[torch.arange(n) % len(classes)]
    is_rejected = torch.zeros(n, dtype=torch.bool)
    is_rejected[labels.argsort(descending=True, stable=True)[:n_rejected]] = True
    signs = split(reference(target), target, is_rejected)
    assert signs is not None
    return signs


def test_signs_of_known_classes_alone_differ_from_those_of_unknown_ones() -> None:
    known, few, many = compare(KNOWN), compare(range(7)), compare([0, 1, 2, 6, 7, 8, 9])
    assert known.reach - known.density > few.reach - few.density > many.reach - many.density
    assert known.margin > 0.8
    assert many.margin < 0.3
    assert min(known.level, few.level, many.level) > 0.5


def test_levels_are_low_where_nothing_is_known() -> None:
    nothing = compare(range(6, 12))
    assert nothing.level < 0.25
    assert nothing.uncentred_level < 0.3


def test_a_target_of_one_known_class_is_recognised_without_centring_only() -> None:
    one = compare([0])
    assert one.level < 0.25
    assert one.uncentred_level > 0.5


def test_a_side_without_images_has_a_margin_of_one() -> None:
    assert compare(KNOWN, n_rejected=0).margin == compare(KNOWN, n_rejected=300).margin == 1


@pytest.mark.parametrize("n", [1, 19])
def test_fewer_images_than_needed_have_no_signs(n: int) -> None:
    target = draw(KNOWN, n, 3)
    assert split(reference(target), target, torch.zeros(n, dtype=torch.bool)) is None


@pytest.mark.parametrize("n", [20, 21, 50])
def test_signs_of_a_small_target_are_numbers(n: int) -> None:
    assert all(torch.tensor(astuple(compare(KNOWN, n, n // 3))).isfinite())


def test_identical_images_have_signs_that_are_numbers() -> None:
    target = torch.ones(40, WIDTH)
    signs = split(reference(target), target, torch.arange(40) < 10)
    assert signs is not None
    assert all(torch.tensor(astuple(signs)).isfinite())


def test_signs_do_not_depend_on_the_unit_or_the_order_of_the_images() -> None:
    target = draw(range(8), 200, 3, of_target=True)
    is_rejected = torch.arange(200) % 8 >= 6
    order = torch.randperm(200, generator=torch.Generator().manual_seed(4))
    plain = split(reference(target), target, is_rejected)
    moved = split(reference(target[order]), target[order], is_rejected[order])
    source = draw(KNOWN, 180, 2)
    scaled = build_reference(9 * source, torch.arange(180) % 6, 9 * target)
    assert plain
    assert moved
    assert astuple(moved) == pytest.approx(astuple(plain), rel=1e-3)
    by_unit = split(scaled, 9 * target, is_rejected)
    assert by_unit
    assert astuple(by_unit) == pytest.approx(astuple(plain), rel=1e-3)


def test_a_stored_reference_gives_the_same_signs() -> None:
    target = draw(range(8), 200, 3, of_target=True)
    is_rejected = torch.arange(200) % 8 >= 6
    first = reference(target)
    stored = SourceReference(**first.config)
    stored.load_state_dict(first.state_dict())
    assert split(stored, target, is_rejected) == split(first, target, is_rejected)


def test_a_source_is_sampled_with_as_many_images_of_each_class(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    labels = torch.tensor([0] * 50 + [1] * 5 + [3] * 20)
    assert torch.equal(balanced_index(labels), torch.arange(75))
    monkeypatch.setattr(category_shift, "MAX_SOURCE", 30)
    chosen = balanced_index(labels)
    assert torch.bincount(labels[chosen]).tolist() == [12, 5, 0, 12]
    assert torch.equal(chosen, balanced_index(labels))


def test_every_class_has_an_image_in_a_sample_of_very_many_classes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(category_shift, "MAX_SOURCE", 10)
    labels = torch.arange(40) % 20
    assert set(labels[balanced_index(labels)].tolist()) == set(range(20))
