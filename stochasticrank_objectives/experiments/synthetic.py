"""The paper's table 1: whether the global optimum is reached on two tiny queries."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from stochasticrank_objectives.datasets import RankingData
from stochasticrank_objectives.losses import Loss
from stochasticrank_objectives.metrics import NDCG, Metric
from stochasticrank_objectives.recommended import BOOSTERS

from .methods import (
    ITS_OWN,
    Params,
    check_installed,
    check_names,
    make_lambda_loss,
    make_lambda_mart,
    make_soft_rank,
    make_with_sglb,
    own_objectives,
    title,
)
from .search import Workers, write_whole
from .training import Settings, train

SYNTHETIC = RankingData(
    np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 1], [1, 0, 0]], np.float64),
    np.array([3.0, 2.0, 1.0, 3.0, 2.0]),
    np.array([3, 2]),
)
"""Two queries with several local optima for NDCG@3; the best order of the three distinct documents gives 0.917."""

GLOBAL = 0.9165  # reached if NDCG@3 is at least this; the best local optimum is 0.903
_SINGLE_ROWS: dict[str, dict[str, Any]] = {  # a tree may split off a single row
    "xgboost": {"min_child_weight": 0},
    "lightgbm": {
        "min_data_in_leaf": 1, "min_sum_hessian_in_leaf": 0, "min_data_in_bin": 1, "feature_pre_filter": False,
    },
    "catboost": {"bootstrap_type": "No", "random_strength": 0},
}  # fmt: skip
SYNTHETIC_PARAMS = {"learning_rate": 0.1, "diffusion_temperature": 1e4, "model_shrink_rate": 1e-3, "noise": 0.5, "mu": 0.1}


SYNTHETIC_ROWS: dict[str, tuple[str, Callable[[Metric, Params, int], Loss]]] = {
    "lambdamart": ("lambda-MART", lambda metric, params, seed: make_lambda_mart(metric, {}, seed)),
    "lambdaloss": ("lambda-Loss", lambda metric, params, seed: make_lambda_loss(metric, {}, seed)),
    "e-lambdamart": ("E-lambda-MART, noise 0.5", make_lambda_mart),
    "e-lambdaloss": ("E-lambda-Loss, noise 0.5", make_lambda_loss),
    "softrank": ("SoftRank", make_soft_rank),
    "sr-r1": ("StochasticRank + SGLB", make_with_sglb),
}


def _train_synthetic(task: tuple[str, str, int, int]) -> dict[str, Any]:
    booster, method, seed, rounds = task
    metric = NDCG(3)
    objective = SYNTHETIC_ROWS[method][1](metric, SYNTHETIC_PARAMS, seed) if method in SYNTHETIC_ROWS else method
    trained = train(
        booster, objective, SYNTHETIC, SYNTHETIC, metric=metric,
        settings=Settings(
            rounds=rounds, learning_rate=0.1, depth=3, l2=0.0, seed=seed, threads=1, more=_SINGLE_ROWS[booster]
        ),
    )  # fmt: skip
    return {"ndcg@3": trained.curve[-1], "seconds": trained.seconds}


@dataclasses.dataclass
class SyntheticCell:
    """A method on a booster: NDCG@3 after the last iteration, by seed."""

    booster: str
    method: str
    title: str
    values: list[float]

    @property
    def reached(self) -> int:
        """From how many seeds the global optimum was reached."""
        return sum(value >= GLOBAL for value in self.values)

    @property
    def mean(self) -> float:
        return float(np.mean(self.values))


def synthetic(
    *,
    boosters: Sequence[str] = BOOSTERS,
    methods: Sequence[str] = (*SYNTHETIC_ROWS, ITS_OWN),
    seeds: int = 20,
    rounds: int = 300,
    jobs: int = 1,
    folder: str | os.PathLike[str] | None = None,
    progress: bool = True,
) -> list[SyntheticCell]:
    """The paper's Table 1: whether the global optimum is reached on two tiny queries.

    With a folder, finished runs are kept there, and not run again.
    """
    from tqdm import tqdm

    if seeds < 1 or rounds < 1:
        raise ValueError(f"seeds and rounds must be at least 1, got seeds={seeds}, rounds={rounds}")
    methods = check_names("method", methods, (*SYNTHETIC_ROWS, ITS_OWN))
    cells = []
    for booster in check_names("booster", boosters, BOOSTERS):
        check_installed(booster)
        for method in methods:
            for each in own_objectives(booster, NDCG(3)) if method == ITS_OWN else [method]:
                name = SYNTHETIC_ROWS[each][0] if each in SYNTHETIC_ROWS else title(each)
                cells.append(SyntheticCell(booster, each, name, [float("nan")] * seeds))
    runs = None if folder is None else pathlib.Path(folder) / "runs.json"
    known: dict[str, float] = json.loads(runs.read_text(encoding="utf-8")) if runs is not None and runs.exists() else {}
    tasks = []
    for cell in cells:
        for seed in range(seeds):
            task = (cell.booster, cell.method, seed, rounds)
            cell.values[seed] = known.get(_key(task), float("nan"))
            if _key(task) not in known:
                tasks.append(((cell, seed, _key(task)), task))
    total = len(cells) * seeds
    with Workers(jobs) as workers, tqdm(total=total, initial=total - len(tasks), unit="run", disable=not progress) as bar:
        for (cell, seed, key), result in workers.run(_train_synthetic, iter(tasks)):
            cell.values[seed] = known[key] = result["ndcg@3"]
            if runs is not None:
                runs.parent.mkdir(parents=True, exist_ok=True)
                write_whole(runs, json.dumps(known, indent=0) + "\n")
            bar.update()
    return cells


def _key(task: tuple[str, str, int, int]) -> str:
    booster, method, seed, rounds = task
    return f"{booster} {method} seed={seed} rounds={rounds} {SYNTHETIC_PARAMS}"
