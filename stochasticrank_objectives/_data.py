"""Labels and groups, checked once and laid out for the kernels."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ._constants import Array, Integers, Layout, Rule, Rules
from .metrics import Metric

Reduce = Callable[[Array, Literal["sum", "max"]], Array]  # the same numbers of all processes that train together, made one

_HIGHEST = 4.0  # what the largest relevance is scaled to, so that mu does not depend on the range of the labels


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
        raise ValueError(f"{name} must have one value per row, {rows} in all, got {len(array)}")
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
    """Scores as float64: one per row, none NaN or infinite."""
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
        raise ValueError(f"qid must have one id per row, {rows} in all, got shape {ids.shape}")
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


_LARGEST_WEIGHT = 9.9e37  # LightGBM makes 1e38 of infinity


def check_weights(weights: ArrayLike, queries: int, rows: int) -> Array:
    """Weights, one per query or one per row: finite, not negative, and not all 0."""
    array = as_vector("weights", weights)
    if len(array) not in (queries, rows):
        raise ValueError(f"weights must have one value per query ({queries}) or per row ({rows}), got {len(array)}")
    if (wrong := ~(np.isfinite(array) & (array >= 0))).any():
        at = first(wrong)
        raise ValueError(f"weights[{at}] = {array[at]} but a weight is finite and not negative")
    if (wrong := array >= _LARGEST_WEIGHT).any():
        at = first(wrong)
        raise ValueError(f"weights[{at}] = {array[at]:g} is beyond what boosters keep in 32 bits; divide all by the largest")
    if not array.any():
        raise ValueError("weights are all zero, so that nothing counts; leave them out, or give some query a weight above 0")
    return array


@dataclasses.dataclass(frozen=True)
class Queries:
    """A data set as one metric sees it, with a rule per term of the metric."""

    metric: Metric
    layout: Layout
    rules: tuple[Rule, ...]
    reduce: Reduce = alone  # what is a property of all data, not of a query, goes through it

    @property
    def rule(self) -> Rule:
        """The rule of a single metric. Of a sum, what it has as a whole: the rule of its deepest term, multiplied by 1."""
        if len(self.rules) == 1:
            return self.rules[0]
        return max(self.rules, key=lambda rule: rule.cut)._replace(multipliers=np.ones(len(self.sizes)))

    @property
    def ptr(self) -> Integers:
        """Where each query begins, and the end."""
        return self.layout.ptr

    @property
    def rows(self) -> int:
        return int(self.ptr[-1])

    @property
    def sizes(self) -> Integers:
        return np.diff(self.ptr)

    @property
    def learnable(self) -> NDArray[np.bool_]:
        """Queries in which orders differ in value. Where all documents have the same gain, none is better than another."""
        first, last = self.ptr[:-1], self.ptr[1:] - 1
        of_terms = [(rule.gains[first] > rule.gains[last]) & (rule.multipliers > 0) for rule in self.rules]
        of_any: NDArray[np.bool_] = np.any(of_terms, axis=0)
        return of_any


def stacked(rules: tuple[Rule, ...]) -> Rules:
    """The rules of a sum in one table, for the kernels."""
    longest = max(len(rule.discounts) for rule in rules)
    discounts = np.array([np.append(rule.discounts, np.zeros(longest - len(rule.discounts))) for rule in rules])
    kinds, cuts = (np.array(numbers, np.int64) for numbers in zip(*((rule.kind, rule.cut) for rule in rules), strict=True))
    gains, relevant, multipliers = (
        np.array(arrays) for arrays in zip(*((rule.gains, rule.relevant, rule.multipliers) for rule in rules), strict=True)
    )
    return Rules(kinds, discounts, cuts, gains, relevant, multipliers)


def lay_out(
    metric: Metric, labels: ArrayLike, groups: ArrayLike | None, qid: ArrayLike | None, reduce: Reduce = alone
) -> Queries:
    """Check labels and groups and lay them out for one metric."""
    values = check_labels(labels)
    ptr = pointer(groups, qid, len(values))
    metric.check(values)
    gains = [np.ascontiguousarray(part.gains(values), np.float64) for _, part in metric.parts()]
    sizes = np.diff(ptr)
    # All gains rise with the label, so one order serves all terms. Documents with equal gains keep their order.
    query = np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)
    keys: list[NDArray[Any]] = [*(-each for each in reversed(gains)), query]  # the last one counts first
    rows = np.lexsort(keys)
    del query, keys  # they are as large as the data
    order = np.subtract(rows, np.repeat(ptr[:-1], sizes), dtype=np.int32, casting="unsafe")
    relevance = np.ascontiguousarray(metric.relevance(values), np.float64)[rows]
    largest = float(reduce(np.array([relevance.max()]), "max")[0])
    relevance *= _HIGHEST / max(largest, 1e-300)
    layout = Layout(ptr, order, relevance, np.arange(len(sizes), dtype=np.uint64))
    rules = (_rule(part, weight, each[rows], ptr) for (weight, part), each in zip(metric.parts(), gains, strict=True))
    return Queries(metric, layout, tuple(rules), reduce)


def _rule(metric: Metric, weight: float, gains: Array, ptr: Integers) -> Rule:
    """A metric times its weight in a sum, for gains in descending order in each query; they are changed."""
    sizes = np.diff(ptr)
    relevant = np.add.reduceat(gains > 0, ptr[:-1], dtype=np.int64)
    cut = int(min(metric.cut, sizes.max()))
    discounts = np.zeros(cut + 2)
    discounts[:cut] = metric.discounts(cut)
    multipliers = np.ones(len(sizes))
    if metric.normaliser == "relevant":
        multipliers = 1.0 / np.maximum(relevant, 1)
    elif metric.normaliser == "ideal":
        largest = gains[ptr[:-1]]  # relative to it, no gain is so small that the ideal has no reciprocal
        gains /= np.repeat(np.where(largest > 0, largest, 1.0), sizes)
        ideal = _ideal(gains, ptr, discounts)
        power = getattr(metric, "power", 1.0)
        multipliers = np.where(ideal > 0, largest ** (1.0 - power) * np.where(ideal > 0, ideal, 1.0) ** -power, 0.0)
    return Rule(metric.factor, discounts, cut, gains, relevant, multipliers * weight)


def _ideal(gains: Array, ptr: Integers, discounts: Array) -> Array:
    """The largest sum of discounted gains of each query; its gains stand in descending order."""
    short = np.dtype(np.int32 if len(gains) < 2**31 else np.int64)
    position = np.arange(len(gains)).astype(short)
    position -= np.repeat(ptr[:-1].astype(short), np.diff(ptr))
    discounted = discounts[np.minimum(position, len(discounts) - 1, out=position)]
    discounted *= gains
    best: Array = np.add.reduceat(discounted, ptr[:-1])
    return best
