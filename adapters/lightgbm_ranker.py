"""A ranker for scikit-learn that trains LightGBM with a loss of ours."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stochasticrank_objectives.losses import Loss
from stochasticrank_objectives.metrics import Metric

from ._estimator import Plan, Queries, Ranker, parameters_of
from .lightgbm import LightGBMMetric, LightGBMObjective, lightgbm

__all__ = ["LightGBMRanker"]

_VERBOSITY = ("verbose", "verbosity")
_ROUNDS = ("early_stopping_rounds", "early_stopping_round", "early_stopping", "n_iter_no_change")
# From 4.7 on LightGBM warns that eval_set is to be given as eval_X and eval_y.
_SPLIT_SETS = "eval_X" in inspect.signature(lightgbm.LGBMRanker.fit).parameters


@functools.cache
def _names() -> frozenset[str]:
    """All names of LightGBM's parameters."""
    aliases = lightgbm.basic._ConfigAliases._get_all_param_aliases()
    return frozenset(aliases) | {alias for names in aliases.values() for alias in names}


class LightGBMRanker(Ranker, lightgbm.LGBMRanker):  # type: ignore[misc,name-defined]
    """A `lightgbm.LGBMRanker` that trains a loss of ours, for `GridSearchCV`, `Pipeline` and the rest of scikit-learn.

    Queries are given as in `XGBoostRanker`: as `group`, as `qid`, or as a column ``qid`` of a DataFrame.

    Parameters
    ----------
    loss
        A metric such as ``"ndcg@10"``, a loss such as `StochasticRank` or `SGLB`, or a `LightGBMObjective`; by default what
        `recommended` gives for `metric`.
    metric
        What `score` returns, and what evaluation sets and early stopping are measured by: a metric's name, a metric or a
        `LightGBMMetric`; by default the metric that is named as `loss`, or the loss's own, or ``"ndcg@10"``.
    params
        Parameters of `lightgbm.LGBMRanker` except `objective`, any of LightGBM's own, such as ``early_stopping_rounds``,
        and parameters of the loss: ``loss__mu=0.1``, or ``mu=0.1``, changes the field ``mu`` of the loss. `propensities` and
        `clip` correct clicks, as in `XGBoostRanker`. `random_state` seeds LightGBM, and is added to the loss's own seed.
        `n_jobs` bounds the threads of both. LightGBM is silent unless `verbose` is given.

    Attributes
    ----------
    loss_
        The loss that it was trained with.

    Examples
    --------
    >>> from stochasticrank_objectives.datasets import make_ranking
    >>> data = make_ranking(20)
    >>> ranker = LightGBMRanker("ndcg@10", loss__mu=0.1, n_estimators=5, random_state=3)
    >>> ranker.fit(data.features, data.labels, qid=data.qid).score(data.features, data.labels, qid=data.qid) > 0.5
    True
    """

    _booster = "lightgbm"
    _objective_class = LightGBMObjective
    _native = parameters_of(lightgbm.LGBMModel.__init__)

    def __init__(
        self,
        loss: str | Metric | Loss | LightGBMObjective | None = None,
        *,
        metric: str | Metric | LightGBMMetric | None = None,
        **params: Any,
    ) -> None:
        super().__init__(**self._init(loss, metric, params))

    def _known(self, name: str) -> bool:
        return super()._known(name) or name in _names()

    def _check_names(self) -> None:
        super()._check_names()
        try:
            loss = self._base_loss()
        except ValueError:
            return
        ours = [name for name in self._extra if name == "train_on" or self._known(name) or self._of_loss(name, loss)]
        if unknown := [name for name in self._extra if name not in ours]:
            raise ValueError(f"{', '.join(unknown)}: neither a parameter of LightGBM nor one of {type(loss).__name__}")

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
        eval_names: Sequence[str] | None = None,
        init_score: ArrayLike | None = None,
        eval_init_score: Sequence[ArrayLike] | None = None,
        feature_name: Any = "auto",
        categorical_feature: Any = "auto",
        callbacks: Sequence[Callable[..., Any]] | None = None,
        init_model: Any = None,
    ) -> LightGBMRanker:
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
            A list of (X, y), and the same as above for each of them. With ``early_stopping_rounds`` training stops when any
            of them, except the training data, has not improved for so long.
        eval_names, init_score, eval_init_score, feature_name, categorical_feature, callbacks, init_model
            As in `lightgbm.LGBMRanker.fit`.
        """
        if self.class_weight is not None:
            raise ValueError("class_weight is for classifiers; give weights of queries as sample_weight")
        plan = self._plan()
        data = self._data(X, y, Queries(qid, group, sample_weight, positions), fitting=True)
        sets = self._evaluation_data(eval_set, eval_qid, eval_group, eval_sample_weight, eval_positions, eval_init_score)
        self._check_early_stopping(self._one_of(_ROUNDS), sets)
        given: dict[str, Any] = {}
        if sets:
            features, labels = [one.X for one, _ in sets], [one.labels for one, _ in sets]
            given["eval_group"] = [one.sizes for one, _ in sets]
            given["eval_sample_weight"] = [one.row_weights for one, _ in sets] if eval_sample_weight is not None else None
            given["eval_init_score"] = [score for _, score in sets] if eval_init_score is not None else None
            given["eval_metric"] = self._custom_metric()
            given["eval_names"] = eval_names
            if _SPLIT_SETS:
                given.update(eval_X=tuple(features), eval_y=tuple(labels))
            else:
                given["eval_set"] = list(zip(features, labels, strict=True))
        self._told = plan
        try:
            super().fit(
                data.X,
                data.labels,
                group=data.sizes,
                sample_weight=data.row_weights,
                init_score=init_score,
                feature_name=feature_name,
                categorical_feature=categorical_feature,
                callbacks=callbacks,
                init_model=init_model,
                **given,
            )
        finally:
            del self._told
        self.loss_ = plan.loss
        return self

    def predict(self, X: Any, **keywords: Any) -> NDArray[np.float64]:
        """Scores: within a query, a higher one ranks first."""
        self._check_fitted()
        return self._scores(self._features(X)[0], **keywords)

    def _scores(self, X: Any, **keywords: Any) -> NDArray[np.float64]:
        return cast(NDArray[np.float64], super().predict(X, **keywords))

    def _custom_metric(self) -> LightGBMMetric:
        if isinstance(self.metric, LightGBMMetric):
            return self.metric
        metric, ties, empty = self._reported()
        return LightGBMMetric(metric, ties=ties, empty=empty)

    def _process_params(self, stage: str) -> dict[str, Any]:
        """What LightGBM's own estimator makes of the parameters, for `fit` or `predict`."""
        plan: Plan = self.__dict__.get("_told") or self._plan()
        quiet = {} if self._one_of(_VERBOSITY) is not None else {"verbose": -1}
        params = {name: value for name, value in plan.params.items() if value is not None}
        params.update(quiet, random_state=plan.seed, n_jobs=plan.n_jobs)
        plain = lightgbm.LGBMRanker(**params, objective=LightGBMObjective(plan.loss, metric=plan.metric), metric="None")
        return cast(dict[str, Any], plain._process_params(stage))
