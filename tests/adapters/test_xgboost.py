"""XGBoost's adapter, against XGBoost itself and against boosting written out by hand."""

from __future__ import annotations

import copy
import itertools
import json
import pickle
import subprocess
import sys

import numpy as np
import pytest
import xgboost as xgb

import stochasticrank_objectives as sr
from stochasticrank_objectives.adapters import XGBoostMetric, XGBoostObjective, XGBoostRanker
from stochasticrank_objectives.adapters._common import calling
from stochasticrank_objectives.datasets import make_ranking

PARAMS = {"max_depth": 3, "learning_rate": 0.1, "nthread": 1, "tree_method": "hist"}
TRAIN, TEST = make_ranking(60, features=8), make_ranking(30, features=8, seed=1)
SGLB = sr.SGLB(sr.StochasticRank("ndcg@5"), learning_rate=0.1, diffusion_temperature=1e4, model_shrink_rate=0.1)


def matrix(data=TRAIN, **keywords):
    return xgb.DMatrix(data.features, data.labels, group=data.groups, **keywords)


def train(loss="ndcg@5", data=None, rounds=6, params=PARAMS, **keywords):
    objective = loss if loss is None or callable(loss) else XGBoostObjective(loss)
    return xgb.train(params, data or matrix(), rounds, obj=objective, verbose_eval=False, **keywords)


def raw(booster):
    return bytes(booster.save_raw("json"))


class Recorder(XGBoostObjective):
    """Remembers what each call used."""

    def __call__(self, scores, data, iteration=None):
        gradient, hessian = super().__call__(scores, data, iteration)
        self.__dict__.setdefault("calls", []).append((data, np.array(scores), np.array(gradient)))
        return gradient, hessian


def iterations(recorder, loss=None):
    """Which iteration each recorded gradient belongs to, by recomputing it."""
    found = []
    for data, scores, gradient in recorder.calls:
        bound = (loss or recorder.loss).bind(data.get_label(), np.diff(data.get_uint_info("group_ptr")))
        matches = [i for i in range(12) if np.allclose(bound.derivatives(scores, i)[0], gradient, rtol=1e-5, atol=1e-9)]
        assert len(matches) == 1
        found += matches
    return found


def test_gradient_is_the_cores_and_the_hessian_is_one():
    data, scores = matrix(), np.random.default_rng(0).normal(size=len(TRAIN.labels)).astype(np.float32)
    loss = sr.StochasticRank("ndcg@5", mu=0.2, seed=3)
    gradient, hessian = XGBoostObjective(loss)(scores, data, iteration=7)
    expected = loss.bind(TRAIN.labels, TRAIN.groups).gradient(scores, 7)
    np.testing.assert_allclose(gradient, expected, rtol=1e-6, atol=1e-12)
    np.testing.assert_array_equal(hessian, np.ones(len(scores)))


def test_a_metric_alone_means_the_recommended_loss():
    data, scores = matrix(), np.random.default_rng(0).normal(size=len(TRAIN.labels)).astype(np.float32)
    recommended = sr.recommended("ndcg@5", booster="xgboost")
    gradient, hessian = XGBoostObjective("ndcg@5")(scores, data, iteration=7)
    expected = recommended.bind(TRAIN.labels, TRAIN.groups).derivatives(scores, 7)
    np.testing.assert_allclose(gradient, expected[0], rtol=1e-6, atol=1e-12)
    np.testing.assert_allclose(hessian, expected[1], rtol=1e-6)


def test_first_tree_is_a_gradient_step():
    data = matrix()
    booster = train(sr.StochasticRank("ndcg@5"), data, rounds=1, params={**PARAMS, "reg_lambda": 0, "base_score": 0})
    gradient = sr.StochasticRank("ndcg@5").bind(TRAIN.labels, TRAIN.groups).gradient(np.zeros(len(TRAIN.labels)))
    leaves = booster.predict(data, pred_leaf=True).ravel()
    means = {leaf: gradient[leaves == leaf].mean() for leaf in np.unique(leaves)}
    assert len(means) > 4
    np.testing.assert_allclose(booster.predict(data), [-0.1 * means[leaf] for leaf in leaves], rtol=1e-4, atol=1e-7)


def test_training_raises_the_metric_on_unseen_queries():
    booster, test = train(rounds=60), matrix(TEST)
    before = sr.evaluate("ndcg@5", np.zeros(len(TEST.labels)), TEST.labels, TEST.groups, ties="mean")
    assert sr.evaluate("ndcg@5", booster.predict(test), TEST.labels, TEST.groups) > before + 0.1


@pytest.mark.parametrize("loss", [sr.StochasticRank("ndcg@5"), SGLB])
def test_one_object_trains_again_and_again_alike(loss):
    objective, data = XGBoostObjective(loss), matrix()
    first = raw(train(objective, data))
    train(objective, data, rounds=3)  # leaves nothing behind
    assert raw(train(objective, data)) == first
    assert raw(train(objective, matrix())) == first
    assert raw(train(copy.deepcopy(objective), data)) == first
    assert raw(train(pickle.loads(pickle.dumps(objective)), data)) == first
    assert raw(train(XGBoostObjective(loss), matrix())) == first


def test_pickle_holds_no_data():
    objective = XGBoostObjective("ndcg@5")
    train(objective, matrix())
    assert len(pickle.dumps(objective)) < 2000


def test_seed_changes_the_model():
    assert raw(train(XGBoostObjective("ndcg@5", seed=1))) != raw(train(XGBoostObjective("ndcg@5", seed=2)))


@pytest.mark.filterwarnings("ignore")  # XGBoost 3.4 deprecates dart and gblinear
@pytest.mark.parametrize(
    ("loss", "booster"),
    [(sr.StochasticRank("ndcg@5"), "gbtree"), (sr.StochasticRank("ndcg@5"), "dart"), (SGLB, "gbtree")],
)
def test_continued_training_equals_training_in_one_go(loss, booster, tmp_path):
    params, data = {**PARAMS, "booster": booster}, matrix()
    whole = train(loss, data, rounds=8, params=params).predict(data)
    objective = XGBoostObjective(loss)
    part = train(objective, data, rounds=5, params=params)
    part.save_model(tmp_path / "part.json")
    for model in (part, tmp_path / "part.json", train(loss, data, rounds=9, params=params)[:5]):
        for continuing in (objective, XGBoostObjective(loss)):
            on = train(continuing, data, rounds=3, params=params, xgb_model=model)
            np.testing.assert_allclose(on.predict(data), whole, rtol=1e-4, atol=1e-6)


@pytest.mark.filterwarnings("ignore")  # XGBoost 3.4 deprecates gblinear
def test_canary_the_booster_is_among_the_callers_and_tells_what_the_adapter_relies_on():
    """If this fails, a version of XGBoost calls in another way: `calling`, or what is read from its Booster, must change."""
    seen = []

    def watch(scores, data):
        booster = calling(xgb.Booster)
        assert booster is not None, "no Booster is among the callers of an objective"
        configuration = json.loads(booster.save_config())["learner"]
        kind = configuration["gradient_booster"]
        part = kind["updater"]["linear_train_param"] if kind["name"] == "gblinear" else kind["tree_train_param"]
        assert float(part["learning_rate"]) == pytest.approx(0.1)
        assert configuration["learner_train_param"]["disable_default_eval_metric"] == "0"
        assert kind["name"] == "gblinear" or kind["specified_updater"] is False
        metrics = [metric["name"] for metric in configuration["metrics"]]
        seen.append((booster.num_boosted_rounds(), int(configuration["generic_param"]["nthread"]), metrics))
        return scores - data.get_label(), np.ones(len(scores))

    def watch_as_metric(scores, data):
        assert calling(xgb.Booster) is not None, "no Booster is among the callers of a metric"
        container = calling(xgb.callback.CallbackContainer)
        stops = [stop for stop in container.callbacks if isinstance(stop, xgb.callback.EarlyStopping)]
        assert [(stop.maximize, stop.metric_name) for stop in stops] in ([(None, None)], [(False, None)])
        return "ours", 0.0

    data, params = matrix(), {**PARAMS, "eval_metric": "ndcg@5"}
    xgb.train(params, data, 2, obj=watch)
    booster = xgb.Booster(params, [data])
    booster.update(data, 0, fobj=watch)
    booster.update(data, 1, fobj=watch)
    assert seen == [(0, 1, ["ndcg@5"]), (1, 1, ["ndcg@5"])] * 2
    seen.clear()
    xgb.train({"booster": "gblinear", "learning_rate": 0.1, "nthread": 1}, data, 1, obj=watch)
    xgb.cv(params, data, 2, nfold=2, obj=watch, custom_metric=watch_as_metric, early_stopping_rounds=5)
    assert [one[0] for one in seen] == [0, 0, 0, 1, 1]
    keywords = {"evals": [(data, "x")], "custom_metric": watch_as_metric, "early_stopping_rounds": 5, "verbose_eval": False}
    xgb.train(params, data, 2, obj=watch, **keywords)


def test_iterations_in_training_and_when_it_goes_on():
    recorder, data = Recorder("ndcg@5"), matrix()
    part = train(recorder, data, rounds=3)
    train(recorder, data, rounds=2, xgb_model=part)
    train(recorder, data, rounds=2)
    assert iterations(recorder) == [0, 1, 2, 3, 4, 0, 1]


def test_cv_counts_each_fold_by_itself():
    recorder = Recorder(SGLB)
    for _ in range(2):
        recorder.__dict__.pop("calls", None)
        xgb.cv(PARAMS, matrix(), 3, nfold=3, obj=recorder, custom_metric=XGBoostMetric("ndcg@5"), maximize=True)
        assert iterations(recorder) == [0, 0, 0, 1, 1, 1, 2, 2, 2]


def test_cv_reports_the_metric_of_the_held_out_folds():
    seen = xgb.cv(PARAMS, matrix(), 4, nfold=3, seed=1, obj=XGBoostObjective("ndcg@5"),
                  custom_metric=XGBoostMetric("ndcg@5"), as_pandas=False)  # fmt: skip
    assert len(seen["test-ndcg@5-mean"]) == 4
    assert all(0 < value < 1 for value in seen["test-ndcg@5-mean"])


def test_boosting_by_hand():
    data = matrix()
    booster = xgb.Booster(PARAMS, [data])
    objective = XGBoostObjective("ndcg@5")
    for _ in range(6):
        booster.update(data, 0, fobj=lambda scores, data: objective(scores, data))  # wrapped, and the number not kept
    np.testing.assert_array_equal(booster.predict(data), train(data=data).predict(data))


def test_changed_labels_are_seen_by_the_next_training():
    objective, metric, data = XGBoostObjective("ndcg@5"), XGBoostMetric("ndcg@5"), matrix()
    train(objective, data, custom_metric=metric, evals=[(data, "train")])
    flipped = 4 - TRAIN.labels
    data.set_label(flipped)
    history = {}
    again = train(objective, data, custom_metric=metric, evals=[(data, "train")], evals_result=history)
    fresh = xgb.DMatrix(TRAIN.features, flipped, group=TRAIN.groups)
    assert raw(again) == raw(train(data=fresh))
    expected = sr.evaluate("ndcg@5", again.predict(data), flipped, TRAIN.groups)
    assert history["train"]["ndcg@5"][-1] == pytest.approx(expected, abs=1e-6)


def test_weights_are_of_queries():
    weights = np.random.default_rng(0).integers(0, 3, len(TRAIN.groups)).astype(float)
    recorder, history, data = Recorder("ndcg@5"), {}, matrix(weight=weights)
    booster = train(recorder, data, custom_metric=XGBoostMetric("ndcg@5"), evals=[(data, "train")], evals_result=history)
    bound = recorder.loss.bind(TRAIN.labels, TRAIN.groups, weights)
    for iteration, (_, scores, gradient) in enumerate(recorder.calls):
        np.testing.assert_allclose(gradient, bound.derivatives(scores, iteration)[0], rtol=1e-5, atol=1e-9)
    per_query = sr.evaluate("ndcg@5", booster.predict(data), TRAIN.labels, TRAIN.groups, per_query=True)
    assert history["train"]["ndcg@5"][-1] == pytest.approx(np.average(per_query, weights=weights), abs=1e-6)


def test_weights_of_queries_and_evaluation_sets_without_any_metric():
    history, data = {}, matrix(weight=np.ones(len(TRAIN.groups)))
    train(data=data, evals=[(data, "x")], evals_result=history)  # under XGBoost's default, RMSE, it would abort
    assert history == {}


@pytest.mark.parametrize(
    "params",
    [
        {
            "booster": "gblinear",
            "updater": "coord_descent",
            "feature_selector": "greedy",
            "top_k": 2,
            "eta": 0.2,
            "lambda": 1,
        },
        {"booster": "gblinear", "updater": "shotgun", "eta": 0.2, "alpha": 0.01},
        {"updater": "grow_colmaker,prune", "gamma": 0.1, "max_depth": 4},
        {"booster": "dart", "updater": "grow_histmaker", "rate_drop": 0.5, "max_bin": 8, "max_depth": 4},
        {"tree_method": "approx", "max_bin": 8, "max_depth": 4},
    ],
    ids=lambda params: params.get("updater", params.get("tree_method")),
)
@pytest.mark.filterwarnings("ignore")  # XGBoost warns of any updater that is chosen by hand
def test_turning_the_default_metric_off_changes_nothing_else(params):
    """XGBoost forgets some parameters when another is set during a training."""
    bound = sr.recommended("ndcg@5", booster="xgboost").bind(TRAIN.labels, TRAIN.groups)
    at, data, params = itertools.count(), matrix(), {"nthread": 1, **params}
    by_hand = xgb.train(params, data, 4, obj=lambda scores, _: bound.derivatives(scores, next(at)))
    np.testing.assert_array_equal(train(data=data, rounds=4, params=params).predict(data), by_hand.predict(data))


def test_leaves_of_a_model_are_refreshed():
    """On the same data with the same noise a refreshed leaf is what it was."""
    data, params = matrix(weight=np.ones(len(TRAIN.groups))), {**PARAMS, "base_score": 0}
    model, other = train(data=data, rounds=4, params=params), matrix(TEST, weight=np.ones(len(TEST.groups)))
    params = {**params, "process_type": "update", "updater": "refresh", "refresh_leaf": True}
    again = train(data=data, rounds=4, params=params, xgb_model=model, evals=[(data, "x")])
    np.testing.assert_allclose(again.predict(data), model.predict(data), rtol=1e-4, atol=1e-6)
    elsewhere = train(data=other, rounds=4, params=params, xgb_model=model, evals=[(data, "x")])
    np.testing.assert_array_equal(elsewhere.predict(data, pred_leaf=True), model.predict(data, pred_leaf=True))
    assert np.abs(elsewhere.predict(data) - model.predict(data)).max() > 0.01


@pytest.mark.parametrize("loss", ["ndcg@5", sr.StochasticRank("ndcg@5")])
def test_one_weight_for_all_queries_changes_no_tree(loss):
    """Gradient and hessian are both multiplied, as by XGBoost's own ranking objectives."""
    params = {**PARAMS, "reg_lambda": 0, "min_child_weight": 0}
    plain, weighted = (train(loss, matrix(weight=np.full(len(TRAIN.groups), w)), params=params) for w in (1.0, 4.0))
    np.testing.assert_allclose(weighted.predict(matrix(TEST)), plain.predict(matrix(TEST)), rtol=1e-4, atol=1e-6)


def test_the_hessian_of_a_loss_without_one_is_the_weight_of_the_query():
    weights, scores = np.arange(len(TRAIN.groups)) + 0.5, np.zeros(len(TRAIN.labels))
    _, hessian = XGBoostObjective(sr.StochasticRank("ndcg@5"))(scores, matrix(weight=weights), iteration=0)
    np.testing.assert_array_equal(hessian, np.repeat(weights, TRAIN.groups))


def test_base_score_changes_nothing_but_the_level():
    data = matrix()
    at_zero = train(data=data, params={**PARAMS, "base_score": 0}).predict(data)
    np.testing.assert_allclose(train(data=data).predict(data) - 0.5, at_zero, atol=1e-5)


def test_base_margin_is_where_training_starts():
    margin = np.random.default_rng(0).normal(size=len(TRAIN.labels))
    recorder = Recorder("ndcg@5")
    train(recorder, matrix(base_margin=margin), rounds=2)
    np.testing.assert_allclose(recorder.calls[0][1], margin, rtol=1e-6)
    assert iterations(recorder) == [0, 1]


class Batches(xgb.DataIter):
    def __init__(self, folder):
        self.at, borders = 0, np.concatenate([[0], np.cumsum(TRAIN.groups)])[[0, 20, 40, 60]]
        self.parts = [slice(a, b) for a, b in itertools.pairwise(borders)]
        super().__init__(cache_prefix=str(folder / "cache"))

    def next(self, input_data):
        if self.at == len(self.parts):
            return 0
        rows, self.at = self.parts[self.at], self.at + 1
        input_data(data=TRAIN.features[rows], label=TRAIN.labels[rows], qid=TRAIN.qid[rows])
        return 1

    def reset(self):
        self.at = 0


def kinds_of_matrix():
    kinds = {"QuantileDMatrix": lambda _: xgb.QuantileDMatrix(TRAIN.features, TRAIN.labels, group=TRAIN.groups)}
    kinds["external memory"] = lambda folder: xgb.DMatrix(Batches(folder))
    if hasattr(xgb, "ExtMemQuantileDMatrix"):
        kinds["ExtMemQuantileDMatrix"] = lambda folder: xgb.ExtMemQuantileDMatrix(Batches(folder))
    return kinds


@pytest.mark.parametrize("kind", kinds_of_matrix())
def test_other_kinds_of_matrix_get_the_same_gradients(kind, tmp_path):
    data, recorder, plain = kinds_of_matrix()[kind](tmp_path), Recorder("ndcg@5"), Recorder("ndcg@5")
    train(recorder, data, rounds=4)
    train(plain, matrix(), rounds=4)
    assert iterations(recorder) == [0, 1, 2, 3]
    np.testing.assert_allclose(recorder.calls[0][2], plain.calls[0][2], rtol=1e-6, atol=1e-9)


def test_early_stopping_on_our_metric():
    history, valid = {}, matrix(TEST)
    booster = train(rounds=200, evals=[(valid, "valid")], custom_metric=XGBoostMetric("ndcg@5"), maximize=True,
                    early_stopping_rounds=5, evals_result=history)  # fmt: skip
    values = history["valid"]["ndcg@5"]
    assert len(values) == booster.best_iteration + 6 < 200
    assert booster.best_score == max(values) == values[booster.best_iteration]
    scores = booster.predict(valid, iteration_range=(0, booster.best_iteration + 1))
    assert booster.best_score == pytest.approx(sr.evaluate("ndcg@5", scores, TEST.labels, TEST.groups), abs=1e-6)


@pytest.mark.parametrize("name", ["mrr", "err@5"])  # names by which XGBoost would not know what is better
def test_early_stopping_maximises_by_itself(name):
    keywords = {"rounds": 200, "evals": [(matrix(TEST), "valid")], "custom_metric": XGBoostMetric(name)}
    told = train(**keywords, maximize=True, early_stopping_rounds=5)
    assert 0 < told.best_iteration < 195
    assert raw(train(**keywords, early_stopping_rounds=5)) == raw(told)
    stop = xgb.callback.EarlyStopping(rounds=5, metric_name=name, data_name="valid")
    assert train(**keywords, callbacks=[stop]).best_iteration == told.best_iteration
    folds = [
        xgb.cv(PARAMS, matrix(), 200, nfold=3, obj=XGBoostObjective("ndcg@5"), custom_metric=XGBoostMetric(name),
               early_stopping_rounds=5, as_pandas=False, **more) for more in ({}, {"maximize": True})
    ]  # fmt: skip
    assert folds[0] == folds[1]
    assert len(folds[0][f"test-{name}-mean"]) > 1


def test_early_stopping_that_minimises_our_metric_is_refused():
    stop = xgb.callback.EarlyStopping(rounds=5, maximize=False)
    keywords = {"evals": [(matrix(TEST), "valid")], "custom_metric": XGBoostMetric("ndcg@5"), "rounds": 30}
    with pytest.raises(ValueError, match="maximize=False: ndcg@5 is better when larger"):
        train(**keywords, callbacks=[stop])
    other = xgb.callback.EarlyStopping(rounds=2, maximize=False, metric_name="mae")
    train(**keywords, callbacks=[other], params={**PARAMS, "eval_metric": "mae"})


def test_early_stopping_on_xgboosts_metric():
    history, params = {}, {**PARAMS, "eval_metric": "ndcg@5"}
    booster = train(
        rounds=200, params=params, evals=[(matrix(TEST), "valid")], early_stopping_rounds=5, evals_result=history
    )
    assert len(history["valid"]["ndcg@5"]) == booster.best_iteration + 6 < 200
    assert booster.best_score == max(history["valid"]["ndcg@5"])


def test_metric_equals_xgboosts_where_both_mean_the_same():
    history, data = {}, matrix(TEST)
    data.set_base_margin(np.random.default_rng(0).normal(size=len(TEST.labels)))  # no ties
    ours = XGBoostMetric("ndcg@5", empty=1, name="ours")
    params = {**PARAMS, "eval_metric": "ndcg@5"}
    train(data=data, rounds=3, params=params, custom_metric=ours, evals=[(data, "x")], evals_result=history)
    np.testing.assert_allclose(history["x"]["ours"], history["x"]["ndcg@5"], atol=2e-6)


def test_metric_options_reach_the_evaluation():
    data = matrix(TEST)
    constant = np.zeros(len(TEST.labels))
    for ties in ("worst", "mean", "best"):
        for empty in (0.0, 1.0, "skip"):
            expected = sr.evaluate("ndcg@5", constant, TEST.labels, TEST.groups, ties=ties, empty=empty)
            assert XGBoostMetric("ndcg@5", ties=ties, empty=empty)(constant, data) == ("ndcg@5", expected)


def test_metric_names_that_xgboost_can_report():
    history = {}
    train(evals=[(matrix(), "x")], custom_metric=XGBoostMetric("ndcg@5:gain=linear"), evals_result=history)
    assert list(history["x"]) == ["ndcg@5,gain=linear"]
    with pytest.raises(ValueError, match="name must have no spaces and no colon"):
        XGBoostMetric("ndcg@5", name="a b")


def test_metric_with_the_name_of_xgboosts_is_refused():
    with pytest.raises(ValueError, match="its report would mix both; name this one"):
        train(params={**PARAMS, "eval_metric": "ndcg@5"}, evals=[(matrix(), "x")], custom_metric=XGBoostMetric("ndcg@5"))


@pytest.mark.parametrize("use", [XGBoostObjective("ndcg@5"), XGBoostMetric("ndcg@5")])
def test_missing_queries_are_refused(use):
    data = xgb.DMatrix(TRAIN.features, TRAIN.labels)
    with pytest.raises(ValueError, match="has no queries; give it qid= or group=, or call its set_group"):
        use(np.zeros(len(TRAIN.labels)), data, *([0] if isinstance(use, XGBoostObjective) else []))


def test_bad_arguments():
    with pytest.raises(ValueError, match="loss must be a metric"):
        XGBoostObjective(3)
    with pytest.raises(ValueError, match="ties must be"):
        XGBoostMetric("ndcg@5", ties="foo")
    with pytest.raises(ValueError, match="empty must be"):
        XGBoostMetric("ndcg@5", empty="drop")
    with pytest.raises(ValueError, match="mu: set these on the loss itself"):
        XGBoostObjective(SGLB, mu=1)
    with pytest.raises(ValueError, match=r"iteration must be given where no xgboost\.Booster is calling"):
        XGBoostObjective("ndcg@5")(np.zeros(len(TRAIN.labels)), matrix())


def test_printed():
    loss = sr.StochasticRank("ndcg@5", mu=0.5)
    assert repr(XGBoostObjective(loss)) == "XGBoostObjective(StochasticRank('ndcg@5', mu=0.5))"
    assert repr(XGBoostObjective(loss, metric="mrr")) == "XGBoostObjective(StochasticRank('ndcg@5', mu=0.5), metric='mrr')"
    assert repr(XGBoostMetric("ndcg@5")) == "XGBoostMetric('ndcg@5', ties='worst', empty=0.0)"
    assert repr(XGBoostMetric("mrr", name="x")) == "XGBoostMetric('mrr', ties='worst', empty=0.0, name='x')"


# SGLB


@pytest.mark.parametrize("mode", ["Constant", "Decreasing"])
@pytest.mark.parametrize("start", ["zero", "margin"])
def test_sglb_equals_explicit_shrinkage_of_the_old_trees(mode, start):
    rounds, rate, shrink = 15, 0.1, 0.3
    sglb = sr.SGLB(sr.StochasticRank("ndcg@5", seed=2), learning_rate=rate, diffusion_temperature=1e3,
                   model_shrink_rate=shrink, model_shrink_mode=mode, seed=5)  # fmt: skip
    margin = np.random.default_rng(0).normal(size=len(TRAIN.labels)) if start == "margin" else np.zeros(len(TRAIN.labels))
    params, data = {**PARAMS, "base_score": 0}, matrix(base_margin=margin)
    booster = xgb.train(params, data, rounds, obj=XGBoostObjective(sglb))

    # The same by hand: one tree per booster, and the sum of the old ones multiplied before a tree is added.
    plain, bound = sglb.loss.bind(TRAIN.labels, TRAIN.groups), sglb.bind(TRAIN.labels, TRAIN.groups)
    scores = margin.copy()
    for t in range(rounds):
        gradient = plain.gradient(scores, t) + bound.noise(t)
        keep = 1 - shrink * rate if mode == "Constant" else (1 - shrink / t if t else 1.0)
        bare = matrix()
        tree = xgb.train(params, bare, 1, obj=lambda _, __, g=gradient: (g.astype(np.float32), np.ones(len(g), np.float32)))
        scores = keep * scores + tree.predict(bare)
    np.testing.assert_allclose(sglb.true_scores(booster.predict(data), rounds), scores, rtol=1e-3, atol=1e-5)
    assert sglb.shrinkage(rounds) < 0.8


@pytest.mark.filterwarnings("ignore")  # XGBoost 3.4 deprecates dart and gblinear
def test_sglb_wants_xgboosts_learning_rate():
    for params in ({"max_depth": 3}, {"eta": 0.2}, {"booster": "gblinear", "learning_rate": 0.2}):
        with pytest.raises(ValueError, match=r"learning_rate=0.1 of SGLB is not XGBoost's, 0\.[23]; set both to the same"):
            train(SGLB, params=params)
    with pytest.raises(ValueError, match=r"is not XGBoost's, 0\.05"):
        train(SGLB, callbacks=[xgb.callback.LearningRateScheduler(lambda i: 0.1 if i < 2 else 0.05)])
    with pytest.raises(ValueError, match=r"is not XGBoost's, 0\.3"):
        XGBoostRanker(SGLB, learning_rate=0.3).fit(TRAIN.features, TRAIN.labels, group=TRAIN.groups)
    train(SGLB, params={"booster": "gblinear", "learning_rate": 0.1})


@pytest.mark.filterwarnings("ignore")  # XGBoost 3.4 deprecates dart and gblinear
def test_sglb_refuses_dart():
    with pytest.raises(ValueError, match='use booster="gbtree" with SGLB'):
        train(SGLB, params={**PARAMS, "booster": "dart", "rate_drop": 0.1})


SYNTHETIC = np.eye(3)[[0, 1, 2, 2, 0]], [3, 2, 1, 3, 2], [3, 2]
SYNTHETIC_PARAMS = {
    "max_depth": 3,
    "learning_rate": 0.1,
    "reg_lambda": 0,
    "min_child_weight": 0,
    "base_score": 0,
    "nthread": 1,
}


def test_papers_synthetic_data_reaches_the_global_optimum():
    features, labels, groups = SYNTHETIC
    data = xgb.DMatrix(features, labels, group=groups)
    for seed in (1000, 1001, 1002):
        loss = sr.StochasticRank("ndcg@3", sigma=0.2, sfa=False, seed=seed)
        sglb = sr.SGLB(loss, learning_rate=0.1, diffusion_temperature=1e3, model_shrink_rate=1e-3, seed=seed)
        booster = xgb.train(SYNTHETIC_PARAMS, data, 1000, obj=XGBoostObjective(sglb))
        assert sr.evaluate("ndcg@3", booster.predict(data), labels, groups) == pytest.approx(0.917, abs=5e-4)
    own = xgb.train({**SYNTHETIC_PARAMS, "objective": "rank:ndcg"}, data, 1000)
    assert sr.evaluate("ndcg@3", own.predict(data), labels, groups) == pytest.approx(0.903, abs=5e-4)


# Determinism and saved models


@pytest.mark.parametrize("loss", [sr.StochasticRank("ndcg@5"), SGLB])
def test_model_is_the_same_for_any_number_of_threads(loss):
    data = matrix(make_ranking(400, features=8))
    one, two = (train(loss, data, rounds=10, params={**PARAMS, "nthread": n}) for n in (1, 2))
    np.testing.assert_array_equal(one.predict(data), two.predict(data))


def test_saved_models_predict_without_the_package(tmp_path):
    booster, x = train(SGLB, rounds=5), TEST.features
    booster.save_model(tmp_path / "model.json")
    booster.save_model(tmp_path / "model.ubj")
    (tmp_path / "model.pickle").write_bytes(pickle.dumps(booster))
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "expected.npy", booster.predict(xgb.DMatrix(x)))
    program = """
import pickle, sys
sys.modules["stochasticrank_objectives"] = None  # importing it raises
import numpy as np, xgboost as xgb
x, expected = xgb.DMatrix(np.load("x.npy")), np.load("expected.npy")
models = [xgb.Booster(model_file="model.json"), xgb.Booster(model_file="model.ubj"), pickle.load(open("model.pickle", "rb"))]
print(all(np.array_equal(model.predict(x), expected) for model in models))
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True"
