"""Settings for the whole suite."""

from __future__ import annotations

import hashlib
import os
import pathlib

_PACKAGE = pathlib.Path(__file__).parent.parent / "stochasticrank_objectives"

# Numba's cache looks only at the file of an entry point, not at what it calls: key the folder by all kernels' text, so
# that a change of any of them is never tested with code compiled before it. Code that checks bounds has its own.
_FILES = [*sorted((_PACKAGE / "_kernels").glob("*.py")), _PACKAGE / "_constants.py"]
_TEXT = b"".join(path.read_bytes() for path in _FILES) + os.environ.get("NUMBA_BOUNDSCHECK", "").encode()
_BASE = os.environ.get("NUMBA_CACHE_DIR") or str(_PACKAGE.parent / ".numba_cache")
os.environ["NUMBA_CACHE_DIR"] = os.path.join(_BASE, hashlib.sha256(_TEXT).hexdigest()[:16])

# The boosters' idle OpenMP threads spin for a while by default. With several test processes on few cores they then keep each
# other from working: trainings took ten times as long. It changes no result; libgomp reads it when a booster is imported.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

# `make test` runs these by themselves, with code that numba compiles for it.
collect_ignore = [] if os.environ.get("NUMBA_BOUNDSCHECK") == "1" else ["test_bounds.py"]
