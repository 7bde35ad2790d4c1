"""What a metric's name means to an adapter: the loss that trains best for it, of those that were measured."""

from __future__ import annotations

from .losses import StochasticRank
from .metrics import Metric, parse_metric

BOOSTERS = ("xgboost", "lightgbm", "catboost")

# XGBoost builds histograms for the child of a node that has the smaller sum of hessians; with bare absolute gradients that
# is often the child with more rows, and a tree takes a quarter longer.
_HESSIAN_CONSTANTS = {"xgboost": 0.25, "lightgbm": 0.0, "catboost": 0.0}


def recommended(metric: str | Metric, *, booster: str, train_on: str | Metric | None = None) -> StochasticRank:
    """The loss that stands behind a metric's name in the adapters: `XGBoostObjective("ndcg@10")` trains with
    `recommended("ndcg@10", booster="xgboost")`. It is an ordinary loss: print it, or change it with `dataclasses.replace`.

    Parameters
    ----------
    metric
        The metric that is reported, by name or as a metric.
    booster
        ``"xgboost"``, ``"lightgbm"`` or ``"catboost"``.
    train_on
        The metric to train on; by default the one that was measured to be best for `metric`.

    Examples
    --------
    >>> print(recommended("ndcg@10", booster="lightgbm"))
    StochasticRank('ndcg@10', sfa=False, hessian_constant=0.0)
    >>> print(recommended("mrr", booster="lightgbm", train_on="ndcg@10"))
    StochasticRank('ndcg@10', sfa=False, hessian_constant=0.0)
    """
    if booster not in BOOSTERS:
        raise ValueError(f"booster must be one of {', '.join(BOOSTERS)}, got {booster!r}")
    reported = parse_metric(metric)
    trained = reported if train_on is None else parse_metric(train_on)
    return StochasticRank(trained, sfa=False, hessian_constant=_HESSIAN_CONSTANTS[booster])
