"""Values of metrics against the definitions, scikit-learn and trec_eval (through ir_measures)."""

from __future__ import annotations

import itertools
import math
import pickle

import hypothesis
import hypothesis.strategies as st
import ir_measures
import naive
import numpy as np
import pandas as pd
import pytest
import sklearn.metrics

import stochasticrank_objectives as sr

PROPERTY = hypothesis.settings(deadline=None, derandomize=True, database=None, max_examples=150)
TIES = ["worst", "mean", "best"]


# ---------------------------------------------------------- by hand


def test_values_written_out() -> None:
    scores, labels = [4.0, 3.0, 2.0, 1.0], [1, 0, 3, 1]

    def value(name: str) -> float:
        return sr.evaluate(name, scores, labels, [4])

    dcg = 1 / math.log2(2) + 0 + 7 / math.log2(4) + 1 / math.log2(5)
    ideal = 7 / math.log2(2) + 1 / math.log2(3) + 1 / math.log2(4)
    assert value("dcg") == pytest.approx(dcg)
    assert value("ndcg") == pytest.approx(dcg / ideal)
    assert value("ndcg@3") == pytest.approx((1 + 7 / 2) / ideal)
    assert value("ndcg@1") == pytest.approx(1 / 7)
    assert value("dcg@3:gain=linear") == pytest.approx(1 + 3 / 2)
    assert value("ndcg@1:gain=linear") == pytest.approx(1 / 3)
    assert value("err") == pytest.approx(1 / 16 + (15 / 16) * (7 / 16) / 3 + (15 / 16) * (9 / 16) * (1 / 16) / 4)
    assert value("err@2") == pytest.approx(1 / 16)
    assert value("err@1:max_grade=3") == pytest.approx(1 / 8)
    assert value("mrr") == 1
    assert value("mrr:threshold=1") == pytest.approx(1 / 3)
    assert value("mrr@2:threshold=1") == 0
    assert value("map") == pytest.approx((1 / 1 + 2 / 3 + 3 / 4) / 3)
    assert value("map@2") == pytest.approx(1 / 3)
    assert value("precision@3") == pytest.approx(2 / 3)
    assert value("precision@8") == pytest.approx(3 / 8)
    assert value("recall@3") == pytest.approx(2 / 3)
    assert value("hit@1:threshold=1") == 0
    assert value("hit@3:threshold=1") == 1
    assert value("rbp") == pytest.approx(0.2 * (1 + 0.8**2 + 0.8**3))
    assert value("rbp@3:p=0.5") == pytest.approx(0.5 * (1 + 0.25))
    found = sr.evaluate("pfound", scores, [0.5, 0, 1, 0.3], [4])
    assert found == pytest.approx(0.5 + 0.85**2 * 0.5 * 1)
    assert sr.evaluate("pfound:decay=1", scores, [0.5, 0, 0.4, 0], [4]) == pytest.approx(1 - 0.5 * 0.6)


# ---------------------------------------------------------- definitions


@pytest.mark.parametrize("ties", TIES)
@pytest.mark.parametrize("name", naive.NAMES)
def test_every_metric_with_ties_equals_brute_force(name: str, ties: str) -> None:
    rng = np.random.default_rng(len(name))
    groups = [1, 2, 3, 4, 5, 5, 6, 6, 6]
    labels = np.concatenate([naive.random_labels(name, n, rng) for n in groups])
    scores = rng.integers(0, 3, len(labels)).astype(float)
    scores[-6:] = 1.5  # one query ties altogether
    starts = np.cumsum([0, *groups])
    expected = [naive.tied_value(name, scores[a:b], labels[a:b], ties) for a, b in itertools.pairwise(starts)]
    actual = sr.evaluate(name, scores, labels, groups, ties=ties, per_query=True)
    np.testing.assert_allclose(actual, expected, rtol=1e-12, atol=1e-15)
    assert sr.evaluate(name, scores, labels, groups, ties=ties) == pytest.approx(np.mean(expected), rel=1e-12)


@pytest.mark.parametrize("ties", ["worst", "best"])
@pytest.mark.parametrize("name", naive.NAMES)
def test_long_lists_equal_naive(name: str, ties: str) -> None:
    rng = np.random.default_rng(3)
    groups = [33, 80, 400]
    labels = np.concatenate([naive.random_labels(name, n, rng) for n in groups])
    scores = rng.normal(size=len(labels)).round(1)
    starts = np.cumsum([0, *groups])
    expected = [naive.sorted_value(name, scores[a:b], labels[a:b], ties) for a, b in itertools.pairwise(starts)]
    np.testing.assert_allclose(
        sr.evaluate(name, scores, labels, groups, ties=ties, per_query=True), expected, rtol=1e-12, atol=1e-15
    )


@pytest.mark.parametrize("name", naive.FAMILIES)
def test_mean_of_long_ties_lies_where_random_orders_do(name: str) -> None:
    """Ties too long for brute force: 4000 random orders must average to the exact mean within their standard error."""
    rng = np.random.default_rng(5)
    metric = f"{name}@15"
    labels = naive.random_labels(metric, 40, rng) * (rng.random(40) < 0.3)
    scores = rng.integers(0, 2, 40).astype(float)
    samples = [naive.value(metric, labels[np.lexsort((rng.random(40), -scores))]) for _ in range(4000)]
    exact = sr.evaluate(metric, scores, labels, [40], ties="mean")
    assert abs(np.mean(samples) - exact) <= 5 * np.std(samples) / math.sqrt(4000) + 1e-12


@PROPERTY
@hypothesis.given(st.data())
def test_order_of_ties(data: st.DataObject) -> None:
    n = data.draw(st.integers(1, 60))
    name = data.draw(st.sampled_from(naive.NAMES))
    top = 1.0 if name.startswith("pfound") else 4.0
    label = st.sampled_from([0.0, 0.25, 1.0, top])
    labels = data.draw(st.one_of(label.map(lambda v: [v] * n), st.lists(label, min_size=n, max_size=n)))
    score = st.sampled_from([0.0, -0.0, 1.0, 1e30, -1e300, 1.7e308, 5e-324, 1e-310])
    scores = data.draw(st.one_of(score.map(lambda v: [v] * n), st.lists(score, min_size=n, max_size=n)))
    worst, mean, best = (sr.evaluate(name, scores, labels, [n], ties=ties) for ties in TIES)
    assert 0 <= worst <= mean * (1 + 1e-12) + 1e-15
    assert mean <= best * (1 + 1e-12) + 1e-15
    assert worst == pytest.approx(naive.sorted_value(name, scores, labels, "worst"), rel=1e-12, abs=1e-15)
    assert best == pytest.approx(naive.sorted_value(name, scores, labels, "best"), rel=1e-12, abs=1e-15)
    if not name.startswith(("dcg", "binarydcg")) and "power" not in name:
        assert best <= 1 + 1e-12
    # Scale and place of the scores do not matter, nor does the order of rows.
    order = np.random.default_rng(n).permutation(n)
    for ties, value in zip(TIES, (worst, mean, best), strict=True):
        permuted = sr.evaluate(name, np.array(scores)[order], np.array(labels)[order], [n], ties=ties)
        assert permuted == pytest.approx(value, rel=1e-12, abs=1e-15)


# ---------------------------------------------------------- other libraries


@pytest.mark.parametrize("k", [None, 1, 3, 10, 100])
def test_scikit_learn(k: int | None) -> None:
    rng = np.random.default_rng(0)
    for trial in range(25):
        n = int(rng.integers(2, 40))
        labels = rng.integers(0, 5, n).astype(float)
        scores = rng.normal(size=n) if trial % 2 else rng.integers(0, 4, n).astype(float)
        gains = 2.0**labels - 1.0
        for kind, function in ((sr.NDCG, sklearn.metrics.ndcg_score), (sr.DCG, sklearn.metrics.dcg_score)):
            linear = sr.evaluate(kind(k, gain="linear"), scores, labels, [n], ties="mean")
            assert linear == pytest.approx(function([labels], [scores], k=k), rel=1e-12)
            exponential = sr.evaluate(kind(k), scores, labels, [n], ties="mean")
            assert exponential == pytest.approx(function([gains], [scores], k=k), rel=1e-12)


def test_scikit_learn_average_precision_and_reciprocal_rank() -> None:
    rng = np.random.default_rng(1)
    for _ in range(25):
        n = int(rng.integers(2, 40))
        labels = (rng.random(n) < 0.4).astype(float)
        labels[int(rng.integers(n))] = 1.0
        scores = rng.permutation(n).astype(float)
        average = sklearn.metrics.average_precision_score(labels, scores)
        assert sr.evaluate("map", scores, labels, [n]) == pytest.approx(average, rel=1e-12)


TREC = {
    "ndcg:gain=linear": "nDCG",
    "ndcg@5:gain=linear": "nDCG@5",
    "ndcg@100:gain=linear": "nDCG@100",
    "mrr": "RR",
    "mrr:threshold=1": "RR(rel=2)",
    "mrr@3": "RR@3",
    "map": "AP",
    "map@5": "AP@5",
    "map:threshold=2": "AP(rel=3)",
    "precision@5": "P@5",
    "precision@30": "P@30",
    "precision@5:threshold=1": "P(rel=2)@5",
    "recall@5": "R@5",
    "hit@1": "Success@1",
    "hit@5": "Success@5",
}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of ir_measures, on Python 3.12 and later
def test_trec_eval() -> None:
    rng = np.random.default_rng(2)
    groups = rng.integers(1, 25, 60)
    rows = int(groups.sum())
    labels = np.where(rng.random(rows) < 0.6, 0, rng.integers(0, 5, rows))
    scores = rng.permutation(rows).astype(float)  # without ties, which trec_eval breaks by document name
    qid = np.repeat(np.arange(len(groups)), groups).astype(str)
    names = np.arange(rows).astype(str)
    truth = pd.DataFrame({"query_id": qid, "doc_id": names, "relevance": labels})
    run = pd.DataFrame({"query_id": qid, "doc_id": names, "score": scores})
    measures = {ours: ir_measures.parse_measure(theirs) for ours, theirs in TREC.items()}
    found: dict[tuple[str, str], float] = {}
    for result in ir_measures.iter_calc(list(measures.values()), truth, run):
        found[str(result.measure), result.query_id] = result.value
    for ours, theirs in measures.items():
        expected = [found.get((str(theirs), str(q)), 0.0) for q in range(len(groups))]
        actual = sr.evaluate(ours, scores, labels, groups, per_query=True)
        np.testing.assert_allclose(actual, expected, rtol=1e-6, atol=1e-9, err_msg=ours)  # RR@3 comes in single precision
        assert 0 < np.mean(actual) <= 1


# ---------------------------------------------------------- weights, empties, ...


def test_mean_weights_and_queries_without_relevant_documents() -> None:
    scores, labels, groups = [1, 0, 0, 1, 3, 2, 1], [1, 0, 1, 0, 0, 0, 0], [2, 2, 3]
    values = sr.evaluate("mrr", scores, labels, groups, per_query=True)
    np.testing.assert_array_equal(values, [1, 0.5, 0])
    assert values.dtype == np.float64

    def mean(**keywords: object) -> float:
        result = sr.evaluate("mrr", scores, labels, groups, **keywords)  # type: ignore[call-overload]
        assert type(result) is float
        return result

    assert mean() == pytest.approx(1.5 / 3)
    assert mean(empty=0) == pytest.approx(1.5 / 3)
    assert mean(empty=1) == pytest.approx(2.5 / 3)
    assert mean(empty=0.5) == pytest.approx(2 / 3)
    assert mean(empty="skip") == pytest.approx(1.5 / 2)
    weights = [1, 2, 5]
    assert mean(weights=weights) == pytest.approx((1 + 2 * 0.5) / 8)
    assert mean(weights=weights, empty=1) == pytest.approx((1 + 2 * 0.5 + 5) / 8)
    assert mean(weights=weights, empty="skip") == pytest.approx((1 + 2 * 0.5) / 3)
    assert mean(weights=np.repeat(weights, groups)) == pytest.approx((1 + 2 * 0.5) / 8)
    skipped = sr.evaluate("mrr", scores, labels, groups, empty="skip", per_query=True)
    np.testing.assert_array_equal(skipped, [1, 0.5, np.nan])
    assert math.isnan(sr.evaluate("mrr", [1.0, 2.0], [0, 0], [2], empty="skip"))


@pytest.mark.parametrize("name", naive.FAMILIES)
def test_a_query_is_empty_only_without_relevant_documents(name: str) -> None:
    """A relevant document out of reach of k counts as a failure, not as an empty query."""
    metric = f"{name}@1"
    values = sr.evaluate(metric, [2.0, 1.0, 2.0, 1.0], [0, 1, 0, 0], [2, 2], empty=0.25, per_query=True)
    np.testing.assert_array_equal(values, [0.0, 0.25])


def test_worst_is_the_default() -> None:
    assert sr.evaluate("mrr", [0.0, 0.0, 0.0], [1, 0, 0], [3]) == pytest.approx(1 / 3)
    assert sr.evaluate("mrr", [0.0, 0.0, 0.0], [1, 0, 0], [3], ties="mean") == pytest.approx((1 + 1 / 2 + 1 / 3) / 3)
    assert sr.evaluate("mrr", [0.0, 0.0, 0.0], [1, 0, 0], [3], ties="best") == 1


@pytest.mark.parametrize("ties", TIES)
@pytest.mark.parametrize("name", ["ndcg@10", "err", "map"])
def test_threads_and_many_queries(name: str, ties: str) -> None:
    rng = np.random.default_rng(0)
    groups = rng.integers(1, 60, 1500)
    labels = naive.random_labels(name, int(groups.sum()), rng)
    scores = rng.normal(size=len(labels)).round(1)
    results = [
        sr.evaluate(name, scores, labels, groups, ties=ties, per_query=True, threads=threads) for threads in (1, 2, 3, 5)
    ]
    for other in results[1:]:
        assert other.tobytes() == results[0].tobytes()
    starts = np.cumsum([0, *groups])
    for q in range(0, 1500, 97):
        rows = slice(starts[q], starts[q + 1])
        assert sr.evaluate(name, scores[rows], labels[rows], [groups[q]], ties=ties) == results[0][q]


def test_bound_evaluation_equals_evaluate() -> None:
    rng = np.random.default_rng(0)
    labels, qid, weights = rng.integers(0, 3, 12), [7] * 5 + [3] * 7, [1.0, 3.0]
    bound = sr.bind_evaluation("ndcg@3", labels, qid=qid, weights=weights, ties="mean", empty=1)
    assert isinstance(bound, sr.Evaluation)
    for twin in (bound, pickle.loads(pickle.dumps(bound))):
        for _ in range(3):
            scores = rng.integers(0, 3, 12)
            keywords = {"qid": qid, "weights": weights, "ties": "mean", "empty": 1}
            assert twin.mean(scores) == sr.evaluate("ndcg@3", scores, labels, **keywords)  # type: ignore[call-overload]
            values = sr.evaluate("ndcg@3", scores, labels, per_query=True, **keywords)  # type: ignore[call-overload]
            np.testing.assert_array_equal(twin.per_query(scores), values)


def test_single_precision_scores_tie_as_they_are() -> None:
    scores = np.array([1 / 3, 1 / 3], np.float32)
    assert sr.evaluate("mrr", scores, [1, 0], [2]) == 0.5
    assert sr.evaluate("mrr", [scores[0], 1 / 3], [1, 0], [2]) == 1.0  # rounding took it above 1/3
