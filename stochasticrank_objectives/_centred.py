"""Metrics in which every position counts alike: gains, documents that count, and multipliers of queries.

Gains come in descending order in each query, and leave with a mean of 0. So discounts that fall by 1 per position may
begin anywhere: adding a constant to all of them changes nothing. A query in which nothing can be ranked has no relevant
documents and the multiplier 0.
"""

from __future__ import annotations

import numpy as np

from ._constants import Array, Integers

Centred = tuple[Array, Integers, Array]


def _runs(gains: Array, ptr: Integers) -> Integers:
    """Where each run of equal gains within a query begins, and the end."""
    begins = np.empty(len(gains), bool)
    begins[0] = True
    np.not_equal(gains[1:], gains[:-1], out=begins[1:])
    begins[ptr[:-1]] = True
    return np.append(np.flatnonzero(begins), len(gains))


def by_pairs(gains: Array, ptr: Integers) -> Centred:
    """AUC - 1/2 = sum_i (g_i - mean) (n - i) / (R N), of R documents with gain 1 and N with gain 0."""
    sizes, relevant = np.diff(ptr), np.add.reduceat(gains, ptr[:-1])
    pairs = relevant * (sizes - relevant)
    multipliers = np.where(pairs > 0, 1.0 / np.maximum(pairs, 1.0), 0.0)
    return gains - np.repeat(relevant / sizes, sizes), np.where(pairs > 0, relevant, 0).astype(np.int64), multipliers


def by_ranks(gains: Array, ptr: Integers) -> Centred:
    """Spearman's rho = sum_i c_i (n - i) / sqrt(sum_i c_i^2 (n^3 - n)/12), c the centred ranks, ties at their mean rank."""
    sizes, runs = np.diff(ptr), _runs(gains, ptr)
    middle = np.repeat(0.5 * (runs[:-1] + runs[1:] - 1), np.diff(runs))  # of the run, among all rows
    ranks = np.repeat(0.5 * (ptr[:-1] + ptr[1:] - 1), sizes) - middle
    squares = np.add.reduceat(ranks * ranks, ptr[:-1])
    counts = sizes.astype(np.float64)
    spread = np.sqrt(squares * (counts**3 - counts) / 12.0)
    defined = spread > 0
    return ranks, np.where(defined, sizes, 0), np.where(defined, 1.0 / np.where(defined, spread, 1.0), 0.0)


def by_concordance(gains: Array, ptr: Integers) -> Centred:
    """Kendall's tau = (concordant - discordant) / sqrt(n0 (n0 - n1)), of n0 pairs, n1 of them with equal labels.

    Only the order of gains counts: they stay as they are.
    """
    sizes, runs = np.diff(ptr), _runs(gains, ptr)
    lengths = np.diff(runs).astype(np.float64)
    ties = np.add.reduceat(lengths * (lengths - 1.0) / 2.0, np.searchsorted(runs, ptr[:-1]))
    pairs = sizes * (sizes - 1.0) / 2.0
    defined = pairs > ties
    spread = np.sqrt(pairs * (pairs - ties))
    return gains, np.where(defined, sizes, 0), np.where(defined, 1.0 / np.where(defined, spread, 1.0), 0.0)


CENTRED = {"pairs": by_pairs, "ranks": by_ranks, "concordance": by_concordance}
"""By the normaliser of the metric."""
