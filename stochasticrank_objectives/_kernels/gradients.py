"""The entry points: gradients of whole ranges of queries.

A query's documents are held with the largest gain first (`order` says where each stands in the data), so documents without
gain are at the end, and reading them forwards or backwards is the best or the worst order of ties.

A gradient goes through the steps load, draw, rank, add and finish. `_each_query` takes many queries through all of them,
with one of several estimates; a single huge query is taken through them one by one (`load_one`, ...), so that threads can
share each step.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from .._constants import CASCADE, FAST_FROM, PLAIN, Array
from .gauss import (
    ABOVE,
    BELOW,
    GAIN,
    LANES,
    LOGISTIC_LAW,
    SPARSE,
    SURVIVAL,
    TERMS,
    TOP_ROWS,
    TOTAL,
    WORK,
    Boxes,
    X,
    add_boxes,
    add_passing,
    cross_all,
    density,
    make_boxes,
    pass_boxes,
    whole_lanes,
)
from .noise import fill_logistics, fill_normals
from .noise import room as noise_room
from .policy import aligned, inner, kernel, plain, reduction, spliced, table
from .rules import fill_jumps, list_value
from .selection import SORTED, Sorting, make_sorting, second_largest_stop, select

FEW_PASSED = 6  # sources from which on it pays to make boxes

_LARGEST = 1e150  # scores are clipped here, so that no square overflows
_SAME = 1e-140  # scores that differ by less are the same: their squares would vanish


Z, Y, NOISE = range(3, 6)  # further rows of a table of documents: centred scores, where they are with noise, the noise
_DOCUMENT_ROWS = 6


class Scratch(NamedTuple):
    """Arrays for one query after another: a table of its documents by falling gain, and one of the best by position."""

    documents: Array
    sorting: Sorting
    top: Array
    boxes: Boxes


class Ranked(NamedTuple):
    """What ranking a query has found: (top, last, reach) of `fill_jumps`; how many boxes there are of all that can jump, in
    which case the whole query is sorted; else how many of the first `top`, for the others to pass."""

    top: int
    last: int
    reach: int
    boxes: int
    passed: int


def make_scratch(n: int, cut: int, fast: bool) -> Scratch:
    """Room for queries of up to n documents; `fast` for those in which more than FAST_FROM may jump."""
    jumping = n if fast else min(cut + 1, n)
    boxes = jumping // SPARSE + 2
    top = table(TOP_ROWS, plain(whole_lanes)(jumping) + LANES)
    top[GAIN], top[SURVIVAL] = 0.0, 1.0
    starts, series, work = aligned(boxes + 1, boxes * 4 * TERMS, WORK)
    documents = table(_DOCUMENT_ROWS, plain(noise_room)(n))
    return Scratch(documents, make_sorting(n), top, Boxes(starts.view(np.int64), series.reshape(boxes, -1), work))


def with_own_work(s: Scratch) -> Scratch:
    """The same arrays, except what each thread that shares a huge query needs for itself."""
    return s._replace(boxes=s.boxes._replace(work=aligned(WORK)[0]))


# ---------------------------------------------------------- steps


@spliced
def _begin(s, rule):
    """Fill what is the same for every query."""
    if rule.kind == PLAIN:
        fill_jumps(rule, s.top[GAIN], s.top.shape[1], s.top[BELOW], s.top[ABOVE])


@reduction
def _sum(a, n):
    total = 0.0
    for j in range(n):
        total += a[j]
    return total


@reduction
def _dot(a, b, n):
    total = 0.0
    for j in range(n):
        total += a[j] * b[j]
    return total


@spliced
def _load(s, scores, problem, query):
    """Centre the scores of one query, in the order of its gains, and place them: x = unit (z/sigma - mu r).

    Returns whether the scores have a finite sum, which proves that all of them are finite.
    """
    layout, smoothing = problem.layout, problem.smoothing
    documents = s.documents
    z, x, gain, total = documents[Z], documents[X], documents[GAIN], documents[TOTAL]
    begin, end = layout.ptr[query], layout.ptr[query + 1]
    n = end - begin
    rows, places, known = scores[begin:end], layout.order[begin:end], problem.rule.gains[begin:end]
    reference = rows[0]
    for j in range(n):
        z[j] = min(max(rows[np.uint32(places[j])] - reference, -_LARGEST), _LARGEST)
        gain[j] = known[j]
    mean = _sum(z, n) / n
    stretch = smoothing.unit / smoothing.sigma
    for j in range(n):
        z[j] -= mean
        x[j] = min(max(z[j] * stretch, -_LARGEST), _LARGEST)
        total[j] = 0.0
    if smoothing.mu > 0.0:
        shift = smoothing.unit * smoothing.mu
        relevance = layout.relevance[begin:end]
        for j in range(n):
            x[j] -= shift * relevance[j]
    for j in range(n, whole_lanes(n)):
        x[j] = gain[j] = total[j] = 0.0
    return math.isfinite(_sum(rows, n))


@inner
def _move(documents, unit, begin, end):
    """Where the noise moves documents begin..end."""
    x, y, noise = documents[X, begin:end], documents[Y, begin:end], documents[NOISE, begin:end]
    for j in range(len(y)):
        y[j] = x[j] + unit * noise[j]


@spliced
def _draw(s, problem, query, n, sample):
    """Normal noise, and where it moves the query's documents."""
    blocks, key = noise_room(n) // 4, problem.layout.query_keys[query]
    fill_normals(s.documents[NOISE], n, problem.smoothing.key, key, sample, np.int64(0), blocks)
    _move(s.documents, problem.smoothing.unit, np.int64(0), n)


@spliced
def _sort(s, values, n, size, floor, worst):
    """Sort the best `size` documents and fetch their gains; returns how many there are."""
    places, gain, top_gain = s.sorting.places[SORTED], s.documents[GAIN], s.top[GAIN]
    count = select(values, n, size, floor, worst, s.sorting)
    for i in range(count):
        top_gain[i] = gain[places[i]]
    return count


@spliced
def _set_apart(s, rule, served):
    """The first `served` documents of the sorted list, in its order."""
    places, x, total = s.sorting.places[SORTED], s.documents[X], s.documents[TOTAL]
    top_x, top_total, top_gain, survival = s.top[X], s.top[TOTAL], s.top[GAIN], s.top[SURVIVAL]
    for i in range(served):
        top_x[i] = x[places[i]]
        top_total[i] = total[places[i]]
    if rule.kind == CASCADE:
        for i in range(served):
            survival[i] = 1.0 / (1.0 - top_gain[i]) if top_gain[i] < 1.0 else 1.0
    for i in range(served, whole_lanes(served)):
        top_x[i] = 0.0


@spliced
def _rank(s, rule, n, size):
    """Sort the best `size`, fill the jumps, set the first `top` apart; returns (top, last, reach) of `fill_jumps`."""
    floor = second_largest_stop(s.documents[Y], s.documents[GAIN], n) if rule.kind == CASCADE else -np.inf
    count = _sort(s, s.documents[Y], n, size, floor, False)
    top, last, reach = min(rule.cut, count), min(rule.cut + 1, count) - 1, -1
    if rule.kind != PLAIN:
        top, last, reach = fill_jumps(rule, s.top[GAIN], count, s.top[BELOW], s.top[ABOVE])
    _set_apart(s, rule, top)
    return top, last, reach


@spliced
def _rank_fast(s, rule, n):
    """As `_rank`, and the number of boxes: if there are any, the whole query is sorted and set apart."""
    size = min(rule.cut + 1, n)
    # Hardly anybody gets far down a cascade: try its beginning first, which tells if that was enough.
    tried = min(2 * FAST_FROM, size) if rule.kind == CASCADE else size
    top, last, reach = _rank(s, rule, n, tried)
    if tried < size and max(last, reach) >= tried - 1:
        top, last, reach = _rank(s, rule, n, size)
    if last < FAST_FROM:
        return top, last, reach, 0
    if rule.cut + 1 < n or rule.kind == CASCADE:
        _sort(s, s.documents[Y], n, n, -np.inf, False)
    _set_apart(s, rule, n)
    return top, last, reach, make_boxes(s.boxes, s.top, s.sorting.values[SORTED], last + 1, True)


@spliced
def _box_top(s, n, top):
    """Boxes of the first `top`, if others pass them and there are enough for boxes to pay; returns how many boxes."""
    if top == n or top < FEW_PASSED:
        return 0
    return make_boxes(s.boxes, s.top, s.sorting.values[SORTED], top, False)


@spliced
def _add_rest(s, relevant, top, passed, begin, end):
    """Documents begin..end pass the first `top`, by boxes if any were made."""
    if passed:
        pass_boxes(s.documents, s.top, s.sorting.values[SORTED], s.boxes, passed, begin, end)
    else:
        _pass_each(None, s, relevant, top, begin, end)


@spliced
def _pass_each(law, s, relevant, top, begin, end):
    """Documents begin..end pass the first `top`; documents without gain have nothing to win from each other."""
    total, x, gain = s.documents[TOTAL], s.documents[X], s.documents[GAIN]
    y, top_gain, below = s.sorting.values[SORTED], s.top[GAIN], s.top[BELOW]
    for m in range(top):
        if below[m] != 0.0:
            stop = end if top_gain[m] != 0.0 else min(end, whole_lanes(relevant))
            if begin < stop:
                add_passing(law, total[begin:stop], x[begin:stop], gain[begin:stop], y[m], top_gain[m], below[m])


@spliced
def _settle(law, s, top, reach, served):
    """The document that ends a cascade passes those after it; then the sorted documents' sums go back to their places."""
    total, places, top_total = s.documents[TOTAL], s.sorting.places[SORTED], s.top[TOTAL]
    x, y, gain, above = s.top[X], s.sorting.values[SORTED], s.top[GAIN], s.top[ABOVE]
    for m in range(top, reach + 1):
        top_total[top - 1] += above[m] * (gain[top - 1] - gain[m]) * density(law, y[m] - x[top - 1])
    for i in range(served):
        total[places[i]] = top_total[i]


@inner
def _project(total, z, n, nu, strength):
    """Scale-free acceleration: centre the gradient and take away its part along the (centred) scores."""
    mean = _sum(total, n) / n
    largest = 0.0
    for j in range(n):
        total[j] -= mean
        largest = max(largest, abs(z[j]))
    if largest < _SAME:
        return
    norm = math.sqrt(_dot(z, z, n)) + nu
    along = strength * _dot(total, z, n) / norm / norm
    for j in range(n):
        total[j] -= along * z[j]


@spliced
def _finish(s, out, problem, query):
    """Project, scale, and put the gradient where the documents stand in the data."""
    layout, smoothing, total = problem.layout, problem.smoothing, s.documents[TOTAL]
    begin, end = layout.ptr[query], layout.ptr[query + 1]
    if smoothing.strength > 0.0:
        _project(total, s.documents[Z], end - begin, smoothing.nu, smoothing.strength)
    factor = -problem.rule.multipliers[query] * smoothing.peak / (smoothing.sigma * smoothing.samples)
    rows, places = out[begin:end], layout.order[begin:end]
    for j in range(end - begin):
        rows[np.uint32(places[j])] = factor * total[j]


# ---------------------------------------------------------- estimates from one sample, added to the documents' totals


@spliced
def _by_ccs(s, problem, query, n, sample):
    """CCS with normal noise."""
    rule = problem.rule
    _draw(s, problem, query, n, sample)
    top, last, reach = _rank(s, rule, n, min(rule.cut + 1, n))
    if top < n:
        _add_rest(s, rule.relevant[query], top, _box_top(s, n, top), 0, whole_lanes(n))
    cross_all(None, s.top, s.sorting.values[SORTED], whole_lanes(top), last + 1)
    _settle(None, s, top, reach, top)


@spliced
def _by_fast_ccs(s, problem, query, n, sample):
    """The same where more than FAST_FROM documents may jump."""
    rule = problem.rule
    _draw(s, problem, query, n, sample)
    top, last, reach, boxes = _rank_fast(s, rule, n)
    if boxes:
        add_boxes(s.top, s.sorting.values[SORTED], s.boxes, boxes, n, 0, n)
    else:
        if top < n:
            _add_rest(s, rule.relevant[query], top, _box_top(s, n, top), 0, whole_lanes(n))
        cross_all(None, s.top, s.sorting.values[SORTED], whole_lanes(top), last + 1)
    _settle(None, s, top, reach, n if boxes else top)


@spliced
def _by_logistic_ccs(s, problem, query, n, sample):
    """CCS with logistic noise."""
    rule, smoothing = problem.rule, problem.smoothing
    fill_logistics(s.documents[NOISE], n, smoothing.key, problem.layout.query_keys[query], sample)
    _move(s.documents, smoothing.unit, np.int64(0), n)
    top, last, reach = _rank(s, rule, n, min(rule.cut + 1, n))
    if top < n:
        _pass_each(LOGISTIC_LAW, s, rule.relevant[query], top, 0, whole_lanes(n))
    cross_all(LOGISTIC_LAW, s.top, s.sorting.values[SORTED], whole_lanes(top), last + 1)
    _settle(LOGISTIC_LAW, s, top, reach, top)


@spliced
def _by_reinforce(s, problem, query, n, sample):
    """REINFORCE: (M(y) - M(z)) noise; M(z) takes the worst order of ties."""
    rule, work = problem.rule, s.boxes.work
    size = min(rule.cut + 1, n)
    if sample == 0:
        work[0] = list_value(rule, s.top[GAIN], _sort(s, s.documents[Z], n, size, -np.inf, True))
    _draw(s, problem, query, n, sample)
    change = list_value(rule, s.top[GAIN], _sort(s, s.documents[Y], n, size, -np.inf, False)) - work[0]
    total, noise = s.documents[TOTAL], s.documents[NOISE]
    for j in range(n):
        total[j] += change * noise[j]


# ---------------------------------------------------------- many queries


@spliced
def _each_query(estimate, s, out, scores, problem, queries):
    """The gradient of the loss for some queries, into their rows of `out`; returns whether all their scores are finite."""
    finite = True
    _begin(s, problem.rule)
    for a in range(len(queries)):
        query = queries[a]
        n = problem.layout.ptr[query + 1] - problem.layout.ptr[query]
        if not _load(s, scores, problem, query):
            finite = False
        for sample in range(problem.smoothing.samples):
            estimate(s, problem, query, n, sample)
        _finish(s, out, problem, query)
    return finite


@kernel
def ccs(s, out, scores, problem, queries):
    """By CCS with normal noise."""
    return _each_query(_by_ccs, s, out, scores, problem, queries)


@kernel
def fast_ccs(s, out, scores, problem, queries):
    """The same, for queries in which more than FAST_FROM documents may jump."""
    return _each_query(_by_fast_ccs, s, out, scores, problem, queries)


@kernel
def logistic_ccs(s, out, scores, problem, queries):
    """By CCS with logistic noise."""
    return _each_query(_by_logistic_ccs, s, out, scores, problem, queries)


@kernel
def reinforce(s, out, scores, problem, queries):
    """By REINFORCE."""
    return _each_query(_by_reinforce, s, out, scores, problem, queries)


# ---------------------------------------------------------- one huge query, its documents shared among threads


@kernel
def load_one(s, scores, problem, query):
    """Step 1; returns whether all scores are finite."""
    _begin(s, problem.rule)
    return _load(s, scores, problem, query)


@kernel
def draw_one(s, problem, query, sample, begin, end):
    """Step 2, in ranges of noise blocks."""
    n, smoothing = problem.layout.ptr[query + 1] - problem.layout.ptr[query], problem.smoothing
    fill_normals(s.documents[NOISE], n, smoothing.key, problem.layout.query_keys[query], sample, begin, end)
    stride = noise_room(n) // 4  # each block has four deviates, so far apart
    for first in range(0, 4 * stride, stride):
        _move(s.documents, smoothing.unit, first + begin, first + end)


@kernel
def rank_one(s, problem, query):
    """Step 3: all that the threads of step 4 share is made here."""
    rule = problem.rule
    n = problem.layout.ptr[query + 1] - problem.layout.ptr[query]
    boxes = passed = 0
    if min(rule.cut + 1, n) > FAST_FROM:
        top, last, reach, boxes = _rank_fast(s, rule, n)
    else:
        top, last, reach = _rank(s, rule, n, min(rule.cut + 1, n))
    if boxes == 0:
        passed = _box_top(s, n, top)
    return Ranked(top, last, reach, boxes, passed)


@kernel
def add_one(s, problem, query, ranked, begin, end):
    """Step 4, in ranges of documents or, with boxes, of positions: multiples of LANES. Each thread has its own work."""
    n = problem.layout.ptr[query + 1] - problem.layout.ptr[query]
    if ranked.boxes:
        add_boxes(s.top, s.sorting.values[SORTED], s.boxes, ranked.boxes, n, begin, min(end, n))
    elif ranked.top < n:
        _add_rest(s, problem.rule.relevant[query], ranked.top, ranked.passed, begin, min(end, whole_lanes(n)))


@kernel
def settle_one(s, problem, query, ranked):
    """Step 5, the end of a sample."""
    n = problem.layout.ptr[query + 1] - problem.layout.ptr[query]
    if ranked.boxes == 0:
        cross_all(None, s.top, s.sorting.values[SORTED], whole_lanes(ranked.top), ranked.last + 1)
    _settle(None, s, ranked.top, ranked.reach, n if ranked.boxes else ranked.top)


@kernel
def finish_one(s, out, problem, query):
    """Step 6, after the last sample."""
    _finish(s, out, problem, query)
