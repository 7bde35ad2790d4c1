"""StochasticRank: the gradient of a ranking metric, smoothed by noise on the scores."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import _threads
from ._binding import BoundQueries, MetricLoss
from ._checks import check_number, check_whole
from ._constants import FAST_FROM, SMOOTHING, Array, Integers
from ._data import Queries, Reduce, alone, as_vector, check_finite
from .metrics import Metric, parse_metric

_ESTIMATORS = ("ccs", "reinforce")
_LEAST = 1e-3  # a hessian without a constant part is at least this much of its mean at the start
_HUGE = 50_000  # documents in a query from which on threads share it
_PIECE = 4096  # of a huge query, a multiple of what the kernels pad to


class BoundLoss(Protocol):
    """A loss with its data: scores go in, a gradient comes out."""

    @property
    def rows(self) -> int:
        """How many scores it takes."""

    @property
    def ptr(self) -> Integers:
        """Where each query begins, and the end."""

    @property
    def keys(self) -> NDArray[np.uint64]:
        """The number that selects each query's noise."""

    def gradient(self, scores: ArrayLike, iteration: int = 0) -> Array:
        """d(loss)/d(score), one a row, to be minimised; `iteration` selects the noise."""

    def derivatives(self, scores: ArrayLike, iteration: int = 0) -> tuple[Array, Array | None]:
        """The gradient and the second derivative; None means that the loss has none, and boosters take 1."""


class Loss(Protocol):
    """What the adapters train with: parameters only, no data."""

    def bind(
        self,
        labels: ArrayLike,
        groups: ArrayLike | None = None,
        weights: ArrayLike | None = None,
        *,
        qid: ArrayLike | None = None,
        query_keys: ArrayLike | None = None,
        reduce: Reduce = alone,
    ) -> BoundLoss:
        """Check the data once and lay it out."""


@dataclasses.dataclass(frozen=True)
class StochasticRank(MetricLoss["BoundStochasticRank"]):
    """The smoothed metric as a loss (Ustimenko & Prokhorenkova, "StochasticRank", ICML 2020).

    The loss of a query with scores z and labels r is minus the expectation of the metric of
    ``z - sigma*mu*r + sigma*noise``, with standard normal noise. Its gradient is estimated without bias from `samples`
    draws. Losses of queries are added.

    Parameters
    ----------
    metric
        A name such as ``"ndcg@10"`` or a metric.
    sigma
        Standard deviation of the noise on the scores, above 0. The paper fixes 1: the scale of the scores adapts to it.
    mu
        Shift of relevant documents downwards, at least 0, in units of sigma a grade. 0 smooths towards the mean order of
        ties (the paper's SR-R1-soft), mu > 0 towards the worst order (SR-R1). The paper tunes it in 0.01..10. Relevance is
        the label, or for binary metrics 0 or 1.
    nu
        Added to the norm of the scores where it divides in scale-free acceleration, above 0.
    sfa
        Scale-free acceleration: take away the part of the gradient along the scores, which cannot change a ranking. True or
        False, or a strength between 0 and 1.
    samples
        Draws of the noise that are averaged in one gradient.
    estimator
        ``"ccs"``, coordinate conditional sampling: unbiased, bounded by O(1/sigma); or ``"reinforce"``, the log-derivative
        estimate, for comparison.
    hessian_constant
        What boosters divide a leaf's gradient by is ``hessian_constant * 1 + (1 - hessian_constant) * |gradient|`` per row,
        between 0 and 1. At 1 a leaf is the mean of its rows' gradients, as in the paper. At 0 it is the share by which their
        pulls up and down differ, between -1 and 1: steps of a size that does not depend on the metric or on how many rows
        hardly matter to it. Below 1 the gradient is given in units of its mean size per row at the start of training (all
        scores 0), so that what boosters compare with sums of hessians (regularisation, the least weight of a leaf) means
        about as much as at 1. Below 1 goes with sfa=False only, since such a step, unlike its gradient, would have a part
        along the scores.
    seed
        Selects the noise, together with the iteration and the query.
    threads
        How many threads; by default as many as there are processors, or NUMBA_NUM_THREADS. It never changes a result.

    Examples
    --------
    >>> loss = StochasticRank("ndcg@3", mu=0.1)
    >>> bound = loss.bind(labels=[0, 2, 1, 1, 0], groups=[3, 2])
    >>> bound.gradient([0.3, 0.1, 0.2, 0.0, 0.0], iteration=0).shape
    (5,)
    """

    metric: str | Metric
    sigma: float = 1.0
    mu: float = 0.1
    nu: float = 1e-2
    sfa: bool | float = True
    samples: int = 1
    estimator: Literal["ccs", "reinforce"] = "ccs"
    hessian_constant: float = 1.0
    seed: int = 0
    threads: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "metric", parse_metric(self.metric))
        check_number("sigma", self.sigma, 0, open_low=True, hint="it is the standard deviation of the noise")
        check_number("mu", self.mu, 0, hint="0 ranks ties in the mean order, more in the worst")
        check_number("nu", self.nu, 0, open_low=True, hint="the paper uses 0.01")
        if not isinstance(self.sfa, bool):
            check_number("sfa", self.sfa, 0, 1, hint="use True, False or a strength")
        check_whole("samples", self.samples, 1)
        check_whole("seed", self.seed, 0)
        if self.estimator not in _ESTIMATORS:
            raise ValueError(f'estimator must be "ccs" or "reinforce", got {self.estimator!r}')
        check_number("hessian_constant", self.hessian_constant, 0, 1, hint="1 is the paper's hessian of one per row")
        if self.hessian_constant < 1 and self.sfa:
            raise ValueError(
                f"hessian_constant={self.hessian_constant!r} goes with sfa=False, got sfa={self.sfa!r}; set "
                "hessian_constant=1 with sfa, as in the paper"
            )
        _threads.check(self.threads)

    @classmethod
    def paper(cls, metric: str | Metric, **changed: Any) -> StochasticRank:
        """The paper's settings, with those changed that are named: sigma = 1, nu = 0.01, one sample, SFA, a hessian of one.

        The paper tunes mu; 0.1 is the default here. It wraps the loss in `SGLB`.

        >>> print(StochasticRank.paper("ndcg@5", mu=0.3))
        StochasticRank('ndcg@5', mu=0.3)
        """
        settings: dict[str, Any] = {"sigma": 1.0, "mu": 0.1, "nu": 1e-2, "sfa": True, "samples": 1, "estimator": "ccs"}
        return cls(metric, **{**settings, "hessian_constant": 1.0, **changed})


class _Part(NamedTuple):
    """Queries that one kernel serves, what each costs, and what its threads work in."""

    queries: Integers
    cost: Array
    scratch: _threads.Spare


def _call(
    kernel: Callable[..., None], before: tuple[Any, ...], after: tuple[Any, ...], scratch: Any, begin: int, end: int
) -> None:
    kernel(scratch, *before, begin, end, *after)


class BoundStochasticRank(BoundQueries):
    """`StochasticRank` with its data; made by `StochasticRank.bind`."""

    loss: StochasticRank

    def __init__(
        self, loss: StochasticRank, queries: Queries, weights: ArrayLike | None, query_keys: ArrayLike | None
    ) -> None:
        super().__init__(loss, queries, weights, query_keys)
        self._scale = queries.scale * self._query_weights
        active = self._active
        sizes = queries.sizes[active]
        jumping = np.minimum(queries.cut + 1, sizes)
        long, huge = jumping > FAST_FROM, sizes >= _HUGE
        if loss.estimator == "reinforce":
            long[:] = huge[:] = False
        cost = loss.samples * sizes * (16.0 + np.minimum(jumping, FAST_FROM))
        self._short, self._long = self._part(~long & ~huge, cost, False), self._part(long & ~huge, cost, True)
        self._huge = active[huge]
        idle = np.ones(len(queries.sizes), bool)
        idle[active] = False
        self._idle = np.flatnonzero(np.repeat(idle, queries.sizes))  # rows of queries in which there is nothing to learn
        if loss.hessian_constant < 1:
            sizes_of_all = np.abs(self.gradient(np.zeros(self.rows))).sum()
            weights_of_all = np.broadcast_to(self._row_weight(), self.rows).sum()
            total, weight = queries.reduce(np.array([sizes_of_all, weights_of_all]), "sum")
            self._scale /= total / weight if total > 0 and weight > 0 else 1.0

    def _part(self, which: NDArray[np.bool_], cost: Array, long: bool) -> _Part:
        from ._kernels import gradients

        queries = self._active[which]
        longest = int(self.queries.sizes[queries].max(initial=0))
        scratch = functools.partial(gradients.make_scratch, longest, self.queries.cut, long)
        return _Part(queries, cost[which], _threads.Spare(scratch))

    def gradient(self, scores: ArrayLike, iteration: int = 0) -> Array:
        """d(loss)/d(score), to be minimised: float64, one a row. `iteration` selects the noise."""
        from ._kernels import gradients, noise

        q, loss = self.queries, self.loss
        values = as_vector("scores", scores, q.rows)
        key = noise.stream_key(loss.seed, check_whole("iteration", iteration, 0), SMOOTHING)
        threads = _threads.check(loss.threads)
        out, suspicious = np.empty(q.rows), np.zeros(1, np.bool_)
        out[self._idle] = 0.0
        data = (out, suspicious, values, q.ptr, q.order, q.gains, q.relevance, q.relevant, self._scale, self.keys)
        numbers = (float(loss.sigma), float(loss.mu), float(loss.nu), float(loss.sfa), int(loss.samples))
        short = gradients.gradient_range if loss.estimator == "ccs" else gradients.reinforce_range
        for part, kernel in ((self._short, short), (self._long, gradients.long_range)):
            if len(part.queries):
                work = functools.partial(
                    _call, kernel, (*data, part.queries), (q.metric.rule, q.position_weights, q.cut, *numbers, key)
                )
                _threads.run(work, _threads.borders(part.cost, threads), threads, part.scratch)
        for query in self._huge:
            self._huge_query(out, suspicious, values, int(query), key, threads)
        if suspicious[0] or not np.isfinite(values[self._idle]).all():
            check_finite(values)
        if self._row_weights is not None:
            out *= self._row_weights
        return out

    def derivatives(self, scores: ArrayLike, iteration: int = 0) -> tuple[Array, Array | None]:
        """The gradient, and None or, if hessian_constant is below 1, what to divide by.

        A smoothed metric is not convex: its true second derivative is of no use.
        """
        gradient = self.gradient(scores, iteration)
        constant = self.loss.hessian_constant
        if constant == 1:
            return gradient, None
        hessian = np.abs(gradient)
        hessian *= 1.0 - constant
        hessian += max(constant, _LEAST) * self._row_weight()
        return gradient, hessian

    def _huge_query(
        self, out: Array, suspicious: NDArray[np.bool_], values: Array, query: int, key: np.uint64, threads: int
    ) -> None:
        """One query at a time, its documents shared among threads."""
        from ._kernels import gradients

        q, loss = self.queries, self.loss
        begin, n = int(q.ptr[query]), int(q.sizes[query])
        scratch = gradients.make_scratch(n, q.cut, min(q.cut + 1, n) > FAST_FROM)
        data, rule = (values, q.order, q.gains, q.relevance), (q.metric.rule, q.position_weights, q.cut)
        suspicious[0] |= not gradients.load_one(scratch, *data, begin, n, *rule, float(loss.sigma), float(loss.mu))
        wide = len(scratch.z)  # n, padded
        blocks, documents = _threads.pieces(wide // 4, _PIECE), _threads.pieces(wide, _PIECE)
        positions = _threads.pieces(wide, -(-wide // threads))  # as few as can be: each begins with the start of its box
        factor = -self._scale[query] / (loss.sigma * loss.samples)
        for sample in range(loss.samples):
            draw = functools.partial(gradients.draw_one, scratch, n, key, self.keys[query], sample)
            _threads.run(draw, blocks, threads)
            top, last, reach, boxes, passed = gradients.rank_one(scratch, n, *rule)
            add = functools.partial(gradients.add_one, scratch, n, q.relevant[query], top, boxes, passed)
            _threads.run(add, positions if boxes else documents, threads, _threads.Spare(gradients.make_work))
            gradients.finish_one(
                scratch, out, q.order, begin, n, top, last, reach, boxes,
                float(loss.nu), float(loss.sfa), factor, sample + 1 == loss.samples,
            )  # fmt: skip


StochasticRank._bound_type = BoundStochasticRank
