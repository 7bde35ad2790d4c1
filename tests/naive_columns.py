"""Slow, obvious versions of metrics whose terms have different columns of labels.

Documents are told apart by their numbers 0, 1, ...: a metric of several columns is a function of the list of numbers, for
which `naive` has all that is needed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import naive
import numpy as np

from stochasticrank_objectives import FunctionMetric, Labelled, Metric, parse_metric

Columns = Mapping[str, np.ndarray]


def terms(metric: str | Metric, labels: Columns) -> list[tuple[float, Metric, np.ndarray]]:
    """Weights, metrics and the labels of each; a term without a column has the first."""
    first = next(iter(labels))
    return [
        (w, *((m.metric, labels[m.column]) if isinstance(m, Labelled) else (m, labels[first])))
        for w, m in parse_metric(metric).parts()
    ]  # fmt: skip


def relevance(metric: str | Metric, labels: Columns) -> np.ndarray:
    """By which mu shifts and ties are ordered, the largest in the data being 4."""
    total = np.zeros(len(next(iter(labels.values()))))
    for weight, each, column in terms(metric, labels):
        of_term = naive.relevance(each, column)
        total += weight * of_term / max(of_term.max(), 1e-300)
    return total * 4.0 / max(total.max(), 1e-300)


def of_numbers(metric: str | Metric, labels: Columns) -> FunctionMetric:
    """The metric of one query as a function of the numbers of its documents, in ranked order."""

    def function(numbers: Sequence[float]) -> float:
        order = np.asarray(numbers, int)
        return sum(w * naive.value(each, column[order]) for w, each, column in terms(metric, labels))

    return FunctionMetric(function=function, name="numbers")  # type: ignore[arg-type]


def gradient(loss: Any, scores: np.ndarray, labels: Columns, groups: Sequence[int], iteration: int = 0) -> np.ndarray:
    """What `loss.bind(labels, groups).gradient(scores, iteration)` promises, with the kernels' own noise."""
    out, r = np.zeros(len(scores)), relevance(loss.metric, labels)
    begin = 0
    for query, n in enumerate(groups):
        rows = slice(begin, begin + n)
        begin += n
        z, mine = scores[rows], {name: column[rows] for name, column in labels.items()}
        order = np.argsort(-r[rows], kind="stable")
        numbers = of_numbers(loss.metric, mine)
        total = np.zeros(n)
        for sample in range(loss.samples):
            noise = np.empty(n)
            noise[order] = naive.noise(
                n, seed=loss.seed, iteration=iteration, query_key=query, sample=sample, law=loss.noise
            )  # fmt: skip
            moved = z - loss.sigma * loss.mu * r[rows]
            if loss.estimator == "ccs":
                total += naive.ccs(numbers, moved, np.arange(n), noise, sigma=loss.sigma, law=loss.noise)
            else:
                start = np.lexsort((r[rows], -z))  # ties in the worst order
                noisy = np.argsort(-(moved / loss.sigma + noise))
                total -= (numbers.function(noisy) - numbers.function(start)) * noise / loss.sigma
        total /= loss.samples
        out[rows] = naive.sfa(total, z, loss.nu, float(loss.sfa)) if loss.sfa else total
    return out
