"""Gradients of any function of the ranked list, by re-evaluation.

Nothing is known of the function but its values. Each document is moved through all positions at which the function can see
it, with the others in their noisy order, and the differences of the values are the jumps of CCS. Three steps take some
queries through a sample: `rank_lists` and `add_jumps` are compiled once and for all, `fill_values` once per function. A
function that cannot be compiled is called by `fill_values` as plain Python. Smoothing, scale-free acceleration and noise are
those of `gradients`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .._constants import Array, Integers
from .gauss import LOGISTIC_LAW, TOTAL, X, density
from .gradients import NOISE, Y, _draw, _finish, _load, _move
from .noise import fill_logistics
from .policy import around, kernel, spliced
from .selection import SORTED, select


class Lists(NamedTuple):
    """Noisy rankings of whole data, a row per document. `x`, `noise`, `rank` and `total` are in the order of the layout;
    `y` and `places` are by position, as deep as the function can see; a document further down has the rank `cut` + 1."""

    x: Array
    noise: Array
    rank: Integers
    total: Array
    y: Array
    places: Integers


def make_lists(rows: int) -> Lists:
    """Room for so many documents."""
    x, noise, total, y = (np.zeros(rows) for _ in range(4))
    return Lists(x, noise, np.zeros(rows, np.int64), total, y, np.zeros(rows, np.int64))


@kernel
def rank_lists(s, lists, scores, problem, logistic, sample, queries):
    """Draw the noise of one sample and rank the documents; returns whether all scores are finite."""
    finite = True
    cut, ptr = problem.rule.cut, problem.layout.ptr
    for a in range(len(queries)):
        query = queries[a]
        begin = ptr[query]
        n = ptr[query + 1] - begin
        if not _load(s, scores, problem, query):
            finite = False
        if logistic:
            fill_logistics(s.documents[NOISE], n, problem.smoothing.key, problem.layout.query_keys[query], sample)
            _move(s.documents, problem.smoothing.unit, np.int64(0), n)
        else:
            _draw(s, problem, query, n, sample)
        count = select(s.documents[Y], n, min(cut + 1, n), -np.inf, False, s.sorting)
        for j in range(n):
            lists.x[begin + j] = s.documents[X, j]
            lists.noise[begin + j] = s.documents[NOISE, j]
            lists.rank[begin + j] = cut + 1
        for i in range(count):
            place = s.sorting.places[SORTED, i]
            lists.y[begin + i] = s.sorting.values[SORTED, i]
            lists.places[begin + i] = place
            lists.rank[begin + place] = i
    return finite


@around
def fill_values(function, values, starts, work, labels, lists, ptr, cut, queries):
    """values[starts[a]...]: of each document of a query, by place, the value at each position 0..min(cut, n - 1).

    `work` has room for the longest list. A document that passes one with the same label changes nothing. Those below the cut
    see the same others, so that those with the same label, which stand together, have the same values.
    """
    for a in range(len(queries)):
        begin = ptr[queries[a]]
        n = ptr[queries[a] + 1] - begin
        deep, size = min(cut, n - 1), min(cut, n)
        label, places, rank = labels[begin : begin + n], lists.places[begin : begin + n], lists.rank[begin : begin + n]
        ranked = work[:size]
        known = -1
        for j in range(n):
            start = starts[a] + j * (deep + 1)
            below = rank[j] >= deep
            if below and known >= 0 and label[j] == label[known]:
                before = starts[a] + known * (deep + 1)
                for m in range(deep + 1):
                    values[start + m] = values[before + m]
                continue
            if below:
                known = j
            ranked[0] = label[j]
            for i in range(1, size):
                ranked[i] = label[places[i - 1 if i - 1 < rank[j] else i]]
            values[start] = function(ranked)
            for m in range(deep):
                passed = label[places[m if m < rank[j] else m + 1]]
                ranked[m] = passed
                if m + 1 < size:
                    ranked[m + 1] = label[j]
                values[start + m + 1] = values[start + m] if passed == label[j] else function(ranked)


@around
def fill_list_values(function, values, ranked, ptr, cut):
    """The value of each list that `ptr` cuts out of `ranked`."""
    for a in range(len(values)):
        values[a] = function(ranked[ptr[a] : min(ptr[a] + cut, ptr[a + 1])])


@spliced
def _add_jumps(law, lists, values, starts, cut, ptr, queries):
    for a in range(len(queries)):
        begin = ptr[queries[a]]
        n = ptr[queries[a] + 1] - begin
        deep = min(cut, n - 1)
        for j in range(n):
            x, rank, at = lists.x[begin + j], lists.rank[begin + j], starts[a] + j * (deep + 1)
            total = 0.0
            for m in range(deep):
                jump = values[at + m] - values[at + m + 1]
                if jump != 0.0:
                    total += jump * density(law, lists.y[begin + (m if m < rank else m + 1)] - x)
            lists.total[begin + j] += total


@kernel
def add_jumps(lists, values, starts, cut, ptr, queries):
    """Add the jumps of one sample, for normal noise."""
    _add_jumps(None, lists, values, starts, cut, ptr, queries)


@kernel
def add_logistic_jumps(lists, values, starts, cut, ptr, queries):
    """Add the jumps of one sample, for logistic noise."""
    _add_jumps(LOGISTIC_LAW, lists, values, starts, cut, ptr, queries)


@kernel
def finish_lists(s, out, lists, scores, problem, queries):
    """Project and scale the sums over all samples, add them to the rows of `out`, and start sums anew."""
    ptr = problem.layout.ptr
    for a in range(len(queries)):
        query = queries[a]
        begin, end = ptr[query], ptr[query + 1]
        _load(s, scores, problem, query)
        for j in range(end - begin):
            s.documents[TOTAL, j] = lists.total[begin + j]
            lists.total[begin + j] = 0.0
        _finish(s, out, problem, query)
