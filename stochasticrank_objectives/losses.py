"""StochasticRank: the gradient of a ranking metric, smoothed by noise on the scores."""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import _threads
from ._binding import BoundQueries, MetricLoss
from ._checks import check_number, check_seed, check_whole
from ._constants import FAST_FROM, SMOOTHING, Array, Integers, Problem, Smoothing, SumProblem
from ._data import Labels, Queries, Reduce, alone, as_vector, check_finite, stacked
from ._families import gradient_kernels
from ._listed import ListedGradient
from ._streams import stream_key
from .metrics import Metric, parse_metric

_ESTIMATORS = ("ccs", "reinforce")
_NOISES = ("normal", "logistic")
_LEAST = 1e-3  # a hessian without a constant part is at least this share of its mean at the start
_HUGE = 50_000  # documents in a query from which on threads share it
_DENSITY = 1.0 / math.sqrt(2.0 * math.pi)
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
        """d(loss)/d(score), one per row, to be minimised; `iteration` selects the noise."""

    def derivatives(self, scores: ArrayLike, iteration: int = 0) -> tuple[Array, Array | None]:
        """The gradient and the second derivative; None means that the loss has none, and boosters take 1."""


class Loss(Protocol):
    """What the adapters train with: parameters only, no data."""

    def bind(
        self,
        labels: Labels,
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

    The loss of a query with scores z and relevances r is minus the expectation of the metric of
    ``z - sigma*mu*r + sigma*noise``, with standard normal noise. Its gradient is estimated without bias from `samples`
    draws. Losses of queries are added.

    Parameters
    ----------
    metric
        A name such as ``"ndcg@10"`` or ``"0.7*ndcg@10 + 0.3*mrr"``, or a metric.
    sigma
        What the noise on the scores is multiplied by, above 0. The paper fixes 1: the scale of the scores adapts to it.
    mu
        Shift of relevant documents downwards, at least 0, in units of sigma per grade. 0 smooths towards the mean order of
        ties (the paper's SR-R1-soft), mu > 0 towards the worst order (SR-R1). The paper tunes it in 0.01..10. What it
        multiplies is the label, or for binary metrics 0 or 1 (for sums see `Sum`), scaled so that the largest in the bound
        data is 4. So mu means the same whatever the range of the labels: on grades from 0 to 4 it is the shift per grade.
        Metrics of a selection, such as `DCGRR`, have no worst order: for them it shifts nothing.
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
    noise
        The law of the noise: ``"normal"``, the paper's, with standard deviation 1, or ``"logistic"``, the standard logistic
        law with density e^-t/(1 + e^-t)^2, whose standard deviation is pi/sqrt(3) = 1.81 and whose tails are heavier: a
        document far from the others still feels them. Logistic noise goes with estimator="ccs", and costs more for metrics
        without a cut: the fast Gauss transform is for normal noise.
    hessian_constant
        What boosters divide a leaf's gradient by is ``hessian_constant * 1 + (1 - hessian_constant) * |gradient|`` per row,
        between 0 and 1. At 1 a leaf is the mean of its rows' gradients, as in the paper. At 0 it is the difference of their
        pulls up and down over their sum, between -1 and 1: a step whose size does not depend on the metric, or on how many
        rows hardly matter to it. Below 1 the gradient is given in units of its mean size per row at the start of training
        (all scores 0), so that what boosters compare with sums of hessians (regularisation, the least weight of a leaf)
        means about as much as at 1. Values below 1 need sfa=False, since such a step, unlike its gradient, would have a part
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
    noise: Literal["normal", "logistic"] = "normal"
    hessian_constant: float = 1.0
    seed: int = 0
    threads: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "metric", parse_metric(self.metric))
        check_number("sigma", self.sigma, 0, open_low=True, hint="it is what the noise is multiplied by")
        check_number("mu", self.mu, 0, hint="0 ranks ties in the mean order, more in the worst")
        check_number("nu", self.nu, 0, open_low=True, hint="the paper uses 0.01")
        if not isinstance(self.sfa, bool):
            check_number("sfa", self.sfa, 0, 1, hint="use True, False or a strength")
        check_whole("samples", self.samples, 1)
        check_seed(self.seed)
        if self.estimator not in _ESTIMATORS:
            raise ValueError(f'estimator must be "ccs" or "reinforce", got {self.estimator!r}')
        if self.noise not in _NOISES:
            raise ValueError(f'noise must be "normal" or "logistic", got {self.noise!r}')
        if self.noise != "normal" and self.estimator != "ccs":
            raise ValueError(f'noise={self.noise!r} goes with estimator="ccs", got estimator={self.estimator!r}')
        check_number("hessian_constant", self.hessian_constant, 0, 1, hint="1 is the paper's hessian of one per row")
        if self.hessian_constant < 1 and self.sfa:
            raise ValueError(
                f"hessian_constant={self.hessian_constant!r} goes with sfa=False, got sfa={self.sfa!r}; set "
                "hessian_constant=1 with sfa, as in the paper"
            )
        _threads.check(self.threads)

    def _bound(self, queries: Queries, weights: ArrayLike | None, query_keys: ArrayLike | None) -> BoundStochasticRank:
        return BoundStochasticRank(self, queries, weights, query_keys)

    @classmethod
    def paper(cls, metric: str | Metric, **changed: Any) -> StochasticRank:
        """The paper's settings, with the named ones changed: sigma = 1, nu = 0.01, one sample, SFA, a hessian of one.

        The paper tunes mu; 0.1 is the default here. It wraps the loss in `SGLB`.

        >>> print(StochasticRank.paper("ndcg@5", mu=0.3))
        StochasticRank('ndcg@5', mu=0.3)
        """
        settings: dict[str, Any] = {"sigma": 1.0, "mu": 0.1, "nu": 1e-2, "sfa": True, "samples": 1, "estimator": "ccs"}
        return cls(metric, **{**settings, "hessian_constant": 1.0, **changed})


class _Part(NamedTuple):
    """Queries that one kernel serves, what each costs, and what its threads work in."""

    kernel: str
    queries: Integers
    cost: Array
    scratch: _threads.Spare


class BoundStochasticRank(BoundQueries):
    """`StochasticRank` with its data; made by `StochasticRank.bind`."""

    loss: StochasticRank

    def __init__(
        self, loss: StochasticRank, queries: Queries, weights: ArrayLike | None, query_keys: ArrayLike | None
    ) -> None:
        super().__init__(loss, queries, weights, query_keys)
        rules = queries.for_kernels()
        self._rules = stacked(rules) if len(rules) > 1 else None
        rule = rules[0] if len(rules) == 1 else queries.rule
        self._rule = rule._replace(multipliers=rule.multipliers * self._query_weights)
        self._listed = [ListedGradient(term, self._layout, self._query_weights) for term in queries.listed]
        self._unit = 1.0
        sizes = queries.sizes[self._active]
        jumping = np.minimum(self._rule.cut + 1, sizes)
        fast, huge = jumping > FAST_FROM, sizes >= _HUGE
        usual = self._usual_kernel()
        if usual != "ccs" or self._rules is not None or queries.metric.family != "ranked":
            fast[:] = huge[:] = False  # one kernel serves all
        cost = loss.samples * sizes * (16.0 + np.minimum(jumping, FAST_FROM))
        self._parts = [self._part(usual, ~fast & ~huge, cost), self._part("fast_ccs", fast & ~huge, cost)]
        self._huge = self._active[huge]
        if not rules:
            self._parts, self._huge = [], self._active[:0]
        idle = np.ones(len(queries.sizes), bool)
        idle[self._active] = not rules
        self._idle = np.flatnonzero(np.repeat(idle, queries.sizes))  # rows of queries in which there is nothing to learn
        if loss.hessian_constant < 1:
            of_rows = np.abs(self.gradient(np.zeros(self.rows))).sum(), np.broadcast_to(self._row_weight(), self.rows).sum()
            total, weight = queries.reduce(np.array(of_rows), "sum")
            unit = float(total / weight) if total > 0 else 1.0
            self._rule = self._rule._replace(multipliers=self._rule.multipliers / unit)
            self._unit = unit

    def _usual_kernel(self) -> str:
        if self.loss.estimator == "reinforce":
            return "reinforce"
        return "ccs" if self.loss.noise == "normal" else "logistic_ccs"

    def _kernels(self) -> Any:
        """The module of the kernels that serve the metric."""
        return gradient_kernels(self.queries.metric.family, len(self.queries.rules))

    def _part(self, kernel: str, which: NDArray[np.bool_], cost: Array) -> _Part:
        queries = self._active[which]
        longest = int(self.queries.sizes[queries].max(initial=0))
        return _Part(kernel, queries, cost[which], _threads.Spare(functools.partial(self._scratch, longest)))

    def _scratch(self, n: int) -> Any:
        """What a thread works in, for queries of up to n documents."""
        if self.queries.metric.family != "ranked":
            return self._kernels().make_scratch(n)
        from ._kernels import gradients

        fast = self._usual_kernel() == "ccs" and min(self._rule.cut + 1, n) > FAST_FROM
        return gradients.make_scratch(n, self._rule.cut, fast)

    def _problem(self, iteration: int) -> Problem | SumProblem:
        from ._kernels.gauss import KAPPA, LOG2_E

        loss = self.loss
        key = stream_key(loss.seed, check_whole("iteration", iteration, 0), SMOOTHING)
        unit, peak = {"ccs": (KAPPA, _DENSITY), "reinforce": (KAPPA, 1.0), "logistic_ccs": (LOG2_E, 1.0)}[
            self._usual_kernel()
        ]
        smoothing = Smoothing(
            unit, peak, float(loss.sigma), float(loss.mu), float(loss.nu), float(loss.sfa), int(loss.samples), key
        )
        if self._rules is not None:
            return SumProblem(self._layout, self._rule, smoothing, self._rules)
        return Problem(self._layout, self._rule, smoothing)

    def gradient(self, scores: ArrayLike, iteration: int = 0) -> Array:
        """d(loss)/d(score), to be minimised: float64, one per row. `iteration` selects the noise."""
        kernels = self._kernels()
        values = as_vector("scores", scores, self.rows)
        problem, threads = self._problem(iteration), self._thread_count()
        out = np.empty(self.rows)
        out[self._idle] = 0.0
        finite = [bool(np.isfinite(values[self._idle]).all())]
        for part in self._parts:
            if len(part.queries):
                kernel = getattr(kernels, part.kernel)

                def work(scratch: Any, begin: int, end: int, kernel: Any = kernel, queries: Integers = part.queries) -> None:
                    finite.append(kernel(scratch, out, values, problem, queries[begin:end]))

                _threads.run(work, _threads.borders(part.cost, threads), threads, part.scratch)
        for query in self._huge:
            finite.append(self._share(out, values, problem, query, threads))
        for term in self._listed:
            finite.append(term.add(out, values, problem.smoothing, self._usual_kernel(), threads, self._unit))
        if not all(finite):
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

    def _share(self, out: Array, values: Array, problem: Any, query: np.int64, threads: int) -> bool:
        """The gradient of one huge query, each of its steps shared among threads; returns whether its scores are finite."""
        from ._kernels import gradients

        scratch = self._scratch(int(self.queries.sizes[query]))
        room = scratch.documents.shape[1]
        blocks, documents = _threads.pieces(room // 4, _PIECE), _threads.pieces(room, _PIECE)
        positions = _threads.pieces(room, -(-room // threads))  # as few as can be: each begins with the start of its box
        own = _threads.Spare(functools.partial(gradients.with_own_work, scratch))
        finite = bool(gradients.load_one(scratch, values, problem, query))
        for sample in range(problem.smoothing.samples):
            _threads.run(functools.partial(gradients.draw_one, scratch, problem, query, sample), blocks, threads)
            ranked = gradients.rank_one(scratch, problem, query)

            def add(s: Any, begin: int, end: int, ranked: Any = ranked) -> None:
                gradients.add_one(s, problem, query, ranked, begin, end)

            _threads.run(add, positions if ranked.boxes else documents, threads, own)
            gradients.settle_one(scratch, problem, query, ranked)
        gradients.finish_one(scratch, out, problem, query)
        return finite
