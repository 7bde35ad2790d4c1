"""Slow, obvious versions of the pairwise baselines, written from the definitions: every pair, every swap tried out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import naive
import numpy as np

from stochasticrank_objectives._constants import GUMBEL

Weights = dict[tuple[int, int], float]


def ranking(scores: Sequence[float], worth: Sequence[float]) -> list[int]:
    """Documents by falling score; among equals the less worth first, then the later row."""
    return sorted(range(len(scores)), key=lambda j: (-scores[j], worth[j], -j))


def swap_weights(metric: Any, scores: np.ndarray, labels: np.ndarray) -> Weights:
    """|change of the metric| when the two of a pair (better, worse) change places."""
    worth = naive.relevance(metric, labels)
    order = ranking(scores, worth)
    before = naive.value(metric, [labels[j] for j in order])
    found: Weights = {}
    for p, i in enumerate(order):
        for q, j in enumerate(order):
            if worth[i] > worth[j]:
                swapped = list(order)
                swapped[p], swapped[q] = j, i
                found[i, j] = abs(naive.value(metric, [labels[d] for d in swapped]) - before)
    return found


def loss2pp_weights(metric: Any, scores: np.ndarray, labels: np.ndarray, mu: float) -> Weights:
    """(rho + mu delta) |G_i - G_j| of NDCG-Loss2++, ranks counted from 1; at least one of a pair is among the first k."""
    gains = [naive.dcg_gain(metric, label) for label in labels]
    cut = metric.k or len(labels)
    order = ranking(scores, labels)
    rank = {document: place for place, document in enumerate(order, start=1)}
    ideal = sum(gain / math.log2(1 + p) for p, gain in enumerate(sorted(gains, reverse=True)[:cut], start=1))
    scale = 1.0 if type(metric).__name__ == "DCG" else ideal**-metric.power if ideal > 0 else 0.0

    def inverse(p: int) -> float:
        return 1.0 / math.log2(1 + p)

    found: Weights = {}
    for i in range(len(labels)):
        for j in range(len(labels)):
            if gains[i] > gains[j] and min(rank[i], rank[j]) <= cut:
                rho = abs((inverse(rank[i]) if rank[i] <= cut else 0.0) - (inverse(rank[j]) if rank[j] <= cut else 0.0))
                distance = abs(rank[i] - rank[j])
                delta = abs(inverse(distance) - inverse(distance + 1))
                found[i, j] = (rho + mu * delta) * (gains[i] - gains[j]) * scale
    return found


def pair_loss(weights: Weights, scores: np.ndarray, sigma: float) -> float:
    """sum of weight * log(1 + exp(-sigma (z_i - z_j)))."""
    return sum(w * float(np.logaddexp(0.0, -sigma * (scores[i] - scores[j]))) for (i, j), w in weights.items())


def pair_derivatives(weights: Weights, scores: np.ndarray, sigma: float) -> tuple[np.ndarray, np.ndarray]:
    """First and second derivatives of `pair_loss`, the weights fixed."""
    first, second = np.zeros(len(scores)), np.zeros(len(scores))
    for (i, j), w in weights.items():
        t = sigma * (scores[i] - scores[j])
        wrong = math.exp(-np.logaddexp(0.0, t))  # the model's chance that j is the better one
        right = math.exp(-np.logaddexp(0.0, -t))
        first[i] -= w * sigma * wrong
        first[j] += w * sigma * wrong
        second[i] += w * sigma**2 * wrong * right
        second[j] += w * sigma**2 * wrong * right
    return first, second


def tempered(weights: Weights, scores: np.ndarray) -> Weights:
    """LightGBM's normalisation of pairs; none if all scores are equal."""
    if scores.min() == scores.max():
        return weights
    return {(i, j): w / (0.01 + abs(scores[i] - scores[j])) for (i, j), w in weights.items()}


def gumbels(n: int, *, seed: int = 0, iteration: int = 0, query_key: int = 0, sample: int = 0) -> np.ndarray:
    """The kernels' noise of one query and sample, the j-th for the document with the j-th largest gain."""
    return naive.noise(n, seed=seed, iteration=iteration, query_key=query_key, sample=sample, law="gumbel", purpose=GUMBEL)


def derivatives(
    loss: Any,
    scores: np.ndarray,
    labels: np.ndarray,
    groups: Sequence[int],
    weights: Sequence[float] | None = None,
    iteration: int = 0,
) -> tuple[np.ndarray, np.ndarray]:
    """All that `loss.bind(labels, groups, weights).derivatives(scores, iteration)` promises; weights one a query."""
    first, second = np.zeros(len(labels)), np.zeros(len(labels))
    begin = 0
    for query, n in enumerate(groups):
        rows = slice(begin, begin + n)
        begin += n
        r = labels[rows]
        falling = np.argsort(-naive.relevance(loss.metric, r), kind="stable")
        samples = loss.samples if loss.noise > 0 else 1
        for sample in range(samples):
            z = scores[rows].copy()
            if loss.noise > 0:
                z[falling] += loss.noise * gumbels(n, seed=loss.seed, iteration=iteration, query_key=query, sample=sample)
            lambda_loss = type(loss).__name__ == "LambdaLoss"
            pairs = loss2pp_weights(loss.metric, z, r, loss.mu) if lambda_loss else swap_weights(loss.metric, z, r)
            pairs = tempered(pairs, z) if loss.norm else pairs
            one = pair_derivatives(pairs, z, loss.sigma)
            if loss.norm:  # each pair by itself: a document's own sum hides that pairs pull it both ways
                total = sum(np.abs(pair_derivatives({pair: w}, z, loss.sigma)[0]).sum() for pair, w in pairs.items())
                one = tuple(d * math.log2(1 + total) / total if total > 0 else d for d in one)
            times = (1.0 if weights is None else weights[query]) / samples
            first[rows] += times * one[0]
            second[rows] += times * one[1]
    return first, second
