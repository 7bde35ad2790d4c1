"""alpha-nDCG and ERR-IA against TREC's ndeval, written-out arithmetic and brute force."""

from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Callable
from typing import Any

import hypothesis
import hypothesis.strategies as st
import naive
import numpy as np
import pyndeval
import pytest
from test_losses import COPIES, DRAWS, close, within

import stochasticrank_objectives as sr
from stochasticrank_objectives.datasets import make_ranking

PROPERTY = hypothesis.settings(deadline=None, derandomize=True, database=None, max_examples=60)
TOPICS = ("a", "b", "c")
METRICS: list[Any] = [
    sr.AlphaNDCG(topics=TOPICS),
    sr.AlphaNDCG(3, topics=TOPICS, alpha=0.3),
    sr.AlphaNDCG(5, topics=TOPICS, alpha=1),
    sr.AlphaNDCG(2, topics=TOPICS, alpha=0),
    sr.AlphaNDCG(4, topics="a", threshold=1),
    sr.ERRIA(topics=TOPICS),
    sr.ERRIA(3, topics=TOPICS, max_grade=5),
]
Columns = dict[str, np.ndarray]


def make(n: int, seed: int) -> tuple[np.ndarray, Columns]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=n).round(1), {topic: rng.choice([0.0, 0.0, 0.0, 1.0, 2.0, 4.0], n) for topic in TOPICS}


# ---------------------------------------------------------- from the definitions


def alpha_dcg(metric: Any, ranked: list[list[bool]]) -> float:
    """Of documents in ranked order, each with what topics it is about."""
    total, seen = 0.0, [0] * len(metric.topics)
    for i, about in enumerate(ranked[: metric.k]):
        total += sum((1 - metric.alpha) ** seen[t] for t, yes in enumerate(about) if yes) / math.log2(i + 2)
        seen = [count + yes for count, yes in zip(seen, about, strict=True)]
    return total


def value(metric: Any, labels: Columns, order: Any) -> float:
    """The metric of documents in this order."""
    order = [int(j) for j in order]
    if isinstance(metric, sr.ERRIA):
        of_topics = [labels[topic][order] for topic in metric.topics if labels[topic].any()]
        return sum(naive.value(sr.ERR(metric.k, max_grade=metric.max_grade), r) for r in of_topics) / max(len(of_topics), 1)
    about = [[bool(labels[topic][j] > metric.threshold) for topic in metric.topics] for j in range(len(order))]
    best: list[list[bool]] = []
    left = list(range(len(order)))
    while left:
        gains = [alpha_dcg(sr.AlphaNDCG(topics=metric.topics, alpha=metric.alpha), [*best, about[j]]) for j in left]
        best.append(about[left.pop(int(np.argmax(np.round(gains, 12))))])
    ideal = alpha_dcg(metric, best)
    return alpha_dcg(metric, [about[j] for j in order]) / ideal if ideal > 0 else 0.0


def of_numbers(metric: Any, labels: Columns) -> sr.FunctionMetric:
    function: Callable[[Any], float] = lambda numbers: value(metric, labels, numbers)  # noqa: E731
    return sr.FunctionMetric(function=function, name="numbers")


def relevance(metric: Any, labels: Columns) -> np.ndarray:
    """By which mu shifts and ties are ordered, the largest in the data being 4."""
    columns = [labels[topic] for topic in metric.topics]
    if isinstance(metric, sr.AlphaNDCG):
        columns = [(column > metric.threshold).astype(float) for column in columns]
    total = np.sum([column / max(column.max(), 1e-300) for column in columns], axis=0)
    return total * 4.0 / max(total.max(), 1e-300)


def gradient(loss: Any, scores: np.ndarray, labels: Columns) -> np.ndarray:
    """For one query. Where relevance ties, the first topic decides which document has which noise, then the second."""
    metric, n = loss.metric, len(scores)
    gains = [(labels[t] > metric.threshold) if isinstance(metric, sr.AlphaNDCG) else labels[t] for t in metric.topics]
    noise = np.empty(n)
    r = relevance(metric, labels)
    noise[np.lexsort([*(-np.asarray(g, float) for g in reversed(gains)), -r])] = naive.noise(
        n, seed=loss.seed, law=loss.noise
    )
    moved = scores - loss.sigma * loss.mu * r
    found = naive.ccs(of_numbers(metric, labels), moved, np.arange(n), noise, sigma=loss.sigma, law=loss.noise)
    return naive.sfa(found, scores, loss.nu, float(loss.sfa)) if loss.sfa else found


# ---------------------------------------------------------- values


def test_arithmetic() -> None:
    labels = {"a": [1, 1, 0, 0], "b": [1, 0, 1, 0], "c": [0, 0, 0, 0]}
    scores = [1, 4, 3, 2]  # a, then b, then nothing, then a and b
    found = 1 + 1 / math.log2(3) + (0.5 + 0.5) / math.log2(5)
    ideal = 2 + 0.5 / math.log2(3) + 0.5 / math.log2(4)  # the first document, then either of the two
    assert sr.evaluate("alphandcg:topics=a|b|c", scores, labels, [4]) == pytest.approx(found / ideal)
    of_a = 1 / 2 + 1 / 4 * (1 / 2) * (1 / 2)
    of_b = 1 / 2 * (1 / 2) + 1 / 4 * (1 / 2) * (1 / 2)
    assert sr.evaluate("erria:topics=a|b|c:max_grade=1", scores, labels, [4]) == pytest.approx((of_a + of_b) / 2)


def test_equals_ndeval() -> None:
    """Its ERR-IA is divided by what a list would have of which every document is about all topics.

    Where the best next documents tie, it takes the one whose name comes last in the alphabet, we the first in the data.
    """
    for seed in range(30):
        rng = np.random.default_rng(seed)
        n, topics = int(rng.integers(1, 25)), int(rng.integers(1, 5))
        about = (rng.random((topics, n)) < 0.3).astype(int)
        about[:, 0] = 1  # so that no topic is without a document, which ndeval would not know of
        scores = rng.permutation(n).astype(float)
        names = [f"d{99 - j}" for j in range(n)]
        qrels = [pyndeval.SubtopicQrel("q", f"{t}", names[j], int(about[t, j])) for t in range(topics) for j in range(n)]
        run = [pyndeval.ScoredDoc("q", names[j], scores[j]) for j in range(n)]
        measures = [f"{name}@{k}" for name in ("alpha-nDCG", "ERR-IA") for k in (5, 10, 20)]
        for alpha in (0.5, 0.3):
            theirs = pyndeval.ndeval(qrels, run, measures=measures, alpha=alpha)["q"]
            labels = {f"t{t}": about[t] for t in range(topics)}
            for k in (5, 10, 20):
                ours = sr.evaluate(sr.AlphaNDCG(k, topics=list(labels), alpha=alpha), scores, labels, [n])
                assert ours == pytest.approx(theirs[f"alpha-nDCG@{k}"], rel=1e-6)
                if alpha == 0.5:
                    largest = sum(0.5 * 0.5**i / (i + 1) for i in range(k))
                    ours = sr.evaluate(sr.ERRIA(k, topics=list(labels), max_grade=1), scores, labels, [n])
                    assert ours / largest == pytest.approx(theirs[f"ERR-IA@{k}"], rel=1e-6)


@pytest.mark.parametrize("metric", METRICS, ids=str)
def test_evaluation_equals_brute_force(metric: Any) -> None:
    for n in (1, 2, 3, 5, 6):
        scores, labels = make(n, n)
        scores = scores.round(0)
        orders = list(naive.tied_orders(list(scores)))
        expected = np.mean([value(metric, labels, order) for order in orders])
        assert sr.evaluate(metric, scores, labels, [n], ties="mean") == pytest.approx(expected, rel=1e-12, abs=1e-15)
        assert sr.evaluate(metric, -np.arange(n), labels, [n]) == pytest.approx(value(metric, labels, range(n)), rel=1e-12)


def test_queries_without_topics() -> None:
    labels = {"a": [0, 0, 1, 0], "b": [0, 0, 0, 0], "c": [0, 0, 0, 0]}
    for metric in ("alphandcg:topics=a|b", "erria:topics=a|b:max_grade=1"):
        values = sr.evaluate(metric, [2, 1, 2, 1], labels, [2, 2], empty="skip", per_query=True)
        assert np.isnan(values[0])
        assert values[1] in (1.0, 0.5)
        assert sr.evaluate(metric, [2, 1, 2, 1], labels, [2, 2], empty=1, per_query=True)[0] == 1
        assert not sr.StochasticRank(metric).bind(labels, [2, 2]).gradient([2, 1, 2, 1])[:2].any()


# ---------------------------------------------------------- gradients


@pytest.mark.parametrize("metric", METRICS, ids=str)
def test_gradients_equal_brute_force(metric: Any) -> None:
    for n in (1, 2, 3, 6, 9):
        for keywords in ({"mu": 0.0, "sfa": False}, {"mu": 0.4, "sigma": 0.6}, {"mu": 0.2, "noise": "logistic"}):
            scores, labels = make(n, n)
            loss = sr.StochasticRank(metric, seed=n, **keywords)
            close(loss.bind(labels, [n]).gradient(scores), gradient(loss, scores, labels))


@pytest.mark.parametrize("metric", METRICS[:2] + METRICS[5:6], ids=str)
def test_mean_of_ccs_is_the_exact_gradient(metric: Any) -> None:
    for n, exact in ((2, naive.exact_pair), (3, naive.exact_triple)):
        scores, labels = np.array([0.3, -0.4, 0.1])[:n], {"a": [1, 0, 1][:n], "b": [0, 2, 0][:n], "c": [0, 2, 1][:n]}
        labels = {topic: np.array(column, float) for topic, column in labels.items()}
        truth = exact(of_numbers(metric, labels), scores, np.arange(n), sigma=0.7)
        loss = sr.StochasticRank(metric, sigma=0.7, mu=0.0, sfa=False, samples=DRAWS, seed=n)
        bound = loss.bind({topic: np.tile(column, COPIES) for topic, column in labels.items()}, [n] * COPIES)
        within(bound.gradient(np.tile(scores, COPIES)).reshape(COPIES, n), truth)


@PROPERTY
@hypothesis.given(st.data())
def test_brute_force_on_whatever_hypothesis_finds(data: st.DataObject) -> None:
    n = data.draw(st.integers(1, 7))
    metric = data.draw(st.sampled_from(METRICS))
    labels = {t: np.array(data.draw(st.lists(st.sampled_from([0.0, 1.0, 3.0]), min_size=n, max_size=n))) for t in TOPICS}
    scores = np.array(data.draw(st.lists(st.floats(-8, 8, width=16), min_size=n, max_size=n)))
    loss = sr.StochasticRank(metric, mu=data.draw(st.sampled_from([0.0, 0.1, 2.0])), sfa=data.draw(st.booleans()))
    close(loss.bind(labels, [n]).gradient(scores), gradient(loss, scores, labels))


@pytest.mark.parametrize("metric", [METRICS[1], METRICS[5], "0.5*ndcg@5 + alphandcg@5:topics=a|b|c"], ids=str)
def test_the_checker_passes(metric: Any) -> None:
    sr.testing.check_metric(metric)


# ---------------------------------------------------------- as values


def test_parsed_printed_compared_and_pickled() -> None:
    for metric, name in (
        (sr.AlphaNDCG(10, topics=["a", "b"]), "alphandcg@10:topics=a|b"),
        (sr.AlphaNDCG(topics=("a",), alpha=0.3, threshold=1), "alphandcg:topics=a:alpha=0.3:threshold=1"),
        (sr.ERRIA(5, topics="a", max_grade=1), "erria@5:topics=a:max_grade=1"),
        (0.5 * sr.ERRIA(topics=["a", "b"]) + sr.NDCG(5), "0.5*erria:topics=a|b + ndcg@5"),
    ):
        assert str(metric) == name
        assert sr.parse_metric(name) == metric
        assert eval(repr(metric), {name: getattr(sr, name) for name in sr.__all__}) == metric
        for twin in (copy.deepcopy(metric), pickle.loads(pickle.dumps(metric))):
            assert twin == metric
            assert hash(twin) == hash(metric)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: sr.AlphaNDCG(topics=[]), "topics must be the names of different label columns"),
        (lambda: sr.ERRIA(topics=["a", "a"]), "topics must be the names of different label columns"),
        (lambda: sr.ERRIA(topics=["a b"]), "a topic is one word"),
        (lambda: sr.AlphaNDCG(topics=["a", 3]), "a topic is one word"),
        (lambda: sr.AlphaNDCG(topics=["a"], alpha=1.5), "alpha must be a finite number at least 0 and at most 1"),
        (lambda: sr.AlphaNDCG(topics=["a"], threshold=-1), "threshold must be"),
        (lambda: sr.ERRIA(topics=["a"], max_grade=0), "max_grade must be"),
        (lambda: sr.Labelled("a", sr.ERRIA(topics=["b"])), "a column goes with a metric of one column"),
        (lambda: sr.evaluate("erria:topics=a|z", [0], {"a": [1]}, [1]), "needs a label column 'z'; there are 'a'"),
        (lambda: sr.evaluate("erria:topics=a", [0], {"a": [9]}, [1]), r'labels\["a"\]\[0\] = 9 is above max_grade=4'),
        (lambda: sr.YetiLoss("erria:topics=a|b"), "YetiLoss needs one column of labels"),
    ],
)
def test_wrong_ones(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


# ---------------------------------------------------------- boosters


@pytest.mark.parametrize("booster", ["xgboost", "lightgbm", "catboost"])
def test_boosters(booster: str) -> None:
    """A training on alpha-nDCG makes it better, and reports what `evaluate` says."""
    adapters = pytest.importorskip("stochasticrank_objectives.adapters")
    data = make_ranking(60, seed=1)
    sides = {"left": data.labels * (data.features[:, 0] < 0), "right": data.labels * (data.features[:, 0] >= 0)}
    name = "alphandcg@5:topics=left|right"

    def trained(loss: Any, name: str) -> tuple[Any, Any]:
        record: Any = {}
        if booster == "xgboost":
            xgb = pytest.importorskip("xgboost")
            matrix = adapters.label_columns(xgb.DMatrix(data.features, data.labels, qid=data.qid), sides)
            model = xgb.train(
                {"max_depth": 3}, matrix, 15, obj=adapters.XGBoostObjective(loss), evals=[(matrix, "learn")],
                custom_metric=adapters.XGBoostMetric(name), evals_result=record, verbose_eval=False,
            )  # fmt: skip
            return model.predict(matrix, output_margin=True), record["learn"]
        if booster == "lightgbm":
            lgb = pytest.importorskip("lightgbm")
            learn = adapters.label_columns(lgb.Dataset(data.features, data.labels, group=data.groups), sides)
            model = lgb.train(
                {"objective": adapters.LightGBMObjective(loss), "verbose": -1, "num_leaves": 8}, learn, 15,
                valid_sets=[learn], feval=adapters.LightGBMMetric(name), callbacks=[lgb.record_evaluation(record)],
            )  # fmt: skip
            return model.predict(data.features), record["training"]
        catboost = pytest.importorskip("catboost")
        pool = adapters.label_columns(catboost.Pool(data.features, data.labels, group_id=data.qid), sides)
        model = adapters.CatBoostStochasticRank(
            loss, eval_metric=name, iterations=15, depth=3, verbose=False, allow_writing_files=False
        ).fit(pool)  # fmt: skip
        return model.predict(pool), model.get_evals_result()["learn"]

    scores, record = trained(sr.StochasticRank(name), name)
    expected = sr.evaluate(name, scores, sides, data.groups)
    assert next(iter(record.values()))[-1] == pytest.approx(expected, abs=1e-5)
    assert expected > sr.evaluate(name, np.zeros(len(data.labels)), sides, data.groups, ties="mean") + 0.1
