"""Walks, anchors and subgraphs: docs/methods/gate.md, slow copies, empty and small cases."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from tests.losses.examples import few
from unida.ops.random_walk import (
    anchor_pairs,
    random_walk,
    return_probability,
    subgraph_means,
    transition_matrix,
)

seeds = st.integers(0, 2**31)


def tensor(values: object) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


SOURCE = F.normalize(tensor([[1.0, 0], [0.9, 0.2], [0, 1]]))


TARGET = F.normalize(tensor([[1.0, 0.1], [0.1, 1], [-1, 0.2]]))


def unit(seed: int, n: int, d: int = 3) -> Tensor:
    g = torch.Generator().manual_seed(seed)
    return F.normalize(torch.randn(n, d, generator=g, dtype=torch.float64))


def both_ways(here: Tensor, there: Tensor, tau: float = 0.1) -> tuple[Tensor, Tensor]:
    return transition_matrix(here, there, tau), transition_matrix(there, here, tau)


def test_walks_of_methods() -> None:
    forth, back = both_ways(SOURCE, TARGET)
    assert forth[0].tolist() == pytest.approx([0.999870967, 0.000129030, 2.63e-9], abs=1e-9)
    returns = return_probability(forth, back)
    assert returns.tolist() == pytest.approx([0.505175118, 0.494145020, 0.998652839], abs=1e-9)
    hops = random_walk(forth, back)[1].tolist()
    assert hops == pytest.approx([0.998207962, 0.001791635, 4.03e-7], abs=1e-9)


def test_anchors_of_methods() -> None:
    i, j = anchor_pairs(*both_ways(SOURCE, TARGET))
    assert list(zip(i.tolist(), j.tolist(), strict=True)) == [(0, 0), (2, 1)]


def test_a_walk_goes_step_by_step() -> None:
    for r in [0, 1, 2, 3]:
        forth, back = both_ways(unit(0, 5), unit(1, 4))
        place = torch.eye(5, dtype=torch.float64)
        for _ in range(r):
            place = place @ forth @ back
        torch.testing.assert_close(random_walk(forth, back, r), place @ forth)


@few
@given(seeds, st.integers(0, 5))
def test_a_walk_ends_somewhere(seed: int, r: int) -> None:
    forth, back = both_ways(unit(seed, 5), unit(seed + 1, 7))
    ends = random_walk(forth, back, r)
    torch.testing.assert_close(ends.sum(1), torch.ones(5, dtype=torch.float64))
    torch.testing.assert_close(return_probability(forth, back), (forth @ back).diagonal())


@few
@given(seeds)
def test_round_trips_are_never_all_impossible(seed: int) -> None:
    """Their mean divides the weights: the closest pair of all keeps it above zero."""
    forth, back = both_ways(unit(seed, 6, 8).float(), unit(seed + 1, 6, 8).float(), 0.02)
    assert return_probability(forth, back).mean() > 1e-3


@few
@given(seeds, st.integers(0, 2))
def test_anchors_are_mutual_from_either_side(seed: int, r: int) -> None:
    forth, back = both_ways(unit(seed, 6), unit(seed + 1, 5))
    i, j = anchor_pairs(forth, back, r)
    j_too, i_too = anchor_pairs(back, forth, r)
    assert set(zip(i.tolist(), j.tolist(), strict=True)) == set(
        zip(i_too.tolist(), j_too.tolist(), strict=True)
    )
    assert len(set(j.tolist())) == len(j)  # one to one


def test_without_a_round_trip_anchors_are_mutual_nearest_neighbours() -> None:
    here, there = unit(3, 8), unit(4, 9)
    i, j = anchor_pairs(*both_ways(here, there), r=0)
    similarity = here @ there.T
    for a, b in zip(i.tolist(), j.tolist(), strict=True):
        assert similarity[a].argmax() == b
        assert similarity[:, b].argmax() == a


def test_there_may_be_no_anchor() -> None:
    forth = tensor([[0.6, 0.4], [0.6, 0.4]])
    back = tensor([[0.4, 0.6], [0.6, 0.4]])
    # Both go to the first; it goes to the second, whose walk ends there: one pair.
    assert [x.tolist() for x in anchor_pairs(forth, back, 0)] == [[1], [0]]
    in_a_ring = tensor([[0.9, 0.1, 0], [0, 0.9, 0.1], [0.1, 0, 0.9]])
    i, j = anchor_pairs(in_a_ring, in_a_ring.roll(1, 1), 0)
    assert len(i) == len(j) == 0


def slow_subgraph(z: Tensor, centre: int, n: int) -> Tensor:
    others = [j for j in range(len(z)) if j != centre]
    near = sorted(others, key=lambda j: -float(z[centre] @ z[j]))[:n]
    mean = sum((z[j] for j in near), z[centre].clone()) / (1 + len(near))
    return mean / mean.norm()


def test_a_subgraph_is_a_centre_and_its_neighbours() -> None:
    for n in [1, 4, 50]:
        z, centres = unit(0, 7), torch.tensor([4, 0])
        expected = torch.stack([slow_subgraph(z, c, n) for c in centres.tolist()])
        torch.testing.assert_close(subgraph_means(z, centres, n), expected)


def test_two_images_are_enough_for_a_subgraph() -> None:
    z = unit(0, 2)
    torch.testing.assert_close(
        subgraph_means(z, torch.tensor([0]))[0], F.normalize(z.sum(0), dim=0)
    )
