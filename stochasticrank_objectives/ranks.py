"""Metrics of a whole ranking, in which every position counts: the area under the ROC curve, Spearman's rho, Kendall's tau.

They make sense for queries and for all data as one list (one group of all rows). They have no cut. All are in the paper's
class R1, for negative labels too where these are allowed: they are bounded, ignore scale and shift of the scores, and fall
if the less relevant of two neighbours moves up.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from ._constants import CONCORDANT, PLAIN, Array
from .metrics import _METRICS, MAP, Metric, _Binary


def _falling(positions: int) -> Array:
    """Discounts that fall by 1 per position; where they begin does not matter, since gains have a mean of 0."""
    return np.arange(positions, 0, -1, dtype=np.float64)


@dataclasses.dataclass(frozen=True)
class AUC(_Binary):
    """Area under the ROC curve: the share of pairs of a relevant and another document in which the relevant one is higher.

    Relevant means label > threshold. Pairs with equal scores count 0 by default, or 1/2 with ``ties="mean"``, as in
    scikit-learn. A query in which all or none are relevant is an empty one. The metric is linear in the ranks: ``1/2 +
    sum_i (g_i - R/n) (n - i) / (R (n - R))`` over positions i, with R of n documents relevant. In R1. Reference: Hanley &
    McNeil, "The meaning and use of the area under a receiver operating characteristic (ROC) curve", Radiology 1982.

    >>> from stochasticrank_objectives import evaluate
    >>> evaluate("auc", scores=[0.4, 0.3, 0.2, 0.1], labels=[1, 0, 1, 0], groups=[4])
    0.75
    """

    factor = PLAIN
    normaliser = "pairs"
    constant = 0.5

    k: int | None = dataclasses.field(default=None, init=False, repr=False)

    def discounts(self, positions: int) -> Array:
        return _falling(positions)


@dataclasses.dataclass(frozen=True)
class Spearman(Metric):
    """Spearman's rank correlation of scores and labels, from -1 to 1; in finance the information coefficient, per date.

    Pearson's correlation of the ranks; equal labels have the mean of their ranks, as in `scipy.stats.spearmanr`. Equal
    scores are ranked in the worst, mean or best order, as `ties` says: the value is divided by the spread of ranks without
    ties, so that with ties="mean" it is a little nearer to 0 than scipy's, which divides by less. Labels may be negative:
    only their order counts. A query with equal labels throughout is an empty one. In R1. Reference: Spearman, "The proof
    and measurement of association between two things", American Journal of Psychology 1904.

    >>> from stochasticrank_objectives import evaluate
    >>> evaluate("spearman", scores=[0.4, 0.3, 0.2, 0.1], labels=[0.02, 0.05, -0.01, -0.03], groups=[4])
    0.8
    """

    factor = PLAIN
    normaliser = "ranks"
    signed = True

    k: int | None = dataclasses.field(default=None, init=False, repr=False)

    def discounts(self, positions: int) -> Array:
        return _falling(positions)


@dataclasses.dataclass(frozen=True)
class Kendall(Metric):
    """Kendall's rank correlation of scores and labels, from -1 to 1: ``(P - Q) / sqrt(n0 (n0 - n1))``.

    P pairs of documents are in the order of their labels, Q in the opposite one; n0 is the number of all pairs, n1 of those
    with equal labels. Without equal scores that is `scipy.stats.kendalltau` (tau-b). A pair with equal scores counts as one
    in the wrong order, not at all, or as one in the right order, for ``ties="worst"``, ``"mean"`` or ``"best"``; it stays in
    the denominator, from which tau-b takes it out. Labels may be negative: only their order counts. A query with equal
    labels throughout is an empty one. In R1. Reference: Kendall, "The treatment of ties in ranking problems", Biometrika
    1945.

    >>> from stochasticrank_objectives import evaluate
    >>> round(evaluate("kendall", scores=[0.4, 0.3, 0.2, 0.1], labels=[0.02, 0.05, -0.01, -0.03], groups=[4]), 3)
    0.667
    """

    factor = CONCORDANT
    normaliser = "concordance"
    family = "concordant"
    signed = True

    k: int | None = dataclasses.field(default=None, init=False, repr=False)


_METRICS.update({"auc": AUC, "spearman": Spearman, "kendall": Kendall, "ap": MAP})
