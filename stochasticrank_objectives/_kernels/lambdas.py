"""Lambdas: the derivatives of a pairwise logistic loss whose pairs weigh as much as a swap of the two would change.

With M = sum_i w_i F_i g_i as in `rules`, a swap of the documents at positions a < b changes M by |g_a - g_b| times

    PLAIN    |w_a - w_b|
    CASCADE  F_a |w_a - S - Q w_b|    S and Q: what the documents between earn, and the chance to get past them
    AVERAGE  |F_a w_a + S - F'_b w_b|    S: the weights of the relevant between; F'_b = F_a + how many these are

Discounts vanish from the cut on, so that all documents after it have the same coefficient and need no order, and a swap of
two of them changes nothing. A cascade ends likewise after the second document that stops it for certain.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._constants import AVERAGE, CASCADE, PLAIN, Array
from .gauss import LANES, LOG2_E, exp2_negative, whole_lanes
from .noise import fill_gumbels
from .noise import room as noise_room
from .policy import aligned, inline, inner, kernel, plain, reduction
from .selection import SORTED, TALLY, Sorting, extremes, make_sorting, second_largest_stop, select

LARGEST = 1e150  # scores are clipped here, so that their differences stay finite
_NEAR = 0.01  # added to the distance of two scores where it divides, as in LightGBM


class PairScratch(NamedTuple):
    """Arrays for one query after another. By document, in the order of falling gain: y scores with noise, noise. By
    position, the ranked documents first: place (which document), x scores in powers of two, gain, coefficient of the pairs
    with one other document, slope and curve (the derivatives so far).
    """

    y: Array
    noise: Array
    sorting: Sorting
    place: NDArray[np.int64]
    x: Array
    gain: Array
    coefficient: Array
    slope: Array
    curve: Array


def make_pair_scratch(n: int) -> PairScratch:
    """Room for queries of up to n documents."""
    lanes = plain(whole_lanes)(n)
    y, noise, place = aligned(n, plain(noise_room)(n), n)
    return PairScratch(y, noise, make_sorting(n), place.view(np.int64), *aligned(*[lanes] * 5))


@inline
def _load(s, scores, layout, pairs, query, sample):
    """The scores of one query, in the order of its gains, with noise."""
    begin, end = layout.ptr[query], layout.ptr[query + 1]
    rows, places = scores[begin:end], layout.order[begin:end]
    for j in range(end - begin):
        s.y[j] = min(max(rows[np.uint32(places[j])], -LARGEST), LARGEST)
    if pairs.noise > 0.0:
        fill_gumbels(s.noise, end - begin, pairs.key, layout.query_keys[query], sample)
        for j in range(end - begin):
            s.y[j] += pairs.noise * s.noise[j]


@inline
def _arrange(s, gains, n, size, kind, unit):
    """Rank the best `size` documents, ties in the worst order, and put the others behind, by falling gain; returns how many
    are ranked."""
    floor = second_largest_stop(s.y, gains, n) if kind == CASCADE else -np.inf
    count = select(s.y, n, size, floor, True, s.sorting)
    for i in range(count):
        s.place[i] = s.sorting.places[SORTED, i]
    if count < n:
        ranked = s.sorting.places[TALLY]
        for j in range(n):
            ranked[j] = 0
        for i in range(count):
            ranked[s.place[i]] = 1
        behind = count
        for j in range(n):
            if ranked[j] == 0:
                s.place[behind] = j
                behind += 1
    for i in range(n):
        s.x[i] = min(max(unit * s.y[s.place[i]], -LARGEST), LARGEST)
        s.gain[i] = gains[s.place[i]]
    s.slope[:n] = s.curve[:n] = 0.0
    for i in range(n, whole_lanes(n)):
        s.x[i] = s.gain[i] = s.coefficient[i] = s.slope[i] = s.curve[i] = 0.0
    return count


@inner
def _fill_distances(out, discounts, here):
    for b in range(len(out)):
        out[b] = abs(here - discounts[b])


@inline
def _fill_coefficients(out, a, rule, gain, top, factor, steps):
    """What a swap of position a with each one after it changes; `steps` adds to it by distance, if it has any."""
    kind, discounts = rule.kind, rule.discounts
    here = discounts[a]
    if kind == PLAIN:
        _fill_distances(out[a + 1 : top], discounts[a + 1 : top], here)
        behind = here
    elif kind == CASCADE:
        earned, chance = 0.0, 1.0
        for b in range(a + 1, top):
            out[b] = abs(factor * (here - earned - chance * discounts[b]))
            earned += chance * discounts[b] * gain[b]
            chance *= 1.0 - gain[b]
        behind = factor * (here - earned)
    else:
        earned, there = 0.0, factor
        for b in range(a + 1, top):
            out[b] = abs(factor * here + earned - there * discounts[b])
            earned += discounts[b] * gain[b]
            there += gain[b]
        behind = factor * here + earned
    out[top:] = abs(behind)
    if len(steps):
        _add_steps(out[a + 1 :], steps[1:])


@inner
def _add_steps(out, steps):
    for b in range(len(out)):
        out[b] += steps[b]


@inner
def _temper(out, x, x_a, unit):
    """LightGBM's normalisation of pairs: the further two scores are apart, the less their pair weighs."""
    for b in range(len(out)):
        out[b] /= _NEAR + abs(x_a - x[b]) * unit


# The loops that matter take slices and count from 0: an index that might be negative would keep them from vectorising.
@reduction
def _add_pairs(slope, curve, x, gain, coefficient, x_a, gain_a):
    """One document and each of those given, which stand after it or have no coefficient; returns the sums of what is added,
    and of the first derivatives' sizes.

    A pair's loss is log(1 + exp(-(s_i - s_j))), i the better document; with e = exp(-|s_i - s_j|) its derivative is
    -e/(1 + e) if i stands above j, else -1/(1 + e), and the second e/(1 + e)^2 (Burges 2010, sections 3 and 4).
    """
    total = total_curve = size = 0.0
    for b in range(len(x)):
        difference = gain_a - gain[b]
        e = exp2_negative(-abs(x_a - x[b]))
        share = 1.0 / (1.0 + e)
        weight = coefficient[b] * difference * share
        pull = weight * (e if difference > 0.0 else 1.0)
        bend = abs(weight) * e * share
        slope[b] += pull
        curve[b] += bend
        total += pull
        total_curve += bend
        size += abs(pull)
    return total, total_curve, size


@inline
def _add_lambdas(s, n, count, rule, steps, unit):
    """All pairs of one ranked query, tempered unless `unit` is 0; returns the sum of the first derivatives' sizes."""
    top = min(count, rule.cut)
    gainful = count  # documents without gain have no pairs with each other, and among those behind they come last
    while gainful < n and s.gain[gainful] > 0.0:
        gainful += 1
    factor, size = 1.0, 0.0
    for a in range(top):
        _fill_coefficients(s.coefficient[:n], a, rule, s.gain, top, factor, steps)
        if unit > 0.0:
            _temper(s.coefficient[a + 1 : n], s.x[a + 1 : n], s.x[a], unit)
        # Whole blocks, so that vectorised loops have no remainder; up to a, and past n, coefficients are 0.
        begin, end = a // LANES * LANES, whole_lanes(n if s.gain[a] > 0.0 else gainful)
        s.coefficient[begin : a + 1] = 0.0
        slope, curve, coefficient = s.slope[begin:end], s.curve[begin:end], s.coefficient[begin:end]
        total, bend, sizes = _add_pairs(slope, curve, s.x[begin:end], s.gain[begin:end], coefficient, s.x[a], s.gain[a])
        s.slope[a] -= total
        s.curve[a] += bend
        size += sizes
        if rule.kind == CASCADE:
            factor *= 1.0 - s.gain[a]
            if factor == 0.0:
                break
        elif rule.kind == AVERAGE:
            factor += s.gain[a]
    return size


@kernel
def lambda_range(s, gradient, hessian, scores, problem, queries):
    """Both derivatives of the loss for some queries, added to their rows. `problem` is a tuple: layout, rule and pairs."""
    layout, rule, pairs = problem
    unit = pairs.sigma * LOG2_E  # of the scores, in powers of two
    for a in range(len(queries)):
        query = queries[a]
        start, n = layout.ptr[query], layout.ptr[query + 1] - layout.ptr[query]
        for sample in range(pairs.samples):
            _load(s, scores, layout, pairs, query, sample)
            needed = n if len(pairs.steps) else min(rule.cut, n)
            count = _arrange(s, rule.gains[start : start + n], n, needed, rule.kind, unit)
            lowest, highest = extremes(s.y, n)
            size = _add_lambdas(s, n, count, rule, pairs.steps, 1.0 / unit if pairs.norm and lowest < highest else 0.0)
            first = rule.multipliers[query] * pairs.sigma
            if pairs.norm and size > 0.0:  # LightGBM's normalisation of queries: the sum of all sizes becomes log2(1 + sum)
                both = 2.0 * first * size
                first *= np.log2(1.0 + both) / both
            first *= pairs.query_weights[query] / pairs.samples
            rows = layout.order[start : start + n]
            for i in range(n):
                row = start + rows[s.place[i]]
                gradient[row] += first * s.slope[i]
                hessian[row] += pairs.sigma * first * s.curve[i]
