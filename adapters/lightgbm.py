"""StochasticRank in LightGBM: an objective and a metric, for `lightgbm.train`, `lightgbm.cv` and `LGBMRanker` alike."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stochasticrank_objectives.evaluation import Empty, Evaluation, Ties, bind_evaluation
from stochasticrank_objectives.losses import BoundLoss, Loss
from stochasticrank_objectives.metrics import Metric, parse_metric
from stochasticrank_objectives.sglb import SGLB

from ._common import Bindings, as_loss, calling, require

lightgbm = require("lightgbm")

__all__ = ["LightGBMMetric", "LightGBMObjective"]

Bound = TypeVar("Bound")
Floats = NDArray[np.float32]
Arguments = tuple[ArrayLike, NDArray[Any], Any, Any]


class LightGBMObjective:
    """A ranking metric as LightGBM's objective.

    One object serves ``lightgbm.train({"objective": objective, ...})``, ``lightgbm.cv``, ``Booster.update(fobj=objective)``
    and ``LGBMRanker(objective=objective)``, and may be used again: it depends on the Booster alone where a training stands.

    A row's weight multiplies its gradient and its hessian, as in LightGBM's own ranking objectives; the hessian is 1
    otherwise, so that a leaf is the (weighted) mean of its rows' gradients, unless the loss has one, as that of a metric's
    name has (1 a row in the mean). Continued training
    (`init_model`) goes on with the noise and the SGLB scale of the iteration at which the old model ended.

    `lightgbm.cv` splits rows, not queries, under any objective but its own: give it ``folds=GroupKFold(...)``.

    With `SGLB`, the loss's learning_rate must be LightGBM's and must not change, and dart is refused; lambda_l1,
    max_delta_step and min_gain_to_split then apply to LightGBM's raw scores, not to the shrunken ones.

    Parameters
    ----------
    loss
        A metric such as ``"ndcg@10"``, or a loss: `StochasticRank` or `SGLB`.
    keywords
        With a metric: fields of the loss that `recommended` gives for it, to change.

    Examples
    --------
    >>> LightGBMObjective("ndcg@10", mu=0.2)
    LightGBMObjective(StochasticRank('ndcg@10', mu=0.2, sfa=False, hessian_constant=0.0))
    """

    def __init__(self, loss: str | Metric | Loss, **keywords: Any) -> None:
        self.loss = as_loss(loss, keywords, "lightgbm")
        self._bound: _ByLabels[tuple[BoundLoss, Floats]] = _ByLabels()
        self._progress: Bindings[_Progress] = Bindings()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.loss})"

    # LightGBM counts the parameters: only a function of exactly four is given the groups by LGBMRanker.
    def __call__(self, y_true: Any, y_pred: Any, weight: Any = None, group: Any = None) -> tuple[Floats, Floats]:
        """Gradient and hessian, for (preds, dataset) and for (y_true, y_pred, weight, group)."""
        booster = _calling_booster()
        if isinstance(self.loss, SGLB):
            _check_sglb(self.loss, booster.params)
        scores, labels, weights, groups = _arguments(y_true, y_pred, weight, group)

        def bind() -> tuple[BoundLoss, Floats]:
            _check_whole_queries(booster.train_set)
            hessian = np.ones(len(labels), np.float32) if weights is None else np.array(weights, np.float32)
            return self.loss.bind(labels, groups, weights), hessian

        bound, hessian = self._bound.get(labels, weights, groups, bind)
        iteration = self._progress.get(booster, _Progress).iteration(booster.current_iteration())
        gradient, second = bound.derivatives(scores, iteration)
        return gradient.astype(np.float32), hessian if second is None else second.astype(np.float32)


class LightGBMMetric:
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
        choose another if both are evaluated.

    Examples
    --------
    >>> LightGBMMetric("ndcg@10", ties="mean")
    LightGBMMetric('ndcg@10', ties='mean', empty=0.0)
    """

    def __init__(self, metric: str | Metric, *, ties: Ties = "worst", empty: Empty = 0.0, name: str | None = None) -> None:
        self.metric = parse_metric(metric)
        self.ties: Ties = ties
        self.empty: Empty = empty
        self.name = str(self.metric) if name is None else name
        bind_evaluation(self.metric, [0.0], [1], ties=ties, empty=empty)  # to complain now, not in training
        self._bound: _ByLabels[Evaluation] = _ByLabels()

    def __repr__(self) -> str:
        name = "" if self.name == str(self.metric) else f", name={self.name!r}"
        return f"{type(self).__name__}({str(self.metric)!r}, ties={self.ties!r}, empty={self.empty!r}{name})"

    def __call__(self, y_true: Any, y_pred: Any, weight: Any = None, group: Any = None) -> tuple[str, float, bool]:
        """Name, value and "higher is better", for (preds, dataset) and for (y_true, y_pred, weight, group)."""
        scores, labels, weights, groups = _arguments(y_true, y_pred, weight, group)

        def bind() -> Evaluation:
            of_query = weights if weights is None else _means(weights, groups)
            return bind_evaluation(self.metric, labels, groups, weights=of_query, ties=self.ties, empty=self.empty)

        return self.name, self._bound.get(labels, weights, groups, bind).mean(scores), True


class _ByLabels(Generic[Bound]):
    """What was bound to each data set, known by its array of labels; copies and pickles start empty.

    A Dataset keeps and hands out one array until labels are set anew, and LGBMRanker hands out only this array. So it stands
    for the data as they are now; what is bound to it goes when it goes.
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[Any, Any, Any, Bound]] = {}

    def get(self, labels: NDArray[Any], weights: Any, groups: Any, bind: Callable[[], Bound]) -> Bound:
        known, key = self._known, id(labels)
        if key in known:
            alive, same_weights, same_groups, bound = known[key]
            if alive() is labels and same_weights is weights and same_groups is groups:
                return bound
        bound = bind()
        known[key] = weakref.ref(labels, lambda _: known.pop(key, None)), weights, groups, bound
        return bound

    def __reduce__(self) -> tuple[type[_ByLabels[Bound]], tuple[()]]:
        return _ByLabels, ()


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


def _arguments(y_true: Any, y_pred: Any, weight: Any, group: Any) -> Arguments:
    """Scores, labels, weights and groups, from either form of call."""
    scores = y_pred
    if isinstance(y_pred, lightgbm.Dataset):
        scores, data = y_true, y_pred
        y_true, weight, group = data.get_label(), data.get_weight(), data.get_group()
    if group is None:
        raise ValueError(
            "the data have no group: give the size of each query, as in lightgbm.Dataset(X, y, group=[...]) or "
            "LGBMRanker().fit(X, y, group=[...], eval_group=[...])"
        )
    return scores, np.asarray(y_true), weight, group


def _means(weights: ArrayLike, groups: ArrayLike) -> NDArray[np.float64]:
    """The mean weight of each query."""
    sizes = np.asarray(groups)
    means: NDArray[np.float64] = np.add.reduceat(np.asarray(weights, np.float64), np.cumsum(sizes) - sizes) / sizes
    return means


def _check_whole_queries(data: Any) -> None:
    """Refuse a part of a Dataset that cuts queries: LightGBM makes them, without a word, where it splits rows."""
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


def _check_sglb(loss: SGLB, params: dict[str, Any]) -> None:
    """Refuse settings with which the raw scores times the scale are not SGLB's scores."""

    def value(default: Any, *names: str) -> Any:
        return next((params[name] for name in names if params.get(name) is not None), default)

    rate = float(value(0.1, "learning_rate", "eta", "shrinkage_rate"))
    if not np.isclose(rate, loss.learning_rate, rtol=1e-6, atol=0):
        raise ValueError(
            f"learning_rate is {loss.learning_rate:g} in SGLB but {rate:g} in LightGBM; noise and shrinkage are measured in "
            "it: set both to the same value, and keep it during the training"
        )
    if value("gbdt", "boosting", "boost", "boosting_type") == "dart":
        raise ValueError('boosting="dart" rescales old trees, which SGLB does itself: use boosting="gbdt" with SGLB')
