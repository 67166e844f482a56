"""Settings of the command's own process (docs/speed.md), made before torch is loaded."""

import ctypes
import os

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # options of glibc's mallopt
_LARGEST_BLOCK = 2**30
_MAX_FREE = 2**31 - 1
_USER_SETTINGS = ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES")


def sleep_while_waiting() -> None:
    """Let waiting threads spin only briefly; call before torch is loaded.

    Where another program uses one of the cores, spinning costs far more than its share.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "3000")


def reuse_memory() -> None:
    """Make glibc reuse freed blocks as large as a layer's output.

    Otherwise it returns each to the system and requests another, whose pages are cleared first: on
    a CPU up to half of the time of a network. Other C libraries are left as they are.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if os.name == "posix" else None
    if mallopt and not any(name in os.environ for name in _USER_SETTINGS):
        mallopt(_MMAP_THRESHOLD, _LARGEST_BLOCK)
        mallopt(_TRIM_THRESHOLD, _MAX_FREE)
