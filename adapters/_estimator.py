"""What the rankers share: scikit-learn's conventions, the loss with its parameters, and data that come in queries."""

from __future__ import annotations

import abc
import dataclasses
import functools
import inspect
import os
import warnings
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from stochasticrank_objectives._constants import Array, Integers
from stochasticrank_objectives._data import check_labels, check_weights, pointer
from stochasticrank_objectives.evaluation import Empty, Ties, evaluate
from stochasticrank_objectives.losses import Loss
from stochasticrank_objectives.metrics import Metric
from stochasticrank_objectives.propensity import debias

from ._common import ReportedMetric, as_loss, reported_metric, require, threads_beside

require("sklearn")
from scipy.sparse import csr_matrix  # noqa: E402
from sklearn.base import BaseEstimator  # noqa: E402
from sklearn.exceptions import NotFittedError  # noqa: E402
from sklearn.utils import check_array, column_or_1d  # noqa: E402

_UNCHECKED = {
    name: False for name in ("ensure_all_finite", "force_all_finite") if name in inspect.signature(check_array).parameters
}
_SEEDS = ("random_state", "seed", "random_seed")
_THREADS = ("n_jobs", "nthread", "nthreads", "num_thread", "num_threads", "thread_count")
_RATES = ("learning_rate", "eta", "shrinkage_rate")
_CLICKS = ("propensities", "clip")  # of `debias`
_OBJECTIVES = ("objective", "objective_type", "app", "application", "loss_function")


# ------------------------------------------------------------ data


class Data(NamedTuple):
    """Rows that a ranker is given, checked."""

    X: Any  # features alone
    labels: Array
    sizes: Integers  # of the queries
    weights: Array | None  # one per query

    @property
    def ids(self) -> Integers:
        """The number of each row's query."""
        return np.repeat(np.arange(len(self.sizes)), self.sizes)

    @property
    def row_weights(self) -> Array | None:
        """The weight of each row's query."""
        return None if self.weights is None else np.repeat(self.weights, self.sizes)


class Seen(NamedTuple):
    """The features that a ranker was fitted to."""

    features: int
    names: list[str] | None


class Queries(NamedTuple):
    """The queries of some rows, their weights, and the positions at which rows were shown, as they were given."""

    qid: ArrayLike | None = None
    group: ArrayLike | None = None
    weights: ArrayLike | None = None
    positions: ArrayLike | None = None


def _columns(X: Any) -> list[Any] | None:
    """Names of the columns of a DataFrame of pandas, polars or arrow; None for anything else."""
    names = getattr(X, "column_names", None)  # arrow's `columns` are the columns themselves
    names = getattr(X, "columns", None) if names is None else names
    return None if names is None else list(names)


def split_qid(X: Any) -> tuple[Any, Any]:
    """Features and, from a DataFrame that has a column named qid, that column; polars and arrow become pandas."""
    if hasattr(X, "collect"):
        raise ValueError(f"X must be an array or a DataFrame with rows, got {type(X).__name__}; collect it first")
    names = _columns(X)
    if names is None:
        return X, None
    if hasattr(X, "iloc"):
        return (X.drop(columns="qid"), X["qid"].to_numpy()) if "qid" in names else (X, None)
    get = X.column if hasattr(X, "column") else X.get_column
    return (
        require("pandas").DataFrame({name: _column(get(name)) for name in names if name != "qid"}),
        np.asarray(get("qid").to_numpy()) if "qid" in names else None,
    )


def _column(column: Any) -> Any:
    """Numbers as they are, with NaN where one is missing; anything else, such as categories, as pandas has it."""
    values = column.to_numpy()
    return values if values.dtype.kind in "fiub" else column.to_pandas()


def query_weights(given: ArrayLike, pointers: Integers) -> Array:
    """Weights, one per query or one per row and constant within a query, as one per query."""
    rows = int(pointers[-1])
    weights = check_weights(column_or_1d(np.asarray(given)), len(pointers) - 1, rows)
    if len(weights) == rows:
        of_query = weights[pointers[:-1]]
        if (wrong := weights != np.repeat(of_query, np.diff(pointers))).any():
            at = int(np.argmax(wrong))
            raise ValueError(
                f"sample_weight[{at}] = {weights[at]:g} differs from its query's first; a query has one weight: give one "
                "per query, or the same to all rows of a query"
            )
        weights = of_query
    return weights


# ------------------------------------------------------------ the loss


def _fields(loss: Any) -> list[str]:
    return [field.name for field in dataclasses.fields(loss) if field.init] if dataclasses.is_dataclass(loss) else []


def changed(loss: Any, changes: dict[str, Any], prefix: str = "loss__") -> Any:
    """A loss with some fields changed; ``loss__mu`` names a field of the loss that is the field ``loss``, as in SGLB."""
    if not changes:
        return loss
    own = {name: value for name, value in changes.items() if "__" not in name}
    nested: dict[str, dict[str, Any]] = {}
    for name in changes.keys() - own.keys():
        head, _, rest = name.partition("__")
        nested.setdefault(head, {})[rest] = changes[name]
    for head in (*own, *nested):
        _check_field(loss, head, prefix)
    for head, values in nested.items():
        own[head] = changed(own.get(head, getattr(loss, head)), values, f"{prefix}{head}__")
    return dataclasses.replace(loss, **own)


def _check_field(loss: Any, name: str, prefix: str = "loss__") -> None:
    """Refuse the name of a field that a loss, or the one that it wraps, does not have."""
    head, below, rest = name.partition("__")
    if head not in _fields(loss):
        has = ", ".join(_fields(loss)) or "none that can be set here"
        raise ValueError(f"{prefix}{head}: {type(loss).__name__} has no such parameter; it has {has}")
    if below:
        _check_field(getattr(loss, head), rest, f"{prefix}{head}__")


def seeded(loss: Any, seed: int) -> Any:
    """A loss, and what it wraps, with a number added to its seeds."""
    changes: dict[str, Any] = {}
    if "seed" in _fields(loss):
        changes["seed"] = loss.seed + seed
    if "loss" in _fields(loss):
        changes["loss"] = seeded(loss.loss, seed)
    return dataclasses.replace(loss, **changes) if changes else loss


def _drawn(random_state: Any) -> int:
    """A seed from what scikit-learn calls random_state."""
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(np.iinfo(np.int32).max))
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(np.iinfo(np.int32).max))
    if isinstance(random_state, bool) or not isinstance(random_state, (int, np.integer)):
        raise ValueError(f"random_state must be a whole number, a numpy generator or None, got {random_state!r}")
    if not 0 <= random_state < 2**32:  # LightGBM would wrap a larger one
        raise ValueError(f"random_state must be at least 0 and below 2**32, as in scikit-learn, got {random_state}")
    return int(random_state)


class Plan(NamedTuple):
    """What a training is told: the loss, what is reported, and the booster's own parameters."""

    loss: Loss
    metric: Metric
    ties: Ties
    empty: Empty
    params: dict[str, Any]  # without names for the seed and the threads
    seed: int | None
    n_jobs: int | None


# ------------------------------------------------------------ the estimator


class Ranker(BaseEstimator, abc.ABC):  # type: ignore[misc]
    """What the rankers of the three boosters are made of; each is an estimator of its booster too."""

    _booster: ClassVar[str]
    _objective_class: ClassVar[type]
    _native: ClassVar[dict[str, Any]]  # parameters that the booster's estimator keeps as attributes, with their defaults
    _estimator_type = "ranker"
    __metadata_request__fit: ClassVar[dict[str, bool]] = {"qid": True}
    __metadata_request__score: ClassVar[dict[str, bool]] = {"qid": True}

    loss: Any
    metric: Any
    _extra: dict[str, Any]  # other parameters as given: of the loss, and of the booster
    _seen: Seen | None = None  # None before `fit`, and for a model that was loaded

    def _init(self, loss: Any, metric: Any, params: dict[str, Any]) -> dict[str, Any]:
        """Keep what is ours; give back what the booster's constructor takes."""
        self.loss = loss
        self.metric = metric
        self._extra = {name: value for name, value in params.items() if name not in self._native}
        self._check_names()
        return {name: value for name, value in params.items() if name in self._native}

    # parameters

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters: what is trained and reported, the booster's, and those of the loss that were given."""
        native = {name: getattr(self, name) for name in self._native}
        return {"loss": self.loss, "metric": self.metric, **native, **self._extra}

    def set_params(self, **params: Any) -> Any:
        """Set parameters for the next `fit`, those of the loss too, as ``loss__mu``.

        Without `metric` another `loss` may change what `score` returns. That makes searches compare what cannot be compared,
        so it warns.
        """
        if not params:
            return self
        reported, before = self._name_of_metric(), {**self.__dict__, "_extra": dict(self._extra)}
        for name, value in params.items():
            if name in ("loss", "metric") or name in self._native:
                setattr(self, name, value)
            else:
                self._extra[name] = value
        try:
            self._check_names()
        except ValueError:
            self.__dict__.update(before)  # as if it had not been called
            raise
        now = self._name_of_metric()
        if "loss" in params and "metric" not in params and None not in (reported, now) and reported != now:
            warnings.warn(
                f"with this loss score returns {now}, not {reported}; set metric= to compare losses by one metric",
                stacklevel=2,
            )
        return self

    def _name_of_metric(self) -> str | None:
        """What is reported; None if that cannot be told."""
        try:
            return str(self._reported()[0])
        except ValueError:
            return None

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        defaults = {"loss": None, "metric": None, **self._native}
        shown = [
            f"{name}={str(value) if dataclasses.is_dataclass(value) else repr(value)}"
            for name, value in self.get_params().items()
            if name not in defaults or repr(value) != repr(defaults[name])  # XGBoost's `missing` is NaN
        ]
        return f"{type(self).__name__}({', '.join(shown)})"

    def _known(self, name: str) -> bool:
        """Whether a name that is not among `_native` is a parameter of the booster, as far as can be told."""
        return name in (*_SEEDS, *_THREADS, *_CLICKS)

    def _check_names(self) -> None:
        """Refuse parameters of the loss that it does not have, as soon as they are set."""
        if refused := [name for name in _OBJECTIVES if self._extra.get(name) is not None]:
            raise ValueError(f"{refused[0]}={self._extra[refused[0]]!r}: pass a metric or a loss of this package as loss=")
        if not self._extra:
            return
        try:
            loss = self._base_loss()
        except ValueError:
            return  # a wrong value, which `fit` refuses
        for name in self._loss_changes(loss):
            _check_field(loss, name)

    def _base_loss(self) -> Any:
        """The loss before its parameters are changed."""
        if isinstance(self.loss, self._objective_class):
            return self.loss.loss  # type: ignore[attr-defined]
        metric = self.metric.metric if isinstance(self.metric, ReportedMetric) else self.metric
        given = next((one for one in (self.loss, metric) if one is not None), "ndcg@10")
        return as_loss(given, {}, booster=self._booster, train_on=self._extra.get("train_on"))

    def _loss_changes(self, loss: Any) -> dict[str, Any]:
        """Fields of the loss that parameters change."""
        found: dict[str, Any] = {}
        for name, value in self._extra.items():
            if self._of_loss(name, loss):
                field = name.removeprefix("loss__")
                if field in found:
                    raise ValueError(f"{field} and loss__{field} are the same parameter; give one of them")
                found[field] = value
        return found

    def _of_loss(self, name: str, loss: Any) -> bool:
        """Whether a parameter is the loss's: ``loss__mu``, or ``mu`` if the booster has no such parameter."""
        return name.startswith("loss__") or (name in _fields(loss) and not self._known(name))

    def _one_of(self, names: Sequence[str]) -> Any:
        """The value of a parameter that has several names."""
        values = self.get_params(deep=False)
        given = {name: values[name] for name in names if values.get(name) is not None}
        if len(given) > 1:
            raise ValueError(f"{', '.join(given)} are the same parameter; give one of them")
        return next(iter(given.values()), None)

    def _plan(self) -> Plan:
        """What all parameters together say, or a ValueError."""
        base = self._base_loss()
        loss = changed(base, self._loss_changes(base))
        random_state = self._one_of(_SEEDS)
        seed = None if random_state is None else _drawn(random_state)
        metric, ties, empty = self._reported()
        ours = {"train_on", *_SEEDS, *_THREADS, *_CLICKS, *(name for name in self._extra if self._of_loss(name, base))}
        given = {name: getattr(self, name) for name in self._native} | self._extra
        params = {name: value for name, value in given.items() if name not in ours}
        if self._one_of(_RATES) is None:
            params["learning_rate"] = getattr(loss, "learning_rate", None)  # the one that SGLB counts in
        return Plan(loss if seed is None else seeded(loss, seed), metric, ties, empty, params, seed, self._one_of(_THREADS))

    def _reported(self) -> tuple[Metric, Ties, Empty]:
        """The metric that is reported, and what counts as what in it."""
        if isinstance(self.metric, ReportedMetric):
            return self.metric.metric, self.metric.ties, self.metric.empty
        if self.metric is None and isinstance(self.loss, self._objective_class):
            return reported_metric(self.loss.loss, self.loss.metric), "worst", 0.0  # type: ignore[attr-defined]
        return reported_metric("ndcg@10" if self.loss is None else self.loss, self.metric), "worst", 0.0

    # data

    @property
    def feature_names_in_(self) -> Any:
        """Names of the features, if `fit` was given a DataFrame whose columns are named by strings."""
        names = self._names_of_model() if self._seen is None else self._seen.names
        if names is None:
            raise AttributeError(f"{type(self).__name__} has no feature_names_in_: it was not fitted to a DataFrame")
        return np.asarray(names, object)

    @feature_names_in_.deleter
    def feature_names_in_(self) -> None:  # scikit-learn's validation deletes it where there are no names
        pass

    def _names_of_model(self) -> list[str] | None:
        """Names of the features in a model that was loaded."""
        return None

    def _check_fitted(self) -> None:
        if not self.__sklearn_is_fitted__():
            raise NotFittedError(f"This {type(self).__name__} instance is not fitted yet: call fit first")

    def _features(self, X: Any, *, fitting: bool = False) -> tuple[Any, Any]:
        """Features, checked, and the column qid if there is one; `fitting` remembers their names."""
        X, qid = split_qid(X)
        names = _columns(X)
        if names is None:
            X = self._array(X)
        elif not len(X):
            raise ValueError("X is empty: Found array with 0 sample(s) while a minimum of 1 is required")
        named = names if names and all(isinstance(name, str) for name in names) else None
        if fitting:
            self._seen = Seen(X.shape[1], named)
        else:
            self._check_features(X, named)
        return X, qid

    def _array(self, X: Any) -> Any:
        X = check_array(X, accept_sparse="csr", estimator=self, input_name="X", **_UNCHECKED)
        if isinstance(X, np.ndarray):
            return X
        X = csr_matrix(X)  # not all boosters take sparse arrays, or indices of 64 bits
        if X.indices.dtype != np.int32 and max(*X.shape, X.nnz) < 2**31:
            X.indices, X.indptr = X.indices.astype(np.int32), X.indptr.astype(np.int32)
        return X

    def _check_features(self, X: Any, names: list[str] | None) -> None:
        """The same columns in the same order as in `fit`; the messages are scikit-learn's."""
        known = getattr(self, "feature_names_in_", None)
        if names is None and known is not None:
            warnings.warn(
                f"X does not have valid feature names, but {type(self).__name__} was fitted with feature names", stacklevel=4
            )
        elif names is not None and known is not None and names != list(known):
            message = "The feature names should match those that were passed during fit.\n"
            for title, odd in (
                ("Feature names unseen at fit time:", sorted(set(names) - set(known))),
                ("Feature names seen at fit time, yet now missing:", sorted(set(known) - set(names))),
            ):
                if odd:
                    shown = [*odd[:5], "..."] if len(odd) > 5 else odd
                    message += "\n".join([title, *(name if name == "..." else f"- {name}" for name in shown)]) + "\n"
            if set(names) == set(known):
                message += "Feature names must be in the same order as they were in fit.\n"
            raise ValueError(message)
        width = self.n_features_in_ if self._seen is None else self._seen.features
        if X.shape[1] != width:
            raise ValueError(
                f"X has {X.shape[1]} features, but {type(self).__name__} is expecting {width} features as input"
            )

    def _data(self, X: Any, y: Any, queries: Queries, *, fitting: bool = False) -> Data:
        """Everything about some rows, checked."""
        if y is None:
            raise ValueError(f"This {type(self).__name__} estimator requires y to be passed, but the target y is None.")
        features, column = self._features(X, fitting=fitting)
        rows = features.shape[0]
        if fitting and rows == 1:
            raise ValueError("there is one row only (n_samples = 1): nothing can be ranked")
        labels = column_or_1d(np.asarray(y), warn=True)
        if len(labels) != rows:
            raise ValueError(f"X and y must have as many rows: inconsistent numbers of samples, {rows} and {len(labels)}")
        labels = check_labels(labels, signed=self._reported()[0].signed)
        labels = self._corrected(labels, queries.positions)
        pointers = pointers_of(queries, column, rows)
        weights = None if queries.weights is None else query_weights(queries.weights, pointers)
        return Data(features, labels, np.diff(pointers), weights)

    def _corrected(self, labels: Array, positions: ArrayLike | None) -> Array:
        """Labels as they are, or clicks corrected for the positions at which they were made."""
        clicks = {name: self._extra[name] for name in _CLICKS if name in self._extra}
        propensities = clicks.pop("propensities", None)
        if propensities is None and positions is None and not clicks:
            return labels
        if propensities is None:
            raise ValueError(
                f"{'clip' if positions is None else 'positions'} needs propensities, how likely each position is to be "
                "looked at; set propensities=estimate_propensities(positions, clicks, items=...) on the estimator"
            )
        if positions is None:
            raise ValueError(
                "with propensities the labels are clicks, which need positions, where each row was shown; give positions=, "
                "in evaluation sets eval_positions=: 1 throughout for labels that do not come from clicks"
            )
        return debias(labels, positions, propensities, **clicks)

    def _evaluation_data(
        self, eval_set: Any, eval_qid: Any, eval_group: Any, eval_sample_weight: Any, eval_positions: Any, *more: Any
    ) -> list[tuple[Any, ...]]:
        """The data of each evaluation set, and what else was given for it."""
        sets = [] if eval_set is None else eval_set
        single = isinstance(sets, tuple) and len(sets) == 2 and not isinstance(sets[0], tuple)
        sets = [sets] if single else list(sets)

        def of_set(name: str, values: Any, at: int) -> Any:
            if values is None:
                return None
            if single and not (isinstance(values, (list, tuple)) and len(values) == 1 and np.ndim(values[0])):
                return values
            if len(values) != len(sets):
                raise ValueError(f"{name} must have one entry for each of the {len(sets)} of eval_set, got {len(values)}")
            return values[at]

        given = {"eval_qid": eval_qid, "eval_group": eval_group, "eval_sample_weight": eval_sample_weight}
        given["eval_positions"] = eval_positions
        if not sets and any(values is not None for values in given.values()):
            raise ValueError(f"{next(n for n, v in given.items() if v is not None)} was given without eval_set")
        return [
            (
                self._data(one_X, one_y, Queries(*(of_set(name, values, at) for name, values in given.items()))),
                *(of_set("each of the other evaluation arguments", values, at) for values in more),
            )
            for at, (one_X, one_y) in enumerate(sets)
        ]

    def _check_early_stopping(self, rounds: Any, sets: Sequence[Any]) -> None:
        if rounds is not None and not sets:
            raise ValueError(
                f"early_stopping_rounds={rounds!r} needs eval_set=[(X, y)] in fit, with eval_qid=[...], to stop on"
            )

    # what is measured

    def score(
        self,
        X: Any,
        y: ArrayLike,
        *,
        qid: ArrayLike | None = None,
        group: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        positions: ArrayLike | None = None,
    ) -> float:
        """The metric, averaged over queries.

        Parameters
        ----------
        X, y, qid, group, sample_weight, positions
            As in `fit`; the weights say how much each query counts.
        """
        self._check_fitted()
        data = self._data(X, y, Queries(qid, group, sample_weight, positions))
        metric, ties, empty = self._reported()
        threads = getattr(self.metric, "threads", None) if isinstance(self.metric, ReportedMetric) else None
        return evaluate(
            metric, self._scores(data.X), data.labels, data.sizes, weights=data.weights, ties=ties, empty=empty,
            threads=processors(self._one_of(_THREADS)) if threads is None else threads,
        )  # fmt: skip

    @abc.abstractmethod
    def _scores(self, X: Any) -> Any:
        """Scores of features that were checked."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.estimator_type = None  # scikit-learn has no type for rankers
        tags.classifier_tags = tags.regressor_tags = None
        tags.target_tags.required = tags.target_tags.positive_only = True
        tags.no_validation = False
        tags.input_tags.sparse = tags.input_tags.allow_nan = True
        return tags

    def _more_tags(self) -> dict[str, Any]:
        """The same for scikit-learn before 1.6."""
        boosters: dict[str, Any] = getattr(super(), "_more_tags", dict)()
        return {**boosters, "allow_nan": True, "requires_y": True, "requires_positive_y": True}


def pointers_of(queries: Queries, column: Any, rows: int) -> Integers:
    """Where each query begins, and the end, from the one of three places where queries are given."""
    given = [value for value in (queries.group, queries.qid, column) if value is not None]
    if len(given) != 1:
        raise ValueError(
            f"queries must be given once, got {len(given)} of: group (sizes of queries), qid (an id per row), a column "
            f"named 'qid' of a DataFrame X; GridSearchCV and its like need the column, or metadata routing of qid"
        )
    if queries.group is not None:
        return pointer(queries.group, None, rows)
    return pointer(None, np.asarray(given[0]), rows)


def processors(n_jobs: Any) -> int | None:
    """How many threads we use beside a booster with so many jobs; as in joblib, -1 means all processors, -2 all but one."""
    if n_jobs is not None and int(n_jobs) < -1:
        n_jobs = max((os.cpu_count() or 1) + 1 + int(n_jobs), 1)
    return threads_beside(n_jobs)


@functools.cache
def parameters_of(constructor: Any) -> dict[str, Any]:
    """Parameters of an estimator's constructor with their defaults, except the objective, which is ours."""
    return {
        parameter.name: parameter.default
        for parameter in inspect.signature(constructor).parameters.values()
        if parameter.kind in (parameter.KEYWORD_ONLY, parameter.POSITIONAL_OR_KEYWORD)
        and parameter.name not in ("self", "objective")
    }
