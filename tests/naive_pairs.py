"""Slow, obvious versions of YetiRank and YetiLoss, XENDCG and QueryRMSE, written from the definitions."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import naive
import naive_baselines
import numpy as np

from stochasticrank_objectives._constants import LOGISTIC, UNIFORM


def logistics(n: int, *, seed: int = 0, iteration: int = 0, query_key: int = 0, sample: int = 0) -> np.ndarray:
    """The kernels' noise of one query and permutation, the j-th for the document with the j-th largest gain."""
    return naive.noise(
        n, seed=seed, iteration=iteration, query_key=query_key, sample=sample, law="logistic", purpose=LOGISTIC
    )


def worth(loss: Any, labels: np.ndarray) -> np.ndarray:
    """What documents are sorted and compared by."""
    return labels if type(loss).__name__ == "YetiRank" else naive.relevance(loss.metric, labels)


def rankings(
    loss: Any, scores: np.ndarray, labels: np.ndarray, *, iteration: int = 0, query_key: int = 0
) -> list[list[int]]:
    """The noisy rankings of one query."""
    gains = worth(loss, labels)
    falling = np.argsort(-gains, kind="stable")
    found = []
    for sample in range(loss.permutations if loss.sigma > 0 else 1):
        noisy = scores.copy()
        noisy[falling] += loss.sigma * logistics(
            len(labels), seed=loss.seed, iteration=iteration, query_key=query_key, sample=sample
        )
        found.append(naive_baselines.ranking(noisy, gains))
    return found


def pair_weights(loss: Any, ranking: list[int], labels: np.ndarray) -> naive_baselines.Weights:
    """The weights of all pairs (better, worse) of one ranking, not divided by any constant."""
    gains = worth(loss, labels)
    classic = type(loss).__name__ == "YetiRank"
    found: naive_baselines.Weights = {}
    for p in range(len(ranking)):
        for q in range(p + 1, min(p + loss.neighbours, len(ranking) - 1) + 1):
            i, j = ranking[p], ranking[q]
            if gains[i] == gains[j]:
                continue
            if classic:
                weight = loss.decay**p * abs(labels[i] - labels[j]) if loss.decay**p >= 1e-4 else 0.0
            else:
                swapped = list(ranking)
                swapped[p], swapped[q] = j, i
                before, after = (naive.value(loss.metric, [labels[d] for d in order]) for order in (ranking, swapped))
                weight = abs(after - before)
            found[(i, j) if gains[i] > gains[j] else (j, i)] = weight
    return found


def yeti_derivatives(
    loss: Any,
    scores: np.ndarray,
    labels: np.ndarray,
    groups: Sequence[int],
    weights: Sequence[float] | None = None,
    iteration: int = 0,
) -> tuple[np.ndarray, np.ndarray]:
    """What `derivatives` of a bound `YetiRank` or `YetiLoss` returns, without the number that all is multiplied by."""
    first, second = np.zeros(len(labels)), np.zeros(len(labels))
    begin = 0
    for query, n in enumerate(groups):
        rows = slice(begin, begin + n)
        begin += n
        orders = rankings(loss, scores[rows], labels[rows], iteration=iteration, query_key=query)
        times = (1.0 if weights is None else weights[query]) / len(orders)
        for order in orders:
            pairs = pair_weights(loss, order, labels[rows])
            one, two = naive_baselines.pair_derivatives(pairs, scores[rows], 1.0)
            first[rows] += times * one
            second[rows] += times * (two if loss.max_step == math.inf else bounded(pairs, scores[rows], loss.max_step))
    return first, second


def bounded(pairs: naive_baselines.Weights, scores: np.ndarray, max_step: float) -> np.ndarray:
    """The second derivatives of all pairs, each at least the size of the first over `max_step`, added up by document."""
    total = np.zeros(len(scores))
    for (better, worse), weight in pairs.items():
        wrong = 1 / (1 + math.exp(scores[better] - scores[worse]))
        second = weight * max(wrong * (1 - wrong), wrong / max_step)
        total[better] += second
        total[worse] += second
    return total


def rescaled(
    derivatives: Sequence[np.ndarray], labels: np.ndarray, groups: Sequence[int], mean: float = 1.0, weights: Any = None
) -> list[np.ndarray]:
    """Both derivatives times the number that makes the second average `mean` per row, or per weight of a row, over queries
    with different labels; the second counts as at least half of the first."""
    weights = np.ones(len(labels)) if weights is None else weights
    queries = itertools.pairwise(np.cumsum([0, *groups]))
    learning = sum(weights[a:b].sum() for a, b in queries if labels[a:b].min() < labels[a:b].max())
    size = max(derivatives[1].sum(), np.abs(derivatives[0]).sum() / 2)
    return [d * mean * learning / size if size > 0 else d for d in derivatives]


def uniforms(n: int, *, seed: int = 0, iteration: int = 0, query_key: int = 0) -> np.ndarray:
    """The kernels' draws of one query, the j-th for the document with the j-th largest gain."""
    return naive.noise(n, seed=seed, iteration=iteration, query_key=query_key, law="uniform", purpose=UNIFORM)


def lightgbm_xendcg(scores: Sequence[float], labels: Sequence[float], draws: Sequence[float]) -> tuple[list, list]:
    """RankXENDCG::GetGradientsForOneQuery of LightGBM (src/objective/rank_objective.hpp), line by line."""
    n = len(scores)
    if n <= 1:
        return [0.0] * n, [0.0] * n
    exps = [math.exp(z - max(scores)) for z in scores]
    rho = [e / sum(exps) for e in exps]
    params = [2.0**label - draw for label, draw in zip(labels, draws, strict=True)]
    inverse = 1.0 / sum(params)
    lambdas = [rho[i] - params[i] * inverse for i in range(n)]
    params = [lambdas[i] / (1.0 - rho[i]) for i in range(n)]
    total = sum(params)
    for i in range(n):
        term = rho[i] * (total - params[i])
        lambdas[i] += term
        params[i] = term / (1.0 - rho[i])
    total = sum(params)
    for i in range(n):
        lambdas[i] += rho[i] * (total - params[i])
    return lambdas, [p * (1.0 - p) for p in rho]


def xendcg_derivatives(
    loss: Any, scores: np.ndarray, labels: np.ndarray, groups: Sequence[int], iteration: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """What `derivatives` of a bound `XENDCG` returns."""
    first, second = np.zeros(len(labels)), np.zeros(len(labels))
    begin = 0
    for query, n in enumerate(groups):
        rows = slice(begin, begin + n)
        begin += n
        draws = np.empty(n)
        falling = np.argsort(-labels[rows], kind="stable")
        draws[falling] = uniforms(n, seed=loss.seed, iteration=iteration, query_key=query)
        first[rows], second[rows] = lightgbm_xendcg(scores[rows].tolist(), labels[rows].tolist(), draws.tolist())
    return first, second


def catboost_query_rmse(
    scores: Sequence[float], labels: Sequence[float], weights: Sequence[float]
) -> tuple[list[float], list[float]]:
    """TQueryRmseError of CatBoost (algo_helpers/error_functions.h) for one query, with the sign of a loss."""
    total = sum(weights)
    mean = sum((r - z) * w for r, z, w in zip(labels, scores, weights, strict=True)) / total if total > 0 else 0.0
    first = [-(r - z - mean) * w for r, z, w in zip(labels, scores, weights, strict=True)]
    return first, list(weights)
