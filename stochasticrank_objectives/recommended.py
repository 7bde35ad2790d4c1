"""What a metric's name means to an adapter: the loss that trains best for it, of those that were measured."""

from __future__ import annotations

from .losses import StochasticRank
from .metrics import Metric

BOOSTERS = ("xgboost", "lightgbm", "catboost")

# XGBoost builds histograms for the child of a node that has the smaller sum of hessians; with bare absolute gradients that
# is often the child with more rows, and a tree takes a quarter longer.
_HESSIAN_CONSTANTS = {"xgboost": 0.25, "lightgbm": 0.0, "catboost": 0.0}


def recommended(metric: str | Metric, *, booster: str) -> StochasticRank:
    """The loss that stands behind a metric's name in the adapters: `XGBoostObjective("ndcg@10")` trains with
    `recommended("ndcg@10", booster="xgboost")`. It is an ordinary loss: print it, or change it with `dataclasses.replace`.

    >>> print(recommended("ndcg@10", booster="lightgbm"))
    StochasticRank('ndcg@10', sfa=False, hessian_constant=0.0)
    """
    if booster not in BOOSTERS:
        raise ValueError(f"booster must be one of {', '.join(BOOSTERS)}, got {booster!r}")
    return StochasticRank(metric, sfa=False, hessian_constant=_HESSIAN_CONSTANTS[booster])
