"""Metrics of a selection: values against others' implementations, gradients against slow truths and exact expectations."""

from __future__ import annotations

import copy
import dataclasses
import math
import pickle
from typing import Any

import hypothesis
import hypothesis.strategies as st
import naive_selecting
import numpy as np
import pytest
import sklearn.metrics
from catboost.utils import eval_metric

import stochasticrank_objectives as sr

RTOL = 1e-8  # the kernels' exponential has a relative error of 5e-11
PROPERTY = hypothesis.settings(deadline=None, derandomize=True, database=None, max_examples=150)
DENSITY = 1.0 / math.sqrt(2.0 * math.pi)
FEW = ["dcgrr", "dcgrr@2:discount=log", "fbeta:beta=2", "accuracy"]
CLASSES = {kind.__name__: kind for kind in (sr.DCGRR, sr.FBeta, sr.Accuracy)}


def close(actual: np.ndarray, expected: np.ndarray) -> None:
    np.testing.assert_allclose(actual, expected, rtol=RTOL, atol=RTOL * np.abs(expected).max(initial=0) + 1e-14)


def make(groups: list[int], seed: int, *, decimals: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    labels = rng.choice([0.0, 0.0, 1.0, 2.0, 3.0, 4.0], sum(groups))
    scores = rng.normal(size=len(labels)) * 1.5
    return (scores if decimals is None else scores.round(decimals)), labels


# ---------------------------------------------------------- names


@pytest.mark.parametrize(
    ("name", "metric"),
    [
        ("dcgrr", sr.DCGRR()),
        ("dcgrr@10", sr.DCGRR(10)),
        ("dcgrr@10:gain=exp:discount=log", sr.DCGRR(10, gain="exp", discount="log")),
        ("fbeta", sr.FBeta()),
        ("fbeta:beta=2", sr.FBeta(2)),
        ("fbeta:threshold=1:beta=0.5", sr.FBeta(beta=0.5, threshold=1)),
        ("accuracy", sr.Accuracy()),
        ("accuracy:threshold=2", sr.Accuracy(threshold=2)),
    ],
)
def test_names_parse_and_print(name: str, metric: sr.Metric) -> None:
    assert sr.parse_metric(name) == metric
    assert str(metric) == name
    assert eval(repr(metric), CLASSES) == metric
    for twin in (copy.deepcopy(metric), pickle.loads(pickle.dumps(metric))):
        assert twin == metric
        assert hash(twin) == hash(metric)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: sr.parse_metric("fbeta@3"), r"metric 'fbeta@3': fbeta counts all documents; write it without a cut"),
        (lambda: sr.parse_metric("accuracy@3"), r"accuracy counts all documents"),
        (lambda: sr.parse_metric("dcgrr:discount=linear"), r"discount must be \"reciprocal\" or \"log\", got 'linear'"),
        (lambda: sr.DCGRR(gain="cubic"), r"gain must be \"exp\", \"linear\" or .*, got 'cubic'"),
        (lambda: sr.FBeta(0), r"beta must be a finite number above 0.*got 0; recall counts beta times as much"),
        (lambda: sr.DCGRR() + sr.NDCG(5), r"dcgrr cannot be part of a sum, whose terms weigh positions"),
        (lambda: 2 * sr.Accuracy(), r"accuracy cannot be part of a sum"),
        (
            lambda: sr.YetiLoss("dcgrr"),
            r"YetiLoss takes metrics that weigh positions of a ranked list, and dcgrr does not; use Stoch",
        ),
        (
            lambda: sr.LambdaMART("fbeta"),
            r"LambdaMART takes metrics that weigh positions of a ranked list, and fbeta does not",
        ),
        (
            lambda: sr.LambdaLoss("dcgrr"),
            r"LambdaLoss takes metrics that weigh positions of a ranked list, and dcgrr does not",
        ),
        (lambda: sr.StochasticRank("dcgrr").bind([1, -1], [2]), r"labels\[1\] = -1 is negative"),
    ],
)
def test_refused(wrong: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        wrong()


# ---------------------------------------------------------- values


@pytest.mark.parametrize("name", naive_selecting.NAMES)
@pytest.mark.parametrize("ties", ["worst", "mean", "best"])
def test_values_equal_naive(name: str, ties: Any) -> None:
    groups = [1, 2, 3, 9, 40]
    scores, labels = make(groups, 3, decimals=1)
    found = sr.evaluate(name, scores, labels, groups, per_query=True, ties=ties)
    borders = np.cumsum(groups)[:-1]
    shown = np.split(scores > 0, borders)
    expected = [naive_selecting.value(name, a, b) for a, b in zip(shown, np.split(labels, borders), strict=True)]
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_values_written_out() -> None:
    scores, labels = [2.0, -1.0, 0.5, 0.0, 3.0], [1, 3, 2, 3, 0]
    assert sr.evaluate("dcgrr", scores, labels, [5]) == 1 / 1 + 2 / 2 + 0 / 3
    assert sr.evaluate("dcgrr@1", scores, labels, [5]) == 1
    assert sr.evaluate("dcgrr:gain=exp:discount=log", scores, labels, [5]) == pytest.approx(1 / 1 + 3 / math.log2(3))
    assert sr.evaluate("fbeta", scores, labels, [5]) == pytest.approx(2 * (2 / 3) * (2 / 4) / (2 / 3 + 2 / 4))
    assert sr.evaluate("accuracy", scores, labels, [5]) == 2 / 5


@pytest.mark.parametrize(("gain", "theirs"), [("linear", "Base"), ("exp", "Exp")])
@pytest.mark.parametrize(("discount", "denominator"), [("reciprocal", "Position"), ("log", "LogPosition")])
def test_dcgrr_is_catboosts_filtered_dcg(gain: Any, theirs: str, discount: Any, denominator: str) -> None:
    groups = [1, 2, 5, 30]
    scores, labels = make(groups, 1)
    reference = eval_metric(
        labels, scores, f"FilteredDCG:type={theirs};denominator={denominator}", group_id=np.repeat(np.arange(4), groups)
    )
    assert sr.evaluate(sr.DCGRR(gain=gain, discount=discount), scores, labels, groups) == pytest.approx(reference[0])


def test_catboost_shows_a_score_of_zero_and_we_do_not() -> None:
    assert eval_metric([1.0], [0.0], "FilteredDCG", group_id=[0]) == [1.0]
    assert sr.evaluate("dcgrr", [0.0], [1], [1]) == 0.0


@pytest.mark.parametrize("beta", [0.5, 1.0, 3.0])
def test_whole_data_as_scikit_learn(beta: float) -> None:
    scores, labels = make([5000], 2)
    for threshold in (0, 2):
        truth = labels > threshold
        ours = sr.evaluate(sr.FBeta(beta, threshold=threshold), scores, labels, [5000])
        assert ours == pytest.approx(sklearn.metrics.fbeta_score(truth, scores > 0, beta=beta), rel=1e-12)
        ours = sr.evaluate(sr.Accuracy(threshold=threshold), scores, labels, [5000])
        assert ours == pytest.approx(sklearn.metrics.accuracy_score(truth, scores > 0), rel=1e-12)


def test_queries_without_relevant_documents() -> None:
    labels, groups, scores = [0, 0, 1], [2, 1], [1.0, -1.0, 1.0]
    for name in ("dcgrr", "fbeta"):
        assert sr.evaluate(name, scores, labels, groups, per_query=True, empty=0.25).tolist() == [0.25, 1.0]
        assert sr.evaluate(name, scores, labels, groups, empty="skip") == 1.0
        assert not sr.StochasticRank(name).bind(labels, groups).gradient(scores)[:2].any()
    # Accuracy is never empty: without a relevant document, nothing shown is all right.
    assert sr.evaluate("accuracy", scores, labels, groups, per_query=True, empty="skip").tolist() == [0.5, 1.0]
    assert sr.StochasticRank("accuracy", sfa=False).bind(labels, groups).gradient(scores).all()


# ---------------------------------------------------------- gradients against the naive version

SETTINGS = [
    {"sfa": False},
    {"sfa": False, "sigma": 0.6, "samples": 3},
    {"sfa": True, "sigma": 1.7},
    {"sfa": 0.5, "nu": 0.3, "samples": 2},
    {"sfa": True, "estimator": "reinforce", "sigma": 0.8, "samples": 2},
    {"sfa": False, "estimator": "reinforce"},
    {"sfa": True, "noise": "logistic", "sigma": 0.7, "samples": 2},
]


@pytest.mark.parametrize("name", naive_selecting.NAMES)
def test_gradients_equal_naive(name: str) -> None:
    groups = [1, 1, 2, 3, 5, 9, 18, 70]
    for case, keywords in enumerate(SETTINGS):
        scores, labels = make(groups, case, decimals=None if case % 2 else 1)
        loss = sr.StochasticRank(name, seed=case, **keywords)
        expected = naive_selecting.gradient(loss, scores, labels, groups, iteration=case)
        close(loss.bind(labels, groups).gradient(scores, case), expected)


def test_weights_multiply() -> None:
    groups = [2, 3, 4]
    scores, labels = make(groups, 5)
    plain = sr.StochasticRank("dcgrr").bind(labels, groups).gradient(scores)
    of_queries, of_rows = np.array([0.0, 1.0, 2.5]), np.arange(9.0)
    close(
        sr.StochasticRank("dcgrr").bind(labels, groups, of_queries).gradient(scores), plain * np.repeat(of_queries, groups)
    )
    close(sr.StochasticRank("dcgrr").bind(labels, groups, of_rows).gradient(scores), plain * of_rows)


@pytest.mark.parametrize("name", FEW)
def test_any_number_of_threads_gives_the_same(name: str) -> None:
    groups = [7, 1, 300, 40, 3] * 60
    scores, labels = make(groups, 6)
    results = {
        sr.StochasticRank(name, threads=threads, samples=2).bind(labels, groups).gradient(scores, 3).tobytes()
        for threads in (1, 2, 5)
    }
    assert len(results) == 1


# ---------------------------------------------------------- exact expectations

COPIES, DRAWS = 400, 250


def estimates(loss: sr.StochasticRank, scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Independent estimates of one query's gradient, a row each: copies of the query under keys of their own."""
    n = len(labels)
    return loss.bind(np.tile(labels, COPIES), np.full(COPIES, n)).gradient(np.tile(scores, COPIES)).reshape(COPIES, n)


@pytest.mark.parametrize("keywords", [{}, {"noise": "logistic"}, {"estimator": "reinforce"}])
@pytest.mark.parametrize("name", naive_selecting.NAMES)
def test_mean_of_the_estimate_is_the_exact_gradient(name: str, keywords: Any) -> None:
    for n in (1, 2, 3):
        scores, labels = np.array([0.3, -0.4, 0.1])[:n], np.array([1.0, 3.0, 2.0])[:n]
        loss = sr.StochasticRank(name, sigma=0.7, sfa=False, samples=DRAWS, seed=n, **keywords)
        found = estimates(loss, scores, labels)
        truth = naive_selecting.exact(name, scores, labels, sigma=0.7, law=loss.noise)
        error = found.std(axis=0, ddof=1) / math.sqrt(COPIES)
        assert (np.abs(found.mean(axis=0) - truth) <= 5 * error + 1e-10).all(), (found.mean(axis=0), truth, error)
        assert error.max() <= 0.02 * np.abs(truth).max() + 1e-12


def test_closed_forms_written_out() -> None:
    """n = 1: minus r times the density. n = 2: the first gains its label, less half of the second's if that is shown."""

    def phi(t: float) -> float:
        return DENSITY * math.exp(-0.5 * t * t)

    def below(t: float) -> float:
        return 0.5 * math.erfc(-t / math.sqrt(2.0))

    close(naive_selecting.exact("dcgrr", np.array([0.3]), np.array([2.0]), sigma=0.5), np.array([-2.0 * phi(0.6) / 0.5]))
    one = sr.StochasticRank("dcgrr", sigma=0.5, sfa=False).bind([2.0], [1]).gradient([0.3])
    close(one, np.array([-2.0 * phi(0.6) / 0.5]))
    expected = [-phi(0.3) * (1.0 - below(-0.2) * 3.0 / 2.0), -phi(-0.2) * 3.0 * (1.0 - below(0.3) / 2.0)]
    close(naive_selecting.exact("dcgrr", np.array([0.3, -0.2]), np.array([1.0, 3.0]), sigma=1.0), np.array(expected))
    # The first, though relevant, is better left out in front of the second, once that is likely to be shown.
    assert naive_selecting.exact("dcgrr", np.array([0.3, 2.0]), np.array([1.0, 3.0]), sigma=1.0)[0] > 0


def test_the_exact_gradient_is_a_derivative() -> None:
    labels, z, step = np.array([1.0, 3.0, 0.0, 2.0]), np.array([0.3, -0.4, 0.1, 0.8]), 1e-5

    def smoothed(scores: np.ndarray) -> float:
        """Minus the expected DCG-RR, by the chance that so many of the documents before are shown."""
        chances = [0.5 * math.erfc(-s / 0.7 / math.sqrt(2.0)) for s in scores]
        total, before = 0.0, np.array([1.0])
        for chance, label in zip(chances, labels, strict=True):
            total += chance * label * (before / np.arange(1, len(before) + 1)).sum()
            before = np.append(before * (1 - chance), 0.0) + np.append(0.0, before * chance)
        return -total

    numerical = [(smoothed(z + step * e) - smoothed(z - step * e)) / (2 * step) for e in np.eye(4)]
    np.testing.assert_allclose(naive_selecting.exact("dcgrr", z, labels, sigma=0.7), numerical, atol=1e-8)


# ---------------------------------------------------------- properties


@pytest.mark.parametrize("name", FEW)
def test_scale_free_but_not_translation_invariant(name: str) -> None:
    groups = [4, 9, 30]
    scores, labels = make(groups, 8)
    here = sr.evaluate(name, scores, labels, groups, per_query=True)
    assert (sr.evaluate(name, 37.5 * scores, labels, groups, per_query=True) == here).all()
    assert (sr.evaluate(name, scores + 1.0, labels, groups, per_query=True) != here).any()
    gradient = sr.StochasticRank(name, sfa=False).bind(labels, groups).gradient(scores)
    shifted = sr.StochasticRank(name, sfa=False).bind(labels, groups).gradient(scores + 1.0)
    assert np.abs(gradient - shifted).max() > 1e-4
    assert abs(gradient[:4].sum()) > 1e-3  # nothing is centred


@pytest.mark.parametrize("name", FEW)
def test_mu_shifts_nothing(name: str) -> None:
    scores, labels = make([5, 20], 9)
    results = {sr.StochasticRank(name, mu=mu).bind(labels, [5, 20]).gradient(scores).tobytes() for mu in (0.0, 0.1, 10.0)}
    assert len(results) == 1


@pytest.mark.parametrize("name", FEW)
def test_sfa_is_orthogonal_to_the_scores_as_they_are(name: str) -> None:
    groups = [2, 5, 40]
    scores, labels = make(groups, 4)
    scores += 0.5
    full = sr.StochasticRank(name, sfa=False).bind(labels, groups).gradient(scores)
    sharp = sr.StochasticRank(name, nu=1e-14).bind(labels, groups).gradient(scores)
    for rows in np.split(np.arange(47), np.cumsum(groups)[:-1]):
        assert abs(sharp[rows] @ scores[rows]) < 1e-9
        assert np.linalg.norm(sharp[rows]) <= np.linalg.norm(full[rows]) * (1 + 1e-12)
    assert np.abs(sharp - full).max() > 1e-3


def test_relevant_documents_early_in_the_list_are_left_out_where_that_pays() -> None:
    """Gradient steps from all shown find the best selection of a list of three, the weakest in front."""
    labels, scores = np.array([1.0, 4.0, 4.0]), np.full(3, 0.5)
    bound = sr.StochasticRank("dcgrr", sfa=False, samples=50).bind(labels, [3])
    for iteration in range(60):
        scores = scores - 0.3 * bound.gradient(scores, iteration)
    assert (scores > 0).tolist() == [False, True, True]
    assert sr.evaluate("dcgrr", scores, labels, [3]) == 6.0  # all shown: 1 + 2 + 4/3


EXTREME = [0.0, -0.0, 5e-324, 1e-300, -1e-8, 1.0, -1.0, 50.0, 1e8, -1e150, 1e200, 1.7e308, -1.7e308]


@PROPERTY
@hypothesis.given(st.data())
def test_anything_gives_finite_bounded_gradients(data: st.DataObject) -> None:
    n = data.draw(st.integers(1, 60))
    name = data.draw(st.sampled_from(["dcgrr", f"dcgrr@{data.draw(st.sampled_from([1, n, n + 1, 2**62]))}", *FEW[2:]]))
    labels = data.draw(st.lists(st.sampled_from([0.0, 0.5, 1.0, 4.0]), min_size=n, max_size=n))
    score = st.one_of(st.sampled_from(EXTREME), st.floats(allow_nan=False, allow_infinity=False))
    scores = data.draw(st.one_of(score.map(lambda v: [v] * n), st.lists(score, min_size=n, max_size=n)))
    sfa = data.draw(st.sampled_from([False, True]))
    actual = sr.StochasticRank(name, sfa=sfa).bind(labels, [n]).gradient(scores)
    assert actual.shape == (n,)
    assert np.isfinite(actual).all()
    if not sfa:
        bound = DENSITY * (4.0 * n if name.startswith("dcgrr") else 1.0)
        assert np.abs(actual).max() <= bound * (1 + 1e-9)
    value = sr.evaluate(name, scores, labels, [n])
    assert value == pytest.approx(naive_selecting.value(name, [s > 0 for s in scores], labels), rel=1e-12)


@PROPERTY
@hypothesis.given(st.integers(1, 25), st.sampled_from(naive_selecting.NAMES), st.integers(0, 2**32))
def test_random_queries_equal_naive(n: int, name: str, seed: int) -> None:
    scores, labels = make([n], seed, decimals=1)
    loss = sr.StochasticRank(name, seed=seed, sfa=bool(seed % 2), samples=1 + seed % 3)
    close(loss.bind(labels, [n]).gradient(scores, 2), naive_selecting.gradient(loss, scores, labels, [n], iteration=2))


def test_scores_that_are_not_finite_are_refused() -> None:
    for bad in (np.nan, np.inf):
        with pytest.raises(ValueError, match=r"scores\[1\] = (nan|inf) is not finite"):
            sr.StochasticRank("dcgrr").bind([1, 0, 1], [3]).gradient([0.0, bad, 1.0])


def test_what_is_bound_does_not_follow_the_callers_array() -> None:
    scores, labels = make([6, 30], 3)
    for name in ("dcgrr", "fbeta", "accuracy"):
        given = labels.copy()
        bound = sr.StochasticRank(name, sfa=False).bind(given, [6, 30])
        before = bound.gradient(scores)
        given[:] = 0.0
        assert (bound.gradient(scores) == before).all()


def test_beta_may_be_a_number_of_numpy() -> None:
    scores, labels = make([40], 3)
    ours = sr.evaluate(sr.FBeta(np.float32(2.0)), scores, labels, [40])  # type: ignore[arg-type]
    assert ours == pytest.approx(sklearn.metrics.fbeta_score(labels > 0, scores > 0, beta=2.0))


def test_hessians_and_sglb() -> None:
    scores, labels = make([6, 30], 3)
    loss = sr.StochasticRank("fbeta", sfa=False, hessian_constant=0.0)
    gradient, hessian = loss.bind(labels, [6, 30]).derivatives(scores)
    assert hessian is not None
    np.testing.assert_allclose(hessian, np.maximum(np.abs(gradient), 0) + 1e-3, rtol=1e-9)
    start = loss.bind(labels, [6, 30]).gradient(np.zeros(36))
    assert np.abs(start).mean() == pytest.approx(1.0)
    noisy = sr.SGLB(dataclasses.replace(loss, hessian_constant=1.0)).bind(labels, [6, 30])
    assert np.isfinite(noisy.gradient(scores, 5)).all()
