"""What a metric's name means to an adapter: the loss that trains best for it, of those that were measured."""

from __future__ import annotations

from .metrics import DCG, Metric, parse_metric
from .yeti import YetiLoss

BOOSTERS = ("xgboost", "lightgbm", "catboost")

_DEEP = 20  # positions that count in training, at least
# XGBoost lets a leaf be as small as min_child_weight=1 in hessians, where LightGBM asks for 20 rows.
_HESSIAN_MEANS = {"xgboost": 0.1, "lightgbm": 1.0, "catboost": 1.0}


def recommended(metric: str | Metric, *, booster: str, train_on: str | Metric | None = None) -> YetiLoss:
    """The loss that stands behind a metric's name in the adapters: `XGBoostObjective("ndcg@10")` trains with
    `recommended("ndcg@10", booster="xgboost")`. It is an ordinary loss: print it, or change it with `dataclasses.replace`.

    A metric that is reported gives most of its weight to few documents, so it is a noisy thing to train on. What is trained
    on instead is DCG with linear gain, not normalised, over twice as many positions as are reported, at least 20. The loss
    weighs pairs of documents by what a swap of the two would change in noisy rankings; its steps are bounded, which makes it
    robust to noisy labels. Both were chosen in a study of generated and real data (see "Which metric to train on" in the
    documentation), in which the same loss was best on all three boosters, but for the unit of
    the hessian, which XGBoost compares with its ``min_child_weight`` and ``lambda``.

    Parameters
    ----------
    metric
        The metric that is reported, by name or as a metric; of a sum, the term with the largest cut counts. Whatever columns
        of labels it has, what is trained on instead has the booster's own label.
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
    """
    if booster not in BOOSTERS:
        raise ValueError(f"booster must be one of {', '.join(BOOSTERS)}, got {booster!r}")
    reported = max(term.k or 0 for _, term in parse_metric(metric).parts())
    trained = DCG(max(2 * reported, _DEEP), gain="linear") if train_on is None else parse_metric(train_on)
    return YetiLoss(trained, neighbours=_DEEP, permutations=3, max_step=2.0, hessian_mean=_HESSIAN_MEANS[booster])
