"""Compile everything once, so that later processes find it in numba's cache."""

from __future__ import annotations

from typing import Any

import numpy as np

from ._constants import Array
from .baselines import LambdaMART
from .evaluation import evaluate
from .functions import FunctionMetric
from .listwise import XENDCG
from .losses import Loss, StochasticRank
from .sglb import SGLB
from .yeti import YetiLoss

_LONG, _HUGE = 300, 50_000  # documents of a query for which there are kernels of their own

_ESTIMATES: list[dict[str, Any]] = [{}, {"estimator": "reinforce"}, {"noise": "logistic"}]


def _first(relevance: Array) -> float:
    """Stands for the functions of users."""
    return float(relevance[0])


def warm_up() -> str | None:
    """Compile every kernel of the losses and of evaluation; returns the folder in which numba keeps them, if it has one.

    The environment variable NUMBA_CACHE_DIR chooses the folder. `stochasticrank warm-up` calls this, for example while the
    image of a container is built.
    """
    from ._kernels import gradients

    listed = FunctionMetric(3, function=_first, name="first")
    losses: list[tuple[Loss, int]] = [
        (SGLB(StochasticRank("ndcg@10")), 3),
        (StochasticRank("ndcg"), _LONG),
        (StochasticRank("ndcg"), _HUGE),
        (StochasticRank("ndcg@10", estimator="reinforce"), 3),
        (StochasticRank("ndcg@10", noise="logistic"), 3),
        (StochasticRank("ndcg@10 + mrr"), 3),
        (StochasticRank("ndcg@10 + mrr", estimator="reinforce"), 3),
        (StochasticRank("ndcg@10 + mrr", noise="logistic"), 3),
        *((StochasticRank(metric, **each), 3) for metric in ("dcgrr", "kendall") for each in _ESTIMATES),
        (StochasticRank(listed), 3),
        (StochasticRank(listed, noise="logistic"), 3),
        (LambdaMART("ndcg@10"), 3),
        (YetiLoss("ndcg@10"), 3),
        (XENDCG(), 3),
    ]
    for loss, n in losses:
        loss.bind(np.arange(n) % 3, [n]).gradient(np.zeros(n))
    for metric in ("ndcg@10", "dcgrr", "kendall"):
        evaluate(metric, np.zeros(3), [0, 1, 2], [3])
    folder: str | None = getattr(getattr(gradients.ccs, "stats", None), "cache_path", None)
    return folder
