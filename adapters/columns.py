"""Columns of labels beside the booster's own label, for metrics of several columns."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from stochasticrank_objectives._data import Labels, as_vector
from stochasticrank_objectives.metrics import Metric

OWN = "label"  # what the booster's own label is called among the columns

_attached: dict[int, tuple[weakref.ref[Any], dict[str, Any]]] = {}  # by identity: a Pool cannot be a key


def label_columns(data: Any, columns: Mapping[str, ArrayLike]) -> Any:
    """Give the data of a booster further columns of labels, for metrics such as ``0.7*ndcg@10 + 0.3*price.dcg@10``.

    Objectives and metrics that meet the data find the columns by their names; terms without a column still
    take the booster's own label. Columns are remembered as long as the data object lives, and replace those given before.
    Parts of a LightGBM Dataset, such as the folds of ``lightgbm.cv``, get their rows of the columns; slices of a DMatrix or
    a Pool must be given theirs. Estimators for scikit-learn and Dask make their data themselves and take no columns.

    Parameters
    ----------
    data
        An ``xgboost.DMatrix``, ``lightgbm.Dataset`` or ``catboost.Pool``, for training or for evaluation.
    columns
        Names and values, one value per row: a mapping or a DataFrame.

    Returns
    -------
    The data, so that it can be made and given columns at once.

    Examples
    --------
    >>> import xgboost
    >>> data = xgboost.DMatrix([[1.0], [2.0]], [1, 0], group=[2])
    >>> label_columns(data, {"price": [0, 30]}) is data
    True
    """
    checked: dict[str, Any] = {}
    for name in columns:
        if name == OWN:
            raise ValueError(f"the column {name!r} is the booster's own label; choose another name")
        checked[name] = as_vector(f"the label column {name!r}", columns[name], _rows(data))
    try:
        _attach(data, checked)
    except TypeError:
        raise ValueError(f"data must be a DMatrix, a Dataset or a Pool, got {type(data).__name__}") from None
    return data


def _attach(data: Any, columns: dict[str, Any]) -> None:
    at = id(data)
    _attached[at] = weakref.ref(data, lambda _: _attached.pop(at, None)), columns


def _rows(data: Any) -> int | None:
    """How many rows the data have; None for a LightGBM Dataset that is not made yet."""
    if hasattr(data, "num_row"):
        return int(data.num_row())
    label = getattr(data, "label", None)
    return None if label is None else len(label)


def columns_of(data: Any) -> dict[str, Any] | None:
    """The columns that were given to the data, or to the data that it is a part of; the same object every time."""
    if id(data) not in _attached:
        rows, whole = getattr(data, "used_indices", None), getattr(data, "reference", None)
        columns = None if rows is None or whole is None else columns_of(whole)
        if columns is None:
            return None
        _attach(data, {name: values[np.asarray(rows)] for name, values in columns.items()})
    return _attached[id(data)][1]


def with_columns(label: Any, columns: dict[str, Any] | None) -> Labels:
    """The booster's own label, with the columns that there are."""
    return label if columns is None else {OWN: label, **columns}


def blank_row(metric: Metric) -> Labels:
    """One row of labels for a metric, of nothing."""
    named = {column: [0.0] for _, part in metric.parts() for _, column, _ in part.components() if column is not None}
    return {OWN: [0.0], **named} if named else [0.0]


def blank_labels(labels: Labels) -> Labels:
    """One row of nothing in place of no rows."""
    return {name: [0.0] for name in labels} if isinstance(labels, Mapping) else [0.0]
