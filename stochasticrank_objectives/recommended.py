"""What a metric's name means to an adapter: the loss that trains best for it, of those that were measured."""

from __future__ import annotations

from typing import Any

from .metrics import DCG, Metric, parse_metric
from .yeti import YetiLoss

BOOSTERS = ("xgboost", "lightgbm", "catboost")

# What differs between the boosters. The fewer rankings are drawn for one gradient, the more its noise protects from learning
# the noise of the labels; CatBoost, whose trees are simpler, has less need of that than of a smooth gradient. XGBoost lets a
# leaf be as small as min_child_weight=1 in hessians, where LightGBM asks for 20 rows.
_RECIPES: dict[str, dict[str, Any]] = {
    "xgboost": {"neighbours": 40, "permutations": 1, "hessian_mean": 0.02},
    "lightgbm": {"neighbours": 40, "permutations": 1},
    "catboost": {"neighbours": 20, "permutations": 3},
}


def recommended(metric: str | Metric, *, booster: str, train_on: str | Metric | None = None) -> YetiLoss:
    """The loss that stands behind a metric's name in the adapters: `XGBoostObjective("ndcg@10")` trains with
    `recommended("ndcg@10", booster="xgboost")`. It is an ordinary loss: print it, or change it with `dataclasses.replace`.

    A metric that is reported gives most of its weight to few documents, so it is a noisy thing to train on. What is trained
    on instead is DCG with linear gain, not normalised, over twice as many positions as are reported, and at least 40
    (CatBoost: 20). The loss weighs pairs of documents by what a swap of the two would change in noisy rankings; its steps
    are bounded, which makes it robust to noisy labels. All this was chosen in a study of generated and real data (see "Which
    metric to train on" in the documentation). The boosters differ in how many rankings are drawn, and in the unit of the
    hessian, which XGBoost compares with its ``min_child_weight`` and ``lambda``.

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
    YetiLoss('dcg@40:gain=linear', neighbours=40, permutations=1, max_step=2.0)
    >>> print(recommended("mrr", booster="catboost", train_on="ndcg@10"))
    YetiLoss('ndcg@10', neighbours=20, permutations=3, max_step=2.0)
    """
    if booster not in BOOSTERS:
        raise ValueError(f"booster must be one of {', '.join(BOOSTERS)}, got {booster!r}")
    reported = max(term.k or 0 for _, term in parse_metric(metric).parts())
    recipe = _RECIPES[booster]
    trained = DCG(max(2 * reported, recipe["neighbours"]), gain="linear") if train_on is None else parse_metric(train_on)
    return YetiLoss(trained, max_step=2.0, **recipe)
