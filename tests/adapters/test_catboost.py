"""CatBoost's adapter: against CatBoost's own RMSE, against the core's gradient, and under settings that must be refused."""

from __future__ import annotations

import copy
import dataclasses
import gc
import math
import os
import pathlib
import pickle
import subprocess
import sys
import weakref
from typing import Any

import catboost
import numpy as np
import pytest
from catboost import CatBoost, CatBoostError, Pool
from sklearn.base import clone

import stochasticrank_objectives as sr
from stochasticrank_objectives.adapters import catboost as adapter
from stochasticrank_objectives.adapters._common import calling
from stochasticrank_objectives.adapters.catboost import CatBoostMetric, CatBoostObjective, CatBoostStochasticRank
from stochasticrank_objectives.datasets import RankingData, make_ranking

QUIET = {"verbose": False, "allow_writing_files": False, "thread_count": 2}
PARAMS: dict[str, Any] = {**QUIET, "iterations": 6, "learning_rate": 0.25, "depth": 3, "random_seed": 7}
TRAIN, VALID = make_ranking(200, seed=1), make_ranking(40, seed=2)


def pool_of(data: RankingData, **keywords: Any) -> Pool:
    return Pool(data.features, data.labels, group_id=data.qid, **keywords)


@dataclasses.dataclass(frozen=True)
class Squares:
    """Squared error as a loss: CatBoost's own RMSE is its truth. Its targets may be others than the labels."""

    targets: tuple[float, ...] | None = None
    hessian: float | None = None

    def bind(self, labels: Any, groups: Any = None, weights: Any = None, *, qid: Any = None, query_keys: Any = None) -> Any:
        return BoundSquares(np.asarray(labels if self.targets is None else self.targets, np.float64), weights, self.hessian)


class BoundSquares:
    ptr = keys = np.zeros(1, np.int64)

    def __init__(self, targets: Any, weights: Any, hessian: Any) -> None:
        self.targets, self.weights, self.hessian = targets, 1.0 if weights is None else weights, hessian
        self.rows = len(targets)

    def gradient(self, scores: Any, iteration: int = 0) -> Any:
        return self.weights * (scores - self.targets)

    def derivatives(self, scores: Any, iteration: int = 0) -> Any:
        return self.gradient(scores), None if self.hessian is None else np.full(self.rows, self.hessian)


def train_squares(pool: Pool, loss: Any = None, eval_set: Any = None, fit: Any = None, **params: Any) -> CatBoost:
    """Plain CatBoost with our objective on squared error."""
    objective = CatBoostObjective(loss or Squares(), pool, eval_set, metric="ndcg@5")
    settings = {**PARAMS, "boosting_type": "Plain", **params, "loss_function": objective, "eval_metric": objective}
    return CatBoost(settings).fit(pool, eval_set=eval_set, **(fit or {}))


def train_rmse(pool: Pool, eval_set: Any = None, **params: Any) -> CatBoost:
    settings = {**PARAMS, "boosting_type": "Plain", "boost_from_average": False, **params, "loss_function": "RMSE"}
    return CatBoost(settings).fit(pool, eval_set=eval_set, use_best_model=False)


def with_categories(data: RankingData, **keywords: Any) -> Pool:
    table = data.features.astype(object)
    table[:, 0] = [f"c{round(2 * value)}" for value in data.features[:, 0]]
    table[:, 1] = ["abc"[int(value) % 3] for value in data.features[:, 1]]
    return Pool(table, data.labels, group_id=data.qid, cat_features=[0, 1], **keywords)


WORKING: dict[str, dict[str, Any]] = {
    "defaults": {},
    "one thread": {"thread_count": 1},
    "Bayesian bootstrap": {"bootstrap_type": "Bayesian", "bagging_temperature": 2},
    "Bernoulli bootstrap": {"bootstrap_type": "Bernoulli", "subsample": 0.5},
    "groups sampled": {"bootstrap_type": "Bernoulli", "subsample": 0.5, "sampling_unit": "Group"},
    "MVS": {"bootstrap_type": "MVS", "subsample": 0.5},
    "MVS for each level": {"bootstrap_type": "MVS", "subsample": 0.5, "sampling_frequency": "PerTreeLevel"},
    "no bootstrap": {"bootstrap_type": "No", "random_strength": 0},
    "gradient leaves": {"leaf_estimation_method": "Gradient"},
    "Newton leaves": {"leaf_estimation_method": "Newton"},
    "Lossguide": {"grow_policy": "Lossguide", "max_leaves": 6},
    "Depthwise": {"grow_policy": "Depthwise"},
    "L2 score": {"score_function": "L2"},
    "features sampled": {"rsm": 0.5},
    "monotone": {"monotone_constraints": {0: 1}, "model_shrink_rate": 0},
    "noise of CatBoost": {"langevin": True, "diffusion_temperature": 1e4, "model_shrink_rate": 0},
    "verbose number": {"verbose": 3},
}


@pytest.mark.parametrize("setting", WORKING)
def test_squared_error_trains_the_model_of_rmse(setting: str, capfd: pytest.CaptureFixture[str]) -> None:
    # Targets that the labels do not tell: only if every row gets its own gradient are the models the same.
    targets = np.random.default_rng(0).normal(size=len(TRAIN.labels)).astype(np.float32)
    ours = train_squares(pool_of(TRAIN), Squares(tuple(targets.tolist())), **WORKING[setting])
    rmse = train_rmse(Pool(TRAIN.features, targets, group_id=TRAIN.qid), **WORKING[setting])
    assert len(TRAIN.labels) > 4000  # several blocks of 1000 and of 500
    np.testing.assert_allclose(ours.predict(VALID.features), rmse.predict(VALID.features), rtol=0, atol=1e-6)


@pytest.mark.parametrize("kind", ["weights", "baseline", "categories", "one-hot", "quantized", "categories with eval_set"])
def test_squared_error_trains_the_model_of_rmse_on_pools_with(kind: str) -> None:
    rng = np.random.default_rng(3)
    rows = len(TRAIN.labels)
    pool, valid, params = pool_of(TRAIN), pool_of(VALID), {}
    if kind == "weights":
        pool = pool_of(TRAIN, weight=rng.random(rows) + 0.1)
    elif kind == "baseline":
        pool = pool_of(TRAIN, baseline=rng.normal(size=rows))
    elif kind == "quantized":
        pool.quantize()
    else:
        pool, valid = with_categories(TRAIN), with_categories(VALID)
        params = {"has_time": True, "one_hot_max_size": 255 if kind == "one-hot" else 2}
    eval_set = valid if "eval_set" in kind else None
    ours = train_squares(pool, eval_set=eval_set, fit={"use_best_model": False}, **params)
    rmse = train_rmse(pool, eval_set, **params)
    np.testing.assert_allclose(ours.predict(valid), rmse.predict(valid), rtol=0, atol=1e-6)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("positives", [1, 3])
def test_labels_that_hardly_tell_rows_apart(threads: int, positives: int) -> None:
    rng = np.random.default_rng(4)
    rows = 12_000
    features, targets = rng.normal(size=(rows, 4)), rng.normal(size=rows).astype(np.float32)
    labels = np.zeros(rows)
    labels[rng.choice(rows, positives, replace=False)] = 1
    pool = Pool(features, labels, group_id=np.arange(rows) // 100)
    ours = train_squares(pool, Squares(tuple(targets.tolist())), thread_count=threads)
    rmse = train_rmse(Pool(features, targets), thread_count=threads)
    np.testing.assert_allclose(ours.predict(features), rmse.predict(features), rtol=0, atol=1e-6)


@pytest.mark.parametrize("weighted", [False, True])
def test_leaves_are_steps_along_the_gradient_of_the_core(weighted: bool) -> None:
    weights = np.ones(len(TRAIN.groups), np.float32)
    if weighted:
        weights += np.random.default_rng(5).random(len(weights)).astype(np.float32)
    row_weights = np.repeat(weights, TRAIN.groups)
    pool = pool_of(TRAIN, weight=row_weights)
    loss = sr.StochasticRank("ndcg@5", mu=0.2, seed=3)
    model = CatBoostStochasticRank(loss, **PARAMS, l2_leaf_reg=0).fit(pool)
    truth = loss.bind(TRAIN.labels, TRAIN.groups, weights=weights)
    leaves, scores = model.calc_leaf_indexes(pool), np.zeros(len(TRAIN.labels))
    for iteration in range(PARAMS["iterations"]):
        at = leaves[:, iteration]
        step = np.bincount(at, -truth.gradient(scores, iteration)) / np.maximum(np.bincount(at, row_weights), 1e-300)
        scores = scores + PARAMS["learning_rate"] * step[at]
    np.testing.assert_allclose(model.predict(pool), scores, rtol=0, atol=1e-12)


def test_leaves_of_a_loss_with_second_derivatives_are_newton_steps() -> None:
    pool = pool_of(TRAIN)
    first, fourth = (train_squares(pool, Squares(hessian=h), iterations=1, l2_leaf_reg=0) for h in (None, 4.0))
    np.testing.assert_allclose(fourth.get_leaf_values(), first.get_leaf_values() / 4, rtol=1e-12)


def test_plain_catboost_trains_the_same_model() -> None:
    pool, valid = pool_of(TRAIN), pool_of(VALID)
    model = CatBoostStochasticRank("ndcg@5", **PARAMS).fit(TRAIN.features, TRAIN.labels, group_id=TRAIN.qid)
    objective = CatBoostObjective("ndcg@5", pool, valid)
    settings = {**PARAMS, "loss_function": objective, "eval_metric": objective}
    for _ in range(2):  # one object trains as often as you like
        plain = CatBoost(settings).fit(pool, eval_set=valid, use_best_model=False)
        np.testing.assert_array_equal(plain.predict(valid), model.predict(valid))
    assert plain.fit(pool, eval_set=[valid], use_best_model=False).tree_count_ == PARAMS["iterations"]
    np.testing.assert_array_equal(plain.predict(valid), model.predict(valid))


@pytest.mark.parametrize(
    "loss", [sr.StochasticRank("ndcg@5", seed=5), sr.SGLB(sr.StochasticRank("err@5"), learning_rate=0.25)]
)
def test_models_are_the_same_for_any_number_of_threads(loss: Any) -> None:
    models = [CatBoostStochasticRank(loss, **{**PARAMS, "thread_count": n}).fit(pool_of(TRAIN)) for n in (1, 2, 2, 3)]
    for model in models[1:]:
        np.testing.assert_array_equal(model.predict(VALID.features), models[0].predict(VALID.features))
    other = CatBoostStochasticRank(dataclasses.replace(loss, seed=9), **PARAMS).fit(pool_of(TRAIN))
    assert np.abs(other.predict(VALID.features) - models[0].predict(VALID.features)).max() > 1e-6


# Settings that cannot be right, with what the error tells to set.
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "Ordered boosting": ({"boosting_type": "Ordered"}, 'boosting_type="Plain"'),
    "Ordered boosting in time": ({"boosting_type": "Ordered", "has_time": True}, 'boosting_type="Plain"'),
    "leaf iterations": ({"leaf_estimation_iterations": 3}, "leaf_estimation_iterations=1"),
    "metric period": ({"metric_period": 2}, "metric_period=1"),
    "shrinkage": ({"model_shrink_rate": 0.1}, "model_shrink_rate=0"),
    "Langevin shrinkage": ({"langevin": True, "model_shrink_rate": 0.01}, "model_shrink_rate=0"),
    "posterior sampling": ({"posterior_sampling": True}, "model_shrink_rate=0"),
    "monotone shrinkage": ({"monotone_constraints": {0: 1}}, "model_shrink_rate=0"),
    "evaluated fraction": ({"eval_fraction": 0.2}, "has permuted rows"),
}


@pytest.mark.parametrize("setting", REFUSED)
def test_settings_that_cannot_be_right_stop_plain_catboost(setting: str) -> None:
    params, remedy = REFUSED[setting]
    with pytest.raises(CatBoostError, match=remedy):
        train_squares(pool_of(TRAIN), **params)


def test_permuted_rows_stop_plain_catboost() -> None:
    with pytest.raises(CatBoostError, match="has_time=True"):
        train_squares(with_categories(TRAIN))
    with pytest.raises(CatBoostError, match="has_time=True"):
        train_squares(with_categories(TRAIN), one_hot_max_size=255)


def test_two_objects_stop_plain_catboost() -> None:
    pool = pool_of(TRAIN)
    params = {**PARAMS, "loss_function": CatBoostObjective("ndcg@5", pool), "eval_metric": CatBoostMetric("ndcg@5", pool)}
    with pytest.raises(CatBoostError, match="the same object as loss_function and eval_metric"):
        CatBoost(params).fit(pool)


def test_other_data_stop_plain_catboost() -> None:
    objective = CatBoostObjective("ndcg@5", pool_of(TRAIN))
    params = {**PARAMS, "loss_function": objective, "eval_metric": objective}
    with pytest.raises(CatBoostError, match="nowhere in the Pool"):
        CatBoost(params).fit(pool_of(VALID))
    with pytest.raises(CatBoostError, match="must know the Pool of fit and all of eval_set"):
        CatBoost(params).fit(pool_of(TRAIN), eval_set=pool_of(VALID))
    with pytest.raises(CatBoostError, match="in cv, every fold is"):
        catboost.cv(pool_of(TRAIN), params, fold_count=2, verbose=False)
    with pytest.raises(CatBoostError, match="a model to go on from must also be given"):
        CatBoost(params).fit(pool_of(TRAIN, baseline=np.arange(len(TRAIN.labels)) / 100))
    with pytest.raises(CatBoostError, match="a model to go on from must also be given"):
        CatBoost(params).fit(pool_of(TRAIN), init_model=train_rmse(pool_of(TRAIN)))
    with pytest.raises(CatBoostError, match="leaves out group_weight; give weight= instead"):
        CatBoost(params).fit(pool_of(TRAIN, group_weight=np.repeat(np.arange(len(TRAIN.groups)) + 1.0, TRAIN.groups)))
    unbound = CatBoostObjective("ndcg@5")
    with pytest.raises(CatBoostError, match="give it the Pool of fit, or use CatBoostStochasticRank"):
        CatBoost({**PARAMS, "loss_function": unbound, "eval_metric": unbound}).fit(pool_of(TRAIN))


def test_a_resumed_snapshot_is_refused(tmp_path: pathlib.Path) -> None:
    params = {"allow_writing_files": True, "train_dir": str(tmp_path), "save_snapshot": True, "snapshot_interval": 0}
    model = CatBoostStochasticRank("ndcg@5", **{**PARAMS, **params}).fit(pool_of(TRAIN))
    assert model.tree_count_ == PARAMS["iterations"]
    with pytest.raises(ValueError, match="a snapshot cannot be resumed"):
        CatBoostStochasticRank("ndcg@5", **{**PARAMS, **params, "iterations": 12}).fit(pool_of(TRAIN))


CONTRADICTING: dict[str, Any] = {
    "boosting_type": "Ordered",
    "leaf_estimation_iterations": 2,
    "metric_period": 5,
    "model_shrink_rate": 0.1,
    "langevin": True,
    "posterior_sampling": True,
}


@pytest.mark.parametrize("name", CONTRADICTING)
def test_the_model_refuses_settings_before_training(name: str) -> None:
    with pytest.raises(ValueError, match=rf"{name}={CONTRADICTING[name]!r} does not work .* set {name}="):
        CatBoostStochasticRank("ndcg@5", **{**PARAMS, name: CONTRADICTING[name]}).fit(pool_of(TRAIN))


def test_the_model_refuses_data_before_training() -> None:
    model = CatBoostStochasticRank("ndcg@5", **PARAMS)
    with pytest.raises(ValueError, match="no queries; give it group_id="):
        model.fit(TRAIN.features, TRAIN.labels)
    with pytest.raises(ValueError, match="no queries; give it group_id="):
        model.fit(pool_of(TRAIN), eval_set=(VALID.features, VALID.labels))
    with pytest.raises(ValueError, match="no labels; give it label="):
        CatBoostObjective("ndcg@5", Pool(TRAIN.features, group_id=TRAIN.qid))
    with pytest.raises(ValueError, match=r"labels\[0\] = -1 is negative"):
        model.fit(Pool(TRAIN.features, TRAIN.labels - 1, group_id=TRAIN.qid))
    with pytest.raises(ValueError, match=r"labels must be a sequence of numbers"):
        model.fit(Pool(TRAIN.features, np.full(len(TRAIN.labels), "high", object), group_id=TRAIN.qid))
    with pytest.raises(ValueError, match=r"labels\[0\] = inf is not finite"):
        model.fit(Pool(TRAIN.features, np.full(len(TRAIN.labels), 1e300), group_id=TRAIN.qid))
    with pytest.raises(ValueError, match=r"has_time=False does not work .* set has_time=True"):
        CatBoostStochasticRank("ndcg@5", **PARAMS, has_time=False).fit(with_categories(TRAIN))
    with pytest.raises(ValueError, match=r"must be a catboost.Pool"):
        CatBoostObjective("ndcg@5", TRAIN.features)


def test_the_model_fits_categories_eval_fraction_and_monotone_constraints() -> None:
    model = CatBoostStochasticRank("ndcg@5", **{**PARAMS, "iterations": 30}).fit(with_categories(TRAIN))
    scores = model.predict(with_categories(VALID))
    assert sr.evaluate("ndcg@5", scores, VALID.labels, VALID.groups) > 0.6
    model = CatBoostStochasticRank("ndcg@5", **PARAMS, monotone_constraints={0: 1}).fit(pool_of(TRAIN))
    assert model.tree_count_ == PARAMS["iterations"]
    model = CatBoostStochasticRank("ndcg@5", **PARAMS, eval_fraction=0.25).fit(pool_of(TRAIN), use_best_model=False)
    assert len(model.get_evals_result()["validation"]["ndcg@5"]) == PARAMS["iterations"]


def test_reported_metrics_are_those_of_the_core() -> None:
    train, valid, params = pool_of(TRAIN), pool_of(VALID), {**PARAMS, "use_best_model": False}
    model = CatBoostStochasticRank("ndcg@5", eval_metric="err@3", **params).fit(train, eval_set=[valid, train])
    reported = model.get_evals_result()
    for name, data in {"learn": TRAIN, "validation_0": VALID, "validation_1": TRAIN}.items():
        stages = model.staged_predict(data.features)
        values = [sr.evaluate("err@3", scores, data.labels, data.groups) for scores in stages]
        np.testing.assert_allclose(reported[name]["err@3"], values, rtol=0, atol=1e-12)


def test_weights_of_queries_weigh_the_reported_metric() -> None:
    weights = np.arange(len(VALID.groups)) % 3 + 0.5
    valid = pool_of(VALID, group_weight=np.repeat(weights, VALID.groups))
    model = CatBoostStochasticRank("ndcg@5", **PARAMS).fit(pool_of(TRAIN), eval_set=valid, use_best_model=False)
    truth = sr.evaluate("ndcg@5", model.predict(VALID.features), VALID.labels, VALID.groups, weights=weights)
    assert model.get_evals_result()["validation"]["ndcg@5"][-1] == pytest.approx(truth, abs=1e-12)


def test_early_stopping_keeps_the_best_iteration() -> None:
    model = CatBoostStochasticRank("ndcg@5", **{**PARAMS, "iterations": 300, "learning_rate": 2.0})
    model.fit(pool_of(TRAIN), eval_set=pool_of(VALID), early_stopping_rounds=5)
    values = model.get_evals_result()["validation"]["ndcg@5"]
    assert len(values) < 300
    assert model.tree_count_ == 1 + int(np.argmax(values)) == len(values) - 5
    truth = sr.evaluate("ndcg@5", model.predict(VALID.features), VALID.labels, VALID.groups)
    assert model.get_best_score()["validation"]["ndcg@5"] == pytest.approx(truth, abs=1e-12)


def test_metric_beside_an_objective_of_catboost() -> None:
    train, valid = pool_of(TRAIN), pool_of(VALID)
    metric = CatBoostMetric("ndcg@5:gain=linear", [train, valid], ties="mean")
    params = {**PARAMS, "loss_function": "QueryRMSE", "eval_metric": metric}
    model = CatBoost(params).fit(train, eval_set=valid, use_best_model=False)
    truth = sr.evaluate("ndcg@5:gain=linear", model.predict(valid), VALID.labels, VALID.groups, ties="mean")
    assert model.get_evals_result()["validation"]["ndcg@5:gain=linear"][-1] == pytest.approx(truth, abs=1e-12)
    with pytest.raises(CatBoostError, match="must know the Pool of fit"):
        CatBoost(params).fit(train, eval_set=pool_of(make_ranking(10, seed=3)))


def test_pools_that_cannot_be_told_apart_are_refused() -> None:
    halves = Pool(VALID.features, VALID.labels, group_id=np.arange(len(VALID.labels)) // 2)
    with pytest.raises(ValueError, match=r"same .* labels but different queries"):
        CatBoostStochasticRank("ndcg@5", **PARAMS).fit(pool_of(TRAIN), eval_set=[pool_of(VALID), halves])


@pytest.mark.parametrize("kind", ["plain", "sglb"])
def test_training_that_goes_on_equals_training_in_one_go(kind: str) -> None:
    loss: Any = sr.StochasticRank("ndcg@5", seed=1)
    if kind == "sglb":
        loss = sr.SGLB(loss, learning_rate=0.25, diffusion_temperature=1e4, model_shrink_rate=0.1)
    params = {**PARAMS, "bootstrap_type": "No", "random_strength": 0}
    pool = pool_of(TRAIN)
    whole = CatBoostStochasticRank(loss, **params).fit(pool)
    half = CatBoostStochasticRank(loss, **{**params, "iterations": 2}).fit(pool)
    both = CatBoostStochasticRank(loss, **{**params, "iterations": 4}).fit(pool, init_model=half)
    np.testing.assert_allclose(both.predict(pool), whole.predict(pool), rtol=0, atol=1e-12)


@pytest.mark.parametrize("mode", ["Constant", "Decreasing"])
def test_sglb_shrinks_by_as_much_as_catboost_does(mode: Any) -> None:
    rate: dict[str, Any] = {"model_shrink_rate": 0.3, "model_shrink_mode": mode}
    sglb = sr.SGLB(Squares(), learning_rate=0.25, diffusion_temperature=math.inf, **rate)
    params = {"bootstrap_type": "No", "random_strength": 0}
    ours, truth = train_squares(pool_of(TRAIN), sglb, **params), train_rmse(pool_of(TRAIN), **rate, **params)
    first = sglb.true_scores(ours.get_leaf_values()[:8], PARAMS["iterations"])  # of eight leaves, shrunk ever since
    np.testing.assert_allclose(first, truth.get_leaf_values()[:8], rtol=1e-6)
    assert sglb.shrinkage(PARAMS["iterations"]) < 0.7


def test_sglb_equals_shrinking_old_trees() -> None:
    inner = sr.StochasticRank("ndcg@5", seed=2)
    sglb = sr.SGLB(inner, learning_rate=0.25, diffusion_temperature=1e3, model_shrink_rate=0.4, seed=6)
    model = CatBoostStochasticRank(sglb, **{**PARAMS, "iterations": 20}, l2_leaf_reg=0).fit(pool_of(TRAIN))
    bound = sglb.bind(TRAIN.labels, TRAIN.groups)
    leaves, scores = model.calc_leaf_indexes(pool_of(TRAIN)), np.zeros(len(TRAIN.labels))
    for iteration in range(20):
        at = leaves[:, iteration]
        gradient = bound.bound.gradient(scores, iteration) + bound.noise(iteration)
        step = np.bincount(at, -gradient) / np.maximum(np.bincount(at), 1)
        scores = (1 - 0.4 * 0.25) * scores + 0.25 * step[at]
    np.testing.assert_allclose(sglb.true_scores(model.predict(TRAIN.features), 20), scores, rtol=0, atol=1e-12)


def test_sglb_and_catboost_have_one_learning_rate() -> None:
    sglb = sr.SGLB(sr.StochasticRank("ndcg@5"), learning_rate=0.25)
    params = {key: value for key, value in PARAMS.items() if key != "learning_rate"}
    with pytest.raises(ValueError, match=r"learning_rate=0.25 of SGLB is not CatBoost's, 0.1"):
        CatBoostStochasticRank(sglb, **params, eta=0.1).fit(pool_of(TRAIN))
    assert CatBoostStochasticRank(sglb, **params).fit(pool_of(TRAIN)).learning_rate_ == 0.25


@pytest.mark.parametrize(
    ("params", "rate"),
    [
        ({"iterations": 50}, 0.3), ({"n_estimators": 150}, 0.2), ({"num_trees": 300}, 0.1),
        ({"num_boost_round": 1200}, 0.06), ({"iterations": 50, "learning_rate": 0.02}, 0.02),
        ({"iterations": 50, "eta": 0.02}, 0.02),
    ],
)  # fmt: skip
def test_the_learning_rate_depends_on_the_number_of_trees_where_none_is_given(params: dict[str, Any], rate: float) -> None:
    for loss, expected in [
        ("ndcg@5", rate),
        (sr.StochasticRank("ndcg@5"), rate if {"eta", "learning_rate"} & set(params) else 0.03),
    ]:
        model = CatBoostStochasticRank(loss, **QUIET, **params, depth=1)
        model.fit(pool_of(TRAIN), callbacks=[_Once()])
        assert model.get_all_params()["learning_rate"] == pytest.approx(expected)


class _Once:
    """Ends a training after its first tree."""

    def after_iteration(self, info: Any) -> bool:
        return False


def test_few_trees_are_no_worse_than_yetirank_with_the_defaults_of_catboost() -> None:
    learn, test = pool_of(make_ranking(300, seed=3, model_seed=9)), make_ranking(500, seed=4, model_seed=9)

    def value(model: CatBoost) -> float:
        return float(sr.evaluate("ndcg@10", model.fit(learn).predict(test.features), test.labels, test.groups))

    own = value(CatBoost({**QUIET, "iterations": 100, "loss_function": "YetiRank"}))
    assert value(CatBoostStochasticRank("ndcg@10", **QUIET, iterations=100)) > own + 0.02


def test_saved_models_predict_without_this_package(tmp_path: pathlib.Path) -> None:
    model = CatBoostStochasticRank("ndcg@5", **PARAMS).fit(with_categories(TRAIN))
    plain = CatBoost().load_model(save(model, tmp_path / "model.cbm"))
    np.testing.assert_array_equal(plain.predict(with_categories(VALID)), model.predict(with_categories(VALID)))
    numeric = CatBoostStochasticRank("ndcg@5", **PARAMS).fit(pool_of(TRAIN))
    save(numeric, tmp_path / "numeric.cbm")
    np.save(tmp_path / "features.npy", VALID.features)
    script = (
        "import sys\nsys.modules['stochasticrank_objectives'] = None\n"
        "import catboost, numpy\nmodel = catboost.CatBoost().load_model('numeric.cbm')\n"
        "numpy.save('scores.npy', model.predict(numpy.load('features.npy')))\n"
    )
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, check=True, env={**os.environ, "PYTHONPATH": ""})
    np.testing.assert_array_equal(np.load(tmp_path / "scores.npy"), numeric.predict(VALID.features))


def save(model: CatBoost, path: pathlib.Path) -> str:
    model.save_model(str(path))
    return str(path)


def test_models_and_objects_copy_and_pickle_without_data() -> None:
    pool = pool_of(TRAIN)
    loss = sr.StochasticRank("ndcg@5", seed=3)
    objective, metric = CatBoostObjective(loss, pool, ties="mean"), CatBoostMetric("err@5", pool, empty=1.0)
    for thing in (objective, metric, copy.deepcopy(objective), copy.deepcopy(metric)):
        text = pickle.dumps(thing)
        assert len(text) < 1000
        assert repr(pickle.loads(text)) == repr(thing)
        assert pickle.loads(text) == thing
    printed = "StochasticRank('ndcg@5', seed=3)"
    assert repr(objective) == f"CatBoostObjective({printed}, metric='ndcg@5', ties='mean', empty=0.0)"
    assert repr(metric) == "CatBoostMetric('err@5', ties='worst', empty=1.0)"
    model = CatBoostStochasticRank(sr.StochasticRank("ndcg@5", seed=4), **PARAMS).fit(pool)
    expected = model.predict(VALID.features)
    for other in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model), model.copy(), clone(model).fit(pool)):
        assert type(other) is CatBoostStochasticRank
        np.testing.assert_array_equal(other.predict(VALID.features), expected)
    assert len(pickle.dumps(model)) < 30_000


def test_arguments() -> None:
    with pytest.raises(ValueError, match="unknown metric"):
        CatBoostStochasticRank("NDGC:top=5")
    with pytest.raises(ValueError, match="give it to the CatBoostObjective as metric="):
        CatBoostStochasticRank(CatBoostObjective("ndcg@5"), eval_metric="ndcg@3")
    with pytest.raises(ValueError, match="name the one to report"):
        CatBoostObjective(Squares())
    with pytest.raises(ValueError, match="ties must be"):
        CatBoostMetric("ndcg@5", ties="foo")  # type: ignore[arg-type]
    assert CatBoostStochasticRank(CatBoostObjective("ndcg@5", mu=0.5)).get_params()["loss_function"].loss.mu == 0.5


def test_sglb_finds_the_global_optimum_of_the_papers_example() -> None:
    """Two queries of the features x1, x2, x3: the best NDCG@3 is 0.917, the usual local optimum 0.903."""
    features = np.eye(3)[[0, 1, 2, 2, 0]]
    labels, groups = np.array([3.0, 2.0, 1.0, 3.0, 2.0]), np.array([3, 2])
    pool = Pool(features, labels, group_id=np.repeat([0, 1], groups))
    params = {**QUIET, "thread_count": 1, "iterations": 1000, "depth": 3}
    exact = {"l2_leaf_reg": 0, "bootstrap_type": "No", "random_strength": 0}
    for seed in range(4):
        loss = sr.StochasticRank("ndcg@3", sigma=0.3, mu=0.1, sfa=False, seed=seed, threads=1)
        sglb = sr.SGLB(loss, learning_rate=0.1, diffusion_temperature=1e3, model_shrink_rate=1e-3, seed=seed)
        model = CatBoostStochasticRank(sglb, **params, **exact).fit(pool)
        assert sr.evaluate("ndcg@3", model.predict(features), labels, groups) > 0.9165


# ------------------------------------------------------------ what is reported


def test_the_named_metric_is_reported_whatever_is_trained_on() -> None:
    pool, valid = pool_of(TRAIN), pool_of(VALID)
    objective = CatBoostObjective("mrr", pool, valid, train_on="ndcg@5")
    params = {**PARAMS, "loss_function": objective, "eval_metric": objective, "use_best_model": False}
    plain = CatBoost(params).fit(pool, eval_set=valid)
    same = CatBoostStochasticRank(CatBoostObjective("mrr", train_on="ndcg@5"), **PARAMS)
    same.fit(pool, eval_set=valid, use_best_model=False)
    loss = sr.recommended("mrr", booster="catboost", train_on="ndcg@5")
    other = CatBoostStochasticRank(loss, eval_metric="mrr", **PARAMS).fit(pool, eval_set=valid, use_best_model=False)
    for model in (plain, same, other):
        values = [sr.evaluate("mrr", scores, VALID.labels, VALID.groups) for scores in model.staged_predict(valid)]
        np.testing.assert_allclose(model.get_evals_result()["validation"]["mrr"], values, rtol=0, atol=1e-12)
        np.testing.assert_array_equal(model.predict(valid), plain.predict(valid))


# ------------------------------------------------------------ what CatBoost must keep to


class Watching:
    """An objective and metric of its own, that writes down what CatBoost does."""

    no_jit = True

    def __init__(self, rows: int) -> None:
        self.rows, self.blocks, self.seen, self.models = rows, [], [], []  # type: ignore[var-annotated]

    def __deepcopy__(self, memo: Any) -> Watching:
        self.models.append(calling(CatBoost))
        return self

    def calc_ders_range(self, approxes: Any, targets: Any, weights: Any) -> Any:
        self.blocks.append((len(self.seen), targets.__array_interface__["data"][0], np.array(targets), np.array(approxes)))
        return np.column_stack([targets - approxes, -np.ones(len(targets))])

    def is_max_optimal(self) -> bool:
        return True

    def get_final_error(self, error: float, weight: float) -> float:
        return error

    def evaluate(self, approxes: Any, target: Any, weight: Any) -> tuple[float, float]:
        self.seen.append((np.array(target), np.array(approxes[0])))
        return 0.0, 1.0


def test_canary_catboost_does_what_the_adapter_relies_on() -> None:
    """If this fails, a version of CatBoost asks in another way, and `_catboost_blocks` must learn it."""
    rows = len(TRAIN.labels)
    watching = Watching(rows)
    params = {**PARAMS, "boosting_type": "Plain", "leaf_estimation_iterations": 1}
    model = CatBoost({**params, "loss_function": watching, "eval_metric": watching}).fit(pool_of(TRAIN))
    assert model in watching.models, "parameters are not copied by a method of the model"
    assert len(watching.seen) == PARAMS["iterations"], "the metric is not evaluated once after each iteration"
    for labels, _ in watching.seen:
        np.testing.assert_array_equal(labels, TRAIN.labels, err_msg="the metric does not see all rows in order")
    scores, bases = np.zeros(rows), set()
    for iteration in range(PARAMS["iterations"]):
        blocks = sorted((at, labels, shown) for when, at, labels, shown in watching.blocks if when == iteration)
        assert sum(len(labels) for _, labels, _ in blocks) == 2 * rows, "rows are not asked for twice in an iteration"
        starts = np.cumsum([0] + [len(labels) for _, labels, _ in blocks])
        for (address, labels, shown), start in zip(blocks, starts, strict=False):
            begin = int(start) % rows
            bases.add(address - 4 * begin)
            np.testing.assert_array_equal(labels, TRAIN.labels[begin : begin + len(labels)])
            np.testing.assert_array_equal(shown, scores[begin : begin + len(labels)])
        scores = watching.seen[iteration][1]
    assert len(bases) == 2, "labels do not stand in two arrays that stay where they are"


def test_an_interrupted_training_lets_go_of_its_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """CatBoost keeps the objective for ever."""
    held: list[Any] = []

    class Watched(adapter.Training):
        def __init__(self, learn: Any) -> None:
            super().__init__(learn)
            held.append(weakref.ref(self))

    class Stop:
        def after_iteration(self, info: Any) -> bool:
            raise KeyboardInterrupt

    monkeypatch.setattr(adapter, "Training", Watched)
    with pytest.raises((KeyboardInterrupt, CatBoostError)):
        CatBoostStochasticRank("ndcg@5", **PARAMS).fit(pool_of(TRAIN), callbacks=[Stop()])
    gc.collect()
    assert held
    assert [one() for one in held] == [None] * len(held)
