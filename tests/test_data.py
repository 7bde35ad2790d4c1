"""Bad input: a ValueError that names the argument, the first offending index and value, and what to do about it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

import stochasticrank_objectives as sr

LABELS, GROUPS, SCORES = [1.0, 0.0, 2.0, 0.0, 1.0], [2, 3], [0.1, 0.2, 0.3, 0.4, 0.5]
NAN, INF = float("nan"), float("inf")


def bind(**changes: Any) -> Any:
    metric = changes.pop("metric", "ndcg@3")
    data = {"labels": LABELS, "groups": GROUPS, **changes}
    return sr.StochasticRank(metric).bind(**data)


def evaluate(**changes: Any) -> Any:
    data = {"metric": "ndcg@3", "scores": SCORES, "labels": LABELS, "groups": GROUPS, **changes}
    return sr.evaluate(**data)


def bind_sglb(**changes: Any) -> Any:
    data = {"labels": LABELS, "groups": GROUPS, **changes}
    return sr.SGLB(sr.StochasticRank(data.pop("metric", "ndcg@3"))).bind(**data)


TAKERS = [bind, evaluate, bind_sglb]


def refused(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"(?s){message}"):
        call()


def test_good_input_is_taken() -> None:
    """All refusals below are changes of this."""
    assert bind().gradient(SCORES).any()
    assert bind_sglb().gradient(SCORES).any()
    assert evaluate() > 0


# ------------------------------------------------------------ labels


@pytest.mark.parametrize("take", TAKERS)
@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([1, 0, NAN, 0, NAN], r"labels\[2\] = nan is not finite; .*(drop|impute)"),
        ([1, INF, 2, 0, NAN], r"labels\[1\] = inf is not finite; .*(drop|impute)"),
        ([-INF, 0, 2, 0, 1], r"labels\[0\] = -inf"),
        ([1, 0, 2, -1, -2], r"labels\[3\] = -1 is negative; shift"),
        ([1, 0, None, 0, 1], r"labels\[2\] = nan"),
        (pd.Series([1, 0, None, 0, 1], dtype="Int64"), r"labels"),
        ([], r"labels is empty; there must be at least one row"),
        (None, r"labels must (be a sequence of numbers|have one dimension)"),
        (3.0, r"labels must (be a sequence of numbers|have one dimension)"),
        ([[1, 0, 2, 0, 1]], r"labels must have one dimension, got shape \(1, 5\); flatten"),
        (pd.DataFrame({"y": LABELS}), r"labels must have one dimension, got shape \(5, 1\); flatten"),
        (np.zeros((5, 2)), r"labels must have one dimension, got shape \(5, 2\)"),
        ([[1, 0], [2]], r"labels must be a sequence of numbers"),
        (["a", "b", "c", "d", "e"], r"labels must be a sequence of numbers"),
        (["1", "0", "2", "0", "1"], r"labels must be a sequence of numbers"),
        (np.array(["a", 1, 2, 3, 4], object), r"labels must be a sequence of numbers"),
        (np.array([1, 0, 2, 0, 1j]), r"labels must be a sequence of numbers"),
        (np.array([0, 1, 2, 3, 4], "datetime64[s]"), r"labels must be a sequence of numbers"),
        ({1: 2}, r"labels must be a sequence of numbers"),
        ("labels", r"labels must be a sequence of numbers"),
    ],
)
def test_labels(take: Callable[..., Any], labels: Any, message: str) -> None:
    refused(lambda: take(labels=labels), message)


@pytest.mark.parametrize("take", TAKERS)
def test_labels_that_do_not_suit_the_metric(take: Callable[..., Any]) -> None:
    refused(
        lambda: take(metric="err", labels=[4, 0, 5, 6, 0]), r"labels\[2\] = 5 is above max_grade=4; .*ERR\(max_grade=6\)"
    )
    refused(
        lambda: take(metric=sr.ERR(max_grade=1), labels=[0, 2, 1, 0, 0]), r"labels\[1\] = 2 is above max_grade=1; .*grade"
    )
    refused(
        lambda: take(metric="pfound", labels=[1, 0, 0.5, 1.5, 2]), r"labels\[3\] = 1.5 is not a probability.*0 to 1; map"
    )
    refused(lambda: take(metric="ndcg", labels=[1, 0, 600, 0, 0]), r"labels\[2\] = 600 is too large.*gain=\"linear\"")
    take(metric="err:max_grade=6", labels=[4, 0, 5, 6, 0])
    take(metric="ndcg:gain=linear", labels=[1, 0, 600, 0, 0])


def test_non_binary_labels_count_by_a_documented_threshold() -> None:
    for kind in (sr.MRR, sr.MAP, sr.Precision, sr.Recall, sr.Hit, sr.RBP):
        assert "threshold" in (kind.__doc__ or "")
        graded, binary = [3, 1, 0, 2, 0.5], [1, 0, 0, 1, 0]
        above = evaluate(metric=kind(k=2, threshold=1), labels=graded)  # label > threshold
        assert above == evaluate(metric=kind(k=2), labels=binary)
        assert evaluate(metric=kind(k=2), labels=graded) == evaluate(metric=kind(k=2), labels=[1, 1, 0, 1, 1])


# ------------------------------------------------------------ groups and qid


@pytest.mark.parametrize("take", TAKERS)
@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ([2, 2], r"groups sum to 4 but there are 5 rows; groups are the sizes of queries"),
        ([3, 3], r"groups sum to 6 but there are 5 rows"),
        ([7, 7, 7, 9, 9], r"groups sum to 39 but there are 5 rows; .*pass it as qid="),
        ([], r"groups sum to 0 but there are 5 rows"),
        ([2, 0, 3], r"groups\[1\] = 0 but .*at least one row; leave empty"),
        ([2, -1, 4], r"groups\[1\] = -1 but .*at least one row"),
        ([2.5, 2.5], r"groups\[0\] = 2.5 is not a whole number; \w+"),
        ([2, NAN], r"groups\[1\] = nan is not a whole number; \w+"),
        ([2, INF], r"groups\[1\] = inf is not a whole number; \w+"),
        ([5, 1e300], r"groups"),
        ([2, None], r"groups\[1\] = nan"),
        (["a", "b"], r"groups must be a sequence of numbers"),
        (5, r"groups must have one dimension"),
        ([[2, 3]], r"groups must have one dimension, got shape \(1, 2\); flatten"),
        (pd.DataFrame({"g": GROUPS}), r"groups must have one dimension"),
        (None, r"give either groups .* or qid"),
    ],
)
def test_groups(take: Callable[..., Any], groups: Any, message: str) -> None:
    refused(lambda: take(groups=groups), message)


@pytest.mark.parametrize("take", TAKERS)
def test_whole_floats_are_group_sizes(take: Callable[..., Any]) -> None:
    take(groups=[2.0, 3.0])
    take(groups=np.array([2, 3], np.float32))


@pytest.mark.parametrize("take", TAKERS)
def test_groups_and_qid_at_once(take: Callable[..., Any]) -> None:
    refused(lambda: take(qid=[0, 0, 1, 1, 1]), r"give either groups .* or qid")


@pytest.mark.parametrize("take", TAKERS)
@pytest.mark.parametrize(
    ("qid", "message"),
    [
        ([7, 7, 3, 7, 3], r"qid is not contiguous: query 7 comes back at row 3; sort"),
        ([7, 7, 3, 3, 7], r"qid is not contiguous: query 7 comes back at row 4; sort"),
        ([1, 2, 3, 2, 1], r"qid is not contiguous: query 2 comes back at row 3; sort"),  # the first to come back
        (["a", "b", "b", "a", "a"], r"qid is not contiguous: query a comes back at row 3; sort"),
        ([0, 0, 1, 1], r"qid must have one id per row, 5 in all, got"),
        ([0, 0, 1, 1, 1, 1], r"qid must have one id per row, 5 in all, got"),
        ([[0, 0, 1, 1, 1]], r"qid must have one id per row, 5 in all, got shape \(1, 5\)"),
        (pd.DataFrame({"q": [0, 0, 1, 1, 1]}), r"qid must have one id per row, 5 in all, got shape \(5, 1\)"),
        (3, r"qid must have one id per row"),
        ([0, 0, NAN, NAN, 1], r"qid\[2\] is (NaN|nan|missing).*every row"),
        ([0, 0, None, 1, 1], r"qid\[2\] is (None|NaN|missing).*every row"),
        (["a", "a", None, None, "b"], r"qid\[2\] is (None|NaN|missing).*every row"),
        (pd.Series([0, 0, None, 1, 1], dtype="Int64"), r"qid\[2\] is (<NA>|NaN|missing).*every row"),
        (pd.Series(["a", None, "b", "b", "b"]), r"qid\[1\] is (None|NaN|nan|missing).*every row"),
    ],
)
def test_qid(take: Callable[..., Any], qid: Any, message: str) -> None:
    refused(lambda: take(groups=None, qid=qid), message)


# ------------------------------------------------------------ scores, weights, keys, iterations


@pytest.mark.parametrize(
    "use", [lambda s: bind().gradient(s), lambda s: evaluate(scores=s), lambda s: bind_sglb().gradient(s)]
)
@pytest.mark.parametrize(
    ("scores", "message"),
    [
        ([0, 1, NAN, 3, NAN], r"scores\[2\] = nan is not finite; .*diverged: lower the learning rate"),
        ([0, 1, 2, INF, -INF], r"scores\[3\] = inf is not finite"),
        ([0, -INF, 2, 3, 4], r"scores\[1\] = -inf is not finite"),
        (np.array([0, 1, 2, 3, NAN], np.float32), r"scores\[4\] = nan"),
        ([0, 1, 2, 3], r"scores must have one value per row, 5 in all, got 4"),
        ([0, 1, 2, 3, 4, 5], r"scores must have one value per row, 5 in all, got 6"),
        ([], r"scores must have one value per row, 5 in all, got 0"),
        (np.zeros((5, 1)), r"scores must have one dimension, got shape \(5, 1\); flatten"),
        (pd.DataFrame({"s": SCORES}), r"scores must have one dimension, got shape \(5, 1\)"),
        (None, r"scores must (be a sequence of numbers|have one dimension)"),
        (["a"] * 5, r"scores must be a sequence of numbers"),
        (1.0, r"scores must have one dimension"),
    ],
)
def test_scores(use: Callable[[Any], Any], scores: Any, message: str) -> None:
    refused(lambda: use(scores), message)


def test_scores_whose_sum_overflows_are_finite_all_the_same() -> None:
    assert np.isfinite(bind().gradient([1.7e308, 1.7e308, 1.7e308, -1.7e308, 0])).all()
    assert evaluate(scores=[1.7e308, 1.6e308, 1.7e308, -1.7e308, 0]) > 0


@pytest.mark.parametrize("take", TAKERS)
@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1.0], r"weights must have one value per query \(2\) or per row \(5\), got 1"),
        ([1.0, 1.0, 1.0], r"weights must have one value per query \(2\) or per row \(5\), got 3"),
        ([], r"weights must have one value per query .*got 0"),
        ([1.0, -1.0], r"weights\[1\] = -1.0 .*not negative"),
        ([NAN, 1.0], r"weights\[0\] = nan .*finite"),
        ([1.0, INF], r"weights\[1\] = inf .*finite"),
        ([[1.0, 2.0]], r"weights must have one dimension, got shape \(1, 2\); flatten"),
        (["a", "b"], r"weights must be a sequence of numbers"),
        (1.0, r"weights must have one dimension"),
    ],
)
def test_weights(take: Callable[..., Any], weights: Any, message: str) -> None:
    refused(lambda: take(weights=weights), message)


def test_a_metric_weighs_whole_queries() -> None:
    refused(lambda: evaluate(weights=[1, 1, 2, 2, 3]), r"weights\[4\] = 3 differs .*whole queries")
    assert evaluate(weights=[1, 1, 2, 2, 2]) == evaluate(weights=[1, 2])


@pytest.mark.parametrize("take", [bind, bind_sglb])
@pytest.mark.parametrize("keys", [[1], [1, 2, 3], [0.5, 1.0], ["a", "b"], [[1, 2]], 7, [None, 1]])
def test_query_keys(take: Callable[..., Any], keys: Any) -> None:
    refused(lambda: take(query_keys=keys), r"query_keys must be whole numbers, one per query \(2\), got")


@pytest.mark.parametrize("take", [bind, bind_sglb])
@pytest.mark.parametrize("iteration", [-1, 1.5, 1.0, "3", None, True, NAN])
def test_iteration(take: Callable[..., Any], iteration: Any) -> None:
    refused(lambda: take().gradient(SCORES, iteration), r"iteration must be a whole number of at least 0, got")


# ------------------------------------------------------------ parameters


@pytest.mark.parametrize(
    ("parameter", "values", "message"),
    [
        ("sigma", [0, -1, 0.0, NAN, INF, True, False, "1", None, [1.0], np.True_], r"finite number above 0, got .*; it is"),
        ("mu", [-1, -1e-9, NAN, INF, True, "1", None, [1.0]], r"finite number at least 0, got .*; 0 ranks"),
        ("nu", [0, -1, NAN, INF, True, "1", None], r"finite number above 0, got .*; the paper uses 0.01"),
        ("sfa", [-0.1, 1.1, 2, NAN, "yes", None, [1]], r"at least 0 and at most 1, got .*; use True, False or a strength"),
        ("samples", [0, -1, 1.0, 2.5, True, "1", None, NAN], r"whole number of at least 1, got"),
        ("seed", [-1, 1.0, True, "1", None], r"whole number of at least 0, got"),
        ("estimator", ["css", "CCS", None, 0, True, ["ccs"]], r"\"ccs\" or \"reinforce\", got"),
        ("threads", [0, -1, 1.0, True, "2"], r"whole number of at least 1, or None for all processors, got"),
    ],
)
def test_parameters_of_the_loss(parameter: str, values: list[Any], message: str) -> None:
    for value in values:
        refused(lambda value=value: sr.StochasticRank("ndcg@3", **{parameter: value}), f"{parameter} must be .*{message}")  # type: ignore[misc]


def test_numpy_numbers_are_numbers() -> None:
    given = sr.StochasticRank(
        "ndcg@3", sigma=np.float32(0.5), mu=np.int64(1), nu=np.float64(0.1), sfa=np.float32(0.5), samples=np.int32(2),
        seed=np.uint64(3), threads=np.int64(1),
    )  # fmt: skip
    plain = sr.StochasticRank("ndcg@3", sigma=0.5, mu=1, nu=0.1, sfa=0.5, samples=2, seed=3, threads=1)
    expected = plain.bind(LABELS, GROUPS).gradient(SCORES, 1)
    np.testing.assert_array_equal(given.bind(LABELS, GROUPS).gradient(SCORES, np.int64(1)), expected)


@pytest.mark.parametrize("take", [bind, evaluate])
def test_metric_names_are_checked_wherever_they_are_given(take: Callable[..., Any]) -> None:
    refused(lambda: take(metric="ndgc@3"), r"unknown metric 'ndgc@3': did you mean \"ndcg@3\"")
    refused(lambda: take(metric="ndcg@0"), r"k must be a whole number of at least 1")
    refused(lambda: take(metric=None), r"metric must be a name")


@pytest.mark.parametrize("ties", ["random", "Worst", None, 0, True, ["worst"]])
def test_ties(ties: Any) -> None:
    refused(lambda: evaluate(ties=ties), r"ties must be \"worst\", \"mean\" or \"best\", got")


@pytest.mark.parametrize("empty", ["zero", None, NAN, INF, [0]])
def test_empty(empty: Any) -> None:
    refused(lambda: evaluate(empty=empty), r"empty must be a number or \"skip\", got")


@pytest.mark.parametrize("threads", [0, -2, 1.0, True, "2"])
def test_threads(threads: Any) -> None:
    refused(lambda: evaluate(threads=threads), r"threads must be a whole number of at least 1")


def test_options_are_keyword_only_past_the_data() -> None:
    with pytest.raises(TypeError):
        sr.evaluate("ndcg", SCORES, LABELS, GROUPS, [0, 0, 1, 1, 1])  # type: ignore[call-overload]
    with pytest.raises(TypeError):
        sr.StochasticRank("ndcg").bind(LABELS, GROUPS, None, [0, 1])  # type: ignore[misc]
    with pytest.raises(TypeError):
        sr.bind_evaluation("ndcg", LABELS, GROUPS, [0, 0, 1, 1, 1])  # type: ignore[misc]


def test_extremely_small_gains_do_not_overflow() -> None:
    for tiny in (5e-324, 1e-310, 1e-300):
        labels = [tiny, 0.0, 0.0]
        assert sr.evaluate("ndcg:gain=linear", [1, 2, 3], labels, [3]) == pytest.approx(0.5)
        gradient = sr.StochasticRank("ndcg:gain=linear", mu=0.0).bind(labels, [3]).gradient([1, 2, 3])
        assert np.isfinite(gradient).all()


@pytest.mark.parametrize("weights", [[0, 0], [0, 0, 0]])
def test_weights_that_are_all_0(weights: list[int]) -> None:
    """A metric would be nan, and a training would learn nothing, without a word."""
    with pytest.raises(ValueError, match="weights are all zero, so that nothing counts; leave them out, or give some query"):
        sr.evaluate("ndcg", [1, 2, 3], [0, 1, 1], [2, 1], weights=weights)
    with pytest.raises(ValueError, match="weights are all zero"):
        sr.StochasticRank("ndcg").bind([0, 1, 1], [2, 1], weights)
    assert sr.evaluate("ndcg", [1, 2, 3], [0, 1, 1], [2, 1], weights=[0, 1]) == 1
