"""Sums of metrics: as values, in evaluation, in every loss, and in the boosters."""

from __future__ import annotations

import copy
import dataclasses
import functools
import itertools
import pathlib
import pickle
from typing import Any

import hypothesis
import hypothesis.strategies as st
import naive
import numpy as np
import pytest
from test_losses import COPIES, DRAWS, close, estimates, make, spread, within

import stochasticrank_objectives as sr
from stochasticrank_objectives.datasets import make_ranking

PROPERTY = hypothesis.settings(deadline=None, derandomize=True, database=None, max_examples=100)
SPACE = {name: getattr(sr, name) for name in sr.__all__}

PARSED = [
    ("0.7*ndcg@10 + 0.3*mrr", 0.7 * sr.NDCG(10) + 0.3 * sr.MRR()),
    ("ndcg@10 + mrr", sr.NDCG(10) + sr.MRR()),
    ("0.5*mrr", sr.MRR() * 0.5),
    (
        "2*map@3:threshold=1 + err@5:max_grade=3 + 0.25*rbp:p=0.9",
        2 * sr.MAP(3, threshold=1) + sr.ERR(5, max_grade=3) + 0.25 * sr.RBP(0.9),
    ),
    ("1e-05*ndcg + 1e+22*mrr:threshold=1e+20", 1e-5 * sr.NDCG() + 1e22 * sr.MRR(threshold=1e20)),
]

SUMS = [
    "0.7*ndcg@10 + 0.3*mrr",
    "ndcg@5 + 0.5*ndcg",
    "map + 2*err@3 + 0.1*recall@7 + hit@2",
    "mrr + 0.4*mrr:threshold=2",
    "0.2*precision@3 + 0.8*map@4",
    "pfound + 0.3*dcg@4:gain=linear",
    "3*rbp",
    "hit@1 + hit@3:threshold=2 + rbp@4",
    "ndcg@5:power=0.5 + err",
    "binarydcg@4 + binarydcg:threshold=1:grades=0.25",
]
"""Every rule beside every other, full and cut, graded and binary, with thresholds that differ."""


# ---------------------------------------------------------- values


@pytest.mark.parametrize(("name", "metric"), PARSED)
def test_parsed_printed_compared_and_pickled(name: str, metric: sr.Metric) -> None:
    assert isinstance(metric, sr.Sum)
    assert sr.parse_metric(name) == metric
    assert sr.parse_metric(name.replace(" ", "")) == metric
    assert str(metric) == name
    assert sr.parse_metric(metric) is metric
    assert eval(repr(metric), SPACE) == metric
    rebuilt = sr.Sum(metric.terms), dataclasses.replace(metric)
    for twin in (*rebuilt, copy.copy(metric), copy.deepcopy(metric), pickle.loads(pickle.dumps(metric))):
        assert twin == metric
        assert hash(twin) == hash(metric)
        assert twin.k == metric.k


def test_arithmetic() -> None:
    ndcg, mrr = sr.NDCG(10), sr.MRR()
    assert 0.7 * ndcg + 0.3 * mrr == ndcg * 0.7 + np.float64(0.3) * mrr
    assert 2 * (ndcg + 0.5 * mrr) == 2 * ndcg + mrr
    assert (ndcg + mrr) + mrr == ndcg + (mrr + mrr) == ndcg + 2 * mrr
    assert sum([ndcg, mrr]) == ndcg + mrr
    assert ndcg + mrr != mrr + ndcg  # the order is the one that was written
    assert 1 * mrr is mrr
    assert 0.5 * mrr + 0.5 * mrr == mrr == sr.parse_metric("0.5*mrr + 0.5*mrr") == sr.parse_metric("1*mrr")
    assert str(np.int64(3) * mrr) == "3*mrr"
    assert sr.Sum(((0.5, ndcg + mrr), (0.5, mrr))).terms == ((0.5, ndcg), (1.0, mrr))
    assert (ndcg + sr.Precision(20)).k == 20
    assert (ndcg + mrr).k is None


WEIGHTS = st.floats(1e-6, 1e9) | st.sampled_from([0.1, 1.0, 2.0, 1e-300, 1e300])


@PROPERTY
@hypothesis.given(st.lists(st.tuples(WEIGHTS, st.sampled_from(naive.NAMES)), min_size=1, max_size=5), st.data())
def test_any_sum_survives_the_round_trip(terms: list[tuple[float, str]], data: st.DataObject) -> None:
    metric = functools.reduce(lambda a, b: a + b, (weight * sr.parse_metric(name) for weight, name in terms))
    assert sr.parse_metric(str(metric)) == metric
    assert eval(repr(metric), SPACE) == metric
    space = data.draw(st.sampled_from(["", " ", "\t "]))
    written = f"{space}+{space}".join(f"{weight!r}{space}*{space}{name}" for weight, name in terms)
    assert sr.parse_metric(written) == metric
    weights = {}
    for weight, name in terms:
        weights[name] = weights.get(name, 0.0) + weight
    assert [(weight, str(part)) for weight, part in metric.parts()] == [(w, name) for name, w in weights.items()]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("0.7*ndcg@10 +", r"a metric is missing beside \+; write for example \"0.7"),
        ("+ mrr", r"a metric is missing beside \+"),
        ("ndcg ++ mrr", r"a metric is missing beside \+"),
        ("0.7*", r"a metric is missing after \*"),
        ("ndcg*0.7", r"before \* stands a number, as in 0.7\*ndcg@10, got 'ndcg'"),
        ("x*ndcg + mrr", r"before \* stands a number, .* got 'x'"),
        ("*mrr", r"before \* stands a number, .* got ''"),
        ("2*3*mrr", r"before \* stands a number, .* got '2\*3'"),
        ("0*mrr", r"weight of mrr must be a finite number above 0, got 0.0"),
        ("-1*mrr", r"weight of mrr must be .* above 0, got -1.0; .* reward worse rankings"),
        ("ndcg + -1*mrr", r"weight of mrr must be .* above 0, got -1.0"),
        ("inf*mrr", r"weight of mrr must be a finite number"),
        ("nan*mrr", r"weight of mrr must be a finite number"),
        ("ndcg@10 - mrr", r"'ndcg@10 - mrr': metrics can be added, not subtracted"),
        ("ndcg-0.3*mrr", r"metrics can be added, not subtracted"),
        ("0.5*ncdg@10 + mrr", r"unknown metric 'ncdg@10 '.*did you mean \"ndcg@10\""),
        ("ndcg + precision", r"precision needs a cut k"),
    ],
)
def test_wrong_names(name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        sr.parse_metric(name)


def test_wrong_sums() -> None:
    for weight in (0, -0.5, np.inf, np.nan, True):
        with pytest.raises(ValueError, match="weight of mrr must be a finite number above 0"):
            weight * sr.MRR()
    with pytest.raises(ValueError, match="weight of mrr must be a finite number"):
        1e308 * sr.MRR() + 1e308 * sr.MRR()
    with pytest.raises(ValueError, match=r"weight of mrr must be .* above 0, got 0.0"):
        1e-200 * (1e-200 * sr.MRR())
    with pytest.raises(ValueError, match="at least one term"):
        sr.Sum(())
    with pytest.raises(ValueError, match=r"is that metric: use MRR\("):
        sr.Sum(((1, sr.MRR()),))
    for term in (("mrr", 1), (1, "mrr"), sr.MRR(), 3):
        with pytest.raises(ValueError, match="a term of a sum is a pair of weight and metric, got"):
            sr.Sum((term,))  # type: ignore[arg-type]
    for wrong in (lambda: sr.MRR() + 1, lambda: 1 + sr.MRR(), lambda: sr.MRR() * sr.MAP(), lambda: "2" * sr.MRR(),
                  lambda: sr.MRR() + "map", lambda: sr.MRR() - sr.MAP()):  # fmt: skip
        with pytest.raises(TypeError):
            wrong()  # type: ignore[no-untyped-call]
    for ask in (sr.Sum.gains, sr.Sum.discounts):
        with pytest.raises(TypeError, match="of their own"):
            ask(sr.MRR() + sr.MAP(), 3)  # type: ignore[operator]


def test_labels_suit_every_term() -> None:
    with pytest.raises(ValueError, match="is above max_grade=4"):
        sr.evaluate("ndcg@3 + err", [0, 1], [5, 0], [2])
    with pytest.raises(ValueError, match="pfound needs labels from 0 to 1"):
        sr.StochasticRank("ndcg@3 + pfound").bind([2, 0], [2])


# ---------------------------------------------------------- evaluation


@pytest.mark.parametrize("ties", ["worst", "mean", "best"])
@pytest.mark.parametrize("name", SUMS)
def test_evaluation_equals_brute_force(name: str, ties: Any) -> None:
    rng = np.random.default_rng(len(name))
    groups = [1, 2, 3, 4, 5, 5, 6, 6, 6]
    labels = np.concatenate([naive.random_labels(name, n, rng) for n in groups])
    scores = rng.integers(0, 3, len(labels)).astype(float)
    scores[-6:] = 1.5
    starts = np.cumsum([0, *groups])
    expected = [naive.tied_value(name, scores[a:b], labels[a:b], ties) for a, b in itertools.pairwise(starts)]
    actual = sr.evaluate(name, scores, labels, groups, ties=ties, per_query=True)
    np.testing.assert_allclose(actual, expected, rtol=1e-12, atol=1e-15)
    for empty in (0.0, 1.0):
        terms = [
            w * sr.evaluate(m, scores, labels, groups, ties=ties, empty=empty) for w, m in sr.parse_metric(name).parts()
        ]
        assert sr.evaluate(name, scores, labels, groups, ties=ties, empty=empty) == pytest.approx(sum(terms), rel=1e-12)


def test_queries_that_are_empty_for_some_terms() -> None:
    name, scores, labels, groups = "mrr + 2*mrr:threshold=2", [2, 1, 2, 1, 2, 1], [0, 0, 0, 1, 0, 3], [2, 2, 2]
    assert sr.evaluate(name, scores, labels, groups, per_query=True).tolist() == [0, 0.5, 0.5 + 2 * 0.5]
    assert sr.evaluate(name, scores, labels, groups, empty=1, per_query=True).tolist() == [3, 0.5 + 2, 1.5]
    skipped = sr.evaluate(name, scores, labels, groups, empty="skip", per_query=True)
    assert np.isnan(skipped[0])
    assert skipped[1:].tolist() == [0.5, 1.5]


# ---------------------------------------------------------- gradients

SETTINGS: list[dict[str, Any]] = [
    {"mu": 0.0, "sfa": False},
    {"mu": 0.4, "sfa": True, "sigma": 0.6, "samples": 3},
    {"mu": 0.2, "sfa": True, "estimator": "reinforce", "sigma": 0.8, "samples": 2},
    {"mu": 0.2, "sfa": 0.5, "noise": "logistic", "samples": 2},
]


@pytest.mark.parametrize("name", SUMS)
def test_gradients_equal_naive(name: str) -> None:
    groups = [1, 2, 2, 3, 5, 9, 18]
    for case, keywords in enumerate(SETTINGS):
        scores, labels = make(name, groups, case, decimals=None if case % 2 else 1)
        loss = sr.StochasticRank(name, seed=case, **keywords)
        expected = naive.gradient(loss, scores, labels, groups, iteration=case)
        close(loss.bind(labels, groups).gradient(scores, case), expected)


@pytest.mark.parametrize("name", SUMS)
def test_formula_of_the_jumps_equals_re_evaluation(name: str) -> None:
    """The naive version for long lists below, against the one above."""
    scores, labels = make(name, [11], 3)
    noise = np.random.default_rng(3).normal(size=11)
    by_formula = naive.ccs_by_formula(name, scores, labels, noise, sigma=0.7, mu=0.2)
    close(by_formula, naive.ccs(name, scores, labels, noise, sigma=0.7, mu=0.2), 1e-12)


@pytest.mark.parametrize("kind", ["near", "plain", "clumps", "ties", "far"])
@pytest.mark.parametrize("name", [*SUMS, "ndcg@150 + map@40"])
def test_long_lists_equal_the_formula(name: str, kind: str) -> None:
    rng = np.random.default_rng(1)
    groups = [70, 300]
    labels = np.concatenate([naive.random_labels(name, n, rng) * (rng.random(n) < 0.3) for n in groups])
    scores = np.concatenate([spread(kind, n, rng) for n in groups])
    for noise in ("normal", "logistic") if kind == "plain" else ("normal",):
        loss = sr.StochasticRank(name, mu=0.3, sfa=False, sigma=0.9, noise=noise)  # type: ignore[arg-type]
        actual = loss.bind(labels, groups).gradient(scores, 1)
        expected = naive.gradient(loss, scores, labels, groups, iteration=1, by_formula=True)
        for a, b in itertools.pairwise(np.cumsum([0, *groups])):
            close(actual[a:b], expected[a:b])


def sorted_labels(name: str, groups: list[int], rng: np.random.Generator) -> np.ndarray:
    """Falling in every query: then all terms, alone or together, number documents alike and get the same noise."""
    return np.concatenate([np.sort(naive.random_labels(name, n, rng))[::-1] for n in groups])


@pytest.mark.parametrize("keywords", SETTINGS)
@pytest.mark.parametrize("name", SUMS)
def test_linear_in_the_terms(name: str, keywords: dict[str, Any]) -> None:
    groups = [3, 40, 300]
    rng = np.random.default_rng(4)
    labels, scores = sorted_labels(name, groups, rng), rng.normal(size=343)

    def gradient(metric: sr.Metric) -> np.ndarray:
        return sr.StochasticRank(metric, **{**keywords, "mu": 0.0}).bind(labels, groups).gradient(scores, 2)

    terms = [weight * gradient(metric) for weight, metric in sr.parse_metric(name).parts()]
    close(gradient(sr.parse_metric(name)), np.sum(terms, axis=0), 1e-9)


def test_graded_terms_are_linear_with_mu_too() -> None:
    labels = sorted_labels("ndcg", [50], np.random.default_rng(1))
    scores = np.random.default_rng(2).normal(size=50)
    one, other, both = (
        sr.StochasticRank(name, mu=0.7).bind(labels, [50]).gradient(scores) for name in ("ndcg@10", "err", "2*ndcg@10 + err")
    )
    close(both, 2 * one + other, 1e-12)


@pytest.mark.parametrize("mu", [0.0, 0.3])
@pytest.mark.parametrize("name", [name for name in SUMS if "pfound" not in name])
def test_mean_of_ccs_is_the_exact_gradient(name: str, mu: float) -> None:
    for n, exact in ((2, naive.exact_pair), (3, naive.exact_triple)):
        scores, labels = np.array([0.3, -0.4, 0.1])[:n], np.array([0.0, 3.0, 1.0])[:n]
        truth = exact(name, scores, labels, sigma=0.7, mu=mu)
        found = estimates(sr.StochasticRank(name, sigma=0.7, mu=mu, sfa=False, samples=DRAWS, seed=n), scores, labels)
        within(found, truth)
        assert (found.std(axis=0, ddof=1) / COPIES**0.5).max() <= 0.02 * np.abs(truth).max() + 1e-12


@PROPERTY
@hypothesis.given(st.data())
def test_naive_on_whatever_hypothesis_finds(data: st.DataObject) -> None:
    n = data.draw(st.integers(1, 9))
    names = data.draw(st.lists(st.sampled_from(naive.NAMES), min_size=2, max_size=4))
    name = " + ".join(f"{data.draw(st.sampled_from([0.1, 1, 7]))}*{each}" for each in names)
    grades = [0.0, 0.25, 0.5, 1.0] if "pfound" in name else [0.0, 0.5, 1.0, 2.0, 4.0]
    labels = np.array(data.draw(st.lists(st.sampled_from(grades), min_size=n, max_size=n)))
    levels = st.one_of(st.sampled_from([-1.0, 0.0, 1.0]), st.floats(-8, 8, width=16))
    scores = np.array(data.draw(st.lists(levels, min_size=n, max_size=n)))
    kinds = [{}, {"estimator": "reinforce"}, {"noise": "logistic"}]
    loss = sr.StochasticRank(
        name,
        mu=data.draw(st.sampled_from([0.0, 0.1, 2.0])),
        sfa=data.draw(st.booleans()),
        **data.draw(st.sampled_from(kinds)),
    )
    close(loss.bind(labels, [n]).gradient(scores, 3), naive.gradient(loss, scores, labels, [n], iteration=3))


def test_weights_threads_and_hessians() -> None:
    groups = [4, 60, 1, 5, 300]
    name = "0.7*ndcg@10 + 0.3*mrr + map"
    scores, labels = make(name, groups, 3)
    loss = sr.StochasticRank(name, sfa=False)
    plain = loss.bind(labels, groups).gradient(scores)
    of_query, of_row = np.array([0.5, 0.0, 3.0, 2.0, 1.0]), np.random.default_rng(0).random(370)
    close(loss.bind(labels, groups, of_query).gradient(scores), plain * np.repeat(of_query, groups), 1e-13)
    close(loss.bind(labels, groups, of_row).gradient(scores), plain * of_row, 1e-13)
    for threads in (1, 3):
        assert dataclasses.replace(loss, threads=threads).bind(labels, groups).gradient(scores).tobytes() == plain.tobytes()
    bound = dataclasses.replace(loss, hessian_constant=0.5).bind(labels, groups)
    gradient, hessian = bound.derivatives(np.zeros(370))
    assert np.abs(gradient).mean() == pytest.approx(1)
    np.testing.assert_allclose(hessian, 0.5 + 0.5 * np.abs(gradient))


def test_one_huge_query_is_linear_in_its_terms() -> None:
    rng = np.random.default_rng(3)
    labels, scores = np.sort(rng.choice([0, 0, 0, 0, 1, 2], 50_001))[::-1], rng.normal(size=50_001)
    loss = sr.StochasticRank("ndcg@10", mu=0.0)
    one, other, both = (
        dataclasses.replace(loss, metric=name).bind(labels, [50_001]).gradient(scores)
        for name in ("ndcg@10", "dcg", "ndcg@10 + 0.5*dcg")
    )
    close(both, one + 0.5 * other, 1e-8)


def test_scores_that_are_not_finite() -> None:
    bound = sr.StochasticRank("ndcg@2 + mrr").bind([1, 0, 2], [3])
    for wrong in (np.nan, np.inf):
        with pytest.raises(ValueError, match=r"scores\[1\] = .* is not finite"):
            bound.gradient([0, wrong, 1])


# ---------------------------------------------------------- other losses


@pytest.mark.parametrize("kind", ["yeti", "yeti far", "lambdas", "noisy lambdas"])
@pytest.mark.parametrize("name", SUMS)
def test_pairs_of_terms_add_up(name: str, kind: str) -> None:
    groups = [3, 40, 2]
    rng = np.random.default_rng(4)
    labels, scores = sorted_labels(name, groups, rng), rng.normal(size=45)

    def derivatives(metric: sr.Metric) -> np.ndarray:
        loss: Any = {
            "yeti": lambda: sr.YetiLoss(metric), "yeti far": lambda: sr.YetiLoss(metric, neighbours=7, max_step=2),
            "lambdas": lambda: sr.LambdaMART(metric), "noisy lambdas": lambda: sr.LambdaMART(metric, noise=0.5, samples=2),
        }[kind]()  # fmt: skip
        bound = loss.bind(labels, groups)
        return np.array(bound._of_pairs(scores, 2) if kind.startswith("yeti") else bound.derivatives(scores, 2))

    terms = [weight * derivatives(metric) for weight, metric in sr.parse_metric(name).parts()]
    close(derivatives(sr.parse_metric(name)), np.sum(terms, axis=0), 1e-9)


def test_yeti_has_its_unit_for_sums() -> None:
    scores, labels = np.zeros(800), make("ndcg", [20] * 40, 3)[1]
    hessian = sr.YetiLoss("ndcg@10 + 5*mrr", permutations=200).bind(labels, [20] * 40).derivatives(scores)[1]
    assert hessian.mean() == pytest.approx(1, rel=0.05)


def test_losses_for_which_there_are_no_sums_say_so() -> None:
    with pytest.raises(ValueError, match=r'norm=True .* got the sum "ndcg \+ mrr"; use norm=False, or YetiLoss instead'):
        sr.LambdaMART("ndcg + mrr", norm=True)
    with pytest.raises(ValueError, match="metric of LambdaLoss must be ndcg or dcg"):
        sr.LambdaLoss("ndcg + mrr")


def test_relevance_counts_the_terms_that_take_a_document_for_relevant() -> None:
    """Whatever each of them gains by it."""
    metric = sr.MRR() + sr.BinaryDCG(threshold=1, grades=0.25)
    assert metric.relevance(np.array([0.0, 1.0, 2.0, 4.0])).tolist() == [0.0, 1.0, 2.0, 2.0]


@pytest.mark.parametrize(
    ("reported", "trained"),
    [
        ("mrr", "binarydcg@100:grades=0.25"), ("map@75", "binarydcg@150:grades=0.25"),
        ("precision@5", "binarydcg@100:grades=0.25"), ("mrr + 2*map", "binarydcg@100:grades=0.25"),
        ("recall@60:threshold=2", "binarydcg@120:threshold=2:grades=0.25"), ("mrr + ndcg@10", "dcg@100:gain=linear"),
        ("mrr + map:threshold=1", "dcg@100:gain=linear"), ("err@10", "dcg@100:gain=1.5"),
        ("err + mrr", "dcg@100:gain=linear"), ("err + err@80", "dcg@160:gain=1.5"),
    ],
)  # fmt: skip
def test_a_binary_metric_stands_for_a_binary_gain(reported: str, trained: str) -> None:
    """What counts as relevant is what is trained on; where terms differ in that, grades are."""
    assert str(sr.recommended(reported, booster="xgboost").metric) == trained
    assert sr.recommended(reported, booster="xgboost", train_on="mrr").metric == sr.MRR()


def test_sglb_and_recommended() -> None:
    loss = sr.SGLB(sr.StochasticRank("0.7*ndcg@10 + 0.3*mrr"), diffusion_temperature=1e8)
    assert str(loss).startswith("SGLB(StochasticRank('0.7*ndcg@10 + 0.3*mrr'), ")
    assert loss.bind([0, 1, 2], [3]).gradient([0, 0, 0]).any()
    assert sr.recommended("0.7*ndcg@70 + 0.3*mrr", booster="xgboost").metric == sr.DCG(140, gain="linear")
    assert sr.recommended("mrr + map", booster="xgboost").metric == sr.recommended("mrr", booster="xgboost").metric


# ---------------------------------------------------------- boosters

NAME = "0.7*ndcg@5:gain=linear + 0.3*mrr"


def test_xgboost() -> None:
    xgb = pytest.importorskip("xgboost")
    from stochasticrank_objectives.adapters import XGBoostMetric, XGBoostObjective

    data, record = make_ranking(40, seed=1), {}
    matrix = xgb.DMatrix(data.features, data.labels, qid=data.qid)
    metric = XGBoostMetric(NAME)
    assert metric.name == "0.7*ndcg@5,gain=linear+0.3*mrr"
    model = xgb.train(
        {"max_depth": 2}, matrix, 4, obj=XGBoostObjective(sr.StochasticRank(NAME)), custom_metric=metric, maximize=True,
        evals=[(matrix, "learn")], evals_result=record, verbose_eval=False,
    )  # fmt: skip
    expected = sr.evaluate(NAME, model.predict(matrix, output_margin=True), data.labels, data.groups)
    assert record["learn"][metric.name][-1] == pytest.approx(expected, abs=1e-6)
    assert XGBoostObjective(NAME).metric == sr.parse_metric(NAME)


def test_lightgbm() -> None:
    lgb = pytest.importorskip("lightgbm")
    from stochasticrank_objectives.adapters import LightGBMMetric, LightGBMObjective

    data, record = make_ranking(40, seed=1), {}
    learn = lgb.Dataset(data.features, data.labels, group=data.groups)
    metric = LightGBMMetric(NAME)
    params = {"objective": LightGBMObjective(sr.StochasticRank(NAME)), "verbose": -1, "num_leaves": 4}
    model = lgb.train(params, learn, 4, valid_sets=[learn], feval=metric, callbacks=[lgb.record_evaluation(record)])
    expected = sr.evaluate(NAME, model.predict(data.features), data.labels, data.groups)
    assert record["training"]["0.7*ndcg@5:gain=linear+0.3*mrr"][-1] == pytest.approx(expected)


def test_catboost() -> None:
    catboost = pytest.importorskip("catboost")
    from stochasticrank_objectives.adapters import CatBoostStochasticRank

    data = make_ranking(40, seed=1)
    pool = catboost.Pool(data.features, data.labels, group_id=data.qid)
    model = CatBoostStochasticRank(
        sr.StochasticRank(NAME), iterations=4, depth=2, verbose=False, allow_writing_files=False
    ).fit(pool)  # fmt: skip
    expected = sr.evaluate(NAME, model.predict(pool), data.labels, data.groups)
    assert model.get_evals_result()["learn"]["0.7*ndcg@5:gain=linear+0.3*mrr"][-1] == pytest.approx(expected)


@pytest.mark.parametrize("model", ["model.ubj", "model.txt", "model.cbm"])
def test_command_line(model: str, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    cli = pytest.importorskip("stochasticrank_objectives.experiments.cli")
    path = str(tmp_path / model)
    assert cli.main(["train", "generated:40", path, "--metric", NAME, "--train-on", NAME, "--rounds", "3"]) == 0
    assert f"training {NAME} 0." in capsys.readouterr().out
    (tmp_path / "data.txt").write_text("1 qid:1 1:0\n0 qid:1 1:1\n")
    (tmp_path / "scores.txt").write_text("1\n2\n")
    assert cli.main(["evaluate", str(tmp_path / "data.txt"), str(tmp_path / "scores.txt"), "--metric", f"{NAME},mrr"]) == 0
    printed = [line.rsplit(maxsplit=1) for line in capsys.readouterr().out.splitlines()]
    assert printed == [[NAME, f"{0.7 / np.log2(3) + 0.3 / 2:.6f}"], ["mrr", "0.500000"]]
