"""Gradients of sums of metrics: the noise is drawn and the list is sorted once, for all terms.

The steps are those of `gradients`. A sum's documents stand by falling gain for all its terms at once, because every gain
rises with the label; if terms have different columns of labels, they do not, and `relevant` then admits all documents. What
a term is multiplied by goes into its jumps, so that all terms add to the same totals.
"""

from __future__ import annotations

import numpy as np

from .._constants import CASCADE, FAST_FROM, Rule
from .gauss import ABOVE, BELOW, GAIN, LOGISTIC_LAW, SURVIVAL, TOTAL, add_boxes, cross_all, make_boxes, whole_lanes
from .gradients import NOISE, Y, Z, _add_rest, _box_top, _draw, _each_query, _move, _pass_each, _set_apart, _settle
from .noise import fill_logistics
from .policy import kernel, spliced
from .rules import fill_jumps, list_value
from .selection import SORTED, reaching, second_largest_stop, select


@spliced
def _term(rules, t):
    return Rule(
        rules.kinds[t], rules.discounts[t], rules.cuts[t], rules.gains[t], rules.relevant[t], rules.multipliers[t]
    )  # fmt: skip


@spliced
def _rank_all(s, rules, begin, n, whole_from):
    """Sort as many of the best as the deepest term needs, or all if these are more than `whole_from`; returns how many."""
    y = s.documents[Y]
    size = np.int64(1)
    for t in range(len(rules.cuts)):
        needed = min(rules.cuts[t] + 1, n)
        if needed > size and rules.kinds[t] == CASCADE:
            needed = min(needed, reaching(y, n, second_largest_stop(y, rules.gains[t][begin : begin + n], n)))
        size = max(size, needed)
    if size > whole_from:
        size = n
    return select(y, n, size, -np.inf, False, s.sorting)


@spliced
def _begin_term(s, rule, query, begin, n, count):
    """Take up the gains of a term and fill its jumps, for a sorted list of `count`; returns what `fill_jumps` does.

    A term that is the same for every order of the query has no jumps, and a multiplier of 0.
    """
    known, gain = rule.gains[begin : begin + n], s.documents[GAIN]
    places, top_gain, below, above = s.sorting.places[SORTED], s.top[GAIN], s.top[BELOW], s.top[ABOVE]
    times = rule.multipliers[query]
    top, last, reach = 0, -1, -1
    if times > 0.0:
        for j in range(n):
            gain[j] = known[j]
        for i in range(count):
            top_gain[i] = gain[places[i]]
        top, last, reach = fill_jumps(rule, top_gain, count, below, above)
        for m in range(max(top, max(last, reach) + 1)):
            below[m] *= times
            above[m] *= times
    return top, last, reach


@spliced
def _set_term_apart(s, rule, served):
    """As `_set_apart`, after a term that may have been a cascade."""
    survival = s.top[SURVIVAL]
    if rule.kind != CASCADE:
        for i in range(served):
            survival[i] = 1.0
    _set_apart(s, rule, served)


@spliced
def _by_ccs(s, problem, query, n, sample):
    """CCS with normal noise."""
    begin, y = problem.layout.ptr[query], s.sorting.values[SORTED]
    _draw(s, problem, query, n, sample)
    count = _rank_all(s, problem.rules, begin, n, FAST_FROM)
    for t in range(len(problem.rules.cuts)):
        rule = _term(problem.rules, t)
        top, last, reach = _begin_term(s, rule, query, begin, n, count)
        served = n if last >= FAST_FROM else top
        _set_term_apart(s, rule, served)
        if last >= FAST_FROM:
            add_boxes(s.top, y, s.boxes, make_boxes(s.boxes, s.top, y, last + 1, True), n, 0, n)
        else:
            if top < n:
                _add_rest(s, rule.relevant[query], top, _box_top(s, n, top), 0, whole_lanes(n))
            cross_all(None, s.top, y, whole_lanes(top), last + 1)
        _settle(None, s, top, reach, served)


@spliced
def _by_logistic_ccs(s, problem, query, n, sample):
    """CCS with logistic noise."""
    begin, y = problem.layout.ptr[query], s.sorting.values[SORTED]
    fill_logistics(s.documents[NOISE], n, problem.smoothing.key, problem.layout.query_keys[query], sample)
    _move(s.documents, problem.smoothing.unit, np.int64(0), n)
    count = _rank_all(s, problem.rules, begin, n, n)
    for t in range(len(problem.rules.cuts)):
        rule = _term(problem.rules, t)
        top, last, reach = _begin_term(s, rule, query, begin, n, count)
        _set_term_apart(s, rule, top)
        if top < n:
            _pass_each(LOGISTIC_LAW, s, rule.relevant[query], top, 0, whole_lanes(n))
        cross_all(LOGISTIC_LAW, s.top, y, whole_lanes(top), last + 1)
        _settle(LOGISTIC_LAW, s, top, reach, top)


@spliced
def _value(s, rules, query, begin, n, values, worst):
    """The sum for a list that is sorted by `values`."""
    size = np.int64(1)
    for t in range(len(rules.cuts)):
        size = max(size, min(rules.cuts[t], n))
    count = select(values, n, size, -np.inf, worst, s.sorting)
    places, top_gain = s.sorting.places[SORTED], s.top[GAIN]
    total = 0.0
    for t in range(len(rules.cuts)):
        rule = _term(rules, t)
        known = rule.gains[begin : begin + n]
        for i in range(count):
            top_gain[i] = known[places[i]]
        total += rule.multipliers[query] * list_value(rule, top_gain, count)
    return total


@spliced
def _by_reinforce(s, problem, query, n, sample):
    """REINFORCE: (M(y) - M(z)) noise; M(z) takes the worst order of ties."""
    begin, work = problem.layout.ptr[query], s.boxes.work
    if sample == 0:
        work[0] = _value(s, problem.rules, query, begin, n, s.documents[Z], True)
    _draw(s, problem, query, n, sample)
    change = _value(s, problem.rules, query, begin, n, s.documents[Y], False) - work[0]
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
