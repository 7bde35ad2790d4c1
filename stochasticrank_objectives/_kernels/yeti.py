"""Pairs of near neighbours in noisy rankings: the derivatives of YetiRank and YetiLoss.

A query is ranked by its scores with noise, several times over. In each ranking a document at position a has a pair with the
one at b = a + 1, ..., a + neighbours; the pair weighs as much as a swap of the two would change the metric (see `lambdas`),
and its loss is the logistic one of the scores without noise. The pairs of one document a are taken together.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .._constants import CASCADE, PLAIN, Array
from .gauss import LOG2_E
from .lambdas import LARGEST
from .noise import fill_logistics
from .noise import room as noise_room
from .policy import aligned, inline, inner, kernel, plain, table, wide
from .selection import SORTED, Sorting, make_sorting, select
from .vectors import EIGHT, add_pairs

# Rows of a table of documents, by falling gain: scores, with noise, noise, and the derivatives so far.
_Z, _Y, _NOISE, _SLOPE, _CURVE = range(5)
# Rows of a table by position: score in powers of two, gain, and both derivatives from one ranking.
_X, _GAIN, _PULL, _BEND = range(4)


class YetiScratch(NamedTuple):
    """Arrays for one query after another."""

    documents: Array
    sorting: Sorting
    top: Array
    change: Array


def make_yeti_scratch(n: int, size: int) -> YetiScratch:
    """Room for queries of up to n documents, of which the best `size` are needed."""
    top = table(4, min(size, n) + EIGHT)
    top[:] = 0.0  # what stands behind the last document weighs nothing, but must be finite
    return YetiScratch(table(5, plain(noise_room)(n)), make_sorting(n), top, aligned(top.shape[1])[0])


@inline
def _rank(s, layout, rule, rankings, query, size, permutation):
    """The best `size` documents by z + sigma (noise - mu r), ties in the worst order."""
    begin, end = layout.ptr[query], layout.ptr[query + 1]
    n = end - begin
    gains, relevance = rule.gains[begin:end], layout.relevance[begin:end]
    z, y, noise = s.documents[_Z], s.documents[_Y], s.documents[_NOISE]
    if rankings.sigma > 0.0:
        fill_logistics(noise, n, rankings.key, layout.query_keys[query], permutation)
        for j in range(n):
            y[j] = z[j] + rankings.sigma * (noise[j] - rankings.mu * relevance[j])
    else:
        for j in range(n):
            y[j] = z[j]
    select(y, n, size, -np.inf, True, s.sorting)
    x, gain, places = s.top[_X], s.top[_GAIN], s.sorting.places[SORTED]
    for p in range(size):
        at = np.uint32(places[p])
        x[p], gain[p] = LOG2_E * z[at], gains[at]


@inline
def _fill_changes(change, gain, rule, before, a, count):
    """What a swap of the document at `a` with each of the `count` after it changes, per difference of their gains, for a
    metric with a factor that is made of the documents before: `before` is that of the document at `a`."""
    here, there, gain = rule.discounts[a], rule.discounts[a + 1 :], gain[a + 1 :]
    earned, chance = 0.0, 1.0 if rule.kind == CASCADE else before
    for i in range(count):
        if rule.kind == CASCADE:
            change[i] = before * (here - earned - chance * there[i])
            earned += chance * there[i] * gain[i]
            chance *= 1.0 - gain[i]
        else:
            change[i] = before * here + earned - chance * there[i]
            earned += there[i] * gain[i]
            chance += gain[i]


@inner
def _add_all_pairs(top, change, rule, n, neighbours, least):
    """All pairs of one ranking."""
    wide()
    x, gain, pull, bend = top[_X], top[_GAIN], top[_PULL], top[_BEND]
    before = 1.0
    for a in range(min(rule.cut, n - 1)):
        count = min(neighbours, n - 1 - a)
        if rule.kind == PLAIN:
            add_pairs(x, gain, pull, bend, a, rule.discounts[a], rule.discounts[a + 1 :], count, least)
        else:
            _fill_changes(change, gain, rule, before, a, count)
            add_pairs(x, gain, pull, bend, a, 0.0, change, count, least)
            before = before * (1.0 - gain[a]) if rule.kind == CASCADE else before + gain[a]


@kernel
def yeti_range(s, gradient, hessian, scores, problem, queries):
    """Both derivatives of the loss for some queries, put into their rows. `problem` is a tuple: layout, rule and rankings.

    The rule's discounts have zeros for at least `neighbours` positions from the cut on, and room for EIGHT more.
    """
    layout, rule, rankings = problem
    z, slope, curve = s.documents[_Z], s.documents[_SLOPE], s.documents[_CURVE]
    places, pull, bend = s.sorting.places[SORTED], s.top[_PULL], s.top[_BEND]
    for a in range(len(queries)):
        query = queries[a]
        start, n = layout.ptr[query], layout.ptr[query + 1] - layout.ptr[query]
        rows, own = layout.order[start : start + n], scores[start : start + n]
        size = min(n, rule.cut + rankings.neighbours)
        for j in range(n):
            z[j] = min(max(own[np.uint32(rows[j])], -LARGEST), LARGEST)
            slope[j] = curve[j] = 0.0
        for permutation in range(rankings.permutations):
            _rank(s, layout, rule, rankings, query, size, permutation)
            for p in range(size):
                pull[p] = bend[p] = 0.0
            _add_all_pairs(s.top, s.change, rule, n, rankings.neighbours, rankings.least)
            for p in range(size):
                at = np.uint32(places[p])
                slope[at] += pull[p]
                curve[at] += bend[p]
        times = rule.multipliers[query] / rankings.permutations
        for j in range(n):
            row = start + rows[j]
            gradient[row] = times * slope[j]
            hessian[row] = times * curve[j]
