"""Where the time of a gradient goes, and how far it is from what the machine can do."""

from __future__ import annotations

import functools
from typing import Any

import numba
import numpy as np

import stochasticrank_objectives as sr
from stochasticrank_objectives._kernels import gauss, gradients, noise
from stochasticrank_objectives._numba import FLAGS, wide

from .harness import best_of, queries, table

_jit = numba.njit(**FLAGS)


@_jit
def _begin(s, weights, cut):
    gradients._begin(s, 0, weights, cut)


@_jit
def _load(s, scores, order, gains, relevance, n, count):
    wide()
    for q in range(count):
        gradients._load(s, scores, order, gains, relevance, q * n, n, 1.0, 0.1)


@_jit
def _draw(s, n, count):
    wide()
    for q in range(count):
        gradients._draw(s, n, np.uint64(5), np.uint64(q), 0, 0, noise.padded(n) // 4)


@_jit
def _rank(s, n, weights, cut, y, count):
    wide()
    for q in range(count):
        for j in range(n):
            s.y[j] = y[q * n + j]
        gradients._rank(s, n, 0, weights, cut, min(cut + 1, n))


@_jit
def _densities(s, n, cut, count):
    wide()
    for _ in range(count):
        gradients._add_rest(s, n, cut, gradients._box_top(s, n, cut), s.work, 0, gauss.padded(n))
        gradients._add_top(s, cut, cut)


@_jit
def _finish(s, out, order, n, count):
    wide()
    for q in range(count):
        gradients._finish(s, out, order, q * n, n, 0.01, 1.0, 0.5)


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
    q = bound.queries
    s, out = gradients.make_scratch(n, cut, long=False), np.zeros(len(labels))
    _begin(s, q.position_weights, cut)
    _load(s, scores, q.order, q.gains, q.relevance, n, 1)
    x, sums = -5 * np.random.default_rng(0).random(128), np.zeros(128)
    evaluations = count * (gauss.padded(n) * cut + gauss.padded(cut) * (cut + 1))
    times = best_of(
        {
            "whole gradient": functools.partial(bound.gradient, scores),
            "load": functools.partial(_load, s, scores, q.order, q.gains, q.relevance, n, count),
            "noise": functools.partial(_draw, s, n, count),
            "selection": functools.partial(_rank, s, n, q.position_weights, cut, scores, count),
            "densities": functools.partial(_densities, s, n, cut, count),
            "projection and output": functools.partial(_finish, s, out, q.order, n, count),
            "bare powers of two": functools.partial(_powers, x, sums, evaluations // 128),
        },
        15,
    )
    whole = times["whole gradient"]
    rows = [[name, 1e3 * t, t / whole, 1e9 * t / len(labels)] for name, t in times.items()]
    table(
        f"NDCG@{cut} of {count} queries of {n} documents, 1 thread, step by step; the last line is"
        " the exponentials alone, as fast as this machine does them",
        ["step", "ms", "of the whole", "ns a row"],
        rows,
    )
    return {name: {"ms": 1e3 * t, "share": t / whole} for name, t in times.items()}
