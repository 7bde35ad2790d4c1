"""What results were made with."""

from __future__ import annotations

import contextlib
import importlib.metadata
import platform

from stochasticrank_objectives.recommended import BOOSTERS


def versions() -> dict[str, str]:
    """What the results were made with."""
    found = {"python": platform.python_version()}
    for name in ("stochasticrank-objectives", "numpy", "numba", "optuna", *BOOSTERS):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found
