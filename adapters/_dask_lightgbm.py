"""LightGBM on Dask: a ranker whose queries have keys, that evaluates over all workers and survives the loss of one."""

from __future__ import annotations

import functools
import inspect
import time
import types
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stochasticrank_objectives.evaluation import bind_evaluation
from stochasticrank_objectives.losses import Loss
from stochasticrank_objectives.metrics import Metric

from ._common import reported_metric, require
from ._partitions import (
    _blocks,
    check_parts,
    check_same_partitions,
    da,
    dask,
    look,
    mean_metric,
    partition_by_query,
    query_keys,
)
from .lightgbm import LightGBMMetric, LightGBMObjective

lightgbm = require("lightgbm")

_GRACE = 8.0  # seconds in which the other workers should have noticed that one is lost


class DaskLightGBMRanker(lightgbm.DaskLGBMRanker):  # type: ignore[misc,name-defined]
    """`lightgbm.DaskLGBMRanker` with a loss of ours, query ids instead of groups, and early stopping.

    Data are dask arrays or DataFrames with the same partitions. The model does not depend on the partitioning, except for
    LightGBM's bins and the rounding of its histograms; a query that is cut by a border of partitions is refused
    (`partition_by_query`). Evaluation sets are measured over the queries of all workers, so ``early_stopping_rounds`` works,
    which LightGBM on Dask does not offer otherwise. If a worker is lost, `fit` fails within seconds.

    Parameters
    ----------
    loss
        A metric such as ``"ndcg@10"``, a loss such as `StochasticRank` or `SGLB`, or a `LightGBMObjective`.
    metric
        What `score` returns, and what evaluation sets and early stopping are measured by: a metric's name, a metric or a
        `LightGBMMetric`; by default the metric that is named as `loss`, or the loss's own.
    early_stopping_rounds
        Stop when the metric of the last evaluation set has not risen for so many rounds.
    client
        The Dask client, by default the current one.
    params
        As for `lightgbm.LGBMRanker`, without `objective`.
    """

    def __init__(
        self,
        loss: str | Metric | Loss | LightGBMObjective = "ndcg@10",
        *,
        metric: str | Metric | LightGBMMetric | None = None,
        early_stopping_rounds: int | None = None,
        client: Any = None,
        **params: Any,
    ) -> None:
        require("sklearn")  # the booster's own estimators need it
        super().__init__(client=client, **params)
        self.loss = loss
        self.metric = metric
        self.early_stopping_rounds = early_stopping_rounds

    @classmethod
    def _get_param_names(cls) -> list[str]:
        """Those of LightGBM, too, which before 4.6 takes only what stands in the signature of a subclass."""
        return sorted({*lightgbm.DaskLGBMRanker._get_param_names(), *super()._get_param_names()} - {"params"})

    def _booster_params(self) -> dict[str, Any]:
        ours = ("loss", "metric", "early_stopping_rounds", "client", "objective", "n_jobs")
        return {name: value for name, value in self.get_params().items() if name not in ours}

    def fit(
        self,
        X: Any,
        y: Any,
        *,
        qid: Any,
        sample_weight: Any = None,
        init_score: Any = None,
        eval_set: Sequence[tuple[Any, Any]] | None = None,
        eval_qid: Sequence[Any] | None = None,
        eval_sample_weight: Sequence[Any] | None = None,
        eval_names: list[str] | None = None,
        callbacks: list[Any] | None = None,
        **keywords: Any,
    ) -> DaskLightGBMRanker:
        """Train; `qid` has the query id of each row, weights are per row."""
        if self.objective is not None:
            raise ValueError(f"objective={self.objective!r}: pass a metric or a loss of this package as loss=")
        check_same_partitions(X=X, y=y, qid=qid, sample_weight=sample_weight, init_score=init_score)
        objective = self.loss if isinstance(self.loss, LightGBMObjective) else LightGBMObjective(self.loss)
        evals = self._evaluation(X, y, eval_set, eval_qid, eval_sample_weight)
        callbacks = [*(callbacks or [])]
        if self.early_stopping_rounds is not None:
            if not evals:
                raise ValueError("early_stopping_rounds needs an eval_set")
            callbacks.append(_StopByLast(self.early_stopping_rounds))
        client = lightgbm.dask._get_dask_client(self.client)
        runner = lightgbm.DaskLGBMRanker(
            **{**self._booster_params(), "objective": objective, "metric": "None", "client": _Watching(client)}
        )
        runner._lgb_dask_fit(
            model_factory=_KeyedRanker,
            X=X,
            y=y,
            sample_weight=sample_weight,
            init_score=init_score,
            group=_groups(qid),
            eval_metric=self._custom_metric() if evals else None,
            eval_names=eval_names,
            callbacks=callbacks,
            **evals,
            **keywords,
        )
        settings = {*runner.get_params(), "_other_params"}
        self.__dict__.update({name: value for name, value in vars(runner).items() if name not in settings})
        return self

    def _evaluation(self, X: Any, y: Any, sets: Any, qids: Any, weights: Any) -> dict[str, Any]:
        """Evaluation sets as LightGBM takes them, each with a part for every worker."""
        if not sets:
            return {}
        if qids is None or len(qids) != len(sets):
            raise ValueError("eval_qid must have the query ids of each evaluation set")
        found = []
        for at, (features, labels) in enumerate(sets):
            columns = [features, labels, *([] if weights is None else [weights[at]])]
            columns.append(qids[at])
            if features.npartitions < X.npartitions:
                columns = list(partition_by_query(*columns[:-1], qid=columns[-1], npartitions=X.npartitions))
            found.append(columns)
        evals: dict[str, Any] = {"eval_group": [_groups(columns[-1])[:, 0].astype(np.int64) for columns in found]}
        if weights is not None:
            evals["eval_sample_weight"] = [columns[2] for columns in found]
        if "eval_X" in inspect.signature(lightgbm.DaskLGBMRanker.fit).parameters:
            evals["eval_X"], evals["eval_y"] = tuple(c[0] for c in found), tuple(c[1] for c in found)
        else:
            evals["eval_set"] = [(columns[0], columns[1]) for columns in found]
        return evals

    def to_local(self) -> Any:
        """A `lightgbm.LGBMRanker` with the model."""
        model = lightgbm.LGBMRanker(**self._booster_params())
        settings = {*self.get_params(), "_other_params"}
        model.__dict__.update({name: value for name, value in vars(self).items() if name not in settings})
        return model

    def score(self, X: Any, y: Any, *, qid: Any, sample_weight: Any = None) -> float:
        """The metric, averaged over queries; `sample_weight` weighs queries, one per row."""
        return mean_metric(functools.partial(_bind, self._custom_metric()), self.predict(X), y, qid, sample_weight)

    def _custom_metric(self) -> LightGBMMetric:
        if isinstance(self.metric, LightGBMMetric):
            return self.metric
        return LightGBMMetric(reported_metric(getattr(self.loss, "metric", self.loss), self.metric))


def _bind(metric: Any, labels: Any, keys: Any, weights: Any) -> Any:
    """A metric of an adapter on the data of one partition."""
    return bind_evaluation(metric.metric, labels, qid=keys, weights=weights, ties=metric.ties, empty=metric.empty)


def _groups(qid: Any) -> Any:
    """The size and the key of each query, in two columns, with as many partitions as the query ids."""
    parts = look(qid)
    check_parts(parts)
    shapes = [(len(part.keys), 2) for part in parts]
    blocks = [dask.delayed(_sizes_and_keys)(block) for block in _blocks(qid)]
    return da.concatenate([da.from_delayed(block, shape, np.uint64) for block, shape in zip(blocks, shapes, strict=True)])


def _sizes_and_keys(qid: Any) -> NDArray[np.uint64]:
    keys = query_keys(qid)
    begin = np.flatnonzero(np.append(True, keys[1:] != keys[:-1])) if len(keys) else np.zeros(0, np.int64)
    return np.stack([np.diff(np.append(begin, len(keys))).astype(np.uint64), keys[begin]], axis=1)


# ------------------------------------------------------------ on a worker


class _StopByLast:
    """LightGBM's early stopping, by the last evaluation set.

    By itself LightGBM stops at the first set without progress. The training data may be among them, and on Dask it
    does not recognise them.
    """

    before_iteration = False

    def __init__(self, rounds: int) -> None:
        self.order = 30  # after what records; LightGBM looks for it in the object itself, not in the class
        self._stopping = lightgbm.early_stopping(rounds, verbose=False)
        self._results: list[Any] = []

    def __call__(self, env: Any) -> None:
        self._results.append(env.evaluation_result_list)
        names = ("model", "params", "iteration", "begin_iteration", "end_iteration")
        last = env.evaluation_result_list[-1:]
        seen = types.SimpleNamespace(**{name: getattr(env, name) for name in names}, evaluation_result_list=last)
        try:
            self._stopping(seen)
        except lightgbm.callback.EarlyStopException as stop:
            best = self._results[stop.best_iteration - env.begin_iteration]  # of all sets
            raise lightgbm.callback.EarlyStopException(stop.best_iteration, best) from None


class _KeyedLoss:
    """A loss whose queries have these keys."""

    def __init__(self, loss: Loss, keys: NDArray[np.uint64]) -> None:
        self.loss = loss
        self.keys = keys

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name in ("loss", "keys"):
            raise AttributeError(name)
        return getattr(self.loss, name)

    def bind(self, labels: Any, groups: Any, weights: Any = None, **keywords: Any) -> Any:
        """Bind it with them."""
        return self.loss.bind(labels, groups, weights, **{**keywords, "query_keys": self.keys})


class _KeyedRanker(lightgbm.LGBMRanker):  # type: ignore[misc,name-defined]
    """What trains on one worker: its groups come with keys."""

    def fit(self, X: Any, y: Any, *, group: Any, **keywords: Any) -> _KeyedRanker:
        objective: Any = getattr(self, "objective")  # noqa: B009 - LightGBM has no types
        loss: Any = _KeyedLoss(objective.loss, np.ascontiguousarray(group[:, 1]))
        keyed = LightGBMObjective(loss, metric=objective.metric)
        self.set_params(objective=keyed)
        try:
            super().fit(X, y, group=group[:, 0].astype(np.int64), **keywords)
        except BaseException:
            # LightGBM does so only after a success: a training on one worker that follows would use the dead connections.
            lightgbm.basic._LIB.LGBM_NetworkFree()
            raise
        finally:
            self.set_params(objective=objective)  # nothing of the data goes back with the model
        return self


# ------------------------------------------------------------ on the client


class _Watching:
    """A Dask client that keeps partitions in order, and does not wait for workers that are no more.

    LightGBM's tasks, which are tied to their workers, would wait.
    """

    def __init__(self, client: Any) -> None:
        self._client = client
        self._workers: dict[Any, set[str]] = {}  # by the key of a task, which is tied to them

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def submit(self, *arguments: Any, **keywords: Any) -> Any:
        future = self._client.submit(*arguments, **keywords)
        self._workers[future.key] = set(keywords.get("workers") or ())
        return future

    def who_has(self, futures: Any, **keywords: Any) -> dict[Any, tuple[str, ...]]:
        """Where partitions are, in their own order.

        Dask tells this in any order. LightGBM would number workers, which find the bins of different features, and join the
        rows of a worker in that order. So the model would change from one training to the next.
        """
        found = self._client.who_has(futures, **keywords)
        return {one.key: tuple(sorted(found[one.key])) for one in futures}

    def gather(self, futures: Any) -> Any:
        waiting = list(futures.values() if isinstance(futures, dict) else futures)
        lost: set[str] = set()
        end = looked = 0.0
        while self._any_pending(waiting, lost):
            failed, now = any(one.status not in ("pending", "finished") for one in waiting), time.monotonic()
            if not lost and (failed or now > looked + 0.5):
                looked, lost, end = now, self._lost(), now + _GRACE
            if failed and not lost:
                break
            if lost and now > end:
                self._give_up(waiting, lost)
            time.sleep(0.02)
        ended = [one for one in waiting if one.status != "pending"]
        try:
            if lost and len(ended) < len(waiting):
                self._client.gather(ended)  # tells the error of another worker, if there is one
                raise RuntimeError("the task of the lost worker cannot end")
            return self._client.gather(futures)
        except Exception as error:
            if lost := lost or self._lost():
                self._client.cancel(waiting)
                raise RuntimeError(_LOST.format(", ".join(sorted(lost)))) from error
            raise _first_cause(waiting, error) from None

    def _any_pending(self, futures: list[Any], lost: set[str]) -> bool:
        """Whether any task may still end; one of a lost worker, whose data Dask computes again, waits for ever."""
        return any(one.status == "pending" and not self._workers.get(one.key, set()) & lost for one in futures)

    def _lost(self) -> set[str]:
        return self._all_workers() - set(self._client.nthreads())

    def _all_workers(self) -> set[str]:
        return set().union(*self._workers.values())

    def _give_up(self, waiting: list[Any], lost: set[str]) -> None:
        """The others did not notice: LightGBM in them waits for the lost one, and only a new process ends that."""
        self._client.cancel(waiting, force=True)
        left = sorted(self._all_workers() & set(self._client.nthreads()))
        self._client.restart_workers(left, timeout=30, raise_for_error=False)
        raise RuntimeError(_LOST.format(", ".join(sorted(lost))))


def _first_cause(futures: list[Any], error: Exception) -> Exception:
    """What a worker failed with. LightGBM in the others tells that connections were closed, sometimes before that."""
    end = time.monotonic() + 1.0
    while isinstance(error, lightgbm.basic.LightGBMError) and time.monotonic() < end:
        errors = [one.exception() for one in futures if one.status == "error"]
        error = next((one for one in errors if not isinstance(one, lightgbm.basic.LightGBMError)), error)
        time.sleep(0.02)
    return error


_LOST = "worker {} was lost during training; no model was made. Data that Dask can compute again are: call fit again"
