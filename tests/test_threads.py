"""Splitting work among threads: every item once, errors raised, no result changed."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

import stochasticrank_objectives as sr
from stochasticrank_objectives import _threads


@hypothesis.settings(deadline=None, derandomize=True, database=None)
@hypothesis.given(st.lists(st.floats(0, 1e6), min_size=1, max_size=200), st.integers(1, 40))
def test_split_covers_all_items_in_order(cost: list[float], ranges: int) -> None:
    borders = _threads.split(np.array(cost), ranges)
    assert borders[0] == 0
    assert borders[-1] == len(cost)
    assert all(np.diff(borders) > 0)
    assert len(borders) <= ranges + 1


def test_split_is_fair() -> None:
    cost = np.random.default_rng(0).random(10_000)
    parts = [cost[a:b].sum() for a, b in itertools.pairwise(_threads.split(cost, 8))]
    assert len(parts) == 8
    assert max(parts) < 1.05 * min(parts)


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
def test_borders_of_any_cost(threads: int) -> None:
    for cost in (np.empty(0), np.ones(1), np.ones(5), np.full(1000, 1e6), np.zeros(7)):
        borders = _threads.borders(cost, threads)
        assert borders[0] == 0
        assert borders[-1] == len(cost)
    assert _threads.borders(np.ones(100), threads) == [0, 100]  # too little to share


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_run_does_each_range_once(threads: int) -> None:
    done: list[tuple[int, int]] = []
    lock = threading.Lock()

    def work(begin: int, end: int) -> None:
        with lock:
            done.append((begin, end))

    borders = [0, 3, 4, 9, 20, 21, 22, 30]
    _threads.run(work, borders, threads)
    assert sorted(done) == list(itertools.pairwise(borders))


@pytest.mark.parametrize("threads", [1, 2, 4])
@pytest.mark.parametrize("bad", [0, 3, 9])
def test_errors_in_work_are_raised(threads: int, bad: int) -> None:
    def work(begin: int, end: int) -> None:
        if begin <= bad < end:
            raise ZeroDivisionError("bad")

    with pytest.raises(ZeroDivisionError, match="bad"):
        _threads.run(work, list(range(11)), threads)


def test_default_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NUMBA_NUM_THREADS", raising=False)
    assert 1 <= _threads.default_threads() <= (os.cpu_count() or 1)
    assert _threads.check(None) == _threads.default_threads()
    monkeypatch.setenv("NUMBA_NUM_THREADS", "3")
    assert _threads.default_threads() == 3
    for senseless in ("", "0", "many", "-2"):
        monkeypatch.setenv("NUMBA_NUM_THREADS", senseless)
        assert _threads.default_threads() >= 1
    assert _threads.check(7) == 7


def test_calls_from_several_threads_at_once() -> None:
    rng = np.random.default_rng(0)
    groups = rng.integers(2, 40, 300)
    labels = rng.integers(0, 5, groups.sum())
    bound = sr.StochasticRank("ndcg@5", threads=2).bind(labels, groups)
    evaluation = sr.bind_evaluation("ndcg@5", labels, groups, threads=2)
    scores = rng.normal(size=(12, len(labels)))
    expected = [(bound.gradient(row, i).tobytes(), evaluation.mean(row)) for i, row in enumerate(scores)]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda i: (bound.gradient(scores[i], i).tobytes(), evaluation.mean(scores[i])), range(12)))
    assert found == expected


FORK = """
import os, sys
import numpy as np
import stochasticrank_objectives as sr
rng = np.random.default_rng(0)
groups = np.full(300, 30)
labels, scores = rng.integers(0, 5, 9000), rng.normal(size=9000)
bound = sr.StochasticRank("ndcg@5", threads=3).bind(labels, groups)
expected = bound.gradient(scores, 0)
child = os.fork()
if child == 0:
    same = np.array_equal(bound.gradient(scores, 0), expected)
    os._exit(0 if same else 3)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_gradients_after_a_fork() -> None:
    """Threads do not survive a fork: a child makes its own instead of waiting for its parent's."""
    result = subprocess.run([sys.executable, "-c", FORK], capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr
