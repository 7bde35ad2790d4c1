"""The checker passes every metric of the package, and catches what is wrong with others."""

from __future__ import annotations

import dataclasses
from typing import Any

import naive
import numpy as np
import pytest

import stochasticrank_objectives as sr
from stochasticrank_objectives import testing
from stochasticrank_objectives._constants import AVERAGE

NAMES = [name for name in naive.NAMES if "@200" not in name]


@sr.metric(k=5)
def satisfied(relevance):  # type: ignore[no-untyped-def]
    """The best grade that is shown, less the further down it stands."""
    best = 0.0
    for i in range(len(relevance)):
        best = max(best, relevance[i] * (1.0 - 0.1 * i))
    return best


@pytest.mark.parametrize("name", [*NAMES, "0.7*ndcg@3 + 0.3*mrr", "satisfied", "satisfied@2 + err"])
def test_metrics_pass(name: str) -> None:
    assert testing.check_metric(name) is None  # type: ignore[func-returns-value]


def test_position_metrics_pass() -> None:
    testing.check_metric(sr.PositionMetric(weights=[0.5, 0.3, 0.2], gain=[0, 1, 5]), grades=[0, 1, 2])
    with pytest.raises(AssertionError, match="takes no labels that were tried; name some with grades="):
        testing.check_metric(sr.PositionMetric(weights=[1], gain=[0.5]))


def last(relevance: np.ndarray) -> float:
    return float(relevance[-1])


def rising(relevance: np.ndarray) -> float:
    return float((relevance * np.arange(len(relevance))).sum())


def infinite(relevance: np.ndarray) -> float:
    return np.inf if len(relevance) == 100 else 1.0


@dataclasses.dataclass(frozen=True)
class Biased(sr.MAP):
    """The rule of average precision with gains that it is not for: its jumps are wrong."""

    factor = AVERAGE

    def gains(self, labels: Any) -> Any:
        return labels / 4


@pytest.mark.parametrize(
    ("metric", "keywords", "message"),
    [
        (sr.FunctionMetric(function=rising, name="r"), {}, "r is not bounded: it grows faster than the list"),
        (
            sr.FunctionMetric(function=infinite, name="i"),
            {},
            "i fails for lists of 100 documents: i is not finite in query 0: inf",
        ),
        (sr.FunctionMetric(function=last, name="last"), {}, r"last is not monotone in relevance: it falls by .* moves up"),
        (Biased(), {"monotone": False}, "biased: the gradient is biased for two documents and normal noise"),
        (Biased(), {"monotone": False, "translation": False}, "biased for five documents and normal noise"),
    ],
)
def test_what_is_wrong_is_caught(metric: sr.Metric, keywords: dict[str, Any], message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        testing.check_metric(metric, **keywords)


def test_a_metric_that_is_not_monotone_may_be_asked_for() -> None:
    testing.check_metric(sr.FunctionMetric(function=last, name="last"), monotone=False)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda scores: np.where(np.abs(scores) > 10, -scores, scores),
            "is not scale-free: scores multiplied by 7 change it",
        ),
        (np.abs, "is not translation-invariant: scores moved by 100 change it"),
    ],
)
def test_values_that_depend_on_more_than_the_order(change: Any, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    right = testing.evaluate
    monkeypatch.setattr(testing, "evaluate", lambda m, scores, *rest, **named: right(m, change(scores), *rest, **named))
    with pytest.raises(AssertionError, match=message):
        testing.check_metric("ndcg")


def test_a_gradient_of_the_wrong_size_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    bound = sr.losses.BoundStochasticRank
    right = bound.gradient
    for factor in (1.05, 0.95, -1.0):
        monkeypatch.setattr(bound, "gradient", lambda self, scores, i=0, f=factor: f * right(self, scores, i))
        with pytest.raises(AssertionError, match="the gradient is biased for two documents and normal noise"):
            testing.check_metric("dcg@2")
