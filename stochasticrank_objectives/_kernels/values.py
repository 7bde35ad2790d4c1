"""Values of metrics, with documents of equal scores in the worst, the best or the mean order."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .._constants import MEAN, WORST, Array
from .policy import kernel
from .rules import list_value, mean_value
from .selection import SORTED, Sorting, make_sorting, select


class ValueScratch(NamedTuple):
    """Arrays for one query after another: z scores in the order of falling gain, and of the sorted list its gains and, for
    ties in the mean order, chances."""

    z: Array
    sorting: Sorting
    gain: Array
    chance: Array


def make_value_scratch(n: int) -> ValueScratch:
    """Room for queries of up to n documents."""
    return ValueScratch(np.empty(n), make_sorting(n), np.empty(n), np.empty(n + 2))


@kernel
def value_range(s, out, scores, layout, rule, ties, queries):
    """The metric of some queries, ties ranked as told."""
    z, gain, places = s.z, s.gain, s.sorting.places[SORTED]
    for a in range(len(queries)):
        query = queries[a]
        start, n = layout.ptr[query], layout.ptr[query + 1] - layout.ptr[query]
        for j in range(n):
            z[j] = scores[start + layout.order[start + j]]
        size = n if ties == MEAN else min(rule.cut, n)
        count = select(z, n, size, -np.inf, ties == WORST, s.sorting)
        for i in range(count):
            gain[i] = rule.gains[start + places[i]]
        if ties == MEAN:
            value = mean_value(rule, s.sorting.values[SORTED], gain, count, s.chance)
        else:
            value = list_value(rule, gain, count)
        out[query] = rule.multipliers[query] * value
