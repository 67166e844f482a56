"""Many small jobs on files, run by a few threads."""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

S = TypeVar("S")
T = TypeVar("T")

WORKERS = min(32, (os.cpu_count() or 1) + 1)  # decoding and hashing release the interpreter lock


def in_order(work: Callable[[S], T], items: Iterable[S]) -> Iterator[T]:
    """Run `work` on items in parallel, a bounded number at once; yield the results in order."""
    with ThreadPoolExecutor(WORKERS) as pool:
        todo = iter(items)
        under_way = deque(pool.submit(work, item) for item in islice(todo, 8 * WORKERS))
        while under_way:
            result = under_way.popleft().result()
            under_way.extend(pool.submit(work, item) for item in islice(todo, 1))
            yield result
