"""Stochastic gradient Langevin boosting: shrinkage and noise on every iteration, as a wrapper of any loss.

SGLB (Ustimenko & Prokhorenkova, ICML 2021) boosts  F <- c F + eps tree(gradient(F) + noise)  with c = 1 - gamma eps. The
boosters only ever add trees, so they hold G with F = s G instead, where s is the product of all c so far: the gradient is
taken at s G and given back divided by the next s. A ranking does not change with the scale, so G ranks exactly as F does.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import _threads
from ._checks import check_number, check_seed, check_whole
from ._constants import LANGEVIN, Array, Integers, Layout
from ._data import Labels, Reduce, alone, check_scores
from ._streams import stream_key
from .losses import BoundLoss, Loss, StochasticRank

_SMALLEST = 1e-12  # gradients are divided by s, and their squares must stay far from the end of float32


@dataclasses.dataclass(frozen=True)
class SGLB:
    """A loss with model shrinkage and gradient noise, which make boosting converge to the global optimum.

    Parameters
    ----------
    loss
        The loss to wrap, such as `StochasticRank`.
    learning_rate
        eps, above 0: must be the booster's own learning rate, because noise and shrinkage are measured in it.
    diffusion_temperature
        Inverse strength of the noise, above 0, as in CatBoost: each row's gradient gets sqrt(2/(eps T)) N(0, 1). The paper
        tunes it in 1e8..1e11. Infinity means no noise, only model shrinkage; a finite one needs a loss whose hessian is
        1 per row.
    model_shrink_rate
        gamma, at least 0, as in CatBoost: before iteration t the model is multiplied by 1 - gamma*eps ("Constant") or
        1 - gamma/t ("Decreasing"). The paper tunes it in 1e-5..1e-2.
    model_shrink_mode
        ``"Constant"`` or ``"Decreasing"``.
    seed
        Selects the noise, together with the iteration and the query.

    Examples
    --------
    >>> from stochasticrank_objectives import StochasticRank
    >>> loss = SGLB(StochasticRank("ndcg@10"), learning_rate=0.3, diffusion_temperature=1e8, model_shrink_rate=1e-3)
    >>> bound = loss.bind(labels=[0, 2, 1, 1, 0], groups=[3, 2])
    >>> bound.gradient([0.3, 0.1, 0.2, 0.0, 0.0], iteration=0).shape
    (5,)
    >>> round(loss.shrinkage(1000), 3)
    0.741
    """

    loss: Loss
    learning_rate: float = 0.1
    diffusion_temperature: float = 1e4
    model_shrink_rate: float = 1e-3
    model_shrink_mode: Literal["Constant", "Decreasing"] = "Constant"
    seed: int = 0

    def __post_init__(self) -> None:
        if not callable(getattr(self.loss, "bind", None)):
            raise ValueError(f'loss must be a loss such as StochasticRank("ndcg@10"), got {self.loss!r}')
        check_number("learning_rate", self.learning_rate, 0, open_low=True, hint="use the booster's own")
        if self.diffusion_temperature != math.inf:
            check_number("diffusion_temperature", self.diffusion_temperature, 0, open_low=True, hint="inf means no noise")
            if isinstance(self.loss, StochasticRank) and self.loss.hessian_constant < 1:
                raise ValueError(
                    "a finite diffusion_temperature goes with hessian_constant=1, because its noise is measured against "
                    f"gradients as they are, got {self.loss}; diffusion_temperature=inf shrinks the model without noise"
                )
        check_number("model_shrink_rate", self.model_shrink_rate, 0)
        check_seed(self.seed)
        if self.model_shrink_mode not in ("Constant", "Decreasing"):
            raise ValueError(f'model_shrink_mode must be "Constant" or "Decreasing", got {self.model_shrink_mode!r}')
        step = self.learning_rate if self.model_shrink_mode == "Constant" else 1.0
        if self.model_shrink_rate * step >= 1:
            what = "model_shrink_rate * learning_rate" if self.model_shrink_mode == "Constant" else "model_shrink_rate"
            raise ValueError(f"{what} must be below 1, got {self.model_shrink_rate * step:g}; the paper uses at most 1e-2")

    def __str__(self) -> str:
        changed = [
            f"{field.name}={getattr(self, field.name)!r}"
            for field in dataclasses.fields(self)
            if field.name not in ("loss", "seed") or (field.name == "seed" and self.seed)
        ]
        return f"SGLB({', '.join([str(self.loss), *changed])})"

    def shrinkage(self, iterations: int) -> float:
        """s after so many iterations: the paper's scores F are s times the booster's raw scores G."""
        iterations = check_whole("iterations", iterations, 0)
        if self.model_shrink_mode == "Constant":
            return math.exp(iterations * math.log1p(-self.model_shrink_rate * self.learning_rate))
        return _decreasing(self.model_shrink_rate, iterations)

    def true_scores(self, raw_scores: ArrayLike, iterations: int) -> Array:
        """The paper's F = s G from the raw scores G of a booster after so many iterations."""
        return self.shrinkage(iterations) * np.asarray(raw_scores, np.float64)

    def bind(
        self,
        labels: Labels,
        groups: ArrayLike | None = None,
        weights: ArrayLike | None = None,
        *,
        qid: ArrayLike | None = None,
        query_keys: ArrayLike | None = None,
        reduce: Reduce = alone,
    ) -> BoundSGLB:
        """Bind the loss underneath; parameters as in its own `bind`."""
        # A loss of someone else's, for one process, need not know `reduce`.
        shared: dict[str, Any] = {} if reduce is alone else {"reduce": reduce}
        return BoundSGLB(self, self.loss.bind(labels, groups, weights, qid=qid, query_keys=query_keys, **shared))


def _decreasing(rate: float, iterations: int) -> float:
    """prod_{t=1}^{iterations-1} (1 - rate/t), the shrinkage before iterations 1, 2, ...; the empty model needs none."""
    if iterations < 2:
        return 1.0
    return math.exp(math.lgamma(iterations - rate) - math.lgamma(iterations) - math.lgamma(1 - rate))


class BoundSGLB:
    """`SGLB` with its data; made by `SGLB.bind`. It has no state: all depends on the iteration."""

    def __init__(self, sglb: SGLB, bound: BoundLoss) -> None:
        self.loss = sglb
        self.bound = bound
        self._threads: int | None = None

    @property
    def rows(self) -> int:
        """How many scores it takes."""
        return self.bound.rows

    @property
    def ptr(self) -> Integers:
        """Where each query begins, and the end."""
        return self.bound.ptr

    @property
    def keys(self) -> NDArray[np.uint64]:
        """The number that selects each query's noise."""
        return self.bound.keys

    def __repr__(self) -> str:
        return f"<{self.loss} bound to {self.rows} rows in {len(self.keys)} queries>"

    @property
    def threads(self) -> int | None:
        """How many threads, where the loss underneath does not say; None means as many as there are processors."""
        return self._threads

    @threads.setter
    def threads(self, threads: int | None) -> None:
        self._threads = threads
        if hasattr(self.bound, "threads"):
            self.bound.threads = threads

    def noise(self, iteration: int) -> Array:
        """The Langevin noise of an iteration, one per row."""
        from ._kernels import noise
        from ._kernels.policy import aligned, plain

        out = np.empty(self.rows)
        key = stream_key(self.loss.seed, iteration, LANGEVIN)
        sizes = np.diff(self.ptr)
        layout = Layout(self.ptr, np.empty(0, np.int32), np.empty(0), self.keys)
        longest = plain(noise.room)(int(sizes.max()))

        def work(buffer: Array, begin: int, end: int) -> None:
            noise.fill_query_normals(buffer, out, layout, key, begin, end)

        wanted = getattr(self.loss.loss, "threads", None)
        threads = _threads.check(self.threads if wanted is None else wanted)
        borders = _threads.borders(sizes * 4.0, threads)
        _threads.run(work, borders, threads, _threads.Spare(lambda: aligned(longest)[0]))
        out *= math.sqrt(2.0 / (self.loss.learning_rate * self.loss.diffusion_temperature))
        return out

    def gradient(self, scores: ArrayLike, iteration: int = 0) -> Array:
        """The gradient that makes a booster's additive step an SGLB step; `scores` are the booster's own raw scores G."""
        return self.derivatives(scores, iteration)[0]

    def derivatives(self, scores: ArrayLike, iteration: int = 0) -> tuple[Array, Array | None]:
        """That gradient, and the second derivative of the loss underneath, at F = s G."""
        iteration = check_whole("iteration", iteration, 0)
        shrinkage, following = self.loss.shrinkage(iteration), self.loss.shrinkage(iteration + 1)
        if following < _SMALLEST:
            raise ValueError(
                f"by iteration {iteration} model_shrink_rate={self.loss.model_shrink_rate:g} has shrunk the model to "
                f"{following:.1g} of its size, too little to go on with; lower model_shrink_rate or stop earlier"
            )
        gradient, hessian = self.bound.derivatives(shrinkage * check_scores(scores, self.rows), iteration)
        if self.loss.diffusion_temperature != math.inf:
            gradient += self.noise(iteration)
        gradient /= following
        return gradient, hessian
