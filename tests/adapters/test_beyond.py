"""Metrics beyond ranked lists on the three boosters: trained, reported, and stopped on."""

from __future__ import annotations

from typing import Any

import catboost
import lightgbm as lgb
import numpy as np
import pytest
import xgboost as xgb

import stochasticrank_objectives as sr
from stochasticrank_objectives import adapters
from stochasticrank_objectives.recommended import BOOSTERS

ROUNDS = 30
Data = tuple[np.ndarray, np.ndarray, np.ndarray]


def lists(seed: int) -> Data:
    """Short lists in a given order, most documents without worth."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(1200, 4))
    labels = np.digitize(x[:, 0] * x[:, 1] + x[:, 2] + 0.3 * rng.normal(size=1200), [0.5, 1.5]).astype(float)
    return x, labels, np.full(100, 12)


def whole(seed: int) -> Data:
    """One list of all rows, a third of them relevant."""
    x, labels, _ = lists(seed)
    return x, (labels > 0).astype(float), np.array([1200])


def dates(seed: int) -> Data:
    """Returns per date, of both signs."""
    x, _, groups = lists(seed)
    rng = np.random.default_rng(seed + 50)
    return x, x[:, 0] + x[:, 1] ** 2 - 1.5 + rng.standard_t(3, size=1200), groups


def whole_dates(seed: int) -> Data:
    """The same as one list."""
    x, labels, _ = dates(seed)
    return x, labels, np.array([1200])


DATA = {
    "dcgrr@5": lists, "fbeta": whole, "accuracy": whole, "auc": whole, "ap": whole, "spearman": dates, "kendall": dates,
    "0.5*auc + 0.5*ndcg@5": lists,
}  # fmt: skip


def train(booster: str, name: str, loss: Any, learn: Data, test: Data) -> tuple[np.ndarray, list[float]]:
    """Raw scores of the test rows, and the metric of the test set that the booster reports after each iteration."""
    if booster == "xgboost":
        a, b = (xgb.DMatrix(x, y, group=groups) for x, y, groups in (learn, test))
        found: dict[str, Any] = {}
        model = xgb.train(
            {"eta": 0.2, "max_depth": 3, "base_score": 0.0, "nthread": 1}, a, ROUNDS, obj=adapters.XGBoostObjective(loss),
            custom_metric=adapters.XGBoostMetric(name), evals=[(b, "test")], evals_result=found, verbose_eval=False,
        )  # fmt: skip
        return model.predict(b, output_margin=True), list(found["test"].values())[-1]
    if booster == "lightgbm":
        a = lgb.Dataset(learn[0], learn[1], group=learn[2])
        b = lgb.Dataset(test[0], test[1], group=test[2], reference=a)
        found = {}
        model = lgb.train(
            {"learning_rate": 0.2, "num_leaves": 7, "verbosity": -1, "num_threads": 1,
             "objective": adapters.LightGBMObjective(loss)}, a, ROUNDS, valid_sets=[b],
            feval=adapters.LightGBMMetric(name), callbacks=[lgb.record_evaluation(found)],
        )  # fmt: skip
        return model.predict(test[0], raw_score=True), next(iter(found["valid_0"].values()))
    pools = [catboost.Pool(x, y, group_id=np.repeat(np.arange(len(groups)), groups)) for x, y, groups in (learn, test)]
    objective = adapters.CatBoostObjective(loss, *pools, metric=name)
    settings = {"loss_function": objective, "eval_metric": objective, "iterations": ROUNDS, "learning_rate": 0.2, "depth": 3}
    fixed = {"leaf_estimation_method": "Gradient", "leaf_estimation_iterations": 1, "boosting_type": "Plain"}
    model = catboost.CatBoost({**settings, **fixed, "verbose": False, "thread_count": 1, "allow_writing_files": False})
    model.fit(pools[0], eval_set=pools[1], use_best_model=False)
    reported = next(iter(model.get_evals_result()["validation"].values()))
    return model.predict(pools[1], prediction_type="RawFormulaVal"), list(reported)


def better(name: str, scores: np.ndarray, test: Data) -> None:
    """Clearly better than any constant, or any random order."""
    value = sr.evaluate(name, scores, test[1], test[2])
    rng = np.random.default_rng(0)
    guesses = [np.full(1200, -1.0), np.full(1200, 1.0), *(rng.normal(size=1200) for _ in range(20))]
    trivial = max(sr.evaluate(name, guess, test[1], test[2]) for guess in guesses)
    assert value > trivial + 0.05 * abs(trivial) + 0.02


@pytest.mark.parametrize("booster", BOOSTERS)
@pytest.mark.parametrize("name", DATA)
def test_trains_by_name_and_reports_what_evaluate_says(booster: str, name: str) -> None:
    learn, test = DATA[name](0), DATA[name](1)
    scores, reported = train(booster, name, name, learn, test)
    assert len(reported) == ROUNDS
    assert reported[-1] == pytest.approx(sr.evaluate(name, scores, test[1], test[2]), rel=1e-5)
    better(name, scores, test)


@pytest.mark.parametrize("booster", BOOSTERS)
@pytest.mark.parametrize(
    ("name", "make"), [("spearman", dates), ("kendall", dates), ("auc", whole), ("kendall", whole_dates)]
)
def test_trains_on_the_metric_itself(booster: str, name: str, make: Any) -> None:
    learn, test = make(0), make(1)
    scores, _ = train(booster, name, sr.StochasticRank(name, sfa=False, hessian_constant=0.0), learn, test)
    better(name, scores, test)


@pytest.mark.parametrize("name", ["dcgrr", "accuracy"])
def test_estimators_show_by_the_sign(name: str) -> None:
    learn, test = lists(0), lists(1)
    model = adapters.XGBoostRanker(name, n_estimators=ROUNDS, max_depth=3, learning_rate=0.2, n_jobs=1)
    scores = model.fit(learn[0], learn[1], group=learn[2]).predict(test[0])
    assert model.score(test[0], test[1], group=test[2]) == pytest.approx(
        sr.evaluate(name, scores, test[1], test[2]), rel=1e-6
    )
    better(name, scores, test)


def test_estimators_take_negative_labels_where_the_metric_does() -> None:
    x, labels, groups = dates(0)
    model = adapters.LightGBMRanker("spearman", n_estimators=5, n_jobs=1, verbosity=-1).fit(x, labels, group=groups)
    assert model.score(x, labels, group=groups) > 0.2
    with pytest.raises(ValueError, match="is negative"):
        adapters.LightGBMRanker("ndcg@10", n_estimators=5, n_jobs=1, verbosity=-1).fit(x, labels, group=groups)


@pytest.mark.parametrize("booster", BOOSTERS)
@pytest.mark.parametrize(
    ("name", "train_on", "expected"),
    [
        ("dcgrr@3", None, "StochasticRank('dcgrr@3', sfa=False, hessian_constant=0.0)"),
        ("spearman", None, "QueryRMSE(ranks=True)"),
        ("kendall", None, "QueryRMSE(ranks=True)"),
        ("spearman", "kendall", "StochasticRank('kendall', sfa=False, hessian_constant=0.0)"),
        ("kendall", "spearman", "YetiLoss('spearman', neighbours="),
        ("auc", None, "YetiLoss('auc', neighbours="),
        ("auc + ndcg@5", None, "YetiLoss('auc + ndcg@5', neighbours="),
        ("ap@80", None, "YetiLoss('binarydcg@160:grades=0.25', neighbours="),
    ],
)
def test_what_is_recommended(booster: str, name: str, train_on: Any, expected: str) -> None:
    assert str(sr.recommended(name, booster=booster, train_on=train_on)).startswith(expected)
