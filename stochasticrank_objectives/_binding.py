"""What the losses of a metric share: how they print, how they are bound to data, and what that leaves."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import _threads
from ._constants import Array, Integers
from ._data import Queries, Reduce, alone, check_weights, lay_out
from .metrics import Metric

Bound = TypeVar("Bound", bound="BoundQueries")


class BoundQueries:
    """A loss with its data: the queries, their weights and noise keys, and which of them have anything to learn from."""

    def __init__(self, loss: Any, queries: Queries, weights: ArrayLike | None, query_keys: ArrayLike | None) -> None:
        self.loss = loss
        self.queries = queries
        self.keys = check_query_keys(query_keys, len(queries.sizes))
        self._query_weights, self._row_weights = np.ones(len(queries.sizes)), None
        if weights is not None:
            checked = check_weights(weights, len(queries.sizes), queries.rows)
            if len(checked) == len(queries.sizes):
                self._query_weights = checked
            else:
                self._row_weights = checked
        # Where all documents have the same gain, no order is better than another.
        highest, lowest = queries.gains[queries.ptr[:-1]], queries.gains[queries.ptr[1:] - 1]
        self._active = np.flatnonzero((highest > lowest) & (queries.scale * self._query_weights > 0))

    @property
    def rows(self) -> int:
        """How many scores it takes."""
        return self.queries.rows

    def _row_weight(self) -> Array | float:
        """The weight of each row, or 1 if no weights were given."""
        if self._row_weights is not None:
            return self._row_weights
        return 1.0 if (self._query_weights == 1).all() else np.repeat(self._query_weights, self.queries.sizes)

    @property
    def ptr(self) -> Integers:
        """Where each query begins, and the end."""
        return self.queries.ptr

    def __repr__(self) -> str:
        return f"<{self.loss} bound to {self.rows} rows in {len(self.queries.sizes)} queries>"


class MetricLoss(Generic[Bound]):
    """A frozen dataclass of parameters, `metric` and `threads` among them, that binds data to a `BoundQueries`."""

    _bound_type: ClassVar[type[BoundQueries]]
    metric: Any
    threads: Any

    def __str__(self) -> str:
        return printed(self, "metric")

    def bind(
        self,
        labels: ArrayLike,
        groups: ArrayLike | None = None,
        weights: ArrayLike | None = None,
        *,
        qid: ArrayLike | None = None,
        query_keys: ArrayLike | None = None,
        reduce: Reduce = alone,
    ) -> Bound:
        """Check the data once and lay it out for `gradient`.

        Parameters
        ----------
        labels
            Relevance of each row, 0 for none; the rows of a query stand together.
        groups, qid
            The size of each query, or the query id of each row: one of the two.
        weights
            One a query: its loss is multiplied by it. One a row: the row's derivatives are.
        query_keys
            A whole number a query that selects its noise; by default its place in the data. With keys of their own, queries
            get the same noise whatever other queries are in the data.
        reduce
            Where several processes train one model, each on its own queries: a function that is given an array of a few
            numbers and ``"sum"`` or ``"max"``, and returns their sum or largest over all processes. All of them bind at the
            same time. The adapters pass it.
        """
        queries = lay_out(self._bound_metric(), labels, groups, qid, _threads.check(self.threads), reduce)
        return self._bound_type(self, queries, weights, query_keys)  # type: ignore[return-value]

    def _bound_metric(self) -> Metric:
        """The metric for which data is laid out."""
        assert isinstance(self.metric, Metric)
        return self.metric


def printed(loss: Any, first: str | None) -> str:
    """A loss as it is written: its first parameter, if any is without a name, then those that are not at their default."""
    value = getattr(loss, first) if first else None
    shown = [repr(str(value)) if isinstance(value, Metric) else str(value)] if first else []
    changed = [
        f"{field.name}={getattr(loss, field.name)!r}"
        for field in dataclasses.fields(loss)
        if field.name != first and getattr(loss, field.name) != field.default
    ]
    return f"{type(loss).__name__}({', '.join([*shown, *changed])})"


def check_query_keys(query_keys: ArrayLike | None, queries: int) -> NDArray[np.uint64]:
    """A 64-bit key a query; by default its place in the data."""
    if query_keys is None:
        return np.arange(queries, dtype=np.uint64)
    keys = np.asarray(query_keys)
    if keys.dtype.kind not in "iu" or keys.shape != (queries,):
        raise ValueError(f"query_keys must be whole numbers, one a query ({queries}), got {keys.dtype} {keys.shape}")
    return np.ascontiguousarray(keys).astype(np.uint64)
