"""Training on several processes: `python -m benchmarks.scale [--quick]` prints the tables of docs/at-scale.md.

Without `--quick` it writes benchmarks/scale.json, too. It measures quality against one process, the shares of the gradient
and of communication in an iteration as workers and partitions grow, exchanges between workers, and memory per row.
"""

from __future__ import annotations

import dataclasses
import gc
import itertools
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import tracemalloc
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import numpy as np

import stochasticrank_objectives as sr
from stochasticrank_objectives.adapters import LightGBMObjective, XGBoostObjective
from stochasticrank_objectives.datasets import RankingData, make_ranking

from .harness import machine

RESULTS = pathlib.Path(__file__).with_name("scale.json")
TOLERANCE = 0.005  # in NDCG@10, between models of several workers and of one process, averaged over seeds
ROUNDS = 30
FEATURES = 20
WORKERS = (2, 3)
SEEDS = 3
NAMES = {"xgboost": "XGBoost", "lightgbm": "LightGBM"}
XGB = {"max_depth": 6, "learning_rate": 0.1, "tree_method": "hist", "nthread": 1}
LGB: dict[str, Any] = {"num_leaves": 31, "learning_rate": 0.1, "verbose": -1, "deterministic": True}
HISTOGRAM = FEATURES * 256 * 2  # numbers in the histogram of one node: two per bin


def generated(queries: int, seed: int) -> RankingData:
    return make_ranking(queries, documents=(20, 60), features=FEATURES, seed=seed)


def loss(seed: int = 0) -> Any:
    """What is trained with, on one thread."""
    return dataclasses.replace(sr.recommended("ndcg@10", booster="xgboost"), seed=seed, threads=1)


# ------------------------------------------------------------ losses that look at the clock


class Timed:
    """A loss that writes down when each gradient begins and ends, one file per process."""

    metric = sr.NDCG(10)

    def __init__(self, folder: pathlib.Path, seed: int) -> None:
        self.folder, self.seed = folder, seed

    def bind(self, *arguments: Any, **keywords: Any) -> Any:
        self.bound = loss(self.seed).bind(*arguments, **keywords)
        self.times: list[tuple[float, float, float]] = []
        return self

    def derivatives(self, scores: Any, iteration: int) -> Any:
        ready, begin = _ready(), time.perf_counter()
        result = self.bound.derivatives(scores, iteration)
        self.times.append((begin, time.perf_counter(), ready))
        if iteration == ROUNDS - 1:
            (self.folder / f"{os.getpid()}.json").write_text(json.dumps(self.times))
        return result


def _ready() -> float:
    """Seconds in which this thread ran or was ready to run; in all others it waited.

    With one thread per worker, all that it can wait for in a training is another worker, or the network.
    """
    run, queued, _ = pathlib.Path("/proc/thread-self/schedstat").read_text().split()
    return (int(run) + int(queued)) / 1e9


class Exchanging:
    """A loss that, when it is bound, times exchanges through the collective that it is given."""

    metric = sr.NDCG(10)

    def __init__(self, folder: pathlib.Path, booster: str) -> None:
        self.folder, self.booster = folder, booster

    def bind(self, *arguments: Any, **keywords: Any) -> Any:
        reduce = keywords["reduce"]
        found = {"two numbers": _seconds(lambda: reduce(np.ones(2), "sum"), 300)}
        if self.booster == "xgboost":
            found["histogram of a node"] = _seconds(lambda: _xgboost_sum(HISTOGRAM), 50)
            found["histograms of 16 nodes"] = _seconds(lambda: _xgboost_sum(16 * HISTOGRAM), 20)
        (self.folder / f"{os.getpid()}.json").write_text(json.dumps(found))
        return loss().bind(*arguments, **keywords)


def _xgboost_sum(numbers: int) -> Any:
    """What XGBoost does with the histograms of all workers."""
    from xgboost import collective

    return collective.allreduce(np.ones(numbers), collective.Op.SUM)


def _seconds(work: Callable[[], Any], times: int) -> float:
    """The median time of some work."""
    found = []
    for _ in range(times):
        begin = time.perf_counter()
        work()
        found.append(time.perf_counter() - begin)
    return float(np.median(found))


# ------------------------------------------------------------ one training


class Clock(NamedTuple):
    """Seconds of an iteration and of its gradient on the slowest worker, and how long workers wait in it, on average."""

    iteration: float
    gradient: float
    waiting: float


def _read_clock(folder: pathlib.Path) -> Clock:
    """From the files of a training; medians over iterations, since other work disturbs single ones."""
    clocks = []
    for path in folder.glob("*.json"):
        begin, end, ready = np.array(json.loads(path.read_text())).T
        waiting = 1 - (ready[-1] - ready[0]) / (begin[-1] - begin[0])
        clocks.append((np.median(np.diff(begin)), np.median(end - begin), waiting))
    (iteration, gradient, _), waiting = np.max(clocks, axis=0), np.mean(clocks, axis=0)[2]
    return Clock(float(iteration), float(gradient), float(iteration * waiting))


def _cut(data: RankingData, parts: int) -> list[slice]:
    """Rows of about equally many whole queries each."""
    ends = np.append(0, np.cumsum(data.groups))
    borders = ends[np.linspace(0, len(data.groups), parts + 1).astype(int)]
    return [slice(begin, end) for begin, end in itertools.pairwise(borders)]


class Placed(NamedTuple):
    """The data of one worker: futures of features, labels and query ids of its partitions."""

    worker: str
    partitions: list[tuple[Any, Any, Any]]


def place(client: Any, data: RankingData, workers: int, partitions: int = 1) -> list[Placed]:
    """Data on the first workers, so many partitions on each."""
    slices = iter(_cut(data, workers * partitions))
    placed = []
    for address in sorted(client.nthreads())[:workers]:
        mine = [
            tuple(
                client.scatter(values[part], workers=[address], hash=False)
                for values in (data.features, data.labels, data.qid)
            )
            for part in itertools.islice(slices, partitions)
        ]
        placed.append(Placed(address, mine))
    return placed


def _collections(placed: list[Placed]) -> list[Any]:
    """Features, labels and query ids as dask arrays."""
    import dask
    import dask.array as da

    columns = zip(*(partition for one in placed for partition in one.partitions), strict=True)
    types = [((np.nan, FEATURES), np.float64), ((np.nan,), np.float64), ((np.nan,), np.int64)]
    return [
        da.concatenate(
            [da.from_delayed(dask.delayed(future), shape, dtype) for future in column], allow_unknown_chunksizes=True
        )
        for column, (shape, dtype) in zip(columns, types, strict=True)
    ]


def train_together(client: Any, booster: str, placed: list[Placed], timed: Any) -> Any:
    """The model of all workers."""
    from xgboost import dask as dxgb

    from stochasticrank_objectives.adapters.dask import DaskLightGBMRanker, query_matrix

    x, y, qid = _collections(placed)
    if booster == "xgboost":
        return dxgb.train(client, XGB, query_matrix(client, x, y, qid=qid), ROUNDS, obj=XGBoostObjective(timed))["booster"]
    ranker = DaskLightGBMRanker(LightGBMObjective(timed), metric="ndcg@10", n_estimators=ROUNDS, **LGB)
    return ranker.fit(x, y, qid=qid).booster_


def train_alone(client: Any, booster: str, placed: list[Placed], timed: Any) -> Any:
    """The model of one process, which has all data."""
    ((worker, (columns,)),) = placed
    return client.submit(_train_alone, booster, *columns, timed, workers=[worker], pure=False).result()


def _train_alone(booster: str, features: Any, labels: Any, qid: Any, timed: Any) -> Any:
    import lightgbm as lgb
    import xgboost as xgb

    groups = np.unique(qid, return_counts=True)[1]
    if booster == "xgboost":
        matrix = xgb.QuantileDMatrix(features, labels, group=groups)
        return xgb.train(XGB, matrix, ROUNDS, obj=XGBoostObjective(timed))
    dataset = lgb.Dataset(features, labels, group=groups)
    return lgb.train({**LGB, "objective": LightGBMObjective(timed), "num_threads": 1}, dataset, ROUNDS)


def ndcg(model: Any, test: RankingData) -> float:
    import xgboost as xgb

    scores = model.predict(xgb.DMatrix(test.features) if isinstance(model, xgb.Booster) else test.features)
    return float(sr.evaluate("ndcg@10", scores, test.labels, test.groups))


@contextmanager
def _notes() -> Iterator[pathlib.Path]:
    """A folder in which the processes of one training leave what they have measured."""
    with tempfile.TemporaryDirectory() as folder:
        yield pathlib.Path(folder)


# ------------------------------------------------------------ what is measured


@dataclasses.dataclass
class Run:
    """What was found for one booster, size and number of workers: means over seeds, and the best times."""

    booster: str
    rows: int
    workers: int
    partitions: int = 1
    ndcg: float = 0.0
    iteration: float = 0.0
    gradient: float = 0.0
    waiting: float = 0.0
    seconds: float = 0.0

    @property
    def shares(self) -> dict[str, float]:
        return {"gradient_share": self.gradient / self.iteration, "communication_share": self.waiting / self.iteration}


def measure(client: Any, run: Run, data: RankingData, test: RankingData, seeds: int) -> Run:
    """Fill in what a run is about."""
    placed, found = place(client, data, run.workers, run.partitions), []
    train = train_alone if run.workers == 1 else train_together
    for seed in range(seeds):
        with _notes() as folder:
            begin = time.perf_counter()
            model = train(client, run.booster, placed, Timed(folder, seed))
            found.append((_read_clock(folder), time.perf_counter() - begin, ndcg(model, test)))
    clocks, seconds, qualities = zip(*found, strict=True)
    run.iteration, run.gradient, run.waiting = min(clocks)
    run.seconds, run.ndcg = min(seconds), float(np.mean(qualities))
    return run


def measure_sizes(client: Any, sizes: list[int], seeds: int) -> list[Run]:
    """Quality and shares as data and workers grow."""
    test, runs = generated(1000, seed=1), []
    for booster, queries in itertools.product(NAMES, sizes):
        data = generated(queries, seed=0)
        for workers in (1, *WORKERS):
            runs.append(measure(client, Run(booster, len(data.labels), workers), data, test, seeds))
    return runs


def measure_partitions(client: Any, queries: int, seeds: int) -> list[Run]:
    """The same as partitions grow, on two workers."""
    test, data = generated(200, seed=1), generated(queries, seed=0)
    return [
        measure(client, Run(booster, len(data.labels), 2, partitions), data, test, seeds)
        for booster, partitions in itertools.product(NAMES, (1, 4, 16))
    ]


def measure_exchanges(client: Any) -> dict[str, dict[str, float]]:
    """Seconds that one exchange takes, by what is exchanged, for each number of workers."""
    data, found = generated(60, seed=0), dict[str, dict[str, float]]()
    for workers, booster in itertools.product(WORKERS, NAMES):
        with _notes() as folder:
            train_together(client, booster, place(client, data, workers), Exchanging(folder, booster))
            said = [json.loads(path.read_text()) for path in folder.glob("*.json")]
        for name in said[0]:
            row = found.setdefault(f"{name}, {NAMES[booster]}", {})
            row[str(workers)] = max(one[name] for one in said)
    return found


# ------------------------------------------------------------ memory


def measure_memory(sizes: list[int]) -> dict[str, float]:
    """Bytes per row: how memory grows between data of these sizes, in new processes that have loaded all code before."""
    found: dict[str, float] = {}
    for kind in MEMORY:
        # Large arrays are given back at once, so that the memory of smaller data is not reused for larger ones.
        environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536"}
        command = [sys.executable, "-m", "benchmarks.scale", "--memory", kind, *map(str, sizes)]
        said = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
        rows, grown = np.array(json.loads(said.stdout.splitlines()[-1])).T
        found[kind] = float(np.polyfit(rows, grown, 1)[0])
    return found


def _bound(data: RankingData) -> float:
    """What a bound loss keeps."""
    before = _status("VmRSS")
    bound = _bind(data)
    grown = _status("VmRSS") - before
    del bound
    return grown


def _bound_counted(data: RankingData) -> float:
    """The same by the arrays that numpy says it has."""
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    bound = _bind(data)
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    del bound
    return grown


def _bind(data: RankingData) -> Any:
    return loss().bind(data.labels, data.groups, query_keys=np.arange(len(data.groups)))


def _gradient(data: RankingData) -> float:
    """What is added during a gradient, at most, including the gradient and the hessian."""
    bound, scores = _bind(data), np.zeros(len(data.labels), np.float32)
    return _peak(lambda: bound.derivatives(scores, 0))


def _xgboost(data: RankingData) -> float:
    """A training of XGBoost at its peak, with our part, without the features that it is given."""
    import xgboost as xgb

    def train() -> Any:
        matrix = xgb.QuantileDMatrix(data.features, data.labels, group=data.groups)
        return xgb.train(XGB, matrix, 3, obj=XGBoostObjective(loss()))

    return _peak(train)


def _lightgbm(data: RankingData) -> float:
    """The same of LightGBM."""
    import lightgbm as lgb

    def train() -> Any:
        dataset = lgb.Dataset(data.features, data.labels, group=data.groups)
        return lgb.train({**LGB, "objective": LightGBMObjective(loss()), "num_threads": 1}, dataset, 3)

    return _peak(train)


MEMORY: dict[str, Callable[[RankingData], float]] = {
    "a bound loss": _bound,
    "a bound loss, counted": _bound_counted,
    "while a gradient is computed": _gradient,
    "a training of XGBoost": _xgboost,
    "a training of LightGBM": _lightgbm,
}


def say_memory(kind: str, sizes: list[int]) -> None:
    """Print rows and bytes for each size; what `measure_memory` starts."""
    for queries in (20, sizes[0]):  # loads code
        MEMORY[kind](generated(queries, seed=0))
    found = []
    for queries in sizes:
        data = generated(queries, seed=0)
        gc.collect()
        found.append([len(data.labels), MEMORY[kind](data)])
    print(json.dumps(found))


def _peak(work: Callable[[], Any]) -> float:
    """By how much the memory of this process grows, at most, during some work."""
    pathlib.Path("/proc/self/clear_refs").write_text("5")  # the peak counts from now on
    before = _status("VmRSS")
    work()
    return _status("VmHWM") - before


def _status(name: str) -> float:
    """Memory of this process in bytes, as Linux tells it."""
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    return 1024.0 * next(int(line.split()[1]) for line in lines if line.startswith(name))


# ------------------------------------------------------------ the tables of docs/at-scale.md


def markdown(title: str, head: list[str], rows: list[list[str]]) -> None:
    """Print a table as it stands in the guide."""
    print(f"\n{title}\n")
    for row in (head, ["---"] * len(head), *rows):
        print("| " + " | ".join(row) + " |")


def _percent(value: float) -> str:
    return f"{100 * value:.0f} %"


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.3g}"


def show_sizes(runs: list[Run]) -> None:
    head = ["booster", "rows", "NDCG@10, 1 process", "2 workers", "3 workers", "ms per iteration: 1, 2, 3"]
    head += ["gradient's share: 1, 2, 3", "communication's share: 1, 2, 3"]
    rows = []
    for _, group in itertools.groupby(runs, lambda run: (run.booster, run.rows)):
        same = list(group)
        rows.append(
            [
                NAMES[same[0].booster],
                f"{same[0].rows:,}",
                *(f"{run.ndcg:.3f}" for run in same),
                ", ".join(_ms(run.iteration) for run in same),
                ", ".join(_percent(run.shares["gradient_share"]) for run in same),
                ", ".join(_percent(run.shares["communication_share"]) for run in same),
            ]
        )
    markdown("Quality, and shares of an iteration", head, rows)


def show_partitions(runs: list[Run]) -> None:
    head = ["booster", "partitions per worker", "ms per iteration", "gradient's share", "communication's share"]
    head += ["seconds in all"]
    rows = [
        [
            NAMES[run.booster],
            str(run.partitions),
            _ms(run.iteration),
            _percent(run.shares["gradient_share"]),
            _percent(run.shares["communication_share"]),
            f"{run.seconds:.1f}",
        ]
        for run in runs
    ]
    markdown(f"{runs[0].rows:,} rows on two workers", head, rows)


def show_exchanges(exchanges: dict[str, dict[str, float]]) -> None:
    rows = [[name, *(_ms(times[str(workers)]) for workers in WORKERS)] for name, times in exchanges.items()]
    markdown("One exchange between all workers", ["what", "ms with 2 workers", "3 workers"], rows)


def show_memory(memory: dict[str, float], worker: float) -> None:
    rows = [[name, f"{value:.0f}"] for name, value in memory.items()]
    markdown(f"Memory; a worker that has loaded all code has {worker / 1e6:.0f} MB", ["what", "bytes per row"], rows)


def show_paper(runs: list[Run], memory: dict[str, float]) -> None:
    """A billion rows of 1e7 queries and 100 features on 100 workers of 8 threads, from the figures of the largest data."""
    largest = [run for run in runs if run.rows == max(one.rows for one in runs)]
    per_row = sorted(1e9 * run.gradient * run.workers / run.rows for run in largest if run.workers < 3)
    ours = memory["a bound loss"] + memory["while a gradient is computed"]
    nodes, node = 32, 100 * 256 * 2 * 8  # of a tree of depth 6, in which XGBoost sends one child of each pair; bytes
    times = " to ".join(f"{value * 1e-9 * 1e7 / 8:.2g}" for value in (per_row[0], per_row[-1]))
    rows = [
        ["rows", "1e7", "1e9"],
        ["features in bins, one byte each", "1 GB", "100 GB"],
        ["the same as float32, while they are read", "4 GB", "400 GB"],
        [f"our objective, {ours:.0f} bytes per row", f"{ours / 100:.2f} GB", f"{ours:.0f} GB"],
        ["keys and weights in XGBoost, 8 bytes per row", "0.08 GB", "8 GB"],
        ["plan of `partition_by_query`, on the client", "", "0.16 GB"],
        [f"histograms that XGBoost sends, depth 6, {nodes} nodes", f"{nodes * node / 1e6:.0f} MB per iteration", ""],
        [
            f"gradient, {per_row[0]:.0f} to {per_row[-1]:.0f} ns per row and thread",
            f"{times} s per iteration",
            "",
        ],
    ]
    markdown("On paper: a billion rows", ["", "per worker", "in all"], rows)


# ------------------------------------------------------------ all of it


@contextmanager
def _cluster() -> Iterator[Any]:
    """A client of three workers that have loaded everything."""
    from distributed import Client, LocalCluster

    options = {"threads_per_worker": 1, "processes": True, "dashboard_address": None, "silence_logs": 50}
    with LocalCluster(n_workers=3, **options) as cluster, Client(cluster) as client, _notes() as folder:
        placed = place(client, generated(60, seed=0), 3)
        for booster in NAMES:
            train_together(client, booster, placed, Timed(folder, 0))
        yield client


def largest_difference(runs: list[Run]) -> float:
    """The largest difference in quality between several workers and one process."""
    alone = {(run.booster, run.rows): run.ndcg for run in runs if run.workers == 1}
    return max(abs(run.ndcg - alone[run.booster, run.rows]) for run in runs)


def run(quick: bool) -> dict[str, Any]:
    """Measure, print, and return everything."""
    sizes, seeds = ([100, 200], 1) if quick else ([250, 1000, 4000], SEEDS)
    with _cluster() as client:
        worker = float(np.median(list(client.run(_status, "VmRSS").values())))
        exchanges = measure_exchanges(client)
        partitions = measure_partitions(client, sizes[1], seeds)
        runs = measure_sizes(client, sizes, seeds)
    memory = measure_memory([500, 1000] if quick else [2000, 4000, 8000])
    show_sizes(runs)
    print(f"\nlargest difference in NDCG@10 to one process: {largest_difference(runs):.4f}; tolerance: {TOLERANCE}")
    show_partitions(partitions)
    show_exchanges(exchanges)
    show_memory(memory, worker)
    show_paper(runs, memory)
    return {
        "machine": machine(),
        "load": os.getloadavg()[0],
        "rounds": ROUNDS,
        "seeds": seeds,
        "tolerance": TOLERANCE,
        "largest_difference": largest_difference(runs),
        "runs": [_as_dict(one) for one in runs],
        "partitions": [_as_dict(one) for one in partitions],
        "exchanges": exchanges,
        "memory": {**memory, "a worker without data": worker},
    }


def _as_dict(run: Run) -> dict[str, Any]:
    return {**dataclasses.asdict(run), **run.shares}


def main(arguments: list[str]) -> None:
    if arguments[:1] == ["--memory"]:
        say_memory(arguments[1], [int(size) for size in arguments[2:]])
        return
    quick = "--quick" in arguments
    measured = run(quick)
    if not quick:
        RESULTS.write_text(json.dumps(measured, indent=1) + "\n")
        if measured["largest_difference"] > TOLERANCE:
            raise SystemExit(f"models differ by {measured['largest_difference']:.4f} in NDCG@10")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(sys.argv[1:])
