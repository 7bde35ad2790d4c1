"""StochasticRank in LightGBM: an objective and a metric, for `lightgbm.train`, `lightgbm.cv` and `LGBMRanker` alike."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stochasticrank_objectives.evaluation import Empty, Evaluation, Ties
from stochasticrank_objectives.losses import BoundLoss, Loss
from stochasticrank_objectives.metrics import Metric

from ._collective import bind_part, lightgbm_collective, mean_of_all, no_one_left_waiting
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

lightgbm = require("lightgbm")
_release_idle_threads = release_of_idle_threads(getattr(lightgbm.basic, "_LIB", None))

__all__ = ["LightGBMMetric", "LightGBMObjective"]

Floats = NDArray[np.float32]
Data = tuple[NDArray[Any], Any, Any, Any]  # labels, weights, groups, and columns of labels


class LightGBMObjective(Objective):
    """A ranking metric as LightGBM's objective.

    One object serves ``lightgbm.train({"objective": objective, ...})``, ``lightgbm.cv``, ``Booster.update(fobj=objective)``
    and ``LGBMRanker(objective=objective)``, and may be used again: how far a training is depends on the Booster alone.

    A row's weight multiplies its gradient and its hessian, as in LightGBM's own ranking objectives. Otherwise the hessian is
    1 per row, so that a leaf is the (weighted) mean of its rows' gradients, unless the loss has a hessian; that of a
    metric's name averages 1 per row. Continued training (`init_model`) goes on with the noise and the SGLB scale of the
    iteration at which the old model ended.

    `lightgbm.cv` splits rows, not queries, under any objective but its own: give it ``folds=GroupKFold(...)``. We refuse
    ``bagging_by_query``, under which LightGBM learns nothing from a custom objective, and a Dataset with ``position``, which
    only LightGBM's own lambdarank corrects for.

    With `SGLB`, the loss's learning_rate must be LightGBM's and must not change, and dart is refused; lambda_l1,
    max_delta_step and min_gain_to_split then apply to LightGBM's raw scores, not to the shrunken ones.

    Parameters
    ----------
    loss
        A metric such as ``"ndcg@10"``, or a loss: `StochasticRank` or `SGLB`.
    metric
        What is to be reported; by default the metric that is named, or the loss's own. Training does not depend on it.
    train_on
        With a metric's name: another metric to train on than the recommended one.
    keywords
        With a metric's name: fields of the loss that `recommended` gives for it, to change. Without ``threads`` among them,
        or on the loss, no more threads are used than LightGBM's ``num_threads``.

    Examples
    --------
    >>> from stochasticrank_objectives import StochasticRank
    >>> LightGBMObjective(StochasticRank("ndcg@10", mu=0.2))
    LightGBMObjective(StochasticRank('ndcg@10', mu=0.2))
    >>> objective = LightGBMObjective("mrr", train_on="ndcg@10", mu=0.2, seed=3)
    >>> print(objective.metric, objective.loss.metric)
    mrr ndcg@10
    """

    _booster = "lightgbm"

    def __init__(
        self,
        loss: str | Metric | Loss,
        *,
        metric: str | Metric | None = None,
        train_on: str | Metric | None = None,
        **keywords: Any,
    ) -> None:
        super().__init__(loss, metric=metric, train_on=train_on, **keywords)
        self._bindings: Bindings[tuple[BoundLoss, Floats]] = Bindings()
        self._progress: Bindings[_Progress] = Bindings()

    # LightGBM counts the parameters: only a function of exactly four is given the groups by LGBMRanker.
    def __call__(self, y_true: Any, y_pred: Any, weight: Any = None, group: Any = None) -> tuple[Floats, Floats]:
        """Gradient and hessian, for (preds, dataset) and for (y_true, y_pred, weight, group)."""
        booster = _calling_booster()
        with no_one_left_waiting(booster):
            return self._derivatives(booster, *_arguments(y_true, y_pred, weight, group))

    def _derivatives(self, booster: Any, scores: ArrayLike, data: Data) -> tuple[Floats, Floats]:
        if hasattr(self.loss, "learning_rate"):  # at every iteration: a callback may change it
            _check_sglb(self.loss, booster.params)
        bound, hessian = self._bindings.get((*data, booster), lambda: self._bind(booster, *data))
        iteration = self._progress.get((booster,), _Progress).iteration(booster.current_iteration())
        _release_idle_threads()
        gradient, second = bound.derivatives(scores, iteration)
        return gradient.astype(np.float32), hessian if second is None else second.astype(np.float32)

    def _bind(self, booster: Any, labels: NDArray[Any], weights: Any, groups: Any, columns: Any) -> tuple[BoundLoss, Floats]:
        _check_training(booster)
        sizes = np.asarray(groups, np.int64)
        given, collective = with_columns(labels, columns), lightgbm_collective(booster, _parameter)
        bound = bind_part(self.loss, given, sizes, weights, None, collective)
        limit_threads(bound, _threads(booster))
        if collective is not None and hasattr(inner := getattr(bound, "bound", bound), "held"):
            inner.held = False  # LightGBM's trees do not depend on it, and workers need not exchange in every iteration
        return bound, np.ones(len(labels), np.float32) if weights is None else np.array(weights, np.float32)


class LightGBMMetric(ReportedMetric):
    """A ranking metric as LightGBM's `feval` (`lightgbm.train`, `lightgbm.cv`) and as LGBMRanker's `eval_metric`.

    Row weights of the data become query weights as in LightGBM's own ranking metrics: the mean over the query's rows.

    Parameters
    ----------
    metric
        A name such as ``"ndcg@10"`` or a metric.
    ties, empty
        How tied documents are ranked and what a query without relevant documents counts as; see `evaluate`. LightGBM's
        own ndcg keeps the order of the rows and counts such a query as 1.
    name
        What LightGBM calls it in logs and results, by default the metric's name. LightGBM's own ndcg@k has the same one:
        choose another if both are evaluated. LGBMRanker evaluates its own unless it is given ``metric="None"``.
    threads
        How many threads; by default no more than LightGBM's ``num_threads``.

    Examples
    --------
    >>> LightGBMMetric("ndcg@10", ties="mean")
    LightGBMMetric('ndcg@10', ties='mean', empty=0.0)
    """

    _booster = "lightgbm"

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
        self._bindings: Bindings[Evaluation] = Bindings()

    def __call__(self, y_true: Any, y_pred: Any, weight: Any = None, group: Any = None) -> tuple[str, float, bool]:
        """Name, value and "higher is better", for (preds, dataset) and for (y_true, y_pred, weight, group)."""
        booster = calling(lightgbm.Booster)
        scores, data = _arguments(y_true, y_pred, weight, group)
        with no_one_left_waiting(booster):
            bound = self._bindings.get((*data, booster), lambda: self._bind_dataset(booster, *data))
            _release_idle_threads()
            return self.name, mean_of_all(bound, scores, lightgbm_collective(booster, _parameter)), True

    def _bind_dataset(self, booster: Any, labels: NDArray[Any], weights: Any, groups: Any, columns: Any) -> Evaluation:
        if self.name in getattr(booster, "_Booster__name_inner_eval", ()):
            raise ValueError(
                f"LightGBM evaluates its own {self.name!r} too, and its records would mix both; name this one, for example "
                f"LightGBMMetric({str(self.metric)!r}, name='our-{self.name}'), or turn LightGBM's off with metric=\"None\""
            )
        of_query = None if weights is None else _means(weights, groups)
        return self._bind(with_columns(labels, columns), groups, weights=of_query, threads=_threads(booster))


class _Progress:
    """Where the training of one Booster stands."""

    def __init__(self) -> None:
        self.trees = -1
        self.without_tree = 0

    def iteration(self, trees: int) -> int:
        """The number of this iteration, for a Booster that has so many trees.

        A tree without a split is not kept; the next iteration must get new noise all the same, or it would end likewise.
        """
        self.without_tree += trees == self.trees
        self.trees = trees
        return trees + self.without_tree


def _calling_booster() -> Any:
    booster = calling(lightgbm.Booster)
    if booster is not None:
        return booster
    raise ValueError(
        "LightGBMObjective works only inside a training of LightGBM, which knows the iteration; "
        "for a gradient by hand use loss.bind(labels, groups).gradient(scores, iteration)"
    )


def _arguments(y_true: Any, y_pred: Any, weight: Any, group: Any) -> tuple[ArrayLike, Data]:
    """Scores; then labels, weights, groups and further columns of labels: from either form of call.

    A Dataset keeps and hands out the same three arrays until they are set anew, and LGBMRanker hands out only these: they
    stand for the data as they are now.
    """
    scores, columns = y_pred, None
    if isinstance(y_pred, lightgbm.Dataset):
        scores, data = y_true, y_pred
        y_true, weight, group = data.get_label(), data.get_weight(), data.get_group()
        columns = columns_of(data)
    if group is None:
        raise ValueError(
            "the data have no group: give the size of each query, as in lightgbm.Dataset(X, y, group=[...]) or "
            "LGBMRanker().fit(X, y, group=[...], eval_group=[...])"
        )
    return scores, (np.asarray(y_true), weight, group, columns)


def _means(weights: ArrayLike, groups: ArrayLike) -> NDArray[np.float64]:
    """The mean weight of each query."""
    sizes = np.asarray(groups)
    means: NDArray[np.float64] = np.add.reduceat(np.asarray(weights, np.float64), np.cumsum(sizes) - sizes) / sizes
    return means


def _parameter(params: dict[str, Any], default: Any, *names: str) -> Any:
    """A parameter of LightGBM by its name or one of its other names."""
    return next((params[name] for name in names if params.get(name) is not None), default)


def _threads(booster: Any) -> int | None:
    names = ("num_threads", "num_thread", "nthread", "nthreads", "n_jobs")
    return None if booster is None else threads_beside(_parameter(booster.params, None, *names))


def _check_training(booster: Any) -> None:
    """Refuse data and settings with which LightGBM trains something else than what it was asked for, without a word."""
    data = booster.train_set
    _check_whole_queries(data)
    if str(booster.params.get("bagging_by_query", False)).lower() in ("true", "1", "+"):
        raise ValueError(
            "under bagging_by_query=True LightGBM learns nothing from a custom objective, and predicts a constant; leave it "
            "out: bagging_fraction and bagging_freq then sample rows"
        )
    if hasattr(data, "get_position") and data.get_position() is not None:  # from 4.1 on
        raise ValueError(
            "position= of the Dataset is corrected for by LightGBM's own lambdarank only, and would be ignored; leave it "
            "out and train on corrected labels: stochasticrank_objectives.debias(labels, positions, propensities)"
        )


def _check_whole_queries(data: Any) -> None:
    """Refuse a part of a Dataset that cuts queries: LightGBM makes them where it splits rows."""
    if data.used_indices is None or data.reference is None or data.reference.get_group() is None:
        return
    sizes = np.asarray(data.reference.get_group())
    query, counts = np.unique(np.repeat(np.arange(len(sizes)), sizes)[data.used_indices], return_counts=True)
    if (cut := counts != sizes[query]).any():
        at = int(np.argmax(cut))
        raise ValueError(
            f"only {counts[at]} of the {sizes[query[at]]} rows of query {query[at]} are in this part of the data; with "
            "lightgbm.cv split by query: folds=sklearn.model_selection.GroupKFold(5)"
        )


def _check_sglb(loss: Loss, params: dict[str, Any]) -> None:
    """Refuse settings with which the raw scores times the scale are not SGLB's scores."""
    check_learning_rate(loss, float(_parameter(params, 0.1, "learning_rate", "eta", "shrinkage_rate")), "LightGBM")
    if _parameter(params, "gbdt", "boosting", "boost", "boosting_type") == "dart":
        raise ValueError('boosting="dart" rescales old trees, which SGLB does itself: use boosting="gbdt" with SGLB')
