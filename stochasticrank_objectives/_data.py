"""Labels and groups, checked once and laid out for the kernels."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ._centred import CENTRED
from ._constants import AGREEMENT, F_SCORE, Array, Integers, Layout, Rule, Rules, Selection
from ._listed import Listed
from .metrics import Metric

Labels = ArrayLike | Mapping[str, ArrayLike]  # of each row, or columns of them by name; a DataFrame is such a mapping
Reduce = Callable[[Array, Literal["sum", "max"]], Array]  # combines the same numbers of all processes that train together

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


def check_labels(labels: ArrayLike, name: str = "labels", rows: int | None = None, *, signed: bool = False) -> Array:
    """Labels as float64: finite and, unless `signed`, not negative."""
    array = as_vector(name, labels, rows)
    if not len(array):
        raise ValueError(f"{name} is empty; there must be at least one row")
    if (wrong := ~np.isfinite(array)).any():
        at = first(wrong)
        raise ValueError(f"{name}[{at}] = {array[at]} is not finite; drop or impute rows without a label")
    if not signed and (wrong := array < 0).any():
        at = first(wrong)
        raise ValueError(f"{name}[{at}] = {array[at]:g} is negative; shift the grades so that the lowest is 0")
    return array


def check_columns(labels: Any, wanted: list[str | None], *, signed: bool = False) -> dict[str | None, Array]:
    """The columns of labels that a metric wants, each checked; None is the first column, or labels without columns."""
    named = [column for column in wanted if column is not None]
    frame = len(getattr(labels, "columns", ())) > bool(not named)  # a frame of a single column is taken for a mistake
    if not frame and not (isinstance(labels, Mapping) and all(isinstance(name, str) for name in labels)):
        if named:
            raise ValueError(
                f"the metric needs a label column {named[0]!r}, but the labels have no columns; give them as a mapping, "
                f'such as {{"relevance": ..., {named[0]!r}: ...}}, or to an adapter with label_columns(data, ...)'
            )
        return {None: check_labels(labels, signed=signed)}
    names = list(labels.columns if frame else labels)
    if not names:
        raise ValueError("labels has no columns; there must be at least one")
    checked: dict[str | None, Array] = {}
    for column in wanted:
        if column is not None and column not in names:
            raise ValueError(f"the metric needs a label column {column!r}; there are {', '.join(map(repr, names))}")
        rows = len(next(iter(checked.values()))) if checked else None
        name = names[0] if column is None else column
        checked[column] = check_labels(labels[name], f'labels["{name}"]', rows, signed=signed)
    return checked


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


_LARGEST_WEIGHT = 9.9e37  # LightGBM turns infinity into 1e38


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
    """A data set as one metric sees it, with the terms that add up to each part of the metric."""

    metric: Metric
    layout: Layout
    parts: tuple[tuple[Any, ...], ...]  # the terms of each part: a Listed, a Selection if that is the family, or a Rule
    in_order: bool = True  # whether documents stand by falling gain for all terms at once, as with a single column of labels
    reduce: Reduce = alone  # what is a property of all data, not of a query, goes through it

    @property
    def rules(self) -> tuple[Any, ...]:
        """The terms that are rules, or a selection."""
        return tuple(term for part in self.parts for term in part if not isinstance(term, Listed))

    @property
    def listed(self) -> tuple[Listed, ...]:
        """The terms that are functions of the ranked list."""
        return tuple(term for part in self.parts for term in part if isinstance(term, Listed))

    @property
    def rule(self) -> Any:
        """The rule of a single metric. For a sum as a whole it is the rule of its deepest term, multiplied by 1."""
        rules = self.rules
        if len(rules) == 1:
            return rules[0]
        ones = np.ones(len(self.sizes))
        if not rules:
            return max(self.listed, key=lambda term: term.cut).rule(ones)
        return max(rules, key=lambda rule: rule.cut)._replace(multipliers=ones)

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
        """Queries in which orders, or selections, differ in value: none do where all documents have the same gain."""
        if self.metric.family == "selected":
            counts: NDArray[np.bool_] = self.rule.relevant > 0
            return counts
        of_terms = [self._differ(rule.gains) & (rule.multipliers > 0) for rule in self.rules]
        of_terms += [self._differ(term.labels) for term in self.listed]
        of_any: NDArray[np.bool_] = np.any(of_terms, axis=0)
        return of_any

    def _differ(self, values: Array) -> NDArray[np.bool_]:
        first, last = self.ptr[:-1], self.ptr[1:] - 1
        if self.in_order:
            return np.asarray(values[first] > values[last])
        return np.asarray(np.maximum.reduceat(values, first) > np.minimum.reduceat(values, first))

    def for_kernels(self) -> tuple[Any, ...]:
        """The rules as gradients need them: one without jumps in a query has a multiplier of 0 there, and `relevant` tells
        how many of the first documents can have a gain."""
        if self.metric.family == "selected":
            return self.rules
        rules = (rule._replace(multipliers=rule.multipliers * self._differ(rule.gains)) for rule in self.rules)
        return tuple(rules) if self.in_order else tuple(rule._replace(relevant=self.sizes) for rule in rules)


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
    metric: Metric, labels: Labels, groups: ArrayLike | None, qid: ArrayLike | None, reduce: Reduce = alone
) -> Queries:
    """Check labels and groups and lay them out for one metric."""
    parts = [(weight, part, part.components()) for weight, part in metric.parts()]
    terms = [(weight * inner, column, each) for weight, _, components in parts for inner, column, each in components]
    columns = check_columns(labels, list(dict.fromkeys(column for _, column, _ in terms)), signed=metric.signed)
    some = next(iter(columns.values()))
    ptr = pointer(groups, qid, len(some))
    for _, column, each in terms:
        _check_suits(each, column, columns[column])
    gains = [np.ascontiguousarray(each.gains(columns[column]), np.float64) for _, column, each in terms]
    sizes = np.diff(ptr)
    in_order = len(columns) == 1
    if not in_order and any(each.normaliser in CENTRED for _, _, each in terms):
        raise ValueError(
            f"{metric}: a metric of the whole ranking, such as auc, cannot be summed with one of another column"
        )
    relevance = metric.relevance(some) if in_order else _blended(terms, columns, reduce)
    # All gains rise with the label, so one order serves all terms of a column. Documents with equal gains keep their order.
    # Terms of several columns have no such order in common: their combined relevance decides.
    query = np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)
    keys: list[NDArray[Any]] = [*(-each for each in reversed(gains)), query]  # the last one counts first
    if not in_order:
        keys.insert(-1, -relevance)
    rows = np.lexsort(keys) if metric.family != "selected" else np.arange(len(some))  # a selection keeps the given order
    del query, keys  # they are as large as the data
    order = np.subtract(rows, np.repeat(ptr[:-1], sizes), dtype=np.int32, casting="unsafe")
    relevance = np.ascontiguousarray(relevance, np.float64)[rows]
    largest = float(reduce(np.array([max(relevance.max(), -relevance.min())]), "max")[0])
    relevance *= _HIGHEST / max(largest, 1e-300)
    layout = Layout(ptr, order, relevance, np.arange(len(sizes), dtype=np.uint64))
    if metric.family == "selected":
        selection = _selection(metric.components()[0][2], gains[0].copy(), ptr)  # the labels may be the caller's
        return Queries(metric, layout, ((selection,),), in_order, reduce)
    made = iter(
        _listed(each, weight, gain[rows], ptr) if each.listed else _rule(each, weight, gain[rows], ptr, in_order)
        for (weight, _, each), gain in zip(terms, gains, strict=True)
    )
    laid_out = tuple(
        _divided([next(made) for _ in components], part.ideals([columns[column] for _, column, _ in components], ptr))
        for _, part, components in parts
    )
    return Queries(metric, layout, laid_out, in_order, reduce)


def _check_suits(metric: Metric, column: str | None, labels: Array) -> None:
    """The metric's own check, whose error names the column if there is one."""
    try:
        metric.check(labels)
    except ValueError as error:
        if column is None:
            raise
        raise ValueError(str(error).replace("labels[", f'labels["{column}"][')) from None


def _blended(terms: list[tuple[float, str | None, Metric]], columns: dict[str | None, Array], reduce: Reduce) -> Array:
    """The relevance of documents to terms of several columns: the weighted sum, each in units of its largest."""
    total = np.zeros(len(next(iter(columns.values()))))
    for weight, column, metric in terms:
        relevance = metric.relevance(columns[column])
        largest = float(reduce(np.array([relevance.max()]), "max")[0])
        total += weight * (relevance / max(largest, 1e-300))
    return total


def _divided(terms: list[Rule | Listed], ideals: Array | None) -> tuple[Rule | Listed, ...]:
    """The terms of one part, divided by what they have in common; a query in which that is 0 has no value."""
    if ideals is None:
        return tuple(terms)
    inverse = np.where(ideals > 0, 1.0 / np.where(ideals > 0, ideals, 1.0), 0.0)
    rules = (term for term in terms if not isinstance(term, Listed))
    return tuple(rule._replace(multipliers=rule.multipliers * inverse) for rule in rules)


def _listed(metric: Any, weight: float, labels: Array, ptr: Integers) -> Listed:
    """A function of the ranked list times its weight in a sum."""
    relevant = np.add.reduceat(labels > 0, ptr[:-1], dtype=np.int64)
    cut = int(min(metric.cut, np.diff(ptr).max()))
    return Listed(metric, weight, cut, labels, relevant)


def _rule(metric: Metric, weight: float, gains: Array, ptr: Integers, in_order: bool) -> Rule:
    """A metric times its weight in a sum, for gains in descending order in each query if `in_order`; they are changed."""
    sizes = np.diff(ptr)
    relevant = np.add.reduceat(gains > 0, ptr[:-1], dtype=np.int64)
    cut = int(min(metric.cut, sizes.max()))
    discounts = np.zeros(cut + 2)
    discounts[:cut] = metric.discounts(cut)
    multipliers = np.ones(len(sizes))
    if metric.normaliser == "relevant":
        multipliers = 1.0 / np.maximum(relevant, 1)
    elif metric.normaliser == "ideal":
        # relative to the largest, no gain is so small that the ideal has no reciprocal
        largest = gains[ptr[:-1]] if in_order else np.maximum.reduceat(gains, ptr[:-1])
        gains /= np.repeat(np.where(largest > 0, largest, 1.0), sizes)
        falling = gains if in_order else gains[np.lexsort((-gains, np.repeat(np.arange(len(sizes)), sizes)))]
        ideal = _ideal(falling, ptr, discounts)
        power = getattr(metric, "power", 1.0)
        multipliers = np.where(ideal > 0, largest ** (1.0 - power) * np.where(ideal > 0, ideal, 1.0) ** -power, 0.0)
    elif metric.normaliser in CENTRED:
        gains, relevant, multipliers = CENTRED[metric.normaliser](gains, ptr)
    return Rule(metric.factor, discounts, cut, gains, relevant, multipliers * weight)


def _selection(metric: Metric, gains: Array, ptr: Integers) -> Selection:
    """A metric of a selection, for gains in the order of the data."""
    sizes = np.diff(ptr)
    relevant = np.add.reduceat(gains > 0, ptr[:-1], dtype=np.int64)
    cut = int(min(metric.cut, sizes.max()))
    discounts = np.zeros(cut + 2)
    discounts[:cut] = metric.discounts(cut)
    multipliers, needed = np.ones(len(sizes)), np.zeros(len(sizes))
    if metric.factor == AGREEMENT:
        relevant, multipliers = sizes, 1.0 / sizes
    elif metric.factor == F_SCORE:
        square = float(getattr(metric, "beta", 1.0)) ** 2
        multipliers, needed = multipliers * (1.0 + square), square * relevant
    return Selection(metric.factor, discounts, cut, gains, relevant, multipliers, needed)


def _ideal(gains: Array, ptr: Integers, discounts: Array) -> Array:
    """The largest sum of discounted gains of each query; its gains stand in descending order."""
    short = np.dtype(np.int32 if len(gains) < 2**31 else np.int64)
    position = np.arange(len(gains)).astype(short)
    position -= np.repeat(ptr[:-1].astype(short), np.diff(ptr))
    discounted = discounts[np.minimum(position, len(discounts) - 1, out=position)]
    discounted *= gains
    best: Array = np.add.reduceat(discounted, ptr[:-1])
    return best
