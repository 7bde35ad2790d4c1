"""What a metric's name means to an adapter: the loss that trains best for it, of those that were measured."""

from __future__ import annotations

from typing import Any, TypeAlias

from .listwise import QueryRMSE
from .losses import StochasticRank
from .metrics import DCG, ERR, BinaryDCG, Metric, _Binary, parse_metric
from .ranks import AUC, Kendall, Spearman
from .yeti import YetiLoss

Recommended: TypeAlias = YetiLoss | StochasticRank | QueryRMSE

BOOSTERS = ("xgboost", "lightgbm", "catboost")

# Lists of hundreds of documents need pairs far below what is reported, or else most documents are hardly ever learned from.
_CUT, _NEIGHBOURS = 100, 200
# What differs between the boosters. The fewer rankings are drawn for one gradient, the more its noise protects from learning
# the noise of the labels; CatBoost, whose trees are simpler, has less need of that than of a smooth gradient. The mean of
# the hessian says how many rows XGBoost's lambda=1 and min_child_weight=1 (100) and CatBoost's l2_leaf_reg=3 (30) stand for.
# LightGBM has nothing of the kind by default, and asks for 20 rows per leaf. XGBoost's default learning rate, 0.3, is large,
# and takes smaller steps.
_RECIPES: dict[str, dict[str, Any]] = {
    "xgboost": {"permutations": 1, "max_step": 1.0, "hessian_mean": 0.01},
    "lightgbm": {"permutations": 1, "max_step": 2.0},
    "catboost": {"permutations": 5, "max_step": 2.0, "hessian_mean": 0.1},
}


def recommended(metric: str | Metric, *, booster: str, train_on: str | Metric | None = None) -> Recommended:
    """The loss that stands behind a metric's name in the adapters: `XGBoostObjective("ndcg@10")` trains with
    `recommended("ndcg@10", booster="xgboost")`. It is an ordinary loss: print it, or change it with `dataclasses.replace`.

    A metric that is reported gives most of its weight to few documents, so it is a noisy thing to train on. What is
    trained on instead is DCG with linear gain, not normalised, over twice as many positions as are reported, and at least
    100. For metrics of binary relevance, such as MRR and MAP, a document that they take for relevant gains 1 and a
    quarter of its label: what is relevant at all comes first, and grades still say a little. For ERR, which asks for one
    excellent document, the gain is the label to the power 1.5. The loss weighs pairs of documents by what a swap of the
    two would change in noisy rankings; its steps are bounded, which makes it robust to noisy labels. All this was chosen
    in a study of generated and real data (see "Which metric to train on" in the documentation). The boosters differ in
    how many rankings are drawn, and in the mean of the hessian, which XGBoost compares with its ``min_child_weight`` and
    ``lambda``, and CatBoost with its ``l2_leaf_reg``.

    Other metrics have other losses (see "Beyond ranked lists"). One of a selection, such as `DCGRR`, says by the sign of a
    score what is shown, which no loss of pairs can learn: it is trained on itself, with steps whose size does not depend on
    the metric. So is one that names columns of labels, which may disagree about a pair. `AUC`, and a sum with a metric of a
    whole ranking in it, are trained on themselves too, by the loss above. For `Spearman` and `Kendall`, squared errors of
    the labels' ranks in their query were as good as any loss of the metric on labels with little signal, no worse on others,
    and the cheapest.

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
    YetiLoss('dcg@100:gain=linear', neighbours=200, permutations=1, max_step=2.0)
    >>> print(recommended("mrr", booster="lightgbm"))
    YetiLoss('binarydcg@100:grades=0.25', neighbours=200, permutations=1, max_step=2.0)
    >>> print(recommended("mrr", booster="catboost", train_on="ndcg@10"))
    YetiLoss('ndcg@10', neighbours=200, permutations=5, max_step=2.0, hessian_mean=0.1)
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
    columns = [column for _, part in named.parts() for _, column, _ in part.components()]
    if named.family != "ranked" or (train_on is None and any(columns)):
        return StochasticRank(named, sfa=False, hessian_constant=0.0)
    reported = max(term.k or 0 for _, term in named.parts())
    itself = train_on is not None or any(isinstance(term, (AUC, Spearman)) for _, term in named.parts())
    trained = named if itself else _stand_in(named, max(2 * reported, _CUT))
    return YetiLoss(trained, neighbours=_NEIGHBOURS, **_RECIPES[booster])


def _stand_in(metric: Metric, cut: int) -> Metric:
    """The DCG that is trained on in place of a metric: of grades, of what the metric takes for relevant, or of grades to a
    power for ERR."""
    thresholds = {term.threshold if isinstance(term, _Binary) else None for _, term in metric.parts()}
    if len(thresholds) == 1 and (threshold := thresholds.pop()) is not None:
        return BinaryDCG(cut, threshold, grades=0.25)
    return DCG(cut, gain=1.5 if all(isinstance(term, ERR) for _, term in metric.parts()) else "linear")
