"""Which noise is drawn: a key for each seed, iteration and purpose."""

from __future__ import annotations

import numpy as np

_LOW = 0xFFFFFFFFFFFFFFFF


def _mix(x: int) -> int:
    """The finaliser of SplitMix64: a bijection of 64-bit integers whose output bits all depend on all input bits."""
    x = (x + 0x9E3779B97F4A7C15) & _LOW
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _LOW
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _LOW
    return x ^ (x >> 31)


def stream_key(seed: int, iteration: int, purpose: int) -> np.uint64:
    """The 64-bit key of one iteration's noise for one purpose."""
    return np.uint64(_mix(_mix(_mix(int(seed)) ^ (int(iteration) & _LOW)) ^ purpose))
