"""LightGBM: the objective and the metric in every way of training, against the core called by hand."""

from __future__ import annotations

import copy
import gc
import inspect
import itertools
import pathlib
import pickle
import subprocess
import sys
import weakref
from typing import Any, ClassVar

import lightgbm as lgb
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GroupKFold

import stochasticrank_objectives as sr
from stochasticrank_objectives.adapters._common import calling
from stochasticrank_objectives.adapters.lightgbm import LightGBMMetric, LightGBMObjective
from stochasticrank_objectives.datasets import RankingData, make_ranking

TRAIN = make_ranking(60, documents=(4, 20), features=8, seed=0)
VALID = make_ranking(40, documents=(4, 20), features=8, seed=1)
PARAMS: dict[str, Any] = {
    "verbosity": -1,
    "num_threads": 1,
    "deterministic": True,
    "force_row_wise": True,
    "seed": 1,
    "num_leaves": 6,
    "min_data_in_leaf": 5,
}
LOSSES = [sr.StochasticRank("ndcg@5"), sr.SGLB(sr.StochasticRank("ndcg@5"), model_shrink_rate=0.5)]
IDS = ["plain", "sglb"]


def dataset(data: RankingData = TRAIN, **keywords: Any) -> lgb.Dataset:
    return lgb.Dataset(data.features, data.labels, group=data.groups, free_raw_data=False, **keywords)


def train(objective: Any, rounds: int = 6, data: lgb.Dataset | None = None, **keywords: Any) -> lgb.Booster:
    params = {**PARAMS, "objective": objective, **keywords.pop("params", {})}
    return lgb.train(params, dataset() if data is None else data, rounds, **keywords)


def trees(booster: lgb.Booster) -> str:
    """The text of the trees, without the parameters behind them."""
    text: str = booster.model_to_string(num_iteration=-1)
    return text[text.index("Tree=0") : text.index("end of trees")]


def by_hand(loss: Any, rounds: int = 6, *, data: RankingData = TRAIN, params: dict[str, Any] | None = None) -> lgb.Booster:
    """Boosting with the core's gradient of iterations 0, 1, ... and nothing of the adapter."""
    bound = loss.bind(data.labels, data.groups)
    booster = lgb.Booster({**PARAMS, **(params or {})}, dataset(data))
    for iteration in range(rounds):
        booster.update(fobj=lambda scores, _, at=iteration: (bound.gradient(scores, at), np.ones(len(scores))))
    return booster


def fit(ranker: lgb.LGBMRanker, **keywords: Any) -> lgb.LGBMRanker:
    """Fit with a validation set, which older versions take as `eval_set`."""
    new = "eval_X" in inspect.signature(lgb.LGBMRanker.fit).parameters
    valid = {"eval_X": (VALID.features,), "eval_y": (VALID.labels,)}
    if not new:
        valid = {"eval_set": [(VALID.features, VALID.labels)]}  # type: ignore[dict-item]
    fitted: lgb.LGBMRanker = ranker.fit(
        TRAIN.features, TRAIN.labels, group=TRAIN.groups, eval_group=[VALID.groups], **valid, **keywords
    )
    return fitted


class Recording:
    """A loss that remembers for which iterations its gradient was asked, across LightGBM's copies of it."""

    asked: ClassVar[list[int]] = []

    def bind(self, *arguments: Any, **keywords: Any) -> Any:
        return RecordingBound(LOSSES[0].bind(*arguments, **keywords))


class RecordingBound:
    def __init__(self, bound: Any) -> None:
        self.bound = bound

    def derivatives(self, scores: Any, iteration: int) -> Any:
        Recording.asked.append(iteration)
        return self.bound.derivatives(scores, iteration)


@pytest.fixture
def recorder() -> LightGBMObjective:
    Recording.asked.clear()
    return LightGBMObjective(Recording())  # type: ignore[arg-type]


# Every way of training


@pytest.mark.parametrize("loss", LOSSES, ids=IDS)
def test_every_way_of_training_grows_the_trees_of_the_core(loss: Any) -> None:
    objective = LightGBMObjective(loss)
    truth = trees(by_hand(loss))
    assert trees(train(objective)) == truth
    booster = lgb.Booster(PARAMS, dataset())
    for _ in range(6):
        booster.update(fobj=objective)
    assert trees(booster) == truth
    ranker = lgb.LGBMRanker(objective=objective, n_estimators=6, **PARAMS)
    ranker.fit(TRAIN.features, TRAIN.labels, group=TRAIN.groups)
    assert trees(ranker.booster_) == truth


@pytest.mark.parametrize("loss", LOSSES, ids=IDS)
def test_cv_trains_each_fold_as_alone(loss: Any) -> None:
    data, objective = dataset(), LightGBMObjective(loss)
    folds = list(GroupKFold(3).split(TRAIN.features, groups=TRAIN.qid))
    result = lgb.cv(
        {**PARAMS, "objective": objective}, data, 5, folds=folds, feval=LightGBMMetric("ndcg@5"), return_cvbooster=True
    )
    final = []
    for (rows, others), booster in zip(folds, result["cvbooster"].boosters, strict=True):
        alone = train(objective, 5, data.subset(sorted(rows)))
        assert trees(booster) == trees(alone)
        scores = alone.predict(TRAIN.features[others])
        final.append(sr.evaluate("ndcg@5", scores, TRAIN.labels[others], qid=TRAIN.qid[others]))
    assert result["valid ndcg@5-mean"][-1] == pytest.approx(np.mean(final))


def test_cv_takes_a_splitter_of_queries() -> None:
    result = lgb.cv(
        {**PARAMS, "objective": LightGBMObjective("ndcg@5")},
        dataset(),
        3,
        folds=GroupKFold(3),
        feval=LightGBMMetric("ndcg@5"),
    )
    assert len(result["valid ndcg@5-mean"]) == 3


@pytest.mark.parametrize("stratified", [True, False])
def test_cv_by_rows_would_cut_queries_and_is_refused(stratified: bool) -> None:
    with pytest.raises(
        ValueError, match=r"only \d+ of the \d+ rows of query \d+ .* folds=sklearn.model_selection.GroupKFold"
    ):
        lgb.cv({**PARAMS, "objective": LightGBMObjective("ndcg@5")}, dataset(), 3, nfold=3, stratified=stratified)


def test_it_learns_to_rank_unseen_queries() -> None:
    booster = train(LightGBMObjective("ndcg@5"), 60)
    learnt = sr.evaluate("ndcg@5", booster.predict(VALID.features), VALID.labels, VALID.groups)
    constant = sr.evaluate("ndcg@5", np.zeros(len(VALID.labels)), VALID.labels, VALID.groups, ties="mean")
    assert learnt > constant + 0.15


def test_gradient_and_hessian_are_what_lightgbm_takes_without_a_copy() -> None:
    booster, objective, seen = lgb.Booster(PARAMS, dataset()), LightGBMObjective(LOSSES[0]), []
    for _ in range(2):
        booster.update(fobj=lambda scores, data: seen.append(objective(scores, data)) or seen[-1])
    for gradient, hessian in seen:
        assert gradient.dtype == hessian.dtype == np.float32
        assert gradient.flags.c_contiguous
    assert seen[0][1] is seen[1][1]
    assert (hessian == 1).all()


# Which iteration


def test_canary_the_booster_is_among_the_callers_and_tells_what_the_adapter_relies_on() -> None:
    """If this fails, a version of LightGBM calls in another way: `calling` or what is read from its Booster must change."""
    seen: list[tuple[Any, ...]] = []

    def watch(*arguments: Any) -> tuple[Any, Any]:
        booster = calling(lgb.Booster)
        assert booster is not None, "no Booster is among the callers of an objective"
        seen.append((booster.current_iteration(), booster.params["num_threads"], type(booster.train_set)))
        return np.linspace(-1, 1, len(TRAIN.labels)), np.ones(len(TRAIN.labels))

    def watch_as_metric(*arguments: Any) -> tuple[str, float, bool]:
        names = getattr(calling(lgb.Booster), "_Booster__name_inner_eval", None)
        assert names is not None, "no Booster that knows its own metrics is among the callers of a metric"
        assert all(name.startswith("ndcg@") for name in names)
        seen.append(tuple(names))
        return "ours", 0.0, True

    def ranker_objective(y_true: Any, y_pred: Any, weight: Any, group: Any) -> tuple[Any, Any]:
        rows = len(TRAIN.labels)
        assert (len(y_true), len(y_pred), weight, sum(group)) == (rows, rows, None, rows)
        return watch()

    data, params = dataset(), {**PARAMS, "num_threads": 1}
    booster = lgb.Booster(params, data)
    booster.update(fobj=watch)
    booster.update(fobj=watch)
    lgb.train({**params, "objective": watch}, data, 2)
    lgb.LGBMRanker(objective=ranker_objective, n_estimators=2, **params).fit(
        TRAIN.features, TRAIN.labels, group=TRAIN.groups
    )
    assert seen == [(0, 1, lgb.Dataset), (1, 1, lgb.Dataset)] * 3
    assert data.get_label() is data.get_label()
    assert data.get_group() is data.get_group()
    seen.clear()
    keywords: dict[str, Any] = {"feval": watch_as_metric}
    lgb.train({**params, "objective": "lambdarank", "eval_at": [3]}, data, 2, valid_sets=[dataset(VALID)], **keywords)
    assert seen == [("ndcg@3",)] * 2


def test_repeated_training_starts_again(recorder: LightGBMObjective) -> None:
    data = dataset()
    first, second = train(recorder, 4, data), train(recorder, 4, data)
    assert Recording.asked == [0, 1, 2, 3] * 2
    assert trees(first) == trees(second)
    for _ in range(2):
        booster = lgb.Booster(PARAMS, data)
        for _ in range(4):
            booster.update(fobj=recorder)
        assert trees(booster) == trees(first)
    assert Recording.asked == [0, 1, 2, 3] * 4


def test_boosters_in_turn_do_not_disturb_each_other(recorder: LightGBMObjective) -> None:
    data = dataset()
    one, other = lgb.Booster(PARAMS, data), lgb.Booster(PARAMS, data)
    for booster in (one, one, other, one, other):
        booster.update(fobj=recorder)
    assert Recording.asked == [0, 1, 0, 2, 1]


@pytest.mark.parametrize("loss", LOSSES, ids=IDS)
@pytest.mark.parametrize("kind", ["booster", "file", "same data", "ranker"])
def test_continued_training_goes_on_where_it_stopped(loss: Any, kind: str, tmp_path: pathlib.Path) -> None:
    whole = train(LightGBMObjective(loss), 9)
    objective, data = LightGBMObjective(loss), dataset()
    old: Any = train(objective, 4, data)
    if kind == "ranker":
        ranker = lgb.LGBMRanker(objective=objective, n_estimators=5, **PARAMS)
        new = ranker.fit(TRAIN.features, TRAIN.labels, group=TRAIN.groups, init_model=old).booster_
    else:
        if kind == "file":
            old.save_model(tmp_path / "old.txt")
            old = tmp_path / "old.txt"
        new = train(objective, 5, data if kind == "same data" else dataset(), init_model=old)
    assert new.current_iteration() == 9
    # The scores that a model starts from are sums in another order: equal to rounding.
    np.testing.assert_allclose(new.predict(TRAIN.features), whole.predict(TRAIN.features), rtol=1e-5, atol=1e-6)


def test_continued_training_without_its_model_again_starts_anew(recorder: LightGBMObjective) -> None:
    data = dataset()
    old = train(recorder, 2, data)
    train(recorder, 2, data, init_model=old)
    train(recorder, 2, data)
    assert Recording.asked == [0, 1, 2, 3, 0, 1]


def test_the_booster_tells_the_iteration_to_another_object(recorder: LightGBMObjective) -> None:
    booster = train(LightGBMObjective(LOSSES[0]), 3, keep_training_booster=True)
    booster.update(fobj=recorder)
    booster.update(fobj=pickle.loads(pickle.dumps(LightGBMObjective(LOSSES[0]))))
    booster.update(fobj=recorder)
    assert Recording.asked == [3, 5]
    assert trees(booster) == trees(train(LightGBMObjective(LOSSES[0]), 6))


def test_new_labels_are_seen_during_a_training_and_by_the_next(recorder: LightGBMObjective) -> None:
    data = dataset()
    booster = lgb.Booster(PARAMS, data)
    booster.update(fobj=recorder)
    reversed_grades = TRAIN.labels.max() - TRAIN.labels
    data.set_label(reversed_grades)
    booster.update(fobj=recorder)
    assert Recording.asked == [0, 1]
    changed = RankingData(TRAIN.features, reversed_grades, TRAIN.groups)
    objective = LightGBMObjective(LOSSES[0])
    train(objective, 3, data)
    data.set_label(TRAIN.labels)
    assert trees(train(objective, 3, data)) == trees(by_hand(LOSSES[0], 3))
    assert trees(train(objective, 3, dataset(changed))) == trees(by_hand(LOSSES[0], 3, data=changed))


def test_an_iteration_without_a_tree_is_followed_by_new_noise(recorder: LightGBMObjective) -> None:
    booster = lgb.Booster({**PARAMS, "min_gain_to_split": 1e9}, dataset())
    for _ in range(4):
        booster.update(fobj=recorder)
    assert booster.current_iteration() == 1  # LightGBM keeps the first tree, a constant, and no other
    booster.reset_parameter({"min_gain_to_split": 0})
    for _ in range(2):
        booster.update(fobj=recorder)
    assert booster.current_iteration() == 3
    assert Recording.asked == [0, 1, 2, 3, 4, 5]


def test_called_by_hand_it_says_what_to_call_instead() -> None:
    with pytest.raises(ValueError, match=r"loss\.bind\(labels, groups\)\.gradient"):
        LightGBMObjective("ndcg@5")(np.zeros(len(TRAIN.labels)), dataset().construct())


def test_nothing_is_kept_of_data_that_are_gone() -> None:
    kinds = (type(LOSSES[0].bind([1, 0], [2])), sr.Evaluation)

    def bound() -> int:
        gc.collect()
        return sum(isinstance(one, kinds) for one in gc.get_objects())

    objective, metric, data, before = LightGBMObjective(LOSSES[0]), LightGBMMetric("ndcg@5"), dataset(), bound()
    booster = lgb.Booster(PARAMS, data)
    booster.update(fobj=objective)
    booster.eval_train(metric)
    alive = weakref.ref(data.get_label()), weakref.ref(booster)
    assert bound() == before + 2
    del booster, data
    assert bound() == before
    assert [reference() for reference in alive] == [None, None]


# Data and settings


def test_row_weights_multiply_gradient_and_hessian() -> None:
    rng = np.random.default_rng(0)
    weights = rng.integers(1, 4, len(TRAIN.labels)).astype(float)
    loss, seen = LOSSES[0], []
    objective = LightGBMObjective(loss)
    booster = lgb.Booster(PARAMS, dataset(weight=weights))
    booster.update(fobj=lambda scores, data: seen.append(objective(scores, data)) or seen[-1])
    plain = loss.bind(TRAIN.labels, TRAIN.groups).gradient(np.zeros(len(weights)), 0)
    np.testing.assert_allclose(seen[0][0], weights * plain, rtol=1e-6)
    np.testing.assert_array_equal(seen[0][1], weights)
    ranker = lgb.LGBMRanker(objective=objective, n_estimators=1, **PARAMS)
    ranker.fit(TRAIN.features, TRAIN.labels, group=TRAIN.groups, sample_weight=weights)
    assert trees(ranker.booster_) == trees(booster)


@pytest.mark.parametrize("name", ["lambdarank", "rank_xendcg"])
def test_lightgbms_own_ranking_objectives_weigh_the_same_way(name: str) -> None:
    """One weight for all rows changes no leaf: gradient and hessian are both multiplied, here as there."""
    weight = np.full(len(TRAIN.labels), 4.0)
    for objective in (name, LightGBMObjective("ndcg@5")):
        params = {"min_sum_hessian_in_leaf": 0}
        plain, weighted = train(objective, 3, params=params), train(objective, 3, dataset(weight=weight), params=params)
        np.testing.assert_allclose(weighted.predict(TRAIN.features), plain.predict(TRAIN.features), rtol=1e-4)


def test_rows_of_weight_zero_do_not_count() -> None:
    """As if their queries were not there; the others keep their places, which select the noise."""
    half = int(TRAIN.groups[:30].sum())
    weights = np.repeat([1.0, 0.0], [half, len(TRAIN.labels) - half])
    params = {"min_data_in_leaf": 1, "max_bin": 2000, "min_data_in_bin": 1}
    weighted = train(LightGBMObjective("ndcg@5"), 1, dataset(weight=weights), params=params)
    scores = weighted.predict(TRAIN.features)
    other_labels = TRAIN.labels.copy()
    other_labels[half:] = 4 - other_labels[half:]
    other = dataset(RankingData(TRAIN.features, other_labels, TRAIN.groups), weight=weights)
    np.testing.assert_array_equal(
        train(LightGBMObjective("ndcg@5"), 1, other, params=params).predict(TRAIN.features), scores
    )


def test_init_score_is_where_the_gradient_is_taken() -> None:
    start = np.random.default_rng(0).normal(size=len(TRAIN.labels))
    loss = LOSSES[0]
    booster, seen, objective = lgb.Booster(PARAMS, dataset(init_score=start)), [], LightGBMObjective(loss)
    booster.update(fobj=lambda scores, data: seen.append(objective(scores, data)) or seen[-1])
    truth = loss.bind(TRAIN.labels, TRAIN.groups).gradient(start, 0)
    np.testing.assert_array_equal(seen[0][0], truth.astype(np.float32))


@pytest.mark.parametrize(
    "params",
    [
        {"bagging_fraction": 0.5, "bagging_freq": 1},
        {"boosting": "goss", "learning_rate": 0.5},  # sets in after 1/learning_rate iterations
        {"data_sample_strategy": "goss", "top_rate": 0.3, "other_rate": 0.2, "learning_rate": 0.5},
        {"feature_fraction": 0.5},
        {"linear_tree": True},
    ],
    ids=lambda params: next(iter(params)),
)
def test_sampling_gets_the_whole_gradient_and_leaves_the_hessian_alone(params: dict[str, Any]) -> None:
    data, seen = dataset(params={"linear_tree": True} if "linear_tree" in params else None), []
    objective = LightGBMObjective(LOSSES[0])
    booster = lgb.Booster({**PARAMS, **params}, data)
    bound = objective.loss.bind(TRAIN.labels, TRAIN.groups)
    for iteration in range(6):
        booster.update(fobj=lambda scores, d: seen.append((scores.copy(), *objective(scores, d))) or seen[-1][1:])
        scores, gradient, hessian = seen[-1]
        np.testing.assert_array_equal(gradient, bound.gradient(scores, iteration).astype(np.float32))
        assert (hessian == 1).all()
    assert trees(booster) == trees(train(objective, params=params, data=dataset()))
    without = {name: value for name, value in params.items() if name == "learning_rate"}
    assert trees(booster) != trees(train(objective, params=without))


def test_dart_works_but_not_with_sglb() -> None:
    params = {"boosting": "dart", "drop_rate": 0.5}
    booster = train(LightGBMObjective(LOSSES[0]), 20, params=params)
    assert booster.current_iteration() == 20
    assert sr.evaluate("ndcg@5", booster.predict(TRAIN.features), TRAIN.labels, TRAIN.groups) > 0.7
    for name in ("boosting", "boosting_type", "boost"):
        with pytest.raises(ValueError, match='use boosting="gbdt" with SGLB'):
            train(LightGBMObjective(LOSSES[1]), params={name: "dart"})


@pytest.mark.parametrize("name", ["learning_rate", "eta", "shrinkage_rate"])
def test_sglb_refuses_another_learning_rate_than_lightgbms(name: str) -> None:
    train(LightGBMObjective(LOSSES[1]), 1, params={name: 0.1})
    with pytest.raises(ValueError, match=r"learning_rate=0.1 of SGLB is not LightGBM's, 0.2"):
        train(LightGBMObjective(LOSSES[1]), 1, params={name: 0.2})


def test_sglb_refuses_a_learning_rate_that_changes() -> None:
    with pytest.raises(ValueError, match=r"learning_rate=0.1 of SGLB is not LightGBM's, 0.05.* keep it during the training"):
        train(LightGBMObjective(LOSSES[1]), 3, callbacks=[lgb.reset_parameter(learning_rate=[0.1, 0.05, 0.05])])


def test_data_without_groups_are_refused() -> None:
    with pytest.raises(ValueError, match=r"no group: give the size of each query, as in lightgbm.Dataset\(X, y, group="):
        train(LightGBMObjective("ndcg@5"), 1, lgb.Dataset(TRAIN.features, TRAIN.labels))
    valid = lgb.Dataset(VALID.features, VALID.labels)
    with pytest.raises(ValueError, match="no group"):
        train("regression", 1, valid_sets=[valid], feval=LightGBMMetric("ndcg@5"))
    with pytest.raises(ValueError, match="no group"):
        lgb.LGBMRegressor(objective=LightGBMObjective("ndcg@5"), **PARAMS).fit(TRAIN.features, TRAIN.labels)


def test_bagging_by_query_is_refused() -> None:
    """Under any custom objective LightGBM 4.7 then stops at one tree, which is a constant."""
    params = {"bagging_by_query": True, "bagging_fraction": 0.5, "bagging_freq": 1}
    with pytest.raises(ValueError, match="leave it out: bagging_fraction and bagging_freq then sample rows"):
        train(LightGBMObjective("ndcg@5"), 2, params=params)
    train(LightGBMObjective("ndcg@5"), 2, params={**params, "bagging_by_query": False})


if hasattr(lgb.Dataset, "get_position"):  # LightGBM 4.0 has none

    def test_positions_are_refused() -> None:
        position = np.arange(len(TRAIN.labels)) % 4
        with pytest.raises(ValueError, match=r"position= of the Dataset .* would be ignored; leave it out"):
            train(LightGBMObjective("ndcg@5"), 2, dataset(position=position))
        train("lambdarank", 2, dataset(position=position), valid_sets=[dataset(VALID)], feval=LightGBMMetric("mrr"))


def test_bad_labels_are_refused_when_training_starts() -> None:
    with pytest.raises(ValueError, match=r"labels\[0\] = -1 is negative"):
        train(
            LightGBMObjective("ndcg@5"),
            1,
            dataset(RankingData(TRAIN.features, TRAIN.labels - 1 - TRAIN.labels[0], TRAIN.groups)),
        )


# The metric


@pytest.mark.parametrize("ties", ["worst", "mean", "best"])
@pytest.mark.parametrize("empty", [0.0, 1.0, "skip"])
def test_the_metric_is_the_cores_everywhere(ties: Any, empty: Any) -> None:
    metric, results = LightGBMMetric("ndcg@5", ties=ties, empty=empty), {}
    valid = dataset(VALID)
    booster = train(
        LightGBMObjective("ndcg@5"), 4, valid_sets=[valid], feval=metric, callbacks=[lgb.record_evaluation(results)]
    )
    truth = [
        sr.evaluate(
            "ndcg@5", booster.predict(VALID.features, num_iteration=n), VALID.labels, VALID.groups, ties=ties, empty=empty
        )
        for n in (1, 2, 3, 4)
    ]
    np.testing.assert_allclose(results["valid_0"]["ndcg@5"], truth, rtol=1e-12)
    ranker = lgb.LGBMRanker(objective=LightGBMObjective("ndcg@5"), n_estimators=4, metric="None", **PARAMS)
    fit(ranker, eval_metric=metric)
    np.testing.assert_allclose(ranker.evals_result_["valid_0"]["ndcg@5"], truth, rtol=1e-12)


@pytest.mark.parametrize("weighted", [False, True])
def test_the_metric_agrees_with_lightgbms_own_where_nothing_ties(weighted: bool) -> None:
    """LightGBM's counts a query without relevant documents as 1, and weighs a query by the mean of its rows' weights."""
    rng, labels = np.random.default_rng(0), VALID.labels.copy()
    first = np.cumsum(VALID.groups) - VALID.groups
    if weighted:  # LightGBM's adds 1 for a query without relevant documents whatever its weight: let there be none
        labels[first] = 2
    else:
        labels[: first[3]] = 0
    weight = rng.uniform(0.5, 2, len(labels)) if weighted else None
    start = 1e-3 * rng.normal(size=len(labels))  # breaks ties
    valid = dataset(RankingData(VALID.features, labels, VALID.groups), weight=weight, init_score=start)
    results: dict[str, Any] = {}
    train(
        LightGBMObjective("ndcg@5"), 5, params={"metric": "ndcg", "eval_at": [5]}, valid_sets=[valid],
        feval=LightGBMMetric("ndcg@5", empty=1.0, name="ours"), callbacks=[lgb.record_evaluation(results)],
    )  # fmt: skip
    np.testing.assert_allclose(results["valid_0"]["ours"], results["valid_0"]["ndcg@5"], rtol=1e-6)


def test_the_metric_binds_each_data_set_once(monkeypatch: pytest.MonkeyPatch) -> None:
    metric, calls, original = LightGBMMetric("ndcg@5", name="ours"), [], sr.Evaluation.__init__
    monkeypatch.setattr(sr.Evaluation, "__init__", lambda *a, **k: calls.append(1) or original(*a, **k))
    data, valid = dataset(), dataset(VALID)
    train("lambdarank", 5, data, valid_sets=[data, valid], feval=metric)
    assert len(calls) == 2
    fit(lgb.LGBMRanker(n_estimators=5, **PARAMS), eval_metric=metric)
    assert len(calls) == 3
    valid.set_group(VALID.groups[::-1])
    lgb.Booster(PARAMS, data).add_valid(valid, "valid").eval_valid(metric)
    assert len(calls) == 4


def test_a_metric_with_the_name_of_lightgbms_is_refused() -> None:
    refusal = pytest.raises(ValueError, match="its records would mix both; name this one, for example LightGBMMetric")
    params = {"metric": "ndcg", "eval_at": [5]}
    with refusal:
        train(LightGBMObjective("ndcg@5"), 2, params=params, valid_sets=[dataset(VALID)], feval=LightGBMMetric("ndcg@5"))
    with refusal:
        train("lambdarank", 2, valid_sets=[dataset(VALID)], feval=LightGBMMetric("ndcg@5"))
    with refusal:  # which evaluates ndcg@1 to ndcg@5 by itself
        fit(lgb.LGBMRanker(objective=LightGBMObjective("ndcg@5"), **PARAMS), eval_metric=LightGBMMetric("ndcg@5"))
    with refusal:
        lgb.cv({**PARAMS, **params, "objective": LightGBMObjective("ndcg@5")}, dataset(), 2, folds=GroupKFold(3),
               feval=LightGBMMetric("ndcg@5"))  # fmt: skip
    results: dict[str, Any] = {}
    for metric in (LightGBMMetric("ndcg@5", name="ours"), LightGBMMetric("ndcg@10")):
        train("lambdarank", 3, valid_sets=[dataset(VALID)], feval=metric, callbacks=[lgb.record_evaluation(results)])
        assert {len(values) for values in results["valid_0"].values()} == {3}


def test_early_stopping_on_the_metric() -> None:
    stop, metric, objective = lgb.early_stopping(5, verbose=False), LightGBMMetric("ndcg@5"), LightGBMObjective("ndcg@5")
    results: dict[str, Any] = {}
    data = [dataset(VALID)]
    booster = train(
        objective, 300, valid_sets=data, feval=metric, callbacks=[stop, lgb.record_evaluation(results)],
        params={"learning_rate": 0.3},
    )  # fmt: skip
    curve = results["valid_0"]["ndcg@5"]
    assert len(curve) < 300
    assert booster.best_iteration == 1 + np.argmax(curve) == len(curve) - 5
    assert booster.best_score["valid_0"]["ndcg@5"] == max(curve)

    ranker = lgb.LGBMRanker(objective=objective, n_estimators=300, metric="None", **PARAMS, learning_rate=0.3)
    fit(ranker, eval_metric=metric, callbacks=[lgb.early_stopping(5, verbose=False)])
    assert ranker.best_iteration_ == booster.best_iteration
    assert ranker.evals_result_["valid_0"]["ndcg@5"] == curve

    result = lgb.cv(
        {**PARAMS, "objective": objective, "learning_rate": 0.3}, dataset(), 300, folds=GroupKFold(3), feval=metric,
        callbacks=[lgb.early_stopping(5, verbose=False)], return_cvbooster=True,
    )  # fmt: skip
    means = result["valid ndcg@5-mean"]
    assert len(means) == 1 + np.argmax(means) == result["cvbooster"].best_iteration < 300
    assert result["cvbooster"].boosters[0].current_iteration() == len(means) + 5


def test_early_stopping_on_lightgbms_own_ndcg() -> None:
    params = {"metric": "ndcg", "eval_at": [5], "learning_rate": 0.3, "early_stopping_round": 5}
    booster = train(LightGBMObjective("ndcg@5"), 300, params=params, valid_sets=[dataset(VALID)])
    assert 0 < booster.best_iteration < 295
    # The model ends at its best iteration, and training goes on from there.
    assert booster.current_iteration() == booster.best_iteration


# SGLB


@pytest.mark.parametrize(("mode", "rate"), [("Constant", 1.0), ("Decreasing", 0.3)])
@pytest.mark.parametrize("temperature", [1e3, np.inf])
def test_the_scale_equals_shrinking_old_trees(mode: Any, rate: float, temperature: float) -> None:
    """F <- c F + eps tree(gradient(F) + noise), tree by tree, each grown by a Booster of its own that starts from c F."""
    eps, rounds, rows = 0.1, 12, len(TRAIN.labels)
    loss = sr.StochasticRank("ndcg@5", mu=0.1)
    sglb = sr.SGLB(loss, eps, temperature, rate, mode, seed=3)
    bound = loss.bind(TRAIN.labels, TRAIN.groups)
    noise = sglb.bind(TRAIN.labels, TRAIN.groups).noise
    scores = np.zeros(rows)
    for t in range(rounds):
        gradient = bound.gradient(scores, t)
        if temperature < np.inf:
            gradient = gradient + noise(t)
        keep = 1 - rate * eps if mode == "Constant" else 1 - rate / max(t, 1) * (t > 0)
        shrunken = keep * scores
        one = lgb.Booster({**PARAMS, "learning_rate": eps}, dataset(init_score=shrunken))
        one.update(fobj=lambda _, __, g=gradient: (g, np.ones(rows)))
        scores = shrunken + one.predict(TRAIN.features)
    booster = train(LightGBMObjective(sglb), rounds, params={"learning_rate": eps})
    raw = booster.predict(TRAIN.features)
    assert sglb.shrinkage(rounds) < 0.8
    np.testing.assert_allclose(sglb.true_scores(raw, booster.current_iteration()), scores, rtol=1e-4, atol=1e-6)


# Two queries that share documents: one order of the three kinds has NDCG@3 0.917, the next best is a local optimum.
EXAMPLE = RankingData(
    np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 1], [1, 0, 0]], float), np.array([3, 2, 1, 3, 2.0]), np.array([3, 2])
)
BEST, LOCAL = np.array([2.0, 1.0, 0.0]), np.array([2.0, 0.0, 1.0])


def reached(objective: Any, *, start: Any = None, seed: int = 0) -> float:
    """NDCG@3 on the example after 1000 iterations."""
    params = {
        "max_depth": 3, "num_leaves": 8, "min_data_in_leaf": 1, "min_sum_hessian_in_leaf": 0, "min_data_in_bin": 1,
        "feature_pre_filter": False, "seed": seed,
    }  # fmt: skip
    start = np.zeros(5) if start is None else EXAMPLE.features @ start
    booster = train(objective, 1000, dataset(EXAMPLE, init_score=start), params=params)
    return sr.evaluate("ndcg@3", start + booster.predict(EXAMPLE.features), EXAMPLE.labels, EXAMPLE.groups)


def papers_loss(seed: int, sigma: float) -> sr.SGLB:
    loss = sr.StochasticRank("ndcg@3", sigma=sigma, mu=0.1, sfa=False, seed=seed)
    return sr.SGLB(loss, learning_rate=0.1, diffusion_temperature=1e3, model_shrink_rate=1e-3, seed=seed)


def test_the_papers_example_has_a_local_optimum() -> None:
    value = {
        order: sr.evaluate("ndcg@3", EXAMPLE.features @ order, EXAMPLE.labels, EXAMPLE.groups)
        for order in itertools.permutations([0.0, 1.0, 2.0])
    }
    assert sorted(value, key=value.__getitem__)[-2:] == [tuple(LOCAL), tuple(BEST)]
    assert value[tuple(LOCAL)] == pytest.approx(0.903, abs=5e-4)
    assert value[tuple(BEST)] == pytest.approx(0.917, abs=5e-4)


@pytest.mark.parametrize("seed", range(4))
def test_sglb_reaches_the_best_order_where_lambdarank_does_not(seed: int) -> None:
    assert reached(LightGBMObjective(papers_loss(seed, sigma=0.3)), seed=seed) >= 0.9165
    assert reached("lambdarank", seed=seed) < 0.9165


@pytest.mark.parametrize("seed", range(3))
def test_sglb_leaves_a_local_optimum_where_the_gradient_alone_stays(seed: int) -> None:
    start, sglb = 0.25 * LOCAL, papers_loss(seed, sigma=0.03)  # many sigmas deep in the local optimum
    assert reached(LightGBMObjective(sglb.loss), start=start) == pytest.approx(0.903, abs=5e-4)
    assert reached(LightGBMObjective(sglb), start=start) >= 0.9165


# Copies, files, seeds


@pytest.mark.parametrize("loss", LOSSES, ids=IDS)
def test_copies_are_equal_and_empty(loss: Any) -> None:
    objective, metric = LightGBMObjective(loss), LightGBMMetric("err@10", ties="mean", name="mine")
    booster = lgb.Booster(PARAMS, dataset())
    booster.update(fobj=objective)
    booster.eval_train(metric)
    for copied in (copy.deepcopy, lambda thing: pickle.loads(pickle.dumps(thing))):
        again, again_metric = copied(objective), copied(metric)
        assert again == objective
        assert again_metric == metric
        assert trees(train(again, 3)) == trees(train(objective, 3))
        assert again_metric(np.zeros(len(TRAIN.labels)), dataset().construct())[0] == "mine"
    assert len(pickle.dumps(objective)) < 1000
    assert len(pickle.dumps(metric)) < 1000


def test_they_print_what_they_are() -> None:
    loss = sr.StochasticRank("ndcg@5", mu=0.3)
    assert repr(LightGBMObjective(loss)) == "LightGBMObjective(StochasticRank('ndcg@5', mu=0.3))"
    assert repr(LightGBMObjective(loss, metric="mrr")).endswith("mu=0.3), metric='mrr')")
    assert repr(LightGBMMetric("mrr")) == "LightGBMMetric('mrr', ties='worst', empty=0.0)"
    assert repr(LightGBMMetric("mrr", name="x")) == "LightGBMMetric('mrr', ties='worst', empty=0.0, name='x')"


def test_mistakes_show_when_the_object_is_made() -> None:
    with pytest.raises(ValueError, match="unknown metric"):
        LightGBMObjective("ndgc@5")
    with pytest.raises(ValueError, match="set these on the loss itself"):
        LightGBMObjective(LOSSES[0], mu=1)
    with pytest.raises(ValueError, match="ties must be"):
        LightGBMMetric("ndcg@5", ties="random")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="empty must be"):
        LightGBMMetric("ndcg@5", empty="drop")  # type: ignore[arg-type]


def test_rankers_clone_and_pickle() -> None:
    objective = LightGBMObjective("ndcg@5", seed=4)
    ranker = fit(
        lgb.LGBMRanker(objective=objective, n_estimators=5, **PARAMS), eval_metric=LightGBMMetric("ndcg@5", name="ours")
    )
    again = pickle.loads(pickle.dumps(ranker))
    np.testing.assert_array_equal(again.predict(VALID.features), ranker.predict(VALID.features))
    assert again.objective == objective
    cloned = clone(ranker).fit(TRAIN.features, TRAIN.labels, group=TRAIN.groups)
    assert trees(cloned.booster_) == trees(ranker.booster_)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_seed_gives_the_same_model_bit_for_bit(threads: int) -> None:
    params = {"num_threads": threads, "bagging_fraction": 0.7, "bagging_freq": 1}
    models = [trees(train(LightGBMObjective("ndcg@5", seed=seed, threads=3 - threads), params=params)) for seed in (7, 7, 8)]
    assert models[0] == models[1] != models[2]


WITHOUT_US = """
import pickle, sys
sys.modules["stochasticrank_objectives"] = None  # any import of it fails
import lightgbm, numpy
for folder in sys.argv[1:]:
    features, truth = numpy.load(folder + "/features.npy"), numpy.load(folder + "/truth.npy")
    loaded = [lightgbm.Booster(model_file=folder + "/model.txt")]
    with open(folder + "/model.txt") as text, open(folder + "/booster.pickle", "rb") as pickled:
        loaded += [lightgbm.Booster(model_str=text.read()), pickle.load(pickled)]
    for booster in loaded:
        assert (booster.predict(features) == truth).all()
"""


def test_models_predict_the_same_without_this_package(tmp_path: pathlib.Path) -> None:
    for name, loss in zip(IDS, LOSSES, strict=True):
        folder = tmp_path / name
        folder.mkdir()
        booster = train(LightGBMObjective(loss), 5, valid_sets=[dataset(VALID)], feval=LightGBMMetric("ndcg@5"))
        booster.save_model(folder / "model.txt")
        assert "[objective: custom]" in (folder / "model.txt").read_text()
        (folder / "booster.pickle").write_bytes(pickle.dumps(booster))
        np.save(folder / "features.npy", VALID.features)
        np.save(folder / "truth.npy", booster.predict(VALID.features))
    folders = [str(tmp_path / name) for name in IDS]
    subprocess.run([sys.executable, "-c", WITHOUT_US, *folders], check=True, timeout=120)
