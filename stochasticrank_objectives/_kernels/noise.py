"""Noise from a counter: the same for any number of threads and any order of work.

Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011) turns a key and a counter into 128
random bits; the Box-Muller transform turns those into four normal deviates, the inverse of a distribution function into four
others. The key is made from the seed, the iteration and the purpose; the counter holds the block of documents, the
Monte-Carlo sample and the key of the query.
"""

from __future__ import annotations

import math

import numpy as np

from .policy import inline, inner, kernel, spliced, wide

_M0, _M1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_W = tuple(np.uint64(r * 0x9E3779B9 & 0xFFFFFFFF) for r in range(10))
_V = tuple(np.uint64(r * 0xBB67AE85 & 0xFFFFFFFF) for r in range(10))
_LOW, _32 = np.uint64(0xFFFFFFFF), np.uint64(32)
_QUARTER = np.uint64(0x3FFFFFFF)
_MANTISSA, _ONE = np.uint64(0x000FFFFFFFFFFFFF), np.uint64(0x3FF0000000000000)
_TOGETHER = 8  # blocks are made in groups of eight, so that a vectorised loop has no scalar remainder


@inline
def _round(c0, c1, c2, c3, k0, k1):
    p0, p1 = _M0 * c0, _M1 * c2
    return (p1 >> _32) ^ c1 ^ k0, p1 & _LOW, (p0 >> _32) ^ c3 ^ k1, p0 & _LOW


@inline
def philox(c0, c1, c2, c3, k0, k1):
    """Philox4x32-10: four 32-bit words, kept in 64-bit integers, from a counter and a key of such words."""
    # Written out: the loop around this call vectorises only if there is no loop in it.
    c0, c1, c2, c3 = _round(c0, c1, c2, c3, k0, k1)
    c0, c1, c2, c3 = _round(c0, c1, c2, c3, (k0 + _W[1]) & _LOW, (k1 + _V[1]) & _LOW)
    c0, c1, c2, c3 = _round(c0, c1, c2, c3, (k0 + _W[2]) & _LOW, (k1 + _V[2]) & _LOW)
    c0, c1, c2, c3 = _round(c0, c1, c2, c3, (k0 + _W[3]) & _LOW, (k1 + _V[3]) & _LOW)
    c0, c1, c2, c3 = _round(c0, c1, c2, c3, (k0 + _W[4]) & _LOW, (k1 + _V[4]) & _LOW)
    c0, c1, c2, c3 = _round(c0, c1, c2, c3, (k0 + _W[5]) & _LOW, (k1 + _V[5]) & _LOW)
    c0, c1, c2, c3 = _round(c0, c1, c2, c3, (k0 + _W[6]) & _LOW, (k1 + _V[6]) & _LOW)
    c0, c1, c2, c3 = _round(c0, c1, c2, c3, (k0 + _W[7]) & _LOW, (k1 + _V[7]) & _LOW)
    c0, c1, c2, c3 = _round(c0, c1, c2, c3, (k0 + _W[8]) & _LOW, (k1 + _V[8]) & _LOW)
    return _round(c0, c1, c2, c3, (k0 + _W[9]) & _LOW, (k1 + _V[9]) & _LOW)


@inline
def _log(u):
    """Natural logarithm of a positive normal number: 2 atanh((m - 1)/(m + 1)) on a mantissa m around 1."""
    bits = np.float64(u).view(np.uint64)
    mantissa = np.uint64((bits & _MANTISSA) | _ONE).view(np.float64)
    exponent = np.float64(np.int64(bits >> np.uint64(52))) - 1023.0
    big = mantissa > math.sqrt(2.0)
    mantissa = 0.5 * mantissa if big else mantissa
    exponent = exponent + 1.0 if big else exponent
    s = (mantissa - 1.0) / (mantissa + 1.0)
    t = s * s
    p = 1 / 15
    p = p * t + 1 / 13
    p = p * t + 1 / 11
    p = p * t + 1 / 9
    p = p * t + 1 / 7
    p = p * t + 1 / 5
    p = p * t + 1 / 3
    p = p * t + 1.0
    return exponent * math.log(2.0) + 2.0 * s * p


@inline
def _pair(a, b):
    """Box-Muller: two independent normal deviates from two 32-bit words."""
    radius = math.sqrt(-2.0 * _log((np.float64(np.int64(a)) + 0.5) * 2.0**-32))
    # The top two bits of b choose a quarter of the circle, the rest an angle in it, from -pi/4 to pi/4.
    angle = ((np.float64(np.int64(b & _QUARTER)) + 0.5) * 2.0**-30 - 0.5) * (0.5 * math.pi)
    t = angle * angle
    s = -1 / 39916800
    s = s * t + 1 / 362880
    s = s * t - 1 / 5040
    s = s * t + 1 / 120
    s = s * t - 1 / 6
    s = (s * t + 1.0) * angle
    c = 1 / 479001600
    c = c * t - 1 / 3628800
    c = c * t + 1 / 40320
    c = c * t - 1 / 720
    c = c * t + 1 / 24
    c = c * t - 0.5
    c = c * t + 1.0
    quarter = np.int64(b >> np.uint64(30))
    swap = (quarter & 1) == 1
    first = s if swap else c
    second = c if swap else s
    first = -first if (quarter == 1) | (quarter == 2) else first
    second = -second if quarter >= 2 else second
    return radius * first, radius * second


@inline
def room(n):
    """Room that n deviates need."""
    return 4 * _TOGETHER * ((n + 4 * _TOGETHER - 1) // (4 * _TOGETHER))


@inner
def fill_normals(out, n, key, query, sample, first, last):
    """Blocks `first` to `last` (multiples of eight) of the n deviates of one query and sample: out[:room(n)]."""
    wide()
    stride = room(n) // 4
    k0, k1 = np.uint64(key) & _LOW, np.uint64(key) >> _32
    q0, q1 = np.uint64(query) & _LOW, np.uint64(query) >> _32
    s = np.uint64(sample) & _LOW
    # One array per lane, from the first block on, so that every index is the loop's own variable and not negative: else the
    # loop would not vectorise.
    out0, out1 = out[first:last], out[stride + first : stride + last]
    out2, out3 = out[2 * stride + first : 2 * stride + last], out[3 * stride + first : 3 * stride + last]
    for i in range(len(out0)):
        a, b, c, d = philox(np.uint64(first + i), s, q0, q1, k0, k1)
        out0[i], out1[i] = _pair(a, b)
        out2[i], out3[i] = _pair(c, d)


@kernel
def fill_query_normals(buffer, out, layout, key, begin, end):
    """One normal deviate per row for the queries begin..end, those of sample 0; `buffer` has room for the longest."""
    ptr, query_keys = layout.ptr, layout.query_keys
    for query in range(begin, end):
        n = ptr[query + 1] - ptr[query]
        fill_normals(buffer, n, key, query_keys[query], np.int64(0), np.int64(0), room(n) // 4)
        for j in range(n):
            out[ptr[query] + j] = buffer[j]


@spliced
def _fill_words(deviate, out, n, key, query, sample):
    """The n deviates of one query and sample, each made from a 32-bit word; laid out as by `fill_normals`."""
    stride = room(n) // 4
    k0, k1 = np.uint64(key) & _LOW, np.uint64(key) >> _32
    q0, q1 = np.uint64(query) & _LOW, np.uint64(query) >> _32
    s = np.uint64(sample) & _LOW
    out0, out1 = out[:stride], out[stride : 2 * stride]
    out2, out3 = out[2 * stride : 3 * stride], out[3 * stride : 4 * stride]
    for block in range(stride):
        a, b, c, d = philox(np.uint64(block), s, q0, q1, k0, k1)
        out0[block], out1[block] = deviate(a), deviate(b)
        out2[block], out3[block] = deviate(c), deviate(d)


@inline
def _gumbel(word):
    """A standard Gumbel deviate, -log(-log(u))."""
    return -_log(-_log((np.float64(np.int64(word)) + 0.5) * 2.0**-32))


@inline
def _logistic(word):
    """A standard logistic deviate, log(u/(1 - u))."""
    u = (np.float64(np.int64(word)) + 0.5) * 2.0**-32
    return _log(u / (1.0 - u))


@inline
def _uniform(word):
    """A deviate between 0 and 1."""
    return (np.float64(np.int64(word)) + 0.5) * 2.0**-32


@inner
def fill_gumbels(out, n, key, query, sample):
    """The n standard Gumbel deviates of one query and sample: out[:room(n)]."""
    wide()
    _fill_words(_gumbel, out, n, key, query, sample)


@inner
def fill_logistics(out, n, key, query, sample):
    """The n standard logistic deviates of one query and sample: out[:room(n)]."""
    wide()
    _fill_words(_logistic, out, n, key, query, sample)


@inner
def fill_uniforms(out, n, key, query, sample):
    """The n uniform deviates of one query and sample: out[:room(n)]."""
    wide()
    _fill_words(_uniform, out, n, key, query, sample)
