"""The entry points: gradients and values of whole ranges of queries.

A query's documents are held with the largest gain first (`order` says where each stands in the data), so documents without
gain are at the end, and reading them forwards or backwards is the best or the worst order of ties.

A gradient goes through the steps load, draw, rank, add and finish. `gradient_range` takes many queries through all of them,
`long_range` likewise with the fast Gauss transform where many documents can jump; a single huge query is taken through them
one by one (`load_one`, ...), so that threads can share each step.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._constants import CASCADE, FAST_FROM, MEAN, PLAIN, WORST, Array
from .gauss import (
    KAPPA,
    LANES,
    SPARSE,
    TERMS,
    WORK,
    add_boxes,
    add_crossing,
    add_passing,
    cross,
    cross_all,
    make_boxes,
    padded,
    pass_boxes,
)
from .noise import fill_normals
from .noise import padded as noise_padded
from .policy import aligned, inline, inner, kernel, reduction, spliced
from .rules import fill_jumps, list_value, mean_value
from .selection import Sorting, make_sorting, room, second_largest_stop, select, sort_descending

FEW_PASSED = 6  # sources from which on it pays to make boxes

_LARGEST = 1e150  # scores are clipped here, so that no square overflows
_DENSITY = 1.0 / math.sqrt(2.0 * math.pi)


class Scratch(NamedTuple):
    """Arrays for one query after another.

    By document, in the order of falling gain: z centred scores, x where the documents are without noise, y with it, gain,
    noise, total (the gradient so far). By position in the list sorted by y: top_y, place (which document), and of those that
    can jump top_x, top_gain, top_total, survival, q_below, q_above.
    """

    z: Array
    x: Array
    y: Array
    gain: Array
    noise: Array
    total: Array
    top_y: Array
    place: NDArray[np.int64]
    spare_y: Array
    spare_index: NDArray[np.int64]
    tally: NDArray[np.int64]
    top_x: Array
    top_gain: Array
    top_total: Array
    survival: Array
    q_below: Array
    q_above: Array
    starts: NDArray[np.int64]
    series: Array
    work: Array


def make_scratch(n: int, cut: int, long: bool) -> Scratch:
    """Room for queries of up to n documents; `long` for those in which more than FAST_FROM may jump."""
    wide = noise_padded.py_func(n)
    space = padded.py_func(n) + LANES if long else padded.py_func(room.py_func(n, min(cut + 1, n)))
    boxes = (n if long else min(cut, n)) // SPARSE + 2
    z, x, y, gain, noise, total, spare_index = aligned(*[wide] * 7)
    top_y, place, spare_y, tally, top_x, top_gain, top_total, survival, q_below, q_above = aligned(*[space] * 10)
    starts, series, work = aligned(boxes + 1, boxes * 4 * TERMS, WORK)
    top_gain[:], survival[:] = 0.0, 1.0
    return Scratch(
        z, x, y, gain, noise, total, top_y, place.view(np.int64), spare_y, spare_index.view(np.int64), tally.view(np.int64),
        top_x, top_gain, top_total, survival, q_below, q_above, starts.view(np.int64), series.reshape(boxes, -1), work,
    )  # fmt: skip


def make_work() -> Array:
    """Room that each thread which shares a huge query needs for itself."""
    return aligned(WORK)[0]


@spliced
def _begin(s, kind, weights, cut):
    """Fill what is the same for every query."""
    if kind == PLAIN:
        fill_jumps(kind, weights, cut, s.top_gain, len(s.top_gain), s.q_below, s.q_above)


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


@spliced
def _load(s, scores, order, gains, relevance, begin, n, sigma, mu):
    """Centre the scores of one query, in the order of its gains, and place them: x = kappa (z/sigma - mu r).

    Returns whether the scores have a finite sum, which proves that all of them are finite.
    """
    z, x, gain, total = s.z, s.x, s.gain, s.total
    rows, places, known = scores[begin : begin + n], order[begin : begin + n], gains[begin : begin + n]
    reference = rows[0]
    for j in range(n):
        z[j] = min(max(rows[np.uint32(places[j])] - reference, -_LARGEST), _LARGEST)
        gain[j] = known[j]
    mean = _sum(z, n) / n
    scale = KAPPA / sigma
    for j in range(n):
        z[j] -= mean
        x[j] = min(max(z[j] * scale, -_LARGEST), _LARGEST)
        total[j] = 0.0
    if mu > 0.0:
        shift = KAPPA * mu
        shifts = relevance[begin : begin + n]
        for j in range(n):
            x[j] -= shift * shifts[j]
    for j in range(n, padded(n)):
        x[j] = gain[j] = total[j] = 0.0
    return math.isfinite(_sum(rows, n))


@spliced
def _draw(s, n, key, query_key, sample, begin, end):
    """Noise blocks begin..end of the query, and where they move its documents."""
    fill_normals(s.noise, n, key, query_key, sample, begin, end)
    stride = noise_padded(n) // 4
    for lane in range(4):
        x, y = s.x[lane * stride : (lane + 1) * stride], s.y[lane * stride : (lane + 1) * stride]
        noise = s.noise[lane * stride : (lane + 1) * stride]
        for block in range(begin, end):
            y[block] = x[block] + KAPPA * noise[block]


@spliced
def _sort(s, values, n, size, floor, worst):
    """Sort the best `size` documents and fetch their gains; returns how many there are."""
    place, gain, top_gain = s.place, s.gain, s.top_gain
    count = select(values, n, size, floor, worst, s.top_y, place, s.spare_y, s.spare_index, s.tally)
    for i in range(count):
        top_gain[i] = gain[place[i]]
    return count


@spliced
def _set_apart(s, kind, served):
    """The first `served` documents of the sorted list, in its order."""
    place, x, total = s.place, s.x, s.total
    top_x, top_total, top_gain, survival = s.top_x, s.top_total, s.top_gain, s.survival
    for i in range(served):
        top_x[i] = x[place[i]]
        top_total[i] = total[place[i]]
    if kind == CASCADE:
        for i in range(served):
            survival[i] = 1.0 / (1.0 - top_gain[i]) if top_gain[i] < 1.0 else 1.0
    for i in range(served, padded(served)):
        top_x[i] = 0.0


@spliced
def _rank(s, n, kind, weights, cut, size):
    """Sort the best `size`, fill the jumps, set the first `top` apart; returns (top, last, reach) of `fill_jumps`."""
    floor = second_largest_stop(s.y, s.gain, n) if kind == CASCADE else -np.inf
    count = _sort(s, s.y, n, size, floor, False)
    top, last, reach = min(cut, count), min(cut + 1, count) - 1, -1
    if kind != PLAIN:
        top, last, reach = fill_jumps(kind, weights, cut, s.top_gain, count, s.q_below, s.q_above)
    _set_apart(s, kind, top)
    return top, last, reach


@spliced
def _rank_long(s, n, kind, weights, cut):
    """As `_rank`, and the number of boxes: if there are any, the whole query is sorted and set apart."""
    size = min(cut + 1, n)
    # Hardly anybody gets far down a cascade: try with its beginning, which tells if that was all.
    first = min(2 * FAST_FROM, size) if kind == CASCADE else size
    top, last, reach = _rank(s, n, kind, weights, cut, first)
    if first < size and max(last, reach) >= first - 1:
        top, last, reach = _rank(s, n, kind, weights, cut, size)
    if last < FAST_FROM:
        return top, last, reach, 0
    if cut + 1 < n or kind == CASCADE:
        _sort(s, s.y, n, n, -np.inf, False)
    _set_apart(s, kind, n)
    boxes = make_boxes(s.top_y, s.top_gain, s.q_below, s.q_above, True, last + 1, s.starts, s.series, s.work)
    return top, last, reach, boxes


@spliced
def _box_top(s, n, top):
    """Boxes of the first `top`, if others pass them and they are enough for it to pay; returns how many boxes."""
    if top == n or top < FEW_PASSED:
        return 0
    return make_boxes(s.top_y, s.top_gain, s.q_below, s.q_above, False, top, s.starts, s.series, s.work)


@spliced
def _add_rest(s, relevant, top, passed, work, begin, end):
    """Documents begin..end pass the first `top`; documents without gain have nothing to win from each other."""
    total, x, gain, y, top_gain, q_below = s.total, s.x, s.gain, s.top_y, s.top_gain, s.q_below
    if passed:
        pass_boxes(total, x, gain, begin, end, y, top_gain, q_below, passed, s.starts, s.series, work)
        return
    for m in range(top):
        if q_below[m] != 0.0:
            stop = end if top_gain[m] != 0.0 else min(end, padded(relevant))
            add_passing(total, x, gain, begin, stop, y[m], top_gain[m], q_below[m])


@spliced
def _add_top(s, top, last):
    """The first `top` documents cross each other and the one after them."""
    total, x, y, gain, survival = s.top_total, s.top_x, s.top_y, s.top_gain, s.survival
    q_below, q_above = s.q_below, s.q_above
    if top > LANES:
        cross_all(total, x, y, gain, survival, padded(top), last + 1, q_below, q_above)
        return
    size = padded(top)
    for m in range(last + 1):
        if q_below[m] != 0.0 or q_above[m] != 0.0:
            cross(total, x, gain, survival, size, m, y[m], gain[m], q_below[m], q_above[m])


@spliced
def _add_fast(s, n, boxes, work, begin, end):
    """Sorted documents begin..end cross all that can jump, by boxes."""
    add_boxes(
        s.top_total, s.top_x, s.top_y, s.top_gain, s.survival, n, s.q_below, s.q_above,
        boxes, s.starts, s.series, work, begin, end,
    )  # fmt: skip


@spliced
def _add(s, n, relevant, top, boxes, passed, work, begin, end):
    """Documents begin..end, or positions if there are boxes, pass what they can; the `top` apart if there are none."""
    if boxes:
        _add_fast(s, n, boxes, work, begin, min(end, n))
    elif top < n:
        _add_rest(s, relevant, top, passed, work, begin, min(end, padded(n)))


@spliced
def _settle(s, top, reach, served):
    """The document that ends a cascade passes those after it; then the sorted documents' sums go back to their places."""
    total, place, top_total, top_x, y = s.total, s.place, s.top_total, s.top_x, s.top_y
    gain, survival, q_below, q_above = s.top_gain, s.survival, s.q_below, s.q_above
    for m in range(top, reach + 1):
        add_crossing(top_total, top_x, gain, survival, top - 1, top, m, y[m], gain[m], q_below[m], q_above[m])
    for i in range(served):
        total[place[i]] = top_total[i]


@inner
def _project(total, z, n, nu, strength):
    """Scale-free acceleration: centre the gradient and take away its part along the (centred) scores."""
    mean = _sum(total, n) / n
    largest = 0.0
    for j in range(n):
        total[j] -= mean
        largest = max(largest, abs(z[j]))
    if n == 2 or largest < 1e-290:
        return
    if not 1e-100 < largest < 1e100:  # so that no square overflows or vanishes
        for j in range(n):
            z[j] /= largest
        nu /= largest
    norm = math.sqrt(_dot(z, z, n)) + nu
    along = strength * _dot(total, z, n) / norm / norm
    for j in range(n):
        total[j] -= along * z[j]


@spliced
def _finish(s, out, order, begin, n, nu, strength, factor):
    """Project, scale, and put the gradient where the documents stand in the data."""
    total = s.total
    if strength > 0.0:
        _project(total, s.z, n, nu, strength)
    rows, places = out[begin : begin + n], order[begin : begin + n]
    for j in range(n):
        rows[np.uint32(places[j])] = factor * total[j]


@inline
def _factor(scale, sigma, samples):
    """From the sum of jumps times powers of two to the gradient of the loss."""
    return -scale * _DENSITY / (sigma * samples)


@kernel
def gradient_range(
    s, out, suspicious, scores, ptr, order, gains, relevance, relevant, scale, keys, active, begin, end,
    kind, weights, cut, sigma, mu, nu, strength, samples, key,
):  # fmt: skip
    """The CCS gradient of the loss for the queries active[begin:end], into their rows of `out`."""
    _begin(s, kind, weights, cut)
    for a in range(begin, end):
        query = active[a]
        start, n = ptr[query], ptr[query + 1] - ptr[query]
        if not _load(s, scores, order, gains, relevance, start, n, sigma, mu):
            suspicious[0] = True
        for sample in range(samples):
            _draw(s, n, key, keys[query], sample, 0, noise_padded(n) // 4)
            top, last, reach = _rank(s, n, kind, weights, cut, min(cut + 1, n))
            if top < n:
                _add_rest(s, relevant[query], top, _box_top(s, n, top), s.work, 0, padded(n))
            _add_top(s, top, last)
            _settle(s, top, reach, top)
        _finish(s, out, order, start, n, nu, strength, _factor(scale[query], sigma, samples))


@kernel
def long_range(
    s, out, suspicious, scores, ptr, order, gains, relevance, relevant, scale, keys, active, begin, end,
    kind, weights, cut, sigma, mu, nu, strength, samples, key,
):  # fmt: skip
    """As `gradient_range`, for queries in which more than FAST_FROM documents may jump."""
    _begin(s, kind, weights, cut)
    for a in range(begin, end):
        query = active[a]
        start, n = ptr[query], ptr[query + 1] - ptr[query]
        if not _load(s, scores, order, gains, relevance, start, n, sigma, mu):
            suspicious[0] = True
        for sample in range(samples):
            _draw(s, n, key, keys[query], sample, 0, noise_padded(n) // 4)
            top, last, reach, boxes = _rank_long(s, n, kind, weights, cut)
            passed = 0 if boxes else _box_top(s, n, top)
            _add(s, n, relevant[query], top, boxes, passed, s.work, 0, padded(n))
            if boxes == 0:
                _add_top(s, top, last)
            _settle(s, top, reach, n if boxes else top)
        _finish(s, out, order, start, n, nu, strength, _factor(scale[query], sigma, samples))


@kernel
def reinforce_range(
    s, out, suspicious, scores, ptr, order, gains, relevance, relevant, scale, keys, active, begin, end,
    kind, weights, cut, sigma, mu, nu, strength, samples, key,
):  # fmt: skip
    """The REINFORCE estimate (M(y) - M(z)) noise/sigma instead; M(z) takes the worst order of ties."""
    _begin(s, kind, weights, cut)
    for a in range(begin, end):
        query = active[a]
        start, n = ptr[query], ptr[query + 1] - ptr[query]
        size = min(cut + 1, n)
        if not _load(s, scores, order, gains, relevance, start, n, sigma, mu):
            suspicious[0] = True
        baseline = list_value(kind, weights, cut, s.top_gain, _sort(s, s.z, n, size, -np.inf, True))
        for sample in range(samples):
            _draw(s, n, key, keys[query], sample, 0, noise_padded(n) // 4)
            change = list_value(kind, weights, cut, s.top_gain, _sort(s, s.y, n, size, -np.inf, False)) - baseline
            total, noise = s.total, s.noise
            for j in range(n):
                total[j] += change * noise[j]
        _finish(s, out, order, start, n, nu, strength, -scale[query] / (sigma * samples))


@kernel
def load_one(s, scores, order, gains, relevance, begin, n, kind, weights, cut, sigma, mu):
    """Step 1 of a huge query."""
    _begin(s, kind, weights, cut)
    return _load(s, scores, order, gains, relevance, begin, n, sigma, mu)


@kernel
def draw_one(s, n, key, query_key, sample, begin, end):
    """Step 2, in ranges of noise blocks."""
    _draw(s, n, key, query_key, sample, begin, end)


@kernel
def rank_one(s, n, kind, weights, cut):
    """Step 3; returns (top, last, reach, boxes, passed): all that the threads of step 4 share is made here."""
    boxes = 0
    if min(cut + 1, n) > FAST_FROM:
        top, last, reach, boxes = _rank_long(s, n, kind, weights, cut)
    else:
        top, last, reach = _rank(s, n, kind, weights, cut, min(cut + 1, n))
    return top, last, reach, boxes, 0 if boxes else _box_top(s, n, top)


@kernel
def add_one(s, n, relevant, top, boxes, passed, work, begin, end):
    """Step 4, in ranges of documents or, with boxes, of positions; multiples of LANES. `work` is each thread's own."""
    _add(s, n, relevant, top, boxes, passed, work, begin, end)


@kernel
def finish_one(s, out, order, begin, n, top, last, reach, boxes, nu, strength, factor, is_last):
    """Step 5: the end of a sample, and after the last one of the query."""
    if boxes == 0:
        _add_top(s, top, last)
    _settle(s, top, reach, n if boxes else top)
    if is_last:
        _finish(s, out, order, begin, n, nu, strength, factor * _DENSITY)


class ValueScratch(NamedTuple):
    """Arrays for one query after another: z scores in the order of falling gain, and of the sorted list its gains and, for
    ties in the mean order, chances."""

    z: Array
    sorting: Sorting
    gain: Array
    chance: Array


def make_value_scratch(n: int, cut: int, ties: int) -> ValueScratch:
    """Room for queries of up to n documents."""
    size = n if ties == MEAN else min(cut, n)
    sorting = make_sorting(n, size)
    return ValueScratch(np.empty(n), sorting, np.empty(len(sorting.keys)), np.empty(size + 2))


@kernel
def value_range(s, out, scores, ptr, order, gains, scale, begin, end, kind, weights, cut, ties):
    """The metric of the queries begin..end, ties ranked as told."""
    z, gain, chance = s.z, s.gain, s.chance
    keys, index, spare_keys, spare_index, tally = s.sorting
    for query in range(begin, end):
        start, n = ptr[query], ptr[query + 1] - ptr[query]
        for j in range(n):
            z[j] = scores[start + order[start + j]]
        size = n if ties == MEAN else min(cut, n)
        count = select(z, n, size, -np.inf, ties == WORST, keys, index, spare_keys, spare_index, tally)
        for i in range(count):
            gain[i] = gains[start + index[i]]
        if ties == MEAN:
            value = mean_value(kind, weights, cut, keys, gain, count, chance)
        else:
            value = list_value(kind, weights, cut, gain, count)
        out[query] = scale[query] * value


@kernel
def order_range(s, order, gains, ptr, begin, end):
    """Where the documents of each query stand when the largest gain comes first; equal gains keep their order."""
    keys, index, spare_keys, spare_index, tally = s
    for query in range(begin, end):
        start, n = ptr[query], ptr[query + 1] - ptr[query]
        for j in range(n):
            keys[j], index[j] = gains[start + j], j
        sort_descending(keys, index, n, spare_keys, spare_index, tally)
        for j in range(n):
            order[start + j] = index[j]


@kernel
def ideal_range(out, ptr, gains, begin, end, kind, weights, cut):
    """The largest value of M in each query, whose gains stand in descending order."""
    for query in range(begin, end):
        start, stop = ptr[query], ptr[query + 1]
        out[query] = list_value(kind, weights, cut, gains[start:stop], stop - start)
