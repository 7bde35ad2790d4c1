"""Sums of Gaussian densities, the cost of every gradient.

Coordinates are in units in which the density is a power of two: with kappa = sqrt(log2(e)/2),
exp(-(y - x)^2/2) = 2^-(kappa*y - kappa*x)^2. The constant factor of the density is left to the caller.
Arrays are padded to a multiple of `LANES`, so that vectorised loops have no scalar remainder.
"""

from __future__ import annotations

import math

import numpy as np

from ._numba import inner

KAPPA = math.sqrt(0.5 * math.log2(math.e))
LANES = 16

_ROUND = 6755399441055744.0  # 1.5 * 2^52: adding it rounds to an integer, held in the low bits
_EXPONENT = np.int64(52)


@inner
def padded(n):
    """The smallest multiple of `LANES` that is at least n."""
    return (n + LANES - 1) // LANES * LANES


@inner
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
    for j in range(begin, end):
        t = y_u - x[j]
        total[j] += q * (gain[j] - gain_u) * exp2_negative(-t * t)


@inner
def add_crossing(total, x, gain, survival, begin, end, m, y_u, gain_u, q_below, q_above):
    """Sorted documents begin..end each cross u, the document at position m: from below if they stand after it, else from
    above, where the product before u is theirs divided by their own continuation (`survival` is its inverse)."""
    for i in range(begin, end):
        t = y_u - x[i]
        q = q_below if i > m else q_above * survival[i]
        total[i] += q * (gain[i] - gain_u) * exp2_negative(-t * t)
