"""Many rows: joined without a second copy, thinned where a sample tells as much."""

import numpy as np
from torch import Tensor

from unida.types import IntArray
from unida.utils.rng import derive_seed

MAX_SAMPLES = 50_000
"""Rows that a statistic of all of them looks at; of more, a sample is drawn."""


class RowBuffer:
    """Rows that come in parts, written into one array; to join a list would hold them twice."""

    def __init__(self, most: int) -> None:
        """`most` is how many may come."""
        self.most, self.n = most, 0
        self._array: Tensor | None = None

    def add(self, part: Tensor) -> None:
        if self._array is None:
            self._array = part.new_empty(self.most, *part.shape[1:])
        self._array[self.n : self.n + len(part)] = part
        self.n += len(part)

    def all(self) -> Tensor:
        """Those that came, in order."""
        assert self._array is not None, "no row has come"
        return self._array[: self.n]


def subsample(n: int, most: int, seed: int, name: str) -> IntArray:
    """Numbers of the rows to look at, rising: all n or, of more than `most`, a draw of `most`.

    Args:
        n: rows there are.
        most: rows to look at.
        seed: of the draw.
        name: of its stream.
    """
    if n <= most:
        return np.arange(n)
    draw = np.random.default_rng(derive_seed(seed, name))
    return np.sort(draw.choice(n, most, replace=False))
