"""What a metric's name means to an adapter: the loss that trains best for it, of those that were measured."""

from __future__ import annotations

from typing import TypeAlias

from .listwise import QueryRMSE
from .losses import StochasticRank
from .metrics import DCG, Metric, parse_metric
from .ranks import AUC, Kendall, Spearman
from .yeti import YetiLoss

Recommended: TypeAlias = YetiLoss | StochasticRank | QueryRMSE

BOOSTERS = ("xgboost", "lightgbm", "catboost")

_DEEP = 20  # positions that count in training, at least
# XGBoost lets a leaf be as small as min_child_weight=1 in hessians, where LightGBM asks for 20 rows.
_HESSIAN_MEANS = {"xgboost": 0.1, "lightgbm": 1.0, "catboost": 1.0}


def recommended(metric: str | Metric, *, booster: str, train_on: str | Metric | None = None) -> Recommended:
    """The loss that stands behind a metric's name in the adapters: `XGBoostObjective("ndcg@10")` trains with
    `recommended("ndcg@10", booster="xgboost")`. It is an ordinary loss: print it, or change it with `dataclasses.replace`.

    A metric that is reported gives most of its weight to few documents, so it is a noisy thing to train on. What is trained
    on instead is DCG with linear gain, not normalised, over twice as many positions as are reported, at least 20. The loss
    weighs pairs of documents by what a swap of the two would change in noisy rankings; its steps are bounded, which makes it
    robust to noisy labels. Both were chosen in a study of generated and real data (see "Which metric to train on" in the
    documentation), in which the same loss was best on all three boosters, but for the unit of
    the hessian, which XGBoost compares with its ``min_child_weight`` and ``lambda``.

    Other metrics have other losses (see "Beyond ranked lists"). One of a selection, such as `DCGRR`, says by the sign of a
    score what is shown, which no loss of pairs can learn: it is trained on itself, with steps whose size does not depend on
    the metric. `AUC`, and a sum with a metric of a whole ranking in it, are trained on themselves too, by the loss above.
    For `Spearman` and `Kendall`, squared errors of the labels' ranks in their query were as good as any loss of the metric
    on labels with little signal, and better on others.

    Parameters
    ----------
    metric
        The metric that is reported, by name or as a metric; of a sum, the term with the largest cut counts.
    booster
        ``"xgboost"``, ``"lightgbm"`` or ``"catboost"``.
    train_on
        The metric to train on instead.

    Examples
    --------
    >>> print(recommended("ndcg@10", booster="lightgbm"))
    YetiLoss('dcg@20:gain=linear', neighbours=20, permutations=3, max_step=2.0)
    >>> print(recommended("mrr", booster="lightgbm", train_on="ndcg@10"))
    YetiLoss('ndcg@10', neighbours=20, permutations=3, max_step=2.0)
    >>> print(recommended("dcgrr@10", booster="lightgbm"))
    StochasticRank('dcgrr@10', sfa=False, hessian_constant=0.0)
    >>> print(recommended("spearman", booster="xgboost"))
    QueryRMSE(ranks=True)
    """
    if booster not in BOOSTERS:
        raise ValueError(f"booster must be one of {', '.join(BOOSTERS)}, got {booster!r}")
    named = parse_metric(metric if train_on is None else train_on)
    if train_on is None and isinstance(named, (Spearman, Kendall)):
        return QueryRMSE(ranks=True)
    if named.family != "ranked":
        return StochasticRank(named, sfa=False, hessian_constant=0.0)
    reported = max(term.k or 0 for _, term in named.parts())
    itself = train_on is not None or any(isinstance(term, (AUC, Spearman)) for _, term in named.parts())
    trained = named if itself else DCG(max(2 * reported, _DEEP), gain="linear")
    return YetiLoss(trained, neighbours=_DEEP, permutations=3, max_step=2.0, hessian_mean=_HESSIAN_MEANS[booster])
