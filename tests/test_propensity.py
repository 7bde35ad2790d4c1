"""Labels from clicks: expectations written out over all outcomes, propensities found again, and trainings on clicks."""

from __future__ import annotations

import doctest
import itertools
import pathlib
import sys
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import stochasticrank_objectives as sr

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))

from benchmarks.position_bias import compare, labels, simulate
from stochasticrank_objectives import propensity
from stochasticrank_objectives.datasets import make_ranking

PROPENSITIES = np.array([1.0, 0.5, 0.25])
RELEVANCE = np.array([0.2, 0.7, 1.0, 0.4])  # the probability of a click by whoever looks
POSITIONS = np.array([1, 3, 2, 3])


def expectation(value: Any) -> Any:
    """Of a function of clicks, over all of their 16 outcomes."""
    rates = PROPENSITIES[POSITIONS - 1] * RELEVANCE
    total = 0.0
    for outcome in itertools.product((0, 1), repeat=4):
        clicks = np.array(outcome)
        total = total + np.prod(np.where(clicks == 1, rates, 1 - rates)) * value(clicks)
    return total


def corrected(clicks: NDArray[Any]) -> NDArray[np.float64]:
    return sr.debias(clicks, POSITIONS, PROPENSITIES)


def test_a_click_counts_one_over_its_propensity() -> None:
    assert sr.debias([1, 1, 0, 3], [1, 3, 3, 2], [1.0, 0.5, 0.2]).tolist() == [1, 5, 0, 6]
    assert sr.debias([1, 1], [1, 2], [1.0, 0.01]).tolist() == [1, 10]
    assert sr.debias([1, 1], [1, 2], [1.0, 0.01], clip=3).tolist() == [1, 3]
    assert sr.debias([1, 1], [1, 2], [1.0, 0.01], clip=None) == pytest.approx([1, 100])


@pytest.mark.parametrize("metric", ["dcg:gain=linear", "dcg@2:gain=linear"])
@pytest.mark.parametrize("scores", [[4, 3, 2, 1], [1, 2, 3, 4], [2, 4, 1, 3]])
def test_the_metric_is_unbiased(metric: str, scores: list[float]) -> None:
    of_clicks = expectation(lambda clicks: sr.evaluate(metric, scores, corrected(clicks), [4]))
    assert of_clicks == pytest.approx(sr.evaluate(metric, scores, RELEVANCE, [4]), rel=1e-12)
    biased = expectation(lambda clicks: sr.evaluate(metric, scores, clicks, [4]))
    assert biased < 0.9 * of_clicks


@pytest.mark.parametrize("metric", ["dcg:gain=linear", "dcg@2:gain=linear"])
def test_the_gradient_is_unbiased(metric: str) -> None:
    """In the mean over the noise as well, which goes to documents in an order that depends on the labels."""
    loss = sr.StochasticRank(metric, mu=0, sfa=False, samples=20_000)

    def gradient(values: NDArray[Any]) -> NDArray[np.float64]:
        return loss.bind(values, [4]).gradient([0.4, 0.1, 0.2, 0.3])

    assert expectation(lambda clicks: gradient(corrected(clicks))) == pytest.approx(gradient(RELEVANCE), abs=0.01)


# ------------------------------------------------------------ estimated


def test_propensities_are_found_again() -> None:
    """Better documents stand higher, so that rates of clicks alone overstate the bias."""
    data = make_ranking(400, documents=(8, 8), features=6, seed=1)
    true = 1.0 / np.arange(1, 9) ** 0.8
    log = simulate(data._replace(features=data.features * 0 + 0.4 * data.labels[:, None]), 30, true)
    found = sr.estimate_propensities(log.positions, log.clicks, items=log.items)
    assert found == pytest.approx(true, rel=0.12)
    naive = sr.estimate_propensities(log.positions, log.clicks)
    assert naive[-1] < 0.8 * true[-1]


def test_many_items_that_were_shown_twice_each() -> None:
    """Few impressions per item give no bias, if there are many items."""
    rng = np.random.default_rng(0)
    relevance = rng.random(40_000)
    positions = np.array([rng.permutation(3)[:2] for _ in relevance]) + 1
    true = np.array([1.0, 0.6, 0.3])
    clicks = rng.random(positions.shape) < true[positions - 1] * relevance[:, None]
    items = np.repeat(np.arange(len(relevance)), 2)
    assert sr.estimate_propensities(positions.ravel(), clicks.ravel(), items=items) == pytest.approx(true, abs=0.02)


def test_random_positions_are_compared_by_their_rates() -> None:
    assert sr.estimate_propensities([1] * 4 + [2] * 8, [1, 1, 1, 0] + [1] * 3 + [0] * 5).tolist() == pytest.approx(
        [1, (3 / 8) / (3 / 4)]
    )
    assert sr.estimate_propensities([1, 1], [1, 0]).tolist() == [1]


def test_items_may_be_words_and_rows_may_be_counts() -> None:
    items = np.array(["a", "a", "b", "b"])
    once = sr.estimate_propensities([1, 2, 1, 2], [3, 1, 1, 1], items=items)
    order = [2, 0, 3, 1]
    again = sr.estimate_propensities(np.array([1, 2, 1, 2])[order], np.array([3, 1, 1, 1])[order], items=items[order])
    assert once == pytest.approx(again)
    assert once[1] == pytest.approx(0.5)  # as often shown at both: 2 clicks against 4


# ------------------------------------------------------------ refused


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([1, 1], [0, 1], [1.0]), r"positions\[0\] = 0 .* the top is 1; add 1 to positions that count from 0"),
        (([1, 1], [1.5, 1], [1.0]), r"positions\[0\] = 1.5 .* whole numbers"),
        (([1, 1], [1], [1.0]), "positions must have one value per row"),
        (([1, 1], [1, 3], [1.0, 0.5]), r"positions\[1\] = 3 but there are propensities of positions 1 to 2 only"),
        (([1, 1], [1, 2], [1.0, 0.0]), r"propensities\[1\] = 0 but each is finite and above 0"),
        (([1, 1], [1, 2], []), "propensities is empty"),
        (([1, -1], [1, 2], [1.0, 1.0]), r"labels\[1\] = -1 is negative"),
    ],
)
def test_bad_arguments_of_debias(arguments: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        sr.debias(*arguments)


def test_bad_clip() -> None:
    with pytest.raises(ValueError, match="clip must be a finite number above 0, got 0; use None for no limit"):
        sr.debias([1], [1], [1.0], clip=0)


@pytest.mark.parametrize(
    ("positions", "clicks", "items", "message"),
    [
        ([], [], None, "clicks is empty"),
        ([1], [-1], None, r"clicks\[0\] = -1"),
        ([1, 3], [1, 1], None, "nothing was shown at position 2"),
        ([1, 2], [1, 0], None, "positions 2 cannot be compared with position 1"),
        ([1, 2], [1, 1], [1, 2], "positions 2 cannot be compared"),
        ([1, 2, 1, 2], [1, 1, 1, 0], [1, 2, 3, 3], "positions 2 cannot be compared"),
        ([1, 2], [1, 1], [1], "items must have one id per row, 2 in all"),
    ],
)
def test_bad_logs(positions: Any, clicks: Any, items: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        sr.estimate_propensities(positions, clicks, items=items)


# ------------------------------------------------------------ trained on clicks


@pytest.mark.parametrize("booster", ["xgboost", "lightgbm", "catboost"])
def test_training_on_corrected_clicks(booster: str) -> None:
    """Close to true labels, and far better than clicks as they are."""
    (found,) = compare(150, 50, 40, seed=0, boosters=(booster,)).values()
    gap = found["true labels"] - found["clicks as they are"]
    assert gap > 0.03
    for kind in ("corrected, propensities known", "corrected, propensities estimated"):
        assert found[kind] - found["clicks as they are"] > 0.6 * gap
        assert found["true labels"] - found[kind] < 0.025


def test_labels_of_the_benchmark_are_unbiased() -> None:
    data = make_ranking(5, documents=(4, 6), features=4, seed=0)
    true = 1.0 / np.arange(1, 7)
    log = simulate(data, 4000, true)
    assert labels(log, len(data.labels), true) == pytest.approx(0.1 + 0.9 * data.labels / 4, abs=0.1)


def test_examples_in_docstrings_run() -> None:
    assert doctest.testmod(propensity).attempted > 0
    assert doctest.testmod(propensity).failed == 0
