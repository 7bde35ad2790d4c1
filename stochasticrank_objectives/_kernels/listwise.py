"""Losses of a whole list at once: the derivatives of XE-NDCG."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .._constants import Array
from .gauss import LANES, LOG2_E, exp2_negative
from .lambdas import LARGEST
from .noise import fill_uniforms
from .noise import room as noise_room
from .policy import aligned, inner, kernel, plain

_FAR = 500.0  # further below the best, in powers of two, no score matters


class ListScratch(NamedTuple):
    """Arrays for one query after another, by document in the order of falling gain: noise, then the share (softmax) of each,
    what the others have together, the derivative so far, and terms of the next order."""

    noise: Array
    share: Array
    rest: Array
    slope: Array
    term: Array


def make_list_scratch(n: int) -> ListScratch:
    """Room for queries of up to n documents."""
    return ListScratch(*aligned(plain(noise_room)(n), *[n + LANES] * 4))


@inner
def _softmax(share, rest, scores, rows, n):
    """Fill share and rest = 1 - share; returns the place of the best, whose rest is a sum, as a difference would be 0."""
    best = 0
    for j in range(n):
        share[j] = LOG2_E * min(max(scores[rows[j]], -LARGEST), LARGEST)
        best = j if share[j] > share[best] else best
    highest, others = share[best], 0.0
    for j in range(n):
        share[j] = exp2_negative(max(share[j] - highest, -_FAR))
    share[best] = 0.0
    for j in range(n):
        others += share[j]
    share[best] = 1.0
    for j in range(n):
        share[j] /= 1.0 + others
        rest[j] = 1.0 - share[j]
    rest[best] = others / (1.0 + others)
    return best


@inner
def _add_order(slope, term, share, rest, n, best):
    """The next order: share_j times the sum, over the others, of the last order's terms (in `term`) over their rest."""
    total = 0.0
    for j in range(n):
        term[j] /= rest[j]
        total += term[j] if j != best else 0.0
    largest = term[best]  # apart: its size would swallow the others
    for j in range(n):
        term[j] = share[j] * (total if j == best else total - term[j] + largest)
        slope[j] += term[j]


@kernel
def xendcg_range(s, gradient, hessian, scores, problem, queries):
    """Both derivatives of XE-NDCG for some queries, put into their rows. `problem` is a tuple: layout, rule and the key of
    the noise. The rule's multipliers are the weights of queries."""
    layout, rule, key = problem
    for a in range(len(queries)):
        query = queries[a]
        begin, end = layout.ptr[query], layout.ptr[query + 1]
        n = end - begin
        rows, gain = layout.order[begin:end], rule.gains[begin:end]
        best = _softmax(s.share, s.rest, scores[begin:end], rows, n)
        fill_uniforms(s.noise, n, key, layout.query_keys[query], np.int64(0))
        total = 0.0
        for j in range(n):
            total += gain[j] + 1.0 - s.noise[j]
        for j in range(n):
            s.slope[j] = s.term[j] = s.share[j] - (gain[j] + 1.0 - s.noise[j]) / total
        _add_order(s.slope, s.term, s.share, s.rest, n, best)
        _add_order(s.slope, s.term, s.share, s.rest, n, best)
        weight = rule.multipliers[query]
        for j in range(n):
            row = begin + rows[j]
            gradient[row] = weight * s.slope[j]
            hessian[row] = weight * s.share[j] * s.rest[j]
