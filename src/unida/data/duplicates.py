"""Files that are in both domains, byte by byte."""

import os
from collections.abc import Iterable
from pathlib import Path

from unida.data.cache import UNREADABLE, digest_file
from unida.utils.chunking import subsample
from unida.utils.parallel import in_order

MAX_TARGET_FILES, MAX_SOURCE_FILES = 1000, 5000
"""Files hashed; in the source only those of the same length as one of the target's."""


def duplicate_share(source: tuple[Path, ...], target: tuple[Path, ...], seed: int = 0) -> float:
    """Estimate the share of target files that are also in the source, from a sample of them.

    Images that are not in files have no duplicate.
    """
    some = [target[i] for i in subsample(len(target), MAX_TARGET_FILES, seed, "duplicates")]
    lengths = dict(zip(some, _lengths(some), strict=True))
    target_lengths = {length for length in lengths.values() if length}
    candidates = [p for p, n in zip(source, _lengths(source), strict=True) if n in target_lengths]
    kept = subsample(len(candidates), MAX_SOURCE_FILES, seed, "duplicates of")
    digests = set(in_order(digest_file, (str(candidates[i]) for i in kept))) - {UNREADABLE}
    readable = [str(path) for path, length in lengths.items() if length]
    duplicates = sum(digest in digests for digest in in_order(digest_file, readable))
    return duplicates / len(some) if some else 0.0


def _lengths(paths: Iterable[Path]) -> list[int]:
    """Read the lengths of files in bytes; 0 where there is none."""

    def length(path: Path) -> int:
        try:
            return os.stat(path).st_size
        except (OSError, ValueError):
            return 0

    return [length(path) for path in paths]
