"""Wrong labels on purpose: exactly so many, evenly, and the same every time."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unida.errors import UserError
from unida.protocols.label_noise import flip_labels
from unida.types import IntArray


def some_labels(n: int, n_classes: int) -> IntArray:
    return np.arange(n, dtype=np.int64) % n_classes


@given(
    n=st.integers(0, 200),
    n_classes=st.integers(2, 9),
    share=st.floats(0, 1),
    seed=st.integers(0, 2**40),
)
def test_exactly_the_share_is_changed_and_to_other_classes(
    n: int, n_classes: int, share: float, seed: int
) -> None:
    labels = some_labels(n, n_classes)
    noisy = flip_labels(labels, n_classes, share, seed)
    assert (noisy != labels).sum() == round(share * n)
    assert noisy.shape == labels.shape
    assert ((noisy >= 0) & (noisy < n_classes)).all()


def test_the_given_labels_stay_as_they_are() -> None:
    labels = some_labels(50, 5)
    flip_labels(labels, 5, 0.5, 0)
    assert (labels == some_labels(50, 5)).all()


def test_a_seed_gives_the_same_noise_and_another_seed_another() -> None:
    labels = some_labels(300, 6)
    once, again, other = (flip_labels(labels, 6, 0.3, seed) for seed in (7, 7, 8))
    assert (once == again).all()
    assert (once != other).any()


def test_more_noise_keeps_the_noise_there_was() -> None:
    labels = some_labels(300, 6)
    little, much = flip_labels(labels, 6, 0.1, 0), flip_labels(labels, 6, 0.4, 0)
    changed = little != labels
    assert (much[changed] == little[changed]).all()


def test_the_new_classes_are_drawn_evenly() -> None:
    noisy = flip_labels(np.zeros(30_000, dtype=np.int64), 4, 1.0, 0)
    counts = Counter(noisy.tolist())
    assert set(counts) == {1, 2, 3}
    # 10,000 each; six standard deviations of a third of 30,000 draws are 490
    assert all(abs(n - 10_000) < 490 for n in counts.values())


@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan")])
def test_a_share_outside_its_range_is_refused(share: float) -> None:
    with pytest.raises(UserError, match=r"label_noise is .*; allowed: from 0 to 1"):
        flip_labels(some_labels(10, 2), 2, share, 0)


def test_one_class_has_no_other_to_change_to() -> None:
    labels = some_labels(10, 1)
    with pytest.raises(UserError, match="0 where there is one class"):
        flip_labels(labels, 1, 0.5, 0)
    assert (flip_labels(labels, 1, 0.0, 0) == labels).all()
