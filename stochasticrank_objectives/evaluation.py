"""Metrics of a whole data set, with a stated choice for ties and for queries without relevant documents."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, Literal, overload

import numpy as np
from numpy.typing import ArrayLike

from . import _threads
from ._constants import BEST, MEAN, WORST, Array, Rule
from ._data import Labels, Queries, check_scores, check_weights, lay_out
from ._families import value_kernels
from ._listed import Listed
from .metrics import Metric, parse_metric

Ties = Literal["worst", "mean", "best"]
Empty = float | Literal["skip"]

_TIES = {"worst": WORST, "best": BEST, "mean": MEAN}


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """A metric bound to checked data: give it scores as often as you like."""

    queries: Queries
    weights: Array | None
    ties: Ties
    empty: Empty
    threads: int

    def per_query(self, scores: ArrayLike) -> Array:
        """The metric of each query; NaN where a query without relevant documents is skipped."""
        q = self.queries
        kernels = value_kernels(q.metric.family)
        values = check_scores(scores, q.rows)
        ties, sizes = _TIES[self.ties], q.sizes
        scratch = _threads.Spare(functools.partial(kernels.make_value_scratch, int(sizes.max())))
        borders = _threads.borders(4.0 * sizes.astype(np.float64), self.threads)
        total, nothing = np.zeros(len(sizes)), np.ones(len(sizes), bool)
        for (weight, part), terms in zip(q.metric.parts(), q.parts, strict=True):
            of_part, none = np.zeros(len(sizes)), np.ones(len(sizes), bool)
            for term in terms:
                if isinstance(term, Listed):
                    of_part += term.values(values, q.layout, ties, self.threads)
                else:
                    out = np.empty(len(sizes))

                    def work(scratch: Any, begin: int, end: int, out: Array = out, rule: Rule = term) -> None:
                        kernels.value_range(scratch, out, values, q.layout, rule, ties, np.arange(begin, end))

                    _threads.run(work, borders, self.threads, scratch)
                    of_part += out
                none &= term.relevant == 0
            of_part += weight * part.constant
            of_part[none] = 0.0 if self.empty == "skip" else weight * self.empty
            total += of_part
            nothing &= none
        if self.empty == "skip":
            total[nothing] = np.nan
        return total

    def mean(self, scores: ArrayLike) -> float:
        """The weighted mean over queries."""
        value, weight = self.sums(scores)
        return value / weight if weight > 0 else float("nan")

    def sums(self, scores: ArrayLike) -> tuple[float, float]:
        """The weighted sum over queries and the sum of their weights: parts of data are added up before dividing."""
        values = self.per_query(scores)
        weights = np.ones(len(values)) if self.weights is None else self.weights
        counted = ~np.isnan(values)
        return float(values[counted] @ weights[counted]), float(weights[counted].sum())


def bind_evaluation(
    metric: str | Metric,
    labels: Labels,
    groups: ArrayLike | None = None,
    *,
    qid: ArrayLike | None = None,
    weights: ArrayLike | None = None,
    ties: Ties = "worst",
    empty: Empty = 0.0,
    threads: int | None = None,
) -> Evaluation:
    """Check the data once, for evaluating many scores on it; parameters as in `evaluate`."""
    if not isinstance(ties, str) or ties not in _TIES:
        raise ValueError(f'ties must be "worst", "mean" or "best", got {ties!r}')
    if not (isinstance(empty, str) and empty == "skip") and not (isinstance(empty, (int, float)) and np.isfinite(empty)):
        raise ValueError(f'empty must be a number or "skip", got {empty!r}')
    threads = _threads.check(threads)
    queries = lay_out(parse_metric(metric), labels, groups, qid)
    checked = None
    if weights is not None:
        checked = check_weights(weights, len(queries.sizes), queries.rows)
        if len(checked) != len(queries.sizes):
            checked = _constant_in_query(checked, queries)
    return Evaluation(queries, checked, ties, empty, threads)


def _constant_in_query(weights: Array, queries: Queries) -> Array:
    of_query = weights[queries.ptr[:-1]]
    wrong = weights != np.repeat(of_query, queries.sizes)
    if wrong.any():
        at = int(np.argmax(wrong))
        raise ValueError(f"weights[{at}] = {weights[at]:g} differs from its query's first; a metric weighs whole queries")
    return of_query


@overload
def evaluate(
    metric: str | Metric, scores: ArrayLike, labels: Labels, groups: ArrayLike | None = ..., *,
    qid: ArrayLike | None = ..., weights: ArrayLike | None = ..., ties: Ties = ..., empty: Empty = ...,
    per_query: Literal[False] = ..., threads: int | None = ...,
) -> float: ...  # fmt: skip
@overload
def evaluate(
    metric: str | Metric, scores: ArrayLike, labels: Labels, groups: ArrayLike | None = ..., *,
    qid: ArrayLike | None = ..., weights: ArrayLike | None = ..., ties: Ties = ..., empty: Empty = ...,
    per_query: Literal[True], threads: int | None = ...,
) -> Array: ...  # fmt: skip
def evaluate(
    metric: str | Metric,
    scores: ArrayLike,
    labels: Labels,
    groups: ArrayLike | None = None,
    *,
    qid: ArrayLike | None = None,
    weights: ArrayLike | None = None,
    ties: Ties = "worst",
    empty: Empty = 0.0,
    per_query: bool = False,
    threads: int | None = None,
) -> float | Array:
    """The mean of a metric over queries, or its value for each of them.

    Parameters
    ----------
    metric
        A name such as ``"ndcg@10"`` or a metric.
    scores, labels
        One number per row; the rows of a query stand together. Labels may have named columns (a mapping or a DataFrame);
        terms that name no column take the first; see `Labelled`.
    groups, qid
        The size of each query, or the query id of each row: one of the two.
    weights
        How much each query counts in the mean; one per query, or one per row that is the same throughout a query.
    ties
        How documents with equal scores are ranked: ``"worst"`` (less relevant first, as the paper and CatBoost do),
        ``"best"``, or ``"mean"``, the exact expectation over all their orders. For a metric made by `metric`, "mean" tries
        up to 720 orders per query, or a fixed sample of 720 if there are more. A metric of a selection, such as
        DCGRR, has no ties: scores are compared only with 0, and a score of 0 is not above it.
    empty
        What a query without relevant documents counts as: a number (0; the boosters' own NDCG says 1) or ``"skip"``, which
        leaves it out of the mean and makes it NaN in `per_query`. For `AUC`, `Spearman` and `Kendall` such a query is one
        without any two documents that could be in the wrong order. In a sum of metrics the number stands for each term that
        finds nothing relevant; ``"skip"`` leaves out queries in which no term finds any.
    threads
        How many threads; by default as many as there are processors, or NUMBA_NUM_THREADS.

    Examples
    --------
    >>> evaluate("mrr", scores=[0.2, 0.9, 0.5], labels=[1, 0, 1], groups=[3])
    0.5
    """
    bound = bind_evaluation(metric, labels, groups, qid=qid, weights=weights, ties=ties, empty=empty, threads=threads)
    return bound.per_query(scores) if per_query else bound.mean(scores)
