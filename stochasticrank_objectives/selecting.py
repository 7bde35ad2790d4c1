"""Metrics of a selection: the sign of a score decides whether its document is shown, and nothing else does.

A document is shown if its score is above 0. Scores are not compared with each other, so a shift of all scores changes these
metrics, unlike metrics of rankings; a positive factor does not. They are in the paper's class R0, not in R1.

`StochasticRank` smooths them as it smooths any metric: each document has one breaking point, at 0, so its derivative is
``D_j phi(z_j / sigma) / sigma``, averaged over the noise of the others, where D_j is what showing j changes. Nothing is
centred, and scale-free acceleration projects on the scores as they are. Any smoothing is consistent (the paper's appendix
on LSO), no order of ties is the worst, and `mu` shifts nothing: the relevance of all documents is 0.
"""

from __future__ import annotations

import dataclasses
from typing import Literal

import numpy as np

from ._checks import check_number
from ._constants import AGREEMENT, F_SCORE, LISTED, Array
from .metrics import _METRICS, DCG, _Binary


@dataclasses.dataclass(frozen=True)
class DCGRR(DCG):
    """DCG of the documents with a score above 0, in their given order: learning to select with order (LSO).

    ``sum_i g_i [z_i > 0] / (1 + sum_{j<i} [z_j > 0])``, documents i in the order of the data: each document shown gains by
    its place among those shown. It moves all that follow down, so even a relevant one may be better left out.
    With discount="log" the denominator is log2(1 + place). CatBoost's FilteredDCG is the same, but shows scores of 0 too.

    In R0 for bounded labels, not in R1: not invariant to translation. Reference: Vorobev, Ustimenko, Gusev & Serdyukov,
    "Learning to select for a predefined ranking", ICML 2019.

    Parameters
    ----------
    k
        How many of the documents shown count; None means all.
    gain
        ``"linear"``, the label, as in the reference; ``"exp"``, 2^label - 1; or a number a, label^a.
    discount
        ``"reciprocal"``, 1/place, as in the reference, or ``"log"``, as in DCG.

    Examples
    --------
    >>> from stochasticrank_objectives import evaluate
    >>> evaluate(DCGRR(), scores=[1, -1, 1, 2], labels=[0, 1, 1, 3], groups=[4])
    1.5
    """

    factor = LISTED
    family = "selected"

    gain: Literal["exp", "linear"] | float = "linear"
    discount: Literal["reciprocal", "log"] = "reciprocal"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.discount, str) or self.discount not in ("reciprocal", "log"):
            raise ValueError(f'discount must be "reciprocal" or "log", got {self.discount!r}')

    def relevance(self, labels: Array) -> Array:
        return np.zeros(len(labels))

    def discounts(self, positions: int) -> Array:
        return super().discounts(positions) if self.discount == "log" else np.divide(1.0, np.arange(1, positions + 1))


@dataclasses.dataclass(frozen=True)
class _BinarySelection(_Binary):
    """A metric of a selection and binary relevance, without a cut."""

    family = "selected"

    k: int | None = dataclasses.field(default=None, init=False, repr=False)
    threshold: float = dataclasses.field(default=0, kw_only=True)

    def relevance(self, labels: Array) -> Array:
        return np.zeros(len(labels))


@dataclasses.dataclass(frozen=True)
class FBeta(_BinarySelection):
    """F-score at threshold 0: ``(1 + beta^2) t / (beta^2 R + s)``, of s documents with a score above 0, t of them relevant.

    R are relevant in all; relevant means label > threshold. Recall counts beta times as much as precision. It is 0 if
    nothing relevant is shown. A query without relevant documents is an empty one. In R0, not in R1. Reference: van
    Rijsbergen, "Information retrieval", 1979.

    >>> from stochasticrank_objectives import evaluate
    >>> evaluate("fbeta:beta=2", scores=[0.3, -0.1, 0.2, 1.0], labels=[1, 1, 0, 1], groups=[4])
    0.6666666666666666
    """

    factor = F_SCORE

    beta: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("beta", self.beta, 0, 1e6, open_low=True, hint="recall counts beta times as much as precision")


@dataclasses.dataclass(frozen=True)
class Accuracy(_BinarySelection):
    """The share of documents on which the sign is right: a score above 0 where, and only where, label > threshold.

    Its smoothed gradient depends on each document alone. In R0, not in R1.

    >>> from stochasticrank_objectives import evaluate
    >>> evaluate("accuracy", scores=[0.3, -0.1, 0.2, 1.0], labels=[1, 1, 0, 1], groups=[4])
    0.5
    """

    factor = AGREEMENT


_METRICS.update({kind.__name__.lower(): kind for kind in (DCGRR, FBeta, Accuracy)})
