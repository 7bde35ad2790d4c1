"""One call that trains any of the three boosters, on a loss of ours or on an objective of its own, and watches a metric.

`Trained.save` and `load` write and read the boosters' own model files.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from stochasticrank_objectives._constants import Array
from stochasticrank_objectives.datasets import RankingData
from stochasticrank_objectives.losses import Loss
from stochasticrank_objectives.metrics import Metric, parse_metric
from stochasticrank_objectives.recommended import BOOSTERS

SUFFIXES = {".json": "xgboost", ".ubj": "xgboost", ".txt": "lightgbm", ".cbm": "catboost"}
"""Which booster's a model file is, by how its name ends."""

_FIRST_INDEX = "stochasticrank_first_index"  # an attribute in XGBoost's model files, metadata in CatBoost's
_FEATURE = "feature_"  # followed by its index in the file, the name of a feature in LightGBM's, which have no attributes

Progress = Callable[[float], object]
"""Called with the validation metric after each iteration."""


@dataclasses.dataclass(frozen=True)
class Settings:
    """What all three boosters are told, in the words of XGBoost; `more` goes to the booster as it is.

    Without `l2`, leaves are regularised as the booster does by default.
    """

    rounds: int = 300
    learning_rate: float = 0.1
    depth: int = 6
    l2: float | None = None
    patience: int | None = None
    seed: int = 0
    threads: int | None = None
    more: dict[str, Any] = dataclasses.field(default_factory=dict)
    first_index: int | None = None  # of the features in the files that they come from: saved models remember it


@dataclasses.dataclass(frozen=True)
class Trained:
    """A model with the validation metric after each iteration; it predicts with the trees up to the best one."""

    booster: str
    model: Any
    curve: list[float]
    clock: list[float]  # seconds since the start, at each point of the curve
    seconds: float
    _trees: list[int]
    _predict: Callable[[ArrayLike, int], Array]
    first_index: int | None = None

    @property
    def best_rounds(self) -> int:
        """After how many iterations the validation metric was best."""
        return int(np.argmax(self.curve)) + 1

    def predict(self, features: ArrayLike, rounds: int | None = None) -> Array:
        """Scores with the trees of so many iterations, by default the best number."""
        trees = self._trees[(rounds or self.best_rounds) - 1]
        return self._predict(features, trees) if trees else np.zeros(np.shape(features)[0])

    def save(self, path: str | os.PathLike[str], rounds: int | None = None) -> None:
        """Write the booster's own model file, with the trees of so many iterations, by default the best number."""
        if (of := booster_of(path)) != self.booster:
            raise ValueError(f"{os.fspath(path)} has the name of a model of {of}, but this one is of {self.booster}")
        trees = self._trees[(rounds or self.best_rounds) - 1]
        if not trees:
            raise ValueError(f"{self.booster} has made no tree, so there is no model to save; use more data or lower limits")
        if self.booster == "xgboost":
            model = self.model[:trees]
            if self.first_index is not None:
                model.set_attr(**{_FIRST_INDEX: str(self.first_index)})
            model.save_model(path)
        elif self.booster == "lightgbm":
            self.model.save_model(path, num_iteration=trees)
        else:
            model = self.model.copy()
            model.shrink(trees)
            if self.first_index is not None:
                model.get_metadata()[_FIRST_INDEX] = str(self.first_index)
            model.save_model(os.fspath(path))


@dataclasses.dataclass(frozen=True)
class Loaded:
    """A model from a file of its booster: how many features it wants, and its scores."""

    booster: str
    features: int
    predict: Callable[[ArrayLike], Array]
    first_index: int | None  # of the features in the files that it was trained on, if it tells


def booster_of(path: str | os.PathLike[str]) -> str:
    """The booster that a model file is for, by its suffix."""
    suffix = os.path.splitext(path)[1].lower()
    if suffix not in SUFFIXES:
        known = ", ".join(f"{one} ({booster})" for one, booster in SUFFIXES.items())
        raise ValueError(f"{os.fspath(path)} does not say by its name which booster's model it is; use one of {known}")
    return SUFFIXES[suffix]


def load(path: str | os.PathLike[str]) -> Loaded:
    """Read a model file with its booster."""
    booster = booster_of(path)
    if not os.path.isfile(path):
        raise ValueError(f"{os.fspath(path)}: there is no such model file")
    with _as_value_error(f"{os.fspath(path)} is not a model of {booster}"):
        return {"xgboost": _load_xgboost, "lightgbm": _load_lightgbm, "catboost": _load_catboost}[booster](os.fspath(path))


def _load_xgboost(path: str) -> Loaded:
    from stochasticrank_objectives.adapters.xgboost import xgb

    model = xgb.Booster(model_file=path)
    return Loaded(
        "xgboost",
        model.num_features(),
        lambda x: _floats(model.predict(xgb.DMatrix(x), output_margin=True)),
        _as_index(model.attr(_FIRST_INDEX)),
    )


def _load_lightgbm(path: str) -> Loaded:
    from stochasticrank_objectives.adapters.lightgbm import lightgbm as lgb

    model = lgb.Booster(model_file=path)
    names = model.feature_name()
    first = next((first for first in (0, 1) if names == _names(first, len(names))), None)
    return Loaded("lightgbm", len(names), lambda x: _floats(model.predict(x, raw_score=True)), first)


def _load_catboost(path: str) -> Loaded:
    from stochasticrank_objectives.adapters.catboost import catboost

    model = catboost.CatBoost().load_model(path)
    names = model.feature_names_
    metadata = model.get_metadata()
    first = _as_index(metadata.get(_FIRST_INDEX)) if _FIRST_INDEX in metadata else None
    return Loaded("catboost", len(names), lambda x: _floats(model.predict(x, prediction_type="RawFormulaVal")), first)


def _as_index(text: str | None) -> int | None:
    return int(text) if text in ("0", "1") else None


def _names(first_index: int, count: int) -> list[str]:
    return [f"{_FEATURE}{index}" for index in range(first_index, first_index + count)]


def _floats(scores: Any) -> Array:
    return np.asarray(scores, np.float64)


@contextlib.contextmanager
def _as_value_error(what: str) -> Iterator[None]:
    """The boosters' own errors, each of a class of its own, as ValueErrors of one line."""
    try:
        yield
    except Exception as error:
        if type(error).__name__ not in ("XGBoostError", "LightGBMError", "CatBoostError"):
            raise
        raise ValueError(f"{what}: {str(error).strip().splitlines()[0]}") from error


class _Watch:
    """The curve so far, who is told about it, and whether it is time to stop."""

    def __init__(self, patience: int | None, progress: Progress | None) -> None:
        self.curve: list[float] = []
        self.clock: list[float] = []
        self._start = time.perf_counter()
        self.trees: list[int] = []  # how many there are after each iteration: LightGBM keeps none without a split
        self._patience, self._progress = patience, progress

    def stops(self, value: float, trees: int | None = None) -> bool:
        self.curve.append(float(value))
        self.clock.append(time.perf_counter() - self._start)
        self.trees.append(len(self.curve) if trees is None else trees)
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
    with _as_value_error(booster):
        model, predict = fit(objective, learn, valid, parse_metric(metric), settings, watch)
    seconds = time.perf_counter() - start
    return Trained(booster, model, watch.curve, watch.clock, seconds, watch.trees, predict, settings.first_index)


# ------------------------------------------------------------ parameters of the boosters

_OPTIONS = {
    "rounds": "iterations num_boost_round n_estimators num_trees num_iterations num_iteration n_iter num_tree num_round "
    "num_rounds nrounds max_iter",
    "learning_rate": "eta shrinkage_rate",
    "depth": "max_depth",
    "l2": "lambda reg_lambda lambda_l2 l2_leaf_reg l2_regularization",
    "seed": "random_state random_seed",
    "objective": "objective_type app application loss loss_function",
    "metric": "metrics metric_types eval_metric custom_metric",
    "patience": "early_stopping_round early_stopping_rounds early_stopping n_iter_no_change od_wait",
}  # fmt: skip


def option_for(name: str) -> str | None:
    """The field of `Settings`, or argument of `train`, that stands for a parameter of the boosters; None if none does."""
    return next((option for option, names in _OPTIONS.items() if name in (option, *names.split())), None)


def unknown_parameters(booster: str, objective: Loss | str, more: dict[str, Any]) -> list[str]:
    """Which of these parameters the booster does not know, or would not use.

    Each of the boosters is asked in its own way: XGBoost and LightGBM would only warn, and train without them.
    """
    if booster == "lightgbm":
        from lightgbm.basic import _ConfigAliases

        known = _ConfigAliases._get_all_param_aliases()
        every = {alias for name, aliases in known.items() for alias in (name, *aliases)}
        return [name for name in more if name not in every]
    if booster == "catboost":
        return [name for name, value in more.items() if not _known_to_catboost(name, value)]
    from stochasticrank_objectives.adapters.xgboost import xgb

    data = xgb.DMatrix(np.zeros((2, 1)), [0, 1], group=[2])
    own = {"objective": objective} if isinstance(objective, str) else {}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        xgb.Booster({**own, **more, "verbosity": 1}, [data]).save_config()
    unused = [found for one in caught for found in re.findall(r"Parameters: \{(.*?)\} are not used", str(one.message))]
    return [name for name in more if any(f'"{name}"' in found for found in unused)]


def _known_to_catboost(name: str, value: Any) -> bool:
    """Whether CatBoost has a parameter of this name; a wrong value is refused when it trains."""
    from catboost.core import CatBoostError, _check_train_params

    try:
        _check_train_params({"loss_function": "RMSE", name: value})
    except CatBoostError as error:
        return "Unknown option" not in str(error)
    return True


# ------------------------------------------------------------ the three boosters


def _xgboost(
    objective: Loss | str, learn: RankingData, valid: RankingData, metric: Metric, settings: Settings, watch: _Watch
) -> tuple[Any, Callable[[ArrayLike, int], Array]]:
    from stochasticrank_objectives.adapters.xgboost import XGBoostMetric, XGBoostObjective, xgb

    class Callback(xgb.callback.TrainingCallback):  # type: ignore[misc]
        def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
            return watch.stops(evals_log["valid"]["watched"][-1])

    data = xgb.QuantileDMatrix(learn.features, learn.labels, group=learn.groups)
    held = xgb.QuantileDMatrix(valid.features, valid.labels, group=valid.groups, ref=data)
    own = isinstance(objective, str)
    params = {
        "max_depth": settings.depth,
        "eta": settings.learning_rate,
        "seed": settings.seed,
        "disable_default_eval_metric": True,
        **({} if settings.l2 is None else {"lambda": settings.l2}),
        **({"nthread": settings.threads} if settings.threads else {}),
        **({"objective": objective} if own else {}),
        **settings.more,
    }
    model = xgb.train(
        params, data, settings.rounds, evals=[(held, "valid")], verbose_eval=False, callbacks=[Callback()],
        obj=None if isinstance(objective, str) else XGBoostObjective(objective),
        custom_metric=XGBoostMetric(metric, name="watched"),
    )  # fmt: skip

    def predict(features: ArrayLike, rounds: int) -> Array:
        scores = model.predict(xgb.DMatrix(features), iteration_range=(0, rounds), output_margin=True)
        return _floats(scores)

    return model, predict


def _lightgbm(
    objective: Loss | str, learn: RankingData, valid: RankingData, metric: Metric, settings: Settings, watch: _Watch
) -> tuple[Any, Callable[[ArrayLike, int], Array]]:
    from stochasticrank_objectives.adapters.lightgbm import LightGBMMetric, LightGBMObjective
    from stochasticrank_objectives.adapters.lightgbm import lightgbm as lgb

    def callback(environment: Any) -> None:
        value = next(one[2] for one in environment.evaluation_result_list if one[1] == "watched")
        if watch.stops(value, environment.model.current_iteration()):
            raise lgb.callback.EarlyStopException(environment.iteration, environment.evaluation_result_list)

    columns = learn.features.shape[1]
    names: Any = "auto" if settings.first_index is None else _names(settings.first_index, columns)
    data = lgb.Dataset(learn.features, learn.labels, group=learn.groups, feature_name=names, params={"verbose": -1})
    held = lgb.Dataset(valid.features, valid.labels, group=valid.groups, reference=data, params={"verbose": -1})
    params = {
        "objective": objective if isinstance(objective, str) else LightGBMObjective(objective),
        "max_depth": settings.depth,
        "num_leaves": min(2**settings.depth, 2**15),
        "learning_rate": settings.learning_rate,
        "seed": settings.seed,
        "metric": "None",
        "verbose": -1,
        **({} if settings.l2 is None else {"lambda_l2": settings.l2}),
        **({"num_threads": settings.threads} if settings.threads else {}),
        **settings.more,
    }
    model = lgb.train(
        params, data, settings.rounds, valid_sets=[held], valid_names=["valid"],
        feval=LightGBMMetric(metric, name="watched"), callbacks=[callback],
    )  # fmt: skip

    def predict(features: ArrayLike, rounds: int) -> Array:
        return _floats(model.predict(features, num_iteration=rounds, raw_score=True))

    return model, predict


def _catboost(
    objective: Loss | str, learn: RankingData, valid: RankingData, metric: Metric, settings: Settings, watch: _Watch
) -> tuple[Any, Callable[[ArrayLike, int], Array]]:
    from stochasticrank_objectives.adapters.catboost import CatBoostMetric, CatBoostStochasticRank, catboost

    name = CatBoostMetric(metric).name

    class Callback:
        def after_iteration(self, info: Any) -> bool:
            # By name: beside ours CatBoost reports the metric of its own objective, in no particular order.
            return not watch.stops(info.metrics["validation"][name][-1])

    data = catboost.Pool(learn.features, learn.labels, group_id=learn.qid)
    held = catboost.Pool(valid.features, valid.labels, group_id=valid.qid)
    params = {
        "iterations": settings.rounds,
        "depth": settings.depth,
        "learning_rate": settings.learning_rate,
        "random_seed": settings.seed,
        "boosting_type": "Plain",
        "use_best_model": False,
        "logging_level": "Silent",
        "allow_writing_files": False,
        **({} if settings.l2 is None else {"l2_leaf_reg": settings.l2}),
        **({"thread_count": settings.threads} if settings.threads else {}),
        **settings.more,
    }
    if isinstance(objective, str):
        watched = CatBoostMetric(metric, [data, held])
        model = catboost.CatBoost({**params, "loss_function": objective, "eval_metric": watched})
    else:
        model = CatBoostStochasticRank(objective, eval_metric=metric, **params)
    model.fit(data, eval_set=held, callbacks=[Callback()])

    def predict(features: ArrayLike, rounds: int) -> Array:
        return _floats(model.predict(features, prediction_type="RawFormulaVal", ntree_end=rounds))

    return model, predict
