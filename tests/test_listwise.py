"""XENDCG and QueryRMSE against LightGBM's and CatBoost's formulas, and against the two themselves."""

from __future__ import annotations

import copy
import doctest
import math
import pickle
from typing import Any

import catboost
import lightgbm
import naive_pairs as twins
import numpy as np
import pytest
import scipy.stats
import xgboost

import stochasticrank_objectives as sr
from stochasticrank_objectives import XENDCG, QueryRMSE, listwise
from stochasticrank_objectives.adapters import CatBoostStochasticRank, LightGBMObjective, XGBoostObjective
from stochasticrank_objectives.datasets import make_ranking

GROUPS = [1, 2, 2, 3, 5, 9, 18, 70]
BOTH = [XENDCG(), QueryRMSE()]


def make(seed: int, spread: float = 1.5) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=sum(GROUPS)) * spread, rng.integers(0, 5, sum(GROUPS)).astype(float)


def close(actual: Any, expected: Any, rtol: float = 1e-9) -> None:
    for a, e in zip(actual, expected, strict=True):
        np.testing.assert_allclose(a, e, rtol=rtol, atol=rtol)


# ---------------------------------------------------------- XENDCG


@pytest.mark.parametrize("seed", range(4))
def test_xendcg_equals_lightgbms_formulas(seed: int) -> None:
    scores, labels = make(seed, spread=(0.0, 1.0, 3.0, 6.0)[seed])
    loss = XENDCG(seed=seed)
    expected = twins.xendcg_derivatives(loss, scores, labels, GROUPS, iteration=seed)
    # LightGBM's 1 - rho is a difference: it loses digits where one document takes almost all.
    close(loss.bind(labels, GROUPS).derivatives(scores, seed), expected, 1e-9 if seed < 3 else 1e-7)


def test_xendcg_far_apart() -> None:
    """Where 1 - rho rounds to 0, the series still has a limit: of two documents, the better takes all three terms."""
    scores, labels = make(0)
    for spread in (50.0, 1e3, 1e300):
        for values in XENDCG().bind(labels, GROUPS).derivatives(scores * spread):
            assert np.isfinite(values).all()
    gradient, hessian = XENDCG().bind([0, 3], [2]).derivatives([600.0, 0.0])
    draws = twins.uniforms(2)[::-1]  # the first for the better document
    target = (1.0 - draws[0]) / (9.0 - draws.sum())
    # Orders of the first document: (1 - t), then 1 * (t - 1), then 1 * (1 - t): rho_2/(1 - rho_1) = 1.
    close([gradient], [[1.0 - target, target - 1.0]])
    assert (hessian < 1e-100).all()


def test_xendcg_has_lightgbms_hessian_and_mean_gradient() -> None:
    """LightGBM's own draws are others: leaves of its first tree are compared through our mean over many iterations."""
    data = make_ranking(300, features=4)
    half = (data.features[:, :1] > 0).astype(float)
    params = {
        "objective": "rank_xendcg", "num_leaves": 2, "min_sum_hessian_in_leaf": 0.0, "learning_rate": 1.0, "verbosity": -1,
        "num_threads": 1,
    }  # fmt: skip
    booster = lightgbm.train(params, lightgbm.Dataset(half, data.labels, group=data.groups), 1)
    leaf = np.asarray(booster.predict(half, pred_leaf=True)).ravel().astype(int)
    assert set(leaf) == {0, 1}
    table = booster.trees_to_dataframe().set_index("node_index").loc[["0-L0", "0-L1"]]
    bound = XENDCG().bind(data.labels, data.groups)
    gradients = [np.bincount(leaf, bound.gradient(np.zeros(len(leaf)), i)) for i in range(30)]
    hessian = np.bincount(leaf, bound.derivatives(np.zeros(len(leaf)))[1])
    np.testing.assert_allclose(table["weight"], hessian, rtol=1e-4)
    np.testing.assert_allclose(
        -table["value"].to_numpy() * hessian, np.mean(gradients, axis=0), atol=5 * np.std(gradients, axis=0).max()
    )


def test_draws_are_uniform() -> None:
    draws = np.concatenate([twins.uniforms(1000, seed=5, query_key=q) for q in range(100)])
    assert draws.min() > 0
    assert draws.max() < 1
    assert scipy.stats.kstest(draws, scipy.stats.uniform.cdf).pvalue > 1e-3


def test_draws_are_selected_by_seed_iteration_and_query() -> None:
    scores, labels = make(1)
    bound = XENDCG().bind(labels, GROUPS)
    gradient = bound.gradient(scores, 3)
    np.testing.assert_array_equal(gradient, bound.gradient(scores, 3))
    assert (gradient[1:] != bound.gradient(scores, 4)[1:]).all()
    assert (gradient[1:] != XENDCG(seed=1).bind(labels, GROUPS).gradient(scores, 3)[1:]).all()
    alone = XENDCG().bind(labels[-70:], [70], query_keys=[7]).gradient(scores[-70:], 3)
    np.testing.assert_array_equal(gradient[-70:], alone)


def test_any_number_of_threads_gives_the_same_bits() -> None:
    rng = np.random.default_rng(2)
    groups = rng.integers(1, 90, 300)
    labels, scores = rng.integers(0, 5, groups.sum()), rng.normal(size=groups.sum())
    one = XENDCG(threads=1).bind(labels, groups).derivatives(scores, 2)
    for threads in (2, 3):
        for a, b in zip(one, XENDCG(threads=threads).bind(labels, groups).derivatives(scores, 2), strict=True):
            np.testing.assert_array_equal(a, b)


# ---------------------------------------------------------- QueryRMSE


@pytest.mark.parametrize("weighting", ["none", "queries", "rows"])
def test_query_rmse_equals_catboosts_formulas(weighting: str) -> None:
    scores, labels = make(3)
    rng = np.random.default_rng(3)
    weights = {"none": None, "queries": rng.uniform(0, 2, len(GROUPS)), "rows": rng.uniform(0, 2, sum(GROUPS))}[weighting]
    if weighting == "rows":
        assert weights is not None
        weights[3:5] = 0.0  # a query without weight
    of_rows = np.ones(sum(GROUPS)) if weights is None else np.repeat(weights, GROUPS) if weighting == "queries" else weights
    borders = np.cumsum(GROUPS)[:-1]
    parts = [
        twins.catboost_query_rmse(z.tolist(), r.tolist(), w.tolist())
        for z, r, w in zip(np.split(scores, borders), np.split(labels, borders), np.split(of_rows, borders), strict=True)
    ]
    expected = [np.concatenate([part[i] for part in parts]) for i in (0, 1)]
    close(QueryRMSE().bind(labels, GROUPS, weights).derivatives(scores), expected)


def test_query_rmse_gradient_is_that_of_the_loss() -> None:
    scores, labels = make(4)
    scores, labels = scores[:8], labels[:8]

    def value(z: np.ndarray) -> float:
        error = z - labels
        return float(0.5 * sum(((e - e.mean()) ** 2).sum() for e in (error[:3], error[3:])))

    step = 1e-4 * np.eye(8)
    numerical = [(value(scores + by) - value(scores - by)) / 2e-4 for by in step]
    np.testing.assert_allclose(QueryRMSE().bind(labels, [3, 5]).gradient(scores), numerical, atol=1e-8)


def test_catboost_trains_the_same_model_by_query_rmse() -> None:
    data = make_ranking(60)
    common: dict[str, Any] = {
        "iterations": 20, "learning_rate": 0.1, "boosting_type": "Plain", "leaf_estimation_iterations": 1,
        "bootstrap_type": "No", "random_strength": 0, "leaf_estimation_method": "Newton", "verbose": False,
        "allow_writing_files": False, "thread_count": 2, "l2_leaf_reg": 3,
    }  # fmt: skip
    own = catboost.CatBoost({"loss_function": "QueryRMSE", **common})
    own.fit(data.features, data.labels, group_id=data.qid)
    ours = CatBoostStochasticRank(QueryRMSE(), eval_metric="ndcg@10", **common)
    ours.fit(data.features, data.labels, group_id=data.qid)
    np.testing.assert_allclose(ours.predict(data.features), own.predict(data.features), rtol=1e-6, atol=1e-6)


# ---------------------------------------------------------- both


def test_weights() -> None:
    scores, labels = make(5)
    for weights in (np.linspace(0, 2, len(GROUPS)), np.linspace(0, 2, sum(GROUPS))):
        of_rows = np.repeat(weights, GROUPS) if len(weights) == len(GROUPS) else weights
        plain = XENDCG().bind(labels, GROUPS).derivatives(scores)
        close(XENDCG().bind(labels, GROUPS, weights).derivatives(scores), [of_rows * d for d in plain])


@pytest.mark.parametrize("loss", BOTH, ids=str)
def test_values(loss: Any) -> None:
    assert str(loss) == f"{type(loss).__name__}()"
    assert loss == pickle.loads(pickle.dumps(loss)) == copy.deepcopy(loss)
    assert hash(loss) == hash(type(loss)())
    scores, labels = make(6)
    bound = loss.bind(labels, GROUPS)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(bound)).gradient(scores), bound.gradient(scores))
    assert str(XENDCG(seed=3)) == "XENDCG(seed=3)"


@pytest.mark.parametrize(
    ("make_it", "words"),
    [
        (lambda: XENDCG(seed=-1), "seed must be a whole number"),
        (lambda: XENDCG(threads=0), "threads must be a whole number of at least 1"),
        (lambda: XENDCG().bind([600, 0], [2]), "too large"),
        (lambda: XENDCG().bind([1, 0], [2]).gradient([0, math.nan]), "the model has diverged"),
        (lambda: XENDCG().bind([1, 0], [2]).gradient([0, 1], -1), "iteration must be a whole number"),
        (lambda: QueryRMSE().bind([1, 0], [3]), "groups sum to 3 but there are 2 rows"),
        (lambda: QueryRMSE().bind([1, 0], [2]).gradient([0, math.nan]), "the model has diverged"),
        (lambda: QueryRMSE().bind([1, 0], [2]).gradient([0, 1], -1), "iteration must be a whole number"),
        (lambda: CatBoostStochasticRank(QueryRMSE()), "has no metric of its own"),
    ],
)  # fmt: skip
def test_bad_parameters_and_data(make_it: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make_it()


def test_examples_in_docstrings_run() -> None:
    result = doctest.testmod(listwise)
    assert result.failed == 0
    assert result.attempted >= 5


@pytest.mark.parametrize("loss", BOTH, ids=str)
def test_models_rank_better_than_chance(loss: Any) -> None:
    """A few trees of each booster; the metric of a random order is about 0.53."""
    data, test = make_ranking(150), make_ranking(200, seed=9)
    evaluation = sr.bind_evaluation("ndcg@10", test.labels, test.groups)
    matrix = xgboost.DMatrix(data.features, data.labels, group=data.groups)
    trained = xgboost.train({"eta": 0.1, "nthread": 2}, matrix, 15, obj=XGBoostObjective(loss))
    found = {"xgboost": evaluation.mean(trained.predict(xgboost.DMatrix(test.features)))}
    params = {"objective": LightGBMObjective(loss), "verbosity": -1, "num_threads": 2, "learning_rate": 0.1}
    trees = lightgbm.train(params, lightgbm.Dataset(data.features, data.labels, group=data.groups), 15)
    found["lightgbm"] = evaluation.mean(np.asarray(trees.predict(test.features, raw_score=True)))
    settings: dict[str, Any] = {"iterations": 15, "learning_rate": 0.1, "verbose": False, "allow_writing_files": False}
    ranker = CatBoostStochasticRank(loss, eval_metric="ndcg@10", thread_count=2, **settings)
    found["catboost"] = evaluation.mean(ranker.fit(data.features, data.labels, group_id=data.qid).predict(test.features))
    assert min(found.values()) > 0.72, found
