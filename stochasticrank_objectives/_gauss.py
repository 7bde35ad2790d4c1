"""Sums of Gaussian densities, the cost of every gradient.

Coordinates are in units in which the density is a power of two: with kappa = sqrt(log2(e)/2),
exp(-(y - x)^2/2) = 2^-(kappa*y - kappa*x)^2. The constant factor of the density is left to the caller.
Arrays are padded to a multiple of `LANES`, so that vectorised loops have no scalar remainder.

Long lists are summed by a fast Gauss transform. The sorted sources are cut into boxes one standard deviation wide. With
s and t the distances of target and source from the centre of a box, 2^-(s - t)^2 = 2^-s^2 2^-t^2 exp(2 ln2 s t), and the
exponential is a short power series: a box is to every target a polynomial in s. Sources in the target's own box, where above
and below must be told apart, are summed the same way while the box is passed through, once in each direction.
"""

from __future__ import annotations

import math

import numpy as np

from ._numba import inline, inner

KAPPA = math.sqrt(0.5 * math.log2(math.e))
LANES = 16
TERMS = 16  # of the power series; what is left out is below 1e-12 of the largest density
SPARSE = 8  # a box with fewer sources is summed directly

_ROUND = 6755399441055744.0  # 1.5 * 2^52: adding it rounds to an integer, held in the low bits
_EXPONENT = np.int64(52)
_WIDTH = KAPPA
_REACH = 7.5 * KAPPA  # densities beyond are below 1e-12 of the largest
_NOISE = 6.8 * KAPPA  # no deviate is larger: the radius comes from 32 bits
_TWO_LN2 = 2.0 * math.log(2.0)


@inline
def padded(n):
    """The smallest multiple of `LANES` that is at least n."""
    return (n + LANES - 1) // LANES * LANES


@inline
def exp2_negative(t):
    """2^t for t <= 0 to a relative error of 5e-11, never below 2^-1020; written so that LLVM can vectorise it."""
    t = max(t, -1020.0)
    shifted = t + _ROUND
    r = t - (shifted - _ROUND)  # t = integer + r, r in [-1/2, 1/2]
    p = 1.5201920000632751e-05  # minimax polynomial of 2^r, relative error 4.1e-11
    p = p * r + 0.00015469291271924377
    p = p * r + 0.0013333922570145532
    p = p * r + 0.009618027253315483
    p = p * r + 0.05550410353440467
    p = p * r + 0.24022651198159078
    p = p * r + 0.693147180728448
    p = p * r + 0.9999999999616825
    exponent = np.float64(shifted).view(np.int64) << _EXPONENT
    return np.int64(np.float64(p).view(np.int64) + exponent).view(np.float64)


@inner
def add_passing(total, x, gain, begin, end, y_u, gain_u, q):
    """Documents begin..end, all ranked below u, each pass u: D = q (g_j - g_u)."""
    # Slices: an index that starts at 0 cannot be negative, which numba would have to allow for, in a way that is slow.
    total, x, gain = total[begin:end], x[begin:end], gain[begin:end]
    for j in range(len(total)):
        t = y_u - x[j]
        total[j] += q * (gain[j] - gain_u) * exp2_negative(-t * t)


@inline
def cross(total, x, gain, survival, n, m, y_u, gain_u, q_below, q_above):
    """The first n sorted documents each cross u, the document at position m: from below if they stand after it, else from
    above, where the product before u is theirs divided by their own continuation (`survival` is its inverse)."""
    for i in range(n):
        t = y_u - x[i]
        q = q_below if i > m else q_above * survival[i]
        total[i] += q * (gain[i] - gain_u) * exp2_negative(-t * t)


@inner
def add_crossing(total, x, gain, survival, begin, end, m, y_u, gain_u, q_below, q_above):
    """`cross` for sorted documents begin..end."""
    total, x, gain, survival = total[begin:end], x[begin:end], gain[begin:end], survival[begin:end]
    cross(total, x, gain, survival, end - begin, m - begin, y_u, gain_u, q_below, q_above)


@inner
def make_boxes(y, gain, q_below, q_above, sources, starts, series):
    """Cut the sorted sources into boxes; returns how many. Box b holds sources starts[b]..starts[b+1]-1.

    series[b] has four rows: the power series of the box with coefficients q_below, q_below*g, q_above, q_above*g.
    Boxes with fewer than SPARSE sources have none, and a run of such boxes next to each other shares one entry of `starts`.
    """
    boxes = 0
    begin = 0
    while begin < sources:
        end = begin + 1
        while end < sources and y[begin] - y[end] < _WIDTH:
            end += 1
        if end - begin >= SPARSE:
            row = series[boxes]
            row[:] = 0.0
            centre = y[begin] - 0.5 * _WIDTH
            for m in range(begin, end):
                add_term(row[0], row[1], y[m] - centre, q_below[m], gain[m])
                add_term(row[2], row[3], y[m] - centre, q_above[m], gain[m])
        else:
            # So that the number of boxes stays a small part of the sources, sparse neighbours are joined.
            while end < sources and end - begin < SPARSE:
                end += 1
            series[boxes, 0, 0] = np.nan
        starts[boxes] = begin
        boxes += 1
        begin = end
    starts[boxes] = sources
    return boxes


@inline
def add_term(plain, gained, t, q, gain):
    """Add one source, at t from the centre, to the two power series of a box."""
    term = q * exp2_negative(-t * t)
    for k in range(TERMS):
        plain[k] += term
        gained[k] += gain * term
        term *= _TWO_LN2 * t / (k + 1)


@inline
def value_at(plain, gained, s, gain):
    """What a box adds to a target at s from its centre: sum of q (gain - g) 2^-(s - t)^2 over its sources."""
    p, g = plain[TERMS - 1], gained[TERMS - 1]
    for k in range(TERMS - 2, -1, -1):
        p = p * s + plain[k]
        g = g * s + gained[k]
    return (gain * p - g) * exp2_negative(-s * s)


@inner
def _first_at_most(y, n, bound):
    """How many of the descending y[:n] are above `bound`."""
    low, high = 0, n
    while low < high:
        middle = (low + high) // 2
        if y[middle] > bound:
            low = middle + 1
        else:
            high = middle
    return low


@inner
def _add_box(total, x, gain, survival, begin, end, centre, plain, gained, above):
    """Sorted documents begin..end, all above a box or all below it, cross its sources."""
    if begin >= end:
        return
    total, x, gain, survival = total[begin:end], x[begin:end], gain[begin:end], survival[begin:end]
    if above:
        for i in range(len(total)):
            total[i] += survival[i] * value_at(plain, gained, x[i] - centre, gain[i])
    else:
        for i in range(len(total)):
            total[i] += value_at(plain, gained, x[i] - centre, gain[i])


@inner
def add_boxes(total, x, y, gain, survival, n, q_below, q_above, boxes, starts, series, begin, end):
    """Sorted documents begin..end each cross all sources, by the boxes of `make_boxes`."""
    forth, back = np.zeros((2, TERMS)), np.zeros((2, TERMS))
    for b in range(boxes):
        first, last = starts[b], starts[b + 1]
        # Only documents whose own place, less its noise, is within reach of the box are touched.
        low = max(begin, _first_at_most(y, n, y[first] + _REACH + _NOISE))
        high = min(end, _first_at_most(y, n, y[last - 1] - _REACH - _NOISE))
        if low >= high:
            continue
        if np.isnan(series[b, 0, 0]):
            for m in range(first, last):
                add_crossing(total, x, gain, survival, low, high, m, y[m], gain[m], q_below[m], q_above[m])
            continue
        centre = y[first] - 0.5 * _WIDTH
        _add_box(total, x, gain, survival, low, min(high, first), centre, series[b, 2], series[b, 3], True)
        _add_box(total, x, gain, survival, max(low, last), high, centre, series[b, 0], series[b, 1], False)
        if max(low, first) < min(high, last):
            forth[:] = 0.0
            for i in range(first, min(high, last)):
                if i >= low:
                    total[i] += value_at(forth[0], forth[1], x[i] - centre, gain[i])
                add_term(forth[0], forth[1], y[i] - centre, q_below[i], gain[i])
            back[:] = 0.0
            for i in range(last - 1, max(low, first) - 1, -1):
                if i < high:
                    total[i] += survival[i] * value_at(back[0], back[1], x[i] - centre, gain[i])
                add_term(back[0], back[1], y[i] - centre, q_above[i], gain[i])
