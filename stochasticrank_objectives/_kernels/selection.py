"""The best documents of a query in descending order: by counting for a short list, by buckets or merging for a long one."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._constants import Array
from .policy import inner, reduction, table, wide

FEW = 64  # up to this many candidates, a multiple of 8, counting who is better beats any sorting
_MARGIN = 16  # how many more than are wanted a bound must be allowed to let through, for it to be found in a few steps
_RUN = 12
_FULL = 24  # keys in a bucket, beyond which sorting within buckets takes too long


SORTED, SPARE, TALLY = range(3)  # rows of the arrays below


class Sorting(NamedTuple):
    """Values and the place of each among those given: a row in which they are sorted, and rows to work in."""

    values: Array
    places: NDArray[np.int64]


def make_sorting(n: int) -> Sorting:
    """Arrays to sort up to n values, or to find the best of them."""
    room = max(n, FEW)
    return Sorting(table(2, room), table(3, room).view(np.int64))


@inner
def _sort_run(values, places, begin, end):
    for i in range(begin + 1, end):
        value, place = values[i], places[i]
        p = i
        while p > begin and values[p - 1] < value:
            values[p], places[p] = values[p - 1], places[p - 1]
            p -= 1
        values[p], places[p] = value, place


@reduction
def extremes(values, n):
    """The smallest and the largest of values[:n]."""
    low, high = np.inf, -np.inf
    for j in range(n):
        low, high = min(low, values[j]), max(high, values[j])
    return low, high


@inner
def _into_buckets(s, n):
    """Bring values nearly into descending order, by buckets of equal width; equal values keep their order.

    Returns False, and leaves them as they are, if they are too unevenly spread for that.
    """
    values, spare_values = s.values[SORTED], s.values[SPARE]
    places, bucket_of, tally = s.places[SORTED], s.places[SPARE], s.places[TALLY]
    low, high = extremes(values, n)
    if not 1e-290 < high - low < 1e290:
        return False
    density = (n - 1) / (high - low)
    for j in range(n):
        bucket_of[j] = np.int64(min((high - values[j]) * density, n - 1.0))
        tally[j] = 0
    fullest = 0
    for j in range(n):
        bucket = np.uint32(bucket_of[j])
        tally[bucket] += 1
        fullest = max(fullest, tally[bucket])
    if fullest > _FULL:
        return False
    before = 0
    for bucket in range(n):
        size = tally[bucket]
        tally[bucket] = before
        before += size
    for j in range(n):
        bucket = np.uint32(bucket_of[j])
        bucket_of[j] = tally[bucket]
        spare_values[np.uint32(tally[bucket])] = values[j]
        tally[bucket] += 1
    for j in range(n):  # the tally has done its work: room for the places
        tally[np.uint32(bucket_of[j])] = places[j]
    for j in range(n):
        values[j], places[j] = spare_values[j], tally[j]
    return True


@inner
def sort_descending(s, n):
    """Sort the first n values, and their places with them, in descending order; equal values keep their order."""
    values, places = s.values[SORTED], s.places[SORTED]
    if n > _RUN and _into_buckets(s, n):
        _sort_run(values, places, np.int64(0), n)
        return
    for begin in range(0, n, _RUN):
        _sort_run(values, places, begin, min(begin + _RUN, n))
    a_values, a_places, b_values, b_places = values, places, s.values[SPARE], s.places[SPARE]
    width = _RUN
    swapped = False
    while width < n:
        for begin in range(0, n, 2 * width):
            middle, end = min(begin + width, n), min(begin + 2 * width, n)
            left, right = begin, middle
            for p in range(begin, end):
                if right >= end or (left < middle and a_values[left] >= a_values[right]):
                    b_values[p], b_places[p] = a_values[left], a_places[left]
                    left += 1
                else:
                    b_values[p], b_places[p] = a_values[right], a_places[right]
                    right += 1
        a_values, a_places, b_values, b_places = b_values, b_places, a_values, a_places
        swapped = not swapped
        width *= 2
    if swapped:
        for p in range(n):
            values[p], places[p] = a_values[p], a_places[p]


@reduction
def _moments(values, n):
    first = second = 0.0
    for j in range(n):
        first += values[j]
        second += values[j] * values[j]
    return first / n, second / n


@reduction
def reaching(values, n, bound):
    """How many of values[:n] are at least `bound`."""
    count = 0
    for j in range(n):
        count += 1 if values[j] >= bound else 0
    return count


@inner
def _lower_bound(values, n, size):
    """A value that at least `size` of values[:n] reach, and usually few more.

    The first guess is where a little more than `size` would be if the values were normal (Abramowitz & Stegun 26.2.22);
    from there a bisection, by counting.
    """
    mean, square = _moments(values, n)
    deviation = math.sqrt(max(square - mean * mean, 0.0))
    enough = FEW if size <= FEW - _MARGIN else 2 * size + 4
    t = math.sqrt(-2.0 * math.log((1.25 * size + 1.0) / n))
    guess = mean + deviation * (t - (2.30753 + 0.27061 * t) / (1.0 + t * (0.99229 + 0.04481 * t)))
    low, high = -np.inf, mean + 4.0 * deviation
    for _ in range(8):
        count = reaching(values, n, guess)
        if count < size:
            high = guess
            guess = mean if low == -np.inf and guess > mean else 0.5 * (max(low, mean - 4.0 * deviation) + high)
        elif count <= enough:
            return guess
        else:
            low = guess
            guess = 0.5 * (low + high)
    return low


@inner
def _count_better(some, ranks, count, reverse):
    """For each of some[:count], how many stand before it."""
    wide()
    for a in range(count):
        ranks[a] = 0
    for b in range(count):
        value = some[b]
        if reverse:
            for a in range(count):
                ranks[a] += 1 if (value > some[a]) | ((value == some[a]) & (b > a)) else 0
        else:
            for a in range(count):
                ranks[a] += 1 if (value > some[a]) | ((value == some[a]) & (b < a)) else 0


@inner
def select(values, n, size, floor, reverse, s):
    """The `size` largest of values[:n] that are at least `floor`, in descending order, into `s`; returns how many there are.

    Among equal values the one with the smaller place stands first, or the larger with `reverse`.
    """
    if n > 4 * size or (n > FEW and size <= FEW - _MARGIN):
        floor = max(floor, _lower_bound(values, n, size))
    best, places, chosen = s.values[SORTED], s.places[SORTED], s.places[SPARE]
    count = np.int64(0)
    for j in range(n):  # without a branch: who passes is hard to predict
        chosen[count] = j
        count += 1 if values[j] >= floor else 0
    if count > FEW:
        for a in range(count):
            j = chosen[count - 1 - a if reverse else a]
            best[a], places[a] = values[j], j
        sort_descending(s, count)
        return min(count, size)
    # Put each of a few where the number of better ones says: no branch depends on their order.
    some, ranks = s.values[SPARE], s.places[TALLY]
    for a in range(count):
        some[a] = values[np.uint32(chosen[a])]
    full = (count + 7) // 8 * 8  # so that a vectorised loop has no scalar remainder
    for a in range(count, full):
        some[a] = -np.inf
    _count_better(some, ranks, full, reverse)
    for a in range(count):
        if ranks[a] < size:
            best[ranks[a]], places[ranks[a]] = some[a], chosen[a]
    return min(count, size)


@inner
def second_largest_stop(values, gain, n):
    """The second largest value among the documents at which a cascade stops for certain (gain 1), or -inf."""
    best = second = -np.inf
    for j in range(n):
        if gain[j] >= 1.0:
            value = values[j]
            if value > best:
                best, second = value, best
            elif value > second:
                second = value
    return second
