"""A checker for metrics, the package's own and yours: does a metric have what the theory of StochasticRank asks for?"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from ._constants import Array
from .evaluation import evaluate
from .losses import StochasticRank
from .metrics import Metric, parse_metric

Noise = Literal["normal", "logistic"]

_GRADES = ((0.0, 1.0, 2.0, 3.0, 4.0), (0.0, 0.25, 0.5, 1.0), (0.0, 1.0))
_DRAWS = 20_000  # of the estimate whose bias is looked for
_TRUTH = 200_000  # of the slow estimate that it is compared with
_ERRORS = 5.0  # standard errors that two unbiased estimates may differ by
_ROUNDING = 1e-9


def check_metric(
    metric: str | Metric,
    *,
    grades: Sequence[float] | None = None,
    translation: bool = True,
    monotone: bool = True,
    seed: int = 0,
) -> None:
    """Raise an AssertionError that says what is wrong if a metric is not what StochasticRank needs.

    The metric is tried on random lists:

    - bounded: every value is finite, and does not grow faster than the list;
    - scale-free: scores times a positive number have the same value;
    - translation-invariant: so do scores that all have moved by the same number;
    - monotone: a document that moves up past a less relevant one never makes the list worse, which is the paper's class R1;
      with labels of several columns, less relevant means more in no column and less in some;
    - unbiased: the gradient of `StochasticRank`, with normal and logistic noise and mu=0, is the true one. For two documents
      it is compared with the exact value, for five with the log-derivative estimate from 200,000 draws. Both must be within
      five standard errors, so that a bias of a few percent of the gradient is found, and a smaller one may not be.

    A metric that passes is in the paper's class R0, or R1 with `monotone`, as far as trying can tell.

    Parameters
    ----------
    metric
        A name such as ``"ndcg@10"`` or a metric.
    grades
        Labels to try; by default 0 to 4, or what the metric takes between 0 and 1.
    translation, monotone
        False for a metric that need not have this property.
    seed
        Selects what is tried.

    Examples
    --------
    >>> from stochasticrank_objectives import NDCG
    >>> check_metric(NDCG(10))
    """
    checked = _Checked(parse_metric(metric), grades, seed)
    checked.bounded()
    checked.same("scale-free", "multiplied by", (0.01, 7.0), lambda scores, number: scores * number)
    if translation:
        checked.same("translation-invariant", "moved by", (-3.0, 100.0), lambda scores, number: scores + number)
    if monotone:
        checked.monotone()
    noises: tuple[Noise, ...] = ("normal", "logistic")
    for noise in noises:
        if translation:
            checked.exact_pair(noise)
        checked.unbiased(noise)


class _Checked:
    """A metric with labels that suit it."""

    def __init__(self, metric: Metric, grades: Sequence[float] | None, seed: int) -> None:
        self.metric = metric
        self.rng = np.random.default_rng(seed)
        components = [component for _, part in metric.parts() for component in part.components()]
        self.columns = list(dict.fromkeys(column for _, column, _ in components))
        self.grades = np.array(self._suitable() if grades is None else grades, np.float64)

    def _suitable(self) -> Sequence[float]:
        refused = ""
        for grades in _GRADES:
            try:
                self.values(np.zeros((1, len(grades))), np.tile(grades, (len(self.columns), 1, 1)))
            except ValueError as error:
                refused = str(error)
            else:
                return grades
        raise AssertionError(f"{self.metric} takes no labels that were tried; name some with grades=: {refused}")

    def labels(self, queries: int, n: int) -> Array:
        """Random labels by column, query and document."""
        return self.rng.choice(self.grades, (len(self.columns), queries, n))

    def _given(self, labels: Array) -> ArrayLike | dict[str, Array]:
        if self.columns == [None]:
            flat: Array = labels[0].ravel()
            return flat
        # a term without a column takes the first; the name of it does not matter
        named = sorted(zip(self.columns, labels, strict=True), key=lambda pair: pair[0] is not None)
        return {"" if column is None else column: of_column.ravel() for column, of_column in named}

    def values(self, scores: Array, labels: Array) -> Array:
        """The metric of each query."""
        queries, n = scores.shape
        return evaluate(self.metric, scores.ravel(), self._given(labels), [n] * queries, per_query=True)

    def gradients(self, scores: Array, labels: Array, noise: Noise) -> Array:
        """Estimates of the gradient, one row per query."""
        queries, n = scores.shape
        loss = StochasticRank(self.metric, mu=0.0, sfa=False, noise=noise, seed=int(self.rng.integers(2**31)))
        return loss.bind(self._given(labels), [n] * queries).gradient(scores.ravel()).reshape(queries, n)

    def bounded(self) -> None:
        shares = []
        for n in (1, 2, 10, 100, 1000):
            try:
                values = self.values(self.rng.normal(size=(20, n)), self.labels(20, n))
            except ValueError as error:
                raise AssertionError(f"{self.metric} fails for lists of {n} documents: {error}") from error
            assert np.isfinite(values).all(), f"{self.metric} is not finite for some lists of {n} documents"
            shares.append(np.abs(values).max() / n)
        assert shares[-1] <= 2 * max(shares[:-1]), f"{self.metric} is not bounded: it grows faster than the list"

    def same(self, what: str, how: str, numbers: Sequence[float], change: Callable[[Array, float], Array]) -> None:
        for n in (2, 7, 40):
            scores, labels = self.rng.permuted(np.tile(np.arange(n) - n / 3, (50, 1)), axis=1), self.labels(50, n)
            before = self.values(scores, labels)
            for number in numbers:
                off = np.abs(self.values(change(scores, number), labels) - before)
                assert off.max() <= _ROUNDING, (
                    f"{self.metric} is not {what}: scores {how} {number:g} change it by {off.max():g}"
                )

    def monotone(self) -> None:
        for n in (2, 3, 8, 30):
            scores, labels = np.tile(-np.arange(n, dtype=np.float64), (400, 1)), self.labels(400, n)
            at, queries = self.rng.integers(0, n - 1, 400), np.arange(400)
            upper, lower = labels[:, queries, at], labels[:, queries, at + 1]
            swapped = labels.copy()
            swapped[:, queries, at], swapped[:, queries, at + 1] = lower, upper
            change = self.values(scores, swapped) - self.values(scores, labels)
            worse = (lower >= upper).all(0) & (lower > upper).any(0) & (change < -_ROUNDING)
            if worse.any():
                query = int(np.argmax(worse))
                raise AssertionError(
                    f"{self.metric} is not monotone in relevance: it falls by {-change[query]:g} when, in the list "
                    f"{np.squeeze(labels[:, query]).tolist()}, the document at position {at[query] + 1} moves up"
                )

    def _compare(self, found: Array, truth: Array, truth_error: Array | float, what: str) -> None:
        error = np.sqrt(found.var(axis=0, ddof=1) / len(found) + np.square(truth_error))
        mean = found.mean(axis=0)
        off = np.abs(mean - truth) - _ERRORS * error - _ROUNDING
        assert (off <= 0).all(), (
            f"{self.metric}: the gradient is biased for {what}: its mean is {mean.tolist()}, the truth "
            f"{np.asarray(truth).tolist()}, the standard error {error.tolist()}"
        )

    def exact_pair(self, noise: Noise) -> None:
        """Two documents: M jumps where the difference of their noises crosses that of their scores."""
        for _ in range(3):
            labels, scores = self.labels(1, 2), np.array([[0.3, -0.4]])
            first, second = (float(self.values(order, labels)[0]) for order in (scores, scores[:, ::-1]))
            d = scores[0, 0] - scores[0, 1]
            if noise == "normal":
                density = math.exp(-d * d / 4.0) / math.sqrt(4.0 * math.pi)
            else:  # of the difference of two standard logistic variables
                e = math.exp(d)
                density = e * ((d - 2.0) * e + d + 2.0) / (e - 1.0) ** 3
            truth = -(first - second) * density * np.array([1.0, -1.0])
            found = self.gradients(np.tile(scores, (_DRAWS, 1)), np.tile(labels, (1, _DRAWS, 1)), noise)
            self._compare(found, truth, 0.0, f"two documents and {noise} noise")

    def unbiased(self, noise: Noise) -> None:
        """Five documents: E[(M(z + noise) - M(z)) s(noise)] is the gradient, s = -(log density)'."""
        labels, scores = self.labels(1, 5), np.array([[0.3, -0.4, 0.1, 0.8, -0.2]])
        drawn = self.rng.normal(size=(_TRUTH, 5)) if noise == "normal" else self.rng.logistic(size=(_TRUTH, 5))
        slope = drawn if noise == "normal" else np.tanh(drawn / 2.0)
        change = self.values(scores + drawn, np.tile(labels, (1, _TRUTH, 1))) - self.values(scores, labels)
        estimates = -change[:, None] * slope
        found = self.gradients(np.tile(scores, (_DRAWS, 1)), np.tile(labels, (1, _DRAWS, 1)), noise)
        truth_error = np.sqrt(estimates.var(axis=0, ddof=1) / _TRUTH)
        self._compare(found, estimates.mean(axis=0), truth_error, f"five documents and {noise} noise")
