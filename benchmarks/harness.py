"""Timing things side by side, so that a noisy machine is equally unfair to all of them."""

from __future__ import annotations

import gc
import importlib.metadata
import os
import platform
import time
from collections.abc import Callable
from typing import Any

import numpy as np

Work = Callable[[], Any]


def best_of(work: dict[str, Work], repeats: int) -> dict[str, float]:
    """The best time of each, in seconds; they take turns, after one untimed turn."""
    for run in work.values():
        run()
    best = dict.fromkeys(work, float("inf"))
    gc.disable()
    try:
        for _ in range(repeats):
            for name, run in work.items():
                start = time.perf_counter()
                run()
                best[name] = min(best[name], time.perf_counter() - start)
    finally:
        gc.enable()
    return best


def table(title: str, head: list[str], rows: list[list[Any]]) -> None:
    """Print rows under a head, numbers to three digits."""

    def text(value: Any) -> str:
        return f"{value:.3g}" if isinstance(value, float) else str(value)

    cells = [head, *([text(value) for value in row] for row in rows)]
    widths = [max(len(row[c]) for row in cells) for c in range(len(head))]
    print(f"\n{title}")
    for number, row in enumerate(cells):
        print("  " + "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)))
        if number == 0:
            print("  " + "  ".join("-" * width for width in widths))


def queries(count: int, size: int, *, seed: int = 0) -> tuple[np.ndarray, list[int], np.ndarray]:
    """Labels 0..4, group sizes and scores of `count` queries of `size` documents."""
    rng = np.random.default_rng(seed)
    return rng.integers(0, 5, count * size).astype(np.float64), [size] * count, rng.normal(size=count * size)


def slope(sizes: list[float], times: list[float]) -> float:
    """The exponent of growth fitted through times over sizes."""
    return float(np.polyfit(np.log(sizes), np.log(times), 1)[0])


def machine() -> dict[str, Any]:
    """What the figures were measured on."""
    name = platform.processor()
    if os.path.exists("/proc/cpuinfo"):
        with open("/proc/cpuinfo") as lines:
            name = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), name)
    packages = ("numpy", "numba", "xgboost", "lightgbm", "catboost")
    return {
        "processor": name,
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        **{package: importlib.metadata.version(package) for package in packages},
    }
