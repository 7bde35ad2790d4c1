"""Sums of Gaussian densities, the cost of every gradient.

Coordinates are in units in which the density is a power of two: with kappa = sqrt(log2(e)/2),
exp(-(y - x)^2/2) = 2^-(kappa*y - kappa*x)^2. The constant factor of the density is left to the caller.
Arrays are padded to a multiple of `LANES`, so that vectorised loops have no scalar remainder.

Many sources are summed by a fast Gauss transform. The sorted sources are cut into boxes two standard deviations wide. With
s and t the distances of target and source from the centre of a box, 2^-(s - t)^2 = 2^-s^2 2^-t^2 exp(2 ln2 s t), and the
exponential is a short power series: a box is to every target a polynomial in s. Targets that are in the box themselves, for
which sources above and below must be told apart, use the series of the sources before them, and of those after them.
"""

from __future__ import annotations

import math

import numpy as np

from .policy import inline, inner, wide

KAPPA = math.sqrt(0.5 * math.log2(math.e))
LANES = 16
TERMS = 24  # of the power series, three times eight; what is left out is below 1e-12 of the largest density
SPARSE = 4  # a box with fewer sources is summed directly
_FEW = 16  # documents of a box that are summed directly
_CHUNK = 256  # documents that are taken through the steps of a box together
WORK = 2 * TERMS + _FEW + 2 * _CHUNK

_ROUND = 6755399441055744.0  # 1.5 * 2^52: adding it rounds to an integer, held in the low bits
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
    wide()
    # Slices: an index that starts at 0 cannot be negative, which numba would have to allow for, in a way that is slow.
    total, x, gain = total[begin:end], x[begin:end], gain[begin:end]
    for j in range(len(total)):
        t = y_u - x[j]
        total[j] += q * (gain[j] - gain_u) * exp2_negative(-t * t)


@inline
def cross(total, x, gain, survival, n, m, y_u, gain_u, q_below, q_above):
    """The first n sorted documents each cross u, the document at position m: from below if they stand after it, else from
    above, where the product before u is theirs divided by their own continuation (`survival` is its inverse)."""
    wide()
    for i in range(n):
        t = y_u - x[i]
        q = q_below if i > m else q_above * survival[i]
        total[i] += q * (gain[i] - gain_u) * exp2_negative(-t * t)


@inner
def add_crossing(total, x, gain, survival, begin, end, m, y_u, gain_u, q_below, q_above):
    """`cross` for sorted documents begin..end."""
    wide()
    total, x, gain, survival = total[begin:end], x[begin:end], gain[begin:end], survival[begin:end]
    cross(total, x, gain, survival, end - begin, m - begin, y_u, gain_u, q_below, q_above)


@inner
def cross_all(total, x, y, gain, survival, n, sources, q_below, q_above):
    """The first n sorted documents (n padded) cross the first `sources`; as `cross`, but faster: whether a document stands
    above or below the source must be asked only in the source's own block of LANES. Four sources are taken at a time."""
    wide()
    for m in range(0, sources, 4):
        begin = m // LANES * LANES
        end = begin + LANES
        y0, g0, b0, a0 = _source(y, gain, q_below, q_above, m, sources)
        y1, g1, b1, a1 = _source(y, gain, q_below, q_above, m + 1, sources)
        y2, g2, b2, a2 = _source(y, gain, q_below, q_above, m + 2, sources)
        y3, g3, b3, a3 = _source(y, gain, q_below, q_above, m + 3, sources)
        if begin > 0:
            upper, upper_x, upper_gain, upper_survival = total[:begin], x[:begin], gain[:begin], survival[:begin]
            for i in range(len(upper)):
                g = upper_gain[i]
                one = a0 * (g - g0) * _density(y0 - upper_x[i]) + a1 * (g - g1) * _density(y1 - upper_x[i])
                two = a2 * (g - g2) * _density(y2 - upper_x[i]) + a3 * (g - g3) * _density(y3 - upper_x[i])
                upper[i] += upper_survival[i] * (one + two)
        if end < n:
            lower, lower_x, lower_gain = total[end:n], x[end:n], gain[end:n]
            for i in range(len(lower)):
                g = lower_gain[i]
                one = b0 * (g - g0) * _density(y0 - lower_x[i]) + b1 * (g - g1) * _density(y1 - lower_x[i])
                two = b2 * (g - g2) * _density(y2 - lower_x[i]) + b3 * (g - g3) * _density(y3 - lower_x[i])
                lower[i] += one + two
        if begin < n:
            near, near_x, near_gain, near_survival = total[begin:end], x[begin:end], gain[begin:end], survival[begin:end]
            for u in range(m, min(m + 4, sources)):
                cross(near, near_x, near_gain, near_survival, LANES, u - begin, y[u], gain[u], q_below[u], q_above[u])


@inline
def _source(y, gain, q_below, q_above, m, sources):
    """Where a source is, its gain and coefficients; beyond the last, nothing."""
    if m < sources:
        return y[m], gain[m], q_below[m], q_above[m]
    return 0.0, 0.0, 0.0, 0.0


@inline
def _density(t):
    return exp2_negative(-t * t)


@inner
def make_boxes(y, gain, q_below, q_above, both, sources, starts, series, work):
    """Cut the sorted sources into boxes; returns how many. Box b holds sources starts[b]..starts[b+1]-1.

    series[b] has four rows: the power series of the box with coefficients q_below, q_below*g and, if `both` are wanted,
    q_above, q_above*g. Boxes with fewer than SPARSE sources have none, and a run of such boxes next to each other shares one
    entry of `starts`. `work` is room for `WORK` numbers.
    """
    wide()
    boxes = begin = np.int64(0)
    while begin < sources:
        end = begin + 1
        while end < sources and y[begin] - y[end] < _WIDTH:
            end += 1
        if end - begin >= SPARSE:
            centre, row = _centre(y, begin, end), series[boxes]
            _clear(work)
            _add_sources(work, y, gain, q_below, begin, end, centre)
            for k in range(2 * TERMS):
                row[k] = work[k]
            if both:
                _clear(work)
                _add_sources(work, y, gain, q_above, begin, end, centre)
                for k in range(2 * TERMS):
                    row[2 * TERMS + k] = work[k]
        else:
            # So that the number of boxes stays a small part of the sources, sparse neighbours are joined.
            while end < sources and end - begin < SPARSE:
                end += 1
            series[boxes, 0] = np.nan
        starts[boxes] = begin
        boxes += 1
        begin = end
    starts[boxes] = sources
    return boxes


@inline
def _centre(y, begin, end):
    return 0.5 * (y[begin] + y[end - 1])


@inline
def _clear(work):
    for k in range(2 * TERMS):
        work[k] = 0.0


@inline
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
def _box_values(values, densities, x, gain, centre, plain, gained):
    """What a box adds to each target: sum of q (gain - g) 2^-(s - t)^2 over its sources, s and t from its centre.

    Step by step: the numbers that one step needs for all targets fit into the processor's registers.
    """
    wide()
    for i in range(len(values)):
        densities[i] = _density(x[i] - centre)
    for i in range(len(values)):
        values[i] = gain[i] * _series_at(plain, x[i] - centre)
    for i in range(len(values)):
        values[i] = (values[i] - _series_at(gained, x[i] - centre)) * densities[i]


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
def _add_box(total, x, gain, begin, end, centre, plain, gained, work):
    """Documents begin..end, none of them above a source of the box, cross its sources."""
    wide()
    for first in range(begin, end, _CHUNK):
        last = min(first + _CHUNK, end)
        some, values, densities = total[first:last], work[-_CHUNK:][: last - first], work[-2 * _CHUNK :][: last - first]
        _box_values(values, densities, x[first:last], gain[first:last], centre, plain, gained)
        for i in range(len(some)):
            some[i] += values[i]


@inner
def _add_box_above(total, x, gain, survival, begin, end, centre, plain, gained, work):
    """Sorted documents begin..end, none of them below a source of the box, cross its sources."""
    wide()
    for first in range(begin, end, _CHUNK):
        last = min(first + _CHUNK, end)
        some, values, densities = total[first:last], work[-_CHUNK:][: last - first], work[-2 * _CHUNK :][: last - first]
        _box_values(values, densities, x[first:last], gain[first:last], centre, plain, gained)
        factor = survival[first:last]
        for i in range(len(some)):
            some[i] += factor[i] * values[i]


@inner
def pass_boxes(total, x, gain, begin, end, y, top_gain, q_below, boxes, starts, series, work):
    """Documents begin..end, none of them a source, pass all sources, by the boxes of `make_boxes`."""
    wide()
    for b in range(boxes):
        first, last = starts[b], starts[b + 1]
        if np.isnan(series[b, 0]):
            for m in range(first, last):
                add_passing(total, x, gain, begin, end, y[m], top_gain[m], q_below[m])
        else:
            plain, gained = series[b, :TERMS], series[b, TERMS : 2 * TERMS]
            _add_box(total, x, gain, begin, end, _centre(y, first, last), plain, gained, work)


@inner
def _pass_through(total, x, y, gain, survival, q_below, q_above, first, last, low, high, centre, work):
    """Documents low..high of the box first..last cross each other and the rest of the box.

    A few at a time: those that stand together directly, the others by the series, in `work`, of all the sources before them
    and, on the way back, of all after them.
    """
    wide()
    plain, gained, sums = work[:TERMS], work[TERMS : 2 * TERMS], work[2 * TERMS : 2 * TERMS + _FEW]
    densities = work[-2 * _CHUNK :][:_FEW]
    _clear(work)
    for begin in range(first, high, _FEW):
        end = min(begin + _FEW, last)
        if end > low:
            few_x, few_gain = x[begin : begin + _FEW], gain[begin : begin + _FEW]
            few_survival = survival[begin : begin + _FEW]
            _box_values(sums, densities, few_x, few_gain, centre, plain, gained)
            for m in range(begin, end):
                cross(sums, few_x, few_gain, few_survival, _FEW, m - begin, y[m], gain[m], q_below[m], q_above[m])
            for i in range(max(begin, low), min(end, high)):
                total[i] += sums[i - begin]
        _add_sources(work, y, gain, q_below, begin, end, centre)
    _clear(work)
    for begin in range(first + (last - 1 - first) // _FEW * _FEW, low - _FEW, -_FEW):
        end = min(begin + _FEW, last)
        if begin < high:
            few_x, few_gain = x[begin : begin + _FEW], gain[begin : begin + _FEW]
            _box_values(sums, densities, few_x, few_gain, centre, plain, gained)
            for i in range(max(begin, low), min(end, high)):
                total[i] += survival[i] * sums[i - begin]
        _add_sources(work, y, gain, q_above, begin, end, centre)


@inner
def add_boxes(total, x, y, gain, survival, n, q_below, q_above, boxes, starts, series, work, begin, end):
    """Sorted documents begin..end each cross all sources, by the boxes of `make_boxes`."""
    wide()
    for b in range(boxes):
        first, last = starts[b], starts[b + 1]
        low, high = begin, end
        if n > _SEARCHED:  # only documents whose own place, less its noise, is within reach of the box are touched
            low = max(begin, _first_at_most(y, n, y[first] + _REACH + _NOISE))
            high = min(end, _first_at_most(y, n, y[last - 1] - _REACH - _NOISE))
            if low >= high:
                continue
        if np.isnan(series[b, 0]):
            for m in range(first, last):
                add_crossing(total, x, gain, survival, low, high, m, y[m], gain[m], q_below[m], q_above[m])
            continue
        centre = _centre(y, first, last)
        below, below_gained = series[b, :TERMS], series[b, TERMS : 2 * TERMS]
        above, above_gained = series[b, 2 * TERMS : 3 * TERMS], series[b, 3 * TERMS :]
        if low < first:
            _add_box_above(total, x, gain, survival, low, min(high, first), centre, above, above_gained, work)
        if last < high:
            _add_box(total, x, gain, max(low, last), high, centre, below, below_gained, work)
        low, high = max(low, first), min(high, last)
        if low < high:
            _pass_through(total, x, y, gain, survival, q_below, q_above, first, last, low, high, centre, work)
