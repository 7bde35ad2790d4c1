"""A cell of the study: one training of one objective on one data set, and the small record that is kept of it."""

from __future__ import annotations

import functools
import pathlib
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import stochasticrank_objectives as sr

from . import datasets
from .boosters import Checkpoint, Limits, Setting, checkpoints
from .objectives import METRICS, STOPS_ON, reported, resolve
from .real import Split

Array = NDArray[np.float64]
Record = dict[str, Any]
BLOCKS = 30
CURVE = 40


class Cell(NamedTuple):
    """What is trained, on what."""

    data: str
    replicate: int
    booster: str
    spec: str
    rate: float

    @property
    def objective(self) -> str:
        """The name under which the result is stored."""
        return resolve(self.spec, self.booster, self.rate, datasets.max_grade(self.data)).name

    @property
    def key(self) -> str:
        """The place of the record in the file of the data set."""
        return "|".join([str(self.replicate), self.booster, self.objective, f"{self.rate:g}"])


def block_means(values: Array) -> list[float]:
    """Means over fixed blocks of queries: query i of n is in block i * blocks // n."""
    blocks = min(BLOCKS, len(values))
    of_query = np.arange(len(values)) * blocks // len(values)
    means = np.bincount(of_query, values) / np.bincount(of_query)
    return [round(float(mean), 5) for mean in means]


@functools.lru_cache(maxsize=1)
def _load(name: str, replicate: int, folder: pathlib.Path | None) -> Split:
    return datasets.load(name, replicate, folder)


def run(cell: Cell, folder: pathlib.Path | None = None, limits: Limits | None = None) -> Record:
    """Train, and record what the number of trees that is best on validation data gives on test data, for each metric."""
    data = _load(cell.data, cell.replicate, folder)
    metrics = reported(datasets.max_grade(cell.data))
    objective = resolve(cell.spec, cell.booster, cell.rate, datasets.max_grade(cell.data))
    limits = Limits() if limits is None else limits
    seen, curve, predict = _watch(cell, data, Setting(objective, cell.rate, cell.replicate, limits), metrics)
    best = {name: int(np.argmax(values)) for name, values in curve.items()}
    tests = _test_values(data, metrics, {name: int(seen[at, 0]) for name, at in best.items()}, predict)
    return {
        "replicate": cell.replicate,
        "booster": cell.booster,
        "objective": objective.name,
        "rate": cell.rate,
        "trees": int(seen[-1, 0]),
        "queries": len(data.test.groups),
        "seconds_per_tree": _significant(float(np.median(np.diff(seen[:, 1]) / np.diff(seen[:, 0]))))
        if len(seen) > 1
        else None,
        "metrics": {
            name: {"trees": int(seen[best[name], 0]), "valid": round(curve[name][best[name]], 5), "test": tests[name]}
            for name in METRICS
        },
        "curve": _thinned(seen, curve[STOPS_ON]),
    }


def _watch(cell: Cell, data: Split, setting: Setting, metrics: dict[str, Any]) -> tuple[Array, dict[str, list[float]], Any]:
    """Trees and seconds at each checkpoint, all metrics on validation data there, and how to predict."""
    bound = {name: sr.bind_evaluation(m, data.valid.labels, data.valid.groups, threads=1) for name, m in metrics.items()}
    curve: dict[str, list[float]] = {name: [] for name in metrics}
    seen: list[tuple[int, float]] = []
    point: Checkpoint | None = None
    for point in checkpoints(cell.booster, data, setting):
        seen.append((point.trees, point.seconds))
        for name, evaluation in bound.items():
            curve[name].append(evaluation.mean(point.scores))
        if point.trees - seen[int(np.argmax(curve[STOPS_ON]))][0] >= setting.limits.patience:
            break
    if point is None:
        raise RuntimeError(f"{cell}: no tree has a split")
    return np.array(seen), curve, point.predict


def _test_values(data: Split, metrics: dict[str, Any], trees: dict[str, int], predict: Any) -> dict[str, list[float]]:
    scores, known, values = np.zeros(len(data.test.labels)), 0, {}
    for name in sorted(trees, key=lambda one: trees[one]):
        if trees[name] > known:
            scores, known = scores + predict(data.test.features, known, trees[name]), trees[name]
        per_query = sr.evaluate(metrics[name], scores, data.test.labels, data.test.groups, per_query=True, threads=1)
        values[name] = block_means(per_query)
    return values


def _thinned(seen: Array, values: list[float]) -> list[list[float]]:
    """Trees, seconds and the best validation value so far, at a few checkpoints, closer together in the beginning."""
    best = np.maximum.accumulate(values)
    at = np.unique(np.round(np.geomspace(1, len(seen), CURVE)).astype(int)) - 1
    at = np.union1d(at, [int(np.argmax(values))])
    return [[int(seen[i, 0]), _significant(float(seen[i, 1])), round(float(best[i]), 4)] for i in at]


def _significant(value: float) -> float:
    return float(f"{value:.3g}")
