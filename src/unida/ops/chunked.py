"""Tables of a batch against all remembered rows, made a few columns at a time.

A memory has a row for every target image, so a table against all of it grows with them; a part of
it does not. The parts follow from shapes alone: nothing waits for the device, and a step is the
same kernels every time. Where one part holds everything, it is the plain formula.
"""

from collections.abc import Callable
from typing import Any

from torch import Tensor, cat
from torch.utils.checkpoint import checkpoint

MOST = 2**22
"""Entries of the largest table that is made at once."""


def column_chunks(n: int, width: int) -> list[slice]:
    """Slices of n rows or columns, so that a table of one part and `width` has at most `MOST`."""
    step = max(1, MOST // max(1, width))
    return [slice(start, min(start + step, n)) for start in range(0, n, step)]


def chunked_topk(
    table: Callable[[slice], Tensor], columns: list[slice], k: int
) -> tuple[Tensor, Tensor]:
    """`topk` along the rows of a table that is never whole.

    Args:
        table: makes some of its columns, (B, n).
        columns: which, one part after the other.
        k: how many, if there are as many.

    Returns:
        Values in falling order and their columns, (B, k) each.
    """
    values, numbers = _largest_of(table, columns[0], k)
    for part in columns[1:]:
        so_far, more = (values, numbers), _largest_of(table, part, k)
        values, numbers = (cat(each, 1) for each in zip(so_far, more, strict=True))
        values, order = values.topk(min(k, values.shape[1]), dim=1)
        numbers = numbers.gather(1, order)
    return values, numbers


def _largest_of(table: Callable[[slice], Tensor], part: slice, k: int) -> tuple[Tensor, Tensor]:
    values, numbers = table(part).topk(min(k, part.stop - part.start), dim=1)
    return values, numbers + part.start


def checkpointed(function: Callable[..., Tensor], *args: Any) -> Tensor:
    """function(*args); what it makes on the way is made again for the gradient, not kept."""
    out: Tensor = checkpoint(function, *args, use_reentrant=False, preserve_rng_state=False)
    return out
