"""Traps that a trial of the package fell into, each sprung again on a real booster: none gives a wrong result in silence."""

from __future__ import annotations

import inspect
import pathlib
from typing import Any

import lightgbm as lgb
import numpy as np
import pytest
import xgboost as xgb

import stochasticrank_objectives as sr
from stochasticrank_objectives.adapters import (
    CatBoostStochasticRank,
    LightGBMMetric,
    LightGBMObjective,
    XGBoostMetric,
    XGBoostObjective,
    XGBoostRanker,
)
from stochasticrank_objectives.datasets import RankingData, make_ranking
from stochasticrank_objectives.experiments import cli

LEARN, VALID = (make_ranking(40, documents=(5, 15), features=6, seed=seed) for seed in (1, 2))
SGLB = sr.SGLB(sr.StochasticRank("ndcg@5"), learning_rate=0.1, diffusion_temperature=1e9)


@pytest.fixture(autouse=True)
def _modest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_NUM_THREADS", "1")
    monkeypatch.setenv("STOCHASTICRANK_OBJECTIVES_CACHE", "0")


def matrix(data: RankingData, **more: Any) -> Any:
    return xgb.DMatrix(data.features, data.labels, group=data.groups, **more)


def dataset(data: RankingData, **more: Any) -> Any:
    return lgb.Dataset(data.features, data.labels, group=data.groups, params={"verbose": -1}, **more)


def light(**params: Any) -> dict[str, Any]:
    return {"objective": LightGBMObjective("ndcg@5"), "verbose": -1, "num_threads": 1, "metric": "None", **params}


# ------------------------------------------------------------ 1. LightGBM's bagging by query


@pytest.mark.parametrize("true", [True, "true", "+"])
def test_bagging_by_query_is_refused_with_the_remedy(true: Any) -> None:
    params = light(bagging_by_query=true, bagging_fraction=0.5, bagging_freq=1)
    with pytest.raises(ValueError, match=r"bagging_by_query=True.*leave it out"):
        lgb.train(params, dataset(LEARN), 3)


def test_the_remedy_learns() -> None:
    model = lgb.train(light(bagging_fraction=0.5, bagging_freq=1), dataset(LEARN), 20)
    scores = model.predict(VALID.features)
    constant = sr.evaluate("ndcg@5", np.zeros(len(scores)), VALID.labels, VALID.groups)
    assert sr.evaluate("ndcg@5", scores, VALID.labels, VALID.groups) > constant + 0.2


# ------------------------------------------------------------ 2. estimators: parameters of the loss, and seeds


def ranker(name: str, *arguments: Any, **keywords: Any) -> Any:
    from stochasticrank_objectives import adapters

    more = {"CatBoostRanker": {"iterations": 8, "silent": True, "allow_writing_files": False, "thread_count": 1}}
    more |= {
        "LightGBMRanker": {"n_estimators": 8, "verbose": -1, "n_jobs": 1},
        "XGBoostRanker": {"n_estimators": 8, "n_jobs": 1},
    }
    return getattr(adapters, name)(*arguments, **{**more[name], **keywords})


def scores(model: Any) -> Any:
    return model.fit(LEARN.features, LEARN.labels, qid=LEARN.qid).predict(VALID.features)


RANKERS = ["XGBoostRanker", "LightGBMRanker", "CatBoostRanker"]


@pytest.mark.parametrize("name", RANKERS)
def test_a_parameter_of_the_loss_beside_its_name_counts(name: str) -> None:
    assert not np.array_equal(scores(ranker(name, "ndcg@5", mu=5.0)), scores(ranker(name, "ndcg@5")))


@pytest.mark.parametrize("name", RANKERS)
def test_a_grid_of_the_loss_compares_different_models(name: str) -> None:
    found = [scores(ranker(name, sr.StochasticRank("ndcg@5")).set_params(loss__mu=mu)) for mu in (0.0, 5.0)]
    assert not np.array_equal(*found)


@pytest.mark.parametrize("name", RANKERS)
def test_random_state_changes_the_noise(name: str) -> None:
    loss = sr.StochasticRank("ndcg@5")
    found = [scores(ranker(name, loss, random_state=seed)) for seed in (1, 2, 1)]
    assert np.array_equal(found[0], found[2])
    assert not np.array_equal(found[0], found[1])


# ------------------------------------------------------------ 3. where features count from


@pytest.mark.parametrize("model", ["model.json", "model.txt", "model.cbm"])
def test_the_command_line_does_not_shift_columns(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], model: str
) -> None:
    """The relevance is feature 1. Feature 0 never occurs in the file to predict, which looks as if it counted from 1."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    for name, with_zero in (("learn.txt", True), ("held.txt", False)):
        with open(name, "w") as file:
            for query in range(30):
                for _ in range(6):
                    label = rng.integers(0, 3)
                    zero = f"0:{rng.random():.3f} " if with_zero else ""
                    file.write(f"{label} qid:{query} {zero}1:{label + 0.1} 2:{rng.random():.3f} 3:{rng.random():.3f}\n")
    few = ["--rounds", "10", "--depth", "2", *(["--set", "min_data_in_leaf=5"] if model == "model.txt" else [])]
    for valid in ([], ["--valid", "held.txt"]):
        assert cli.main(["train", "learn.txt", model, *few, *valid]) == 0
        assert cli.main(["predict", "held.txt", model, "--output", "scores.txt"]) == 0
        capsys.readouterr()
        assert cli.main(["evaluate", "held.txt", "scores.txt", "--metric", "ndcg@5", "--empty", "skip"]) == 0
        assert float(capsys.readouterr().out.split()[1]) == 1.0


# ------------------------------------------------------------ 4. what was accepted without a word


@pytest.mark.parametrize("make", [sr.StochasticRank, sr.YetiLoss, sr.LambdaMART])
def test_a_seed_beyond_64_bits_is_refused(make: Any) -> None:
    with pytest.raises(ValueError, match="seed"):
        make("ndcg@5", seed=2**70)
    noise = {"noise": 1.0} if make is sr.LambdaMART else {}
    largest, first = (
        make("ndcg@5", seed=seed, **noise).bind(LEARN.labels, LEARN.groups).gradient(np.zeros(len(LEARN.labels)))
        for seed in (2**64 - 1, 0)
    )
    assert not np.array_equal(largest, first)


def test_weights_of_0_are_refused() -> None:
    zero = np.zeros(len(LEARN.groups))
    with pytest.raises(ValueError, match="weights are all zero"):
        sr.evaluate("ndcg@5", np.arange(len(LEARN.labels)), LEARN.labels, LEARN.groups, weights=zero)
    with pytest.raises(ValueError, match="weights are all zero"):
        xgb.train({"nthread": 1}, matrix(LEARN, weight=zero), 2, obj=XGBoostObjective("ndcg@5"))
    with pytest.raises(ValueError, match="weights are all zero"):
        lgb.train(light(), dataset(LEARN, weight=np.zeros(len(LEARN.labels))), 2)


def test_weights_beyond_32_bits_are_refused() -> None:
    """LightGBM makes 1e38 of infinity, beside which no other query counts: the model was constant."""
    huge = np.where(np.arange(len(LEARN.labels)) < LEARN.groups[0], 1e38, 1.0)
    with pytest.raises(ValueError, match="beyond what boosters keep in 32 bits"):
        lgb.train(light(), dataset(LEARN, weight=huge), 2)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"booster": "dart", "rate_drop": 0.1}, "gbtree"),
        ({"booster": "gblinear", "eta": 0.3}, r"learning_rate=0.1 of SGLB is not XGBoost's, 0.3"),
    ],
)
@pytest.mark.filterwarnings("ignore")  # XGBoost 3.4 deprecates dart and gblinear
def test_sglb_on_boosters_it_cannot_serve(params: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        xgb.train({"eta": 0.1, "nthread": 1, **params}, matrix(LEARN), 2, obj=XGBoostObjective(SGLB))


def test_lightgbms_positions_are_refused() -> None:
    positions = np.concatenate([np.arange(size) for size in LEARN.groups])
    if "position" not in inspect.signature(lgb.Dataset).parameters:  # before LightGBM 4.1
        with pytest.raises(TypeError, match="position"):
            dataset(LEARN, position=positions)
        return
    with pytest.raises(ValueError, match=r"position=.*debias\(labels, positions, propensities\)"):
        lgb.train(light(), dataset(LEARN, position=positions), 2)


def test_two_metrics_of_one_name_are_refused() -> None:
    learn = dataset(LEARN)
    valid = lgb.Dataset(VALID.features, VALID.labels, group=VALID.groups, reference=learn)
    params = light(metric="ndcg", eval_at=[10])
    with pytest.raises(ValueError, match=r"LightGBM evaluates its own 'ndcg@10' too.*name="):
        lgb.train(params, learn, 3, valid_sets=[valid], feval=LightGBMMetric("ndcg@10"))
    history: dict[str, Any] = {}
    learn = dataset(LEARN)
    valid = lgb.Dataset(VALID.features, VALID.labels, group=VALID.groups, reference=learn)
    named = LightGBMMetric("ndcg@10", name="ours")
    lgb.train(params, learn, 3, valid_sets=[valid], feval=named, callbacks=[lgb.record_evaluation(history)])
    assert {name: len(values) for name, values in history["valid_0"].items()} == {"ndcg@10": 3, "ours": 3}


def test_estimators_of_xgboost_that_pass_no_queries() -> None:
    with pytest.raises(ValueError, match=r"data must be a DMatrix, got ndarray.*use XGBoostRanker"):
        xgb.XGBModel(objective=XGBoostObjective("ndcg@5"), n_estimators=2, n_jobs=1).fit(LEARN.features, LEARN.labels)


def test_ties_are_checked_at_once() -> None:
    for metric in (XGBoostMetric, LightGBMMetric):
        with pytest.raises(ValueError, match='ties must be "worst", "mean" or "best"'):
            metric("ndcg@5", ties="foo")


def test_early_stopping_maximises_by_itself() -> None:
    """Without maximize=True XGBoost takes the first round for the best of a metric that it does not know."""
    model = xgb.train(
        {"eta": 0.1, "nthread": 1, "max_depth": 3}, matrix(LEARN), 30, evals=[(matrix(VALID), "valid")], verbose_eval=False,
        obj=XGBoostObjective("ndcg@5"), custom_metric=XGBoostMetric("ndcg@5"), early_stopping_rounds=5,
    )  # fmt: skip
    assert model.best_iteration > 0
    assert model.best_score > sr.evaluate("ndcg@5", np.zeros(len(VALID.labels)), VALID.labels, VALID.groups)
    with pytest.raises(ValueError, match="maximize=False"):
        xgb.train(
            {"nthread": 1}, matrix(LEARN), 30, evals=[(matrix(VALID), "valid")], verbose_eval=False, maximize=False,
            obj=XGBoostObjective("ndcg@5"), custom_metric=XGBoostMetric("ndcg@5"), early_stopping_rounds=5,
        )  # fmt: skip


# ------------------------------------------------------------ 5. refreshing leaves


@pytest.mark.filterwarnings("ignore")  # XGBoost warns of any updater that is chosen by hand
def test_leaves_can_be_refreshed() -> None:
    data = matrix(LEARN)
    objective = XGBoostObjective(sr.StochasticRank("ndcg@5"))
    params = {"eta": 0.3, "nthread": 1, "max_depth": 3, "tree_method": "hist"}
    model = xgb.train(params, data, 5, obj=objective)
    before = model.predict(data)
    update = {**params, "process_type": "update", "updater": "refresh", "refresh_leaf": True}
    other = matrix(VALID)
    refreshed = xgb.train(update, other, 5, obj=objective, xgb_model=model)
    assert refreshed.num_boosted_rounds() == 5
    assert not np.array_equal(refreshed.predict(data), before)
    dump, again = model.get_dump(), refreshed.get_dump()
    assert [tree.count("[") for tree in dump] == [tree.count("[") for tree in again]  # the same splits


def test_the_estimators_of_today_learn() -> None:
    """Beside all that is refused: the plain way works on all three."""
    constant = sr.evaluate("ndcg@5", np.zeros(len(VALID.labels)), VALID.labels, VALID.groups)
    ours = XGBoostRanker("ndcg@5", n_estimators=10, n_jobs=1)
    ours.fit(LEARN.features, LEARN.labels, group=LEARN.groups)
    assert ours.score(VALID.features, VALID.labels, group=VALID.groups) > constant
    cat = CatBoostStochasticRank("ndcg@5", iterations=10, silent=True, allow_writing_files=False, thread_count=1)
    cat.fit(LEARN.features, LEARN.labels, group_id=LEARN.qid)
    assert sr.evaluate("ndcg@5", cat.predict(VALID.features), VALID.labels, VALID.groups) > constant
