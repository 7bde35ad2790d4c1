"""Where the time of a gradient goes, and how far it is from what the machine can do."""

from __future__ import annotations

import functools
from typing import Any

import numba
import numpy as np

import stochasticrank_objectives as sr
from stochasticrank_objectives._kernels import gauss, gradients
from stochasticrank_objectives._kernels.policy import FLAGS, plain, wide

from .harness import best_of, queries, table

_jit = numba.njit(**FLAGS)


@_jit
def _begin(s, problem):
    gradients._begin(s, problem.rule)


@_jit
def _load(s, scores, problem, count):
    wide()
    for query in range(count):
        gradients._load(s, scores, problem, query)


@_jit
def _draw(s, problem, n, count):
    wide()
    for query in range(count):
        gradients._draw(s, problem, query, n, 0)


@_jit
def _rank(s, problem, n, y, count):
    wide()
    for query in range(count):
        for j in range(n):
            s.documents[gradients.Y, j] = y[query * n + j]
        gradients._rank(s, problem.rule, n, min(problem.rule.cut + 1, n))


@_jit
def _densities(s, n, cut, count):
    wide()
    for _ in range(count):
        gradients._add_rest(s, n, cut, gradients._box_top(s, n, cut), 0, gauss.whole_lanes(n))
        gauss.cross_all(None, s.top, s.sorting.values[0], gauss.whole_lanes(cut), cut + 1)


@_jit
def _finish(s, out, problem, count):
    wide()
    for query in range(count):
        gradients._finish(s, out, problem, query)


@_jit
def _powers(x, out, repeats):
    wide()
    for _ in range(repeats):
        for j in range(len(x)):
            out[j] += gauss.exp2_negative(x[j])


def run(quick: bool) -> dict[str, Any]:
    count, n, cut = 600 if quick else 6000, 120, 10
    labels, groups, scores = queries(count, n)
    bound = sr.StochasticRank(f"ndcg@{cut}", mu=0.1, threads=1).bind(labels, groups)
    problem = bound._problem(0)
    s, out = gradients.make_scratch(n, cut, fast=False), np.zeros(len(labels))
    _begin(s, problem)
    _load(s, scores, problem, 1)
    x, sums = -5 * np.random.default_rng(0).random(128), np.zeros(128)
    evaluations = count * (plain(gauss.whole_lanes)(n) * cut + plain(gauss.whole_lanes)(cut) * (cut + 1))
    times = best_of(
        {
            "whole gradient": functools.partial(bound.gradient, scores),
            "load": functools.partial(_load, s, scores, problem, count),
            "noise": functools.partial(_draw, s, problem, n, count),
            "selection": functools.partial(_rank, s, problem, n, scores, count),
            "densities": functools.partial(_densities, s, n, cut, count),
            "projection and output": functools.partial(_finish, s, out, problem, count),
            "bare powers of two": functools.partial(_powers, x, sums, evaluations // 128),
        },
        15,
    )
    whole = times["whole gradient"]
    rows = [[name, 1e3 * t, t / whole, 1e9 * t / len(labels)] for name, t in times.items()]
    table(
        f"NDCG@{cut} of {count} queries of {n} documents, 1 thread, step by step; the last line is"
        " the exponentials alone, as fast as this machine does them",
        ["step", "ms", "of the whole", "ns per row"],
        rows,
    )
    return {name: {"ms": 1e3 * t, "share": t / whole} for name, t in times.items()}
