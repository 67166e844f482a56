"""Tables of a batch against a whole memory, computed a few columns at a time.

A memory has a row per target image, so a table against all of it grows with the data set; a chunk
does not. Chunks follow from shapes alone: nothing waits for the device, and every step runs the
same kernels. If one chunk covers the table, the result is the plain formula.
"""

from collections.abc import Callable
from typing import Any

from torch import Tensor, cat
from torch.utils.checkpoint import checkpoint

MAX_ENTRIES = 2**22
"""Entries of the largest table that is computed at once."""


def column_chunks(n: int, width: int) -> list[slice]:
    """Split n columns so that a table of one chunk by `width` has at most `MAX_ENTRIES`.

    Example:
        >>> column_chunks(10, MAX_ENTRIES // 4)
        [slice(0, 4, None), slice(4, 8, None), slice(8, 10, None)]
    """
    step = max(1, MAX_ENTRIES // max(1, width))
    return [slice(start, min(start + step, n)) for start in range(0, n, step)]


def chunked_topk(
    table: Callable[[slice], Tensor], columns: list[slice], k: int
) -> tuple[Tensor, Tensor]:
    """Compute `topk` along the rows of a table that never exists as a whole.

    Args:
        table: computes some of its columns, (B, n).
        columns: the chunks, in order.
        k: entries per row; fewer if the table has fewer columns.

    Returns:
        Values in falling order and their columns, (B, k) each.
    """
    values, index = _topk_of_chunk(table, columns[0], k)
    for part in columns[1:]:
        best, new = (values, index), _topk_of_chunk(table, part, k)
        values, index = (cat(pair, 1) for pair in zip(best, new, strict=True))
        values, order = values.topk(min(k, values.shape[1]), dim=1)
        index = index.gather(1, order)
    return values, index


def _topk_of_chunk(table: Callable[[slice], Tensor], part: slice, k: int) -> tuple[Tensor, Tensor]:
    values, index = table(part).topk(min(k, part.stop - part.start), dim=1)
    return values, index + part.start


def checkpointed(function: Callable[..., Tensor], *args: Any) -> Tensor:
    """Call a function without keeping intermediates; the backward pass computes them again."""
    out: Tensor = checkpoint(function, *args, use_reentrant=False, preserve_rng_state=False)
    return out
