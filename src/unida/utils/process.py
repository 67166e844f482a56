"""How this process waits and uses memory (docs/speed.md): settings of the command's own process,
made before torch is loaded, and what a Python program can do later."""

import ctypes
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # options of glibc's mallopt
_LARGEST_BLOCK = 2**30
_MAX_FREE = 2**31 - 1
_SPIN_SETTINGS = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
_SECONDS_WATCHED = 0.5
_ALONE = 0.8  # of the time that passes, a thread has that much of a core where it is alone
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


@contextmanager
def sharing_cores() -> Iterator[None]:
    """Let waiting threads sleep, inside the block, from when other programs use the cores.

    For a program that has loaded torch already: GNU's OpenMP reads how long threads spin when it is
    loaded. But they spin a three-hundredth of that while there are more of them than cores. So a
    second team of threads is started, which does nothing. As many threads as before compute, and
    so the numbers are the same.
    """
    import torch

    chosen = any(name in os.environ for name in _SPIN_SETTINGS)
    if chosen or torch.get_num_threads() == 1 or not hasattr(time, "pthread_getcpuclockid"):
        yield
        return
    done, clock = threading.Event(), time.pthread_getcpuclockid(threading.get_ident())
    threading.Thread(target=_watch, args=(clock, done), daemon=True).start()
    try:
        yield
    finally:
        done.set()


def _watch(clock: int, done: threading.Event) -> None:
    """Start the second team once a thread that computes gets clearly less than a core."""
    passed, used = time.perf_counter(), time.clock_gettime(clock)
    while not done.wait(_SECONDS_WATCHED):
        before = passed, used
        passed, used = time.perf_counter(), time.clock_gettime(clock)
        if used - before[1] < _ALONE * (passed - before[0]):
            _start_team()
            done.wait()


def _start_team() -> None:
    """Let this thread have a team of its own; it exists as long as the thread."""
    import torch

    torch.zeros(2**18).add_(1)
