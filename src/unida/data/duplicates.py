"""Files that are in both domains, byte by byte."""

import os
from collections.abc import Iterable
from pathlib import Path

from unida.data.cache import UNREADABLE, digest_file
from unida.utils.chunking import subsample
from unida.utils.parallel import in_order

MOST_FILES = 1000
"""Target files looked at."""
MOST_READ = 5000
"""Source files read: only those as long as one of the target files are."""


def duplicate_share(source: tuple[Path, ...], target: tuple[Path, ...], seed: int = 0) -> float:
    """Share of the target's files whose bytes are those of a source file, from a sample of them.

    Images that are not in files have no twin.
    """
    some = [target[i] for i in subsample(len(target), MOST_FILES, seed, "twins")]
    lengths = dict(zip(some, _lengths(some), strict=True))
    wanted = {length for length in lengths.values() if length}
    alike = [p for p, n in zip(source, _lengths(source), strict=True) if n in wanted]
    alike = [alike[i] for i in subsample(len(alike), MOST_READ, seed, "twins of")]
    seen = set(in_order(digest_file, map(str, alike))) - {UNREADABLE}
    mine = [str(path) for path, length in lengths.items() if length]
    twins = sum(digest in seen for digest in in_order(digest_file, mine))
    return twins / len(some) if some else 0.0


def _lengths(paths: Iterable[Path]) -> list[int]:
    """In bytes; 0 where there is no file."""

    def length(path: Path) -> int:
        try:
            return os.stat(path).st_size
        except (OSError, ValueError):
            return 0

    return [length(path) for path in paths]
