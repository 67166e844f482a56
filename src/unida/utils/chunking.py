"""Large sets in chunks: rows joined without a second copy, and samples of very many."""

import numpy as np
import numpy.typing as npt
from torch import Tensor

from unida.utils.rng import derive_seed

MAX_SAMPLES = 50_000
"""Rows that a statistic of a whole set is computed from; of more, a sample is drawn."""


class RowBuffer:
    """Rows added in chunks to one array; `torch.cat` of a list would hold them twice.

    Args:
        capacity: rows that can be added in all.

    Example:
        >>> import torch
        >>> buffer = RowBuffer(5)
        >>> for chunk in torch.arange(4).split(3):
        ...     buffer.add(chunk)
        >>> buffer.all()
        tensor([0, 1, 2, 3])
    """

    def __init__(self, capacity: int) -> None:
        self.capacity, self.n = capacity, 0
        self._array: Tensor | None = None

    def add(self, chunk: Tensor) -> None:
        """Append rows; width, type and device follow from the first chunk."""
        if self._array is None:
            self._array = chunk.new_empty(self.capacity, *chunk.shape[1:])
        self._array[self.n : self.n + len(chunk)] = chunk
        self.n += len(chunk)

    def all(self) -> Tensor:
        """Return the rows added so far, in order."""
        assert self._array is not None, "no rows were added"
        return self._array[: self.n]


def subsample(n: int, most: int, seed: int, name: str) -> npt.NDArray[np.int64]:
    """Draw at most `most` of n row indices, in rising order; all of them where n is no larger.

    Args:
        n: rows in all.
        most: rows wanted.
        seed: of the draw.
        name: of its random stream.
    """
    if n <= most:
        return np.arange(n)
    draw = np.random.default_rng(derive_seed(seed, name))
    return np.sort(draw.choice(n, most, replace=False))
