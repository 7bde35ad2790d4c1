"""Threads that a booster leaves spinning are let go before ours start."""

from __future__ import annotations

import ctypes
import pathlib
import subprocess
import sys

import lightgbm
import numpy as np
import pytest
import xgboost

from stochasticrank_objectives.adapters._idle import release_of_idle_threads

LIBRARIES = {"lightgbm": lightgbm.basic._LIB, "xgboost": xgboost.core._LIB}
TASKS = pathlib.Path("/proc/self/task")


def train(booster: str) -> np.ndarray:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(3000, 5))
    y = x[:, 0] + rng.normal(size=3000)
    if booster == "lightgbm":
        return lightgbm.train({"num_threads": 2, "verbose": -1}, lightgbm.Dataset(x, y), 5).predict(x)
    return xgboost.train({"nthread": 2}, xgboost.DMatrix(x, y), 5).predict(xgboost.DMatrix(x))


@pytest.mark.skipif(not TASKS.exists(), reason="threads are counted as Linux shows them")
@pytest.mark.parametrize("booster", LIBRARIES)
def test_threads_are_let_go_and_come_back(booster: str) -> None:
    release = release_of_idle_threads(LIBRARIES[booster])
    release()
    without = len(list(TASKS.iterdir()))
    first = train(booster)
    assert len(list(TASKS.iterdir())) > without  # they wait for the next loop
    release()
    assert len(list(TASKS.iterdir())) == without
    np.testing.assert_array_equal(train(booster), first)


def test_a_library_without_openmp() -> None:
    release_of_idle_threads(None)()
    release_of_idle_threads(ctypes.CDLL(None))()


def test_a_fork_of_a_process_that_has_trained() -> None:
    """The child has no threads to let go; to wait for them would take for ever."""
    code = """
import os, sys
import numpy as np, lightgbm
from stochasticrank_objectives.adapters import LightGBMObjective
rng = np.random.default_rng(0)
x, y = rng.normal(size=(3000, 5)), rng.integers(0, 3, 3000)
def train(threads):
    params = {"num_threads": threads, "verbose": -1, "objective": LightGBMObjective("ndcg@10")}
    return lightgbm.train(params, lightgbm.Dataset(x, y, group=[100] * 30), 3).num_trees()
trees = train(2)
if not (child := os.fork()):
    os._exit(train(1))
print(trees, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert result.stdout.split() == ["3", "3"], result.stderr
