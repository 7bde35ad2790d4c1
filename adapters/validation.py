"""Cross-validation by query, for any of the rankers: values per query, standard errors, and paired comparisons."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from stochasticrank_objectives._constants import Array, Integers
from stochasticrank_objectives._data import check_labels
from stochasticrank_objectives.evaluation import Empty, Ties, evaluate
from stochasticrank_objectives.metrics import Metric, parse_metric

from ._common import ReportedMetric
from ._estimator import Queries, Ranker, pointers_of, query_weights, split_qid

__all__ = ["Comparison", "CrossValidation", "Mean", "cross_validate"]


class Mean(NamedTuple):
    """A mean over queries, and its standard error."""

    mean: float
    standard_error: float


class Comparison(NamedTuple):
    """The mean difference of two estimators over the same queries, its standard error and its p-value."""

    difference: float
    standard_error: float
    p: float


@dataclasses.dataclass(frozen=True)
class CrossValidation:
    """What `cross_validate` found, query by query."""

    metric: Metric
    values: dict[str, Array]
    """The metric of each query, for each estimator, by models that did not see the query; NaN where it was skipped."""
    scores: dict[str, Array]
    """The score of each row, likewise."""
    folds: Integers
    """The fold of each query."""
    weights: Array | None
    """The weight of each query."""

    def mean(self, name: str) -> Mean:
        """The mean of one estimator over queries, with its standard error."""
        return _mean(self.values[self._known(name)], self.weights)

    def compare(self, one: str, other: str) -> Comparison:
        """How much better `one` is than `other`, query by query.

        `p` is that of a paired two-sided t-test. It takes queries as independent and the models as they are: it says
        whether other queries would agree, not whether trainings with another seed would.
        """
        differences = self.values[self._known(one)] - self.values[self._known(other)]
        difference, error = _mean(differences, self.weights)
        return Comparison(difference, error, _p(difference, error, len(_counted(differences, self.weights)[0])))

    def _known(self, name: str) -> str:
        if name not in self.values:
            raise ValueError(f"no estimator is called {name!r}; there are {', '.join(map(repr, self.values))}")
        return name

    def __str__(self) -> str:
        wide = max(map(len, self.values))
        lines = [f"{self.metric} of {len(self.folds)} queries, {self.folds.max() + 1} folds"]
        best = max(self.values, key=lambda name: self.mean(name).mean)
        for name in self.values:
            mean, error = self.mean(name)
            line = f"{name:{wide}}  {mean:.4f} ± {error:.4f}"
            if name != best:
                difference = self.compare(name, best)
                line += f"  {difference.difference:+.4f} ± {difference.standard_error:.4f} to {best}, p = {difference.p:.2g}"
            lines.append(line)
        return "\n".join(lines)


def cross_validate(
    estimators: Mapping[str, Any],
    X: Any,
    y: ArrayLike,
    *,
    qid: ArrayLike | None = None,
    group: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
    metric: str | Metric | ReportedMetric | None = None,
    folds: int = 5,
    validation: float = 0.0,
    seed: int = 0,
    progress: bool = True,
) -> CrossValidation:
    """Train estimators on all folds of queries but one, and measure them on that one, for each fold in turn.

    All estimators get the same folds. Each query is measured once, by models that have not seen it.

    Parameters
    ----------
    estimators
        Names and estimators: `XGBoostRanker`, `LightGBMRanker`, `CatBoostRanker`, pipelines that end in one of them, or any
        estimator whose `fit` takes `qid`, `group` or `group_id`, such as `xgboost.XGBRanker`, for comparison.
    X, y
        Features and labels; the rows of a query stand together. `X` is an array, a sparse matrix or a DataFrame.
    qid, group
        The query id of each row, or the size of each query; or `X` has a column ``qid``.
    sample_weight
        One per query, or one per row that is the same throughout a query: for training, and in means.
    metric
        What is measured; by default the metric that the estimators report, which must be the same.
    folds
        How many, at least 2; queries are dealt out at random.
    validation
        The share of the training queries that is held out as `eval_set`, for early stopping; only for our own rankers.
    seed
        Selects the folds. Estimators have their own `random_state`.
    progress
        Show progress, if tqdm is installed.

    Examples
    --------
    >>> from stochasticrank_objectives.adapters import LightGBMRanker
    >>> from stochasticrank_objectives.datasets import make_ranking
    >>> data = make_ranking(40)
    >>> found = cross_validate(
    ...     {"deep": LightGBMRanker(n_estimators=9), "flat": LightGBMRanker(n_estimators=9, max_depth=1)},
    ...     data.features, data.labels, qid=data.qid, folds=2, progress=False)
    >>> found.mean("deep").mean > 0.5, found.values["flat"].shape
    (True, (40,))
    >>> -1 < found.compare("deep", "flat").difference < 1
    True
    """
    from sklearn.base import clone

    if not isinstance(estimators, Mapping) or not estimators:
        raise ValueError("estimators must be a dict of names and estimators, with at least one")
    measured, ties, empty = _metric_of(estimators, metric)
    features, column = split_qid(X)
    labels = check_labels(np.asarray(y))
    if features.shape[0] != len(labels):
        raise ValueError(f"X has {features.shape[0]} rows, but y has {len(labels)}")
    pointers = pointers_of(Queries(qid, group), column, len(labels))
    weights = None if sample_weight is None else query_weights(sample_weight, pointers)
    of_query = _folds(len(pointers) - 1, folds, seed)
    if not 0 <= validation < 1:
        raise ValueError(f"validation must be a share from 0 up to 1, got {validation!r}")

    sizes = np.diff(pointers)
    scores = {name: np.empty(len(labels)) for name in estimators}
    for name, fold in _shown([(name, fold) for fold in range(folds) for name in estimators], progress):
        train = np.flatnonzero(of_query != fold)
        held = np.random.default_rng([seed, fold, 1]).permutation(len(train)) < round(validation * len(train))
        if held.all() or (validation and not held.any()):
            raise ValueError(f"validation={validation} of {len(train)} queries leaves none on one of the sides")
        part = _Part(features, labels, sizes, weights)
        estimator = clone(estimators[name])
        part.train(estimator, train[~held], train[held] if validation else None)
        rows = part.rows(np.flatnonzero(of_query == fold))
        scores[name][rows] = np.asarray(estimator.predict(_take(features, rows)))
    values = {
        name: evaluate(measured, scores[name], labels, sizes, ties=ties, empty=empty, per_query=True) for name in estimators
    }
    return CrossValidation(measured, values, scores, of_query, weights)


def _metric_of(estimators: Mapping[str, Any], metric: Any) -> tuple[Metric, Ties, Empty]:
    """What to measure by: what was given, or what all estimators that report a metric report."""
    if isinstance(metric, ReportedMetric):
        return metric.metric, metric.ties, metric.empty
    if metric is not None:
        return parse_metric(metric), "worst", 0.0
    last = {name: _last(estimator) for name, estimator in estimators.items()}
    reported = {name: ranker._reported() for name, ranker in last.items() if isinstance(ranker, Ranker)}
    if len(set(reported.values())) != 1:
        said = ", ".join(f"{name}: {found[0]}" for name, found in reported.items()) or "none of them reports one"
        raise ValueError(f"the estimators do not agree on a metric ({said}); give metric=, such as metric='ndcg@10'")
    return next(iter(reported.values()))


def _folds(queries: int, folds: int, seed: int) -> Integers:
    if isinstance(folds, bool) or not isinstance(folds, (int, np.integer)) or not 2 <= folds <= queries:
        raise ValueError(f"folds must be a whole number from 2 to the number of queries, {queries}, got {folds!r}")
    dealt: Integers = np.arange(queries) % folds
    return np.random.default_rng([seed, 0]).permutation(dealt)


def _shown(work: list[Any], progress: bool) -> Iterator[Any]:
    if progress:
        try:
            from tqdm.auto import tqdm
        except ImportError:
            pass
        else:
            bar = tqdm(work, unit="training")
            for one in bar:
                bar.set_postfix_str(f"{one[0]}, fold {one[1] + 1}")
                yield one
            return
    yield from work


# ------------------------------------------------------------ parts of the data


def _take(X: Any, rows: Integers) -> Any:
    return X.iloc[rows] if hasattr(X, "iloc") else (np.asarray(X) if isinstance(X, (list, tuple)) else X)[rows]


def _last(estimator: Any) -> Any:
    """The estimator itself, or the last step of a pipeline."""
    return estimator.steps[-1][1] if hasattr(estimator, "steps") else estimator


class _Part(NamedTuple):
    """The data, of which estimators are given some queries."""

    X: Any
    labels: Array
    sizes: Integers
    weights: Array | None

    def rows(self, queries: Integers) -> Integers:
        """The rows of some queries."""
        chosen = np.zeros(len(self.sizes), bool)
        chosen[queries] = True
        return np.flatnonzero(np.repeat(chosen, self.sizes))

    def train(self, estimator: Any, queries: Integers, held: Integers | None) -> None:
        """Train on some queries, and watch others."""
        last, rows = _last(estimator), self.rows(queries)
        prefix = f"{estimator.steps[-1][0]}__" if hasattr(estimator, "steps") else ""
        arguments: dict[str, Any] = dict([self._queries_for(last, queries)])
        if self.weights is not None:
            arguments["sample_weight"] = self._weights_for(last, queries)
        if held is not None:
            if not isinstance(last, Ranker) or prefix:
                raise ValueError(f"validation is for our rankers by themselves, not for {type(estimator).__name__}")
            watched = self.rows(held)
            arguments["eval_set"] = [(_take(self.X, watched), self.labels[watched])]
            arguments["eval_group"] = [self.sizes[held]]
            if self.weights is not None:
                arguments["eval_sample_weight"] = [self.weights[held]]
        estimator.fit(
            _take(self.X, rows), self.labels[rows], **{f"{prefix}{name}": value for name, value in arguments.items()}
        )

    def _queries_for(self, estimator: Any, queries: Integers) -> tuple[str, Any]:
        takes = inspect.signature(estimator.fit).parameters
        sizes = self.sizes[queries]
        if "group" in takes:
            return "group", sizes
        for name in ("qid", "group_id"):
            if name in takes:
                return name, np.repeat(np.arange(len(sizes)), sizes)
        raise ValueError(f"fit of {type(estimator).__name__} takes none of qid, group and group_id")

    def _weights_for(self, estimator: Any, queries: Integers) -> Array:
        assert self.weights is not None
        per_query = isinstance(estimator, Ranker) or "XGB" in type(estimator).__name__  # XGBRanker takes them per query
        weights = self.weights[queries]
        return weights if per_query else np.repeat(weights, self.sizes[queries])


# ------------------------------------------------------------ statistics


def _counted(values: Array, weights: Array | None) -> tuple[Array, Array]:
    """Values of the queries that count, and their weights."""
    w = np.ones(len(values)) if weights is None else weights
    counted = np.isfinite(values) & (w > 0)
    return values[counted], w[counted]


def _mean(values: Array, weights: Array | None) -> Mean:
    """The weighted mean, and its standard error: without weights, the sample's standard deviation over sqrt(n)."""
    found, w = _counted(values, weights)
    queries = len(found)
    if queries < 2:
        return Mean(float(found[0]) if queries else float("nan"), float("nan"))
    mean = float(found @ w / w.sum())
    return Mean(mean, float(np.sqrt(w**2 @ (found - mean) ** 2 * queries / (queries - 1)) / w.sum()))


def _p(difference: float, error: float, queries: int) -> float:
    from scipy.stats import t

    if error == 0:
        return float(difference == 0)
    return float(2 * t.sf(abs(difference) / error, queries - 1))
