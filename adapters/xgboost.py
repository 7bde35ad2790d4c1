"""XGBoost: an objective and a metric for ``xgb.train`` and ``xgb.cv``."""

from __future__ import annotations

import json
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stochasticrank_objectives._data import Labels
from stochasticrank_objectives.evaluation import Empty, Evaluation, Ties
from stochasticrank_objectives.losses import BoundLoss, Loss
from stochasticrank_objectives.metrics import Metric

from ._collective import XGBoostCollective, bind_part, keys_from_rows, mean_of_all, xgboost_collective
from ._common import (
    Bindings,
    Objective,
    ReportedMetric,
    calling,
    check_learning_rate,
    limit_threads,
    require,
    threads_beside,
)
from ._idle import release_of_idle_threads
from .columns import columns_of, with_columns

xgb = require("xgboost")
_release_idle_threads = release_of_idle_threads(getattr(xgb.core, "_LIB", None))

# From 2.1 on XGBoost reads float64 as fast as float32; before, it copied anything but float32 value by value in Python.
_GRADIENT = np.float64 if tuple(map(int, xgb.__version__.split(".")[:2])) >= (2, 1) else np.float32


def _groups_and_weights(data: Any) -> tuple[NDArray[np.int64], NDArray[np.float32] | None]:
    if not hasattr(data, "get_uint_info"):
        raise ValueError(
            f"data must be a DMatrix, got {type(data).__name__}: XGBoost's estimators pass queries to no objective; use "
            "XGBoostRanker, or xgboost.train with a DMatrix"
        )
    borders, weights = data.get_uint_info("group_ptr"), data.get_weight()
    if len(borders) < 2:
        if not data.num_row() and xgb.collective.is_distributed():  # a worker that has nothing but evaluation data, say
            return np.zeros(0, np.int64), None
        raise ValueError("the DMatrix has no queries; give it qid= or group=, or call its set_group with the query sizes")
    groups = np.diff(borders.astype(np.int64))
    if not len(weights) and len(of_rows := data.get_float_info("label_upper_bound")):  # see `_collective`
        weights = of_rows[borders[:-1]]
    return groups, weights if len(weights) else None


def _labels(data: Any) -> Labels:
    return with_columns(data.get_label(), columns_of(data))


def _keys(data: Any, groups: NDArray[np.int64]) -> NDArray[np.uint64] | None:
    """Keys of queries, if the DMatrix carries any."""
    rows = data.get_float_info("label_lower_bound")
    return keys_from_rows(rows, groups) if len(rows) else None


def _collective() -> XGBoostCollective | None:
    return xgboost_collective(xgb)


def _configuration(booster: Any) -> dict[str, Any]:
    """All that a Booster is set to."""
    return cast(dict[str, Any], json.loads(booster.save_config())["learner"])


def _threads(booster: Any) -> int | None:
    return None if booster is None else threads_beside(_configuration(booster)["generic_param"]["nthread"])


class XGBoostObjective(Objective):
    """A ranking metric, or a loss, as ``obj=`` of ``xgb.train`` and ``xgb.cv``.

    Unless the loss has a hessian, it is 1 per row, times the weight of the row's query. So a leaf is a gradient step, and
    ``min_child_weight`` counts rows. For a metric's name the hessian averages `hessian_mean` per row, one in
    a hundred: ``min_child_weight=1`` asks for about a hundred rows, and ``lambda=1`` counts as much as these.

    No state of a training is kept: the iteration, which selects the noise, is the number of rounds that the calling booster
    has, so training that goes on with ``xgb_model=`` equals training in one go.

    ``base_score`` need not be set: a ranking loss does not change when all scores of a query move together. ``base_margin``
    is where training starts. Weights of the DMatrix are per query, as for XGBoost's own ranking objectives. Under `SGLB`
    leave ``gamma``, ``alpha`` and ``max_delta_step`` at 0: XGBoost sees gradients divided by the scale of the model, and
    these three compare them with a fixed number. ``booster="dart"`` is refused then.

    XGBoost's default metric, RMSE, is turned off: name one with ``eval_metric`` or pass an `XGBoostMetric`. With weights of
    queries never ask for ``eval_metric="rmse"`` or another per-row metric: XGBoost aborts then.

    Parameters
    ----------
    loss
        A metric such as ``"ndcg@10"``, or a loss such as `StochasticRank` or `SGLB`.
    metric
        What is to be reported; by default the metric that is named, or the loss's own. Training does not depend on it.
    train_on
        With a metric's name: another metric to train on than the recommended one.
    keywords
        With a metric's name: fields of the loss that `recommended` gives for it, to change. Without ``threads`` among them,
        or on the loss, no more threads are used than XGBoost's ``nthread``.

    Examples
    --------
    >>> from stochasticrank_objectives.datasets import make_ranking
    >>> x, labels, groups = make_ranking(20)
    >>> data = xgb.DMatrix(x, labels, group=groups)
    >>> booster = xgb.train({"eta": 0.1}, data, 5, obj=XGBoostObjective("ndcg@10", mu=0.1, seed=3))
    >>> booster.num_boosted_rounds()
    5
    """

    _booster = "xgboost"

    def __init__(
        self,
        loss: str | Metric | Loss,
        *,
        metric: str | Metric | None = None,
        train_on: str | Metric | None = None,
        **keywords: Any,
    ) -> None:
        super().__init__(loss, metric=metric, train_on=train_on, **keywords)
        self._bindings: Bindings[tuple[BoundLoss, NDArray[Any]]] = Bindings()

    def __call__(self, scores: ArrayLike, data: Any, iteration: int | None = None) -> tuple[NDArray[Any], NDArray[Any]]:
        """Gradient and hessian; `iteration` is by default how many rounds the calling booster has."""
        booster = calling(xgb.Booster)
        if iteration is None:
            if booster is None:
                raise ValueError("iteration must be given where no xgboost.Booster is calling; it selects the noise")
            iteration = booster.num_boosted_rounds()
        if booster is None:
            bound, hessian = self._bind(data)
        else:
            self._check_sglb(booster)  # at every iteration: a callback may change the learning rate
            bound, hessian = self._bindings.get((data, booster), lambda: self._bind(data, booster))
        _release_idle_threads()
        if not len(hessian):  # no rows, and XGBoost wants nothing for them; but other processes may wait for a reduction
            bound.derivatives(np.zeros(bound.rows), iteration)
            return hessian, hessian
        gradient, second = bound.derivatives(scores, iteration)
        return gradient.astype(_GRADIENT, copy=False), hessian if second is None else second.astype(_GRADIENT, copy=False)

    def _bind(self, data: Any, booster: Any = None) -> tuple[BoundLoss, NDArray[Any]]:
        groups, weights = _groups_and_weights(data)
        if booster is not None:
            _turn_off_default_metric(booster)
        bound = bind_part(self.loss, _labels(data), groups, weights, _keys(data, groups), _collective())
        limit_threads(bound, _threads(booster))
        return bound, np.ones(data.num_row(), np.float32) if weights is None else np.repeat(weights, groups)

    def _check_sglb(self, booster: Any) -> None:
        if not hasattr(self.loss, "learning_rate"):
            return
        kind = _configuration(booster)["gradient_booster"]
        drops = kind.get("dart_train_param", {})  # since XGBoost 3.4 dropout is an option of gbtree, and dart a name for it
        if kind["name"] == "dart" or any(float(drops.get(name, 0)) > 0 for name in ("rate_drop", "one_drop")):
            raise ValueError('booster="dart" rescales old trees, which SGLB does itself: use booster="gbtree" with SGLB')
        linear = kind["name"] == "gblinear"
        rate = (kind["updater"]["linear_train_param"] if linear else kind["tree_train_param"])["learning_rate"]
        check_learning_rate(self.loss, float(rate), "XGBoost")


def _turn_off_default_metric(booster: Any) -> None:
    """Keep XGBoost from RMSE, its default metric under a custom objective, if it has no other.

    That is no measure of a ranking, and XGBoost aborts when it meets weights of queries, which it takes for weights of rows.

    When a parameter is set, XGBoost forgets which `updater` was asked for, and all settings of a linear one: these are
    set again.
    """
    configuration = _configuration(booster)
    if configuration["metrics"] or configuration["learner_train_param"]["disable_default_eval_metric"] != "0":
        return
    kind = configuration["gradient_booster"]
    forgotten: dict[str, Any] = {}
    if kind["name"] == "gblinear":
        for part in kind["updater"].values():
            forgotten.update(part if isinstance(part, dict) else {})
        forgotten["updater"] = kind["gblinear_train_param"]["updater"]
    elif (trees := kind.get("gbtree", kind)).get("specified_updater"):  # DART holds a gbtree
        forgotten["updater"] = trees["gbtree_train_param"]["updater"]
    booster.set_param({**forgotten, "disable_default_eval_metric": True})


class XGBoostMetric(ReportedMetric):
    """A ranking metric as ``custom_metric=`` of ``xgb.train`` and ``xgb.cv``.

    XGBoost stops on the last metric that it is given, and this one comes after its own (``eval_metric``); it rounds values
    to six decimals. Early stopping on it maximises, with or without ``maximize=True``. Weights of the DMatrix are per query.

    Parameters
    ----------
    metric
        A name such as ``"ndcg@10"`` or a metric.
    ties, empty
        As in `evaluate`. XGBoost's own NDCG keeps the row order of ties and counts a query without relevant documents as 1.
    name
        What XGBoost reports it as; by default the metric's name, with a comma where that has a colon.
    threads
        How many threads; by default no more than XGBoost's ``nthread``.

    Examples
    --------
    >>> XGBoostMetric("ndcg@10", ties="mean")
    XGBoostMetric('ndcg@10', ties='mean', empty=0.0)
    """

    _booster = "xgboost"

    def __init__(
        self,
        metric: str | Metric,
        *,
        ties: Ties = "worst",
        empty: Empty = 0.0,
        name: str | None = None,
        threads: int | None = None,
    ) -> None:
        super().__init__(metric, ties=ties, empty=empty, name=name, threads=threads)
        if ":" in self.name or self.name.split() != [self.name]:
            raise ValueError(f"name must have no spaces and no colon, which XGBoost splits its report at, got {name!r}")
        self._bindings: Bindings[Evaluation | None] = Bindings()

    def _default_name(self) -> str:
        return super()._default_name().replace(":", ",")

    def __call__(self, scores: ArrayLike, data: Any) -> tuple[str, float]:
        """The name and the value."""
        booster = calling(xgb.Booster)
        if booster is None:
            part = self._bind_matrix(data, None)
        else:
            part = self._bindings.get((data, booster), lambda: self._bind_matrix(data, booster))
        _release_idle_threads()
        return self.name, mean_of_all(part, scores, _collective())

    def _bind_matrix(self, data: Any, booster: Any) -> Evaluation | None:
        if booster is not None:
            self._check_name(booster)
            self._maximise()
        groups, weights = _groups_and_weights(data)
        if not len(groups):
            return None
        return self._bind(_labels(data), groups, weights=weights, threads=_threads(booster))

    def _check_name(self, booster: Any) -> None:
        if self.name in (metric["name"] for metric in _configuration(booster)["metrics"]):
            raise ValueError(
                f"eval_metric has XGBoost's own {self.name!r}, and its report would mix both; "
                f"name this one, for example XGBoostMetric({str(self.metric)!r}, name='our-{self.name}')"
            )

    def _maximise(self) -> None:
        """Early stopping on this metric maximises; XGBoost guesses that only from some metrics' names."""
        for stop in getattr(calling(xgb.callback.CallbackContainer), "callbacks", ()):
            if isinstance(stop, xgb.callback.EarlyStopping) and stop.metric_name in (None, self.name):
                if stop.maximize is None:
                    stop.maximize = True
                elif not stop.maximize:
                    raise ValueError(f"maximize=False: {self.name} is better when larger; leave it out or set it to True")
