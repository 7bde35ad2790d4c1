"""CatBoost: an objective and a metric for ``CatBoost``, and a model that binds them to its data by itself.

One object must be both ``loss_function`` and ``eval_metric``: `_catboost_blocks` says why.
"""

from __future__ import annotations

import functools
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from stochasticrank_objectives._constants import Array
from stochasticrank_objectives._data import Labels, as_vector
from stochasticrank_objectives.evaluation import Empty, Evaluation, Ties
from stochasticrank_objectives.losses import Loss
from stochasticrank_objectives.metrics import Metric
from stochasticrank_objectives.yeti import YetiLoss

from ._catboost_blocks import WHAT_WORKS, Floats, Learn, Training
from ._common import (
    ReportedMetric,
    as_loss,
    calling,
    check_learning_rate,
    limit_threads,
    reported_metric,
    require,
    threads_beside,
)
from .columns import columns_of, with_columns

catboost = require("catboost")


def _labels(pool: Any) -> Floats:
    if not isinstance(pool, catboost.Pool):
        raise ValueError(f"pool must be a catboost.Pool with labels and group_id, got {type(pool).__name__}")
    if not pool.has_label():
        raise ValueError("the Pool has no labels; give it label=")
    with np.errstate(over="ignore"):  # a label beyond float32 becomes infinite, and is refused as such
        return as_vector("labels", pool.get_label()).astype(np.float32)  # as CatBoost keeps them


def _query_ids(pool: Any) -> NDArray[np.uint64]:
    ids = pool.get_group_id_hash()
    if ids is None:
        raise ValueError("the Pool has no queries; give it group_id=, the query id of each row")
    return np.asarray(ids)


def _pools(pools: Any) -> list[Any]:
    return [] if pools is None else list(pools) if isinstance(pools, (list, tuple)) else [pools]


class _Known:
    """A pool that a metric may be asked about: CatBoost passes only labels and weights, by which it must be found again."""

    def __init__(self, pool: Any) -> None:
        self.labels = _labels(pool)
        self.ids = _query_ids(pool)
        self.columns = columns_of(pool)
        self._bound: tuple[Floats | None, int | None, Evaluation] | None = None

    @property
    def given(self) -> Labels:
        """Its labels, with the columns that it was given."""
        return with_columns(self.labels, self.columns)

    def same_queries(self, other: _Known) -> bool:
        """Whether a pool with the same labels has the same queries, and the same columns of labels."""
        mine, others = self.columns or {}, other.columns or {}
        same = mine.keys() == others.keys() and all(np.array_equal(mine[name], others[name]) for name in mine)
        return same and np.array_equal(self.ids, other.ids)

    def evaluation(self, metric: CatBoostMetric, weights: Floats | None) -> Evaluation:
        """The metric of this pool, bound when it is first asked for: weights of groups are not known before."""
        if self._bound is not None:
            same_weights, threads, bound = self._bound
            if threads == metric._beside and _same_weights(weights, same_weights):
                return bound
        starts = np.flatnonzero(np.append(True, self.ids[1:] != self.ids[:-1]))
        whole = weights is not None and bool((np.diff(weights)[np.diff(self.ids) == 0] == 0).all())
        bound = metric._bind(
            self.given, qid=self.ids, weights=weights[starts] if weights is not None and whole else None,
            threads=metric._beside,
        )  # fmt: skip
        self._bound = None if weights is None else weights.copy(), metric._beside, bound
        return bound


def _same_weights(one: Floats | None, other: Floats | None) -> bool:
    return one is other if one is None or other is None else np.array_equal(one, other)


class CatBoostMetric(ReportedMetric):
    """A ranking metric as ``eval_metric`` of CatBoost, whatever its ``loss_function`` is.

    CatBoost does not tell a metric which queries there are, so it must know the pools: the one to train on and those to
    evaluate. Weights of the pools weigh queries, if they are the same throughout each query; otherwise they are ignored.
    CatBoost reports the metric under its name.

    Parameters
    ----------
    metric
        A name such as ``"ndcg@10"`` or a metric.
    pools
        The ``Pool``, or a list of them: the one given to ``fit`` and those in ``eval_set``, each with group_id.
    ties, empty
        As in `evaluate`. CatBoost's own NDCG takes ties in the worst order too, but counts a query without relevant
        documents as 1.
    threads
        How many threads; by default no more than CatBoost's ``thread_count``.

    Examples
    --------
    >>> from stochasticrank_objectives.datasets import make_ranking
    >>> data = make_ranking(20)
    >>> pool = catboost.Pool(data.features, data.labels, group_id=data.qid)
    >>> model = catboost.CatBoost({"loss_function": "YetiRank", "eval_metric": CatBoostMetric("ndcg@10", pool),
    ...     "iterations": 3, "verbose": False, "allow_writing_files": False}).fit(pool)
    >>> len(model.get_evals_result()["learn"]["ndcg@10"])
    3
    """

    _booster = "catboost"
    no_jit = True  # keeps CatBoost from trying to compile the methods, which use self

    def __init__(
        self,
        metric: str | Metric,
        pools: Any = None,
        *,
        ties: Ties = "worst",
        empty: Empty = 0.0,
        threads: int | None = None,
    ) -> None:
        super().__init__(metric, ties=ties, empty=empty, threads=threads)
        self._known = [_Known(pool) for pool in _pools(pools)]
        self._beside: int | None = None  # how many threads CatBoost leaves us

    def __repr__(self) -> str:
        return f"CatBoostMetric({str(self.metric)!r}, ties={self.ties!r}, empty={self.empty!r})"

    def __reduce__(self) -> Any:
        """Pickles hold no data."""
        return functools.partial(
            CatBoostMetric, self.metric, ties=self.ties, empty=self.empty, threads=self.threads
        ), ()  # fmt: skip

    def __deepcopy__(self, memo: Any) -> CatBoostMetric:
        """CatBoost copies its parameters for every training: the data are shared, the state of a training is not."""
        if not self._known:
            return self
        # CatBoost reports a metric by the name of its class.
        copy: CatBoostMetric = object.__new__(type(self.name, (type(self),), {}))
        copy.__dict__.update(self.__dict__)
        if (model := calling(catboost.CatBoost)) is not None:
            copy._beside = threads_beside(model._init_params.get("thread_count"))  # get_param of 1.2.2 copies, too
        return copy

    def is_max_optimal(self) -> bool:
        """All these metrics are better when larger."""
        return True

    def get_final_error(self, error: float, weight: float) -> float:
        """`evaluate` already gives the mean."""
        return error

    def evaluate(self, approxes: Any, target: Floats, weight: Floats | None) -> tuple[float, float]:
        """The metric of the pool that has these labels."""
        return self._find(target).evaluation(self, weight).mean(approxes[0]), 1.0

    def _find(self, target: Floats) -> _Known:
        found = [known for known in self._known if np.array_equal(known.labels, target)]
        if not found:
            raise ValueError(
                f"CatBoost evaluates {len(target)} rows whose labels are not, in this order, those of a Pool that {self!r} "
                "was given; it must know the Pool of fit and all of eval_set. If it does, CatBoost has permuted rows: "
                f"{WHAT_WORKS}"
            )
        if not all(found[0].same_queries(other) for other in found[1:]):
            raise ValueError(
                f"two pools have the same {len(target)} labels but different queries or label columns, and CatBoost does "
                "not say which one it evaluates; leave one of them out of eval_set"
            )
        return found[0]


def _learn(loss: Loss, pool: Any, known: _Known, init_model: Any) -> Learn:
    weights = np.asarray(pool.get_weight(), np.float32)
    bound = loss.bind(known.given, weights=None if (weights == 1).all() else weights, qid=known.ids)
    baseline = np.asarray(pool.get_baseline(), np.float64)
    scores = baseline[:, 0] if baseline.size else np.zeros(len(known.labels))
    if init_model is None:
        return Learn(known.labels, weights, scores, 0, bound)
    predicted = init_model.predict(pool, prediction_type="RawFormulaVal")  # with the baseline, if there is one
    return Learn(known.labels, weights, predicted, init_model.tree_count_, bound)


class CatBoostObjective(CatBoostMetric):
    """A ranking metric, or a loss, as ``loss_function`` of CatBoost; the same object must be its ``eval_metric`` too.

    `CatBoostStochasticRank` is simpler to use. This is for use with ``CatBoost`` itself, with ``boosting_type="Plain"``, one
    leaf iteration (the default) and, if there are categorical features, ``has_time=True``; what would go wrong under other
    settings is noticed in the first iterations, and stops the training with an error that says what to set.

    Under `SGLB` CatBoost's learning_rate must be the one that SGLB was given.

    Parameters
    ----------
    loss
        A metric such as ``"ndcg@10"``, or a loss such as `StochasticRank` or `SGLB`.
    pool, eval_set
        The ``Pool`` to train on and the pool, or list of pools, to evaluate: those given to ``fit``. They have group_id.
    metric
        What is reported and stops early; by default the metric that is named, or the loss's own.
    train_on
        With a metric's name: another metric to train on than the recommended one.
    init_model
        The model that training goes on from: the one given to ``fit``.
    ties, empty
        As in `evaluate`.
    keywords
        With a metric's name: fields of the loss that `recommended` gives for it, to change. Without ``threads`` among them,
        or on the loss, no more threads are used than CatBoost's ``thread_count``.

    Examples
    --------
    >>> from stochasticrank_objectives.datasets import make_ranking
    >>> data = make_ranking(20)
    >>> pool = catboost.Pool(data.features, data.labels, group_id=data.qid)
    >>> objective = CatBoostObjective("ndcg@10", pool, mu=0.1, seed=3)
    >>> model = catboost.CatBoost({"loss_function": objective, "eval_metric": objective, "boosting_type": "Plain",
    ...     "iterations": 3, "verbose": False, "allow_writing_files": False}).fit(pool)
    >>> model.tree_count_
    3
    """

    def __init__(
        self,
        loss: str | Metric | Loss,
        pool: Any = None,
        eval_set: Any = None,
        *,
        metric: str | Metric | None = None,
        train_on: str | Metric | None = None,
        init_model: Any = None,
        ties: Ties = "worst",
        empty: Empty = 0.0,
        **keywords: Any,
    ) -> None:
        self.loss = as_loss(loss, keywords, booster=self._booster, train_on=train_on)
        pools = [] if pool is None else [pool, *_pools(eval_set)]
        super().__init__(reported_metric(loss, metric), pools, ties=ties, empty=empty)
        self._learn = _learn(self.loss, pool, self._known[0], init_model) if pools else None
        self._training = Training(self._learn) if self._learn else None

    def __repr__(self) -> str:
        return f"CatBoostObjective({self.loss}, metric={str(self.metric)!r}, ties={self.ties!r}, empty={self.empty!r})"

    def __reduce__(self) -> Any:
        return functools.partial(
            CatBoostObjective, self.loss, metric=self.metric, ties=self.ties, empty=self.empty
        ), ()  # fmt: skip

    def __deepcopy__(self, memo: Any) -> CatBoostMetric:
        copy = super().__deepcopy__(memo)
        if isinstance(copy, CatBoostObjective) and self._learn:
            limit_threads(self._learn.bound, copy._beside)
            copy._training = Training(self._learn)
        return copy

    def _compared(self) -> tuple[Any, ...]:
        return *super()._compared(), self.loss

    def bind(self, pool: Any, eval_set: Any = None, *, init_model: Any = None) -> CatBoostObjective:
        """The same objective for other pools."""
        return CatBoostObjective(
            self.loss, pool, eval_set, metric=self.metric, init_model=init_model, ties=self.ties, empty=self.empty
        )

    def calc_ders_range(self, approxes: Array, targets: Floats, weights: Floats | None) -> Array:
        """First and second derivatives of a block of rows."""
        try:
            return self._bound_training().serve(approxes, targets, weights)
        except ValueError as error:
            raise self._remember(error) from None

    def evaluate(self, approxes: Any, target: Floats, weight: Floats | None) -> tuple[float, float]:
        """The metric of the pool that has these labels; the scores of the pool to train on are kept."""
        try:
            training, known = self._bound_training(), self._find(target)
            if known is self._known[0]:
                training.next(approxes[0])
            return known.evaluation(self, weight).mean(approxes[0]), 1.0
        except ValueError as error:
            raise self._remember(error) from None

    def _bound_training(self) -> Training:
        if self._training is None:
            raise ValueError(
                "CatBoostObjective does not know its data; give it the Pool of fit, or use CatBoostStochasticRank; in "
                "place of catboost.cv use cross_validate of stochasticrank_objectives.adapters"
            )
        return self._training

    def _release(self) -> None:
        """Let go of all data: CatBoost itself never lets go of the objective of a training that was interrupted."""
        self._known, self._learn, self._training = [], None, None

    def _remember(self, error: ValueError) -> ValueError:
        """CatBoost raises an error of its own, with this one in its text."""
        if self._training is not None and self._training.error is None:
            self._training.error = str(error)
        return error


# What must be set, and what must not.
_SET = {"boosting_type": "Plain", "leaf_estimation_iterations": 1, "model_shrink_rate": 0}
_LEFT = {"metric_period": 1, "langevin": False, "posterior_sampling": False, "task_type": "CPU"}


class CatBoostStochasticRank(catboost.CatBoost):  # type: ignore[misc,name-defined]
    """A ``CatBoost`` model that is trained on a ranking metric: fit it with group_id, and use it as any other.

    It makes the settings that are needed, refuses those that could not be right, and binds the objective to its data.
    Evaluation sets are pools with group_id. Categorical, text and embedding features need ``has_time=True``, which is set:
    then CatBoost takes the rows in the order given for its target statistics, so shuffle queries, and rows within a query,
    if their order tells about the labels.

    Where no ``learning_rate`` is given, a metric's name, or a `YetiLoss`, is trained with one that depends on the number of
    trees: 30 / iterations, at least 0.06 and at most 0.3. With CatBoost's default, 0.03, its 1,000 trees are too few where
    labels are clean, and 100 trees would learn next to nothing. For other losses it stays 0.03.

    Parameters
    ----------
    loss_function
        A metric such as ``"ndcg@10"``, a loss such as `StochasticRank` or `SGLB`, or a `CatBoostObjective` without data.
    eval_metric
        What is reported and stops early; by default the metric that is named, or the loss's own.
    params
        CatBoost's parameters.

    Examples
    --------
    >>> from stochasticrank_objectives.datasets import make_ranking
    >>> data = make_ranking(20)
    >>> model = CatBoostStochasticRank("ndcg@10", iterations=3, verbose=False, allow_writing_files=False)
    >>> model.fit(data.features, data.labels, group_id=data.qid).predict(data.features).shape == data.labels.shape
    True
    """

    def __init__(
        self,
        loss_function: str | Metric | Loss | CatBoostObjective = "ndcg@10",
        *,
        eval_metric: str | Metric | None = None,
        **params: Any,
    ) -> None:
        if not isinstance(loss_function, CatBoostObjective):
            loss_function = CatBoostObjective(loss_function, metric=eval_metric)
        elif eval_metric is not None:
            raise ValueError("eval_metric: give it to the CatBoostObjective as metric=")
        super().__init__({"loss_function": loss_function, **params})

    def set_params(self, **params: Any) -> CatBoostStochasticRank:
        """Set parameters before `fit`; `loss_function` and `eval_metric` are those of the constructor."""
        if self.is_fitted():
            raise ValueError(
                "CatBoost keeps the parameters of a trained model: make a new object, or use CatBoostRanker, whose "
                "parameters can be set at any time"
            )
        if "loss_function" in params or "eval_metric" in params:
            loss = params.get("loss_function", self.__dict__["_init_params"]["loss_function"])
            if params.get("eval_metric") is not None or not isinstance(loss, CatBoostObjective):
                loss = loss.loss if isinstance(loss, CatBoostObjective) else loss
                loss = CatBoostObjective(loss, metric=params.get("eval_metric"))
            params = {**{name: value for name, value in params.items() if name != "eval_metric"}, "loss_function": loss}
        super().set_params(**params)
        return self

    def load_model(self, *arguments: Any, **keywords: Any) -> CatBoostStochasticRank:
        """Load a model; the parameters, which `fit` starts anew with, stay those that this object was given."""
        params = self.__dict__["_init_params"]
        super().load_model(*arguments, **keywords)
        self._init_params = params
        self._canonized_params = None
        return self

    def grid_search(self, *_: Any, **__: Any) -> NoReturn:
        """Not with an objective in Python."""
        _refuse_search("grid_search", "GridSearchCV")

    def randomized_search(self, *_: Any, **__: Any) -> NoReturn:
        """Not with an objective in Python."""
        _refuse_search("randomized_search", "RandomizedSearchCV")

    def select_features(self, *_: Any, **__: Any) -> NoReturn:
        """Not with an objective in Python."""
        raise ValueError(
            "CatBoost's select_features takes no objective in Python; use sklearn.feature_selection.RFE or SelectFromModel "
            'with CatBoostRanker, or select by one of CatBoost\'s own: CatBoost({"loss_function": "YetiRank"})'
        )

    def _train(
        self, train_pool: Any, test_pool: Any, params: dict[str, Any], allow_clear_pool: bool, init_model: Any
    ) -> None:
        """What `fit` calls with the pools and parameters that it has made of its arguments."""
        objective = params["loss_function"].bind(train_pool, test_pool, init_model=init_model).__deepcopy__({})
        params = {**_with_needed(objective.loss, train_pool, params), "loss_function": objective, "eval_metric": objective}
        try:
            super()._train(train_pool, test_pool, params, allow_clear_pool, init_model)
        except catboost.CatBoostError:
            if objective._training.error is not None:
                raise ValueError(objective._training.error) from None
            raise
        finally:
            objective._release()


def _refuse_search(method: str, instead: str) -> NoReturn:
    raise ValueError(
        f"CatBoost's {method} splits its data where an objective in Python cannot follow; use sklearn.model_selection."
        f"{instead} with CatBoostRanker, split by query: {instead}(CatBoostRanker(...), ..., cv=GroupKFold(3))"
    )


def _with_needed(loss: Loss, pool: Any, params: dict[str, Any]) -> dict[str, Any]:
    """CatBoost's parameters with those that are needed, or a ValueError if they contradict."""
    needed: dict[str, Any] = dict(_SET)
    if pool.get_cat_feature_indices() or pool.get_text_feature_indices() or pool.get_embedding_feature_indices():
        needed["has_time"] = True
    for name, value in {**needed, **_LEFT}.items():
        if (given := params.get(name, value)) != value:
            hint = "; for Langevin boosting wrap the loss in SGLB" if name in ("langevin", "model_shrink_rate") else ""
            raise ValueError(f"{name}={given!r} does not work with a StochasticRank objective; set {name}={value!r}{hint}")
    if (rate := getattr(loss, "learning_rate", None)) is not None:
        needed["learning_rate"] = rate
        check_learning_rate(loss, params.get("learning_rate", rate), "CatBoost")
    elif isinstance(loss, YetiLoss) and params.get("learning_rate") is None:
        needed["learning_rate"] = _learning_rate(params.get("iterations", 1000))
    return {**params, **needed}


def _learning_rate(iterations: int) -> float:
    """For so many trees, where none is given; it was about right on all data that were tried."""
    return min(max(30.0 / max(iterations, 1), 0.06), 0.3)
