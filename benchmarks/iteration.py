"""A whole training iteration of each booster: our objective beside its squared error and its own ranking objectives."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any

import catboost
import lightgbm
import numpy as np
import xgboost

from stochasticrank_objectives import StochasticRank
from stochasticrank_objectives.adapters import CatBoostStochasticRank, LightGBMObjective, XGBoostObjective

from .harness import table

METRIC = "ndcg@10"
_DOCUMENTS = 120  # per query
OURS = {"StochasticRank": StochasticRank(METRIC, sfa=False, hessian_constant=0), "recommended": METRIC}
NOTHING = "no work in Python"  # an objective that gives the same derivatives each time: what any of ours costs at least


def _data(count: int) -> tuple[np.ndarray, np.ndarray, list[int]]:
    """Labels that a few trees cannot explain: with nothing left to learn, a squared error's trees are small and quick."""
    rng = np.random.default_rng(2)
    features = rng.normal(size=(count * _DOCUMENTS, 50)).astype(np.float32)
    relevance = features[:, 0] + features[:, 1] * features[:, 2] + rng.normal(size=len(features))
    return features, np.clip(np.round(relevance), 0, 4), [_DOCUMENTS] * count


def _same(features: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Derivatives like those of a ranking loss in the middle of training: a little signal, much noise."""
    rng = np.random.default_rng(3)
    gradient = 0.1 * features[:, 0] + rng.normal(size=len(features))
    return gradient.astype(np.float32), np.ones(len(features), np.float32)


def _take_turns(steps: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """The median time of a step of each, in seconds, each doing one in turn; the first two are not counted."""
    times: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(rounds + 2):
        for name, step in steps.items():
            start = time.perf_counter()
            step()
            times[name].append(time.perf_counter() - start)
    return {name: float(np.median(taken[2:])) for name, taken in times.items()}


def _xgboost(count: int, rounds: int) -> dict[str, float]:
    features, labels, groups = _data(count)
    data = xgboost.QuantileDMatrix(features, labels, group=groups)
    common = {"max_depth": 6, "eta": 0.1, "nthread": 2, "base_score": 0.0, "disable_default_eval_metric": True}

    def step(booster: xgboost.Booster, objective: Any) -> None:
        booster.update(data, booster.num_boosted_rounds(), fobj=objective)

    steps = {}
    for name in ("reg:squarederror", "rank:ndcg", "rank:pairwise"):
        steps[name] = functools.partial(step, xgboost.Booster({**common, "objective": name}, [data]), None)
    same = _same(features)
    steps[NOTHING] = functools.partial(step, xgboost.Booster(common, [data]), lambda scores, data: same)
    for name, loss in OURS.items():
        steps[name] = functools.partial(step, xgboost.Booster(common, [data]), XGBoostObjective(loss))
    return _take_turns(steps, rounds)


def _lightgbm(count: int, rounds: int) -> dict[str, float]:
    features, labels, groups = _data(count)
    common = {"num_leaves": 63, "max_depth": 6, "num_threads": 2, "verbose": -1, "learning_rate": 0.1}
    same = _same(features)
    objectives: dict[str, Any] = {NOTHING: lambda scores, data: same}
    objectives |= {name: LightGBMObjective(loss) for name, loss in OURS.items()}
    steps = {}
    for name in ("regression", "lambdarank", "rank_xendcg", *objectives):
        data = lightgbm.Dataset(features, labels, group=groups, params={"verbose": -1})
        booster = lightgbm.Booster({**common, "objective": "none" if name in objectives else name}, data)
        steps[name] = functools.partial(booster.update, fobj=objectives.get(name))
    return _take_turns(steps, rounds)


class _Nothing:
    """What CatBoost calls, and no more."""

    no_jit = True

    def __init__(self, features: np.ndarray) -> None:
        gradient, hessian = _same(features)
        self.derivatives = np.column_stack([gradient, -hessian]).astype(np.float64)

    def calc_ders_range(self, approxes: Any, targets: Any, weights: Any) -> np.ndarray:
        return self.derivatives[: len(targets)]

    def is_max_optimal(self) -> bool:
        return True

    def get_final_error(self, error: float, weight: float) -> float:
        return error

    def evaluate(self, approxes: Any, target: Any, weight: Any) -> tuple[float, float]:
        return 0.0, 1.0


class _Clock:
    """When each iteration ended."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def after_iteration(self, info: Any) -> bool:
        self.times.append(time.perf_counter())
        return True


def _catboost(count: int, rounds: int) -> dict[str, float]:
    features, labels, groups = _data(count)
    pool = catboost.Pool(features, labels, group_id=np.repeat(np.arange(count), groups))
    pool.quantize()
    common = {"depth": 6, "learning_rate": 0.1, "thread_count": 2, "logging_level": "Silent", "bootstrap_type": "No",
              "allow_writing_files": False, "boosting_type": "Plain", "random_seed": 1}  # fmt: skip

    nothing = _Nothing(features)

    def fit(name: str, iterations: int) -> list[float]:
        if name in OURS:
            model = CatBoostStochasticRank(OURS[name], iterations=iterations, **common)
        elif name == NOTHING:
            own = {"loss_function": nothing, "eval_metric": nothing, "leaf_estimation_iterations": 1}
            model = catboost.CatBoost({**common, **own, "iterations": iterations})
        else:
            model = catboost.CatBoost({**common, "loss_function": name, "iterations": iterations})
        clock = _Clock()
        model.fit(pool, callbacks=[clock])
        return np.diff(clock.times)[2:].tolist()

    # CatBoost has no call for one iteration, so here whole trainings take turns.
    names = {"RMSE": rounds, "YetiRank": rounds // 3, "StochasticRank:metric=NDCG;top=10": rounds // 3}
    names |= dict.fromkeys((NOTHING, *OURS), rounds)
    times: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(5):
        for name, iterations in names.items():
            times[name] += fit(name, iterations + 3)
    return {name: float(np.median(taken)) for name, taken in times.items()}


def run(quick: bool) -> dict[str, Any]:
    rounds = 6 if quick else 30
    result: dict[str, Any] = {}
    for booster, measure in (("xgboost", _xgboost), ("lightgbm", _lightgbm), ("catboost", _catboost)):
        for count in [200] if quick else [1000, 2000]:
            times = measure(count, rounds)
            squared, rows = next(iter(times.values())), _DOCUMENTS * count
            title = f"{booster}: one iteration, {rows} rows in {count} queries, 50 features, depth 6, 2 threads, {METRIC}"
            table(title, ["objective", "ms", "of squared error"], [[n, 1e3 * t, t / squared] for n, t in times.items()])
            figures = {name: {"ms": 1e3 * t, "ratio": t / squared} for name, t in times.items()}
            result.setdefault(booster, {})[str(rows)] = figures
    return result
