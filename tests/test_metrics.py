"""Metrics as values: parsed, printed, compared, and refused when they make no sense."""

from __future__ import annotations

import copy
import dataclasses
import math
import pickle
import re

import hypothesis
import hypothesis.strategies as st
import naive
import numpy as np
import pytest

import stochasticrank_objectives as sr

CLASSES = [sr.NDCG, sr.DCG, sr.BinaryDCG, sr.ERR, sr.MRR, sr.MAP, sr.PFound, sr.RBP, sr.Precision, sr.Recall, sr.Hit]

PARSED = [
    ("ndcg@10", sr.NDCG(k=10)),
    ("ndcg", sr.NDCG()),
    ("ndcg@10:gain=linear", sr.NDCG(10, gain="linear")),
    ("ndcg@20:gain=linear:power=0.5", sr.NDCG(20, gain="linear", power=0.5)),
    ("dcg@3", sr.DCG(3)),
    ("dcg:gain=linear", sr.DCG(gain="linear")),
    ("dcg@40:gain=1.5", sr.DCG(40, gain=1.5)),
    ("ndcg:gain=2:power=0.5", sr.NDCG(gain=2, power=0.5)),
    ("binarydcg@40", sr.BinaryDCG(40)),
    ("binarydcg:threshold=2:grades=0.5", sr.BinaryDCG(threshold=2, grades=0.5)),
    ("err@10", sr.ERR(10)),
    ("err", sr.ERR()),
    ("err@5:max_grade=3", sr.ERR(5, max_grade=3)),
    ("mrr", sr.MRR()),
    ("mrr@10", sr.MRR(10)),
    ("mrr:threshold=2", sr.MRR(threshold=2)),
    ("map", sr.MAP()),
    ("map@10", sr.MAP(10)),
    ("pfound", sr.PFound()),
    ("pfound@7:decay=0.5", sr.PFound(7, decay=0.5)),
    ("rbp", sr.RBP()),
    ("rbp@20:p=0.95", sr.RBP(0.95, 20)),
    ("precision@3", sr.Precision(3)),
    ("recall@100", sr.Recall(100)),
    ("hit@1:threshold=0.5", sr.Hit(1, threshold=0.5)),
]


@pytest.mark.parametrize(("name", "metric"), PARSED)
def test_names_parse_and_print(name: str, metric: sr.Metric) -> None:
    assert sr.parse_metric(name) == metric
    assert str(metric) == name
    assert sr.parse_metric(metric) is metric
    assert eval(repr(metric), {kind.__name__: kind for kind in CLASSES}) == metric
    assert isinstance(metric, sr.Metric)
    for twin in (copy.copy(metric), copy.deepcopy(metric), pickle.loads(pickle.dumps(metric)), sr.parse_metric(name)):
        assert twin == metric
        assert hash(twin) == hash(metric)


@pytest.mark.parametrize("name", naive.NAMES)
def test_round_trip(name: str) -> None:
    assert str(sr.parse_metric(name)) == name
    assert sr.parse_metric(str(sr.parse_metric(name))) == sr.parse_metric(name)


@hypothesis.settings(deadline=None, derandomize=True, database=None)
@hypothesis.given(
    st.none() | st.integers(1, 10**9),
    st.floats(0, 1, exclude_min=True, exclude_max=True),
    st.floats(0, 1e6),
    st.integers(1, 50) | st.floats(0.1, 50),
)
def test_any_option_survives_the_round_trip(k: int | None, chance: float, threshold: float, grade: float) -> None:
    metrics = [sr.RBP(chance, k), sr.PFound(k, decay=chance), sr.MAP(k, threshold=threshold), sr.ERR(k, max_grade=grade)]
    for metric in metrics:
        assert sr.parse_metric(str(metric)) == metric


def test_spelling_is_forgiving() -> None:
    for spelling in ("NDCG@10", " ndcg@10 ", "nDcG@10", "ndcg@10:gain=exp", "ndcg @10", "ndcg@ 10"):
        assert sr.parse_metric(spelling) == sr.NDCG(10)
    assert sr.parse_metric("PFound : decay = 0.5") == sr.PFound(decay=0.5)


def test_equality_and_hash_tell_metrics_apart() -> None:
    metrics = [metric for _, metric in PARSED]
    assert len(set(metrics)) == len(metrics)
    assert sr.NDCG(10) != sr.DCG(10)
    assert sr.MRR(3) != sr.MAP(3)
    assert sr.NDCG(10) == sr.NDCG(np.int64(10))
    assert hash(sr.NDCG(10)) == hash(sr.NDCG(np.int64(10)))
    assert {sr.NDCG(10): 1}[sr.parse_metric("ndcg@10")] == 1


@pytest.mark.parametrize("metric", [metric for _, metric in PARSED])
def test_frozen(metric: sr.Metric) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        metric.k = 3  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        del metric.k


@pytest.mark.parametrize("kind", CLASSES)
def test_documented_with_formula_and_reference(kind: type[sr.Metric]) -> None:
    assert kind.__doc__
    assert kind in vars(sr).values()
    assert kind.__name__ in sr.__all__


@pytest.mark.parametrize("kind", [sr.NDCG, sr.DCG, sr.ERR, sr.PFound, sr.RBP, sr.MRR, sr.MAP])
def test_reference_given(kind: type[sr.Metric]) -> None:
    assert re.search(r"Reference: .*\d{4}|ROMIP", kind.__doc__ or "", re.DOTALL)


@pytest.mark.parametrize(
    ("wrong", "nearest"),
    [
        ("ncdg@10", "ndcg@10"),
        ("ndgc", "ndcg"),
        ("ndcgg@5", "ndcg@5"),
        ("mapp", "map"),
        ("pfond@3", "pfound@3"),
        ("precison@5", "precision@5"),
        ("recal@5", "recall@5"),
        ("mrrr", "mrr"),
        ("hits@5", "hit@5"),
    ],
)
def test_unknown_names_suggest_the_nearest(wrong: str, nearest: str) -> None:
    with pytest.raises(ValueError, match=f'unknown metric {wrong!r}.*did you mean "{nearest}"'):
        sr.parse_metric(wrong)


def test_a_name_like_nothing_lists_what_there_is() -> None:
    with pytest.raises(ValueError, match=r"known are .*ndcg.*hit") as error:
        sr.parse_metric("zzzzzz")
    assert "did you mean" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("ndcg@0", r"k must be a whole number of at least 1, got 0"),
        ("ndcg@-3", r"k must be .*got -3"),
        ("ndcg@ten", r"ndcg@ten.*k must be a whole number.*got 'ten'"),
        ("ndcg@2.5", r"k must be a whole number.*got '2.5'"),
        ("ndcg@", r"k must be a whole number"),
        ("ndcg@10:gian=linear", r"unknown option 'gian=linear'.*gain"),
        ("ndcg@10:linear", r"unknown option 'linear'.*gain"),
        ("ndcg@10:power=2", r"power must be a finite number at least 0 and at most 1, got 2; 1 is NDCG, 0 is DCG"),
        ("ndcg@10:power=half", r"power must be a number, got 'half'"),
        ("dcg@10:power=0.5", r"unknown option 'power=0.5'; options of dcg are: gain"),
        ("ndcg@10:gain=cubic", r"gain must be \"exp\", \"linear\" or the power of the label that it is, got 'cubic'"),
        ("ndcg@10:gain=0", r"gain must be a finite number above 0, got 0; it is a power of the label"),
        ("dcg:gain=-1", r"gain must be .*above 0, got -1"),
        ("dcg:gain=nan", r"gain must be .*got nan"),
        ("dcg:gain=inf", r"gain must be .*got inf"),
        ("ndcg@10:k=3", r"unknown option 'k=3'"),
        ("ndcg@10:", r"unknown option ''"),
        ("err:max_grade=big", r"max_grade must be a number, got 'big'"),
        ("err:max_grade=0", r"max_grade must be a finite number above 0 and at most 50, got 0"),
        ("err:max_grade=nan", r"max_grade must be .*nan"),
        ("err:max_grade=inf", r"max_grade must be .*inf"),
        ("pfound:decay=0", r"decay must be a finite number above 0 and at most 1, got 0"),
        ("pfound:decay=1.5", r"decay must be .*got 1.5"),
        ("rbp:p=1", r"p must be .* above 0 .* got 1; it is the chance .* below 1"),
        ("rbp:p=0", r"p must be .* above 0 .* got 0; it is the chance .* below 1"),
        ("mrr:threshold=-1", r"threshold must be .*at least 0, got -1"),
        ("mrr:threshold=nan", r"threshold must be .*got nan"),
        ("mrr:threshold=inf", r"threshold must be .*got inf"),
        ("mrr:gain=exp", r"unknown option 'gain=exp'.*threshold"),
        ("precision", r"precision needs a cut k.*precision@10"),
        ("recall", r"recall needs a cut k.*recall@10"),
        ("hit", r"hit needs a cut k.*hit@10"),
    ],
)
def test_wrong_names(name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        sr.parse_metric(name)


@pytest.mark.parametrize("wrong", [None, 5, ["ndcg"], b"ndcg", sr.NDCG])
def test_not_a_name(wrong: object) -> None:
    with pytest.raises(ValueError, match=r"metric must be a name such as \"ndcg@10\""):
        sr.parse_metric(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("k", [0, -1, 2.5, 3.0, "3", True, np.nan])
@pytest.mark.parametrize("kind", CLASSES)
def test_wrong_cuts(kind: type[sr.Metric], k: object) -> None:
    with pytest.raises(ValueError, match="k must be a whole number of at least 1, got"):
        kind(k=k)  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", ["4", None, True, [4]])
@pytest.mark.parametrize(
    ("kind", "option"), [(sr.ERR, "max_grade"), (sr.PFound, "decay"), (sr.RBP, "p"), (sr.MRR, "threshold")]
)
def test_options_that_are_no_numbers(kind: type[sr.Metric], option: str, wrong: object) -> None:
    with pytest.raises(ValueError, match=f"{option} must be"):
        kind(**{option: wrong})  # type: ignore[arg-type]


def test_a_gain_of_a_power() -> None:
    """1 is linear, by that name; labels in another unit have the same ranking of gains, and values in proportion."""
    assert sr.DCG(5, gain=1) == sr.DCG(5, gain=1.0) == sr.parse_metric("dcg@5:gain=1.0") == sr.DCG(5, gain="linear")
    assert sr.DCG(gain=np.float32(1.5)) == sr.parse_metric("dcg:gain=1.50")
    assert sr.evaluate("dcg:gain=1.5", [3, 2, 1], [4, 9, 0], [3]) == pytest.approx(8 + 27 / math.log2(3))
    labels, scores = np.array([0.0, 1.0, 4.0, 2.0, 3.0]), [0.3, 0.1, 0.0, 0.2, -0.1]
    assert sr.evaluate("ndcg:gain=1.5", scores, 100 * labels, [5]) == pytest.approx(
        sr.evaluate("ndcg:gain=1.5", scores, labels, [5])
    )
    for wrong in (True, None, [2], 0, -2):
        with pytest.raises(ValueError, match="gain must be a finite number above 0"):
            sr.DCG(gain=wrong)  # type: ignore[arg-type]
    with pytest.raises(
        ValueError, match=r"labels\[1\] = 1e\+101 is too large for label\^1.5; use gain=\"linear\" or smaller"
    ):
        sr.evaluate("dcg:gain=1.5", [2, 1], [0, 1e101], [2])
    assert sr.evaluate("dcg@1:gain=1.5", [1, 2], [0, 1e99], [2]) == pytest.approx(1e99**1.5)
