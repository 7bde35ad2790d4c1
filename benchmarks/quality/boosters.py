"""Trees of each booster under its usual settings, one checkpoint after another, with the seconds that training took."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stochasticrank_objectives.datasets import RankingData

from .objectives import STOPS_ON, Objective
from .real import Split

Array = NDArray[np.float64]
Predict = Callable[[NDArray[Any], int, int], Array]
"""Scores that the trees from one number up to another add."""

_CLOCK = time.process_time  # a training has one thread, and other processes must not count


class Limits(NamedTuple):
    """When training ends, and how often it is looked at: after each of the first trees, then after every few."""

    trees: int = 1500
    patience: int = 100
    dense: int = 50
    step: int = 5

    def looks(self, tree: int) -> bool:
        """Whether there is a checkpoint after this many trees."""
        return tree <= self.dense or tree % self.step == 0 or tree == self.trees


class Checkpoint(NamedTuple):
    """The state after some trees."""

    trees: int
    seconds: float  # of training, without looking
    scores: Array  # of the validation data
    predict: Predict


class Setting(NamedTuple):
    """How to train."""

    objective: Objective
    rate: float
    seed: int
    limits: Limits


def checkpoints(booster: str, data: Split, setting: Setting) -> Iterator[Checkpoint]:
    """Train for as long as the caller goes on asking, or up to the limits."""
    if setting.objective.loss is not None:
        _warm_up(setting.objective.loss)
    return {"xgboost": _xgboost, "lightgbm": _lightgbm, "catboost": _catboost}[booster](data, setting)


def _warm_up(loss: Any) -> None:
    """Compile now, not in a training that is timed."""
    loss.bind(np.array([0.0, 1.0, 0.0]), np.array([3])).derivatives(np.zeros(3), 0)


def _stepwise(limits: Limits, grow: Callable[[], int], predict: Predict, features: Any) -> Iterator[Checkpoint]:
    """`grow` adds a tree, or fails to, and tells how many there are."""
    scores, known, seconds, fruitless, trees = 0.0, 0, 0.0, 0, 0
    for iteration in range(1, limits.trees + 1):
        start = _CLOCK()
        before, trees = trees, grow()
        seconds += _CLOCK() - start
        fruitless = 0 if trees > before else fruitless + 1
        if trees > known and limits.looks(iteration):
            scores = scores + predict(features, known, trees)
            known = trees
            yield Checkpoint(trees, seconds, np.asarray(scores), predict)
        if fruitless >= 20:
            return


def _xgboost(data: Split, setting: Setting) -> Iterator[Checkpoint]:
    import xgboost as xgb

    from stochasticrank_objectives.adapters import XGBoostObjective

    def matrix(part: RankingData) -> Any:
        return xgb.DMatrix(part.features, part.labels, group=part.groups, nthread=1)

    learn = matrix(data.train)
    common = {"max_depth": 6, "tree_method": "hist", "eta": setting.rate, "base_score": 0.0, "nthread": 1}
    common |= {"seed": setting.seed, "disable_default_eval_metric": True, "verbosity": 0}
    own, loss = setting.objective.own, setting.objective.loss
    model = xgb.Booster({**common, **(own or {})}, [learn])
    objective = None if own is not None else XGBoostObjective(loss)

    def grow() -> int:
        model.update(learn, model.num_boosted_rounds(), fobj=objective)
        return model.num_boosted_rounds()

    held = matrix(data.valid)

    def predict(features: NDArray[Any], begin: int, end: int) -> Array:
        rows = held if features is data.valid.features else xgb.DMatrix(features, nthread=1)
        return model.predict(rows, output_margin=True, iteration_range=(begin, end)).astype(np.float64)

    return _stepwise(setting.limits, grow, predict, data.valid.features)


def _lightgbm(data: Split, setting: Setting) -> Iterator[Checkpoint]:
    import lightgbm as lgb

    from stochasticrank_objectives.adapters import LightGBMObjective

    own, loss = setting.objective.own, setting.objective.loss
    params = {"learning_rate": setting.rate, "seed": setting.seed, "num_threads": 1, "verbose": -1, "metric": "None"}
    learn = lgb.Dataset(data.train.features, data.train.labels, group=data.train.groups, params=params)
    model = lgb.Booster({**params, **(own or {"objective": "none"})}, learn)
    objective = None if own is not None else LightGBMObjective(loss)

    def grow() -> int:
        model.update(fobj=objective)
        return int(model.current_iteration())

    def predict(features: NDArray[Any], begin: int, end: int) -> Array:
        keywords = {"start_iteration": begin, "num_iteration": end - begin, "raw_score": True, "num_threads": 1}
        return np.asarray(model.predict(features, **keywords), np.float64)

    return _stepwise(setting.limits, grow, predict, data.valid.features)


class _Stop:
    """CatBoost's callback: when each tree was ready, and whether validation has stopped improving."""

    def __init__(self, metric: str, patience: int) -> None:
        self.seconds: list[float] = []
        self._metric, self._patience = metric, patience
        self._begun = _CLOCK()

    def after_iteration(self, info: Any) -> bool:
        """Whether to go on."""
        self.seconds.append(_CLOCK() - self._begun)
        curve = info.metrics["validation"][self._metric]
        return len(curve) - 1 - int(np.argmax(curve)) < self._patience


def _catboost(data: Split, setting: Setting) -> Iterator[Checkpoint]:
    """CatBoost cannot be stepped: train up to the end, then walk along the trees."""
    import catboost

    from stochasticrank_objectives.adapters import CatBoostStochasticRank

    limits = setting.limits
    learn, held = (catboost.Pool(p.features, p.labels, group_id=p.qid, thread_count=1) for p in (data.train, data.valid))
    params = {"iterations": limits.trees, "depth": 6, "learning_rate": setting.rate, "random_seed": setting.seed}
    params |= {"boosting_type": "Plain", "use_best_model": False, "thread_count": 1, "logging_level": "Silent"}
    params |= {"allow_writing_files": False}
    own, loss = setting.objective.own, setting.objective.loss
    if own is not None:
        metric = "NDCG:top=10;type=Exp"
        model = catboost.CatBoost({**params, **own, "eval_metric": metric})
    else:
        metric = STOPS_ON
        model = CatBoostStochasticRank(loss, eval_metric=metric, **params)
    stop = _Stop(metric, limits.patience)
    model.fit(learn, eval_set=held, callbacks=[stop])

    def predict(features: NDArray[Any], begin: int, end: int) -> Array:
        keywords = {"ntree_start": begin, "ntree_end": end, "prediction_type": "RawFormulaVal", "thread_count": 1}
        return np.asarray(model.predict(features, **keywords), np.float64)

    scores, known = np.zeros(len(data.valid.labels)), 0
    for trees in range(1, int(model.tree_count_) + 1):
        if limits.looks(trees):
            scores = scores + predict(data.valid.features, known, trees)
            known = trees
            yield Checkpoint(trees, stop.seconds[trees - 1], scores, predict)
