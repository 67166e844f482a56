"""Samplers: the indices of a batch are a function of seed and step alone, without history."""

from functools import lru_cache

import torch
from torch import Tensor

from unida.errors import UserError
from unida.types import IntArray
from unida.utils.rng import generator


class Balanced:
    """Source sampler: every draw picks a class first, then one of its images, with replacement."""

    def __init__(self, labels: IntArray, batch: int, seed: int) -> None:
        _check_size("source", len(labels), batch)
        self.batch, self.seed = batch, seed
        by_class = torch.from_numpy(labels)
        self.order = by_class.argsort(stable=True)
        self.counts = torch.bincount(by_class)
        self.starts = self.counts.cumsum(0) - self.counts
        self.present = self.counts.nonzero()[:, 0]

    def indices(self, step: int) -> Tensor:
        """Draw the image indices of a step."""
        draw = torch.rand(2, self.batch, generator=generator(self.seed, "source", step))
        label = self.present[(draw[0] * len(self.present)).long()]
        return self.order[self.starts[label] + (draw[1] * self.counts[label]).long()]


class Shuffled:
    """Target sampler: a new order every epoch, each image once; a partial last batch is dropped."""

    def __init__(self, n: int, batch: int, seed: int) -> None:
        _check_size("target", n, batch)
        self.n, self.batch, self.seed = n, batch, seed
        self.batches = n // batch
        self._order = lru_cache(maxsize=2)(self._shuffle)

    def _shuffle(self, epoch: int) -> Tensor:
        return torch.randperm(self.n, generator=generator(self.seed, "target", epoch))

    def indices(self, step: int) -> Tensor:
        """Return the image indices of a step."""
        epoch, position = divmod(step, self.batches)
        return self._order(epoch)[position * self.batch : (position + 1) * self.batch]


def _check_size(domain: str, n: int, batch: int) -> None:
    if n < batch:
        advice = f" or use --batch {n} or less" if n >= 2 else "; two are needed at least"
        raise UserError(
            f"The {domain} has {n} usable image{'s' * (n != 1)}, fewer than a batch of {batch}: "
            f"add images{advice}."
        )
