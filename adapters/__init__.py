"""The core as objectives and metrics of XGBoost, LightGBM and CatBoost; a booster is imported when its adapter is."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .catboost import CatBoostMetric, CatBoostObjective, CatBoostStochasticRank
    from .catboost_ranker import CatBoostRanker
    from .columns import label_columns
    from .dask import DaskLightGBMRanker, DaskXGBoostRanker
    from .lightgbm import LightGBMMetric, LightGBMObjective
    from .lightgbm_ranker import LightGBMRanker
    from .validation import cross_validate
    from .xgboost import XGBoostMetric, XGBoostObjective
    from .xgboost_ranker import XGBoostRanker

__all__ = [
    "CatBoostMetric",
    "CatBoostObjective",
    "CatBoostRanker",
    "CatBoostStochasticRank",
    "DaskLightGBMRanker",
    "DaskXGBoostRanker",
    "LightGBMMetric",
    "LightGBMObjective",
    "LightGBMRanker",
    "XGBoostMetric",
    "XGBoostObjective",
    "XGBoostRanker",
    "cross_validate",
    "label_columns",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {', '.join(__all__)}")
    from stochasticrank_objectives.recommended import BOOSTERS

    module = "dask" if name.startswith("Dask") else "columns" if name == "label_columns" else "validation"
    for booster in BOOSTERS:
        if name.lower().startswith(booster):
            module = f"{booster}_ranker" if name.endswith("Ranker") else booster
    return getattr(importlib.import_module(f".{module}", __name__), name)


def __dir__() -> list[str]:
    return __all__
