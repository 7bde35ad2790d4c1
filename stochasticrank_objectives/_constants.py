"""What both sides of a kernel must agree on: codes and borders, and the named tuples that Python fills and kernels read."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

PLAIN, CASCADE, AVERAGE = 0, 1, 2
"""The factor F of a metric: 1; the product of (1 - g) over the documents before; 1 + the relevant ones among them."""

LISTED, F_SCORE, AGREEMENT = 3, 4, 5
"""What a selection is worth: the discounted gains of what is shown, in its given order; its F-score; the share of documents
on which it is right."""

CONCORDANT = 6
"""A metric of pairs: how many stand in the right order less how many in the wrong one."""

WORST, BEST, MEAN = 0, 1, 2
"""How documents with equal scores are ranked."""

SMOOTHING, LANGEVIN, GUMBEL, LOGISTIC, UNIFORM = 1, 2, 3, 4, 5
"""What noise is for: scores under StochasticRank, gradients under SGLB, scores under LambdaMART, scores under YetiRank,
gains under XENDCG. Each has its own."""

FAST_FROM = 250
"""Documents that can jump, from which on the fast Gauss transform is faster than summing directly."""


class Layout(NamedTuple):
    """Where the rows of each query are. Rows keep their place; `order` lists each query's rows by falling gain."""

    ptr: Integers  # where each query begins, and the end
    order: NDArray[np.int32]  # within the query
    relevance: Array  # by which mu shifts, in the order of `order`
    query_keys: NDArray[np.uint64]  # what selects each query's noise


class Rule(NamedTuple):
    """A metric on laid out data: ``multiplier * sum_i discount_i F_i g_i`` over the positions i of a query."""

    kind: int  # PLAIN, CASCADE or AVERAGE
    discounts: Array  # by position, zero from the cut on
    cut: int
    gains: Array  # in the order of the layout
    relevant: Integers  # documents with a gain, per query
    multipliers: Array  # per query


class Selection(NamedTuple):
    """A metric of which documents are selected, on laid out data; they keep their given order."""

    kind: int  # LISTED, F_SCORE or AGREEMENT
    discounts: Array  # of LISTED, by position among those shown, zero from the cut on
    cut: int
    gains: Array  # in the order of the data
    relevant: Integers  # documents with a gain, per query; of AGREEMENT all documents
    multipliers: Array  # per query
    needed: Array  # per query, of F_SCORE: what it is divided by beside the number of documents shown


class Rules(NamedTuple):
    """The terms of a sum of metrics: what `Rule` has, with one row per term."""

    kinds: Integers
    discounts: Array  # zero from the cut on
    cuts: Integers
    gains: Array
    relevant: Integers
    multipliers: Array  # with the weight of the term


class Smoothing(NamedTuple):
    """How scores are smoothed. Kernels measure them in units in which the density of the noise is made of powers of two."""

    unit: float  # a standard deviate in these units
    peak: float  # what the kernels' density is multiplied by
    sigma: float
    mu: float
    nu: float
    strength: float  # of scale-free acceleration
    samples: int
    key: np.uint64  # of the noise


class Problem(NamedTuple):
    """All that a gradient depends on beside the scores."""

    layout: Layout
    rule: Rule
    smoothing: Smoothing


class SumProblem(NamedTuple):
    """The same for a sum of metrics. `rule` is its deepest term's, with the multipliers of the sum as a whole."""

    layout: Layout
    rule: Rule
    smoothing: Smoothing
    rules: Rules


class Pairs(NamedTuple):
    """The pairwise loss of the baselines."""

    query_weights: Array
    steps: Array  # what a pair weighs beside the swap, by the distance of the two in the ranking; empty if nothing
    sigma: float
    norm: bool
    noise: float
    samples: int
    key: np.uint64


class Rankings(NamedTuple):
    """The noisy rankings of YetiRank and YetiLoss, and the pairs in them."""

    neighbours: int
    sigma: float
    mu: float
    permutations: int
    key: np.uint64
    least: float  # second derivative of a pair, relative to the size of its first
