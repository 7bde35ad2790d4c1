"""What the losses of a metric share: how they print, how they are bound to data, and the result."""

from __future__ import annotations

import abc
import dataclasses
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import _threads
from ._constants import Array, Integers
from ._data import Labels, Queries, Reduce, alone, check_weights, lay_out
from .metrics import Metric

Bound = TypeVar("Bound", bound="BoundQueries")


class BoundQueries:
    """A loss with its data: the queries, their weights and noise keys, and which of them have anything to learn from."""

    threads: int | None = None
    """How many threads, where the loss itself does not say; None means as many as there are processors."""

    def __init__(self, loss: Any, queries: Queries, weights: ArrayLike | None, query_keys: ArrayLike | None) -> None:
        self.loss = loss
        self.queries = queries
        self.keys = check_query_keys(query_keys, len(queries.sizes))
        self._layout = queries.layout._replace(query_keys=self.keys)
        self._query_weights, self._row_weights = np.ones(len(queries.sizes)), None
        if weights is not None:
            checked = check_weights(weights, len(queries.sizes), queries.rows)
            if len(checked) == len(queries.sizes):
                self._query_weights = checked
            else:
                self._row_weights = checked
        self._active = np.flatnonzero(queries.learnable & (self._query_weights > 0))

    def _thread_count(self) -> int:
        """How many threads work on it."""
        return _threads.check(self.threads if self.loss.threads is None else self.loss.threads)

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


class MetricLoss(abc.ABC, Generic[Bound]):
    """A frozen dataclass of parameters, `metric` and `threads` among them, that binds data to a `BoundQueries`."""

    metric: Any
    threads: Any

    @abc.abstractmethod
    def _bound(self, queries: Queries, weights: ArrayLike | None, query_keys: ArrayLike | None) -> Bound:
        """The loss with these data."""

    def __str__(self) -> str:
        return printed(self, "metric")

    def bind(
        self,
        labels: Labels,
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
            Relevance of each row, 0 for none; the rows of a query stand together. Labels may have named columns (a mapping
            or a DataFrame); terms that name no column take the first; see `Labelled`.
        groups, qid
            The size of each query, or the query id of each row: one of the two.
        weights
            One per query: it multiplies the query's loss. One per row: it multiplies the row's derivatives.
        query_keys
            A whole number per query that selects its noise; by default its place in the data. With keys of their own,
            queries get the same noise whatever other queries are in the data.
        reduce
            Where several processes train one model, each on its own queries: a function that is given an array of a few
            numbers and ``"sum"`` or ``"max"``, and returns their sum or largest over all processes. All processes bind,
            and later compute derivatives, at the same time. The adapters pass it.
        """
        return self._bound(lay_out(self._bound_metric(), labels, groups, qid, reduce), weights, query_keys)

    def _bound_metric(self) -> Metric:
        """The metric for which data is laid out."""
        assert isinstance(self.metric, Metric)
        return self.metric


def printed(loss: Any, first: str | None) -> str:
    """A loss as it is written: the parameter without a name, if there is one, then those that differ from their default."""
    value = getattr(loss, first) if first else None
    shown = [repr(str(value)) if isinstance(value, Metric) else str(value)] if first else []
    changed = [
        f"{field.name}={getattr(loss, field.name)!r}"
        for field in dataclasses.fields(loss)
        if field.name != first and getattr(loss, field.name) != field.default
    ]
    return f"{type(loss).__name__}({', '.join([*shown, *changed])})"


def check_pairwise(loss: str, metric: Metric) -> None:
    """Refuse a metric if it is unknown what a swap of two documents changes, or whether for the better."""
    components = [component for _, part in metric.parts() for component in part.components()]
    instead = f"use StochasticRank({str(metric)!r}), or name another metric to train on"
    if metric.family != "ranked":
        raise ValueError(f"{loss} takes metrics that weigh positions of a ranked list, and {metric} does not; {instead}")
    if unknown := [each for _, _, each in components if each.listed]:
        raise ValueError(f"{loss} cannot train on {unknown[0]}, a function of the whole list; {instead}")
    if len({column for _, column, _ in components}) > 1:
        raise ValueError(f"{loss} needs one column of labels, and {metric} has several, which may disagree; {instead}")


def check_query_keys(query_keys: ArrayLike | None, queries: int) -> NDArray[np.uint64]:
    """A 64-bit key per query; by default its place in the data."""
    if query_keys is None:
        return np.arange(queries, dtype=np.uint64)
    keys = np.asarray(query_keys)
    if keys.dtype.kind not in "iu" or keys.shape != (queries,):
        raise ValueError(f"query_keys must be whole numbers, one per query ({queries}), got {keys.dtype} {keys.shape}")
    return np.ascontiguousarray(keys).astype(np.uint64)
