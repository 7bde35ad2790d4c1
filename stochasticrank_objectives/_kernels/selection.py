"""The best documents of a query in descending order: selection for a short list, a merge sort for a long one."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._constants import Array
from .policy import aligned, inner, reduction, wide

INSERTION = 32  # up to this many, an insertion into a sorted list beats sorting
FEW = 64  # up to this many candidates, a multiple of 8, counting who is better beats any sorting
_RUN = 12
_FULL = 24  # keys in a bucket, beyond which sorting within buckets takes too long


@inner
def _sort_run(keys, index, begin, end):
    for i in range(begin + 1, end):
        key, at = keys[i], index[i]
        p = i
        while p > begin and keys[p - 1] < key:
            keys[p], index[p] = keys[p - 1], index[p - 1]
            p -= 1
        keys[p], index[p] = key, at


@reduction
def extremes(values, n):
    """The smallest and the largest of values[:n]."""
    low, high = np.inf, -np.inf
    for j in range(n):
        low, high = min(low, values[j]), max(high, values[j])
    return low, high


@inner
def _into_buckets(keys, index, n, spare_keys, spare_index, tally):
    """Bring keys nearly into descending order, by buckets of equal width; equal keys keep their order.

    Returns False, and leaves them as they are, if they are too unevenly spread for that.
    """
    low, high = extremes(keys, n)
    if not 1e-290 < high - low < 1e290:
        return False
    scale = (n - 1) / (high - low)
    for j in range(n):
        spare_index[j] = np.int64(min((high - keys[j]) * scale, n - 1.0))
        tally[j] = 0
    fullest = 0
    for j in range(n):
        bucket = np.uint32(spare_index[j])
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
        bucket = np.uint32(spare_index[j])
        spare_index[j] = tally[bucket]
        spare_keys[np.uint32(tally[bucket])] = keys[j]
        tally[bucket] += 1
    for j in range(n):  # the tally has done its work: room for the index
        tally[np.uint32(spare_index[j])] = index[j]
    for j in range(n):
        keys[j], index[j] = spare_keys[j], tally[j]
    return True


@inner
def sort_descending(keys, index, n, spare_keys, spare_index, tally):
    """Sort n keys, and their index with them, in descending order; equal keys keep their order."""
    if n > _RUN and _into_buckets(keys, index, n, spare_keys, spare_index, tally):
        _sort_run(keys, index, np.int64(0), n)
        return
    for begin in range(0, n, _RUN):
        _sort_run(keys, index, begin, min(begin + _RUN, n))
    a_keys, a_index, b_keys, b_index = keys, index, spare_keys, spare_index
    width = _RUN
    swapped = False
    while width < n:
        for begin in range(0, n, 2 * width):
            middle, end = min(begin + width, n), min(begin + 2 * width, n)
            left, right = begin, middle
            for p in range(begin, end):
                if right >= end or (left < middle and a_keys[left] >= a_keys[right]):
                    b_keys[p], b_index[p] = a_keys[left], a_index[left]
                    left += 1
                else:
                    b_keys[p], b_index[p] = a_keys[right], a_index[right]
                    right += 1
        a_keys, a_index, b_keys, b_index = b_keys, b_index, a_keys, a_index
        swapped = not swapped
        width *= 2
    if swapped:
        for p in range(n):
            keys[p], index[p] = a_keys[p], a_index[p]


@inner
def room(n, size):
    """How long `keys`, `index`, `spare_keys` and `tally` must be for `select`; `spare_index` needs n."""
    return FEW if size <= INSERTION else max(FEW, min(n, 2 * size))


class Sorting(NamedTuple):
    """Arrays that `select` and `sort_descending` need: the sorted keys and their index, and room to work in."""

    keys: Array
    places: NDArray[np.int64]
    spare_keys: Array
    spare_index: NDArray[np.int64]
    tally: NDArray[np.int64]


def make_sorting(n: int, size: int) -> Sorting:
    """Arrays to find the `size` best of up to n."""
    space = room.py_func(n, size)
    keys, index, spare_keys, spare_index, tally = aligned(space, space, space, n, space)
    return Sorting(keys, index.view(np.int64), spare_keys, spare_index.view(np.int64), tally.view(np.int64))


@reduction
def _moments(values, n):
    first = second = 0.0
    for j in range(n):
        first += values[j]
        second += values[j] * values[j]
    return first / n, second / n


@reduction
def _reaching(values, n, bound):
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
    enough = 2 * size + 4
    t = math.sqrt(-2.0 * math.log((1.25 * size + 1.0) / n))
    guess = mean + deviation * (t - (2.30753 + 0.27061 * t) / (1.0 + t * (0.99229 + 0.04481 * t)))
    low, high = -np.inf, mean + 4.0 * deviation
    for _ in range(8):
        count = _reaching(values, n, guess)
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
def _insert(keys, index, count, size, value, j):
    """Put a value into a sorted list of at most `size`; returns the new length."""
    if count == size and value <= keys[size - 1]:
        return count
    p = count if count < size else size - 1
    while p > 0 and keys[p - 1] < value:
        keys[p], index[p] = keys[p - 1], index[p - 1]
        p -= 1
    keys[p], index[p] = value, j
    return min(count + 1, size)


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
def _by_counting(values, candidates, size, reverse, keys, index, some, chosen, ranks):
    """Put each of a few candidates where the number of better ones says: no branch depends on their order."""
    for a in range(candidates):
        some[a] = values[np.uint32(chosen[a])]
    full = (candidates + 7) // 8 * 8  # so that a vectorised loop has no scalar remainder
    for a in range(candidates, full):
        some[a] = -np.inf
    _count_better(some, ranks, full, reverse)
    for a in range(candidates):
        rank = ranks[a]
        if rank < size:
            keys[rank], index[rank] = some[a], chosen[a]
    return min(candidates, size)


@inner
def select(values, n, size, floor, reverse, keys, index, spare_keys, spare_index, tally):
    """The `size` largest of values[:n] that are at least `floor`, in descending order; returns how many there are.

    Among equal values the one with the smaller index stands first, or the larger with `reverse`.
    """
    count = np.int64(0)
    if size <= INSERTION:
        if n > 4 * size:
            floor = max(floor, _lower_bound(values, n, size))
        candidates = np.int64(0)
        for j in range(n):  # without a branch: who passes is hard to predict
            spare_index[candidates] = j
            candidates += 1 if values[j] >= floor else 0
        if candidates <= FEW:
            return _by_counting(values, candidates, size, reverse, keys, index, spare_keys, spare_index, tally)
        for step in range(candidates):
            j = spare_index[candidates - 1 - step if reverse else step]
            count = _insert(keys, index, count, size, values[j], j)
        return count
    limit = min(n, 2 * size)
    full = False
    for step in range(n):
        j = n - 1 - step if reverse else step
        value = values[j]
        if value < floor or (full and value <= floor):
            continue
        if count == limit:  # the buffer holds twice what is asked for: keep its better half
            sort_descending(keys, index, count, spare_keys, spare_index, tally)
            count, full = size, True
            floor = keys[size - 1]
            if value <= floor:
                continue
        keys[count], index[count] = value, j
        count += 1
    sort_descending(keys, index, count, spare_keys, spare_index, tally)
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
