"""Pairs of near neighbours in noisy rankings: the derivatives of YetiRank and YetiLoss.

A query is ranked by its scores with noise, several times over. In each ranking a document at position a has a pair with the
one at b = a + 1, ..., a + neighbours; the pair weighs as much as a swap of the two would change the metric (see `lambdas`),
and its loss is the logistic one of the scores without noise. All pairs of one distance b - a are done in one go.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._constants import AVERAGE, CASCADE, PLAIN, Array
from .gauss import LANES, exp2_negative
from .lambdas import _LARGEST, _LOG2_E
from .noise import _LOW, _32, _log, philox
from .noise import padded as noise_padded
from .policy import aligned, inline, inner, kernel, wide
from .selection import INSERTION, room, select

_FEW_MORE = 4  # times as many documents as are needed: a sort of them all beats a selection, unless only a few are needed


class Scratch(NamedTuple):
    """Arrays for one query after another. By document, in the order of falling gain: z scores, y with noise, noise, slope
    and curve (the derivatives so far). By position: place (which document), x score in powers of two, gain; factor, earned
    and chance as in `lambdas` for swaps that begin here; coefficient, pull, bend of the pairs that do; slopes and curves,
    the derivatives from one ranking.
    """

    z: Array
    y: Array
    noise: Array
    slope: Array
    curve: Array
    place: NDArray[np.int64]
    top_y: Array
    spare_y: Array
    spare_index: NDArray[np.int64]
    tally: NDArray[np.int64]
    x: Array
    gain: Array
    factor: Array
    earned: Array
    chance: Array
    coefficient: Array
    pull: Array
    bend: Array
    slopes: Array
    curves: Array


def make_scratch(n: int, size: int) -> Scratch:
    """Room for queries of up to n documents, of which the best `size` are needed."""
    size = min(size, n)
    space, long = max(room.py_func(n, size), min(n, _FEW_MORE * size)), size + LANES
    z, y, noise, slope, curve = aligned(n, n, noise_padded.py_func(n), n, n)
    place, top_y, spare_y, spare_index, tally = aligned(space, space, space, n, space)
    return Scratch(
        z, y, noise, slope, curve, place.view(np.int64), top_y, spare_y, spare_index.view(np.int64), tally.view(np.int64),
        *aligned(*[long] * 10),
    )  # fmt: skip


@inline
def _logistic(word):
    """A standard logistic deviate, log(u/(1 - u)), from a 32-bit word."""
    u = (np.float64(np.int64(word)) + 0.5) * 2.0**-32
    return _log(u / (1.0 - u))


@inner
def fill_logistics(out, n, key, query, sample):
    """The n standard logistic deviates of one query and sample: out[:noise_padded(n)], laid out as by `fill_normals`."""
    wide()
    stride = noise_padded(n) // 4
    k0, k1 = np.uint64(key) & _LOW, np.uint64(key) >> _32
    q0, q1 = np.uint64(query) & _LOW, np.uint64(query) >> _32
    s = np.uint64(sample) & _LOW
    out0, out1 = out[:stride], out[stride : 2 * stride]
    out2, out3 = out[2 * stride : 3 * stride], out[3 * stride : 4 * stride]
    for block in range(stride):
        a, b, c, d = philox(np.uint64(block), s, q0, q1, k0, k1)
        out0[block], out1[block] = _logistic(a), _logistic(b)
        out2[block], out3[block] = _logistic(c), _logistic(d)


@inline
def _rank(s, gains, n, size, noise, key, query_key, sample):
    """The best `size` documents by their scores with noise, ties in the worst order."""
    y = s.y
    if noise > 0.0:
        fill_logistics(s.noise, n, key, query_key, sample)
        for j in range(n):
            y[j] = s.z[j] + noise * s.noise[j]
    else:
        for j in range(n):
            y[j] = s.z[j]
    ranked = n if size > INSERTION and n <= _FEW_MORE * size else size
    select(y, n, ranked, -np.inf, True, s.top_y, s.place, s.spare_y, s.spare_index, s.tally)
    for p in range(size):
        at = np.uint32(s.place[p])
        s.x[p], s.gain[p] = _LOG2_E * s.z[at], gains[at]


@inline
def _begin_swaps(s, kind, count):
    """The state of `_fill_swaps` before the first distance."""
    factor = 1.0
    for a in range(count):
        s.factor[a], s.earned[a] = factor, 0.0
        s.chance[a] = 1.0 if kind == CASCADE else factor
        if kind == CASCADE:
            factor *= 1.0 - s.gain[a]
        elif kind == AVERAGE:
            factor += s.gain[a]


@inner
def _fill_swaps(kind, out, here, there, gain_there, factor, earned, chance):
    """What a swap of each document with the one at some distance changes, over the difference of their gains; distances
    come in turn. `here` and `there` are the weights of the two positions."""
    if kind == PLAIN:
        for a in range(len(out)):
            out[a] = abs(here[a] - there[a])
    elif kind == CASCADE:
        for a in range(len(out)):
            out[a] = abs(factor[a] * (here[a] - earned[a] - chance[a] * there[a]))
            earned[a] += chance[a] * there[a] * gain_there[a]
            chance[a] *= 1.0 - gain_there[a]
    else:
        for a in range(len(out)):
            out[a] = abs(factor[a] * here[a] + earned[a] - chance[a] * there[a])
            earned[a] += there[a] * gain_there[a]
            chance[a] += gain_there[a]


@inner
def _fill_pairs(pull, bend, coefficient, x, x_there, gain, gain_there, newton):
    """Both derivatives of each pair's loss, log(1 + exp(-(s_i - s_j))) with i the better, by the score of the first.

    Unless `newton`, the size of the first derivative stands for the second."""
    for a in range(len(pull)):
        difference, ahead = gain[a] - gain_there[a], x[a] - x_there[a]
        e = exp2_negative(-abs(ahead))
        share = 1.0 / (1.0 + e)
        wrong = share * (e if (ahead >= 0.0) == (difference > 0.0) else 1.0)
        pull[a] = -coefficient[a] * difference * wrong
        bend[a] = coefficient[a] * abs(difference) * (e * share * share if newton else wrong)


@inner
def _add(slopes, curves, pull, bend, sign):
    for a in range(len(slopes)):
        slopes[a] += sign * pull[a]
        curves[a] += bend[a]


@kernel
def yeti_range(
    s, gradient, hessian, scores, ptr, order, gains, scale, keys, active, begin, end,
    kind, weights, cut, neighbours, noise, permutations, key, newton,
):  # fmt: skip
    """Both derivatives of the loss for the queries active[begin:end], put into their rows.

    `weights` has zeros for at least `neighbours` positions from the cut on.
    """
    for at in range(begin, end):
        query = active[at]
        start, n = ptr[query], ptr[query + 1] - ptr[query]
        rows, gain, own = order[start : start + n], gains[start : start + n], scores[start : start + n]
        size = min(n, cut + neighbours)
        for j in range(n):
            s.z[j] = min(max(own[np.uint32(rows[j])], -_LARGEST), _LARGEST)
            s.slope[j] = s.curve[j] = 0.0
        for permutation in range(permutations):
            _rank(s, gain, n, size, noise, key, keys[query], permutation)
            s.slopes[:size] = s.curves[:size] = 0.0
            if kind != PLAIN:
                _begin_swaps(s, kind, size)
            for step in range(1, min(neighbours, n - 1) + 1):
                pairs = min(cut, n - step)
                coefficient, pull, bend = s.coefficient[:pairs], s.pull[:pairs], s.bend[:pairs]
                there = s.gain[step : step + pairs]
                _fill_swaps(
                    kind, coefficient, weights[:pairs], weights[step : step + pairs], there,
                    s.factor[:pairs], s.earned[:pairs], s.chance[:pairs],
                )  # fmt: skip
                _fill_pairs(pull, bend, coefficient, s.x[:pairs], s.x[step : step + pairs], s.gain[:pairs], there, newton)
                _add(s.slopes[:pairs], s.curves[:pairs], pull, bend, 1.0)
                _add(s.slopes[step : step + pairs], s.curves[step : step + pairs], pull, bend, -1.0)
            for p in range(size):
                at_p = np.uint32(s.place[p])
                s.slope[at_p] += s.slopes[p]
                s.curve[at_p] += s.curves[p]
        times = scale[query] / permutations
        for j in range(n):
            row = start + rows[j]
            gradient[row] = times * s.slope[j]
            hessian[row] = times * s.curve[j]
