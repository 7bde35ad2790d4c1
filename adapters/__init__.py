"""The core as objectives and metrics of XGBoost, LightGBM and CatBoost; a booster is imported when its adapter is."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .catboost import CatBoostMetric, CatBoostObjective, CatBoostStochasticRank
    from .dask import DaskLightGBMRanker, DaskXGBoostRanker
    from .lightgbm import LightGBMMetric, LightGBMObjective
    from .xgboost import XGBoostMetric, XGBoostObjective, XGBoostRanker

__all__ = [
    "CatBoostMetric",
    "CatBoostObjective",
    "CatBoostStochasticRank",
    "DaskLightGBMRanker",
    "DaskXGBoostRanker",
    "LightGBMMetric",
    "LightGBMObjective",
    "XGBoostMetric",
    "XGBoostObjective",
    "XGBoostRanker",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {', '.join(__all__)}")
    booster = next(booster for booster in ("xgboost", "lightgbm", "catboost", "dask") if name.lower().startswith(booster))
    return getattr(importlib.import_module(f".{booster}", __name__), name)


def __dir__() -> list[str]:
    return __all__
