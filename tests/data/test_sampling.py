"""Samplers: balanced classes, epochs, and independence of history."""

from collections.abc import Callable

import numpy as np
import pytest
import torch

from unida.data.sampling import Balanced, Shuffled
from unida.errors import UserError

UNEQUAL = np.array([2] * 1 + [0] * 900 + [1] * 30, dtype=np.int64)


class TestBalanced:
    def test_classes_are_drawn_uniformly_however_unequal_they_are(self) -> None:
        source = Balanced(UNEQUAL, 60, seed=3)
        drawn = np.concatenate([UNEQUAL[source.indices(step)] for step in range(100)])
        # 6,000 draws at 1/3: the standard deviation of a share is 0.006.
        np.testing.assert_allclose(np.bincount(drawn) / len(drawn), 1 / 3, atol=0.025)

    def test_images_of_a_class_are_drawn_uniformly(self) -> None:
        source = Balanced(np.repeat([0, 1], [5, 50]), 50, seed=0)
        drawn = torch.cat([source.indices(step) for step in range(200)])
        # 10,000 draws, 1,000 for each of the five.
        np.testing.assert_allclose(torch.bincount(drawn)[:5], 1000, atol=150)

    def test_every_image_can_be_drawn(self) -> None:
        source = Balanced(UNEQUAL[:31], 31, seed=0)
        drawn = torch.cat([source.indices(step) for step in range(60)])
        assert drawn.unique().tolist() == list(range(31))

    def test_a_class_without_images_is_never_drawn(self) -> None:
        labels = np.repeat([0, 3], [4, 4])
        source = Balanced(labels, 8, seed=0)
        drawn = np.concatenate([labels[source.indices(step)] for step in range(50)])
        assert set(drawn) == {0, 3}


class TestShuffled:
    @pytest.mark.parametrize("n", [12, 13, 15])
    def test_an_epoch_holds_each_image_at_most_once(self, n: int) -> None:
        target = Shuffled(n, 4, seed=1)
        for epoch in range(3):
            drawn = torch.cat([target.indices(3 * epoch + i) for i in range(3)])
            assert len(drawn) == 12
            assert len(drawn.unique()) == 12
            assert drawn.max() < n

    def test_an_epoch_of_whole_batches_holds_each_image_once(self) -> None:
        target = Shuffled(12, 4, seed=1)
        drawn = torch.cat([target.indices(step) for step in range(3)])
        assert sorted(drawn.tolist()) == list(range(12))

    def test_every_epoch_has_its_own_order(self) -> None:
        target = Shuffled(50, 50, seed=0)
        assert not torch.equal(target.indices(0), target.indices(1))

    def test_images_dropped_in_one_epoch_come_in_another(self) -> None:
        target = Shuffled(7, 4, seed=0)
        assert len(torch.cat([target.indices(step) for step in range(20)]).unique()) == 7


SAMPLERS: list[Callable[[int], Balanced | Shuffled]] = [
    lambda seed: Balanced(UNEQUAL, 6, seed),
    lambda seed: Shuffled(20, 6, seed),
]


@pytest.mark.parametrize("make", SAMPLERS)
class TestBoth:
    def test_indices_follow_from_seed_and_step_without_history(
        self, make: Callable[[int], Balanced | Shuffled]
    ) -> None:
        in_order = make(5)
        expected = [in_order.indices(step) for step in range(8)]
        backwards = make(5)
        for step in reversed(range(8)):
            assert torch.equal(backwards.indices(step), expected[step])

    def test_another_seed_or_step_draws_others(
        self, make: Callable[[int], Balanced | Shuffled]
    ) -> None:
        assert not torch.equal(make(0).indices(0), make(1).indices(0))
        assert not torch.equal(make(0).indices(0), make(0).indices(1))

    def test_global_random_state_is_neither_used_nor_changed(
        self, make: Callable[[int], Balanced | Shuffled]
    ) -> None:
        torch.manual_seed(0)
        before = torch.get_rng_state()
        first = make(0).indices(0)
        assert torch.equal(torch.get_rng_state(), before)
        torch.manual_seed(1)
        assert torch.equal(make(0).indices(0), first)


@pytest.mark.parametrize(
    ("n", "message"),
    [
        (3, "3 usable images, fewer than a batch of 4: add images or use --batch 3 or less"),
        (1, "1 usable image, fewer than a batch of 4: add images; two are needed at least"),
    ],
)
class TestTooFew:
    def test_source(self, n: int, message: str) -> None:
        with pytest.raises(UserError, match=f"The source has {message}"):
            Balanced(np.zeros(n, dtype=np.int64), 4, seed=0)

    def test_target(self, n: int, message: str) -> None:
        with pytest.raises(UserError, match=f"The target has {message}"):
            Shuffled(n, 4, seed=0)


def test_as_many_images_as_a_batch_are_enough() -> None:
    assert sorted(Shuffled(4, 4, seed=0).indices(0).tolist()) == [0, 1, 2, 3]
    assert len(Balanced(np.array([0, 0, 1, 1]), 4, seed=0).indices(0)) == 4
