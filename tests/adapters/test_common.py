"""What holds for the adapters of all three boosters alike."""

from __future__ import annotations

import copy
import dataclasses
import doctest
import gc
import importlib
import importlib.metadata
import inspect
import pickle
import sys
from typing import Any

import catboost
import lightgbm as lgb
import numpy as np
import pytest
import xgboost as xgb

import stochasticrank_objectives as sr
from stochasticrank_objectives import adapters
from stochasticrank_objectives.adapters import _common
from stochasticrank_objectives.adapters._common import Bindings, calling
from stochasticrank_objectives.datasets import make_ranking
from stochasticrank_objectives.recommended import BOOSTERS

OBJECTIVES = {"xgboost": adapters.XGBoostObjective, "lightgbm": adapters.LightGBMObjective}
OBJECTIVES["catboost"] = adapters.CatBoostObjective
METRICS = {"xgboost": adapters.XGBoostMetric, "lightgbm": adapters.LightGBMMetric, "catboost": adapters.CatBoostMetric}


@pytest.mark.parametrize("module", ["_common", "_catboost_blocks", *BOOSTERS])
def test_examples_in_docstrings_run(module: str) -> None:
    result = doctest.testmod(importlib.import_module(f"stochasticrank_objectives.adapters.{module}"))
    assert result.failed == 0
    assert result.attempted > 0 or module.startswith("_")


# ------------------------------------------------------------ a name and its keywords


@pytest.mark.parametrize("booster", BOOSTERS)
def test_a_name_stands_for_the_recommended_loss(booster: str) -> None:
    objective = OBJECTIVES[booster]("ndcg@10")
    recommended = sr.recommended("ndcg@10", booster=booster)
    assert objective.loss == recommended
    assert objective == OBJECTIVES[booster](sr.NDCG(10)) == OBJECTIVES[booster](recommended, metric="ndcg@10")


@pytest.mark.parametrize("booster", BOOSTERS)
def test_keywords_change_fields_of_the_recommended_loss_and_nothing_else(booster: str) -> None:
    recommended = sr.recommended("ndcg@10", booster=booster)
    fields = {field.name: getattr(recommended, field.name) for field in dataclasses.fields(recommended)}
    fields.pop("metric", None)
    for name, value in fields.items():  # a default written out changes nothing
        assert OBJECTIVES[booster]("ndcg@10", **{name: value}) == OBJECTIVES[booster]("ndcg@10")
    changed = {name: value for name, value in {"mu": 0.4, "seed": 7, "threads": 1}.items() if name in fields}
    assert OBJECTIVES[booster]("ndcg@10", **changed).loss == dataclasses.replace(recommended, **changed)


@pytest.mark.parametrize("booster", BOOSTERS)
def test_keywords_that_cannot_be_meant_are_refused(booster: str) -> None:
    objective, loss = OBJECTIVES[booster], sr.StochasticRank("ndcg@10")
    with pytest.raises(ValueError, match=r"^sgima, muu: \w+ has no such field; it has .*seed"):
        objective("ndcg@10", sgima=1, muu=0.1)
    with pytest.raises(ValueError, match="mu: set these on the loss itself"):
        objective(loss, mu=0.1)
    with pytest.raises(ValueError, match="train_on goes with a metric's name"):
        objective(loss, train_on="mrr")
    with pytest.raises(ValueError, match="unknown metric"):
        objective("mrr", train_on="ndgc@10")
    with pytest.raises(ValueError, match="loss must be a metric"):
        objective(3)


# ------------------------------------------------------------ what is reported


@pytest.mark.parametrize("booster", BOOSTERS)
def test_the_metric_to_report(booster: str) -> None:
    objective, loss = OBJECTIVES[booster], sr.StochasticRank("ndcg@10")
    assert objective("mrr").metric == sr.MRR()
    assert objective("mrr", metric="err@5").metric == sr.ERR(5)
    assert objective(loss).metric == sr.NDCG(10)
    assert objective(sr.SGLB(loss)).metric == sr.NDCG(10)
    assert objective(sr.SGLB(loss), metric=sr.MRR()).metric == sr.MRR()
    named = objective("mrr", train_on="ndcg@10")
    assert named.metric == sr.MRR()
    assert named.loss == sr.recommended("mrr", booster=booster, train_on="ndcg@10")


# ------------------------------------------------------------ equality and copies


@pytest.mark.parametrize("booster", BOOSTERS)
def test_objectives_are_equal_if_loss_and_metric_are(booster: str) -> None:
    objective, loss = OBJECTIVES[booster], sr.StochasticRank("ndcg@10")
    one = objective(loss)
    equal = [objective(sr.StochasticRank("ndcg@10")), copy.deepcopy(one), pickle.loads(pickle.dumps(one))]
    equal.append(objective(loss, metric="ndcg@10"))
    for other in equal:
        assert one == other
        assert hash(one) == hash(other)
    for other in (objective(dataclasses.replace(loss, seed=1)), objective(loss, metric="mrr"), "ndcg@10", None):
        assert one != other
    others = [OBJECTIVES[name](loss) for name in BOOSTERS if name != booster]
    assert one not in others


@pytest.mark.parametrize("booster", BOOSTERS)
def test_metrics_are_equal_if_all_settings_are(booster: str) -> None:
    metric: Any = METRICS[booster]
    one = metric("ndcg@10", ties="mean")
    for other in (metric(sr.NDCG(10), ties="mean", empty=0.0), copy.deepcopy(one), pickle.loads(pickle.dumps(one))):
        assert one == other
        assert hash(one) == hash(other)
    for other in (metric("ndcg@10"), metric("ndcg@9", ties="mean"), metric("ndcg@10", ties="mean", threads=1)):
        assert one != other
    assert one not in [METRICS[name]("ndcg@10", ties="mean") for name in BOOSTERS if name != booster]


# ------------------------------------------------------------ what is bound, and to what


class Thing:
    pass


def test_what_is_bound_holds_for_the_same_objects_while_they_live() -> None:
    bindings: Bindings[int] = Bindings()
    labels, sizes, thing, made = np.zeros(3), [3], Thing(), iter(range(100))

    def get(*objects: Any) -> int:
        return bindings.get(objects, lambda: next(made))

    assert [get(labels, sizes, thing), get(labels, sizes, thing)] == [0, 0]
    assert get(np.zeros(3), sizes, thing) == 1  # equal but another; gone by now
    assert get(labels, [3], thing) == 2
    assert get(labels, None, thing) == 3
    assert get(labels, sizes, thing) == 0
    assert len(bindings) == 3
    assert len(copy.deepcopy(bindings)) == len(pickle.loads(pickle.dumps(bindings))) == 0
    del thing
    gc.collect()
    assert len(bindings) == 0


def test_the_nearest_caller_of_a_kind_is_found() -> None:
    class Caller(Thing):
        def call(self, function: Any) -> Any:
            return function()

    one, other = Caller(), Caller()
    assert calling(Caller) is None
    assert one.call(lambda: calling(Caller)) is one
    assert one.call(lambda: other.call(lambda: calling(Thing))) is other


# ------------------------------------------------------------ threads


class Counting:
    """A loss whose bound form says how many threads it was left, as those of the core do."""

    metric = sr.NDCG(5)
    bound: Any = None

    def bind(self, *arguments: Any, **keywords: Any) -> Any:
        Counting.bound = sr.StochasticRank("ndcg@5").bind(*arguments, **keywords)
        Counting.bound.threads = "not set"
        return Counting.bound


DATA = make_ranking(20, features=4)


def train_xgboost(params: dict[str, Any], objective: Any, metric: Any) -> None:
    data = xgb.DMatrix(DATA.features, DATA.labels, group=DATA.groups)
    evals: dict[str, Any] = {"evals": [(data, "x")], "verbose_eval": False}
    xgb.train(
        params, data, 2, obj=adapters.XGBoostObjective(objective), custom_metric=adapters.XGBoostMetric(**metric), **evals
    )


def train_ranker(params: dict[str, Any], objective: Any, metric: Any) -> None:
    model = adapters.XGBoostRanker(objective, metric=adapters.XGBoostMetric(**metric), n_estimators=2, **params)
    model.fit(DATA.features, DATA.labels, qid=DATA.qid).score(DATA.features, DATA.labels, qid=DATA.qid)


def train_lightgbm(params: dict[str, Any], objective: Any, metric: Any) -> None:
    data = lgb.Dataset(DATA.features, DATA.labels, group=DATA.groups)
    params = {"verbose": -1, **params, "objective": adapters.LightGBMObjective(objective)}
    lgb.train(params, data, 2, valid_sets=[data], feval=adapters.LightGBMMetric(**metric))


def train_lgbm_ranker(params: dict[str, Any], objective: Any, metric: Any) -> None:
    model = lgb.LGBMRanker(
        objective=adapters.LightGBMObjective(objective), n_estimators=2, verbose=-1, metric="None", **params
    )
    seen: dict[str, Any] = {"eval_set": [(DATA.features, DATA.labels)], "eval_group": [DATA.groups]}
    if "eval_X" in inspect.signature(lgb.LGBMRanker.fit).parameters:
        seen = {"eval_X": (DATA.features,), "eval_y": (DATA.labels,), "eval_group": [DATA.groups]}
    model.fit(DATA.features, DATA.labels, group=DATA.groups, eval_metric=adapters.LightGBMMetric(**metric), **seen)


def train_catboost(params: dict[str, Any], objective: Any, metric: Any) -> None:
    pool = catboost.Pool(DATA.features, DATA.labels, group_id=DATA.qid)
    common = {"iterations": 2, "logging_level": "Silent", "allow_writing_files": False, **params}
    both = adapters.CatBoostObjective(objective, pool)
    own = {"loss_function": both, "eval_metric": both, "boosting_type": "Plain"}
    catboost.CatBoost({**common, **own}).fit(pool)
    watched = adapters.CatBoostMetric(pools=pool, **metric)
    catboost.CatBoost({**common, "loss_function": "RMSE", "eval_metric": watched}).fit(pool)


def train_catboost_model(params: dict[str, Any], objective: Any, metric: Any) -> None:
    common = {"iterations": 2, "logging_level": "Silent", "allow_writing_files": False, **params}
    pool = catboost.Pool(DATA.features, DATA.labels, group_id=DATA.qid)
    adapters.CatBoostStochasticRank(objective, **common).fit(pool)
    watched = adapters.CatBoostMetric(pools=pool, **metric)
    catboost.CatBoost({**common, "loss_function": "RMSE", "eval_metric": watched}).fit(pool)


TOLD = [
    (train_xgboost, "nthread"),
    (train_xgboost, "n_jobs"),
    (train_ranker, "n_jobs"),
    *((train_lightgbm, name) for name in ("num_threads", "num_thread", "nthread", "nthreads", "n_jobs")),
    (train_lgbm_ranker, "n_jobs"),
    (train_catboost, "thread_count"),
    (train_catboost_model, "thread_count"),
]


@pytest.mark.parametrize(("train", "name"), TOLD, ids=lambda one: one if isinstance(one, str) else one.__name__)
def test_no_more_threads_than_the_booster_was_told(train: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[int | None] = []

    def recording(*arguments: Any, **keywords: Any) -> Any:
        if len(arguments[1]) > 1:  # not the check of the settings
            told.append(keywords["threads"])
        return sr.bind_evaluation(*arguments, **keywords)

    monkeypatch.setattr(_common, "bind_evaluation", recording)
    monkeypatch.setattr(_common, "default_threads", lambda: 2)
    if train is train_ranker:
        monkeypatch.setattr(
            "stochasticrank_objectives.adapters._estimator.evaluate", lambda *_, threads, **__: told.append(threads)
        )
    for given, expected in {1: 1, 2: 2, 3: 2}.items():
        told.clear()
        train({name: given}, Counting(), {"metric": "mrr"})
        assert Counting.bound.threads == expected
        assert set(told) == {expected}
        told.clear()
        train({name: given}, Counting(), {"metric": "mrr", "threads": 5})
        assert 5 in told
    train({}, Counting(), {"metric": "mrr"})
    assert Counting.bound.threads in (None, 1, 2)  # LGBMRanker always says a number


@pytest.mark.parametrize("module", ["xgboost", "sklearn", "pandas", "distributed", "dask.dataframe", "xgboost.dask"])
def test_a_missing_package_names_an_extra_that_there_is(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    extras = importlib.metadata.metadata("stochasticrank-objectives").get_all("Provides-Extra") or []
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=f"needs {module}, which is not installed") as error:
        _common.require(module)
    assert str(error.value).split("[")[1].split("]")[0] in extras
