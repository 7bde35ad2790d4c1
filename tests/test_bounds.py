"""Every kernel with numba's bounds checks: `make test` runs this file once more with NUMBA_BOUNDSCHECK=1.

Kernels work in scratch arrays of just the size that they need, and write padding beyond the last document: sizes around
every border count.
"""

from __future__ import annotations

from typing import Any

import naive
import numba
import numpy as np
import pytest

import stochasticrank_objectives as sr
from stochasticrank_objectives._kernels import selection

SIZES = [1, 2, 3, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 129, 251, 257, 300, 1100]
NAMES = ["ndcg", "ndcg@1", "ndcg@10", "ndcg@16", "ndcg@33", "ndcg@260", "err", "err@10", "mrr", "map", "map@40", "hit@3"]


def _ends(relevance):  # type: ignore[no-untyped-def]
    """The functions that are metrics here look at all that they are given."""
    return relevance[0] + 0.1 * relevance[-1]


LOSSES: list[Any] = [
    *(sr.StochasticRank(name, samples=2) for name in NAMES),
    *(sr.StochasticRank(name, noise="logistic", sfa=False) for name in ("ndcg", "ndcg@10", "err")),
    *(sr.StochasticRank(name, estimator="reinforce") for name in ("ndcg", "err@5")),
    *(sr.StochasticRank(name, samples=2) for name in ("ndcg@10 + mrr", "ndcg@260 + map@3 + err", "hit@1 + ndcg@16")),
    sr.StochasticRank("ndcg@10 + err", noise="logistic"),
    sr.StochasticRank("ndcg@10 + mrr", estimator="reinforce"),
    *(sr.StochasticRank("ndcg@10 + mrr + map", noise=law, samples=2) for law in ("normal", "logistic")),
    sr.StochasticRank("ndcg + err", estimator="reinforce"),
    *(
        sr.StochasticRank(name, samples=2)
        for name in ("auc", "spearman", "kendall", "dcgrr", "dcgrr@1", "fbeta", "accuracy")
    ),
    *(sr.StochasticRank(name, noise="logistic") for name in ("kendall", "dcgrr")),
    *(sr.StochasticRank(name, estimator="reinforce") for name in ("kendall", "dcgrr@3")),
    *(sr.StochasticRank(sr.FunctionMetric(k, function=_ends, name="ends"), samples=2) for k in (None, 1, 10)),
    sr.StochasticRank(sr.FunctionMetric(10, function=_ends, name="ends") + sr.NDCG(10), noise="logistic"),
    sr.StochasticRank(sr.FunctionMetric(function=_ends, name="ends"), estimator="reinforce"),
    sr.LambdaMART("ndcg@10", noise=0.5, norm=True),
    sr.LambdaMART("map"),
    sr.LambdaLoss("ndcg"),
    sr.YetiRank(permutations=2),
    sr.YetiLoss("err@10", neighbours=20, permutations=2),
    sr.XENDCG(),
    sr.SGLB(sr.StochasticRank("ndcg@10")),
]


@numba.njit
def _beyond(values):  # type: ignore[no-untyped-def]
    return values[len(values)]


def test_bounds_are_checked() -> None:
    with pytest.raises(IndexError):
        _beyond(np.zeros(3))


@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_gradients(loss: Any) -> None:
    """Each size by itself, so that scratch arrays have its size."""
    rng = np.random.default_rng(0)
    metric = getattr(getattr(loss, "loss", loss), "metric", "ndcg")
    for n in SIZES:
        labels = naive.random_labels(metric, n, rng)
        for scores in (rng.normal(size=n), np.zeros(n)):
            gradient = loss.bind(labels, [n]).gradient(scores)
            assert np.isfinite(gradient).all()


@pytest.mark.parametrize("noise", ["normal", "logistic"])
@pytest.mark.parametrize("name", ["ndcg@10 + price.err", "ndcg + price.map@3", "alphandcg@10:topics=label|price"])
def test_gradients_of_columns(name: str, noise: Any) -> None:
    rng = np.random.default_rng(0)
    for n in SIZES:
        labels = {column: naive.random_labels("ndcg", n, rng) for column in ("label", "price")}
        assert np.isfinite(sr.StochasticRank(name, noise=noise).bind(labels, [n]).gradient(rng.normal(size=n))).all()


@pytest.mark.parametrize("name", ["ndcg@10", "ndcg"])
def test_a_huge_query(name: str) -> None:
    n = 50_001
    labels, scores = np.arange(n) % 3, np.sin(np.arange(n))
    assert np.isfinite(sr.StochasticRank(name, threads=3).bind(labels, [n]).gradient(scores)).all()


@pytest.mark.parametrize("ties", ["worst", "mean", "best"])
@pytest.mark.parametrize("name", ["ndcg", "err@10", "map@3", "auc", "spearman", "kendall", "dcgrr@3", "fbeta", "accuracy"])
def test_values(name: str, ties: Any) -> None:
    rng = np.random.default_rng(0)
    for n in SIZES:
        for decimals in (0, 1, 9):
            labels = naive.random_labels(name, n, rng)
            lowest, highest = {"spearman": (-1, 1), "kendall": (-1, 1), "dcgrr@3": (0, 4 + 4 / 2 + 4 / 3)}.get(name, (0, 1))
            value = sr.evaluate(name, rng.normal(size=n).round(decimals), labels, [n], ties=ties)
            assert lowest - 1e-12 <= value <= highest + 1e-12


@numba.njit
def _select(values, size, floor, reverse, s):  # type: ignore[no-untyped-def]
    return selection.select(values, len(values), size, floor, reverse, s)


@pytest.mark.parametrize("reverse", [False, True])
def test_selection(reverse: bool) -> None:
    rng = np.random.default_rng(0)
    for n in SIZES:
        for values in (rng.normal(size=n), np.zeros(n), np.where(np.arange(n) == n // 2, 1e150, rng.normal(size=n))):
            for size in {1, min(5, n), n // 2 + 1, n}:
                assert _select(values, size, -np.inf, reverse, selection.make_sorting(n)) == min(size, n)
