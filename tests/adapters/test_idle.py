"""Threads that a booster leaves spinning are let go before ours start."""

from __future__ import annotations

import ctypes
import subprocess
import sys
import threading
from typing import Any

import lightgbm
import numpy as np
import psutil
import pytest
import xgboost

import stochasticrank_objectives as sr
from stochasticrank_objectives.adapters import LightGBMObjective, XGBoostObjective
from stochasticrank_objectives.adapters._idle import release_of_idle_threads

LIBRARIES = {"lightgbm": lightgbm.basic._LIB, "xgboost": xgboost.core._LIB}


def train(booster: str) -> np.ndarray:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(3000, 5))
    y = x[:, 0] + rng.normal(size=3000)
    if booster == "lightgbm":
        return lightgbm.train({"num_threads": 2, "verbose": -1}, lightgbm.Dataset(x, y), 5).predict(x)
    return xgboost.train({"nthread": 2}, xgboost.DMatrix(x, y), 5).predict(xgboost.DMatrix(x))


@pytest.mark.parametrize("booster", LIBRARIES)
def test_threads_are_let_go_and_come_back(booster: str) -> None:
    release = release_of_idle_threads(LIBRARIES[booster])
    release()
    without, first = psutil.Process().num_threads(), train(booster)
    waiting = psutil.Process().num_threads()  # for the next loop
    release()
    left = psutil.Process().num_threads()
    if hasattr(LIBRARIES[booster], "omp_pause_resource_all"):
        assert left == without < waiting
    else:  # XGBoost 2.0 comes with an OpenMP that cannot
        assert left == waiting
    np.testing.assert_array_equal(train(booster), first)


def test_a_library_without_openmp() -> None:
    release_of_idle_threads(None)()
    release_of_idle_threads(ctypes.CDLL(None))()


FORK = """
import os, sys
import numpy as np, lightgbm, xgboost
booster, early = sys.argv[1:]
rng = np.random.default_rng(0)
x, y, group = rng.normal(size=(3000, 5)), rng.integers(0, 3, 3000), [100] * 30
def train(threads, objective=None):
    if booster == "xgboost":
        matrix = xgboost.DMatrix(x, y, group=group, nthread=threads)
        model = xgboost.Booster({"nthread": threads}, [matrix])  # `train` copies it, in which XGBoost 2.0 hangs in a fork
        for iteration in range(3):
            model.update(matrix, iteration, fobj=objective)
        return model.num_boosted_rounds()
    params = {"num_threads": threads, "verbose": -1} | ({} if objective is None else {"objective": objective})
    return lightgbm.train(params, lightgbm.Dataset(x, y, group=group, params={"num_threads": threads}), 3).num_trees()
def ours():
    from stochasticrank_objectives.adapters import LightGBMObjective, XGBoostObjective
    return {"xgboost": XGBoostObjective, "lightgbm": LightGBMObjective}[booster]("ndcg@10")
trees = train(2, ours() if early == "early" else None)
if not (child := os.fork()):
    os._exit(train(1, ours()))
print(trees, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.parametrize("booster", LIBRARIES)
@pytest.mark.parametrize("imported", ["early", "late"])
def test_a_fork_of_a_process_that_has_trained(booster: str, imported: str) -> None:
    """The child has no threads to let go; to wait for them would take for ever. The package may be imported only there."""
    result = subprocess.run([sys.executable, "-c", FORK, booster, imported], capture_output=True, text=True, timeout=120)
    assert result.stdout.split()[-2:] == ["3", "3"], result.stderr


@pytest.mark.parametrize("booster", LIBRARIES)
def test_trainings_in_several_threads_let_go_of_their_own_threads_only(booster: str) -> None:
    """Each Python thread has OpenMP threads of its own; one that pauses must not stop another in the middle of a loop."""
    release = release_of_idle_threads(LIBRARIES[booster])
    expected, found, stop = train(booster), [], threading.Event()

    def disturb() -> None:
        while not stop.is_set():
            train(booster)
            release()

    other = threading.Thread(target=disturb)
    other.start()
    try:
        found += [train(booster) for _ in range(30)]
    finally:
        stop.set()
        other.join()
    for one in found:
        np.testing.assert_array_equal(one, expected)


@pytest.mark.parametrize("booster", LIBRARIES)
def test_a_training_inside_an_objective(booster: str) -> None:
    """The inner training lets the threads of the outer one go, too; the outer one starts them again."""
    rng = np.random.default_rng(0)
    x, y, group = rng.normal(size=(600, 5)), rng.integers(0, 3, 600), [20] * 30
    loss = sr.StochasticRank("ndcg@5")

    def fit(objective: Any) -> np.ndarray:
        if booster == "xgboost":
            matrix = xgboost.DMatrix(x, y, group=group)
            return xgboost.train({"nthread": 2}, matrix, 3, obj=objective).predict(matrix)
        params = {"num_threads": 2, "verbose": -1, "objective": objective}
        return lightgbm.train(params, lightgbm.Dataset(x, y, group=group), 3).predict(x)

    make = {"xgboost": XGBoostObjective, "lightgbm": LightGBMObjective}[booster]
    outer = make(loss)
    expected = fit(make(loss))

    def nested(scores: Any, data: Any) -> Any:
        np.testing.assert_array_equal(fit(make(loss)), expected)
        return outer(scores, data)

    np.testing.assert_array_equal(fit(nested), expected)
