"""Sums of densities, the cost of every gradient.

Coordinates are in units in which the density is made of powers of two: with kappa = sqrt(log2(e)/2),
exp(-(y - x)^2/2) = 2^-(kappa*y - kappa*x)^2; for logistic noise the unit is log2(e). The constant factor of the density is
left to the caller. Arrays are padded to a multiple of `LANES`, so that vectorised loops have no scalar remainder.

Many sources of normal noise are summed by a fast Gauss transform. The sorted sources are cut into boxes two standard
deviations wide. With s and t the distances of target and source from the centre of a box,
2^-(s - t)^2 = 2^-s^2 2^-t^2 exp(2 ln2 s t), and the exponential is a short power series: for every target a box is a
polynomial in s. Targets that are in the box themselves, for which sources above and below must be told apart, use the series
of the sources before them, and of those after them.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._constants import Array
from .policy import inline, inner, wide

KAPPA = math.sqrt(0.5 * math.log2(math.e))
LOG2_E = math.log2(math.e)
X, GAIN, TOTAL = range(3)  # rows of a table of documents: where they are without noise, gain, the gradient so far
SURVIVAL, BELOW, ABOVE = range(3, 6)
"""Further rows for the best documents, by position: the inverse of their continuation, and the coefficients of jumps past
them, from below and from above. Where they are with noise, y, is an array by itself: the sorted values."""
TOP_ROWS = 6

LOGISTIC_LAW = 1  # the law of the noise; that of normal noise is None
LANES = 16
TERMS = 24  # of the power series, three times eight; what is left out is below 1e-12 of the largest density
SPARSE = 4  # a box with fewer sources is summed directly
_CHUNK = 256  # documents that are taken through the steps of a box together
WORK = 2 * TERMS + LANES + 2 * _CHUNK

EXP2 = (  # minimax polynomial of 2^r for r in [-1/2, 1/2], relative error 4.1e-11, from the highest power
    1.5201920000632751e-05, 0.00015469291271924377, 0.0013333922570145532, 0.009618027253315483,
    0.05550410353440467, 0.24022651198159078, 0.693147180728448, 0.9999999999616825,
)  # fmt: skip
ROUND = 6755399441055744.0  # 1.5 * 2^52: adding it rounds to an integer, held in the low bits
_EXPONENT = np.int64(52)
_WIDTH = 2.0 * KAPPA
_REACH = 7.5 * KAPPA  # densities beyond are below 1e-12 of the largest
_NOISE = 6.8 * KAPPA  # no deviate is larger: the radius comes from 32 bits
_FAR = 16.0 * KAPPA  # from the centre of a box; the power series would overflow much further away
_SEARCHED = 1000  # documents from which on it pays to look for those near a box
_BIT = np.array([float(k >> bit & 1) for bit in range(3) for k in range(TERMS)])
_NOT = 1.0 - _BIT
_OVER_FACTORIAL = [(2.0 * math.log(2.0)) ** k / math.factorial(k) for k in range(TERMS)]
_EIGHTHS = np.array([_OVER_FACTORIAL[k] if k // 8 == part else 0.0 for part in range(3) for k in range(TERMS)])


class Boxes(NamedTuple):
    """Box b holds sources starts[b]..starts[b+1]-1 and has the power series series[b]; `work` is room for WORK numbers."""

    starts: NDArray[np.int64]
    series: Array
    work: Array


@inline
def whole_lanes(n):
    """The smallest multiple of `LANES` that is at least n."""
    return (n + LANES - 1) // LANES * LANES


@inline
def exp2_negative(t):
    """2^t for t <= 0 to a relative error of 5e-11, never below 2^-1020; written so that LLVM can vectorise it."""
    t = max(t, -1020.0)
    shifted = t + ROUND
    r = t - (shifted - ROUND)  # t = integer + r, r in [-1/2, 1/2]
    p = EXP2[0]
    p = p * r + EXP2[1]
    p = p * r + EXP2[2]
    p = p * r + EXP2[3]
    p = p * r + EXP2[4]
    p = p * r + EXP2[5]
    p = p * r + EXP2[6]
    p = p * r + EXP2[7]
    exponent = np.float64(shifted).view(np.int64) << _EXPONENT
    return np.int64(np.float64(p).view(np.int64) + exponent).view(np.float64)


@inline
def normal(t):
    """The normal density at t/KAPPA, without its constant factor."""
    return exp2_negative(-t * t)


@inline
def logistic(t):
    """The logistic density at t/LOG2_E: e^-|t|/(1 + e^-|t|)^2."""
    e = exp2_negative(-abs(t))
    return e / ((1.0 + e) * (1.0 + e))


@inline
def density(law, t):
    """Normal if `law` is None, else logistic. None has a type of its own, so that numba compiles a version for each law."""
    if law is None:
        return normal(t)
    return logistic(t)


# Documents come as slices: an index that starts at 0 cannot be negative, which numba would have to allow for, slowly.
@inner
def add_passing(law, total, x, gain, y_u, gain_u, q):
    """Documents, all ranked below u, each pass u: D = q (g_j - g_u)."""
    wide()
    for j in range(len(total)):
        total[j] += q * (gain[j] - gain_u) * density(law, y_u - x[j])


@inline
def _source(top, y, m):
    """Where a source is, its gain and its coefficients."""
    return y[m], top[GAIN, m], top[BELOW, m], top[ABOVE, m]


@inline
def _source_or_none(top, y, m, sources):
    """Beyond the last source, one without effect."""
    if m < sources:
        return _source(top, y, m)
    return 0.0, 0.0, 0.0, 0.0


@inline
def _cross(law, total, x, gain, survival, m, source):
    """LANES sorted documents each cross u, a source at position m from the first of them: from below if they stand after it,
    else from above, where the product before u is theirs divided by their own continuation (`survival` is its inverse)."""
    wide()
    y_u, gain_u, below, above = source
    for i in range(LANES):
        q = below if i > m else above * survival[i]
        total[i] += q * (gain[i] - gain_u) * density(law, y_u - x[i])


@inner
def cross_all(law, top, y, n, sources):
    """The first n sorted documents (n padded) cross the first `sources`.

    Whether a document stands above or below a source must be asked only in the source's own block of LANES. The documents of
    other blocks cross four sources at a time.
    """
    wide()
    total, x, gain, survival = top[TOTAL], top[X], top[GAIN], top[SURVIVAL]
    if n <= LANES:
        for m in range(sources):
            source = _source(top, y, m)
            if source[2] != 0.0 or source[3] != 0.0:
                _cross(law, total, x, gain, survival, m, source)
        return
    for m in range(0, sources, 4):
        begin = m // LANES * LANES
        end = begin + LANES
        y0, g0, b0, a0 = _source_or_none(top, y, m, sources)
        y1, g1, b1, a1 = _source_or_none(top, y, m + 1, sources)
        y2, g2, b2, a2 = _source_or_none(top, y, m + 2, sources)
        y3, g3, b3, a3 = _source_or_none(top, y, m + 3, sources)
        if begin > 0:
            far_total, far_x, far_gain, far_survival = total[:begin], x[:begin], gain[:begin], survival[:begin]
            for i in range(len(far_total)):
                g = far_gain[i]
                one = a0 * (g - g0) * density(law, y0 - far_x[i]) + a1 * (g - g1) * density(law, y1 - far_x[i])
                two = a2 * (g - g2) * density(law, y2 - far_x[i]) + a3 * (g - g3) * density(law, y3 - far_x[i])
                far_total[i] += far_survival[i] * (one + two)
        if end < n:
            far_total, far_x, far_gain = total[end:n], x[end:n], gain[end:n]
            for i in range(len(far_total)):
                g = far_gain[i]
                one = b0 * (g - g0) * density(law, y0 - far_x[i]) + b1 * (g - g1) * density(law, y1 - far_x[i])
                two = b2 * (g - g2) * density(law, y2 - far_x[i]) + b3 * (g - g3) * density(law, y3 - far_x[i])
                far_total[i] += one + two
        if begin < n:
            near_total, near_x, near_gain, near_survival = (
                total[begin:end],
                x[begin:end],
                gain[begin:end],
                survival[begin:end],
            )
            for u in range(m, min(m + 4, sources)):
                _cross(law, near_total, near_x, near_gain, near_survival, u - begin, _source(top, y, u))


@inner
def make_boxes(boxes, top, y, sources, both):
    """Cut the sorted sources into boxes; returns how many.

    series[b] has four parts: the power series of the box with coefficients below, below*g and, if `both` are wanted,
    above, above*g. Boxes with fewer than SPARSE sources have none, and a run of such boxes next to each other shares one
    entry of `starts`.
    """
    wide()
    work = boxes.work
    count = begin = np.int64(0)
    while begin < sources:
        end = begin + 1
        while end < sources and y[begin] - y[end] < _WIDTH:
            end += 1
        if end - begin >= SPARSE:
            centre, row = _centre(y, begin, end), boxes.series[count]
            for side in range(2 if both else 1):
                _clear(work)
                _add_sources(work, y, top[GAIN], top[BELOW + side], begin, end, centre)
                part = row[2 * TERMS * side : 2 * TERMS * (side + 1)]
                for k in range(2 * TERMS):
                    part[k] = work[k]
        else:
            # So that the number of boxes stays a small part of the sources, sparse neighbours are joined.
            while end < sources and end - begin < SPARSE:
                end += 1
            boxes.series[count, 0] = np.nan
        boxes.starts[count] = begin
        count += 1
        begin = end
    boxes.starts[count] = sources
    return count


@inline
def _centre(y, begin, end):
    return 0.5 * (y[begin] + y[end - 1])


@inline
def _clear(work):
    for k in range(2 * TERMS):
        work[k] = 0.0


@inner
def _add_sources(work, y, gain, q, begin, end, centre):
    """Add the sources begin..end to the power series with coefficients q, work[:TERMS], and q*g, the TERMS after them."""
    wide()
    for m in range(begin, end):
        t = y[m] - centre
        t2 = t * t
        t4 = t2 * t2
        t8 = t4 * t4
        t16 = t8 * t8
        plain = q[m] * exp2_negative(-t2)
        gained = plain * gain[m]
        for k in range(TERMS):  # t^k by the bits of k: all at once, as vectors
            power = (_BIT[k] * t + _NOT[k]) * (_BIT[TERMS + k] * t2 + _NOT[TERMS + k])
            power *= _BIT[2 * TERMS + k] * t4 + _NOT[2 * TERMS + k]
            power *= _EIGHTHS[k] + _EIGHTHS[TERMS + k] * t8 + _EIGHTHS[2 * TERMS + k] * t16
            work[k] += plain * power
            work[TERMS + k] += gained * power


@inline
def _series_at(series, s):
    """A power series at s. Even and odd powers apart: shorter chains, in which each step waits for the one before."""
    s = min(max(s, -_FAR), _FAR)
    t = s * s
    even, odd = series[TERMS - 2], series[TERMS - 1]
    for k in range(TERMS - 4, -2, -2):
        even = even * t + series[k]
        odd = odd * t + series[k + 1]
    return even + s * odd


@inner
def _box_values(values, densities, x, gain, centre, series):
    """What a box adds to each target: sum of q (gain - g) 2^-(s - t)^2 over its sources, s and t from its centre.

    `series` has the coefficients q, then q*g. Step by step: the numbers that one step needs for all targets fit into the
    processor's registers.
    """
    wide()
    plain, gained = series[:TERMS], series[TERMS : 2 * TERMS]
    for i in range(len(values)):
        densities[i] = normal(x[i] - centre)
    for i in range(len(values)):
        values[i] = gain[i] * _series_at(plain, x[i] - centre)
    for i in range(len(values)):
        values[i] = (values[i] - _series_at(gained, x[i] - centre)) * densities[i]


@inner
def _add_box(total, x, gain, centre, series, work):
    """Documents, none of them above a source of the box, cross its sources."""
    wide()
    for first in range(0, len(total), _CHUNK):
        last = min(first + _CHUNK, len(total))
        some, values, densities = total[first:last], work[-_CHUNK:][: last - first], work[-2 * _CHUNK :][: last - first]
        _box_values(values, densities, x[first:last], gain[first:last], centre, series)
        for i in range(len(some)):
            some[i] += values[i]


@inner
def pass_boxes(documents, top, y, boxes, count, begin, end):
    """Documents begin..end, none of them a source, pass all sources, by the boxes of `make_boxes`."""
    wide()
    total, x, gain = documents[TOTAL, begin:end], documents[X, begin:end], documents[GAIN, begin:end]
    for b in range(count):
        first, last = boxes.starts[b], boxes.starts[b + 1]
        if np.isnan(boxes.series[b, 0]):
            for m in range(first, last):
                add_passing(None, total, x, gain, y[m], top[GAIN, m], top[BELOW, m])
        else:
            _add_box(total, x, gain, _centre(y, first, last), boxes.series[b], boxes.work)


# From here on: what only long lists need.


@inner
def _add_box_above(total, survival, x, gain, centre, series, work):
    """Sorted documents, none of them below a source of the box, cross its sources."""
    wide()
    for first in range(0, len(total), _CHUNK):
        last = min(first + _CHUNK, len(total))
        some, values, densities = total[first:last], work[-_CHUNK:][: last - first], work[-2 * _CHUNK :][: last - first]
        _box_values(values, densities, x[first:last], gain[first:last], centre, series)
        factor = survival[first:last]
        for i in range(len(some)):
            some[i] += factor[i] * values[i]


@inner
def _add_crossing(total, x, gain, survival, m, source):
    """Sorted documents each cross a source at position m from the first of them, as in `_cross`."""
    wide()
    y_u, gain_u, below, above = source
    for i in range(len(total)):
        q = below if i > m else above * survival[i]
        total[i] += q * (gain[i] - gain_u) * normal(y_u - x[i])


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
def _pass_through(top, y, first, last, low, high, work):
    """Documents low..high of the box first..last cross each other and the rest of the box.

    A few at a time: those that stand together directly, the others by the series, in `work`, of all the sources before them
    and, on the way back, of all after them.
    """
    wide()
    total, x, gain, survival, centre = top[TOTAL], top[X], top[GAIN], top[SURVIVAL], _centre(y, first, last)
    sums, densities = work[2 * TERMS : 2 * TERMS + LANES], work[-2 * _CHUNK :][:LANES]
    _clear(work)
    for begin in range(first, high, LANES):
        end = min(begin + LANES, last)
        if end > low:
            few_x, few_gain = x[begin : begin + LANES], gain[begin : begin + LANES]
            few_survival = survival[begin : begin + LANES]
            _box_values(sums, densities, few_x, few_gain, centre, work)
            for m in range(begin, end):
                _cross(None, sums, few_x, few_gain, few_survival, m - begin, _source(top, y, m))
            for i in range(max(begin, low), min(end, high)):
                total[i] += sums[i - begin]
        _add_sources(work, y, gain, top[BELOW], begin, end, centre)
    _clear(work)
    for begin in range(first + (last - 1 - first) // LANES * LANES, low - LANES, -LANES):
        end = min(begin + LANES, last)
        if begin < high:
            few_x, few_gain = x[begin : begin + LANES], gain[begin : begin + LANES]
            _box_values(sums, densities, few_x, few_gain, centre, work)
            for i in range(max(begin, low), min(end, high)):
                total[i] += survival[i] * sums[i - begin]
        _add_sources(work, y, gain, top[ABOVE], begin, end, centre)


@inner
def add_boxes(top, y, boxes, count, n, begin, end):
    """Sorted documents begin..end each cross all sources, by the boxes of `make_boxes`."""
    wide()
    total, x, gain, survival = top[TOTAL], top[X], top[GAIN], top[SURVIVAL]
    for b in range(count):
        first, last = boxes.starts[b], boxes.starts[b + 1]
        low, high = begin, end
        if n > _SEARCHED:  # only documents whose own place, less its noise, is within reach of the box are touched
            low = max(begin, _first_at_most(y, n, y[first] + _REACH + _NOISE))
            high = min(end, _first_at_most(y, n, y[last - 1] - _REACH - _NOISE))
            if low >= high:
                continue
        if np.isnan(boxes.series[b, 0]):
            for m in range(first, last):
                source = _source(top, y, m)
                _add_crossing(total[low:high], x[low:high], gain[low:high], survival[low:high], m - low, source)
            continue
        centre, work = _centre(y, first, last), boxes.work
        if low < first:
            a, z, series = low, min(high, first), boxes.series[b, 2 * TERMS :]
            _add_box_above(total[a:z], survival[a:z], x[a:z], gain[a:z], centre, series, work)
        if last < high:
            a, z, series = max(low, last), high, boxes.series[b, : 2 * TERMS]
            _add_box(total[a:z], x[a:z], gain[a:z], centre, series, work)
        low, high = max(low, first), min(high, last)
        if low < high:
            _pass_through(top, y, first, last, low, high, work)
