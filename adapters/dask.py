"""Dask: partitions that keep queries whole, and rankers that train on all workers of a cluster.

``XGBoostObjective`` and ``XGBoostMetric`` work in ``xgboost.dask.train``, ``LightGBMObjective`` and ``LightGBMMetric`` in
``lightgbm.DaskLGBMRanker``. What is here makes such a training independent of how the data are partitioned.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ._partitions import check_partitions, partition_by_query

if TYPE_CHECKING:
    from ._dask_lightgbm import DaskLightGBMRanker
    from ._dask_xgboost import DaskXGBoostRanker, query_matrix

__all__ = ["DaskLightGBMRanker", "DaskXGBoostRanker", "check_partitions", "partition_by_query", "query_matrix"]

_LATER = {"DaskLightGBMRanker": "lightgbm", "DaskXGBoostRanker": "xgboost", "query_matrix": "xgboost"}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {', '.join(__all__)}")
    return getattr(importlib.import_module(f"._dask_{_LATER[name]}", __package__), name)
