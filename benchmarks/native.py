"""One gradient, against CatBoost's own StochasticRank in C++."""

from __future__ import annotations

import functools
import time
from typing import Any

import catboost
import numpy as np

import stochasticrank_objectives as sr

from .harness import best_of, queries, table

# Our metric, CatBoost's name for it, and how many extra iterations tell its cost (full lists are slow there).
CASES = [
    ("ndcg@5", "StochasticRank:metric=NDCG;top=5", 4),
    ("ndcg@10", "StochasticRank:metric=NDCG;top=10", 3),
    ("err@10", "StochasticRank:metric=ERR;top=10", 3),
    ("mrr", "StochasticRank:metric=MRR", 3),
    ("ndcg", "StochasticRank:metric=NDCG", 1),
]


def _fit(pool: catboost.Pool, loss: str, iterations: int) -> float:
    model = catboost.CatBoost(
        {"loss_function": loss, "iterations": iterations, "depth": 1, "thread_count": 2, "logging_level": "Silent",
         "metric_period": 10_000, "allow_writing_files": False, "bootstrap_type": "No", "random_seed": 1}
    )  # fmt: skip
    start = time.perf_counter()
    model.fit(pool)
    return time.perf_counter() - start


def _iteration(pool: catboost.Pool, loss: str, extra: int, repeats: int) -> float:
    short = min(_fit(pool, loss, 1) for _ in range(repeats))
    return (min(_fit(pool, loss, 1 + extra) for _ in range(repeats)) - short) / extra


def run(quick: bool) -> dict[str, Any]:
    """CatBoost computes two gradients per iteration: its gradient is half of what its iteration takes beyond RMSE's."""
    count = 600 if quick else 6000
    labels, groups, scores = queries(count, 120)
    group_id = np.repeat(np.arange(count), 120)
    features = np.random.default_rng(1).normal(size=(len(labels), 2))
    rows, result = [], {}
    for metric, loss, extra in CASES:
        target = (labels > 0).astype(float) if metric == "mrr" else labels / 4 if metric.startswith("err") else labels
        pool = catboost.Pool(features, target, group_id=group_id)
        pool.quantize()
        bound = sr.StochasticRank(metric, mu=0.1, threads=2).bind(labels, groups)
        ours = best_of({"ours": functools.partial(bound.gradient, scores)}, 15)["ours"]
        repeats = 1 if metric == "ndcg" else 2
        theirs = (_iteration(pool, loss, extra, repeats) - _iteration(pool, "RMSE", 10, repeats)) / 2
        ours = min(ours, best_of({"ours": functools.partial(bound.gradient, scores)}, 15)["ours"])
        rows.append([metric, 1e3 * theirs, 1e3 * ours, theirs / ours])
        result[metric] = {"catboost_ms": 1e3 * theirs, "ours_ms": 1e3 * ours, "ratio": theirs / ours}
    title = f"One gradient of {count} queries of 120 documents, 2 threads, against CatBoost's own StochasticRank"
    table(title, ["metric", "CatBoost ms", "ours ms", "times faster"], rows)
    return result
