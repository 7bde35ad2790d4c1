"""A ranker for scikit-learn that trains XGBoost with a loss of ours."""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stochasticrank_objectives.losses import Loss
from stochasticrank_objectives.metrics import Metric

from ._estimator import Data, Plan, Queries, Ranker, parameters_of
from .xgboost import XGBoostMetric, XGBoostObjective, xgb

__all__ = ["XGBoostRanker"]

_OF_THE_WRAPPER = (
    "importance_type", "missing", "n_estimators", "enable_categorical", "early_stopping_rounds", "callbacks",
    "feature_types", "feature_weights",
)  # fmt: skip


class XGBoostRanker(Ranker, xgb.XGBRanker):  # type: ignore[misc,name-defined]
    """An `xgboost.XGBRanker` that trains a loss of ours, for `GridSearchCV`, `Pipeline` and the rest of scikit-learn.

    Queries are given as `group` (their sizes), as `qid` (an id per row; rows of a query stand together), or as a column
    named ``qid`` of a DataFrame of pandas, polars or arrow, which is never used as a feature. The column is what
    `GridSearchCV` and its like need to score the rows that they hold out; with scikit-learn's metadata routing they pass
    `qid` on instead. Split by query, for example with `GroupKFold`.

    Parameters
    ----------
    loss
        A metric such as ``"ndcg@10"``, a loss such as `StochasticRank` or `SGLB`, or an `XGBoostObjective`; by default what
        `recommended` gives for `metric`.
    metric
        What `score` returns, and what evaluation sets and early stopping are measured by: a metric's name, a metric or an
        `XGBoostMetric`; by default the metric that is named as `loss`, or the loss's own, or ``"ndcg@10"``.
    params
        Parameters of `xgboost.XGBRanker` except `objective`, and parameters of the loss: ``loss__mu=0.1`` changes the field
        ``mu`` of the loss, and ``loss__loss__mu`` that of the loss inside `SGLB`. A short ``mu=0.1`` is the same.
        `random_state` seeds XGBoost, and is added to the loss's own seed. `n_jobs` bounds the threads of both.
        `eval_metric` takes XGBoost's names, reported beside `metric`. `propensities` and `clip` correct clicks for the
        `positions` at which they were made, in `fit` and `score`; see `debias`.

    Attributes
    ----------
    loss_
        The loss that it was trained with.

    Examples
    --------
    >>> from stochasticrank_objectives.datasets import make_ranking
    >>> data = make_ranking(20)
    >>> ranker = XGBoostRanker("ndcg@10", loss__mu=0.1, n_estimators=5, random_state=3)
    >>> ranker.fit(data.features, data.labels, qid=data.qid).score(data.features, data.labels, qid=data.qid) > 0.5
    True
    """

    _booster = "xgboost"
    _objective_class = XGBoostObjective
    _native = parameters_of(xgb.XGBModel.__init__)

    def __init__(
        self,
        loss: str | Metric | Loss | XGBoostObjective | None = None,
        *,
        metric: str | Metric | XGBoostMetric | None = None,
        **params: Any,
    ) -> None:
        xgb.XGBModel.__init__(self, **self._init(loss, metric, params))  # XGBRanker's wants one of its own objectives

    def get_xgb_params(self) -> dict[str, Any]:
        """What goes to XGBoost itself."""
        return self._xgb_params(self._plan())

    def _xgb_params(self, plan: Plan) -> dict[str, Any]:
        params = {name: value for name, value in plan.params.items() if name not in _OF_THE_WRAPPER and not callable(value)}
        return {**params, "random_state": plan.seed, "n_jobs": plan.n_jobs}

    def fit(
        self,
        X: Any,
        y: ArrayLike,
        *,
        qid: ArrayLike | None = None,
        group: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        positions: ArrayLike | None = None,
        eval_set: Sequence[tuple[Any, ArrayLike]] | tuple[Any, ArrayLike] | None = None,
        eval_qid: Sequence[ArrayLike] | None = None,
        eval_group: Sequence[ArrayLike] | None = None,
        eval_sample_weight: Sequence[ArrayLike] | None = None,
        eval_positions: Sequence[ArrayLike] | None = None,
        sample_weight_eval_set: Sequence[ArrayLike] | None = None,
        base_margin: ArrayLike | None = None,
        base_margin_eval_set: Sequence[ArrayLike] | None = None,
        verbose: bool | int = False,
        xgb_model: Any = None,
    ) -> XGBoostRanker:
        """Train.

        Parameters
        ----------
        X
            An array, a sparse matrix, or a DataFrame of pandas, polars or arrow, with or without a column ``qid``.
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
            A list of (X, y), and the same as above for each of them. With `early_stopping_rounds` the last one
            decides when training stops.
        sample_weight_eval_set
            Another name of `eval_sample_weight`, that of `xgboost.XGBRanker`.
        base_margin, base_margin_eval_set, verbose, xgb_model
            As in `xgboost.XGBRanker.fit`.
        """
        if sample_weight_eval_set is not None:
            if eval_sample_weight is not None:
                raise ValueError("eval_sample_weight and sample_weight_eval_set are the same; give one of them")
            eval_sample_weight = sample_weight_eval_set
        named = self.eval_metric if isinstance(self.eval_metric, (list, tuple)) else [self.eval_metric]
        if not all(name is None or isinstance(name, str) for name in named):
            raise ValueError(
                f"eval_metric takes XGBoost's names, got {self.eval_metric!r}; pass a metric of ours as metric="
            )
        plan = self._plan()
        params = self._xgb_params(plan)
        data = self._data(X, y, Queries(qid, group, sample_weight, positions), fitting=True)
        sets = self._evaluation_data(
            eval_set, eval_qid, eval_group, eval_sample_weight, eval_positions, base_margin_eval_set
        )
        self._check_early_stopping(self.early_stopping_rounds, sets)
        train = self._matrix(data, base_margin)
        _check_unused(self, params, plan, train)
        history: dict[str, dict[str, list[float]]] = {}
        with xgb.config_context(verbosity=self.verbosity):
            self._Booster = xgb.train(
                params,
                train,
                self.get_num_boosting_rounds(),
                evals=[(self._matrix(one, margin, train), f"validation_{at}") for at, (one, margin) in enumerate(sets)],
                obj=XGBoostObjective(plan.loss, metric=plan.metric),
                custom_metric=self._custom_metric(),
                maximize=True,
                early_stopping_rounds=self.early_stopping_rounds,
                evals_result=history,
                verbose_eval=verbose,
                xgb_model=xgb_model.get_booster() if isinstance(xgb_model, xgb.XGBModel) else xgb_model,
                callbacks=self.callbacks,
            )
        self.loss_ = plan.loss
        self.evals_result_ = history
        return self

    def predict(self, X: Any, **keywords: Any) -> NDArray[np.float32]:
        """Scores: within a query, a higher one ranks first."""
        self._check_fitted()
        return self._scores(self._features(X)[0], **keywords)

    def apply(self, X: Any, **keywords: Any) -> NDArray[Any]:
        """The leaf of each row in each tree."""
        self._check_fitted()
        return cast(NDArray[Any], super().apply(self._features(X)[0], **keywords))

    def _scores(self, X: Any, **keywords: Any) -> NDArray[np.float32]:
        return cast(NDArray[np.float32], xgb.XGBModel.predict(self, X, **keywords))

    def _custom_metric(self) -> XGBoostMetric:
        if isinstance(self.metric, XGBoostMetric):
            return self.metric
        metric, ties, empty = self._reported()
        return XGBoostMetric(metric, ties=ties, empty=empty)

    def load_model(self, fname: Any) -> None:
        """Load a model; `fit` starts anew, with the parameters that this estimator has."""
        kept = {name: getattr(self, name) for name in ("objective", "base_score")}
        super().load_model(fname)
        self._seen = None
        for name, value in kept.items():  # else what the model was trained with would decide about the next `fit`
            setattr(self, name, value)

    def _names_of_model(self) -> list[str] | None:
        return self.get_booster().feature_names if self.__sklearn_is_fitted__() else None

    def _matrix(self, data: Data, base_margin: ArrayLike | None, ref: Any = None) -> Any:
        return self._create_dmatrix(
            ref=ref,
            data=data.X,
            label=data.labels,
            group=data.sizes,
            weight=data.weights,
            base_margin=base_margin,
            feature_weights=getattr(self, "feature_weights", None) if ref is None else None,
            missing=self.missing,
            enable_categorical=self.enable_categorical,
            feature_types=self.feature_types,
        )


def _check_unused(ranker: XGBoostRanker, params: dict[str, Any], plan: Plan, train: Any) -> None:
    """Refuse a parameter that XGBoost does not know: it would only warn, and only if it is not told to be quiet."""
    if not ranker._extra:
        return
    with warnings.catch_warnings(record=True) as said, xgb.config_context(verbosity=1):
        warnings.simplefilter("always")
        xgb.Booster({**params, "validate_parameters": True, "verbosity": 1}, cache=[train]).save_config()
    for warning in said:
        if found := re.search(r"Parameters: \{(.*)\} are not used", str(warning.message)):
            names = [name for name in re.findall(r'"(.*?)"', found[1]) if name in ranker._extra]
            if names:
                raise ValueError(
                    f"{', '.join(names)}: neither a parameter of XGBoost that is used here nor one of {plan.loss}"
                )
