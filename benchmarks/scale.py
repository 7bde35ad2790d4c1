"""Training on several processes: `python -m benchmarks.scale [--quick]` prints tables and writes benchmarks/scale.json.

Quality against one process, the gradient's and the communication's share of an iteration, and memory per row.
"""

from __future__ import annotations

import json
import os
import pathlib
import sys
import time
import warnings
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import numpy as np

import stochasticrank_objectives as sr
from stochasticrank_objectives.adapters import LightGBMObjective, XGBoostObjective
from stochasticrank_objectives.datasets import make_ranking

from .harness import machine, table

RESULTS = pathlib.Path(__file__).with_name("scale.json")
ROUNDS = 30
XGB = {"max_depth": 6, "learning_rate": 0.1, "tree_method": "hist", "nthread": 1}
LGB: dict[str, Any] = {"num_leaves": 31, "learning_rate": 0.1, "verbose": -1, "deterministic": True}


class Timed:
    """A loss that adds up how long its derivatives take, and what its process needs."""

    metric = sr.NDCG(10)

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder

    def bind(self, *arguments: Any, **keywords: Any) -> Any:
        before = _memory()
        self.bound = sr.recommended("ndcg@10", booster="xgboost").bind(*arguments, **keywords)
        self.memory, self.seconds, self.rows, self.begin = _memory() - before, 0.0, self.bound.rows, time.perf_counter()
        return self

    def derivatives(self, scores: Any, iteration: int) -> Any:
        begin = time.perf_counter()
        result = self.bound.derivatives(scores, iteration)
        end = time.perf_counter()
        self.seconds += end - begin
        said = {"gradient": self.seconds, "whole": end - self.begin, "rows": self.rows, "memory": self.memory}
        said["iterations"] = iteration + 1
        (self.folder / f"{os.getpid()}.json").write_text(json.dumps(said))
        return result


def _memory() -> int:
    with open("/proc/self/statm") as lines:
        return int(lines.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _said(folder: pathlib.Path) -> list[dict[str, float]]:
    found = [json.loads(path.read_text()) for path in folder.glob("*.json")]
    for path in folder.glob("*.json"):
        path.unlink()
    return found


def _cut(data: Any, parts: int) -> list[slice]:
    ends = np.append(0, np.cumsum(data.groups))
    return [slice(ends[a], ends[b]) for a, b in zip(*(np.linspace(0, len(data.groups), parts + 1).astype(int)[s] for s in (slice(-1), slice(1, None))), strict=True)]  # fmt: skip # noqa: E501


def run(quick: bool) -> dict[str, Any]:
    """All of it."""
    import tempfile

    import dask.array as da
    import lightgbm as lgb
    import xgboost as xgb
    from distributed import Client, LocalCluster
    from xgboost import dask as dxgb

    from stochasticrank_objectives.adapters.dask import DaskLightGBMRanker, query_matrix

    sizes = [100, 300] if quick else [250, 1000, 4000]
    folder = pathlib.Path(tempfile.mkdtemp())
    result: dict[str, Any] = {"machine": machine(), "rounds": ROUNDS, "runs": []}
    rows: list[list[Any]] = []
    with (
        LocalCluster(n_workers=3, threads_per_worker=1, processes=True, dashboard_address=None, silence_logs=50) as cluster,
        Client(cluster) as client,
    ):
        addresses = sorted(client.nthreads())
        for queries in sizes:
            data = make_ranking(queries, documents=(20, 60), features=20, seed=0)
            test = make_ranking(1000, documents=(20, 60), features=20, seed=1)
            for booster in ("xgboost", "lightgbm"):
                for workers in (1, 2, 3):
                    columns: dict[str, list[Any]] = {"x": [], "y": [], "qid": []}
                    for at, part in enumerate(_cut(data, workers)):
                        for name, values in zip(columns, (data.features, data.labels, data.qid), strict=True):
                            one = client.scatter(values[part], workers=[addresses[at]], hash=False)
                            columns[name].append(da.from_delayed(_delayed(one), values[part].shape, values.dtype))
                    x, y, qid = (da.concatenate(column) for column in columns.values())
                    loss: Any = Timed(folder)
                    begin = time.perf_counter()
                    if workers == 1 and booster == "xgboost":
                        matrix = xgb.QuantileDMatrix(data.features, data.labels, group=data.groups)
                        model: Any = xgb.train(XGB, matrix, ROUNDS, obj=XGBoostObjective(loss))
                    elif workers == 1:
                        params = {**LGB, "objective": LightGBMObjective(loss), "num_threads": 1}
                        model = lgb.train(params, lgb.Dataset(data.features, data.labels, group=data.groups), ROUNDS)
                    elif booster == "xgboost":
                        parts = query_matrix(client, x, y, qid=qid)
                        model = dxgb.train(client, XGB, parts, ROUNDS, obj=XGBoostObjective(loss))["booster"]
                    else:
                        ranker = DaskLightGBMRanker(LightGBMObjective(loss), metric="ndcg@10", n_estimators=ROUNDS, **LGB)
                        model = ranker.fit(x, y, qid=qid).booster_
                    seconds = time.perf_counter() - begin
                    scores = model.predict(xgb.DMatrix(test.features) if booster == "xgboost" else test.features)
                    ndcg = sr.evaluate("ndcg@10", scores, test.labels, test.groups)
                    said = _said(folder)
                    iteration = max(one["whole"] for one in said) / (ROUNDS - 1)
                    gradient = max(one["gradient"] for one in said) / ROUNDS
                    memory = float(np.mean([one["memory"] / one["rows"] for one in said]))
                    rows.append(
                        [
                            booster,
                            len(data.labels),
                            workers,
                            ndcg,
                            1e3 * iteration,
                            1e3 * gradient,
                            gradient / iteration,
                            memory,
                            seconds,
                        ]
                    )
    head = ["booster", "rows", "workers", "ndcg@10", "ms per iteration", "ms gradient", "share", "bytes per row", "seconds"]
    table(f"Training of {ROUNDS} rounds, 20 features, one thread per worker", head, rows)
    result["runs"] = [dict(zip(head, row, strict=True)) for row in rows]
    result["reduce"] = _communication()
    return result


def _delayed(future: Any) -> Any:
    import dask

    return dask.delayed(future)


def _meet(rank: int, size: int, name: str, times: int) -> float:
    from stochasticrank_objectives.adapters._collective import Meeting

    meeting = Meeting(rank, size, name)
    meeting.reduce(np.ones(2), "sum")
    begin = time.perf_counter()
    for _ in range(times):
        meeting.reduce(np.ones(2), "sum")
    return (time.perf_counter() - begin) / times


def _communication() -> dict[str, float]:
    """Seconds that one sum over all workers takes, in our own collective for LightGBM."""
    from distributed import Client, LocalCluster

    found = {}
    for workers in (2, 3):
        with (
            LocalCluster(
                n_workers=workers, threads_per_worker=1, processes=True, dashboard_address=None, silence_logs=50
            ) as cluster,
            Client(cluster) as client,
        ):
            places = sorted(client.nthreads())
            futures = [
                client.submit(_meet, at, workers, f"bench-{workers}", 200, workers=[place], pure=False)
                for at, place in enumerate(places)
            ]
            found[str(workers)] = max(client.gather(futures))
    table("One sum over all workers", ["workers", "ms"], [[name, 1e3 * value] for name, value in found.items()])
    return found


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    short = "--quick" in sys.argv
    measured = run(short)
    if not short:
        RESULTS.write_text(json.dumps(measured, indent=1) + "\n")
