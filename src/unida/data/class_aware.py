"""Class-aware batches: slots of classes matched in both domains, and of target clusters."""

import random
from collections.abc import Sequence

import torch
from torch import Generator, Tensor

_MAX_SHUFFLED = 10_000  # to shuffle more, for a few of them, would cost more than a step


class ClassAware:
    """Images grouped by class and cluster once, so that no step goes through all of them."""

    def __init__(self, labels: Tensor, cluster: Tensor, match: Tensor) -> None:
        """Group the images.

        Args:
            labels: (N,), classes of the source images.
            cluster: (M,), clusters of the target images.
            match: (K,), the class of each cluster, −1 for none; a class has one at most.
        """
        matched = enumerate(match.tolist())
        self.cluster_of: dict[int, int] = {label: j for j, label in matched if label >= 0}
        self.n_clusters = len(match)
        self._of_class = group_members(labels)
        self._of_cluster = group_members(cluster)

    def draw(
        self, slots: int, q: int, cycle: bool, draws: Generator
    ) -> tuple[tuple[list[int], list[int]], dict[str, Tensor]]:
        """Draw a batch.

        Args:
            slots: number of classes and of clusters.
            q: images a slot.
            cycle: as in `fill_slots`.
            draws: source of all choices, a CPU generator.

        Returns:
            The classes and the clusters of the slots, and image indices slot by slot: `source`
            and `target` of the classes, where one is matched, and `clusters`, where there are any.
        """
        if not self.n_clusters:
            return ([], []), {}
        classes = fill_slots([*self.cluster_of], slots, cycle, draws)
        clusters = fill_slots(range(self.n_clusters), slots, cycle, draws)
        index = {"clusters": draw_members(self._of_cluster, clusters, q, draws)}
        if classes:
            matched = [self.cluster_of[label] for label in classes]
            index["source"] = draw_members(self._of_class, classes, q, draws)
            index["target"] = draw_members(self._of_cluster, matched, q, draws)
        return (classes, clusters), index


def group_members(groups: Tensor) -> list[Tensor]:
    """List the image indices of each group, rising, on the CPU; `groups` (N,) is each image's."""
    groups = torch.from_numpy(groups.numpy(force=True))
    return list(torch.split(groups.argsort(stable=True), groups.bincount().tolist()))


def fill_slots(present: Sequence[int], slots: int, cycle: bool, draws: Generator) -> list[int]:
    """Choose the classes or clusters of a class-aware batch, in a random order.

    Args:
        present: those to choose from.
        slots: their number.
        cycle: whether one comes again where fewer are present; otherwise the batch is smaller.
        draws: source of the order.
    """
    order = torch.randperm(len(present), generator=draws).tolist()
    n = slots if cycle and present else min(slots, len(present))
    return [present[order[i % len(order)]] for i in range(n)]


def draw_members(
    members: Sequence[Tensor], slots: Sequence[int], q: int, draws: Generator
) -> Tensor:
    """Draw q image indices of each slot, slot by slot; repeated only where there are fewer.

    Args:
        members: of each group, as `group_members` returns them.
        slots: groups, none of them empty.
        q: images a slot.
        draws: source of the choice, a CPU generator; the indices are on the CPU as well.
    """
    return torch.cat([members[slot][_positions(len(members[slot]), q, draws)] for slot in slots])


def _positions(n: int, q: int, draws: Generator) -> Tensor:
    """Draw q indices below n at random, without repetition while that is possible."""
    if n > _MAX_SHUFFLED:
        seed = int(torch.randint(2**62, (), generator=draws))
        return torch.tensor(random.Random(seed).sample(range(n), q))
    return torch.randperm(n, generator=draws)[torch.arange(q) % n]
