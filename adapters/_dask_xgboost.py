"""XGBoost on Dask: data whose queries have keys and weights, and a ranker."""

from __future__ import annotations

import contextlib
import functools
import secrets
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stochasticrank_objectives.evaluation import bind_evaluation
from stochasticrank_objectives.losses import Loss
from stochasticrank_objectives.metrics import Metric

from ._collective import keys_to_rows
from ._common import reported_metric, require
from ._partitions import _blocks, check_parts, check_same_partitions, da, dask, look, mean_metric, query_keys
from .xgboost import XGBoostMetric, XGBoostObjective

xgb = require("xgboost")
dxgb = require("xgboost.dask")
distributed = require("distributed")

_GRACE = 8.0  # seconds in which all workers should have noticed that a training has failed


def query_matrix(
    client: Any,
    data: Any,
    label: Any,
    *,
    qid: Any,
    weight: Any = None,
    quantile: bool = True,
    **keywords: Any,
) -> Any:
    """Data for `xgboost.dask.train` with our objectives: a ``DaskQuantileDMatrix`` with keys and weights of queries.

    The noise of a query is keyed by its id, so a model does not depend on how the data are partitioned, nor on which worker
    has which partition. A query that is cut by a border of partitions is refused.

    Keys and weights travel as ``label_lower_bound`` and ``label_upper_bound``, since XGBoost keeps no query ids and its Dask
    interface takes no weights of queries. Its own objectives and metrics do not see the weights.

    Parameters
    ----------
    client
        The Dask client, or None for the current one.
    data, label
        A dask array or DataFrame, and an array or Series with the same partitions.
    qid
        The id of each row's query: whole numbers or strings. Rows of a query stand together, in one partition.
    weight
        The weight of each row's query, the same for all of its rows.
    quantile
        False for a ``DaskDMatrix``, which holds the data as they are, not in bins.
    keywords
        Passed to ``DaskQuantileDMatrix``: ``base_margin``, ``ref``, ``max_bin``, ``enable_categorical`` and so on.
    """
    check_same_partitions(data=data, label=label, qid=qid, weight=weight)
    parts = look(qid)
    check_parts(parts)
    first = np.cumsum([0, *(len(part.keys) for part in parts)])
    weights = [None] * len(parts) if weight is None else _blocks(weight)
    columns: list[list[Any]] = [[], [], []]
    make = dask.delayed(_meta, nout=3)
    for at, (part, ids, of_rows) in enumerate(zip(parts, _blocks(qid), weights, strict=True)):
        numbers = make(ids, int(first[at]), of_rows)
        for column, delayed, dtype in zip(columns, numbers, (np.int64, np.float32, np.float32), strict=True):
            column.append(da.from_delayed(delayed, (part.rows,), dtype))
    numbered, lower, upper = (da.concatenate(column) for column in columns)
    kind = dxgb.DaskQuantileDMatrix if quantile else dxgb.DaskDMatrix
    bounds = {"label_lower_bound": lower, **({} if weight is None else {"label_upper_bound": upper})}
    return kind(client, data, label, qid=numbered, **bounds, **keywords)


def _meta(qid: Any, first: int, weights: Any) -> tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.float32]]:
    """For each row: the number of its query, which grows from partition to partition; a piece of its key; its weight.

    Because the numbers grow, XGBoost does not sort the rows of a worker, which would not keep their order in queries.
    """
    keys = query_keys(qid)
    begin = np.flatnonzero(np.append(True, keys[1:] != keys[:-1])) if len(keys) else np.zeros(0, np.int64)
    sizes = np.diff(np.append(begin, len(keys)))
    of_rows = np.ones(0, np.float32) if weights is None else np.asarray(weights, np.float32)
    if weights is not None and (wrong := of_rows != np.repeat(of_rows[begin], sizes)).any():
        at = int(np.argmax(wrong))
        raise ValueError(f"weight {of_rows[at]:g} differs from that of its query's first row; weights are of queries")
    return first + np.repeat(np.arange(len(sizes)), sizes), keys_to_rows(keys[begin], sizes), of_rows


class DaskXGBoostRanker(dxgb.DaskScikitLearnBase):  # type: ignore[misc,name-defined]
    """`XGBoostRanker` on a Dask cluster; `xgboost.dask.DaskXGBRanker`, which it resembles, takes no loss of ours.

    Data are dask arrays or DataFrames with the same partitions. The model does not depend on the partitioning, except for
    the rounding of XGBoost's histograms; a query that is cut by a border of partitions is refused (`partition_by_query`).
    Evaluation sets and early stopping are measured over the queries of all workers.

    Parameters
    ----------
    loss
        A metric such as ``"ndcg@10"``, a loss such as `StochasticRank` or `SGLB`, or an `XGBoostObjective`.
    metric
        What `score` returns, and what evaluation sets and early stopping are measured by: a metric's name, a metric or an
        `XGBoostMetric`; by default the metric that is named as `loss`, or the loss's own.
    params
        As for `xgboost.XGBModel`, without `objective`.
    """

    _estimator_type = "ranker"

    def __init__(
        self,
        loss: str | Metric | Loss | XGBoostObjective = "ndcg@10",
        *,
        metric: str | Metric | XGBoostMetric | None = None,
        coll_cfg: Any = None,
        **params: Any,
    ) -> None:
        require("sklearn")  # the booster's own estimators need it
        super().__init__(**params)
        self.loss = loss
        self.metric = metric
        self.coll_cfg = coll_cfg

    def _wrapper_params(self) -> set[str]:
        return {*super()._wrapper_params(), "loss", "metric", "objective", "coll_cfg"}

    def fit(
        self,
        X: Any,
        y: Any,
        *,
        qid: Any,
        sample_weight: Any = None,
        base_margin: Any = None,
        eval_set: Sequence[tuple[Any, Any]] | None = None,
        eval_qid: Sequence[Any] | None = None,
        sample_weight_eval_set: Sequence[Any] | None = None,
        base_margin_eval_set: Sequence[Any] | None = None,
        verbose: bool | int = False,
        xgb_model: Any = None,
    ) -> DaskXGBoostRanker:
        """Train; weights are per row and the same for all rows of a query."""
        if self.objective is not None:
            raise ValueError(f"objective={self.objective!r}: pass a metric or a loss of this package as loss=")
        objective = self.loss if isinstance(self.loss, XGBoostObjective) else XGBoostObjective(self.loss)
        options: dict[str, Any] = {
            "missing": self.missing,
            "enable_categorical": self.enable_categorical,
            "max_bin": self.max_bin,
        }
        options["feature_types"] = self.feature_types
        make: Any = functools.partial(query_matrix, self.client, **options)
        train = make(X, y, qid=qid, weight=sample_weight, base_margin=base_margin)
        evals = []
        for at, (eval_X, eval_y) in enumerate(eval_set or []):
            if eval_qid is None:
                raise ValueError("eval_qid must have the query ids of each evaluation set")
            more = {
                "weight": None if sample_weight_eval_set is None else sample_weight_eval_set[at],
                "base_margin": None if base_margin_eval_set is None else base_margin_eval_set[at],
            }
            same = eval_X is X and eval_y is y
            evals.append((train if same else make(eval_X, eval_y, qid=eval_qid[at], ref=train, **more), f"validation_{at}"))
        with xgb.config_context(verbosity=self.verbosity), _none_left_stuck(self.client) as mark:
            result = dxgb.train(
                self.client,
                self.get_xgb_params(),
                train,
                self.get_num_boosting_rounds(),
                evals=evals,
                obj=objective,
                custom_metric=self._custom_metric() if evals else None,
                early_stopping_rounds=self.early_stopping_rounds,
                verbose_eval=verbose,
                xgb_model=xgb_model.get_booster() if isinstance(xgb_model, xgb.XGBModel) else xgb_model,
                callbacks=[*(self.callbacks or []), mark],
                **({} if self.coll_cfg is None else {"coll_cfg": self.coll_cfg}),  # XGBoost has it from 3.0 on
            )
        self._Booster = result["booster"]
        self.evals_result_ = result["history"]
        return self

    def score(self, X: Any, y: Any, *, qid: Any, sample_weight: Any = None) -> float:
        """The metric, averaged over queries; `sample_weight` weighs queries, one per row."""
        metric = self._custom_metric()
        return mean_metric(functools.partial(_bind, metric), self.predict(X), y, qid, sample_weight)

    def _custom_metric(self) -> XGBoostMetric:
        if isinstance(self.metric, XGBoostMetric):
            return self.metric
        return XGBoostMetric(reported_metric(getattr(self.loss, "metric", self.loss), self.metric))


def _bind(metric: Any, labels: Any, keys: Any, weights: Any) -> Any:
    """A metric of an adapter on the data of one partition."""
    return bind_evaluation(metric.metric, labels, qid=keys, weights=weights, ties=metric.ties, empty=metric.empty)


# ------------------------------------------------------------ workers that are stuck


class _Mark(xgb.callback.TrainingCallback):  # type: ignore[misc,name-defined]
    """Remembers which thread of a worker trains, and for which task, to tell later whether it still does."""

    def __init__(self) -> None:
        super().__init__()
        self.name = secrets.token_hex(8)

    def before_training(self, model: Any) -> Any:
        """Called on each worker."""
        _training[self.name] = threading.get_ident(), distributed.get_worker().get_current_task()
        return model

    def after_training(self, model: Any) -> Any:
        """Called if nothing has failed."""
        _training.pop(self.name, None)
        return model


_training: dict[str, tuple[int, Any]] = {}


def _is_training(name: str, dask_worker: Any) -> bool:
    if name not in _training:
        return False
    thread, task = _training[name]
    busy: bool = dask_worker.active_threads.get(thread) == task
    return busy


@contextlib.contextmanager
def _none_left_stuck(client: Any) -> Iterator[_Mark]:
    """If a training fails, restart the workers that do not end it.

    When a worker dies, XGBoost in another one sometimes waits for ever, and would keep the next training waiting, too.
    """
    mark = _Mark()
    try:
        yield mark
    except Exception:
        end = time.monotonic() + _GRACE
        while stuck := [at for at, busy in client.run(_is_training, mark.name, on_error="ignore").items() if busy]:
            if time.monotonic() > end:
                client.restart_workers(stuck, timeout=30, raise_for_error=False)
                break
            time.sleep(0.1)
        raise
