"""Labels and groups, checked once and laid out for the kernels."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import _threads
from ._constants import Array, Integers
from .metrics import Metric

Reduce = Callable[[Array, Literal["sum", "max"]], Array]  # the same numbers of all processes that train together, made one


def alone(values: Array, how: Literal["sum", "max"]) -> Array:
    """The `Reduce` of a process that has all of the data."""
    return values


def as_vector(name: str, values: ArrayLike | None, rows: int | None = None) -> Array:
    """A one-dimensional contiguous float64 array of any sequence of numbers, of the length wanted.

    It is writeable, even where the values given are not: numba would compile every kernel again for read-only arrays.
    """
    try:
        array = np.asarray(values)
        if array.dtype.kind not in "fiubO":
            raise ValueError(f"got values of type {array.dtype}")
        if array.ndim == 1:
            array = np.require(array, np.float64, ["C", "W"])
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be a sequence of numbers: {error}") from None
    if array.ndim == 0:
        expected = "be a sequence of numbers" if array.dtype.kind == "O" else "have one dimension"
        raise ValueError(f"{name} must {expected}, got {values!r}")
    if array.ndim != 1:
        raise ValueError(f"{name} must have one dimension, got shape {array.shape}; flatten it, for example with .ravel()")
    if rows is not None and len(array) != rows:
        raise ValueError(f"{name} must have one value a row, {rows} in all, got {len(array)}")
    return array


def first(wrong: NDArray[np.bool_]) -> int:
    """Index of the first True."""
    return int(np.argmax(wrong))


def check_labels(labels: ArrayLike) -> Array:
    """Labels as float64: finite and not negative."""
    array = as_vector("labels", labels)
    if not len(array):
        raise ValueError("labels is empty; there must be at least one row")
    if (wrong := ~np.isfinite(array)).any():
        at = first(wrong)
        raise ValueError(f"labels[{at}] = {array[at]} is not finite; drop or impute rows without a label")
    if (wrong := array < 0).any():
        at = first(wrong)
        raise ValueError(f"labels[{at}] = {array[at]:g} is negative; shift the grades so that the lowest is 0")
    return array


def check_scores(scores: ArrayLike, rows: int) -> Array:
    """Scores as float64: one a row, none NaN or infinite."""
    array = as_vector("scores", scores, rows)
    # A finite sum proves that all are finite, and is far cheaper than looking at each.
    with np.errstate(over="ignore", invalid="ignore"):
        suspicious = not np.isfinite(array.sum())
    if suspicious:
        check_finite(array)
    return array


def check_finite(scores: Array) -> None:
    """No score is NaN or infinite, or a ValueError."""
    if (wrong := ~np.isfinite(scores)).any():
        at = first(wrong)
        raise ValueError(f"scores[{at}] = {scores[at]} is not finite; the model has diverged: lower the learning rate")


def _sizes(groups: ArrayLike) -> Integers:
    array = as_vector("groups", groups)
    if (wrong := ~((array == np.floor(array)) & (np.abs(array) < 2**53))).any():
        at = first(wrong)
        raise ValueError(f"groups[{at}] = {array[at]:g} is not a whole number; groups are the sizes of queries, in rows")
    if (wrong := array < 1).any():
        at = first(wrong)
        raise ValueError(f"groups[{at}] = {array[at]:g} but a query has at least one row; leave empty queries out")
    return array.astype(np.int64)


def sizes_from_qid(qid: ArrayLike, rows: int) -> Integers:
    """Group sizes of contiguous query ids, numbers or strings."""
    ids = np.asarray(qid)
    if ids.ndim != 1 or len(ids) != rows:
        raise ValueError(f"qid must have one id a row, {rows} in all, got shape {ids.shape}")
    # What is missing, None, NaN, NaT or NA, is what does not equal itself.
    missing = np.array([value is None or not _same(value, value) for value in ids]) if ids.dtype.kind == "O" else ids != ids
    if missing.any():
        at = first(missing)
        raise ValueError(f"qid[{at}] is missing ({ids[at]}); every row must belong to a query")
    starts = np.concatenate([[0], np.flatnonzero(ids[1:] != ids[:-1]) + 1])
    seen: set[Any] = set()
    for at, query in zip(starts.tolist(), ids[starts].tolist(), strict=True):
        if query in seen:
            raise ValueError(f"qid is not contiguous: query {query} comes back at row {at}; sort the rows by query id")
        seen.add(query)
    return np.diff(np.append(starts, rows))


def _same(one: Any, other: Any) -> bool:
    try:
        return bool(one == other)
    except TypeError:  # pandas.NA has no truth value
        return False


def pointer(groups: ArrayLike | None, qid: ArrayLike | None, rows: int) -> Integers:
    """Where each query begins, and the end, from group sizes or from query ids."""
    if (groups is None) == (qid is None):
        raise ValueError("give either groups (the size of each query) or qid (the query id of each row)")
    if groups is not None:
        sizes = _sizes(groups)
        if sizes.sum() != rows:
            hint = "; if groups holds a query id for each row, pass it as qid=" if len(sizes) == rows else ""
            raise ValueError(f"groups sum to {sizes.sum()} but there are {rows} rows; groups are the sizes of queries{hint}")
    else:
        assert qid is not None
        sizes = sizes_from_qid(qid, rows)
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


def check_weights(weights: ArrayLike, queries: int, rows: int) -> Array:
    """Weights, one a query or one a row: finite and not negative."""
    array = as_vector("weights", weights)
    if len(array) not in (queries, rows):
        raise ValueError(f"weights must have one value a query ({queries}) or a row ({rows}), got {len(array)}")
    if (wrong := ~(np.isfinite(array) & (array >= 0))).any():
        at = first(wrong)
        raise ValueError(f"weights[{at}] = {array[at]} but a weight is finite and not negative")
    return array


@dataclasses.dataclass(frozen=True)
class Queries:
    """A data set as one metric sees it. Rows keep their place; `order` lists each query's rows by falling gain."""

    metric: Metric
    ptr: Integers
    order: NDArray[np.int32]
    gains: Array  # in the order of `order`
    relevance: Array  # likewise
    relevant: Integers  # documents with a gain, a query
    scale: Array  # what the sum over positions is multiplied by, a query
    position_weights: Array  # w, zero from the cut on
    cut: int
    reduce: Reduce = alone  # what is a property of all data, not of a query, goes through it

    @property
    def rows(self) -> int:
        return int(self.ptr[-1])

    @property
    def sizes(self) -> Integers:
        return np.diff(self.ptr)


def lay_out(
    metric: Metric,
    labels: ArrayLike,
    groups: ArrayLike | None,
    qid: ArrayLike | None,
    threads: int,
    reduce: Reduce = alone,
) -> Queries:
    """Check labels and groups and lay them out for one metric."""
    from ._kernels import gradients, selection

    values = check_labels(labels)
    ptr = pointer(groups, qid, len(values))
    metric.check(values)
    gains = np.ascontiguousarray(metric.gains(values), np.float64)
    order = np.empty(len(values), np.int32)
    sizes = np.diff(ptr)
    longest = int(sizes.max())
    _threads.run(
        lambda scratch, begin, end: gradients.order_range(scratch, order, gains, ptr, begin, end),
        _threads.borders(sizes * 8.0, threads),
        threads,
        _threads.Spare(lambda: selection.make_sorting(longest, longest)),
    )
    rows = order + np.repeat(ptr[:-1], sizes)
    gains = gains[rows]
    relevance = np.ascontiguousarray(metric.relevance(values), np.float64)[rows]
    relevant = np.add.reduceat(gains > 0, ptr[:-1], dtype=np.int64)
    cut = int(min(metric.cut, longest))
    weights = np.zeros(cut + 2)
    weights[:cut] = metric.weights(cut)
    scale = np.ones(len(sizes))
    if metric.normaliser == "relevant":
        scale = 1.0 / np.maximum(relevant, 1)
    elif metric.normaliser == "ideal":
        largest = gains[ptr[:-1]]  # relative to it, no gain is so small that the ideal has no reciprocal
        gains /= np.repeat(np.where(largest > 0, largest, 1.0), sizes)
        gradients.ideal_range(scale, ptr, gains, 0, len(sizes), metric.rule, weights, cut)
        scale = np.divide(1.0, scale, out=np.zeros_like(scale), where=scale > 0)
    return Queries(metric, ptr, order, gains, relevance, relevant, scale, weights, cut, reduce)
