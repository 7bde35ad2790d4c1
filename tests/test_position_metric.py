"""A metric of one's own equals the built-in one where it says the same, and brute force elsewhere."""

from __future__ import annotations

import itertools
import pickle
from typing import Any

import naive
import numpy as np
import pytest
from test_losses import close

import stochasticrank_objectives as sr

GROUPS = [1, 2, 3, 6, 40, 300]


def logarithmic(i: np.ndarray) -> np.ndarray:
    return 1.0 / np.log2(i + 2.0)


def reciprocal(i: np.ndarray) -> np.ndarray:
    return 1.0 / (i + 1.0)


def relevant(labels: np.ndarray) -> np.ndarray:
    return labels > 0


TWINS: list[tuple[sr.Metric, sr.Metric]] = [
    (sr.NDCG(10), sr.PositionMetric(10, weights=logarithmic, gain="exp", normalise="ideal")),
    (sr.NDCG(), sr.PositionMetric(weights=logarithmic, gain=[0, 1, 3, 7, 15], normalise="ideal")),
    (sr.DCG(3, gain="linear"), sr.PositionMetric(weights=logarithmic(np.arange(3)))),
    (sr.ERR(), sr.PositionMetric(weights=reciprocal, gain=lambda r: (2**r - 1) / 16, rule="cascade")),
    (sr.ERR(7), sr.PositionMetric(7, weights=reciprocal, gain=np.array([0, 1, 3, 7, 15]) / 16, rule="cascade")),
    (sr.Hit(3), sr.PositionMetric(weights=(1, 1, 1), gain=relevant, rule="cascade")),
    (sr.MAP(5), sr.PositionMetric(5, weights=reciprocal, gain=relevant, rule="average", normalise="relevant")),
    (sr.Recall(4), sr.PositionMetric(weights=[1] * 4, gain=[0, 1, 1, 1, 1], normalise="relevant")),
]  # fmt: skip


def data(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Labels fall in every query, so that both number documents alike and get the same noise."""
    rng = np.random.default_rng(seed)
    labels = np.concatenate([np.sort(naive.random_labels("ndcg", n, rng))[::-1] for n in GROUPS])
    return rng.normal(size=len(labels)).round(1), labels


@pytest.mark.parametrize(("built_in", "own"), TWINS, ids=lambda metric: str(metric))
def test_equals_the_built_in_metric(built_in: sr.Metric, own: sr.Metric) -> None:
    scores, labels = data(1)
    for ties in ("worst", "mean", "best"):
        of_both = [sr.evaluate(m, scores, labels, GROUPS, ties=ties, per_query=True) for m in (built_in, own)]  # type: ignore
        np.testing.assert_allclose(*of_both, rtol=1e-12, atol=1e-15)
    for loss in (lambda m: sr.StochasticRank(m, mu=0.0), sr.YetiLoss, sr.LambdaMART):
        expected, actual = (loss(m).bind(labels, GROUPS).gradient(scores, 2) for m in (built_in, own))  # type: ignore
        close(actual, expected, 1e-9)


def value(weights: list[float], gains: list[float], rule: str, ranked: list[int]) -> float:
    """From the definition."""
    total, factor = 0.0, 1.0
    for i, label in enumerate(ranked):
        gain = gains[label]
        total += (weights[i] if i < len(weights) else 0.0) * factor * gain
        factor = {"plain": 1.0, "cascade": factor * (1 - gain), "average": factor + gain}[rule]
    return total


@pytest.mark.parametrize("rule", ["plain", "cascade", "average"])
def test_equals_brute_force(rule: Any) -> None:
    weights, gains = [0.9, 0.5, 0.5, 0.0], {"average": [0.0, 1.0, 1.0]}.get(rule, [0.0, 0.3, 1.0])
    metric = sr.PositionMetric(weights=weights, gain=gains, rule=rule)
    rng = np.random.default_rng(0)
    for n in (1, 2, 3, 5, 6):
        labels, scores = rng.integers(0, 3, n), rng.integers(0, 3, n).astype(float)
        values = [value(weights, gains, rule, [labels[j] for j in order]) for order in naive.tied_orders(list(scores))]
        for ties, expected in (("worst", min(values)), ("mean", np.mean(values)), ("best", max(values))):
            assert sr.evaluate(metric, scores, labels, [n], ties=ties) == pytest.approx(expected, rel=1e-12)  # type: ignore
        # the gradient: every jump by re-evaluation, at the noise that the kernels use
        x = rng.normal(size=n)
        loss = sr.StochasticRank(metric, mu=0.0, sfa=False)
        noise, order = np.empty(n), np.argsort(-np.array(gains)[labels], kind="stable")
        noise[order] = naive.noise(n)
        expected_gradient, y = np.zeros(n), x + noise
        for j in range(n):
            others = sorted((u for u in range(n) if u != j), key=lambda u: -y[u])
            at = [value(weights, gains, rule, [labels[u] for u in [*others[:m], j, *others[m:]]]) for m in range(n)]
            for (high, low), u in zip(itertools.pairwise(at), others, strict=True):
                expected_gradient[j] -= (high - low) * naive.density(y[u] - x[j])
        close(loss.bind(labels, [n]).gradient(x), expected_gradient)


def test_a_value() -> None:
    one, other = (sr.PositionMetric(5, weights=logarithmic, gain=relevant, name="mine") for _ in range(2))
    assert one == other == pickle.loads(pickle.dumps(one))
    assert hash(one) == hash(other)
    assert sr.PositionMetric(weights=np.array([2, 1])) == sr.PositionMetric(weights=[2.0, 1.0])
    assert str(one) == "mine@5"
    assert str(sr.PositionMetric(weights=reciprocal)) == "position"
    assert one + other == 2 * one
    assert str(0.5 * one + sr.MRR()) == "0.5*mine@5 + mrr"
    assert sr.parse_metric(one) is one


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"weights": []}, "weights must be a sequence of numbers or a function"),
        ({"weights": "ab"}, "weights must be a sequence of numbers or a function, got 'ab'"),
        ({"weights": [[1, 2]]}, "weights must be a sequence of numbers"),
        ({"weights": [1, -1]}, r"weights\[1\] = -1, but a weight is finite and not negative"),
        ({"weights": [1, np.nan]}, r"weights\[1\] = nan, but a weight is finite"),
        ({"weights": [1, 2]}, "weights rise from 1 at position 0 to 2 at the next"),
        ({"weights": lambda i: i}, "weights rise from 0 at position 0"),
        ({"weights": lambda i: 1.0}, r"weights must turn an array of 1000 numbers into as many, got float64 of shape \(\)"),
        ({"weights": [1], "k": 2}, "k=2, but there are 1 weights"),
        ({"weights": [1], "k": 0}, "k must be a whole number"),
        ({"weights": [1], "rule": "cascades"}, "rule must be"),
        ({"weights": [1], "gain": "cubic"}, "gain must be"),
        ({"weights": [1], "gain": [0, 2, 1]}, "the gain falls from 2 for label 1 to 1 for label 2; a better label"),
        ({"weights": [1], "gain": [0, -1]}, "the gain of label 1 is -1, but gains are finite and not negative$"),
        ({"weights": [1], "gain": [0, 2], "rule": "cascade"}, r"but .* with rule=\"cascade\" from 0 to 1"),
        ({"weights": [1], "gain": [0, 0.5], "rule": "average"}, r"but .* with rule=\"average\" 0 or 1"),
        ({"weights": [1], "normalise": "best"}, "normalise must be"),
        ({"weights": [1], "gain": [0, 1], "rule": "cascade", "normalise": "ideal"}, "goes with rule=\"plain\""),
        ({"weights": [1], "name": "a b"}, "name must have no spaces and no colon"),
    ],
)  # fmt: skip
def test_refused_when_defined(keywords: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        sr.PositionMetric(**keywords)


def test_refused_with_the_data() -> None:
    with pytest.raises(ValueError, match=r"labels\[1\] = 2 has no gain among those of the grades 0 to 1"):
        sr.evaluate(sr.PositionMetric(weights=[1], gain=[0, 1]), [0, 1], [1, 2], [2])
    with pytest.raises(ValueError, match=r"labels\[0\] = 0.5 has no gain"):
        sr.evaluate(sr.PositionMetric(weights=[1], gain=[0, 1]), [0, 1], [0.5, 1], [2])
    with pytest.raises(ValueError, match="the gain of label 3 is 3, but"):
        sr.evaluate(sr.PositionMetric(weights=[1], rule="cascade"), [0, 1], [3, 0], [2])
    with pytest.raises(ValueError, match="the gain of label 2 is -2"):
        sr.evaluate(sr.PositionMetric(weights=[1], gain=lambda r: -r), [0, 1], [2, 0], [2])
