"""Rows joined without a second copy, and samples of many."""

import numpy as np
import pytest
import torch

from unida.utils.chunking import RowBuffer, subsample


@pytest.mark.parametrize("most", [7, 10])
def test_parts_come_out_joined_where_fewer_may_come_than_room_was_made_for(most: int) -> None:
    parts = torch.split(torch.randn(7, 2, 3), 3)
    rows = RowBuffer(most)
    for part in parts:
        rows.add(part)
    assert rows.all().equal(torch.cat(parts))


def test_more_than_there_is_room_for_is_an_error() -> None:
    rows = RowBuffer(3)
    rows.add(torch.ones(2, 2))
    with pytest.raises(RuntimeError):
        rows.add(torch.ones(2, 2))


@pytest.mark.parametrize("n", [0, 1, 50])
def test_few_rows_are_all_used(n: int) -> None:
    assert subsample(n, 50, 0, "x").tolist() == list(range(n))


def test_of_more_a_seeded_draw_is_used_in_order() -> None:
    some = subsample(1000, 50, 0, "x")
    assert len(set(some.tolist())) == 50
    assert (np.diff(some) > 0).all()
    assert some.min() >= 0
    assert some.max() < 1000
    assert some.max() > 500  # not the first ones
    assert (some == subsample(1000, 50, 0, "x")).all()
    for other in (subsample(1000, 50, 1, "x"), subsample(1000, 50, 0, "y")):
        assert (some != other).any()
