"""Work on ranges of queries, shared among threads; kernels release the GIL, so plain threads run in parallel.

The split never changes a result: every query is computed by itself.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

_RANGES_A_THREAD = 4  # a little more than one, so that no thread waits long for the slowest
_WORTH_A_THREAD = 20_000  # in units of cost, about one density each

_pools: dict[tuple[int, int], ThreadPoolExecutor] = {}


def default_threads() -> int:
    """The NUMBA_NUM_THREADS environment variable, or the processors that this process may use."""
    wanted = os.environ.get("NUMBA_NUM_THREADS", "")
    if wanted.isdigit() and int(wanted) > 0:
        return int(wanted)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def check(threads: int | None) -> int:
    """A number of threads, the default for None."""
    if threads is None:
        return default_threads()
    if isinstance(threads, bool) or not isinstance(threads, (int, np.integer)) or threads < 1:
        raise ValueError(f"threads must be a whole number of at least 1, or None for all processors, got {threads!r}")
    return int(threads)


def _pool(threads: int) -> ThreadPoolExecutor:
    here = (os.getpid(), threads)  # threads do not survive a fork
    if here not in _pools:
        _pools[here] = ThreadPoolExecutor(threads, thread_name_prefix="stochasticrank")
    return _pools[here]


def split(cost: NDArray[np.float64], ranges: int) -> list[int]:
    """Borders of `ranges` contiguous ranges of about the same total cost."""
    total = np.cumsum(cost)
    borders = np.searchsorted(total, np.arange(1, ranges) * (total[-1] / ranges))
    return sorted({0, *borders.tolist(), len(cost)})


def pieces(length: int, piece: int) -> list[int]:
    """Borders of pieces of one length; the last may be shorter."""
    return [*range(0, length, piece), length]


class Spare:
    """What each thread needs one of, kept for the next time: while one makes it, the others wait for Python's lock."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self._free: list[Any] = []

    def take(self) -> Any:
        """One that no other thread has."""
        try:
            return self._free.pop()
        except IndexError:
            return self._make()

    def give(self, back: Any) -> None:
        """One that is no longer needed."""
        self._free.append(back)

    def __reduce__(self) -> tuple[type[Spare], tuple[Callable[[], Any]]]:
        return Spare, (self._make,)


def run(work: Callable[..., object], borders: list[int], threads: int, scratch: Spare | None = None) -> None:
    """Call work(begin, end) for each range between neighbouring borders, on so many threads.

    With `scratch` it is work(s, begin, end) instead, with an s that no other thread has.
    """
    ranges = list(itertools.pairwise(borders))
    following = itertools.count()

    def drain() -> None:
        own = () if scratch is None else (scratch.take(),)
        while (at := next(following)) < len(ranges):
            work(*own, *ranges[at])
        if scratch is not None:
            scratch.give(*own)

    helpers = min(threads, len(ranges)) - 1
    futures = [_pool(threads).submit(drain) for _ in range(helpers)]
    try:
        drain()
    finally:
        for future in futures:
            future.result()


def borders(cost: NDArray[np.float64], threads: int) -> list[int]:
    """Ranges worth handing to so many threads, given the cost of each item."""
    useful = min(threads, int(cost.sum() / _WORTH_A_THREAD) + 1) if len(cost) else 1
    return split(cost, useful * _RANGES_A_THREAD) if useful > 1 else [0, len(cost)]
