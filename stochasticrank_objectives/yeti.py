"""YetiRank and YetiLoss: pairs of near neighbours in noisy rankings, with second derivatives."""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import _threads
from ._binding import BoundQueries, MetricLoss, check_pairwise, printed
from ._checks import check_number, check_seed, check_whole
from ._constants import LOGISTIC, Array, Rankings
from ._data import Queries, check_scores
from ._streams import stream_key
from .metrics import Metric, parse_metric

_LEAST = 20.0  # what hessians add up to, at least, unless there are fewer rows: or else tiny data could not be split
_NEGLIGIBLE = 1e-4  # positions with a smaller weight than this are left out of YetiRank


@dataclasses.dataclass(frozen=True)
class YetiLoss(MetricLoss["BoundYeti"]):
    """Pairs of near neighbours in noisy rankings, weighted by how much the metric would change if the two were swapped.

    Each query is ranked several times by its scores z with logistic noise. In each ranking every document has a pair with
    each of the next `neighbours` documents. The loss of a query is ``sum |dM_ij| log(1 + exp(-(z_i - z_j)))`` over the pairs
    in which i has a larger gain than j, averaged over the rankings; dM_ij is the change of the metric when i and j change
    places in the noisy ranking, z are the scores without noise. It is differentiated with dM held fixed. Pairs of which both
    are below the cut of the metric do not count.

    All derivatives of an iteration are multiplied by one number, so that hessians average 1 per row, or `hessian_mean`, over
    the queries that have documents of different gain. So what boosters compare with sums of hessians (regularisation,
    ``min_child_weight``) counts rows, roughly, whatever the metric and the unit of the labels, and as much in the last
    iteration as in the first, although pairs that are in the right order have ever smaller hessians.

    Reference: Lyzhin, Ustimenko, Gulin & Prokhorenkova, "Which tricks are important for learning to rank?", ICML 2023.

    Parameters
    ----------
    metric
        A name such as ``"ndcg@10"`` or ``"mrr"``, or a metric. All metrics work, and sums of them.
    neighbours
        How many of the documents that follow one in a ranking it has pairs with, at least 1.
    permutations
        Noisy rankings that are averaged, at least 1.
    sigma
        Scale of the logistic noise, at least 0. With 0 there is one ranking, in which equal scores stand in the worst order.
    mu
        Shift of relevant documents downwards in the noisy rankings, at least 0, as in `StochasticRank`.
    max_step
        How far one pair alone can move a leaf, at least 1. Boosters divide a leaf's gradient by its hessian. A pair of
        weight w has the first derivative w p, p the chance that the logistic function gives to the wrong order, and the
        hessian ``w p max(1 - p, 1 / max_step)``. Infinity is Newton's, w p (1 - p), as in CatBoost: a pair that is far in
        the wrong order, most often because of a noisy label, then asks for a huge step. With 2, pairs in the
        right order have Newton's hessian, and others cannot do much harm. With 1 it is the size of the first derivative.
    hessian_mean
        What the hessian averages per row, above 0. No leaf changes with it, unless the booster compares sums of hessians
        with a constant: with 0.1, XGBoost's default ``min_child_weight=1`` asks for about 10 rows per leaf, and its
        ``lambda=1`` counts as much as 10 rows. On tiny data it is more, so that all hessians add up to 20, or to the number
        of rows: XGBoost could not split otherwise.
    seed
        Selects the noise, together with the iteration and the query.
    threads
        How many threads; by default as many as there are processors, or NUMBA_NUM_THREADS. It never changes a result.

    Examples
    --------
    >>> bound = YetiLoss("ndcg@3").bind(labels=[0, 2, 1, 1, 0], groups=[3, 2])
    >>> gradient, hessian = bound.derivatives([0.3, 0.1, 0.2, 0.0, 0.0])
    >>> gradient.shape, hessian.shape
    ((5,), (5,))
    """

    metric: str | Metric
    _: dataclasses.KW_ONLY
    neighbours: int = 1
    permutations: int = 10
    sigma: float = 1.0
    mu: float = 0.0
    max_step: float = math.inf
    hessian_mean: float = 1.0
    seed: int = 0
    threads: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "metric", parse_metric(self.metric))
        check_pairwise("YetiLoss", self._bound_metric())
        check_whole("neighbours", self.neighbours, 1, "1 means that pairs are next to each other")
        _check(self)

    def _bound(self, queries: Queries, weights: ArrayLike | None, query_keys: ArrayLike | None) -> BoundYeti:
        return BoundYeti(self, queries, weights, query_keys)


@dataclasses.dataclass(frozen=True)
class YetiRank(MetricLoss["BoundYeti"]):
    """CatBoost's YetiRank: pairs of neighbours in noisy rankings, which weigh less the further down they stand.

    Each query is ranked several times by its scores z with logistic noise. The documents i and j at positions p and p + 1
    (p = 0, 1, ...) of a ranking are a pair with the weight ``decay^p |r_i - r_j|``, r the labels as they are. The loss of a
    query is ``sum weight log(1 + exp(-(z_i - z_j)))`` over the pairs in which i has the larger label, averaged over the
    rankings; z are the scores without noise. It is differentiated with the weights held fixed. Positions with
    ``decay^p < 1e-4``, from 57 on by default, are left out.

    This is `YetiLoss` with one neighbour for a metric that has the weight ``decay^p`` and the label as its gain: rank-biased
    precision for grades, times a constant. It names no metric, so an adapter that reports one must be told which.
    As in `YetiLoss`, derivatives are multiplied so that hessians average 1 per row; so labels that are multiplied by 100
    train the same model.

    Reference: Gulin, Kuralenok & Pavlov, "Winning the transfer learning track of Yahoo!'s learning to rank challenge with
    YetiRank", JMLR W&CP 2011. CatBoost's has a constant factor of 0.15 instead.

    Parameters
    ----------
    decay
        Weight of a position relative to the one above it, above 0 and at most 1.
    permutations
        Noisy rankings that are averaged, at least 1.
    sigma, mu, max_step, hessian_mean, seed, threads
        As in `YetiLoss`.

    Examples
    --------
    >>> bound = YetiRank().bind(labels=[0, 2, 1, 1, 0], groups=[3, 2])
    >>> gradient, hessian = bound.derivatives([0.3, 0.1, 0.2, 0.0, 0.0])
    >>> gradient.shape, hessian.shape
    ((5,), (5,))
    """

    _: dataclasses.KW_ONLY
    decay: float = 0.85
    permutations: int = 10
    sigma: float = 1.0
    mu: float = 0.0
    max_step: float = math.inf
    hessian_mean: float = 1.0
    seed: int = 0
    threads: int | None = None

    def __post_init__(self) -> None:
        check_number("decay", self.decay, 0, 1, open_low=True, hint="it is the weight of a position relative to the last")
        _check(self)

    def __str__(self) -> str:
        return printed(self, None)

    @property
    def neighbours(self) -> int:
        """How many of the documents that follow one it has pairs with: always 1."""
        return 1

    def _bound_metric(self) -> Metric:
        return _Decaying.of(self.decay)

    def _bound(self, queries: Queries, weights: ArrayLike | None, query_keys: ArrayLike | None) -> BoundYeti:
        return BoundYeti(self, queries, weights, query_keys)


def _check(loss: Any) -> None:
    """The parameters that both have."""
    check_whole("permutations", loss.permutations, 1, "CatBoost uses 10")
    check_number("sigma", loss.sigma, 0, hint="it is the scale of the noise, 0 means none; CatBoost's YetiRank has 1")
    check_number("hessian_mean", loss.hessian_mean, 0, open_low=True, hint="1 makes hessians count rows")
    check_number("mu", loss.mu, 0, hint="0 ranks ties in the mean order, more in the worst")
    if loss.max_step != math.inf:
        check_number("max_step", loss.max_step, 1, hint="infinity means Newton's steps")
    check_seed(loss.seed)
    _threads.check(loss.threads)


def _pairs(sizes: NDArray[Any], cut: int, neighbours: int) -> Array:
    """How many pairs a ranking of so many documents has."""
    first = np.minimum(cut, sizes - 1)  # the documents that have pairs with others below them
    full = np.clip(sizes - 1 - neighbours, 0, first)  # those of them that have all their neighbours
    rest = first - full
    pairs: Array = full * neighbours + rest * (sizes - 1 - full) - rest * (rest - 1) / 2
    return pairs


@dataclasses.dataclass(frozen=True)
class _Decaying(Metric):
    """The metric of which a swap of neighbours at p and p + 1 changes decay^p times the difference of their labels."""

    decay: float = 0.85

    @classmethod
    def of(cls, decay: float) -> _Decaying:
        # A whole number p has decay^p >= 1e-4 up to this one; rounding may not leave out the last.
        last = math.log(_NEGLIGIBLE) / math.log(decay) if decay < 1 else math.inf
        return cls(None if last > 2**31 else math.floor(last * (1 + 1e-12)) + 1, float(decay))

    def discounts(self, positions: int) -> Array:
        changes = self.decay ** np.arange(positions, dtype=np.float64)
        sums: Array = np.cumsum(changes[::-1])[::-1]
        return sums


class BoundYeti(BoundQueries):
    """`YetiRank` or `YetiLoss` with its data; made by `bind`."""

    loss: YetiRank | YetiLoss
    held: bool = True
    """Whether the mean of the hessian is held in every iteration, or only where training begins."""
    _size: float | None = None

    def __init__(
        self, loss: YetiRank | YetiLoss, queries: Queries, weights: ArrayLike | None, query_keys: ArrayLike | None
    ) -> None:
        from ._kernels import vectors, yeti

        super().__init__(loss, queries, weights, query_keys)
        sizes = queries.sizes[self._active]
        longest = int(sizes.max(initial=1))
        self._neighbours = min(int(loss.neighbours), longest)
        self._cost = np.sum([16.0 * sizes + _pairs(sizes, rule.cut, self._neighbours) for rule in queries.rules], axis=0)
        size = min(longest, max(rule.cut for rule in queries.rules) + self._neighbours)
        self._scratch = _threads.Spare(functools.partial(yeti.make_yeti_scratch, longest, size))
        self._rules = [
            rule._replace(
                discounts=np.append(rule.discounts, np.zeros(self._neighbours + vectors.EIGHT)),
                multipliers=rule.multipliers * self._query_weights,
            )
            for rule in queries.rules
        ]
        self._weight = float(queries.reduce(np.array([self._learning_weight()]), "sum")[0])

    def gradient(self, scores: ArrayLike, iteration: int = 0) -> Array:
        """d(loss)/d(score), to be minimised: float64, one per row. `iteration` selects the noise."""
        return self.derivatives(scores, iteration)[0]

    def derivatives(self, scores: ArrayLike, iteration: int = 0) -> tuple[Array, Array]:
        """The gradient and the second derivatives, one of each per row; both are 0 for a document without pairs."""
        values, iteration = check_scores(scores, self.rows), check_whole("iteration", iteration, 0)
        gradient, hessian = self._of_pairs(values, iteration)
        self._rescale(gradient, hessian)
        return gradient, hessian

    def _learning_weight(self) -> float:
        """The weights of all rows of queries that have anything to learn from, added up."""
        active = np.zeros(len(self.queries.sizes), bool)
        active[self._active] = True
        of_rows = np.repeat(self._query_weights * active, self.queries.sizes)
        return float(of_rows.sum() if self._row_weights is None else of_rows @ self._row_weights)

    def _rescale(self, gradient: Array, hessian: Array) -> None:
        """Multiply both so that the hessian averages `hessian_mean` per row and weight.

        Newton's hessian can be almost 0 where pairs are far in the wrong order. It then counts as half of the gradient, as
        it does for equal scores, or else gradients would be without bounds.
        """
        if self.held or self._size is None:
            second, first = self.queries.reduce(np.array([hessian.sum(), np.abs(gradient).sum()]), "sum")
            self._size = max(float(second), 0.5 * float(first))
        size = self._size
        if size > np.finfo(float).tiny:
            times = max(self.loss.hessian_mean * self._weight, min(_LEAST, self._weight)) / size
            gradient *= times
            hessian *= times

    def _of_pairs(self, values: Array, iteration: int) -> tuple[Array, Array]:
        """The derivatives of the weighted pairs, as they are."""
        from ._kernels import yeti

        key, loss = stream_key(int(self.loss.seed), iteration, LOGISTIC), self.loss
        permutations = int(loss.permutations) if loss.sigma > 0 else 1
        rankings = Rankings(self._neighbours, float(loss.sigma), float(loss.mu), permutations, key, 1.0 / loss.max_step)
        gradient, hessian = np.zeros(self.rows), np.zeros(self.rows)
        threads = self._thread_count()
        borders = _threads.borders(np.float64(permutations) * self._cost, threads)
        for rule in self._rules if len(self._active) else ():
            # A swap changes all terms of a sum in the same direction, so their pairs add up. The kernel overwrites.
            first = rule is self._rules[0]
            slope, curve = (gradient, hessian) if first else (np.zeros(self.rows), np.zeros(self.rows))
            problem = (self._layout, rule, rankings)

            def work(s: Any, begin: int, end: int, p: Any = problem, slope: Array = slope, curve: Array = curve) -> None:
                yeti.yeti_range(s, slope, curve, values, p, self._active[begin:end])

            _threads.run(work, borders, threads, self._scratch)
            if not first:
                gradient += slope
                hessian += curve
        if self._row_weights is not None:
            gradient *= self._row_weights
            hessian *= self._row_weights
        return gradient, hessian
