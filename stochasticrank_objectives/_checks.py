"""Parameters within their ranges, or a ValueError that names the parameter, its value and the remedy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np


def check_number(
    name: str, value: Any, low: float, high: float = math.inf, *, open_low: bool = False, hint: str = ""
) -> float:
    """A finite number within its range, or a ValueError that says which."""
    ok = isinstance(value, (int, float, np.number)) and not isinstance(value, bool) and math.isfinite(value)
    if not ok or value > high or value < low or (open_low and value == low):
        upper = "" if high == math.inf else f" and at most {high:g}"
        bound = f"{'above' if open_low else 'at least'} {low:g}{upper}"
        raise ValueError(f"{name} must be a finite number {bound}, got {value!r}{'; ' + hint if hint else ''}")
    return float(value)


def check_whole(name: str, value: Any, low: int, hint: str = "") -> int:
    """A whole number of at least `low`, or a ValueError."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < low:
        raise ValueError(f"{name} must be a whole number of at least {low}, got {value!r}{'; ' + hint if hint else ''}")
    return int(value)


def check_seed(seed: Any) -> int:
    """A whole number of 64 bits, or a ValueError: all of it counts."""
    if check_whole("seed", seed, 0) >= 2**64:
        raise ValueError(f"seed must be a whole number of at least 0 and below 2**64, got {seed!r}")
    return int(seed)
