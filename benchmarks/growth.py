"""How the time of a gradient grows: with rows, query size, cut, samples and threads; full lists; memory."""

from __future__ import annotations

import functools
import subprocess
import sys
from typing import Any

import numpy as np

import stochasticrank_objectives as sr

from .harness import best_of, queries, slope, table

MEMORY = """
import sys, numpy as np, stochasticrank_objectives as sr
rows, size = int(sys.argv[1]), int(sys.argv[2])
def peak():  # in bytes, since the last call (Linux)
    value = next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1]
    open("/proc/self/clear_refs", "w").write("5")
    return 1024 * int(value)
def now():
    return 1024 * int(next(line for line in open("/proc/self/status") if line.startswith("VmRSS")).split()[1])
rng = np.random.default_rng(0)
sr.StochasticRank("ndcg@10").bind([0, 1, 2] * 20000, [60000]).gradient(np.zeros(60000))  # compiles
sr.StochasticRank("ndcg@10").bind([0, 1, 2] * 20000, [3] * 20000).gradient(np.zeros(60000))
labels, scores = rng.integers(0, 5, rows).astype(float), rng.normal(size=rows)
base, _ = now(), peak()
bound = sr.StochasticRank("ndcg@10").bind(labels, np.full(rows // size, size))
binding, held, _ = peak() - base, now() - base, peak()
bound.gradient(scores)
print(binding / rows / 8, held / rows / 8, (peak() - base) / rows / 8)
"""


def _time(metric: str, count: int, size: int, repeats: int = 5, **options: Any) -> float:
    labels, groups, scores = queries(count, size)
    bound = sr.StochasticRank(metric, mu=0.1, **{"threads": 2, **options}).bind(labels, groups)
    return best_of({"gradient": functools.partial(bound.gradient, scores)}, repeats)["gradient"]


def _series(title: str, name: str, points: list[int], times: list[float], result: dict[str, Any]) -> None:
    exponent = slope([float(p) for p in points], times)
    table(
        f"{title} (time grows with power {exponent:.2f})",
        [name, "ms"],
        [[p, 1e3 * t] for p, t in zip(points, times, strict=True)],
    )
    result[name] = {"points": points, "ms": [1e3 * t for t in times], "power": exponent}


def run(quick: bool) -> dict[str, Any]:
    result: dict[str, Any] = {}
    rows = [10_000, 100_000, 1_000_000] + ([] if quick else [10_000_000])
    _series("Rows, NDCG@10, queries of 100", "rows", rows, [_time("ndcg@10", n // 100, 100) for n in rows], result)
    sizes = [2, 10, 100, 1_000, 10_000, 100_000]
    total = 100_000 if quick else 1_000_000
    _series(
        f"Query size, NDCG@10, {total} rows", "query size", sizes, [_time("ndcg@10", total // n, n) for n in sizes], result
    )
    cuts = [1, 3, 10, 30, 100, 300, 1000]
    _series("Cut k, NDCG@k, 100 queries of 1000", "k", cuts, [_time(f"ndcg@{k}", 100, 1000) for k in cuts], result)
    samples = [1, 2, 4, 8]
    _series(
        "Samples, NDCG@10, 1000 queries of 100",
        "samples",
        samples,
        [_time("ndcg@10", 1000, 100, samples=s) for s in samples],
        result,
    )

    rows_out = []
    for metric, count, size in (("ndcg@10", 2000, 120), ("ndcg", 500, 120), ("ndcg@10", 1, 500_000), ("ndcg", 1, 100_000)):
        labels, groups, scores = queries(count, size)
        work = {
            str(t): functools.partial(sr.StochasticRank(metric, threads=t).bind(labels, groups).gradient, scores)
            for t in (1, 2)
        }
        times = best_of(work, 5)
        rows_out.append([metric, count, size, 1e3 * times["1"], 1e3 * times["2"], times["1"] / times["2"]])
    table("Threads", ["metric", "queries", "size", "1 thread ms", "2 threads ms", "speed-up"], rows_out)
    result["threads"] = [
        dict(zip(("metric", "queries", "size", "ms_1", "ms_2", "speed_up"), row, strict=True)) for row in rows_out
    ]

    rows_out = []
    for metric in ("ndcg", "err", "map", "mrr"):
        work = {}
        for size in (16_000, 64_000):
            labels, groups, scores = queries(1, size)
            if metric == "mrr":  # one relevant document: the list must be followed far down
                labels = (np.arange(size) == size // 2).astype(float)
            bound = sr.StochasticRank(metric, mu=0.1, threads=2).bind(labels, groups)
            work[str(size)] = functools.partial(bound.gradient, scores)
        times = best_of(work, 7)
        rows_out.append([metric, 1e3 * times["16000"], 1e3 * times["64000"], times["64000"] / times["16000"]])
    table("One query, no cut", ["metric", "16,000 ms", "64,000 ms", "ratio"], rows_out)
    result["full lists"] = {row[0]: {"ms_16000": row[1], "ms_64000": row[2], "ratio": row[3]} for row in rows_out}

    rows_out = []
    for size in (100, 1_000_000):
        output = subprocess.run(
            [sys.executable, "-c", MEMORY, "4000000", str(size)], capture_output=True, text=True, check=True
        )
        rows_out.append([size, *map(float, output.stdout.split())])
    head = ["query size", "peak while binding", "kept", "peak with a gradient"]
    table("Memory of NDCG@10 on 4,000,000 rows beyond labels and scores, in float64 per row", head, rows_out)
    result["memory"] = {str(row[0]): dict(zip(head[1:], row[1:], strict=True)) for row in rows_out}
    return result
