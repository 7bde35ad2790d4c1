"""The entry points: gradients and values of whole ranges of queries.

A query's documents are held with the largest gain first (`order` says where each stands in the data), so documents without
gain are at the end, and reading them forwards or backwards is the best or the worst order of ties.
"""

from __future__ import annotations

import math

import numpy as np

from ._gauss import KAPPA, add_crossing, add_passing, padded
from ._noise import fill_normals
from ._noise import padded as noise_padded
from ._numba import inner, kernel, reduction
from ._rules import fill_jumps, list_value, mean_value
from ._select import room, second_largest_stop, select, sort_descending
from .metrics import CASCADE

CCS, REINFORCE = 0, 1
WORST, BEST, MEAN = 0, 1, 2

_LARGEST = 1e150  # scores are clipped here, so that no square overflows
_DENSITY = 1.0 / math.sqrt(2.0 * math.pi)


@reduction
def _sum(a, n):
    total = 0.0
    for j in range(n):
        total += a[j]
    return total


@reduction
def _dot(a, b, n):
    total = 0.0
    for j in range(n):
        total += a[j] * b[j]
    return total


@inner
def load_query(scores, order, gains, relevance, begin, n, sigma, mu, z, x, gain):
    """Centre the scores of one query, in the order of its gains, and place them: x = kappa (z/sigma - mu r)."""
    reference = scores[begin]
    for j in range(n):
        value = scores[begin + order[begin + j]] - reference
        z[j] = min(max(value, -_LARGEST), _LARGEST)
        gain[j] = gains[begin + j]
    mean = _sum(z, n) / n
    scale = KAPPA / sigma
    shift = KAPPA * mu
    for j in range(n):
        z[j] -= mean
        x[j] = min(max(z[j] * scale, -_LARGEST), _LARGEST)
    if shift > 0.0:
        for j in range(n):
            x[j] -= shift * relevance[begin + j]
    for j in range(n, padded(n)):
        x[j] = 0.0
        gain[j] = 0.0


@inner
def project(total, z, n, nu, strength):
    """Scale-free acceleration: centre the gradient and take away its part along the (centred) scores."""
    mean = _sum(total, n) / n
    largest = 0.0
    for j in range(n):
        total[j] -= mean
        largest = max(largest, abs(z[j]))
    if n == 2 or largest < 1e-290:
        return
    inverse = 1.0 / largest  # the largest score becomes one: no square overflows or vanishes
    norm = math.sqrt(_dot(z, z, n)) if 1e-100 < largest < 1e100 else 0.0
    if norm == 0.0:
        for j in range(n):
            z[j] *= inverse
        norm = math.sqrt(_dot(z, z, n))
        nu *= inverse
    along = strength * _dot(total, z, n) / (norm + nu) / (norm + nu)
    for j in range(n):
        total[j] -= along * z[j]


@kernel
def gradient_range(
    out, scores, ptr, order, gains, relevance, relevant, scale, keys, active, begin, end,
    kind, weights, cut, estimator, sigma, mu, nu, strength, samples, key,
):  # fmt: skip
    """The gradient of the loss for the queries active[begin:end], into their rows of `out`."""
    longest = 0
    for a in range(begin, end):
        longest = max(longest, ptr[active[a] + 1] - ptr[active[a]])
    wide = noise_padded(longest)
    z, x, y = np.empty(wide), np.empty(wide), np.empty(wide)
    gain, noise, total = np.empty(wide), np.empty(wide), np.empty(wide)
    size = min(cut + 1, longest)
    space = padded(max(room(longest, size), size))
    top_y, index = np.empty(space), np.empty(space, np.int64)
    spare_y, spare_index = np.empty(space), np.empty(space, np.int64)
    top_x, top_gain, survival = np.empty(space), np.empty(space), np.empty(space)
    top_total, q_below, q_above = np.empty(space), np.empty(space), np.empty(space)

    for a in range(begin, end):
        query = active[a]
        start, n = ptr[query], ptr[query + 1] - ptr[query]
        load_query(scores, order, gains, relevance, start, n, sigma, mu, z, x, gain)
        total[: padded(n)] = 0.0
        size = min(cut + 1, n)
        baseline = 0.0
        if estimator == REINFORCE:
            count = select(z, n, size, -np.inf, True, top_y, index, spare_y, spare_index)
            for i in range(count):
                top_gain[i] = gain[index[i]]
            baseline = list_value(kind, weights, cut, top_gain, count)
        for sample in range(samples):
            fill_normals(noise, n, key, keys[query], sample, 0, noise_padded(n) // 4)
            for j in range(n):
                y[j] = x[j] + KAPPA * noise[j]
            floor = -np.inf
            if kind == CASCADE:
                floor = second_largest_stop(y, gain, n)
            count = select(y, n, size, floor, False, top_y, index, spare_y, spare_index)
            for i in range(count):
                top_gain[i] = gain[index[i]]
            if estimator == REINFORCE:
                change = list_value(kind, weights, cut, top_gain, count) - baseline
                for j in range(n):
                    total[j] += change * noise[j]
                continue
            top, last, reach = fill_jumps(kind, weights, cut, top_gain, count, q_below, q_above)
            for i in range(padded(top)):
                if i < top:
                    top_x[i] = x[index[i]]
                    top_total[i] = total[index[i]]
                    survival[i] = 1.0
                    if kind == CASCADE and top_gain[i] < 1.0:
                        survival[i] = 1.0 / (1.0 - top_gain[i])
                else:
                    top_x[i] = 0.0
            if top < n:
                for m in range(top):
                    if q_below[m] != 0.0:
                        stop = padded(n) if top_gain[m] != 0.0 else padded(relevant[query])
                        add_passing(total, x, gain, 0, stop, top_y[m], top_gain[m], q_below[m])
            for m in range(last + 1):
                if q_below[m] != 0.0 or q_above[m] != 0.0:
                    add_crossing(
                        top_total, top_x, top_gain, survival, 0, padded(top),
                        m, top_y[m], top_gain[m], q_below[m], q_above[m],
                    )  # fmt: skip
            for m in range(top, reach + 1):
                add_crossing(
                    top_total, top_x, top_gain, survival, top - 1, top,
                    m, top_y[m], top_gain[m], q_below[m], q_above[m],
                )  # fmt: skip
            for i in range(top):
                total[index[i]] = top_total[i]
        if strength > 0.0:
            project(total, z, n, nu, strength)
        factor = -scale[query] / (sigma * samples)
        if estimator == CCS:
            factor *= _DENSITY
        for j in range(n):
            out[start + order[start + j]] = factor * total[j]


@kernel
def value_range(out, scores, ptr, order, gains, scale, begin, end, kind, weights, cut, ties):
    """The metric of the queries begin..end, ties ranked as told."""
    longest = 1
    for query in range(begin, end):
        longest = max(longest, ptr[query + 1] - ptr[query])
    size = longest if ties == MEAN else min(cut, longest)
    space = max(room(longest, size), size)
    z, keys, index = np.empty(longest), np.empty(space), np.empty(space, np.int64)
    spare_keys, spare_index = np.empty(space), np.empty(space, np.int64)
    gain, chance = np.empty(space), np.empty(size + 2)
    for query in range(begin, end):
        start, n = ptr[query], ptr[query + 1] - ptr[query]
        for j in range(n):
            z[j] = scores[start + order[start + j]]
        size = n if ties == MEAN else min(cut, n)
        count = select(z, n, size, -np.inf, ties == WORST, keys, index, spare_keys, spare_index)
        for i in range(count):
            gain[i] = gains[start + index[i]]
        if ties == MEAN:
            value = mean_value(kind, weights, cut, keys, gain, count, chance)
        else:
            value = list_value(kind, weights, cut, gain, count)
        out[query] = scale[query] * value


@kernel
def order_range(order, gains, ptr, begin, end):
    """Where the documents of each query stand when the largest gain comes first; equal gains keep their order."""
    longest = 1
    for query in range(begin, end):
        longest = max(longest, ptr[query + 1] - ptr[query])
    keys, index = np.empty(longest), np.empty(longest, np.int64)
    spare_keys, spare_index = np.empty(longest), np.empty(longest, np.int64)
    for query in range(begin, end):
        start, n = ptr[query], ptr[query + 1] - ptr[query]
        for j in range(n):
            keys[j], index[j] = gains[start + j], j
        sort_descending(keys, index, n, spare_keys, spare_index)
        for j in range(n):
            order[start + j] = index[j]


@kernel
def ideal_range(out, ptr, gains, begin, end, kind, weights, cut):
    """The largest value of M in each query, whose gains stand in descending order."""
    for query in range(begin, end):
        start, stop = ptr[query], ptr[query + 1]
        out[query] = list_value(kind, weights, cut, gains[start:stop], stop - start)
