"""Pairs of near neighbours in noisy rankings: the derivatives of YetiRank and YetiLoss.

A query is ranked by its scores with noise, several times over. In each ranking a document at position a has a pair with the
one at b = a + 1, ..., a + neighbours; the pair weighs as much as a swap of the two would change the metric (see `lambdas`),
and its loss is the logistic one of the scores without noise. All pairs of one distance b - a are done in one go.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .._constants import AVERAGE, CASCADE, PLAIN, Array
from .gauss import LANES, LOG2_E, exp2_negative
from .lambdas import LARGEST
from .noise import fill_logistics
from .noise import room as noise_room
from .policy import inline, inner, kernel, plain, table
from .selection import SORTED, Sorting, make_sorting, select

# Rows of a table of documents, by falling gain: scores, with noise, noise, and the derivatives so far.
_Z, _Y, _NOISE, _SLOPE, _CURVE = range(5)
# Rows of a table by position: score in powers of two, gain; factor, earned and chance as in `lambdas` for swaps that begin
# here; coefficient, pull and bend of the pairs that do; the derivatives from one ranking.
_X, _GAIN, _FACTOR, _EARNED, _CHANCE, _COEFFICIENT, _PULL, _BEND, _SLOPES, _CURVES = range(10)


class YetiScratch(NamedTuple):
    """Arrays for one query after another."""

    documents: Array
    sorting: Sorting
    top: Array


def make_yeti_scratch(n: int, size: int) -> YetiScratch:
    """Room for queries of up to n documents, of which the best `size` are needed."""
    return YetiScratch(table(5, plain(noise_room)(n)), make_sorting(n), table(10, min(size, n) + LANES))


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
    """The state of `_fill_swaps` before the first distance."""
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
def _fill_swaps(top, kind, discounts, step, pairs):
    """What a swap of each document with the one `step` behind changes, over the difference of their gains; steps come in
    turn."""
    here, there, gain_there = discounts[:pairs], discounts[step : step + pairs], top[_GAIN, step : step + pairs]
    out, factor, earned, chance = top[_COEFFICIENT, :pairs], top[_FACTOR], top[_EARNED], top[_CHANCE]
    if kind == PLAIN:
        for a in range(len(out)):
            out[a] = abs(here[a] - there[a])
    elif kind == CASCADE:
        for a in range(len(out)):
            out[a] = abs(factor[a] * (here[a] - earned[a] - chance[a] * there[a]))
            earned[a] += chance[a] * there[a] * gain_there[a]
            chance[a] *= 1.0 - gain_there[a]
    else:
        for a in range(len(out)):
            out[a] = abs(factor[a] * here[a] + earned[a] - chance[a] * there[a])
            earned[a] += there[a] * gain_there[a]
            chance[a] += gain_there[a]


@inner
def _fill_pairs(top, step, pairs, newton):
    """Both derivatives of each pair's loss, log(1 + exp(-(s_i - s_j))) with i the better, by the score of the first.

    Unless `newton`, the size of the first derivative stands for the second."""
    x, x_there, gain, gain_there = top[_X], top[_X, step : step + pairs], top[_GAIN], top[_GAIN, step : step + pairs]
    pull, bend, coefficient = top[_PULL, :pairs], top[_BEND], top[_COEFFICIENT]
    for a in range(len(pull)):
        difference, ahead = gain[a] - gain_there[a], x[a] - x_there[a]
        e = exp2_negative(-abs(ahead))
        share = 1.0 / (1.0 + e)
        wrong = share * (e if (ahead >= 0.0) == (difference > 0.0) else 1.0)
        pull[a] = -coefficient[a] * difference * wrong
        bend[a] = coefficient[a] * abs(difference) * (e * share * share if newton else wrong)


@inner
def _add(top, begin, pairs, sign):
    """Add the pairs to the derivatives from position `begin` on."""
    slopes, curves = top[_SLOPES, begin : begin + pairs], top[_CURVES, begin : begin + pairs]
    pull, bend = top[_PULL], top[_BEND]
    for a in range(len(slopes)):
        slopes[a] += sign * pull[a]
        curves[a] += bend[a]


@kernel
def yeti_range(s, gradient, hessian, scores, problem, queries):
    """Both derivatives of the loss for some queries, put into their rows. `problem` is a tuple: layout, rule and rankings.

    The rule's discounts have zeros for at least `neighbours` positions from the cut on.
    """
    layout, rule, rankings = problem
    z, slope, curve = s.documents[_Z], s.documents[_SLOPE], s.documents[_CURVE]
    slopes, curves, places = s.top[_SLOPES], s.top[_CURVES], s.sorting.places[SORTED]
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
                slopes[p] = curves[p] = 0.0
            if rule.kind != PLAIN:
                _begin_swaps(s.top, rule.kind, size)
            for step in range(1, min(rankings.neighbours, n - 1) + 1):
                pairs = min(rule.cut, n - step)
                _fill_swaps(s.top, rule.kind, rule.discounts, step, pairs)
                _fill_pairs(s.top, step, pairs, rankings.newton)
                _add(s.top, np.int64(0), pairs, 1.0)
                _add(s.top, step, pairs, -1.0)
            for p in range(size):
                at = np.uint32(places[p])
                slope[at] += slopes[p]
                curve[at] += curves[p]
        times = rule.multipliers[query] / rankings.permutations
        for j in range(n):
            row = start + rows[j]
            gradient[row] = times * slope[j]
            hessian[row] = times * curve[j]
