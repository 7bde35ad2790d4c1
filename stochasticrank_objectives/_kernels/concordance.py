"""Kendall's tau: values in n log n, and gradients, in which a document that passes another changes tau by a constant.

When j passes u, the metric changes by 2 if j has the larger label, by -2 if u has. So the CCS estimate for j is twice the
sum of the densities at documents of smaller labels, less that at documents of larger ones. Documents are held by falling
label, so the former stand behind its own run of equal labels, the latter in front. Long lists are cut between runs, in
halves of halves: each half is for the other a set of sources, summed by a fast Gauss transform. That takes n log n.
"""

from __future__ import annotations

import numpy as np

from .._constants import BEST, MEAN
from . import gradients, values
from .gauss import BELOW, GAIN, LOGISTIC_LAW, TOTAL, X, density, make_boxes, pass_boxes
from .gradients import NOISE, Scratch, Y, Z, _draw, _each_query, _move
from .noise import fill_logistics
from .policy import inner, kernel, spliced, wide
from .selection import SORTED, select, sort_descending
from .values import ValueScratch

_BLOCK = 512  # documents among which pairs are summed directly
_FEW = 32  # sources or targets, up to which it does not pay to make boxes


def make_scratch(n: int) -> Scratch:
    """Room for queries of up to n documents."""
    return gradients.make_scratch(n, n, True)


def make_value_scratch(n: int) -> ValueScratch:
    """Room for queries of up to n documents."""
    return values.make_value_scratch(n)


# ---------------------------------------------------------- values


@inner
def _discordant(gain, spare, n):
    """How many pairs of a ranked list have the smaller gain first: what a merge sort by falling gain has to mend.

    The gains are sorted in one of the two arrays.
    """
    count = np.int64(0)
    source, target = gain, spare
    width = 1
    while width < n:
        for begin in range(0, n, 2 * width):
            middle, end = min(begin + width, n), min(begin + 2 * width, n)
            left, right = begin, middle
            for p in range(begin, end):
                if right >= end or (left < middle and source[left] >= source[right]):
                    target[p] = source[left]
                    left += 1
                else:
                    target[p] = source[right]
                    right += 1
                    count += middle - left
        source, target = target, source
        width *= 2
    return count


@inner
def _value(gains, places, gain, spare, n):
    """Concordant less discordant pairs of the ranked list in which gains[places[i]] stands at position i."""
    different = np.int64(0)
    begin = 0
    for j in range(1, n + 1):
        if j == n or gains[j] != gains[begin]:
            different += (j - begin) * begin
            begin = j
    for i in range(n):
        gain[i] = gains[places[i]]
    return np.float64(different - 2 * _discordant(gain, spare, n))


@kernel
def value_range(s, out, scores, layout, rule, ties, queries):
    """The metric of some queries, ties ranked as told; in the mean of all orders a tied pair counts nothing."""
    z, places = s.z, s.sorting.places[SORTED]
    for a in range(len(queries)):
        query = queries[a]
        begin, n = layout.ptr[query], layout.ptr[query + 1] - layout.ptr[query]
        for j in range(n):
            z[j] = scores[begin + layout.order[begin + j]]
        gains = rule.gains[begin : begin + n]
        select(z, n, n, -np.inf, ties != BEST, s.sorting)
        value = _value(gains, places, s.gain, s.chance, n)
        if ties == MEAN:
            select(z, n, n, -np.inf, False, s.sorting)
            value = 0.5 * (value + _value(gains, places, s.gain, s.chance, n))
        out[query] = rule.multipliers[query] * value


# ---------------------------------------------------------- gradients


@inner
def _pass_each(law, total, x, sources, times):
    """Targets pass sources one by one, `times` the density each."""
    wide()
    whole = len(sources) // 4 * 4
    for u in range(0, whole, 4):
        y0, y1, y2, y3 = sources[u], sources[u + 1], sources[u + 2], sources[u + 3]
        for j in range(len(total)):
            one = density(law, y0 - x[j]) + density(law, y1 - x[j])
            two = density(law, y2 - x[j]) + density(law, y3 - x[j])
            total[j] += times * (one + two)
    for u in range(whole, len(sources)):
        y0 = sources[u]
        for j in range(len(total)):
            total[j] += times * density(law, y0 - x[j])


@inner
def _pass_segment(law, documents, gains, begin, end):
    """The documents begin..end, which begin and end with a run, pass each other."""
    total, x, y = documents[TOTAL], documents[X], documents[Y]
    first = begin
    while first < end:
        last = first + 1
        while last < end and gains[last] == gains[first]:
            last += 1
        _pass_each(law, total[begin:first], x[begin:first], y[first:last], 2.0)
        _pass_each(law, total[last:end], x[last:end], y[first:last], -2.0)
        first = last


@inner
def _border(gains, n, at):
    """The first document, from `at` on, at which a run of equal gains begins; or n."""
    if at <= 0 or at >= n or gains[at] != gains[at - 1]:
        return min(at, n)
    low, high, level = at, n, gains[at]
    while low < high:
        middle = (low + high) // 2
        if gains[middle] >= level:
            low = middle + 1
        else:
            high = middle
    return low


@inner
def _pass_half(s, begin, end, first, last, times):
    """Documents begin..end pass the sources first..last, none of them among these."""
    documents = s.documents
    y = documents[Y]
    if min(end - begin, last - first) <= _FEW:
        _pass_each(None, documents[TOTAL, begin:end], documents[X, begin:end], y[first:last], times)
        return
    count, best = last - first, s.sorting.values[SORTED]
    for i in range(count):
        best[i], s.sorting.places[SORTED, i] = y[first + i], i
        s.top[GAIN, i], s.top[BELOW, i] = 0.0, times
    sort_descending(s.sorting, count)
    boxes = make_boxes(s.boxes, s.top, best, count, False)
    pass_boxes(documents, s.top, best, s.boxes, boxes, begin, end)


@spliced
def _by_ccs(s, problem, query, n, sample):
    """CCS with normal noise."""
    start = problem.layout.ptr[query]
    gains, documents = problem.rule.gains[start : start + n], s.documents
    _draw(s, problem, query, n, sample)
    for j in range(n):  # a jump by boxes is `times` (gain of the target - gain of the source), which is to be 1
        documents[GAIN, j] = 1.0
    for begin in range(0, n, _BLOCK):
        _pass_segment(None, documents, gains, _border(gains, n, begin), _border(gains, n, begin + _BLOCK))
    width = _BLOCK
    while width < n:
        for begin in range(0, n, 2 * width):
            first, middle = _border(gains, n, begin), _border(gains, n, begin + width)
            last = _border(gains, n, begin + 2 * width)
            if first < middle and middle < last:
                _pass_half(s, first, middle, middle, last, 2.0)
                _pass_half(s, middle, last, first, middle, -2.0)
        width *= 2


@spliced
def _by_logistic_ccs(s, problem, query, n, sample):
    """CCS with logistic noise, for which there is no fast transform."""
    start = problem.layout.ptr[query]
    fill_logistics(s.documents[NOISE], n, problem.smoothing.key, problem.layout.query_keys[query], sample)
    _move(s.documents, problem.smoothing.unit, np.int64(0), n)
    _pass_segment(LOGISTIC_LAW, s.documents, problem.rule.gains[start : start + n], np.int64(0), n)


@spliced
def _by_reinforce(s, problem, query, n, sample):
    """REINFORCE: (M(y) - M(z)) noise; M(z) takes the worst order of ties."""
    start = problem.layout.ptr[query]
    gains, places, work = problem.rule.gains[start : start + n], s.sorting.places[SORTED], s.boxes.work
    if sample == 0:
        select(s.documents[Z], n, n, -np.inf, True, s.sorting)
        work[0] = _value(gains, places, s.top[GAIN], s.top[BELOW], n)
    _draw(s, problem, query, n, sample)
    select(s.documents[Y], n, n, -np.inf, False, s.sorting)
    change = _value(gains, places, s.top[GAIN], s.top[BELOW], n) - work[0]
    total, noise = s.documents[TOTAL], s.documents[NOISE]
    for j in range(n):
        total[j] += change * noise[j]


@kernel
def ccs(s, out, scores, problem, queries):
    """By CCS with normal noise."""
    return _each_query(_by_ccs, s, out, scores, problem, queries)


@kernel
def logistic_ccs(s, out, scores, problem, queries):
    """By CCS with logistic noise."""
    return _each_query(_by_logistic_ccs, s, out, scores, problem, queries)


@kernel
def reinforce(s, out, scores, problem, queries):
    """By REINFORCE."""
    return _each_query(_by_reinforce, s, out, scores, problem, queries)
