"""Import time and the first gradient of a process, with nothing cached and with everything cached."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from typing import Any

from .harness import table

FIRST = """
import time
start = time.perf_counter()
import numpy
numpy_time = time.perf_counter() - start
start = time.perf_counter()
import stochasticrank_objectives as sr
import_time = time.perf_counter() - start
start = time.perf_counter()
sr.StochasticRank("ndcg@10").bind([0, 1, 2], [3]).gradient([0.0, 1.0, 2.0])
print(numpy_time, import_time, time.perf_counter() - start)
"""


def run(quick: bool) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "NUMBA_CACHE_DIR": folder}
        figures = []
        for _ in range(2 if quick else 5):
            output = subprocess.run(
                [sys.executable, "-c", FIRST], env=environment, capture_output=True, text=True, check=True
            )
            figures.append([float(figure) for figure in output.stdout.split()])
    cold, warm = figures[0][2], min(figure[2] for figure in figures[1:])
    numpy_time, import_time = (min(column) for column in list(zip(*figures, strict=True))[:2])
    rows = [["import numpy", numpy_time], ["import stochasticrank_objectives, beyond that", import_time],
            ["first gradient, empty cache", cold], ["first gradient, warm cache", warm]]  # fmt: skip
    table("Start-up", ["what", "s"], rows)
    return {str(name): seconds for name, seconds in rows}
