"""Terms with different columns of labels: as values, in evaluation, in gradients, and in the boosters."""

from __future__ import annotations

import copy
import gc
import itertools
import pickle
from typing import Any

import hypothesis
import hypothesis.strategies as st
import naive
import naive_columns
import numpy as np
import pandas as pd
import pytest
from test_losses import COPIES, DRAWS, close, spread, within

import stochasticrank_objectives as sr
from stochasticrank_objectives.adapters import columns as attached
from stochasticrank_objectives.adapters import label_columns
from stochasticrank_objectives.datasets import make_ranking

PROPERTY = hypothesis.settings(deadline=None, derandomize=True, database=None, max_examples=60)


@sr.metric(k=3)
def spread_of(relevance):  # type: ignore[no-untyped-def]
    return relevance.max() - relevance.min()


SUMS = [
    "0.7*ndcg@3 + 0.3*price.ndcg@5:gain=linear",
    "mrr + 0.1*price.dcg:gain=linear",
    "err@2 + 2*stars.err + 0.5*price.map:threshold=3",
    "price.ndcg + 0.2*stars.precision@3",
    "ndcg + stars.hit@2 + 0.1*price.rbp:threshold=2",
    "ndcg@4 + 0.5*stars.spread_of",
    "spread_of + 0.5*price.spread_of@2",
]
SETTINGS: list[dict[str, Any]] = [
    {"mu": 0.0, "sfa": False},
    {"mu": 0.4, "sfa": True, "sigma": 0.6, "samples": 3},
    {"mu": 0.2, "sfa": True, "estimator": "reinforce", "sigma": 0.8, "samples": 2},
    {"mu": 0.2, "sfa": 0.5, "noise": "logistic", "samples": 2},
]


def make(n: int, seed: int) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Scores and columns that disagree; prices and stars are all different, so that nothing is left to the order of rows."""
    rng = np.random.default_rng(seed)
    labels = {"grade": rng.integers(0, 5, n), "price": 9 * rng.random(n), "stars": 4 * rng.random(n)}
    return rng.normal(size=n).round(1), {name: values.astype(float) for name, values in labels.items()}


# ---------------------------------------------------------- values


def test_parsed_printed_compared_and_pickled() -> None:
    metric = sr.parse_metric("0.7*ndcg@10 + 0.3*price.dcg@10:gain=linear + Price.MRR + price.spread_of@2")
    expected = (
        0.7 * sr.NDCG(10)
        + 0.3 * sr.Labelled("price", sr.DCG(10, gain="linear"))
        + sr.Labelled("Price", sr.MRR())
        + sr.Labelled("price", sr.parse_metric("spread_of@2"))
    )
    assert metric == expected
    assert str(metric) == "0.7*ndcg@10 + 0.3*price.dcg@10:gain=linear + Price.mrr + price.spread_of@2"
    assert sr.parse_metric(str(metric)) == metric
    assert eval(repr(metric), {name: getattr(sr, name) for name in sr.__all__}) == metric
    for twin in (copy.copy(metric), copy.deepcopy(metric), pickle.loads(pickle.dumps(metric))):
        assert twin == metric
        assert hash(twin) == hash(metric)
    labelled = sr.Labelled("price", "dcg@10")  # type: ignore[arg-type]
    assert labelled == sr.parse_metric("price.dcg@10")
    assert labelled.k == labelled.cut == 10
    assert labelled + labelled == 2 * labelled
    assert labelled != sr.Labelled("cost", sr.DCG(10))


@pytest.mark.parametrize(
    ("column", "metric", "message"),
    [
        ("a b", "mrr", "column must be one word"),
        ("", "mrr", "column must be one word"),
        (3, "mrr", "column must be one word"),
        ("a", "ndcg + mrr", "a column goes with a metric of one column, got 'ndcg \\+ mrr'; name it at each of its terms"),
        ("a", "b.mrr", "a column goes with a metric of one column, got 'b.mrr'"),
        ("a", "nothing", "unknown metric"),
    ],
)
def test_wrong_ones(column: Any, metric: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        sr.Labelled(column, metric)


# ---------------------------------------------------------- labels


LABELS = {"grade": [0, 1, 2], "price": [3.0, 0.0, 1.0]}


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([0, 1, 2], "the metric needs a label column 'price', but the labels have no columns; give them as a mapping"),
        ({"grade": [0, 1, 2]}, "the metric needs a label column 'price'; there are 'grade'"),
        ({}, "labels has no columns"),
        ({**LABELS, "price": [1, 2]}, r'labels\["price"\] must have one value per row, 3 in all, got 2'),
        ({**LABELS, "price": [[1], [2], [3]]}, r'labels\["price"\] must have one dimension, got shape \(3, 1\)'),
        ({**LABELS, "price": [1, np.nan, 3]}, r'labels\["price"\]\[1\] = nan is not finite'),
        ({**LABELS, "price": [1, -2, 3]}, r'labels\["price"\]\[1\] = -2 is negative'),
        ({**LABELS, "price": ["a", "b", "c"]}, r'labels\["price"\] must be a sequence of numbers'),
        ({**LABELS, "price": [0, 7, 1]}, r'labels\["price"\]\[1\] = 7 is above max_grade=4'),
        ({**LABELS, "grade": [0, np.inf, 1]}, r'labels\["grade"\]\[1\] = inf is not finite'),
    ],
)
def test_labels_that_are_refused(labels: Any, message: str) -> None:
    for call in (
        lambda: sr.StochasticRank("ndcg + price.err").bind(labels, [3]),
        lambda: sr.evaluate("ndcg + price.err", [0, 0, 0], labels, [3]),
    ):
        with pytest.raises(ValueError, match=message):
            call()


def test_columns_of_all_kinds() -> None:
    scores, metric = [0.1, 0.3, 0.2], "mrr + 0.5*price.dcg@2:gain=linear"
    expected = 1.0 + 0.5 * (0.0 + 1.0 / np.log2(3))
    for labels in (LABELS, pd.DataFrame(LABELS), {name: pd.Series(values) for name, values in LABELS.items()}):
        assert sr.evaluate(metric, scores, labels, [3]) == pytest.approx(expected)  # type: ignore[arg-type]
    # a column that no term names is not looked at; the first is for terms without a column
    assert sr.evaluate("mrr", scores, {**LABELS, "name": ["a", "b", "c"]}, [3]) == 1.0  # type: ignore[dict-item]
    assert sr.evaluate("mrr", scores, pd.DataFrame(LABELS), [3]) == 1.0
    assert sr.evaluate("price.mrr", scores, LABELS, [3]) == 0.5
    one, other = (
        sr.StochasticRank(m).bind(y, [3]).gradient(scores) for m, y in (("price.dcg", LABELS), ("dcg", LABELS["price"]))
    )
    assert one.tobytes() == other.tobytes()
    binary = sr.StochasticRank("price.mrr + price.map", mu=1).bind(LABELS, [3]).gradient(scores)
    assert binary.tobytes() == sr.StochasticRank("mrr + map", mu=1).bind(LABELS["price"], [3]).gradient(scores).tobytes()


# ---------------------------------------------------------- evaluation and gradients


@pytest.mark.parametrize("name", SUMS)
def test_evaluation_equals_brute_force(name: str) -> None:
    groups = [1, 2, 3, 4, 5, 6]
    scores, labels = make(sum(groups), len(name))
    scores = scores.round(0)
    relevance = naive_columns.relevance(name, labels)
    for ties in ("worst", "best", "mean"):
        actual = sr.evaluate(name, scores, labels, groups, ties=ties, per_query=True)  # type: ignore[call-overload]
        for query, (a, b) in enumerate(itertools.pairwise(np.cumsum([0, *groups]))):
            mine = {column: values[a:b] for column, values in labels.items()}
            numbers = naive_columns.of_numbers(name, mine).function
            if ties == "mean":
                expected = np.mean([numbers(np.array(order)) for order in naive.tied_orders(list(scores[a:b]))])
            else:
                sign = 1 if ties == "worst" else -1
                expected = numbers(np.lexsort((sign * relevance[a:b], -scores[a:b])))
            assert actual[query] == pytest.approx(expected, rel=1e-12, abs=1e-15)


def test_queries_that_are_empty_for_some_terms() -> None:
    labels = {"grade": [0, 0, 0, 1], "price": [0, 0, 0, 0]}
    assert sr.evaluate("mrr + 2*price.mrr", [2, 1, 2, 1], labels, [2, 2], empty=1, per_query=True).tolist() == [3, 2.5]
    skipped = sr.evaluate("mrr + 2*price.mrr", [2, 1, 2, 1], labels, [2, 2], empty="skip", per_query=True)
    assert np.isnan(skipped[0])
    assert skipped[1] == 0.5


@pytest.mark.parametrize("name", SUMS)
def test_gradients_equal_naive(name: str) -> None:
    groups = [1, 2, 2, 3, 5, 9, 14]
    for case, keywords in enumerate(SETTINGS):
        scores, labels = make(sum(groups), case)
        loss = sr.StochasticRank(name, seed=case, **keywords)
        expected = naive_columns.gradient(loss, scores, labels, groups, iteration=case)
        close(loss.bind(labels, groups).gradient(scores, case), expected)


@pytest.mark.parametrize("kind", ["near", "plain", "far"])
@pytest.mark.parametrize("name", [*SUMS[:5], "ndcg@150 + price.map@40"])
def test_long_lists_equal_the_formula(name: str, kind: str) -> None:
    """Lists for which documents are summed in boxes; every term sees the documents where the noise and mu have put them."""
    n, sigma, mu = 300, 0.9, 0.3
    _, labels = make(n, 1)
    labels = {column: values * (np.random.default_rng(2).random(n) < 0.3) for column, values in labels.items()}
    labels["price"] += 1e-9 * np.arange(n)[::-1]  # so that no two documents tie in relevance
    scores = spread(kind, n, np.random.default_rng(3))
    r = naive_columns.relevance(name, labels)
    noise = np.empty(n)
    noise[np.argsort(-r, kind="stable")] = naive.noise(n, iteration=1)
    x = scores - sigma * mu * r
    parts = naive_columns.terms(name, labels)
    expected = np.sum([w * naive.ccs_by_formula(m, x, column, noise, sigma=sigma) for w, m, column in parts], axis=0)
    close(sr.StochasticRank(name, mu=mu, sfa=False, sigma=sigma).bind(labels, [n]).gradient(scores, 1), expected)


@pytest.mark.parametrize("mu", [0.0, 0.3])
@pytest.mark.parametrize("name", [SUMS[0], SUMS[2], SUMS[5]])
def test_mean_of_ccs_is_the_exact_gradient(name: str, mu: float) -> None:
    for n, exact in ((2, naive.exact_pair), (3, naive.exact_triple)):
        scores, labels = np.array([0.3, -0.4, 0.1])[:n], {c: v[:n] for c, v in make(3, 5)[1].items()}
        moved = scores - 0.7 * mu * naive_columns.relevance(name, labels)
        truth = exact(naive_columns.of_numbers(name, labels), moved, np.arange(n), sigma=0.7)
        loss = sr.StochasticRank(name, sigma=0.7, mu=mu, sfa=False, samples=DRAWS, seed=n)
        bound = loss.bind({c: np.tile(v, COPIES) for c, v in labels.items()}, [n] * COPIES)
        found = bound.gradient(np.tile(scores, COPIES)).reshape(COPIES, n)
        within(found, truth)
        assert (found.std(axis=0, ddof=1) / COPIES**0.5).max() <= 0.02 * np.abs(truth).max() + 1e-12


@PROPERTY
@hypothesis.given(st.data())
def test_naive_on_whatever_hypothesis_finds(data: st.DataObject) -> None:
    n = data.draw(st.integers(1, 8))
    name = data.draw(st.sampled_from(SUMS))
    grades = st.lists(st.sampled_from([0.0, 0.5, 1.0, 2.0, 4.0]), min_size=n, max_size=n)
    labels = {column: np.array(data.draw(grades)) for column in ("grade", "stars")}
    labels["price"] = np.array(data.draw(st.permutations([0.0, *np.linspace(0.7, 4.0, n - 1)])))
    hypothesis.assume(len(set(naive_columns.relevance(name, labels).round(9))) == n)
    scores = np.array(
        data.draw(st.lists(st.sampled_from([-1.0, 0.0, 1.0]) | st.floats(-8, 8, width=16), min_size=n, max_size=n))
    )
    kinds: list[dict[str, Any]] = [{}, {"estimator": "reinforce"}, {"noise": "logistic"}]
    loss = sr.StochasticRank(
        name,
        mu=data.draw(st.sampled_from([0.0, 0.1, 2.0])),
        sfa=data.draw(st.booleans()),
        **data.draw(st.sampled_from(kinds)),
    )
    close(loss.bind(labels, [n]).gradient(scores, 3), naive_columns.gradient(loss, scores, labels, [n], iteration=3))


@pytest.mark.parametrize("name", [SUMS[0], SUMS[2], "price.ndcg", "ndcg + price.spread_of"])
def test_the_checker_passes(name: str) -> None:
    sr.testing.check_metric(name, monotone="spread" not in name)


# ---------------------------------------------------------- other losses


def test_losses_of_pairs() -> None:
    for loss in (sr.YetiLoss, sr.LambdaMART):
        with pytest.raises(
            ValueError, match=f"{loss.__name__} needs one column of labels, and mrr \\+ price.dcg has several"
        ):
            loss("mrr + price.dcg")
        one, other = (loss(m).bind(y, [3]).gradient([0, 0, 0]) for m, y in (("price.dcg", LABELS), ("dcg", LABELS["price"])))
        assert one.tobytes() == other.tobytes()
    expected = "StochasticRank('mrr + price.dcg@15', sfa=False, hessian_constant=0.0)"
    assert str(sr.recommended("mrr + price.dcg@15", booster="lightgbm")) == expected
    assert sr.SGLB(sr.StochasticRank("mrr + price.dcg")).bind(LABELS, [3]).gradient([0, 0, 0]).any()


# ---------------------------------------------------------- boosters

NAME = "0.5*ndcg@5 + 0.01*price.dcg@5:gain=linear"


def two_sets() -> tuple[Any, Any]:
    """Data to learn from and to evaluate, each with prices that features tell something about."""
    sets = [make_ranking(30, seed=1), make_ranking(12, seed=2)]
    return tuple((data, {"price": np.abs(data.features[:, 0] * 10).round(1)}) for data in sets)  # type: ignore[return-value]


def value(data: Any, prices: Any, scores: Any) -> float:
    return sr.evaluate(NAME, scores, {"label": data.labels, **prices}, data.groups)


def test_xgboost() -> None:
    xgb = pytest.importorskip("xgboost")
    from stochasticrank_objectives.adapters import XGBoostMetric, XGBoostObjective

    (data, prices), (other, other_prices) = two_sets()
    learn = label_columns(xgb.DMatrix(data.features, data.labels, qid=data.qid), prices)
    test = label_columns(xgb.DMatrix(other.features, other.labels, qid=other.qid), pd.DataFrame(other_prices))
    record: Any = {}
    loss = sr.StochasticRank(NAME)
    model = xgb.train(
        {"max_depth": 3}, learn, 5, obj=XGBoostObjective(loss), custom_metric=XGBoostMetric(NAME),
        evals=[(learn, "learn"), (test, "test")], evals_result=record, verbose_eval=False,
    )  # fmt: skip
    key = NAME.replace(" ", "").replace(":", ",")
    for matrix, name, given in ((learn, "learn", (data, prices)), (test, "test", (other, other_prices))):
        expected = value(*given, model.predict(matrix, output_margin=True))
        assert record[name][key][-1] == pytest.approx(expected, abs=1e-5)
    gradient = XGBoostObjective(loss)(np.zeros(len(data.labels)), learn, 3)[0]
    close(gradient, loss.bind({"label": data.labels, **prices}, data.groups).gradient(np.zeros(len(data.labels)), 3), 1e-6)
    bare = xgb.DMatrix(data.features, data.labels, qid=data.qid)
    with pytest.raises(ValueError, match=r"needs a label column 'price', .* to an adapter with label_columns\(data, ...\)"):
        xgb.train({}, bare, 1, obj=XGBoostObjective(loss))


def test_lightgbm() -> None:
    lgb = pytest.importorskip("lightgbm")
    from sklearn.model_selection import GroupKFold

    from stochasticrank_objectives.adapters import LightGBMMetric, LightGBMObjective

    (data, prices), (other, other_prices) = two_sets()
    learn = label_columns(lgb.Dataset(data.features, data.labels, group=data.groups, free_raw_data=False), prices)
    test = label_columns(lgb.Dataset(other.features, other.labels, group=other.groups, reference=learn), other_prices)
    record: Any = {}
    params = {"objective": LightGBMObjective(sr.StochasticRank(NAME)), "verbose": -1, "num_leaves": 8, "min_data_in_leaf": 5}
    metric = LightGBMMetric(NAME)
    model = lgb.train(
        params, learn, 5, valid_sets=[learn, test], valid_names=["learn", "test"], feval=metric,
        callbacks=[lgb.record_evaluation(record)],
    )  # fmt: skip
    key = NAME.replace(" ", "")
    for name, given in (("learn", (data, prices)), ("test", (other, other_prices))):
        assert record[name][key][-1] == pytest.approx(value(*given, model.predict(given[0].features)), rel=1e-6)
    with_folds = lgb.cv(params, learn, 2, folds=GroupKFold(3).split(data.features, groups=data.qid), feval=metric)
    assert with_folds[f"valid {key}-mean"][-1] > 0
    bare = lgb.Dataset(data.features, data.labels, group=data.groups)
    with pytest.raises(ValueError, match="needs a label column 'price'"):
        lgb.train(params, bare, 1)


def test_catboost() -> None:
    catboost = pytest.importorskip("catboost")
    from stochasticrank_objectives.adapters import CatBoostStochasticRank

    (data, prices), (other, other_prices) = two_sets()
    learn = label_columns(catboost.Pool(data.features, data.labels, group_id=data.qid), prices)
    test = label_columns(catboost.Pool(other.features, other.labels, group_id=other.qid), other_prices)
    settings: Any = {"iterations": 5, "depth": 3, "verbose": False, "allow_writing_files": False}
    model = CatBoostStochasticRank(sr.StochasticRank(NAME), **settings).fit(learn, eval_set=test, use_best_model=False)
    key = NAME.replace(" ", "")
    for pool, name, given in ((learn, "learn", (data, prices)), (test, "validation", (other, other_prices))):
        assert model.get_evals_result()[name][key][-1] == pytest.approx(value(*given, model.predict(pool)))
    bare = catboost.Pool(data.features, data.labels, group_id=data.qid)
    with pytest.raises(ValueError, match="needs a label column 'price'"):
        CatBoostStochasticRank(sr.StochasticRank(NAME), **settings).fit(bare)
    twin = label_columns(catboost.Pool(data.features, data.labels, group_id=data.qid), {"price": prices["price"] + 1})
    with pytest.raises(ValueError, match="different queries or label columns"):
        CatBoostStochasticRank(sr.StochasticRank(NAME), **settings).fit(learn, eval_set=twin)


def test_columns_of_data() -> None:
    xgb = pytest.importorskip("xgboost")
    data = xgb.DMatrix(np.zeros((3, 1)), [0, 1, 2], group=[3])
    with pytest.raises(ValueError, match="the label column 'price' must have one value per row, 3 in all, got 2"):
        label_columns(data, {"price": [1, 2]})
    with pytest.raises(ValueError, match="the label column 'price' must be a sequence of numbers"):
        label_columns(data, {"price": ["a", "b", "c"]})
    with pytest.raises(ValueError, match="the column 'label' is the booster's own label"):
        label_columns(data, {"label": [1, 2, 3]})
    with pytest.raises(ValueError, match="data must be a DMatrix, a Dataset or a Pool, got tuple"):
        label_columns((1, 2), {"price": [1, 2]})
    assert attached.columns_of(label_columns(data, {"price": [1, 2, 3]}))["price"].tolist() == [1, 2, 3]
    before = len(attached._attached)
    del data
    gc.collect()
    assert len(attached._attached) == before - 1
