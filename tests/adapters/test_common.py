"""What holds for the adapters of all three boosters alike."""

from __future__ import annotations

import copy
import dataclasses
import doctest
import gc
import importlib
import pickle
from typing import Any

import numpy as np
import pytest

import stochasticrank_objectives as sr
from stochasticrank_objectives import adapters
from stochasticrank_objectives.adapters._common import Bindings, calling
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
    assert objective == OBJECTIVES[booster](recommended) == OBJECTIVES[booster](sr.NDCG(10))


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
    assert named.loss == objective("ndcg@10").loss


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
