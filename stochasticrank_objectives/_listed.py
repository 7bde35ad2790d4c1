"""Terms that are functions of the ranked list, bound to data: their values and their gradients, by re-evaluation."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from . import _threads
from ._constants import BEST, MEAN, PLAIN, Array, Integers, Layout, Problem, Rule, Smoothing

_ORDERS = 720  # of tied documents: up to so many are tried for their mean; if there are more, a sample
_TOGETHER = 2**20  # values that are in memory at a time, unless one query has more


@dataclasses.dataclass(frozen=True)
class Listed:
    """A term ``weight * function(labels in ranked order)``, with labels in the order of a layout."""

    metric: Any  # with the function
    weight: float
    cut: int
    labels: Array
    relevant: Integers  # documents with a label above 0, per query

    def rule(self, multipliers: Array) -> Rule:
        """What kernels take for the labels, the cut and what multiplies each query; it has no jumps of its own."""
        return Rule(PLAIN, np.zeros(self.cut + 2), self.cut, self.labels, self.relevant, multipliers * self.weight)

    def loops(self) -> _Loops:
        """The function with the loops around it; made when it is first needed in a process."""
        function = self.metric.function
        if function not in _known:
            _known[function] = _make_loops(function, str(self.metric), self.cut)
        return _known[function]

    def values(self, scores: Array, layout: Layout, ties: int, threads: int) -> Array:
        """The term's value for each query."""
        ptr, loops = layout.ptr, self.loops()
        sizes = np.diff(ptr)
        query = np.repeat(np.arange(len(sizes)), sizes)
        z = scores[layout.order + np.repeat(ptr[:-1], sizes)]
        place = np.arange(len(z))
        order = np.lexsort((place if ties == BEST else -place, -z, query))
        ranked, out = self.labels[order], np.empty(len(sizes))

        def work(begin: int, end: int) -> None:
            loops.lists(loops.function, out[begin:end], ranked, ptr[begin : end + 1], self.cut)

        threads = threads if loops.compiled else 1
        _threads.run(work, _threads.borders(4.0 * sizes, threads), threads)
        if ties == MEAN:
            level = z[order]
            for at in np.flatnonzero(np.bincount(query[1:][(level[1:] == level[:-1]) & (query[1:] == query[:-1])])):
                out[at] = self._mean(ranked[ptr[at] : ptr[at + 1]], level[ptr[at] : ptr[at + 1]], int(at))
        if (wrong := ~np.isfinite(out)).any():
            raise ValueError(f"{self.metric} is not finite in query {int(np.argmax(wrong))}: {out[wrong][0]}")
        return self.weight * out

    def _mean(self, ranked: Array, level: Array, query: int) -> float:
        """The mean over the orders of tied documents: all, or a sample of them that depends on the query's place alone."""
        borders = [0, *np.flatnonzero(level[1:] != level[:-1]) + 1, len(level)]
        blocks = [ranked[a:b] for a, b in itertools.pairwise(borders) if a < self.cut]
        if math.prod(math.factorial(len(block)) for block in blocks) <= _ORDERS:
            choices = itertools.product(*(itertools.permutations(block) for block in blocks))
            orders = np.array([list(itertools.chain.from_iterable(choice)) for choice in choices])
        else:
            rng = np.random.default_rng(query)
            orders = np.hstack([rng.permuted(np.tile(block, (_ORDERS, 1)), axis=1) for block in blocks])
        loops, values, (count, size) = self.loops(), np.empty(len(orders)), orders.shape
        loops.lists(loops.function, values, orders.ravel(), np.arange(count + 1) * size, self.cut)
        return float(values.mean())


class ListedGradient:
    """The gradient of one term, for the queries in which its labels differ."""

    def __init__(self, term: Listed, layout: Layout, multipliers: Array) -> None:
        self._term, self._layout, self._multipliers = term, layout, multipliers
        starts, sizes = layout.ptr[:-1], np.diff(layout.ptr)
        differ = np.maximum.reduceat(term.labels, starts) > np.minimum.reduceat(term.labels, starts)
        self._queries = np.flatnonzero(differ & (multipliers > 0))
        self._evaluations = (np.minimum(term.cut, sizes - 1) + 1.0) * sizes
        self._scratch = _threads.Spare(functools.partial(_scratch, int(sizes[self._queries].max(initial=1)), term.cut))
        self._lists = _threads.Spare(functools.partial(_make_lists, int(layout.ptr[-1])))

    def add(self, out: Array, scores: Array, smoothing: Smoothing, kernel: str, threads: int, unit: float) -> bool:
        """Add the gradient to `out`; returns whether all scores are finite."""
        from ._kernels import listed

        if not len(self._queries):
            return True
        term, ptr = self._term, self._layout.ptr
        problem = Problem(self._layout, term.rule(self._multipliers / unit), smoothing)
        loops, own, lists = term.loops(), np.zeros(len(out)), self._lists.take()
        before = term.values(scores, self._layout, 0, threads) / term.weight if kernel == "reinforce" else None
        finite = []

        def work(scratch: Any, begin: int, end: int) -> None:
            for queries, starts, room in self._portions(begin, end):
                for sample in range(smoothing.samples):
                    logistic = kernel == "logistic_ccs"
                    finite.append(listed.rank_lists(scratch, lists, scores, problem, logistic, sample, queries))
                    if before is not None:
                        self._add_reinforce(lists, loops, before, queries)
                        continue
                    values, ranked = np.empty(room), np.empty(min(term.cut, int(np.diff(ptr)[queries].max())))
                    loops.places(loops.function, values, starts, ranked, term.labels, lists, ptr, term.cut, queries)
                    if not np.isfinite(values).all():
                        raise ValueError(f"{term.metric} is not finite for the labels of this data; see evaluate")
                    add = listed.add_logistic_jumps if logistic else listed.add_jumps
                    add(lists, values, starts, term.cut, ptr, queries)
                listed.finish_lists(scratch, own, lists, scores, problem, queries)

        threads = threads if loops.compiled else 1
        cost = 16.0 * smoothing.samples * self._evaluations[self._queries]
        _threads.run(work, _threads.borders(cost, threads), threads, self._scratch)
        self._lists.give(lists)
        out += own
        return all(finite)

    def _portions(self, begin: int, end: int) -> Iterator[tuple[Integers, Integers, int]]:
        """Queries whose values fit into memory together, where those of each start, and how many there are."""
        while begin < end:
            ends = np.cumsum(self._evaluations[self._queries[begin:end]]).astype(np.int64)
            count = max(int(np.searchsorted(ends, _TOGETHER, "right")), 1)
            yield self._queries[begin : begin + count], np.append(0, ends[: count - 1]), int(ends[count - 1])
            begin += count

    def _add_reinforce(self, lists: Any, loops: _Loops, before: Array, queries: Integers) -> None:
        """(M(y) - M(z)) noise; M(z) takes the worst order of ties."""
        term, ptr = self._term, self._layout.ptr
        for query in queries:
            begin, end = int(ptr[query]), int(ptr[query + 1])
            size = min(term.cut, end - begin)
            value = np.empty(1)
            ranked = term.labels[begin + lists.places[begin : begin + size]]
            loops.lists(loops.function, value, ranked, np.array([0, size]), term.cut)
            lists.total[begin:end] += (value[0] - before[query]) * lists.noise[begin:end]


def _scratch(n: int, cut: int) -> Any:
    from ._kernels import gradients

    return gradients.make_scratch(n, cut, False)


def _make_lists(rows: int) -> Any:
    from ._kernels import listed

    return listed.make_lists(rows)


# ------------------------------------------------------------ compiled where it can be


class _Loops(NamedTuple):
    """A function and the loops around it, all of them compiled or all of them plain Python."""

    function: Any
    lists: Any
    places: Any
    compiled: bool


_known: dict[Any, _Loops] = {}


def _make_loops(function: Any, name: str, cut: int) -> _Loops:
    """Compiled, if numba can and the values stay the same; else plain Python, and a warning."""
    from ._kernels import listed
    from ._kernels.policy import compiled, plain

    python = plain(function)
    tried = ([0], [3, 0], [0, 4, 1, 2], np.arange(20) % 5, np.zeros(7))
    ranked = [np.array(labels[:cut], np.float64) for labels in tried]
    ptr = np.append(0, np.cumsum([len(labels) for labels in ranked]))
    expected, found = (np.empty(len(ranked)) for _ in range(2))
    with np.errstate(all="ignore"):
        plain(listed.fill_list_values)(python, expected, np.concatenate(ranked), ptr, cut)
    try:
        fast: Any = compiled(function)
        listed.fill_list_values(fast, found, np.concatenate(ranked), ptr, cut)
        reason = "" if np.allclose(found, expected, rtol=1e-9, atol=1e-12) else "compiled, it has other values"
    except Exception as error:  # numba's own errors, and whatever else a compiler may stumble on
        reason = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
    if not reason:
        return _Loops(fast, listed.fill_list_values, listed.fill_values, True)
    warnings.warn(
        f"the metric {name} runs as plain Python, on one thread: numba cannot compile its function ({reason}). A gradient "
        "calls it up to n (k + 1) times in a query of n documents, a microsecond or more each; use numpy and loops, no "
        "objects, or give k",
        RuntimeWarning,
        stacklevel=2,
    )
    return _Loops(python, plain(listed.fill_list_values), plain(listed.fill_values), False)
