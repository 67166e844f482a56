"""What the command asks of its own process (docs/speed.md); torch need not be loaded for it."""

import ctypes
import os

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # options of glibc's mallopt
_LARGEST_BLOCK = 2**30
_MOST_FREE = 2**31 - 1
_OTHERS_CHOICE = ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES")


def sleep_while_waiting() -> None:
    """Threads that wait for each other spin briefly only: where another program has one of the
    cores, spinning costs far more than its share. To be said before torch is loaded."""
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "3000")


def reuse_memory() -> None:
    """Blocks as large as a layer's output are used again when they are free.

    Otherwise glibc hands each back to the system and asks for another, whose pages are cleared
    first: on a CPU up to half of the time of a network. Other C libraries are left alone.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if os.name == "posix" else None
    if mallopt and not any(name in os.environ for name in _OTHERS_CHOICE):
        mallopt(_MMAP_THRESHOLD, _LARGEST_BLOCK)
        mallopt(_TRIM_THRESHOLD, _MOST_FREE)
