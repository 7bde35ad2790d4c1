"""What a metric is to the kernels: a rule that turns a sorted list into jump coefficients and a value.

Every metric here is M = sum_i w_i F_i g_i over positions i, with discounts w that vanish from the cut on. When a document j
passes u, the document at position m of the list without j, M jumps by

    D(j, m) = F_m (w_m - w_{m+1}) (g_j - g_u)

PLAIN    F = 1 (DCG, NDCG, RBP, precision, recall)
CASCADE  F_m = prod_{l<m} (1 - g_l), the chance that nothing before m satisfied (ERR, MRR, PFound, hit)
AVERAGE  F_m = 1 + how many relevant stand before m; gains are 0 or 1 (MAP)

For a document that stands above u the list without it has u one position higher, and F lacks its own part. With c
relevant documents before u, AVERAGE needs c - g_j + 1, which is c + g_u wherever the jump is not zero (g_j != g_u).
"""

from __future__ import annotations

from .._constants import AVERAGE, CASCADE, PLAIN
from .policy import inner

_NEGLIGIBLE = 1e-30  # a chance to get this far that no longer matters


@inner
def fill_jumps(rule, gain, count, below, above):
    """Fill the coefficients of a sorted list of `count` gains; returns (top, last, reach).

    top    positions 0..top-1 are the ones that a document from below can pass with a jump;
    last   the documents among them pass positions up to and including `last` from above;
    reach  if a document that ends the cascade stands at top-1 (gain 1: it has no inverse continuation), then it alone
           passes positions up to `reach` from above; else -1.
    """
    kind, discounts, cut = rule.kind, rule.discounts, rule.cut
    factor = 1.0
    stop = -1
    end = min(count, cut + 1)
    for m in range(end):
        without = factor
        if kind == AVERAGE:
            without = factor - 1.0 + gain[m]
        below[m] = factor * (discounts[m] - discounts[m + 1])
        above[m] = without * (discounts[m - 1] - discounts[m]) if m > 0 else 0.0
        if kind == CASCADE:
            if gain[m] >= 1.0:
                if stop >= 0:
                    return stop + 1, stop, m
                if m == cut:
                    break
                stop = m
            else:
                factor *= 1.0 - gain[m]
                if factor < _NEGLIGIBLE and stop < 0:
                    return min(m + 1, cut), m, -1
        elif kind == AVERAGE:
            factor += gain[m]
    if stop >= 0:
        return stop + 1, stop, end - 1
    return min(cut, count), end - 1, -1


@inner
def list_value(rule, gain, count):
    """M of a sorted list of gains."""
    kind, discounts, cut = rule.kind, rule.discounts, rule.cut
    total, factor = 0.0, 1.0
    for m in range(min(count, cut)):
        total += discounts[m] * factor * gain[m]
        if kind == CASCADE:
            factor *= 1.0 - gain[m]
        elif kind == AVERAGE:
            factor += gain[m]
    return total


@inner
def mean_value(rule, scores, gain, count, chance):
    """The expectation of M over all orders of the documents whose scores are equal, for a whole sorted list.

    `chance` is scratch: chance[i] becomes the mean over all choices of i tied documents of the product of (1 - g).
    """
    kind, discounts, cut = rule.kind, rule.discounts, rule.cut
    total, factor = 0.0, 1.0
    begin = 0
    while begin < count and begin < cut:
        end = begin + 1
        while end < count and scores[end] == scores[begin]:
            end += 1
        size, stop = end - begin, min(end, cut)
        mean = 0.0
        for m in range(begin, end):
            mean += gain[m]
        relevant = mean
        mean /= size
        if kind == PLAIN:
            for m in range(begin, stop):
                total += discounts[m] * mean
        elif kind == AVERAGE:
            # McSherry & Najork (ECIR 2008): before a relevant document at offset i stand i (R - 1)/(size - 1) others
            before = (relevant - 1.0) / max(size - 1, 1)
            for m in range(begin, stop):
                total += discounts[m] * mean * (factor + before * (m - begin))
            factor += relevant
        else:
            depth = stop - begin
            chance[: depth + 1] = 0.0
            chance[0] = 1.0
            for s in range(size):  # add a document to a set of s: each choice of i has it with probability i/(s + 1)
                keep = 1.0 - gain[begin + s]
                for i in range(min(s + 1, depth), 0, -1):
                    chance[i] = ((s + 1 - i) * chance[i] + i * keep * chance[i - 1]) / (s + 1)
            for i in range(depth):
                total += discounts[begin + i] * factor * (chance[i] - chance[i + 1])
            for m in range(begin, end):
                factor *= 1.0 - gain[m]
        begin = end
    return total
