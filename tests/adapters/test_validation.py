"""Cross-validation by query."""

from __future__ import annotations

import builtins
from typing import Any

import catboost
import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
import scipy.stats
import xgboost as xgb
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import stochasticrank_objectives as sr
from stochasticrank_objectives.adapters import (
    CatBoostRanker,
    LightGBMMetric,
    LightGBMRanker,
    XGBoostRanker,
    cross_validate,
)
from stochasticrank_objectives.adapters.validation import CrossValidation
from stochasticrank_objectives.datasets import make_ranking

DATA = make_ranking(30, features=5, seed=4)
SMALL: dict[str, Any] = {"n_estimators": 4, "max_depth": 3, "learning_rate": 0.3, "n_jobs": 1}
RANKERS = {
    "x": XGBoostRanker("ndcg@5", **SMALL),
    "l": LightGBMRanker("ndcg@5", **SMALL),
    "c": CatBoostRanker("ndcg@5", **SMALL),
}


def validate(estimators: Any = None, **keywords: Any) -> CrossValidation:
    given = {"qid": DATA.qid, "folds": 3, "progress": False, **keywords}
    return cross_validate(RANKERS if estimators is None else estimators, DATA.features, DATA.labels, **given)


def test_every_query_is_measured_by_models_that_did_not_see_it() -> None:
    found = validate(seed=5)
    assert np.bincount(found.folds).tolist() == [10, 10, 10]
    for name, ranker in RANKERS.items():
        for fold in range(3):
            rows = np.repeat(found.folds != fold, DATA.groups)
            model = type(ranker)(**ranker.get_params()).fit(DATA.features[rows], DATA.labels[rows], qid=DATA.qid[rows])
            scores = model.predict(DATA.features[~rows])
            np.testing.assert_array_equal(found.scores[name][~rows], scores)
            expected = sr.evaluate("ndcg@5", scores, DATA.labels[~rows], qid=DATA.qid[~rows], per_query=True)
            np.testing.assert_array_equal(found.values[name][found.folds == fold], expected)


def test_folds_depend_on_the_seed_alone() -> None:
    one, same, other = (validate({"l": RANKERS["l"]}, seed=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one.folds, same.folds)
    np.testing.assert_array_equal(one.values["l"], same.values["l"])
    assert (one.folds != other.folds).any()


def test_means_and_a_paired_comparison() -> None:
    found = validate()
    values = found.values
    mean = found.mean("x")
    assert mean.mean == pytest.approx(values["x"].mean())
    assert mean.standard_error == pytest.approx(values["x"].std(ddof=1) / np.sqrt(30))
    compared = found.compare("x", "l")
    expected = scipy.stats.ttest_rel(values["x"], values["l"])
    assert compared.difference == pytest.approx((values["x"] - values["l"]).mean())
    assert compared.p == pytest.approx(expected.pvalue)
    assert compared.difference / compared.standard_error == pytest.approx(expected.statistic)
    assert found.compare("x", "x") == (0.0, 0.0, 1.0)
    lines = str(found).splitlines()
    assert lines[0] == "ndcg@5 of 30 queries, 3 folds"
    assert sum(", p = " in line for line in lines) == 2
    with pytest.raises(ValueError, match="no estimator is called 'y'; there are 'x', 'l', 'c'"):
        found.compare("x", "y")


def test_weights_of_queries_train_and_average() -> None:
    weights = np.arange(30) % 3 + 0.0
    found = validate(sample_weight=weights)
    per_row = validate(sample_weight=np.repeat(weights, DATA.groups))
    for name, values in found.values.items():
        np.testing.assert_array_equal(values, per_row.values[name])
        assert found.mean(name).mean == pytest.approx(np.average(values, weights=weights))
        rows = np.repeat(found.folds != 0, DATA.groups)
        model = type(RANKERS[name])(**RANKERS[name].get_params())
        model.fit(DATA.features[rows], DATA.labels[rows], qid=DATA.qid[rows], sample_weight=weights[found.folds != 0])
        np.testing.assert_array_equal(found.scores[name][~rows], model.predict(DATA.features[~rows]))
    same = CrossValidation(found.metric, found.values, found.scores, found.folds, np.full(30, 7.0))
    assert same.mean("x") == pytest.approx((found.values["x"].mean(), found.values["x"].std(ddof=1) / np.sqrt(30)))
    doubled = CrossValidation(
        found.metric, {"x": np.array([0.1, 0.5, 0.9, np.nan])}, {}, found.folds, np.array([1, 0, 1, 5.0])
    )
    assert doubled.mean("x") == pytest.approx((0.5, 0.4))  # two queries: half their difference


def test_any_estimator_of_rankings_takes_part() -> None:
    params: dict[str, Any] = {"n_estimators": 3, "max_depth": 2}
    estimators = {
        "ours": RANKERS["l"],
        "pipeline": make_pipeline(StandardScaler(), RANKERS["x"]),
        "XGBRanker": xgb.XGBRanker(**params),
        "LGBMRanker": lgb.LGBMRanker(**params, verbose=-1),
        "CatBoostRanker": catboost.CatBoostRanker(**params, verbose=False, allow_writing_files=False),
    }
    found = validate(estimators, folds=2, sample_weight=np.arange(30) % 2 + 1.0)
    assert all(0.3 < found.mean(name).mean <= 1 for name in estimators)
    with pytest.raises(ValueError, match="StandardScaler takes none of qid, group and group_id"):
        validate({"x": StandardScaler()}, metric="mrr")


def test_early_stopping_on_held_out_queries() -> None:
    stopping = {
        name: type(ranker)(**{**ranker.get_params(), "n_estimators": 60}).set_params(early_stopping_rounds=3)
        for name, ranker in RANKERS.items()
    }
    found = validate(stopping, validation=0.3, folds=2)
    assert all(found.mean(name).mean > 0.5 for name in RANKERS)
    with pytest.raises(ValueError, match="early_stopping_rounds=3 needs eval_set"):
        validate(stopping)
    with pytest.raises(ValueError, match="validation is for our rankers"):
        validate({"x": xgb.XGBRanker()}, validation=0.3, metric="mrr")
    with pytest.raises(ValueError, match="leaves none on one of the sides"):
        validate(validation=0.001)
    with pytest.raises(ValueError, match="validation must be a share"):
        validate(validation=1)


def test_the_metric() -> None:
    differing = {"x": RANKERS["x"], "l": LightGBMRanker("mrr", **SMALL)}
    with pytest.raises(ValueError, match=r"do not agree on a metric \(x: ndcg@5, l: mrr\); give metric="):
        validate(differing)
    with pytest.raises(ValueError, match="none of them reports one"):
        validate({"x": xgb.XGBRanker()})
    found = validate(differing, metric="err@3")
    assert str(found.metric) == "err@3"
    labels = DATA.labels.copy()
    labels[DATA.qid == 0] = 0
    skipping = cross_validate(
        {"l": RANKERS["l"]}, DATA.features, labels, group=DATA.groups, folds=2, progress=False,
        metric=LightGBMMetric("mrr", empty="skip"),
    )  # fmt: skip
    assert np.isnan(skipping.values["l"]).tolist() == [True] + [False] * 29
    assert np.isfinite(skipping.mean("l")).all()


def test_a_frame_with_a_column_qid() -> None:
    frame = pd.DataFrame(DATA.features).add_prefix("f").assign(qid=DATA.qid)
    found = cross_validate({"l": RANKERS["l"]}, frame, DATA.labels, folds=3, progress=False)
    np.testing.assert_array_equal(found.values["l"], validate({"l": RANKERS["l"]}).values["l"])


def test_what_is_refused() -> None:
    with pytest.raises(ValueError, match="queries must be given once"):
        validate(qid=None)
    with pytest.raises(ValueError, match="folds must be a whole number from 2 to the number of queries, 30, got 1"):
        validate(folds=1)
    with pytest.raises(ValueError, match="estimators must be a dict"):
        validate([RANKERS["l"]])
    with pytest.raises(ValueError, match="but y has"):
        cross_validate(RANKERS, DATA.features[1:], DATA.labels, qid=DATA.qid)


def test_progress_is_shown_where_tqdm_is(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    validate({"l": RANKERS["l"]}, progress=True)
    assert "3/3" in capsys.readouterr().err
    real = builtins.__import__

    def without(name: str, *arguments: Any, **keywords: Any) -> Any:
        if name.startswith("tqdm"):
            raise ImportError(name)
        return real(name, *arguments, **keywords)

    monkeypatch.setattr(builtins, "__import__", without)
    validate({"l": RANKERS["l"]}, progress=True)
    assert capsys.readouterr().err == ""
