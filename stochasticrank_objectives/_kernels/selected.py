"""Metrics of a selection: a document is shown if its score is above 0. Values, and gradients by CCS or REINFORCE.

Showing document j, the others as the noise has them, changes the metric by a jump D_j, and 0 is the only place where that
happens, so the CCS estimate is D_j times the density of the noise at -x_j. All jumps of a query take one pass.

LISTED     with c documents shown before j, D_j = w_c g_j + sum over those shown after j of g_i (w_{c_i} - w_{c_i - 1}), c_i
           counted with j; the sums for j shown and j hidden grow from the end of the list
F_SCORE    t/(needed + s) for t relevant ones among s shown; both sums change by j's own part
AGREEMENT  2 g_j - 1
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from .._constants import F_SCORE, LISTED, Array
from .gauss import LOGISTIC_LAW, density
from .gradients import _LARGEST, _SAME, _dot, _sum
from .noise import fill_logistics, fill_normals
from .noise import room as noise_room
from .policy import inner, kernel, plain, spliced, table

_Z, _X, _Y, _NOISE, _DENSITY, _JUMP, _TOTAL = range(7)


class SelectionScratch(NamedTuple):
    """A table of a query's documents in the order of the data: scores, where they are without and with noise, the noise, the
    density of the noise at their breaking point, their jumps, and the gradient so far."""

    documents: Array


def make_scratch(n: int) -> SelectionScratch:
    """Room for queries of up to n documents."""
    return SelectionScratch(table(7, plain(noise_room)(n)))


def make_value_scratch(n: int) -> Array:
    """Values need no room."""
    return np.empty(0)


@inner
def _value(rule, gain, needed, y, n):
    """The metric of showing the documents with y > 0, without its multiplier."""
    shown, total = 0, 0.0
    for j in range(n):
        if rule.kind == LISTED:
            if y[j] > 0.0:
                total += rule.discounts[min(shown, rule.cut)] * gain[j]
                shown += 1
        elif rule.kind == F_SCORE:
            if y[j] > 0.0:
                total += gain[j]
                shown += 1
        else:
            total += 1.0 if (y[j] > 0.0) == (gain[j] > 0.0) else 0.0
    if rule.kind == F_SCORE:
        return total / (needed + shown) if total > 0.0 else 0.0
    return total


@inner
def _fill_listed(rule, gain, y, n, jump):
    discounts, cut = rule.discounts, rule.cut
    before = 0
    for j in range(n):
        before += 1 if y[j] > 0.0 else 0
    if_shown = if_hidden = 0.0  # what the documents shown behind j lose by it, if it is shown, and if it is not
    for j in range(n - 1, -1, -1):
        if y[j] > 0.0:
            before -= 1
            here = discounts[min(before, cut)]
            jump[j] = here * gain[j] + if_shown
            if_hidden += (discounts[min(before + 1, cut)] - here) * gain[j]
            if_shown += (here - discounts[min(max(before - 1, 0), cut)]) * gain[j]
        else:
            jump[j] = discounts[min(before, cut)] * gain[j] + if_hidden


@inner
def _fill_f_score(gain, needed, y, n, jump):
    shown = hit = 0.0
    for j in range(n):
        if y[j] > 0.0:
            shown += 1.0
            hit += gain[j]
    now, one_more, one_less = needed + shown, needed + shown + 1.0, max(needed + shown - 1.0, 1e-300)
    for j in range(n):
        if y[j] > 0.0:
            jump[j] = hit / now - (hit - gain[j]) / one_less
        else:
            jump[j] = (hit + gain[j]) / one_more - hit / now


@inner
def _fill_jumps(rule, gain, needed, y, n, jump):
    """What showing each document changes."""
    if rule.kind == LISTED:
        _fill_listed(rule, gain, y, n, jump)
    elif rule.kind == F_SCORE:
        _fill_f_score(gain, needed, y, n, jump)
    else:
        for j in range(n):
            jump[j] = 2.0 * gain[j] - 1.0


@spliced
def _load(law, s, scores, problem, query):
    """Place the scores of one query: x = unit z/sigma; returns whether their sum is finite."""
    begin, end = problem.layout.ptr[query], problem.layout.ptr[query + 1]
    rows, n = scores[begin:end], end - begin
    z, x, total, weight = s.documents[_Z], s.documents[_X], s.documents[_TOTAL], s.documents[_DENSITY]
    stretch = problem.smoothing.unit / problem.smoothing.sigma
    for j in range(n):
        z[j] = min(max(rows[j], -_LARGEST), _LARGEST)
        x[j] = min(max(z[j] * stretch, -_LARGEST), _LARGEST)
        weight[j] = density(law, x[j])
        total[j] = 0.0
    return math.isfinite(_sum(rows, n))


@spliced
def _move(s, problem, n):
    x, y, noise, unit = s.documents[_X], s.documents[_Y], s.documents[_NOISE], problem.smoothing.unit
    for j in range(n):
        y[j] = x[j] + unit * noise[j]


@spliced
def _draw_normal(s, problem, query, n, sample):
    key = problem.layout.query_keys[query]
    fill_normals(s.documents[_NOISE], n, problem.smoothing.key, key, sample, np.int64(0), noise_room(n) // 4)
    _move(s, problem, n)


@spliced
def _draw_logistic(s, problem, query, n, sample):
    fill_logistics(s.documents[_NOISE], n, problem.smoothing.key, problem.layout.query_keys[query], sample)
    _move(s, problem, n)


@spliced
def _add_ccs(s, rule, begin, n, query, sample):
    y, jump, total, weight = s.documents[_Y], s.documents[_JUMP], s.documents[_TOTAL], s.documents[_DENSITY]
    _fill_jumps(rule, rule.gains[begin : begin + n], rule.needed[query], y, n, jump)
    for j in range(n):
        total[j] += weight[j] * jump[j]


@spliced
def _add_reinforce(s, rule, begin, n, query, sample):
    """(M(y) - M(z)) noise."""
    gain, needed = rule.gains[begin : begin + n], rule.needed[query]
    change = _value(rule, gain, needed, s.documents[_Y], n) - _value(rule, gain, needed, s.documents[_Z], n)
    total, noise = s.documents[_TOTAL], s.documents[_NOISE]
    for j in range(n):
        total[j] += change * noise[j]


@inner
def _project(total, z, n, nu, strength):
    """Scale-free acceleration: take away the part along the scores. Every shift changes a selection, so none is undone."""
    largest = 0.0
    for j in range(n):
        largest = max(largest, abs(z[j]))
    if largest < _SAME:
        return
    norm = math.sqrt(_dot(z, z, n)) + nu
    along = strength * _dot(total, z, n) / norm / norm
    for j in range(n):
        total[j] -= along * z[j]


@spliced
def _each_query(law, draw, add, s, out, scores, problem, queries):
    """The gradient of the loss for some queries, into their rows of `out`; returns whether all their scores are finite."""
    finite = True
    layout, rule, smoothing = problem.layout, problem.rule, problem.smoothing
    total = s.documents[_TOTAL]
    for a in range(len(queries)):
        query = queries[a]
        begin, n = layout.ptr[query], layout.ptr[query + 1] - layout.ptr[query]
        if not _load(law, s, scores, problem, query):
            finite = False
        for sample in range(smoothing.samples):
            draw(s, problem, query, n, sample)
            add(s, rule, begin, n, query, sample)
        if smoothing.strength > 0.0:
            _project(total, s.documents[_Z], n, smoothing.nu, smoothing.strength)
        factor = -rule.multipliers[query] * smoothing.peak / (smoothing.sigma * smoothing.samples)
        for j in range(n):
            out[begin + j] = factor * total[j]
    return finite


@kernel
def ccs(s, out, scores, problem, queries):
    """By CCS with normal noise."""
    return _each_query(None, _draw_normal, _add_ccs, s, out, scores, problem, queries)


@kernel
def logistic_ccs(s, out, scores, problem, queries):
    """By CCS with logistic noise."""
    return _each_query(LOGISTIC_LAW, _draw_logistic, _add_ccs, s, out, scores, problem, queries)


@kernel
def reinforce(s, out, scores, problem, queries):
    """By REINFORCE."""
    return _each_query(None, _draw_normal, _add_reinforce, s, out, scores, problem, queries)


@kernel
def value_range(s, out, scores, layout, rule, ties, queries):
    """The metric of some queries. There are no ties: a score of 0 is not above 0."""
    for a in range(len(queries)):
        query = queries[a]
        begin, end = layout.ptr[query], layout.ptr[query + 1]
        value = _value(rule, rule.gains[begin:end], rule.needed[query], scores[begin:end], end - begin)
        out[query] = rule.multipliers[query] * value
