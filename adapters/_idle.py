"""The boosters' idle OpenMP threads, released before work of our own.

After each parallel loop OpenMP's threads spin for milliseconds, waiting for the next. If there are as many as processors,
they take the processor from the gradient, for longer than the gradient itself takes.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable

_SOFT = 1  # omp_pause_soft: nothing but the threads is given up, and the next loop starts them again
_FORKED = 0x40  # PF_FORKNOEXEC of Linux: forked, and no program started since


def _was_forked() -> bool:
    """Whether this process is a fork, in which a booster may remember threads of the parent."""
    try:
        with open("/proc/self/stat") as file:
            return bool(int(file.read().rpartition(")")[2].split()[6]) & _FORKED)
    except (OSError, ValueError, IndexError):  # not Linux: only its OpenMP waits for threads that are gone
        return False


_PROCESS = None if _was_forked() else os.getpid()


def release_of_idle_threads(library: ctypes.CDLL | None) -> Callable[[], None]:
    """A function that releases those idle threads of a booster's library that serve the calling thread, or does nothing.

    It does nothing where the library has no OpenMP 5, and in a fork, which inherits the record of threads but not the
    threads: releasing them would wait for them for ever.
    """
    try:
        pause = library["omp_pause_resource_all"] if library is not None else None
    except AttributeError:
        pause = None

    def release() -> None:
        if pause is not None and os.getpid() == _PROCESS:
            pause(_SOFT)

    return release
