"""The rankers of all three boosters, as scikit-learn and its users treat estimators."""

from __future__ import annotations

import copy
import doctest
import importlib
import inspect
import pickle
import subprocess
import sys
from typing import Any

import lightgbm
import numpy as np
import optuna
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse
import sklearn
import xgboost as xgb
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.feature_selection import RFE, SelectFromModel
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_val_score
from sklearn.model_selection import cross_validate as sklearn_cross_validate
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

import stochasticrank_objectives as sr
from stochasticrank_objectives import adapters
from stochasticrank_objectives.adapters import _estimator
from stochasticrank_objectives.adapters.catboost_ranker import CatBoostRanker
from stochasticrank_objectives.adapters.lightgbm_ranker import LightGBMRanker
from stochasticrank_objectives.adapters.xgboost_ranker import XGBoostRanker
from stochasticrank_objectives.datasets import make_ranking

TRAIN, TEST = make_ranking(40, features=6, seed=1), make_ranking(30, features=6, seed=2)
NAMES = [f"f{at}" for at in range(6)]
SMALL: dict[Any, dict[str, Any]] = {
    XGBoostRanker: {"n_estimators": 6, "max_depth": 3, "learning_rate": 0.3, "n_jobs": 1},
    LightGBMRanker: {"n_estimators": 6, "num_leaves": 7, "learning_rate": 0.3, "n_jobs": 1},
    CatBoostRanker: {"n_estimators": 6, "max_depth": 3, "learning_rate": 0.3, "n_jobs": 1},
}
RANKERS = pytest.mark.parametrize("kind", list(SMALL), ids=lambda kind: kind.__name__)


def ranker(kind: Any, loss: Any = "ndcg@5", **params: Any) -> Any:
    return kind(loss, **{**SMALL[kind], **params})


def fitted(kind: Any, loss: Any = "ndcg@5", **params: Any) -> Any:
    return ranker(kind, loss, **params).fit(TRAIN.features, TRAIN.labels, qid=TRAIN.qid)


def scores(kind: Any, loss: Any = "ndcg@5", **params: Any) -> Any:
    return fitted(kind, loss, **params).predict(TEST.features)


def frame(data: Any = TRAIN, qid: bool = True) -> pd.DataFrame:
    features = pd.DataFrame(data.features, columns=NAMES)
    return features.assign(qid=data.qid) if qid else features


# ------------------------------------------------------------ the loss and its parameters


@RANKERS
def test_a_name_trains_the_recommended_loss(kind: Any) -> None:
    expected = sr.recommended("ndcg@5", booster=kind._booster)
    assert fitted(kind).loss_ == expected
    assert fitted(kind, None, metric="ndcg@5").loss_ == expected
    assert fitted(kind, None).loss_ == sr.recommended("ndcg@10", booster=kind._booster)
    np.testing.assert_array_equal(scores(kind), scores(kind, expected))
    assert fitted(kind, sr.StochasticRank("mrr", mu=0.3)).loss_ == sr.StochasticRank("mrr", mu=0.3)
    assert fitted(kind, "mrr", train_on="ndcg@5").loss_ == sr.recommended("mrr", booster=kind._booster, train_on="ndcg@5")


@RANKERS
def test_parameters_of_the_loss_are_parameters_of_the_estimator(kind: Any) -> None:
    plain = scores(kind)
    assert np.abs(scores(kind, mu=5) - plain).max() > 1e-3
    np.testing.assert_array_equal(scores(kind, mu=5), scores(kind, loss__mu=5))
    np.testing.assert_array_equal(scores(kind, mu=5), fitted(kind).set_params(loss__mu=5).fit(*xyq()).predict(frame(TEST)))
    permutations = fitted(kind).loss_.permutations
    np.testing.assert_array_equal(scores(kind, mu=0.0, loss__permutations=permutations), plain)  # a default written out
    explicit = sr.StochasticRank("ndcg@5")
    assert fitted(kind, explicit, samples=2, loss__metric="mrr").loss_ == sr.StochasticRank("mrr", samples=2)
    wrapped = sr.SGLB(explicit, learning_rate=0.3, diffusion_temperature=1e8)
    loss = fitted(kind, wrapped, loss__loss__mu=0.4, loss__model_shrink_rate=0.0).loss_
    assert (loss.loss.mu, loss.model_shrink_rate, loss.diffusion_temperature) == (0.4, 0.0, 1e8)


def xyq(data: Any = TRAIN) -> Any:
    """For a `fit` that takes the column."""
    return frame(data), data.labels


@RANKERS
def test_a_misspelt_parameter_is_an_error(kind: Any) -> None:
    with pytest.raises(ValueError, match="loss__mmu: YetiLoss has no such parameter; it has metric, neighbours"):
        ranker(kind, loss__mmu=1)
    model = ranker(kind)
    with pytest.raises(ValueError, match="loss__mmu: YetiLoss has no such parameter"):
        model.set_params(loss__mmu=1, metric="mrr")
    assert repr(model) == repr(ranker(kind))  # nothing was set
    with pytest.raises(ValueError, match="loss__loss__mmu: StochasticRank has no such parameter"):
        ranker(kind, sr.SGLB(sr.StochasticRank("mrr")), loss__loss__mmu=1)
    with pytest.raises(Exception, match="mmu"):  # XGBoost and CatBoost know their own names only in training
        fitted(kind, mmu=1)
    with pytest.raises(Exception, match="permutation"):
        fitted(kind, permutation=1)
    with pytest.raises(ValueError, match="mu and loss__mu are the same parameter"):
        ranker(kind, mu=1, loss__mu=1)
    with pytest.raises(ValueError, match=r"mu must be .* got -1"):
        fitted(kind, mu=-1)
    with pytest.raises(ValueError, match="unknown metric 'ndgc@5'"):
        fitted(kind, "ndgc@5")
    with pytest.raises(ValueError, match="pass a metric or a loss of this package as loss="):
        ranker(kind, objective="rank:ndcg")
    with pytest.raises(ValueError, match="has no metric of its own; name the one to report"):
        fitted(kind, sr.YetiRank())


@RANKERS
def test_no_short_name_of_a_loss_is_taken_by_the_booster(kind: Any) -> None:
    """What is, `seed` and `learning_rate`, means the booster's; `loss__seed` means the loss's."""
    losses = (sr.StochasticRank, sr.YetiLoss, sr.YetiRank, sr.LambdaMART, sr.LambdaLoss, sr.XENDCG, sr.QueryRMSE)
    names = {name for loss in losses for name in _estimator._fields(loss)} - {"metric"}
    assert {name for name in names if name in kind._native or ranker(kind)._known(name)} == {"seed"}


@RANKERS
def test_grid_search_compares_different_models(kind: Any) -> None:
    """Identical models, one of which is named the winner, would be a trap."""
    grid = {"loss__mu": [0, 3.0], "max_depth": [1, 3]}
    search = GridSearchCV(ranker(kind), grid, cv=GroupKFold(2)).fit(*xyq(), groups=TRAIN.qid)
    by = {(p["loss__mu"], p["max_depth"]): s for p, s in zip(
        search.cv_results_["params"], search.cv_results_["mean_test_score"], strict=True
    )}  # fmt: skip
    assert len(set(by.values())) == 4
    best = search.best_params_
    assert search.best_estimator_.loss_.mu == best["loss__mu"]
    rows, held = next(GroupKFold(2).split(TRAIN.features, groups=TRAIN.qid))
    model = ranker(kind, mu=best["loss__mu"], max_depth=best["max_depth"]).fit(frame().iloc[rows], TRAIN.labels[rows])
    expected = sr.evaluate("ndcg@5", model.predict(frame().iloc[held]), TRAIN.labels[held], qid=TRAIN.qid[held])
    assert search.cv_results_["split0_test_score"][search.best_index_] == expected
    assert search.score(*xyq(TEST)) == search.best_estimator_.score(*xyq(TEST))
    with pytest.raises(ValueError, match="loss__mmu"):
        GridSearchCV(ranker(kind), {"loss__mmu": [1]}, cv=GroupKFold(2)).fit(*xyq(), groups=TRAIN.qid)


@RANKERS
def test_a_search_over_losses_needs_one_metric(kind: Any) -> None:
    """Else it would compare MRR with NDCG, and name a winner."""
    with pytest.warns(UserWarning, match="with this loss score returns mrr, not ndcg@5; set metric= to compare"):
        ranker(kind).set_params(loss="mrr")
    search = GridSearchCV(ranker(kind, metric="err@3"), {"loss": ["mrr", sr.StochasticRank("ndcg@5")]}, cv=GroupKFold(2))
    search.fit(*xyq(), groups=TRAIN.qid)
    assert str(search.best_estimator_._reported()[0]) == "err@3"
    ranker(kind).set_params(loss=sr.StochasticRank("ndcg@5")).set_params(loss="mrr", metric="ndcg@5")


@RANKERS
def test_random_state_seeds_booster_and_noise(kind: Any) -> None:
    plain, other = scores(kind), scores(kind, random_state=7)
    assert np.abs(plain - other).max() > 1e-4
    np.testing.assert_array_equal(other, scores(kind, random_state=7))
    np.testing.assert_array_equal(other, scores(kind, seed=7))
    assert fitted(kind, random_state=7).loss_.seed == 7
    assert fitted(kind, random_state=7, loss__seed=2).loss_.seed == 9  # both count
    inner = fitted(kind, sr.SGLB(sr.StochasticRank("mrr"), learning_rate=0.3), random_state=7).loss_
    assert inner.seed == inner.loss.seed == 7
    of_generator = [scores(kind, random_state=np.random.RandomState(1)) for _ in range(2)]
    np.testing.assert_array_equal(*of_generator)
    assert fitted(kind, random_state=np.random.default_rng(1)).loss_.seed > 0
    constant = sr.QueryRMSE()  # without noise of its own: what differs is the booster's
    sampled = {"subsample": 0.5, "subsample_freq": 1} if kind is LightGBMRanker else {"subsample": 0.5}
    if kind is CatBoostRanker:
        sampled["bootstrap_type"] = "Bernoulli"
    boosters = [scores(kind, constant, metric="mrr", random_state=seed, **sampled) for seed in (1, 1, 2)]
    np.testing.assert_array_equal(boosters[0], boosters[1])
    assert np.abs(boosters[0] - boosters[2]).max() > 1e-4
    with pytest.raises(ValueError, match="random_state, seed are the same parameter"):
        fitted(kind, random_state=1, seed=1)
    with pytest.raises(ValueError, match="random_state must be a whole number"):
        fitted(kind, random_state="one")
    for seed in (-1, 2**32, 2**70):
        with pytest.raises(ValueError, match=r"random_state must be at least 0 and below 2\*\*32"):
            fitted(kind, random_state=seed)


@RANKERS
def test_the_booster_follows_the_learning_rate_of_sglb(kind: Any) -> None:
    loss = sr.SGLB(sr.StochasticRank("ndcg@5"), learning_rate=0.25, diffusion_temperature=1e8)
    params = {name: value for name, value in SMALL[kind].items() if name != "learning_rate"}
    follows = kind(loss, **params, learning_rate=None).fit(*xyq())
    np.testing.assert_array_equal(follows.predict(frame(TEST)), scores(kind, loss, learning_rate=0.25))
    for given in ({"learning_rate": 0.5}, {"learning_rate": None, "eta": 0.5}):
        with pytest.raises(ValueError, match="learning_rate"):
            fitted(kind, loss, **given)
    assert np.isfinite(scores(kind, learning_rate=None)).all()


@RANKERS
def test_n_jobs_bounds_booster_and_gradient(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    class Counting:
        metric = sr.NDCG(5)

        def bind(self, *arguments: Any, **keywords: Any) -> Any:
            bound = sr.StochasticRank("ndcg@5").bind(*arguments, **keywords)
            bound.threads = "not set"
            seen.append(bound)
            return bound

    told: list[int] = []
    monkeypatch.setattr("stochasticrank_objectives.adapters._common.default_threads", lambda: 4)
    monkeypatch.setattr(
        "stochasticrank_objectives.adapters._estimator.evaluate", lambda *_, threads, **__: told.append(threads)
    )
    for n_jobs, expected in {1: 1, 2: 2}.items():
        fitted(kind, Counting(), n_jobs=n_jobs).score(*xyq(TEST)[:1], TEST.labels)
        assert (seen[-1].threads, told[-1]) == (expected, expected)
    assert _estimator.processors(-1) is None
    np.testing.assert_array_equal(scores(kind, n_jobs=1), scores(kind, n_jobs=2))
    with pytest.raises(ValueError, match=r"n_jobs, .* are the same parameter"):
        fitted(kind, thread_count=1)


# ------------------------------------------------------------ what is measured, and when training stops


@RANKERS
def test_score_is_the_reported_metric(kind: Any) -> None:
    model = fitted(kind)
    found, weights = model.predict(TEST.features), np.arange(len(TEST.groups)) + 1.0
    expected = sr.evaluate("ndcg@5", found, TEST.labels, TEST.groups)
    assert model.score(TEST.features, TEST.labels, qid=TEST.qid) == expected
    assert model.score(TEST.features, TEST.labels, group=TEST.groups) == expected
    assert model.score(frame(TEST).set_axis([*NAMES[:0], *range(6), "qid"], axis=1), TEST.labels) == expected
    weighted = sr.evaluate("ndcg@5", found, TEST.labels, TEST.groups, weights=weights)
    for given in (weights, np.repeat(weights, TEST.groups)):
        assert model.score(TEST.features, TEST.labels, qid=TEST.qid, sample_weight=given) == weighted
    assert model.set_params(metric="mrr").score(TEST.features, TEST.labels, qid=TEST.qid) == sr.evaluate(
        "mrr", found, TEST.labels, TEST.groups
    )
    metric = getattr(adapters, f"{kind.__name__.removesuffix('Ranker')}Metric")("mrr", ties="best", empty="skip")
    best = sr.evaluate("mrr", found, TEST.labels, TEST.groups, ties="best", empty="skip")
    assert model.set_params(metric=metric).score(TEST.features, TEST.labels, qid=TEST.qid) == best


def history(model: Any) -> dict[str, list[float]]:
    """What was reported on the only evaluation set."""
    found = model.get_evals_result()["validation"] if isinstance(model, CatBoostRanker) else next(iter(evaluated(model)))
    return dict(found)


def evaluated(model: Any) -> Any:
    return (model.evals_result() if isinstance(model, XGBoostRanker) else model.evals_result_).values()


@RANKERS
def test_early_stopping_by_the_metric(kind: Any) -> None:
    model = ranker(kind, metric="err@3", n_estimators=300, early_stopping_rounds=5, learning_rate=0.5)
    model.fit(*xyq(), eval_set=[xyq(TEST)])
    (name, values), = history(model).items()  # fmt: skip
    assert name == "err@3"
    assert len(values) == np.argmax(values) + 1 + 5 < 300
    assert model.score(*xyq(TEST)) == pytest.approx(max(values), abs=1e-6)
    given = {"qid": TRAIN.qid, "eval_qid": TEST.qid, "eval_set": (TEST.features, TEST.labels)}
    single = clone(model).fit(TRAIN.features, TRAIN.labels, **given)
    np.testing.assert_array_equal(single.predict(TEST.features), model.predict(frame(TEST)))
    weights = np.arange(len(TEST.groups)) + 0.0
    given = {"group": TRAIN.groups, "eval_group": [TEST.groups], "eval_set": [(TEST.features, TEST.labels)]}
    weighted = ranker(kind).fit(TRAIN.features, TRAIN.labels, **given, eval_sample_weight=[weights])
    last = weighted.score(TEST.features, TEST.labels, qid=TEST.qid, sample_weight=weights)
    values = history(weighted)["ndcg@5"]
    assert (max(values) if kind is CatBoostRanker else values[-1]) == pytest.approx(last, abs=1e-6)
    with pytest.raises(ValueError, match="early_stopping_rounds=5 needs eval_set"):
        clone(model).fit(*xyq())
    with pytest.raises(ValueError, match="eval_qid was given without eval_set"):
        ranker(kind).fit(*xyq(), eval_qid=[TEST.qid])
    with pytest.raises(ValueError, match="eval_group must have one entry for each of the 1 of eval_set, got 2"):
        ranker(kind).fit(*xyq(), eval_set=[(TEST.features, TEST.labels)], eval_group=[TEST.groups] * 2)


# ------------------------------------------------------------ data


@RANKERS
def test_queries_from_any_place_give_one_model(kind: Any) -> None:
    expected = scores(kind)
    by_group = ranker(kind).fit(TRAIN.features, TRAIN.labels, group=TRAIN.groups)
    by_name = ranker(kind).fit(TRAIN.features, TRAIN.labels, qid=[f"query {at}" for at in TRAIN.qid])
    for model in (by_group, by_name):
        np.testing.assert_array_equal(model.predict(TEST.features), expected)
    np.testing.assert_array_equal(ranker(kind).fit(*xyq()).predict(frame(TEST)), expected)
    np.testing.assert_array_equal(ranker(kind).fit(*xyq()).predict(frame(TEST, qid=False)), expected)


FRAMES = {
    "pandas": lambda data, qid: frame(data, qid),
    "polars": lambda data, qid: pl.DataFrame(frame(data, qid).to_dict("list")),
    "arrow": lambda data, qid: pa.table(frame(data, qid).to_dict("list")),
}


@RANKERS
@pytest.mark.parametrize("library", FRAMES)
def test_frames_with_a_column_qid(kind: Any, library: str) -> None:
    made = FRAMES[library]
    expected = scores(kind)
    model = ranker(kind).fit(made(TRAIN, True), TRAIN.labels, eval_set=[(made(TEST, True), TEST.labels)])
    model = ranker(kind).fit(made(TRAIN, True), TRAIN.labels)
    np.testing.assert_array_equal(model.predict(made(TEST, True)), expected)
    np.testing.assert_array_equal(model.predict(made(TEST, False)), expected)
    assert list(model.feature_names_in_) == NAMES
    assert model.n_features_in_ == 6
    assert model.score(made(TEST, True), TEST.labels) == sr.evaluate("ndcg@5", expected, TEST.labels, TEST.groups)
    given = ranker(kind).fit(made(TRAIN, False), pl.Series(TRAIN.labels), qid=pd.Series(TRAIN.qid))
    np.testing.assert_array_equal(given.predict(made(TEST, False)), expected)
    booster = model.get_booster().feature_names if kind is XGBoostRanker else None
    booster = model.booster_.feature_name() if kind is LightGBMRanker else booster
    assert (model.feature_names_ if kind is CatBoostRanker else booster) == NAMES
    with pytest.raises(ValueError, match="must be in the same order as they were in fit"):
        model.predict(made(TEST, False)[NAMES[::-1]] if library != "arrow" else made(TEST, False).select(NAMES[::-1]))
    with pytest.raises(ValueError, match="yet now missing:\n- f5"):
        model.predict(made(TEST, False)[NAMES[:5]] if library != "arrow" else made(TEST, False).select(NAMES[:5]))
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        model.predict(TEST.features)


@RANKERS
def test_missing_values_and_categories_of_frames(kind: Any) -> None:
    letters = np.array(list("abcd"))[np.arange(len(TRAIN.labels)) % 4]
    one = TRAIN.features[:, 0].tolist()
    one[3] = None
    columns = {"one": one, "two": TRAIN.features[:, 1].tolist(), "letter": letters.tolist()}
    made = {
        "polars": pl.DataFrame(columns).with_columns(pl.col("letter").cast(pl.Categorical)),
        "arrow": pa.table({**columns, "letter": pa.array(letters).dictionary_encode()}),
        "pandas": pd.DataFrame(columns).astype({"letter": "category"}),
    }
    params = {XGBoostRanker: {"enable_categorical": True}, CatBoostRanker: {"cat_features": ["letter"]}}.get(kind, {})
    found = [
        ranker(kind, **params).fit(one, TRAIN.labels, qid=TRAIN.qid).predict(one) for one in made.values()
    ]  # fmt: skip
    for other in found[:2]:
        np.testing.assert_array_equal(other, found[2])


@RANKERS
def test_weights_of_queries_and_of_rows(kind: Any) -> None:
    weights = (np.arange(len(TRAIN.groups)) % 3).astype(float)
    models = [
        ranker(kind).fit(TRAIN.features, TRAIN.labels, qid=TRAIN.qid, sample_weight=given)
        for given in (weights, np.repeat(weights, TRAIN.groups), weights.tolist(), pd.Series(weights))
    ]
    for model in models[1:]:
        np.testing.assert_array_equal(model.predict(TEST.features), models[0].predict(TEST.features))
    assert np.abs(models[0].predict(TEST.features) - scores(kind)).max() > 1e-3
    with pytest.raises(ValueError, match=r"sample_weight\[1\] = 1 differs from its query's first"):
        ranker(kind).fit(*xyq(), sample_weight=np.arange(len(TRAIN.labels)))
    with pytest.raises(ValueError, match="weights are all zero"):
        ranker(kind).fit(*xyq(), sample_weight=0 * weights)


@RANKERS
def test_labels_that_are_words_are_named(kind: Any) -> None:
    words = np.full(len(TRAIN.labels), "high", object)
    with pytest.raises(ValueError, match=r"labels must be a sequence of numbers.*'high'"):
        ranker(kind).fit(TRAIN.features, words, qid=TRAIN.qid)


def positions_of(data: Any) -> Any:
    return np.concatenate([np.random.default_rng(size).permutation(size) + 1 for size in data.groups])


@RANKERS
def test_clicks_are_corrected_for_positions(kind: Any) -> None:
    clicks, positions, propensities = TRAIN.labels > 1, positions_of(TRAIN), 1 / np.arange(1, TRAIN.groups.max() + 1)
    data = {"qid": TRAIN.qid, "positions": positions}
    model = ranker(kind, propensities=propensities, clip=4).fit(TRAIN.features, clicks, **data)
    corrected = sr.debias(clicks, positions, propensities, clip=4)
    by_hand = ranker(kind).fit(TRAIN.features, corrected, qid=TRAIN.qid)
    np.testing.assert_array_equal(model.predict(TEST.features), by_hand.predict(TEST.features))
    as_they_are = ranker(kind).fit(TRAIN.features, clicks, qid=TRAIN.qid)
    assert not np.array_equal(model.predict(TEST.features), as_they_are.predict(TEST.features))
    unlimited = clone(model).set_params(clip=None).fit(TRAIN.features, clicks, **data)
    assert not np.array_equal(model.predict(TEST.features), unlimited.predict(TEST.features))
    assert model.score(TRAIN.features, clicks, **data) == by_hand.score(TRAIN.features, corrected, qid=TRAIN.qid)
    ones = np.ones(len(TEST.labels))
    true = sr.evaluate("ndcg@5", model.predict(TEST.features), TEST.labels, TEST.groups)
    assert model.score(TEST.features, TEST.labels, qid=TEST.qid, positions=ones) == true


@RANKERS
def test_positions_of_evaluation_sets(kind: Any) -> None:
    clicks, propensities = TEST.labels > 1, 1 / np.arange(1, 1 + max(TRAIN.groups.max(), TEST.groups.max()))
    model = ranker(kind, propensities=propensities)
    data = {"qid": TRAIN.qid, "positions": positions_of(TRAIN), "eval_qid": [TEST.qid]}
    sets = [(TEST.features, clicks)]
    model.fit(TRAIN.features, TRAIN.labels > 1, **data, eval_set=sets, eval_positions=[positions_of(TEST)])
    recorded = model.get_evals_result() if kind is CatBoostRanker else model.evals_result_
    (reported,) = (one["ndcg@5"] for name, one in recorded.items() if name.startswith("valid"))
    found = model.score(TEST.features, clicks, qid=TEST.qid, positions=positions_of(TEST))
    assert (max(reported) if kind is CatBoostRanker else reported[-1]) == pytest.approx(found, abs=1e-5)  # it keeps the best
    assert found != sr.evaluate("ndcg@5", model.predict(TEST.features), clicks, TEST.groups)
    with pytest.raises(ValueError, match="eval_positions="):
        model.fit(TRAIN.features, TRAIN.labels > 1, **data, eval_set=sets)


@RANKERS
def test_clicks_without_positions_are_refused(kind: Any) -> None:
    """They would be taken as they are."""
    positions, clicked = positions_of(TRAIN), ranker(kind, propensities=1 / np.arange(1, 100))
    with pytest.raises(ValueError, match=r"need positions.*give positions="):
        clicked.fit(TRAIN.features, TRAIN.labels, qid=TRAIN.qid)
    with pytest.raises(ValueError, match=r"positions needs propensities.*estimate_propensities"):
        ranker(kind).fit(TRAIN.features, TRAIN.labels, qid=TRAIN.qid, positions=positions)
    with pytest.raises(ValueError, match="clip needs propensities"):
        fitted(kind, clip=5)
    clicked.fit(TRAIN.features, TRAIN.labels, qid=TRAIN.qid, positions=positions)
    with pytest.raises(ValueError, match="need positions"):
        clicked.score(TEST.features, TEST.labels, qid=TEST.qid)
    with pytest.raises(ValueError, match=r"positions\[0\] = 0.*add 1"):
        clicked.fit(TRAIN.features, TRAIN.labels, qid=TRAIN.qid, positions=positions * 0)


@RANKERS
def test_positions_are_routed_through_a_search(kind: Any) -> None:
    clicks, positions = TRAIN.labels > 1, positions_of(TRAIN)
    with sklearn.config_context(enable_metadata_routing=True):
        model = ranker(kind, propensities=1 / np.arange(1, 100))
        model.set_fit_request(positions=True).set_score_request(positions=True)
        search = GridSearchCV(model, {"clip": [1.0, 20.0]}, cv=GroupKFold(2))
        search.fit(TRAIN.features, clicks, qid=TRAIN.qid, groups=TRAIN.qid, positions=positions)
    first, second = search.cv_results_["mean_test_score"]
    assert first != second


@RANKERS
def test_sparse_matrices(kind: Any) -> None:
    dense = np.where(TRAIN.features > 0, TRAIN.features, 0)
    for make in (scipy.sparse.csr_matrix, scipy.sparse.csr_array, scipy.sparse.coo_matrix):
        model = ranker(kind).fit(make(dense), TRAIN.labels, qid=TRAIN.qid)
        assert np.isfinite(model.predict(make(dense))).all()


@RANKERS
def test_data_that_are_refused(kind: Any) -> None:
    x, y, qid = TRAIN.features, TRAIN.labels, TRAIN.qid
    with pytest.raises(ValueError, match="queries must be given once, got 0 of"):
        ranker(kind).fit(x, y)
    with pytest.raises(ValueError, match="queries must be given once, got 2 of"):
        ranker(kind).fit(frame(), y, qid=qid)
    with pytest.raises(ValueError, match="qid is not contiguous"):
        ranker(kind).fit(x, y, qid=np.arange(len(y)) % 7)
    with pytest.raises(ValueError, match="groups sum to"):
        ranker(kind).fit(x, y, group=TRAIN.groups[:-1])
    with pytest.raises(ValueError, match=r"labels\[0\] = -1 is negative"):
        ranker(kind).fit(x, -np.ones(len(y)), qid=qid)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        ranker(kind).fit(x[1:], y, qid=qid)
    with pytest.raises(ValueError, match=r"X has 5 features, but .* is expecting 6"):
        fitted(kind).predict(TEST.features[:, :5])
    with pytest.raises(ValueError, match=r"X has 5 features, but .* is expecting 6"):
        ranker(kind).fit(x, y, qid=qid, eval_set=[(x[:, :5], y)], eval_qid=[qid])
    with pytest.raises(NotFittedError):
        ranker(kind).predict(x)
    with pytest.raises(NotFittedError):
        ranker(kind).score(x, y, qid=qid)
    with pytest.raises(ValueError, match="collect it first"):
        ranker(kind).fit(pl.LazyFrame({"a": [1.0]}), [1], qid=[1])


# ------------------------------------------------------------ scikit-learn


@RANKERS
def test_clones_copies_and_pickles(kind: Any) -> None:
    loss = sr.SGLB(sr.StochasticRank("ndcg@5"), learning_rate=0.3, diffusion_temperature=1e8)
    model = ranker(kind, loss, metric="mrr", loss__loss__mu=0.2, random_state=3)
    for copied in (clone(model), copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert {**copied.get_params(), "missing": 0} == {**model.get_params(), "missing": 0}  # XGBoost's is NaN
        assert repr(copied) == repr(model)
    assert "loss=SGLB(StochasticRank('ndcg@5'), " in repr(model)
    assert "metric='mrr'" in repr(model)
    model.fit(*xyq())
    expected = model.predict(frame(TEST))
    for copied in (copy.deepcopy(model), pickle.loads(pickle.dumps(model)), clone(model).fit(*xyq())):
        np.testing.assert_array_equal(copied.predict(frame(TEST)), expected)
        assert copied.loss_ == model.loss_
        assert list(copied.feature_names_in_) == NAMES
    again = kind(**model.get_params()).fit(*xyq())
    np.testing.assert_array_equal(again.predict(frame(TEST)), expected)


@RANKERS
def test_set_params_after_fit(kind: Any) -> None:
    model = fitted(kind)
    before = model.predict(TEST.features)
    model.set_params(n_estimators=3, loss=sr.StochasticRank("mrr"), metric="mrr")
    np.testing.assert_array_equal(model.predict(TEST.features), before)
    model.fit(TRAIN.features, TRAIN.labels, qid=TRAIN.qid)
    np.testing.assert_array_equal(model.predict(TEST.features), scores(kind, sr.StochasticRank("mrr"), n_estimators=3))


@RANKERS
def test_a_pipeline(kind: Any) -> None:
    model = Pipeline([("scale", StandardScaler()), ("rank", ranker(kind))])
    model.fit(TRAIN.features, TRAIN.labels, rank__qid=TRAIN.qid)
    scale = StandardScaler().fit(TRAIN.features)
    alone = ranker(kind).fit(scale.transform(TRAIN.features), TRAIN.labels, qid=TRAIN.qid)
    np.testing.assert_array_equal(model.predict(TEST.features), alone.predict(scale.transform(TEST.features)))
    with sklearn.config_context(enable_metadata_routing=True):
        pipeline = make_pipeline(StandardScaler(), ranker(kind))
        name = pipeline.steps[-1][0]
        search = GridSearchCV(pipeline, {f"{name}__loss__mu": [0, 3.0]}, cv=GroupKFold(2))
        search.fit(TRAIN.features, TRAIN.labels, qid=TRAIN.qid, groups=TRAIN.qid)
    assert len(set(search.cv_results_["mean_test_score"])) == 2


@RANKERS
def test_metadata_routing_of_qid_and_weights(kind: Any) -> None:
    weights = np.repeat(np.arange(len(TRAIN.groups)) % 2 + 1.0, TRAIN.groups)
    column = sklearn_cross_validate(ranker(kind), *xyq(), cv=GroupKFold(2), groups=TRAIN.qid)["test_score"]
    with sklearn.config_context(enable_metadata_routing=True):
        given = {"qid": TRAIN.qid, "groups": TRAIN.qid}
        routed = cross_val_score(ranker(kind), TRAIN.features, TRAIN.labels, cv=GroupKFold(2), params=given)
        weighing = ranker(kind).set_fit_request(sample_weight=True).set_score_request(sample_weight=True)
        weighted = cross_val_score(
            weighing, TRAIN.features, TRAIN.labels, cv=GroupKFold(2), params={**given, "sample_weight": weights}
        )
    np.testing.assert_array_equal(routed, column)
    rows, held = next(GroupKFold(2).split(TRAIN.features, groups=TRAIN.qid))
    model = ranker(kind).fit(frame().iloc[rows], TRAIN.labels[rows], sample_weight=weights[rows])
    assert weighted[0] == model.score(frame().iloc[held], TRAIN.labels[held], sample_weight=weights[held])


@RANKERS
def test_optuna_searches_parameters_of_the_loss(kind: Any) -> None:
    optuna.logging.set_verbosity(optuna.logging.ERROR)

    def objective(trial: optuna.Trial) -> float:
        model = clone(ranker(kind)).set_params(loss__mu=trial.suggest_float("loss__mu", 0, 3))
        return float(cross_val_score(model, *xyq(), cv=GroupKFold(2), groups=TRAIN.qid).mean())

    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.RandomSampler(0))
    study.optimize(objective, n_trials=3)
    assert len({trial.value for trial in study.trials}) == 3


@RANKERS
def test_feature_selection(kind: Any) -> None:
    chosen = SelectFromModel(ranker(kind), threshold=-np.inf, max_features=2).fit(
        TRAIN.features, TRAIN.labels, qid=TRAIN.qid
    )
    assert chosen.get_support().sum() == 2
    removed = RFE(ranker(kind), n_features_to_select=3, step=2).fit(TRAIN.features, TRAIN.labels, qid=TRAIN.qid)
    assert removed.support_.sum() == 3


@RANKERS
@pytest.mark.filterwarnings("ignore")  # SHAP's own, about matplotlib and numpy
def test_shap_takes_them(kind: Any) -> None:
    import shap

    model = fitted(kind)
    values = shap.TreeExplainer(model)(TEST.features[:20])
    assert values.values.shape == (20, 6)
    total = values.values.sum(1) + values.base_values
    np.testing.assert_allclose(
        total - total[0], model.predict(TEST.features[:20]) - model.predict(TEST.features[:1])[0], atol=1e-4
    )


# ------------------------------------------------------------ each booster's own


def test_xgboost_rankers_are_xgboost_rankers(tmp_path: Any) -> None:
    data = xgb.QuantileDMatrix(TRAIN.features, TRAIN.labels, group=TRAIN.groups)
    params = {"max_depth": 3, "learning_rate": 0.3, "nthread": 1}
    booster = xgb.train(params, data, 6, obj=adapters.XGBoostObjective("ndcg@5"))
    model = fitted(XGBoostRanker)
    np.testing.assert_array_equal(model.predict(TEST.features), booster.predict(xgb.DMatrix(TEST.features)))
    assert isinstance(model, xgb.XGBRanker)
    assert model.apply(TEST.features).shape == (len(TEST.labels), 6)
    model.save_model(tmp_path / "model.json")
    loaded = ranker(XGBoostRanker)
    loaded.load_model(tmp_path / "model.json")
    np.testing.assert_array_equal(loaded.predict(TEST.features), model.predict(TEST.features))
    np.testing.assert_array_equal(loaded.fit(*xyq()).predict(frame(TEST)), model.predict(TEST.features))
    half = fitted(XGBoostRanker, n_estimators=3)
    on = ranker(XGBoostRanker, n_estimators=3).fit(TRAIN.features, TRAIN.labels, qid=TRAIN.qid, xgb_model=half)
    np.testing.assert_allclose(on.predict(TEST.features), model.predict(TEST.features), rtol=1e-4)


def test_xgboost_margins_metrics_and_refusals() -> None:
    margin, weights = np.linspace(0, 1, len(TRAIN.labels)), np.arange(len(TRAIN.groups))
    data = xgb.QuantileDMatrix(TRAIN.features, TRAIN.labels, group=TRAIN.groups, weight=weights, base_margin=margin)
    booster = xgb.train({"max_depth": 3, "learning_rate": 0.3}, data, 6, obj=adapters.XGBoostObjective("ndcg@5"))
    given = {"qid": TRAIN.qid, "sample_weight": weights, "base_margin": margin}
    model = ranker(XGBoostRanker, eval_metric=["ndcg@3"], max_cached_hist_node=64).fit(
        TRAIN.features, TRAIN.labels, **given, eval_set=[(TEST.features, TEST.labels)], eval_qid=[TEST.qid],
        sample_weight_eval_set=[np.arange(len(TEST.groups))],
    )  # fmt: skip
    np.testing.assert_allclose(model.predict(TEST.features), booster.predict(xgb.DMatrix(TEST.features)), rtol=1e-5)
    assert list(history(model)) == ["ndcg@3", "ndcg@5"]
    with pytest.raises(ValueError, match="eval_metric takes XGBoost's names"):
        fitted(XGBoostRanker, eval_metric=len)
    with pytest.raises(ValueError, match="are the same; give one of them"):
        ranker(XGBoostRanker).fit(*xyq(), eval_sample_weight=[1], sample_weight_eval_set=[1])


def test_xgboost_reports_what_is_named_whatever_it_trains_on() -> None:
    objective = adapters.XGBoostObjective("mrr", train_on="ndcg@5")
    for model in (ranker(XGBoostRanker, objective), clone(ranker(XGBoostRanker, objective)), ranker(XGBoostRanker, "mrr")):
        model.fit(*xyq(), eval_set=[xyq(TEST)])
        assert list(history(model)) == ["mrr"]


def test_lightgbm_own() -> None:
    params = {"n_estimators": 6, "num_leaves": 7, "learning_rate": 0.3, "n_jobs": 1, "verbose": -1}
    plain = lightgbm.LGBMRanker(objective=adapters.LightGBMObjective("ndcg@5"), **params)
    plain.fit(TRAIN.features, TRAIN.labels, group=TRAIN.groups)
    model = fitted(LightGBMRanker)
    np.testing.assert_array_equal(model.predict(TEST.features), plain.predict(TEST.features))
    half = fitted(LightGBMRanker, n_estimators=3)
    on = ranker(LightGBMRanker, n_estimators=3).fit(TRAIN.features, TRAIN.labels, qid=TRAIN.qid, init_model=half)
    np.testing.assert_allclose(on.predict(TEST.features), model.predict(TEST.features), rtol=1e-4)
    assert model.predict(TEST.features, pred_leaf=True).shape == (len(TEST.labels), 6)
    np.testing.assert_array_equal(scores(LightGBMRanker, min_data_in_leaf=5), scores(LightGBMRanker, min_child_samples=5))
    with pytest.raises(ValueError, match="class_weight is for classifiers"):
        fitted(LightGBMRanker, class_weight="balanced")
    with pytest.raises(ValueError, match="mmu: neither a parameter of LightGBM nor one of YetiLoss"):
        ranker(LightGBMRanker, mmu=1)


def test_catboost_own(tmp_path: Any) -> None:
    catboost = adapters.catboost.catboost
    pool = catboost.Pool(TRAIN.features, TRAIN.labels, group_id=TRAIN.qid)
    params = {"iterations": 6, "depth": 3, "learning_rate": 0.3, "thread_count": 1, "verbose": False}
    plain = adapters.CatBoostStochasticRank("ndcg@5", **params, allow_writing_files=False).fit(pool)
    model = fitted(CatBoostRanker)
    np.testing.assert_array_equal(model.predict(TEST.features), plain.predict(TEST.features))
    named = CatBoostRanker("ndcg@5", **params).fit(pool, eval_set=pool, use_best_model=False)
    np.testing.assert_array_equal(named.predict(catboost.Pool(TEST.features)), plain.predict(TEST.features))
    half = fitted(CatBoostRanker, n_estimators=3)
    on = ranker(CatBoostRanker, n_estimators=3).fit(TRAIN.features, TRAIN.labels, qid=TRAIN.qid, init_model=half)
    np.testing.assert_allclose(on.predict(TEST.features), model.predict(TEST.features), rtol=1e-4)
    for loaded in (ranker(CatBoostRanker), adapters.CatBoostStochasticRank("ndcg@5", **params, allow_writing_files=False)):
        model.save_model(str(tmp_path / "model.cbm"))
        loaded.load_model(str(tmp_path / "model.cbm"))
        np.testing.assert_array_equal(loaded.predict(TEST.features), model.predict(TEST.features))
        queries = {"qid": TRAIN.qid} if isinstance(loaded, CatBoostRanker) else {"group_id": TRAIN.qid}
        loaded.fit(TRAIN.features, TRAIN.labels, **queries)
        np.testing.assert_array_equal(loaded.predict(TEST.features), model.predict(TEST.features))


def test_catboost_writes_nothing_unless_told(tmp_path: Any, monkeypatch: pytest.MonkeyPatch, capfd: Any) -> None:
    monkeypatch.chdir(tmp_path)
    fitted(CatBoostRanker)
    assert list(tmp_path.iterdir()) == []
    assert capfd.readouterr().out == ""


def test_what_catboost_cannot_do_says_what_to_do_instead() -> None:
    catboost = adapters.catboost.catboost
    pool = catboost.Pool(TRAIN.features, TRAIN.labels, group_id=TRAIN.qid)
    for model in (ranker(CatBoostRanker), adapters.CatBoostStochasticRank("ndcg@5")):
        with pytest.raises(ValueError, match=r"GridSearchCV with CatBoostRanker, split by query"):
            model.grid_search({"depth": [2, 3]}, pool)
        with pytest.raises(ValueError, match=r"RandomizedSearchCV with CatBoostRanker, split by query"):
            model.randomized_search({"depth": [2, 3]}, pool)
        with pytest.raises(ValueError, match=r"use sklearn.feature_selection.RFE or SelectFromModel"):
            model.select_features(pool)
    objective = adapters.CatBoostObjective("ndcg@5")
    params = {"loss_function": objective, "eval_metric": objective, "iterations": 2, "allow_writing_files": False}
    with pytest.raises(catboost.CatBoostError, match=r"in place of catboost.cv use cross_validate"):
        catboost.cv(pool, {**params, "verbose": False})


@pytest.mark.parametrize("name", ["y", "qid", "group", "sample_weight", "positions", "baseline", "eval_qid"])
def test_catboost_refuses_what_stands_beside_a_pool(name: str) -> None:
    """It would be ignored."""
    pool = adapters.catboost.catboost.Pool(TRAIN.features, TRAIN.labels, group_id=TRAIN.qid)
    with pytest.raises(ValueError, match=f"{name}: a Pool says everything itself"):
        ranker(CatBoostRanker).fit(pool, **{name: TRAIN.labels})


def test_catboost_takes_categories_in_arrays() -> None:
    mixed = TRAIN.features.astype(object)
    mixed[:, 2] = np.array(["a", "b", "c"])[np.arange(len(mixed)) % 3]
    model = ranker(CatBoostRanker, cat_features=[2]).fit(mixed, TRAIN.labels, qid=TRAIN.qid)
    named = pd.DataFrame(mixed, columns=NAMES).assign(qid=TRAIN.qid).astype({name: float for name in NAMES if name != "f2"})
    by_name = ranker(CatBoostRanker, cat_features=["f2"]).fit(named, TRAIN.labels)
    np.testing.assert_array_equal(model.predict(mixed), by_name.predict(named))


# ------------------------------------------------------------ examples, and life without scikit-learn


class _Silent:
    """A logger that LightGBM takes."""

    def info(self, message: str) -> None:
        pass

    warning = info


@pytest.mark.parametrize("module", ["xgboost_ranker", "lightgbm_ranker", "catboost_ranker", "validation"])
def test_examples_in_docstrings_run(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lightgbm.basic, "_LOGGER", _Silent())  # LightGBM 4.0 warns of any custom objective
    result = doctest.testmod(importlib.import_module(f"stochasticrank_objectives.adapters.{module}"))
    assert (result.failed, result.attempted > 0) == (0, True)


def test_adapters_import_without_scikit_learn() -> None:
    program = """
import sys
sys.modules["sklearn"] = None  # importing it raises
from stochasticrank_objectives import adapters
print(adapters.XGBoostObjective("ndcg@10").metric, adapters.LightGBMObjective("mrr").metric, adapters.CatBoostObjective)
for name in ("XGBoostRanker", "LightGBMRanker", "CatBoostRanker", "cross_validate"):
    try:
        getattr(adapters, name)
    except ImportError as error:
        print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.count('pip install "stochasticrank-objectives[sklearn]"') == 4


@RANKERS
def test_fit_has_the_same_first_parameters(kind: Any) -> None:
    names = list(inspect.signature(kind.fit).parameters)
    expected = ["qid", "group", "sample_weight", "positions"]
    expected += ["eval_set", "eval_qid", "eval_group", "eval_sample_weight", "eval_positions"]
    assert names[:12] == ["self", "X", "y", *expected]


def test_parameters_of_a_stochastic_rank_model_of_catboost() -> None:
    model = adapters.CatBoostStochasticRank("ndcg@5", iterations=2, verbose=False, allow_writing_files=False)
    model.set_params(loss_function="mrr", depth=2)
    assert model.get_param("loss_function") == adapters.CatBoostObjective("mrr")
    model.set_params(eval_metric="err@3")
    assert str(model.get_param("loss_function").metric) == "err@3"
    model.fit(TRAIN.features, TRAIN.labels, group_id=TRAIN.qid)
    assert list(model.get_evals_result()["learn"]) == ["err@3"]
    with pytest.raises(ValueError, match="make a new object, or use CatBoostRanker"):
        model.set_params(depth=3)
