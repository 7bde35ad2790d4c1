"""Pairs of near neighbours in noisy rankings: the derivatives of YetiRank and YetiLoss.

A query is ranked by its scores with noise, several times over. In each ranking a document at position a has a pair with the
one at b = a + 1, ..., a + neighbours; the pair weighs as much as a swap of the two would change the metric (see `lambdas`),
and its loss is the logistic one of the scores without noise. Pairs of one distance b - a follow each other.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .._constants import AVERAGE, CASCADE, PLAIN, Array
from .gauss import LANES, LOG2_E, exp2_negative, whole_lanes
from .lambdas import LARGEST
from .noise import fill_logistics
from .noise import room as noise_room
from .policy import inline, inner, kernel, plain, table, wide
from .selection import SORTED, Sorting, make_sorting, select

# Rows of a table of documents, by falling gain: scores, with noise, noise, and the derivatives so far.
_Z, _Y, _NOISE, _SLOPE, _CURVE = range(5)
# Rows of a table by position: score in powers of two, gain; factor, earned and chance as in `lambdas` for swaps that begin
# here; both derivatives from one ranking, of the pairs that begin and of those that end here.
_X, _GAIN, _FACTOR, _EARNED, _CHANCE, _PULL_HERE, _PULL_THERE, _BEND_HERE, _BEND_THERE = range(9)
# Rows of a table of pairs: how far the first is ahead; the weight, negative if the second is the better; both derivatives.
_AHEAD, _WEIGHT, _PULL, _BEND = range(4)
_CHUNK = 512  # pairs that are taken together


class YetiScratch(NamedTuple):
    """Arrays for one query after another."""

    documents: Array
    sorting: Sorting
    top: Array
    pairs: Array


def make_yeti_scratch(n: int, size: int) -> YetiScratch:
    """Room for queries of up to n documents, of which the best `size` are needed."""
    size = min(size, n)
    pairs = table(4, max(size, _CHUNK) + LANES)
    return YetiScratch(table(5, plain(noise_room)(n)), make_sorting(n), table(9, size + LANES), pairs)


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
def _begin_swaps(top, kind, count):
    """The state of `_fill_pairs` before the first distance."""
    total = 1.0
    gain, factor, earned, chance = top[_GAIN], top[_FACTOR], top[_EARNED], top[_CHANCE]
    for a in range(count):
        factor[a], earned[a] = total, 0.0
        chance[a] = 1.0 if kind == CASCADE else total
        if kind == CASCADE:
            total *= 1.0 - gain[a]
        elif kind == AVERAGE:
            total += gain[a]


@inner
def _fill_pairs(top, pairs, kind, discounts, step, begin, count):
    """The pairs of each of the first `count` documents with the one `step` behind, into pairs[begin:]; steps come in turn.

    A pair weighs what a swap of the two changes.
    """
    here, there = discounts[:count], discounts[step : step + count]
    gain, gain_there, x, x_there = top[_GAIN], top[_GAIN, step : step + count], top[_X], top[_X, step : step + count]
    ahead, weight = pairs[_AHEAD, begin : begin + count], pairs[_WEIGHT, begin : begin + count]
    factor, earned, chance = top[_FACTOR], top[_EARNED], top[_CHANCE]
    for a in range(len(ahead)):
        ahead[a] = x[a] - x_there[a]
    if kind == PLAIN:
        for a in range(len(weight)):
            weight[a] = abs(here[a] - there[a]) * (gain[a] - gain_there[a])
    elif kind == CASCADE:
        for a in range(len(weight)):
            weight[a] = abs(factor[a] * (here[a] - earned[a] - chance[a] * there[a])) * (gain[a] - gain_there[a])
            earned[a] += chance[a] * there[a] * gain_there[a]
            chance[a] *= 1.0 - gain_there[a]
    else:
        for a in range(len(weight)):
            weight[a] = abs(factor[a] * here[a] + earned[a] - chance[a] * there[a]) * (gain[a] - gain_there[a])
            earned[a] += there[a] * gain_there[a]
            chance[a] += gain_there[a]


@inner
def _differentiate(pairs, count, least):
    """Both derivatives of each pair's loss, w log(1 + exp(-(s_i - s_j))) with i the better, by the score of the first.

    The second is at least `least` times the size of the first. `count` is a multiple of LANES.
    """
    wide()
    ahead, weight, bend, pull = pairs[_AHEAD, :count], pairs[_WEIGHT], pairs[_BEND], pairs[_PULL]
    for i in range(len(ahead)):
        e = exp2_negative(-abs(ahead[i]))
        share = 1.0 / (1.0 + e)
        wrong = share * (e if ahead[i] * weight[i] >= 0.0 else 1.0)
        pull[i] = -weight[i] * wrong
        bend[i] = abs(weight[i]) * max(e * share * share, least * wrong)


@inner
def _add(top, pairs, begin, count, step):
    """Add pairs[begin : begin + count], of documents and those `step` behind, to the derivatives of both."""
    pull, bend = pairs[_PULL, begin : begin + count], pairs[_BEND, begin : begin + count]
    pull_here, bend_here = top[_PULL_HERE, :count], top[_BEND_HERE, :count]
    pull_there, bend_there = top[_PULL_THERE, step : step + count], top[_BEND_THERE, step : step + count]
    for a in range(len(pull)):
        pull_here[a] += pull[a]
        pull_there[a] += pull[a]
        bend_here[a] += bend[a]
        bend_there[a] += bend[a]


@inner
def _add_pairs(top, pairs, rule, n, neighbours, least):
    """All pairs of one ranking, in chunks, so that what takes long is done in long vectors."""
    last = min(neighbours, n - 1)
    together = max(_CHUNK // max(min(rule.cut, n - 1), 1), 1)
    for first in range(1, last + 1, together):
        end = min(first + together, last + 1)
        count = np.int64(0)
        for step in range(first, end):
            _fill_pairs(top, pairs, rule.kind, rule.discounts, step, count, min(rule.cut, n - step))
            count += min(rule.cut, n - step)
        for i in range(count, whole_lanes(count)):
            pairs[_AHEAD, i] = pairs[_WEIGHT, i] = 0.0
        _differentiate(pairs, whole_lanes(count), least)
        count = np.int64(0)
        for step in range(first, end):
            length = min(rule.cut, n - step)
            _add(top, pairs, count, length, step)
            count += length


@kernel
def yeti_range(s, gradient, hessian, scores, problem, queries):
    """Both derivatives of the loss for some queries, put into their rows. `problem` is a tuple: layout, rule and rankings.

    The rule's discounts have zeros for at least `neighbours` positions from the cut on.
    """
    layout, rule, rankings = problem
    z, slope, curve = s.documents[_Z], s.documents[_SLOPE], s.documents[_CURVE]
    places = s.sorting.places[SORTED]
    pull_here, pull_there, bend_here, bend_there = (
        s.top[_PULL_HERE],
        s.top[_PULL_THERE],
        s.top[_BEND_HERE],
        s.top[_BEND_THERE],
    )
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
                pull_here[p] = pull_there[p] = bend_here[p] = bend_there[p] = 0.0
            if rule.kind != PLAIN:
                _begin_swaps(s.top, rule.kind, size)
            _add_pairs(s.top, s.pairs, rule, n, rankings.neighbours, rankings.least)
            for p in range(size):
                at = np.uint32(places[p])
                slope[at] += pull_here[p] - pull_there[p]
                curve[at] += bend_here[p] + bend_there[p]
        times = rule.multipliers[query] / rankings.permutations
        for j in range(n):
            row = start + rows[j]
            gradient[row] = times * slope[j]
            hessian[row] = times * curve[j]
