"""A ranker for scikit-learn that trains CatBoost with a loss of ours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stochasticrank_objectives.losses import Loss
from stochasticrank_objectives.metrics import Metric

from ._estimator import Data, Queries, Ranker, parameters_of, processors
from .catboost import CatBoostMetric, CatBoostObjective, CatBoostStochasticRank, catboost

__all__ = ["CatBoostRanker"]

_VERBOSITY = ("verbose", "verbose_eval", "silent", "logging_level", "metric_period")
_FEATURES = ("cat_features", "text_features", "embedding_features")
_ROUNDS = ("early_stopping_rounds", "od_wait")
# What `fit` leaves on an estimator beside CatBoost's own model.
_OURS = ("loss", "metric", "_extra", "_seen", "loss_")


class CatBoostRanker(Ranker, CatBoostStochasticRank):
    """A `catboost.CatBoost` that trains a loss of ours, for `GridSearchCV`, `Pipeline` and the rest of scikit-learn.

    It makes the settings that `CatBoostStochasticRank` makes, and refuses the same. Queries are given as in `XGBoostRanker`:
    as `group`, as `qid`, or as a column ``qid`` of a DataFrame. `grid_search`, `randomized_search` and `select_features`
    know no objective in Python: they say what to use instead.

    Parameters
    ----------
    loss
        A metric such as ``"ndcg@10"``, a loss such as `StochasticRank` or `SGLB`, or a `CatBoostObjective`; by default what
        `recommended` gives for `metric`.
    metric
        What `score` returns, and what evaluation sets and early stopping are measured by: a metric's name, a metric or a
        `CatBoostMetric`; by default the metric that is named as `loss`, or the loss's own, or ``"ndcg@10"``.
    n_estimators, learning_rate, max_depth, early_stopping_rounds
        As in CatBoost, whose other names for them work too. Without a learning rate, a metric's name is trained with
        30 / n_estimators, at least 0.06 and at most 0.3.
    random_state
        Seeds CatBoost, and is added to the loss's own seed.
    n_jobs
        How many threads, for CatBoost and the gradient; CatBoost's ``thread_count`` is the same.
    params
        CatBoost's other parameters, and parameters of the loss: ``loss__mu=0.1``, or ``mu=0.1``, changes the field ``mu`` of
        the loss. `propensities` and `clip` correct clicks, as in `XGBoostRanker`. CatBoost is silent unless ``verbose`` is
        given, and writes no files unless ``allow_writing_files=True`` is.

    Attributes
    ----------
    loss_
        The loss that it was trained with.

    Examples
    --------
    >>> from stochasticrank_objectives.datasets import make_ranking
    >>> data = make_ranking(20)
    >>> ranker = CatBoostRanker("ndcg@10", loss__mu=0.1, n_estimators=5, random_state=3)
    >>> ranker.fit(data.features, data.labels, qid=data.qid).score(data.features, data.labels, qid=data.qid) > 0.5
    True
    """

    _booster = "catboost"
    _objective_class = CatBoostObjective
    _native = dict.fromkeys(
        ("n_estimators", "learning_rate", "max_depth", "early_stopping_rounds", "random_state", "n_jobs")
    )

    def __init__(
        self,
        loss: str | Metric | Loss | CatBoostObjective | None = None,
        *,
        metric: str | Metric | CatBoostMetric | None = None,
        n_estimators: int | None = None,
        learning_rate: float | None = None,
        max_depth: int | None = None,
        early_stopping_rounds: int | None = None,
        random_state: Any = None,
        n_jobs: int | None = None,
        **params: Any,
    ) -> None:
        self.n_estimators = n_estimators
        self.learning_rate = learning_rate
        self.max_depth = max_depth
        self.early_stopping_rounds = early_stopping_rounds
        self.random_state = random_state
        self.n_jobs = n_jobs
        self._init(loss, metric, params)
        catboost.CatBoost.__init__(self, {})

    def _known(self, name: str) -> bool:
        return super()._known(name) or name in parameters_of(catboost.CatBoostClassifier.__init__)

    def fit(
        self,
        X: Any,
        y: ArrayLike | None = None,
        *,
        qid: ArrayLike | None = None,
        group: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        positions: ArrayLike | None = None,
        eval_set: Any = None,
        eval_qid: Sequence[ArrayLike] | None = None,
        eval_group: Sequence[ArrayLike] | None = None,
        eval_sample_weight: Sequence[ArrayLike] | None = None,
        eval_positions: Sequence[ArrayLike] | None = None,
        baseline: ArrayLike | None = None,
        use_best_model: bool | None = None,
        init_model: Any = None,
        callbacks: Any = None,
    ) -> CatBoostRanker:
        """Train.

        Parameters
        ----------
        X
            An array, a sparse matrix, or a DataFrame of pandas, polars or arrow, with or without a column ``qid``; or a
            ``catboost.Pool`` that has everything, with pools in `eval_set`.
        y
            Labels, 0 for not relevant.
        qid, group
            The query id of each row, or the size of each query.
        sample_weight
            One per query, or one per row that is the same throughout a query.
        positions
            If the labels are clicks and `propensities` is set: where each row was shown; 1 is the top. The labels are then
            corrected, as by `debias`.
        eval_set, eval_qid, eval_group, eval_sample_weight, eval_positions
            A list of (X, y), and the same as above for each of them. With `early_stopping_rounds` the first one
            decides when training stops.
        baseline
            Scores to start from, one per row.
        use_best_model, init_model, callbacks
            As in ``catboost.CatBoost.fit``.
        """
        plan = self._plan()
        params = {name: value for name, value in plan.params.items() if value is not None}
        if isinstance(X, catboost.Pool):
            beside: dict[str, Any] = {
                "y": y,
                "qid": qid,
                "group": group,
                "sample_weight": sample_weight,
                "positions": positions,
            }
            beside |= {"propensities": self._extra.get("propensities"), "baseline": baseline, "eval_qid": eval_qid}
            beside |= {"eval_group": eval_group, "eval_sample_weight": eval_sample_weight, "eval_positions": eval_positions}
            if extra := [name for name, value in beside.items() if value is not None]:
                raise ValueError(f"{', '.join(extra)}: a Pool says everything itself; give it what it should know")
            train, sets = X, eval_set
            self._seen = None
        else:
            data = self._data(X, y, Queries(qid, group, sample_weight, positions), fitting=True)
            train = self._pool(data, params, baseline)
            evaluated = self._evaluation_data(eval_set, eval_qid, eval_group, eval_sample_weight, eval_positions)
            sets = [self._pool(one, params) for (one,) in evaluated] or None
        if "eval_fraction" not in params:
            self._check_early_stopping(self._one_of(_ROUNDS), [] if sets is None else [sets])
        for name in _FEATURES:  # the pool says it
            params.pop(name, None)
        if not any(name in params for name in _VERBOSITY):
            params["logging_level"] = "Silent"
        params.setdefault("allow_writing_files", False)
        if plan.seed is not None:
            params["random_seed"] = plan.seed
        if (threads := processors(plan.n_jobs)) is not None:
            params["thread_count"] = threads
        objective = CatBoostObjective(plan.loss, metric=plan.metric, ties=plan.ties, empty=plan.empty)
        self._init_params = {**params, "loss_function": objective}
        self._canonized_params = None
        super().fit(train, eval_set=sets, use_best_model=use_best_model, init_model=init_model, callbacks=callbacks)
        self.loss_ = plan.loss
        return self

    def predict(self, X: Any, **keywords: Any) -> NDArray[np.float64]:
        """Scores: within a query, a higher one ranks first."""
        self._check_fitted()
        return self._scores(X if isinstance(X, catboost.Pool) else self._features(X)[0], **keywords)

    def _scores(self, X: Any, **keywords: Any) -> NDArray[np.float64]:
        threads = processors(self._one_of(("n_jobs", "thread_count")))
        return cast(NDArray[np.float64], super().predict(X, **{"thread_count": threads or -1, **keywords}))

    def _array(self, X: Any) -> Any:
        if any(self._extra.get(name) is not None for name in _FEATURES):
            return X if hasattr(X, "shape") else np.asarray(X, object)  # not all of it is numeric
        return super()._array(X)

    def _pool(self, data: Data, params: dict[str, Any], baseline: ArrayLike | None = None) -> Any:
        kinds = {name: params[name] for name in _FEATURES if name in params}
        return catboost.Pool(data.X, data.labels, group_id=data.ids, weight=data.row_weights, baseline=baseline, **kinds)

    @property
    def n_features_in_(self) -> int:
        """How many features there are."""
        if not self.is_fitted():
            raise AttributeError(f"{type(self).__name__} has no n_features_in_ before it is fitted")
        return len(self.feature_names_)  # CatBoost's own is 0 for a model that was loaded

    def _names_of_model(self) -> list[str] | None:
        names = self.feature_names_ if self.is_fitted() else None
        return None if names is None or names == [str(at) for at in range(len(names))] else names

    def get_param(self, key: str) -> Any:
        """What CatBoost itself was told."""
        return self._init_params.get(key)

    def load_model(self, *arguments: Any, **keywords: Any) -> CatBoostRanker:
        """Load a model; `fit` starts anew, with the parameters that this estimator has."""
        super().load_model(*arguments, **keywords)
        self._seen = None
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return bool(self.is_fitted())

    # CatBoost copies and pickles its own parameters and its model.

    def __getstate__(self) -> dict[str, Any]:
        ours = {name: self.__dict__[name] for name in (*_OURS, *self._native) if name in self.__dict__}
        return {"ours": ours, "theirs": catboost.CatBoost.__getstate__(self)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        catboost.CatBoost.__setstate__(self, dict(state["theirs"]))
        self.__dict__.update(state["ours"])
