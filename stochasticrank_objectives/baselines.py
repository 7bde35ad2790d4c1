"""The methods that StochasticRank is compared with, as losses of the same core.

LambdaMART and LambdaLoss, each with a stochastic treatment, are pairwise losses with second derivatives; SoftRank and
REINFORCE are settings of `StochasticRank`.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from . import _threads
from ._binding import BoundQueries, MetricLoss, check_pairwise
from ._checks import check_number, check_seed, check_whole
from ._constants import GUMBEL, Array, Pairs
from ._data import Queries, check_scores
from ._streams import stream_key
from .losses import StochasticRank
from .metrics import DCG, Metric, parse_metric


@dataclasses.dataclass(frozen=True)
class LambdaMART(MetricLoss["BoundLambda"]):
    """Pairs of documents, weighted by how much the metric would change if the two were swapped.

    The loss of a query is ``sum |dM_ij| log(1 + exp(-sigma (z_i - z_j)))`` over all pairs in which i has a larger gain than
    j; dM_ij is the change of the metric when i and j change places in the ranking by the scores z. It is differentiated with
    dM held fixed. Pairs that do not change the metric, such as two documents both below its cut, do not count.
    Documents with equal scores are ranked in the worst order (less gain first, then the later row).

    References: Burges, "From RankNet to LambdaRank to LambdaMART: an overview", MSR-TR-2010-82; Wu, Burges, Svore & Gao,
    "Adapting boosting for information retrieval measures", Information Retrieval 2010. With `noise` it is the paper's
    E-lambda-MART: Bruch, Han, Bendersky & Najork, "A stochastic treatment of learning to rank scoring functions", WSDM 2020.

    Parameters
    ----------
    metric
        A name such as ``"ndcg@10"`` or ``"mrr"``, or a metric. All metrics work, sums of them with norm=False.
    sigma
        Steepness of the logistic function, above 0.
    norm
        Normalise as LightGBM does by default (its lambdarank_norm): the weight of a pair is divided by
        ``0.01 + |z_i - z_j|``, then a query's derivatives are multiplied by ``log2(1 + s)/s``, where s is twice the sum of
        the sizes of its pairs' first derivatives. It is not in the references, but often makes clearly better models.
    noise
        Strength of the noise, at least 0: scores are drawn from Gumbel(z, noise) before anything else is computed from them.
        The paper tunes it in 0..1; 0 is plain LambdaMART.
    samples
        Draws of the noise that are averaged.
    seed
        Selects the noise, together with the iteration and the query.
    threads
        How many threads; by default as many as there are processors, or NUMBA_NUM_THREADS. It never changes a result.

    Examples
    --------
    >>> bound = LambdaMART("ndcg@3").bind(labels=[0, 2, 1, 1, 0], groups=[3, 2])
    >>> gradient, hessian = bound.derivatives([0.3, 0.1, 0.2, 0.0, 0.0])
    >>> gradient.round(3).tolist()
    [0.281, -0.265, -0.016, -0.185, 0.185]
    """

    metric: str | Metric
    _: dataclasses.KW_ONLY
    sigma: float = 1.0
    norm: bool = False
    noise: float = 0.0
    samples: int = 1
    seed: int = 0
    threads: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "metric", parse_metric(self.metric))
        check_pairwise(type(self).__name__, self._bound_metric())
        check_number("sigma", self.sigma, 0, open_low=True, hint="it is the steepness of the logistic function")
        if not isinstance(self.norm, bool):
            raise ValueError(f"norm must be True or False, got {self.norm!r}")
        if self.norm and len(self._bound_metric().parts()) > 1:
            raise ValueError(
                f'norm=True is for a single metric, got the sum "{self.metric}"; use norm=False, or YetiLoss instead'
            )
        check_number("noise", self.noise, 0, hint="0 means none; the paper tunes it in 0..1")
        check_whole("samples", self.samples, 1)
        check_seed(self.seed)
        _threads.check(self.threads)

    def _bound(self, queries: Queries, weights: ArrayLike | None, query_keys: ArrayLike | None) -> BoundLambda:
        return BoundLambda(self, queries, weights, query_keys)

    def _steps(self, longest: int) -> Array:
        """What a pair weighs beside the swap, by the distance of the two in the ranking; empty if that is nothing."""
        return np.empty(0)


@dataclasses.dataclass(frozen=True)
class LambdaLoss(LambdaMART):
    """NDCG-Loss2++: LambdaMART for NDCG with a second weight of pairs, which makes it a bound of the metric.

    The loss of a query is ``sum (rho_ij + mu delta_ij) |G_i - G_j| log(1 + exp(-sigma (z_i - z_j)))`` over all pairs in
    which i has a larger gain than j. G is the gain divided by the ideal DCG (for DCG the gain itself),
    ``rho_ij = |1/D(p_i) - 1/D(p_j)|`` and ``delta_ij = |1/D(d) - 1/D(d + 1)|``, d = |p_i - p_j|, with ranks p counted from 1
    and D(p) = log2(1 + p). A cut at k works as in TensorFlow Ranking: only pairs with at least one of the two among the
    first k count, and 1/D(p) in rho is 0 for p > k.

    Reference: Wang, Li, Golbandi, Bendersky & Najork, "The LambdaLoss framework for ranking metric optimization", CIKM 2018
    (its logarithm has base 2: a factor). With `noise` it is the paper's E-lambda-Loss, see `LambdaMART`.

    Parameters
    ----------
    metric
        NDCG or DCG, by name or as a metric.
    mu
        Weight of delta, at least 0; 0 is LambdaMART. The paper uses 5.
    sigma, norm, noise, samples, seed, threads
        As in `LambdaMART`.

    Examples
    --------
    >>> bound = LambdaLoss("ndcg@3").bind(labels=[0, 2, 1, 1, 0], groups=[3, 2])
    >>> gradient, hessian = bound.derivatives([0.3, 0.1, 0.2, 0.0, 0.0])
    >>> gradient.round(3).tolist()
    [0.845, -1.096, 0.251, -1.107, 1.107]
    """

    _: dataclasses.KW_ONLY
    mu: float = 5.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.metric, DCG):
            raise ValueError(f'metric of LambdaLoss must be ndcg or dcg, got "{self.metric}"; LambdaMART takes every metric')
        check_number("mu", self.mu, 0, hint="the paper uses 5")

    def _steps(self, longest: int) -> Array:
        if self.mu == 0:
            return super()._steps(longest)
        discounts = 1.0 / np.log2(np.arange(1, longest + 1) + 1.0)
        steps: Array = self.mu * np.append(0.0, discounts[:-1] - discounts[1:])  # by distance, 0 for none
        return steps


class BoundLambda(BoundQueries):
    """`LambdaMART` or `LambdaLoss` with its data; made by `bind`."""

    loss: LambdaMART

    def __init__(self, loss: LambdaMART, queries: Queries, weights: ArrayLike | None, query_keys: ArrayLike | None) -> None:
        super().__init__(loss, queries, weights, query_keys)
        self._samples = loss.samples if loss.noise > 0 else 1
        sizes = queries.sizes[self._active]
        cuts = [np.minimum(rule.cut, sizes) for rule in queries.rules]
        self._cost = self._samples * sizes * (16.0 * len(cuts) + np.sum(cuts, axis=0))
        self._longest = int(sizes.max(initial=1))
        self._steps = loss._steps(self._longest)

    def gradient(self, scores: ArrayLike, iteration: int = 0) -> Array:
        """d(loss)/d(score), to be minimised: float64, one per row. `iteration` selects the noise, if there is any."""
        return self.derivatives(scores, iteration)[0]

    def derivatives(self, scores: ArrayLike, iteration: int = 0) -> tuple[Array, Array]:
        """The gradient and the second derivatives, one of each per row; both are 0 for a document without pairs."""
        from ._kernels import lambdas

        q, loss = self.queries, self.loss
        values = check_scores(scores, q.rows)
        key = stream_key(loss.seed, check_whole("iteration", iteration, 0), GUMBEL)
        pairs = Pairs(
            self._query_weights, self._steps, float(loss.sigma), bool(loss.norm), float(loss.noise), int(self._samples), key
        )
        gradient, hessian = np.zeros(q.rows), np.zeros(q.rows)

        def work(scratch: Any, begin: int, end: int) -> None:
            for rule in q.rules:  # a swap changes all terms in the same direction, so their pairs add up
                problem = (self._layout, rule, pairs)
                lambdas.lambda_range(scratch, gradient, hessian, values, problem, self._active[begin:end])

        if len(self._active):
            threads = self._thread_count()
            scratch = functools.partial(lambdas.make_pair_scratch, self._longest)
            _threads.run(work, _threads.borders(self._cost, threads), threads, _threads.Spare(scratch))
        if self._row_weights is not None:
            gradient *= self._row_weights
            hessian *= self._row_weights
        return gradient, hessian


def soft_rank(
    metric: str | Metric, *, sigma: float = 1.0, samples: int = 1, seed: int = 0, threads: int | None = None
) -> StochasticRank:
    """SoftRank as the paper ran it: the expected metric of normal scores, its gradient estimated by CCS.

    The same smoothing as StochasticRank, without its shift of relevant documents (mu = 0) and without scale-free
    acceleration. Reference: Taylor, Guiver, Robertson & Minka, "SoftRank: optimizing non-smooth rank metrics", WSDM 2008.

    >>> print(soft_rank("ndcg@5"))
    StochasticRank('ndcg@5', mu=0.0, sfa=False)
    """
    return StochasticRank(metric, sigma=sigma, mu=0.0, sfa=False, samples=samples, seed=seed, threads=threads)


def reinforce(
    metric: str | Metric, *, sigma: float = 1.0, samples: int = 1, seed: int = 0, threads: int | None = None
) -> StochasticRank:
    """The same expected metric as `soft_rank`, its gradient estimated by REINFORCE, as in the paper's ablation.

    Reference: Williams, "Simple statistical gradient-following algorithms for connectionist reinforcement learning",
    Machine Learning 1992.

    >>> print(reinforce("ndcg@5"))
    StochasticRank('ndcg@5', mu=0.0, sfa=False, estimator='reinforce')
    """
    return dataclasses.replace(
        soft_rank(metric, sigma=sigma, samples=samples, seed=seed, threads=threads), estimator="reinforce"
    )
