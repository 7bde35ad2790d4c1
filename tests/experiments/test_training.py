"""One call for three boosters: the curve against `evaluate`, the best trees, stopping, and model files."""

from __future__ import annotations

import pathlib
from typing import Any

import numpy as np
import pytest

import stochasticrank_objectives as sr
from stochasticrank_objectives.baselines import LambdaMART
from stochasticrank_objectives.datasets import make_ranking
from stochasticrank_objectives.experiments.methods import own_objectives
from stochasticrank_objectives.experiments.training import BOOSTERS, Settings, booster_of, load, train

LEARN, VALID = (make_ranking(40, documents=(4, 15), features=8, seed=seed) for seed in (1, 2))
SUFFIX = {"xgboost": "json", "lightgbm": "txt", "catboost": "cbm"}


def fit(booster: str, objective: Any, metric: str = "ndcg@5", **settings: Any) -> Any:
    return train(booster, objective, LEARN, VALID, metric=metric, settings=Settings(threads=1, **{"rounds": 8, **settings}))


def assert_curve_is_the_metric(trained: Any, metric: str) -> None:
    for rounds in range(1, len(trained.curve) + 1):
        expected = sr.evaluate(metric, trained.predict(VALID.features, rounds), VALID.labels, VALID.groups)
        assert trained.curve[rounds - 1] == pytest.approx(expected, abs=1e-6)  # XGBoost rounds to six decimals


@pytest.mark.parametrize("booster", BOOSTERS)
@pytest.mark.parametrize("metric", ["ndcg@3", "ndcg@5", "ndcg@10", "ndcg@5:gain=linear", "mrr", "mrr@3", "err@5", "map"])
def test_curve_of_own_objectives_is_the_metric_asked_for(booster: str, metric: str) -> None:
    """CatBoost reports the metric of its own objective beside ours, in an order that depends on the names."""
    for objective in own_objectives(booster, sr.parse_metric(metric)):
        assert_curve_is_the_metric(fit(booster, objective, metric, rounds=4), metric)


@pytest.mark.parametrize("booster", BOOSTERS)
@pytest.mark.parametrize(
    "loss",
    [
        sr.StochasticRank("ndcg@5"),
        sr.SGLB(sr.StochasticRank("ndcg@5"), learning_rate=0.1, diffusion_temperature=1e9),
        LambdaMART("ndcg@5"),
    ],
    ids=["stochasticrank", "sglb", "lambdamart"],
)
@pytest.mark.parametrize("metric", ["ndcg@5", "mrr"])
def test_curve_of_losses_is_the_metric_asked_for(booster: str, loss: Any, metric: str) -> None:
    assert_curve_is_the_metric(fit(booster, loss, metric), metric)


USUAL_L2 = [
    ("xgboost", "rank:ndcg", 1.0),
    ("lightgbm", "lambdarank", 0.0),
    ("catboost", "QueryRMSE", 3.0),
    ("catboost", "YetiRank", 1e-20),
]


@pytest.mark.parametrize(("booster", "objective", "usual"), USUAL_L2)
def test_leaves_are_regularised_as_the_booster_does_by_default(booster: str, objective: str, usual: float) -> None:
    by_default, told, other = (fit(booster, objective, l2=l2).predict(VALID.features) for l2 in (None, usual, 10.0))
    np.testing.assert_array_equal(by_default, told)
    assert not np.allclose(by_default, other)


@pytest.mark.parametrize("booster", BOOSTERS)
def test_best_rounds_and_patience(booster: str) -> None:
    told: list[float] = []
    trained = train(
        booster, sr.StochasticRank("ndcg@5"), LEARN, VALID, metric="ndcg@5",
        settings=Settings(rounds=60, patience=5, learning_rate=0.5, threads=1), progress=told.append,
    )  # fmt: skip
    assert told == trained.curve
    assert len(trained.curve) < 60
    assert trained.best_rounds == int(np.argmax(trained.curve)) + 1 == len(trained.curve) - 5
    assert np.array_equal(trained.predict(VALID.features), trained.predict(VALID.features, trained.best_rounds))


def test_trees_without_a_split_are_not_counted() -> None:
    """LightGBM keeps no tree that it could not split, so iterations and trees differ."""
    trained = fit(
        "lightgbm", sr.StochasticRank("ndcg@5"), more={"min_data_in_leaf": len(LEARN.labels), "feature_pre_filter": False}
    )
    assert_curve_is_the_metric(trained, "ndcg@5")
    assert trained.predict(VALID.features).tolist() == [0.0] * len(VALID.labels)


@pytest.mark.parametrize(("booster", "suffix"), [*SUFFIX.items(), ("xgboost", "ubj")])
@pytest.mark.parametrize("rounds", [None, 3])
def test_saved_models_predict_the_same(tmp_path: pathlib.Path, booster: str, suffix: str, rounds: int | None) -> None:
    trained = fit(booster, sr.StochasticRank("ndcg@5"))
    trained.save(tmp_path / f"model.{suffix}", rounds)
    loaded = load(tmp_path / f"model.{suffix}")
    assert (loaded.booster, loaded.features) == (booster, 8)
    assert np.array_equal(loaded.predict(VALID.features), trained.predict(VALID.features, rounds))


@pytest.mark.parametrize("booster", BOOSTERS)
def test_boosters_errors_are_value_errors_of_one_line(tmp_path: pathlib.Path, booster: str) -> None:
    with pytest.raises(ValueError, match=f"^{booster}: .*nonsense") as caught:
        fit(booster, "nonsense")
    assert "\n" not in str(caught.value)
    path = tmp_path / f"broken.{SUFFIX[booster]}"
    path.write_text("hello")
    with pytest.raises(ValueError, match=f"is not a model of {booster}: "):
        load(path)


def test_names_are_checked(tmp_path: pathlib.Path) -> None:
    with pytest.raises(ValueError, match="booster must be one of xgboost, lightgbm, catboost, got 'foo'"):
        fit("foo", "lambdarank")
    with pytest.raises(ValueError, match=r"which booster's model it is; use one of \.json \(xgboost\)"):
        booster_of("model.foo")
    with pytest.raises(ValueError, match="there is no such model file"):
        load(tmp_path / "none.txt")
    with pytest.raises(ValueError, match="has the name of a model of xgboost, but this one is of lightgbm"):
        fit("lightgbm", "lambdarank").save(tmp_path / "model.json")
