"""One call that trains any of the three boosters, on a loss of ours or on an objective of its own, and watches a metric."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from stochasticrank_objectives.datasets import RankingData
from stochasticrank_objectives.losses import Loss
from stochasticrank_objectives.metrics import Array, Metric, parse_metric

BOOSTERS = ("xgboost", "lightgbm", "catboost")

Progress = Callable[[float], object]
"""Called with the validation metric after each iteration."""


@dataclasses.dataclass(frozen=True)
class Settings:
    """What all three boosters are told, in the words of XGBoost; `more` goes to the booster as it is."""

    rounds: int = 300
    learning_rate: float = 0.1
    depth: int = 6
    l2: float = 1.0
    patience: int | None = None
    seed: int = 0
    threads: int | None = None
    more: dict[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Trained:
    """A model with the validation metric after each iteration; it predicts with the trees up to the best one."""

    model: Any
    curve: list[float]
    seconds: float
    _predict: Callable[[ArrayLike, int], Array]

    @property
    def best_rounds(self) -> int:
        """How many trees were best on the validation data."""
        return int(np.argmax(self.curve)) + 1

    def predict(self, features: ArrayLike) -> Array:
        """Scores with the best number of trees."""
        return self._predict(features, self.best_rounds)


class _Watch:
    """The curve so far, who is told about it, and whether it is time to stop."""

    def __init__(self, patience: int | None, progress: Progress | None) -> None:
        self.curve: list[float] = []
        self._patience, self._progress = patience, progress

    def stops(self, value: float) -> bool:
        self.curve.append(float(value))
        if self._progress is not None:
            self._progress(self.curve[-1])
        return self._patience is not None and len(self.curve) - 1 - int(np.argmax(self.curve)) >= self._patience


def train(
    booster: str,
    objective: Loss | str,
    learn: RankingData,
    valid: RankingData,
    *,
    metric: str | Metric = "ndcg@10",
    settings: Settings | None = None,
    progress: Progress | None = None,
) -> Trained:
    """Train on `learn` and watch `metric` (ties in the worst order) on `valid` after each iteration.

    `objective` is a loss, or the name of an objective of the booster's own, such as "lambdarank". With `patience`, training
    stops when the metric has not improved for so many rounds.
    """
    if booster not in BOOSTERS:
        raise ValueError(f"booster must be one of {', '.join(BOOSTERS)}, got {booster!r}")
    settings = Settings() if settings is None else settings
    watch = _Watch(settings.patience, progress)
    start = time.perf_counter()
    fit = {"xgboost": _xgboost, "lightgbm": _lightgbm, "catboost": _catboost}[booster]
    model, predict = fit(objective, learn, valid, parse_metric(metric), settings, watch)
    return Trained(model, watch.curve, time.perf_counter() - start, predict)


def _xgboost(
    objective: Loss | str, learn: RankingData, valid: RankingData, metric: Metric, settings: Settings, watch: _Watch
) -> tuple[Any, Callable[[ArrayLike, int], Array]]:
    from .xgboost import XGBoostMetric, XGBoostObjective, xgb

    class Callback(xgb.callback.TrainingCallback):  # type: ignore[misc,name-defined]
        def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
            return watch.stops(evals_log["valid"]["watched"][-1])

    data = xgb.QuantileDMatrix(learn.features, learn.labels, group=learn.groups)
    held = xgb.QuantileDMatrix(valid.features, valid.labels, group=valid.groups, ref=data)
    own = isinstance(objective, str)
    params = {
        "max_depth": settings.depth,
        "eta": settings.learning_rate,
        "lambda": settings.l2,
        "seed": settings.seed,
        "disable_default_eval_metric": True,
        **({"nthread": settings.threads} if settings.threads else {}),
        **({"objective": objective} if own else {}),
        **settings.more,
    }
    model = xgb.train(
        params, data, settings.rounds, evals=[(held, "valid")], verbose_eval=False, callbacks=[Callback()],
        obj=None if isinstance(objective, str) else XGBoostObjective(objective),
        custom_metric=XGBoostMetric(metric, name="watched", threads=settings.threads),
    )  # fmt: skip

    def predict(features: ArrayLike, rounds: int) -> Array:
        scores = model.predict(xgb.DMatrix(features), iteration_range=(0, rounds), output_margin=True)
        return np.asarray(scores, np.float64)

    return model, predict


def _lightgbm(
    objective: Loss | str, learn: RankingData, valid: RankingData, metric: Metric, settings: Settings, watch: _Watch
) -> tuple[Any, Callable[[ArrayLike, int], Array]]:
    from .lightgbm import LightGBMMetric, LightGBMObjective
    from .lightgbm import lightgbm as lgb

    def callback(environment: Any) -> None:
        if watch.stops(environment.evaluation_result_list[0][2]):
            raise lgb.callback.EarlyStopException(environment.iteration, environment.evaluation_result_list)

    data = lgb.Dataset(learn.features, learn.labels, group=learn.groups, params={"verbose": -1})
    held = lgb.Dataset(valid.features, valid.labels, group=valid.groups, reference=data, params={"verbose": -1})
    params = {
        "objective": objective if isinstance(objective, str) else LightGBMObjective(objective),
        "max_depth": settings.depth,
        "num_leaves": min(2**settings.depth, 2**15),
        "learning_rate": settings.learning_rate,
        "lambda_l2": settings.l2,
        "seed": settings.seed,
        "metric": "None",
        "verbose": -1,
        **({"num_threads": settings.threads} if settings.threads else {}),
        **settings.more,
    }
    model = lgb.train(
        params, data, settings.rounds, valid_sets=[held], valid_names=["valid"],
        feval=LightGBMMetric(metric), callbacks=[callback],
    )  # fmt: skip

    def predict(features: ArrayLike, rounds: int) -> Array:
        return np.asarray(model.predict(features, num_iteration=rounds, raw_score=True), np.float64)

    return model, predict


def _catboost(
    objective: Loss | str, learn: RankingData, valid: RankingData, metric: Metric, settings: Settings, watch: _Watch
) -> tuple[Any, Callable[[ArrayLike, int], Array]]:
    from .catboost import CatBoostMetric, CatBoostStochasticRank, catboost

    class Callback:
        def after_iteration(self, info: Any) -> bool:
            return not watch.stops(next(iter(info.metrics["validation"].values()))[-1])

    data = catboost.Pool(learn.features, learn.labels, group_id=learn.qid)
    held = catboost.Pool(valid.features, valid.labels, group_id=valid.qid)
    params = {
        "iterations": settings.rounds,
        "depth": settings.depth,
        "learning_rate": settings.learning_rate,
        "l2_leaf_reg": settings.l2,
        "random_seed": settings.seed,
        "boosting_type": "Plain",
        "use_best_model": False,
        "logging_level": "Silent",
        "allow_writing_files": False,
        **({"thread_count": settings.threads} if settings.threads else {}),
        **settings.more,
    }
    if isinstance(objective, str):
        watched = CatBoostMetric(metric, [data, held], threads=settings.threads)
        model = catboost.CatBoost({**params, "loss_function": objective, "eval_metric": watched})
    else:
        model = CatBoostStochasticRank(objective, eval_metric=metric, **params)
    model.fit(data, eval_set=held, callbacks=[Callback()])

    def predict(features: ArrayLike, rounds: int) -> Array:
        return np.asarray(model.predict(features, prediction_type="RawFormulaVal", ntree_end=rounds), np.float64)

    return model, predict
