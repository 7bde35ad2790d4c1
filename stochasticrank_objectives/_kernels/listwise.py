"""Losses of a whole list at once: the derivatives of XE-NDCG."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .._constants import Array
from .gauss import LANES, exp2_negative
from .lambdas import _LARGEST, _LOG2_E
from .noise import _LOW, _32, philox
from .noise import padded as noise_padded
from .policy import aligned, inner, kernel

_FAR = 500.0  # further below the best, in powers of two, no score matters


class Scratch(NamedTuple):
    """Arrays for one query after another, by document in the order of falling gain: noise, then the share (softmax) of each,
    what the others have together, the derivative so far, and terms of the next order."""

    noise: Array
    share: Array
    rest: Array
    slope: Array
    term: Array


def make_scratch(n: int) -> Scratch:
    """Room for queries of up to n documents."""
    return Scratch(*aligned(noise_padded.py_func(n), *[n + LANES] * 4))


@inner
def fill_uniforms(out, n, key, query, sample):
    """The n uniform deviates of one query and sample: out[:noise_padded(n)], laid out as by `fill_normals`."""
    stride = noise_padded(n) // 4
    k0, k1 = np.uint64(key) & _LOW, np.uint64(key) >> _32
    q0, q1 = np.uint64(query) & _LOW, np.uint64(query) >> _32
    s = np.uint64(sample) & _LOW
    for block in range(stride):
        a, b, c, d = philox(np.uint64(block), s, q0, q1, k0, k1)
        out[block] = (np.float64(np.int64(a)) + 0.5) * 2.0**-32
        out[stride + block] = (np.float64(np.int64(b)) + 0.5) * 2.0**-32
        out[2 * stride + block] = (np.float64(np.int64(c)) + 0.5) * 2.0**-32
        out[3 * stride + block] = (np.float64(np.int64(d)) + 0.5) * 2.0**-32


@inner
def _softmax(share, rest, scores, rows, n):
    """Fill share and rest = 1 - share; returns the place of the best, whose rest is a sum, as a difference would be 0."""
    best = 0
    for j in range(n):
        share[j] = _LOG2_E * min(max(scores[rows[j]], -_LARGEST), _LARGEST)
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
def xendcg_range(s, gradient, hessian, scores, ptr, order, gains, query_weights, keys, active, begin, end, key):
    """Both derivatives of XE-NDCG for the queries active[begin:end], put into their rows."""
    for at in range(begin, end):
        query = active[at]
        start, n = ptr[query], ptr[query + 1] - ptr[query]
        rows, gain = order[start : start + n], gains[start : start + n]
        best = _softmax(s.share, s.rest, scores[start : start + n], rows, n)
        fill_uniforms(s.noise, n, key, keys[query], 0)
        total = 0.0
        for j in range(n):
            total += gain[j] + 1.0 - s.noise[j]
        for j in range(n):
            s.slope[j] = s.term[j] = s.share[j] - (gain[j] + 1.0 - s.noise[j]) / total
        _add_order(s.slope, s.term, s.share, s.rest, n, best)
        _add_order(s.slope, s.term, s.share, s.rest, n, best)
        weight = query_weights[query]
        for j in range(n):
            row = start + rows[j]
            gradient[row] = weight * s.slope[j]
            hessian[row] = weight * s.share[j] * s.rest[j]
