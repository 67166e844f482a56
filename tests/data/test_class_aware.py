"""Class-aware batches: which classes and clusters fill the slots, and which images they hold."""

from collections import Counter

import pytest
import torch

from unida.data import class_aware
from unida.data.class_aware import ClassAware, draw_members, fill_slots, group_members


def draws(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_slots_are_distinct_or_cycled() -> None:
    assert sorted(fill_slots([3, 5, 8], 6, False, draws())) == [3, 5, 8]
    assert Counter(fill_slots([3, 5, 8], 6, True, draws())) == {3: 2, 5: 2, 8: 2}
    for cycle in (False, True):
        chosen = fill_slots(range(20), 6, cycle, draws())
        assert len(set(chosen)) == 6
        assert fill_slots([], 6, cycle, draws()) == []
    assert len({tuple(fill_slots(range(20), 6, False, draws(s))) for s in range(5)}) == 5


def test_members_are_those_of_the_group_in_order_and_a_group_may_be_empty() -> None:
    groups = torch.tensor([0, 1, 1, 3, 1, 0])
    assert [m.tolist() for m in group_members(groups)] == [[0, 5], [1, 2, 4], [], [3]]


def test_members_are_drawn_slot_by_slot_and_twice_only_if_few() -> None:
    groups = torch.tensor([0, 1, 1, 2, 1, 1, 0, 1])
    numbers = draw_members(group_members(groups), [1, 0, 2], 3, draws())
    assert groups[numbers].tolist() == [1, 1, 1, 0, 0, 0, 2, 2, 2]
    assert len(set(numbers[:3].tolist())) == 3
    assert set(numbers[3:6].tolist()) == {0, 6}
    assert numbers[6:].tolist() == [3, 3, 3]


def test_few_of_many_members_are_drawn_without_a_shuffle(monkeypatch: pytest.MonkeyPatch) -> None:
    members = [torch.arange(40), torch.arange(40, 90)]
    shuffled = draw_members(members, [0, 1], 5, draws())
    monkeypatch.setattr(class_aware, "_MAX_SHUFFLED", 45)
    drawn = Counter[int]()
    for seed in range(200):
        numbers = draw_members(members, [0, 1], 5, draws(seed))
        assert len(set(numbers[5:].tolist())) == 5
        assert numbers[5:].min() >= 40
        drawn.update(numbers[5:].tolist())
    assert len(drawn) == 50  # any of them, and none much oftener than 200 · 5 / 50 times
    assert max(drawn.values()) < 40
    assert draw_members(members, [0, 1], 5, draws())[:5].equal(shuffled[:5])  # the few as before
    assert draw_members(members, [1], 5, draws()).equal(draw_members(members, [1], 5, draws()))


def test_a_batch_holds_matched_classes_in_both_domains_and_clusters() -> None:
    labels, cluster = torch.tensor([0, 0, 1, 1, 2, 2]), torch.tensor([0, 1, 2, 0, 1, 2])
    images = ClassAware(labels, cluster, torch.tensor([2, -1, 0]))
    assert images.cluster_of == {2: 0, 0: 2}
    (classes, clusters), indices = images.draw(3, 2, False, draws())
    assert sorted(classes) == [0, 2]
    assert sorted(clusters) == [0, 1, 2]
    pseudo = torch.tensor([2, -1, 0])[cluster]
    assert labels[indices["source"]].tolist() == [c for c in classes for _ in range(2)]
    assert pseudo[indices["target"]].tolist() == [c for c in classes for _ in range(2)]
    assert cluster[indices["clusters"]].tolist() == [k for k in clusters for _ in range(2)]


def test_without_a_match_there_are_clusters_alone_and_without_clusters_nothing() -> None:
    labels = cluster = torch.zeros(4, dtype=torch.long)
    (classes, _), indices = ClassAware(labels, cluster, torch.tensor([-1])).draw(
        2, 2, True, draws()
    )
    assert classes == []
    assert indices.keys() == {"clusters"}
    nobody = torch.zeros(0, dtype=torch.long)
    assert ClassAware(labels, cluster, nobody).draw(2, 2, True, draws()) == (([], []), {})
