"""Losses of a whole list at once, as LightGBM and CatBoost have them: XENDCG and QueryRMSE."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from . import _threads
from ._binding import BoundQueries, MetricLoss, printed
from ._checks import check_seed, check_whole
from ._constants import UNIFORM, Array
from ._data import Queries, check_scores
from ._streams import stream_key
from .metrics import DCG, Metric
from .ranks import Spearman


@dataclasses.dataclass(frozen=True)
class XENDCG(MetricLoss["BoundXENDCG"]):
    """LightGBM's rank_xendcg: the cross entropy of the softmax of the scores and of random gains, a bound on NDCG.

    Every document draws u between 0 and 1 in each iteration; its target is ``2^r - u`` over the sum of these in the query.
    The hessian is ``rho (1 - rho)``, rho the softmax of the scores. To the gradient, rho minus the target, LightGBM adds two
    more terms of a series that corrects for the hessian's other entries, and so does this. It names no metric, so an adapter
    that reports one must be told which.

    A query's hessian sums up to less than 1: boosters that compare sums of hessians with a constant (``min_child_weight`` of
    XGBoost, ``l2_leaf_reg`` of CatBoost) need smaller ones than usual.

    Reference: Bruch, "An alternative cross entropy loss for learning-to-rank", WWW 2021.

    Parameters
    ----------
    seed
        Selects the draws, together with the iteration and the query.
    threads
        How many threads; by default as many as there are processors, or NUMBA_NUM_THREADS. It never changes a result.

    Examples
    --------
    >>> bound = XENDCG().bind(labels=[0, 2, 1, 1, 0], groups=[3, 2])
    >>> gradient, hessian = bound.derivatives([0.3, 0.1, 0.2, 0.0, 0.0])
    >>> hessian.round(3).tolist()
    [0.232, 0.21, 0.222, 0.25, 0.25]
    """

    _: dataclasses.KW_ONLY
    seed: int = 0
    threads: int | None = None

    def __post_init__(self) -> None:
        check_seed(self.seed)
        _threads.check(self.threads)

    def __str__(self) -> str:
        return printed(self, None)

    def _bound_metric(self) -> Metric:
        return DCG()

    def _bound(self, queries: Queries, weights: ArrayLike | None, query_keys: ArrayLike | None) -> BoundXENDCG:
        return BoundXENDCG(self, queries, weights, query_keys)


class BoundXENDCG(BoundQueries):
    """`XENDCG` with its data; made by `bind`."""

    loss: XENDCG

    def __init__(self, loss: XENDCG, queries: Queries, weights: ArrayLike | None, query_keys: ArrayLike | None) -> None:
        from ._kernels import listwise

        super().__init__(loss, queries, weights, query_keys)
        # As in LightGBM, queries with equal labels take part: they keep the scores together.
        self._active = np.flatnonzero((queries.sizes > 1) & (self._query_weights > 0))
        sizes = queries.sizes[self._active]
        self._cost = np.float64(16.0) * sizes
        self._scratch = _threads.Spare(functools.partial(listwise.make_list_scratch, int(sizes.max(initial=1))))

    def gradient(self, scores: ArrayLike, iteration: int = 0) -> Array:
        """d(loss)/d(score), to be minimised: float64, one per row. `iteration` selects the draws."""
        return self.derivatives(scores, iteration)[0]

    def derivatives(self, scores: ArrayLike, iteration: int = 0) -> tuple[Array, Array]:
        """The gradient and the second derivatives, one of each per row; both are 0 for a query of one document."""
        from ._kernels import listwise

        values = check_scores(scores, self.rows)
        key = stream_key(self.loss.seed, check_whole("iteration", iteration, 0), UNIFORM)
        problem = (self._layout, self.queries.rule._replace(multipliers=self._query_weights), key)
        gradient, hessian = np.zeros(self.rows), np.zeros(self.rows)

        def work(scratch: Any, begin: int, end: int) -> None:
            listwise.xendcg_range(scratch, gradient, hessian, values, problem, self._active[begin:end])

        if len(self._active):
            threads = self._thread_count()
            _threads.run(work, _threads.borders(self._cost, threads), threads, self._scratch)
        if self._row_weights is not None:
            gradient *= self._row_weights
            hessian *= self._row_weights
        return gradient, hessian


@dataclasses.dataclass(frozen=True)
class _Labels(Metric):
    """Not a metric: it gives the labels as they are, of any sign."""

    signed = True


@dataclasses.dataclass(frozen=True)
class QueryRMSE(MetricLoss["BoundQueryRMSE"]):
    """CatBoost's QueryRMSE: squared errors of the scores, up to one shift per query.

    The loss of a query with scores z and labels r is ``1/2 sum_i w_i (z_i - r_i - m)^2`` with the m that makes it smallest,
    the weighted mean of z - r. The hessian is w: 1 per row without weights. There is no noise in it. It names no metric, so
    an adapter that reports one must be told which. Labels in other units are another loss: the scores follow them. They may
    be negative.

    Parameters
    ----------
    ranks
        Instead of the labels, take their ranks in the query, divided by its size; equal labels have the mean of their ranks.
        So neither outliers nor the unit of the labels matter, and what is fitted is what Spearman's rho compares.

    Examples
    --------
    >>> bound = QueryRMSE().bind(labels=[0, 2, 1, 1, 0], groups=[3, 2])
    >>> bound.gradient([0.3, 0.1, 0.2, 0.0, 0.0]).round(3).tolist()
    [1.1, -1.1, 0.0, -0.5, 0.5]
    """

    threads = None

    _: dataclasses.KW_ONLY
    ranks: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.ranks, bool):
            raise ValueError(f"ranks must be True or False, got {self.ranks!r}")

    def __str__(self) -> str:
        return printed(self, None)

    def _bound_metric(self) -> Metric:
        return Spearman() if self.ranks else _Labels()

    def _bound(self, queries: Queries, weights: ArrayLike | None, query_keys: ArrayLike | None) -> BoundQueryRMSE:
        return BoundQueryRMSE(self, queries, weights, query_keys)


class BoundQueryRMSE(BoundQueries):
    """`QueryRMSE` with its data; made by `bind`."""

    loss: QueryRMSE

    def __init__(self, loss: QueryRMSE, queries: Queries, weights: ArrayLike | None, query_keys: ArrayLike | None) -> None:
        super().__init__(loss, queries, weights, query_keys)
        self._labels = np.empty(queries.rows)
        self._labels[queries.layout.order + np.repeat(queries.ptr[:-1], queries.sizes)] = queries.rule.gains
        if loss.ranks:
            self._labels /= np.repeat(queries.sizes, queries.sizes)
        of_queries = np.repeat(self._query_weights, queries.sizes)
        self._weights = of_queries if self._row_weights is None else self._row_weights

    def gradient(self, scores: ArrayLike, iteration: int = 0) -> Array:
        """d(loss)/d(score), to be minimised: float64, one per row."""
        return self.derivatives(scores, iteration)[0]

    def derivatives(self, scores: ArrayLike, iteration: int = 0) -> tuple[Array, Array]:
        """The gradient and the second derivatives, one of each per row."""
        check_whole("iteration", iteration, 0)
        starts, sizes = self.ptr[:-1], self.queries.sizes
        errors = check_scores(scores, self.rows) - self._labels
        total = np.add.reduceat(self._weights, starts)
        mean = np.add.reduceat(self._weights * errors, starts) / np.where(total > 0, total, 1.0)
        return self._weights * (errors - np.repeat(mean, sizes)), self._weights.copy()
