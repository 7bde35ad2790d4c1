"""The gradient against slow truths, exact expectations, and the properties that the paper promises."""

from __future__ import annotations

import copy
import dataclasses
import itertools
import math
import pickle
from typing import Any

import hypothesis
import hypothesis.strategies as st
import naive
import numpy as np
import pandas as pd
import pytest
import scipy.stats

import stochasticrank_objectives as sr
from stochasticrank_objectives import _threads

RTOL = 1e-8  # the kernels' exponential has a relative error of 5e-11
PROPERTY = hypothesis.settings(deadline=None, derandomize=True, database=None, max_examples=150)
DENSITY = 1.0 / math.sqrt(2.0 * math.pi)

# One metric of each kind, where the whole list of names would say the same again.
FEW = ["ndcg@5", "dcg:gain=linear", "err@3", "mrr", "map", "map@4", "pfound", "rbp@6", "precision@3", "recall@2", "hit@2"]


def close(actual: np.ndarray, expected: np.ndarray, rtol: float = RTOL) -> None:
    np.testing.assert_allclose(actual, expected, rtol=rtol, atol=rtol * np.abs(expected).max(initial=0) + 1e-14)


def make(metric: str, groups: list[int], seed: int, *, decimals: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Random scores (rounded, so that they tie, if told) and labels."""
    rng = np.random.default_rng(seed)
    labels = np.concatenate([naive.random_labels(metric, n, rng) for n in groups])
    scores = rng.normal(size=len(labels)) * 1.5
    return (scores if decimals is None else scores.round(decimals)), labels


# ---------------------------------------------------------- against the naive version

SETTINGS = [
    {"mu": 0.0, "sfa": False},
    {"mu": 0.4, "sfa": False, "sigma": 0.6, "samples": 3},
    {"mu": 0.4, "sfa": True, "sigma": 1.7},
    {"mu": 0.0, "sfa": 0.5, "nu": 0.3, "samples": 2},
    {"mu": 0.2, "sfa": True, "estimator": "reinforce", "sigma": 0.8, "samples": 2},
    {"mu": 0.0, "sfa": False, "estimator": "reinforce"},
]


@pytest.mark.parametrize("name", naive.NAMES)
def test_every_metric_equals_naive(name: str) -> None:
    groups = [1, 2, 2, 3, 5, 9, 18]
    for case, keywords in enumerate(SETTINGS):
        scores, labels = make(name, groups, case, decimals=None if case % 2 else 1)
        loss = sr.StochasticRank(name, seed=case, **keywords)
        expected = naive.gradient(loss, scores, labels, groups, iteration=case)
        close(loss.bind(labels, groups).gradient(scores, case), expected)


@pytest.mark.parametrize("name", naive.FAMILIES)
@pytest.mark.parametrize("cut", ["@3", "@33", "@70"])
def test_long_lists_equal_naive(name: str, cut: str) -> None:
    groups = [33, 64]
    scores, labels = make(name + cut, groups, 5)
    loss = sr.StochasticRank(name + cut, mu=0.3, sfa=False)
    close(loss.bind(labels, groups).gradient(scores, 1), naive.gradient(loss, scores, labels, groups, iteration=1))


@pytest.mark.parametrize("name", ["ndcg@35", "err@35", "map@35", "recall@40"])
def test_a_long_cut_in_a_longer_list_equals_naive(name: str) -> None:
    scores, labels = make(name, [110], 8)
    labels[np.random.default_rng(0).random(110) < 0.8] = 0.0
    loss = sr.StochasticRank(name, mu=0.0, sfa=True)
    close(loss.bind(labels, [110]).gradient(scores), naive.gradient(loss, scores, labels, [110]))


def spread(kind: str, n: int, rng: np.random.Generator) -> np.ndarray:
    """Scores that sit together, lie far apart, come in clumps, tie, or have a few far away."""
    return {
        "near": lambda: rng.normal(size=n) * 0.05,
        "plain": lambda: rng.normal(size=n),
        "wide": lambda: rng.normal(size=n) * 300.0,
        "clumps": lambda: rng.integers(-4, 5, n) * 6.0 + rng.normal(size=n) * 0.01,
        "ties": lambda: rng.integers(-2, 3, n).astype(float),
        "far": lambda: rng.normal(size=n) + 1e5 * (rng.random(n) < 0.02),
    }[kind]()


@pytest.mark.parametrize("name", naive.NAMES)
def test_formula_of_the_jumps_equals_re_evaluation(name: str) -> None:
    """The naive version for long lists below, against the one above."""
    for seed in range(4):
        scores, labels = make(name, [11], seed)
        noise = np.random.default_rng(seed).normal(size=11)
        by_formula = naive.ccs_by_formula(name, scores, labels, noise, sigma=0.7, mu=0.2)
        close(by_formula, naive.ccs(name, scores, labels, noise, sigma=0.7, mu=0.2), 1e-12)


@pytest.mark.parametrize("kind", ["near", "plain", "wide", "clumps", "ties", "far"])
@pytest.mark.parametrize("name", ["ndcg", "dcg:gain=linear", "err", "mrr", "map", "pfound", "rbp", "ndcg@150", "map@150"])
def test_very_long_lists_equal_the_formula(name: str, kind: str) -> None:
    rng = np.random.default_rng(1)
    groups = [130, 257, 700]
    labels = np.concatenate([naive.random_labels(name, n, rng) * (rng.random(n) < 0.3) for n in groups])
    scores = np.concatenate([spread(kind, n, rng) for n in groups])
    loss = sr.StochasticRank(name, mu=0.3, sfa=False, sigma=0.9)
    actual = loss.bind(labels, groups).gradient(scores, 1)
    expected = naive.gradient(loss, scores, labels, groups, iteration=1, by_formula=True)
    starts = np.cumsum([0, *groups])
    for a, b in itertools.pairwise(starts):
        close(actual[a:b], expected[a:b])


@pytest.mark.parametrize("name", ["ndcg@10", "ndcg", "err", "map", "pfound@300"])
def test_one_huge_query(name: str) -> None:
    """Threads share its documents: still bit-identical for any number of them, in any company, and equal to the formula."""
    n = 60_001
    rng = np.random.default_rng(3)
    labels = naive.random_labels(name, n, rng) * (rng.random(n) < 0.01)
    scores = rng.normal(size=n).round(2)
    loss = sr.StochasticRank(name, mu=0.3, sfa=False, seed=2)
    actual = loss.bind(labels, [n]).gradient(scores)
    noise = naive.query_noise(loss, labels)
    top = np.argsort(-(naive.place(name, scores, labels, 1.0, 0.3) + noise))
    some = [*top[[0, 1, 7, 60, 3000, -1]], *np.flatnonzero(labels)[:4], *np.flatnonzero(labels == 0)[:2]]
    expected = naive.ccs_by_formula(name, scores, labels, noise, mu=0.3, documents=some)
    np.testing.assert_allclose(actual[some], expected[some], rtol=RTOL, atol=RTOL * np.abs(actual).max())

    projected = dataclasses.replace(loss, sfa=True, samples=2)
    small = np.array([1.0, 0.0, 1.0])
    results = []
    for threads in (1, 2, 3, 5):
        bound = dataclasses.replace(projected, threads=threads).bind(np.append(labels, small), [n, 3], query_keys=[6, 1])
        results.append(bound.gradient(np.append(scores, small), 4)[:n].tobytes())
    results.append(projected.bind(labels, [n], query_keys=[6]).gradient(scores, 4).tobytes())
    assert len(set(results)) == 1


@pytest.mark.parametrize("name", ["pfound", "pfound@40", "err"])
def test_long_cascades_that_hardly_ever_stop(name: str) -> None:
    """Small gains, so that the whole list is read; and gains near 1 deep in it."""
    rng = np.random.default_rng(2)
    labels = rng.random(400) * 0.01
    labels[rng.integers(0, 400, 5)] = 1.0 - 1e-9
    loss = sr.StochasticRank(name, mu=0.0, sfa=False)
    scores = rng.normal(size=400)
    for iteration in range(3):
        expected = naive.gradient(loss, scores, labels, [400], iteration=iteration, by_formula=True)
        close(loss.bind(labels, [400]).gradient(scores, iteration), expected)


@pytest.mark.parametrize(
    "metric", [sr.MRR(), sr.MRR(k=4), sr.Hit(k=1), sr.Hit(k=4), sr.PFound(), sr.PFound(k=4), sr.ERR(k=4)]
)
@pytest.mark.parametrize("stops", [0, 1, 2, 3, 7, 12])
@pytest.mark.parametrize("others", [0.0, 0.3, 1.0 - 1e-12])
def test_documents_that_end_a_cascade(metric: sr.Metric, stops: int, others: float) -> None:
    labels = np.full(12, others)
    labels[:stops] = 1.0
    if isinstance(metric, sr.ERR):  # the largest gain an ERR can have is below 1: (2^50 - 1)/2^50 is as near as it gets
        metric, labels = sr.ERR(k=4, max_grade=50), labels * 50
    rng = np.random.default_rng(stops)
    for iteration in range(4):
        rng.shuffle(labels)
        scores = rng.normal(size=12)
        loss = sr.StochasticRank(metric, mu=0.0, sfa=False, seed=stops)
        expected = naive.gradient(loss, scores, labels, [12], iteration=iteration)
        actual = loss.bind(labels, [12]).gradient(scores, iteration)
        np.testing.assert_allclose(actual, expected, rtol=RTOL, atol=1e-12)  # naive takes differences of numbers near 1


@pytest.mark.parametrize("name", FEW)
def test_weights(name: str) -> None:
    groups = [4, 6, 1, 5]
    scores, labels = make(name, groups, 3)
    loss = sr.StochasticRank(name)
    plain = loss.bind(labels, groups).gradient(scores)
    of_query = np.array([0.5, 0.0, 3.0, 2.0])
    close(loss.bind(labels, groups, of_query).gradient(scores), plain * np.repeat(of_query, groups), 1e-13)
    of_row = np.random.default_rng(0).random(16)
    of_row[2] = 0.0
    close(loss.bind(labels, groups, weights=of_row).gradient(scores), plain * of_row, 1e-13)
    close(loss.bind(labels, groups, of_row).gradient(scores), naive.gradient(loss, scores, labels, groups, of_row))
    close(loss.bind(labels, groups, of_query).gradient(scores), naive.gradient(loss, scores, labels, groups, of_query))


def test_binary_metrics_shift_by_binary_relevance() -> None:
    graded, binary = [4.0, 1.0, 3.0, 0.0], [1.0, 0.0, 1.0, 0.0]
    scores = [0.1, 0.4, 0.2, 0.3]
    for kind in (sr.MAP, sr.MRR):
        above = sr.StochasticRank(kind(threshold=2), mu=2.0).bind(graded, [4]).gradient(scores)
        given = sr.StochasticRank(kind(), mu=2.0).bind(binary, [4]).gradient(scores)
        np.testing.assert_array_equal(above, given)


@PROPERTY
@hypothesis.given(st.data())
def test_naive_on_whatever_hypothesis_finds(data: st.DataObject) -> None:
    n = data.draw(st.integers(1, 12))
    name = data.draw(st.sampled_from(naive.NAMES))
    grades = [0.0, 0.25, 0.5, 1.0] if name.startswith("pfound") else [0.0, 0.5, 1.0, 2.0, 4.0]
    labels = np.array(data.draw(st.lists(st.sampled_from(grades), min_size=n, max_size=n)))
    levels = st.one_of(st.sampled_from([-1.0, 0.0, 1.0]), st.floats(-8, 8, width=16))
    scores = np.array(data.draw(st.lists(levels, min_size=n, max_size=n)))
    loss = sr.StochasticRank(
        name,
        sigma=data.draw(st.sampled_from([0.25, 1.0, 3.0])),
        mu=data.draw(st.sampled_from([0.0, 0.1, 2.0])),
        sfa=data.draw(st.sampled_from([False, True, 0.5])),
        samples=data.draw(st.integers(1, 3)),
        estimator=data.draw(st.sampled_from(["ccs", "reinforce"])),
    )
    iteration = data.draw(st.integers(0, 2**31))
    expected = naive.gradient(loss, scores, labels, [n], iteration=iteration)
    close(loss.bind(labels, [n]).gradient(scores, iteration), expected)


EXTREME = [0.0, -0.0, 1.0, -1.0, 1e30, -1e30, 1e300, -1e300, 1.7e308, -1.7e308, 5e-324, -5e-324, 1e-310, 1e-160, 3e160]


@PROPERTY
@hypothesis.given(st.data())
def test_anything_gives_finite_bounded_gradients(data: st.DataObject) -> None:
    n = data.draw(st.integers(1, 60))
    stem = data.draw(st.sampled_from(naive.FAMILIES))
    k = data.draw(st.sampled_from([1, 2, n, n + 1, 10**9, 2**62]))
    top = 1.0 if stem == "pfound" else 4.0
    label = st.sampled_from([0.0, 0.5, 1.0, top])
    labels = data.draw(st.one_of(label.map(lambda v: [v] * n), st.lists(label, min_size=n, max_size=n)))
    score = st.one_of(st.sampled_from(EXTREME), st.floats(allow_nan=False, allow_infinity=False))
    scores = data.draw(st.one_of(score.map(lambda v: [v] * n), st.lists(score, min_size=n, max_size=n)))
    sfa = data.draw(st.sampled_from([False, True]))
    loss = sr.StochasticRank(f"{stem}@{k}", sfa=sfa, mu=data.draw(st.sampled_from([0.0, 0.5])))
    actual = loss.bind(labels, [n]).gradient(scores)
    assert actual.dtype == np.float64
    assert actual.shape == (n,)
    assert np.isfinite(actual).all()
    bound = DENSITY * (16.0 if stem == "dcg" else 1.0)
    assert np.linalg.norm(actual) <= bound * math.sqrt(n) * (1 + 1e-9)
    if not sfa:
        assert np.abs(actual).max() <= bound * (1 + 1e-9)
    if len(set(naive.relevance(loss.metric, np.array(labels)))) == 1:
        assert not actual.any()


# ---------------------------------------------------------- exact expectations

EXACT = [name for name in naive.NAMES if "@5" not in name]
COPIES, DRAWS = 400, 250


def estimates(loss: sr.StochasticRank, scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Independent estimates of one query's gradient, a row each: copies of the query under keys of their own."""
    n = len(labels)
    bound = loss.bind(np.tile(labels, COPIES), np.full(COPIES, n))
    return bound.gradient(np.tile(scores, COPIES)).reshape(COPIES, n)


def within(estimate: np.ndarray, exact: np.ndarray, errors: float = 5.0) -> None:
    error = estimate.std(axis=0, ddof=1) / math.sqrt(len(estimate))
    assert (np.abs(estimate.mean(axis=0) - exact) <= errors * error + 1e-12).all(), (estimate.mean(axis=0), exact, error)


def few_labels(name: str, n: int) -> np.ndarray:
    if name.startswith("pfound"):
        return np.array([0.3, 1.0, 0.0][:n])
    if name.startswith(("hit", "mrr")):
        return np.array([2.0, 3.0, 0.0][:n]) if "threshold" in name else np.array([0.0, 3.0, 0.0][:n])
    return np.array([0.0, 3.0, 1.0][:n])


@pytest.mark.parametrize("mu", [0.0, 0.3])
@pytest.mark.parametrize("name", EXACT)
def test_mean_of_ccs_is_the_exact_gradient(name: str, mu: float) -> None:
    sigma = 0.7
    for n, exact in ((2, naive.exact_pair), (3, naive.exact_triple)):
        scores, labels = np.array([0.3, -0.4, 0.1])[:n], few_labels(name, n)
        truth = exact(name, scores, labels, sigma=sigma, mu=mu)
        loss = sr.StochasticRank(name, sigma=sigma, mu=mu, sfa=False, samples=DRAWS, seed=n)
        found = estimates(loss, scores, labels)
        within(found, truth)
        # The test can tell: with enough draws, the error allowed is small beside what is measured.
        error = found.std(axis=0, ddof=1) / math.sqrt(COPIES)
        assert error.max() <= 0.02 * np.abs(truth).max() + 1e-12


@pytest.mark.parametrize("mu", [0.0, 0.3])
@pytest.mark.parametrize("name", FEW)
def test_reinforce_has_the_same_mean_and_a_larger_variance(name: str, mu: float) -> None:
    scores, labels = np.array([0.3, -0.4, 0.1]), few_labels(name, 3)
    ccs = sr.StochasticRank(name, sigma=0.7, mu=mu, sfa=False, samples=DRAWS, seed=11)
    reinforce = dataclasses.replace(ccs, estimator="reinforce")
    truth = naive.exact_triple(name, scores, labels, sigma=0.7, mu=mu)
    noisy, calm = estimates(reinforce, scores, labels), estimates(ccs, scores, labels)
    within(noisy, truth)
    if name != "precision@3":  # nothing to gain in a list of three: both are zero
        assert noisy.var(axis=0).sum() > 1.5 * calm.var(axis=0).sum()


def test_reinforce_varies_more_in_long_lists() -> None:
    scores, labels = make("ndcg@5", [30], 2)
    ccs = sr.StochasticRank("ndcg@5", mu=0.0, sfa=False)
    reinforce = dataclasses.replace(ccs, estimator="reinforce")
    noisy, calm = estimates(reinforce, scores, labels), estimates(ccs, scores, labels)
    assert noisy.var(axis=0).sum() > 5 * calm.var(axis=0).sum()
    difference = noisy.mean(axis=0) - calm.mean(axis=0)
    error = np.sqrt((noisy.var(axis=0) + calm.var(axis=0)) / COPIES)
    assert (np.abs(difference) <= 5 * error).all()


def test_exact_triple_is_the_derivative_of_orthant_probabilities() -> None:
    """The formula that serves as truth above, against scipy's bivariate normal and a numerical derivative."""
    labels = np.array([0.0, 3.0, 1.0])

    def smoothed(z: np.ndarray) -> float:
        x = naive.place("ndcg@2", z, labels, 0.7, 0.6)
        total = 0.0
        covariance = [[2.0, -1.0], [-1.0, 2.0]]
        for a, b, c in [(0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)]:
            upper = [x[a] - x[b], x[b] - x[c]]
            chance = scipy.stats.multivariate_normal.cdf(upper, [0.0, 0.0], covariance, abseps=1e-12, releps=1e-12)
            total += chance * naive.value("ndcg@2", labels[[a, b, c]])
        return -total

    z = np.array([0.3, -0.4, 0.1])
    step = 1e-3
    numerical = [(smoothed(z + step * e) - smoothed(z - step * e)) / (2 * step) for e in np.eye(3)]
    exact = naive.exact_triple("ndcg@2", z, labels, sigma=0.7, mu=0.6)
    np.testing.assert_allclose(exact, numerical, atol=1e-5)
    assert np.abs(exact).max() > 0.05


# ---------------------------------------------------------- properties


@pytest.mark.parametrize("name", FEW)
def test_sfa_is_orthogonal_to_centred_scores_and_never_longer(name: str) -> None:
    groups = [2, 3, 5, 17, 40]
    scores, labels = make(name, groups, 4)
    full = sr.StochasticRank(name, sfa=False).bind(labels, groups).gradient(scores)
    sharp = sr.StochasticRank(name, nu=1e-14).bind(labels, groups).gradient(scores)
    longest: dict[float, np.ndarray] = {0.0: full}
    for strength in (0.25, 0.5, 1.0):
        longest[strength] = sr.StochasticRank(name, sfa=strength, nu=0.1).bind(labels, groups).gradient(scores)
    begin = 0
    for n in groups:
        rows = slice(begin, begin + n)
        begin += n
        centred = scores[rows] - scores[rows].mean()
        size = np.linalg.norm(full[rows])
        assert abs(sharp[rows].sum()) <= 1e-12 * (size + 1)
        assert abs(sharp[rows] @ centred) <= 1e-10 * (size * np.linalg.norm(centred) + 1e-10)
        assert np.linalg.norm(sharp[rows]) <= size * (1 + 1e-12)
        norms = [np.linalg.norm(longest[strength][rows]) for strength in (0.0, 0.25, 0.5, 1.0)]
        assert (np.diff(norms) <= 1e-12 * (size + 1)).all()  # the more is taken away, the shorter


@pytest.mark.parametrize("off", [False, 0, 0.0])
def test_sfa_off_can_be_written_as_zero(off: float) -> None:
    scores, labels = make("ndcg", [9], 4)
    expected = naive.gradient(sr.StochasticRank("ndcg", sfa=False), scores, labels, [9])
    close(sr.StochasticRank("ndcg", sfa=off).bind(labels, [9]).gradient(scores), expected)


@pytest.mark.parametrize("sigma", [1e-3, 0.1, 1.0, 30.0])
@pytest.mark.parametrize("name", naive.NAMES)
def test_bound_of_the_gradient(name: str, sigma: float) -> None:
    """|dM/dz_j| <= phi(0)/sigma sum_m |D(j, m)|, and the jumps of one document add up to at most the metric's range.

    |D(j, m)| = F_m (w_m - w_{m+1}) |g_j - g_u| with F <= 1, or F <= R for MAP, which divides by R; the falling weights
    telescope to w_0. So the sum is at most w_0 max |g_j - g_u|, normalised: 1 for all but DCG, the largest gain for that.
    """
    groups = [3, 8, 40]
    scores, labels = make(name, groups, 6)
    largest = 1.0
    if name.startswith("dcg"):
        largest = labels.max() if "linear" in name else 2.0 ** labels.max() - 1.0
    if "grades=0.25" in name:
        largest = 1.0 + 0.25 * labels.max()
    if "power" in name:  # M is NDCG times the root of the ideal
        largest = max(naive.value(name, sorted(part, reverse=True)) for part in np.split(labels, np.cumsum(groups)[:-1]))
    loss = sr.StochasticRank(name, sigma=sigma, mu=0.0, sfa=False)
    bound = loss.bind(labels, groups)
    for iteration in range(5):
        for z in (scores, 0.0 * scores, scores * sigma):
            assert np.abs(bound.gradient(z, iteration)).max() <= DENSITY / sigma * largest * (1 + 1e-9)


@pytest.mark.parametrize("name", FEW)
@pytest.mark.parametrize("c", [0.25, 3.7, 1e5])
def test_scaling_scores_and_sigma(name: str, c: float) -> None:
    groups = [2, 5, 21]
    scores, labels = make(name, groups, 7)
    for keywords, scaled in (({"sfa": False}, {"sfa": False}), ({"nu": 0.02}, {"nu": 0.02 * c})):
        one = sr.StochasticRank(name, sigma=0.8, mu=0.3, **keywords).bind(labels, groups).gradient(scores)
        other = sr.StochasticRank(name, sigma=0.8 * c, mu=0.3, **scaled).bind(labels, groups).gradient(c * scores)
        close(other * c, one)


@pytest.mark.parametrize("name", FEW)
@pytest.mark.parametrize("sfa", [False, True])
def test_translation_invariance(name: str, sfa: bool) -> None:
    groups = [2, 5, 21]
    scores, labels = make(name, groups, 7)
    bound = sr.StochasticRank(name, sfa=sfa).bind(labels, groups)
    shifted = scores + np.repeat([100.0, -7.3, 1e4], groups)  # each query by its own
    close(bound.gradient(shifted), bound.gradient(scores), 1e-7)


@pytest.mark.parametrize("name", ["ndcg@2", "err", "map"])
def test_permuting_documents_permutes_the_gradient_in_distribution(name: str) -> None:
    scores = np.array([0.3, -0.4, 0.1, 0.9, -0.2])
    labels = np.array([1.0, 0.0, 1.0, 2.0, 0.0])
    order = np.array([3, 0, 4, 2, 1])
    loss = sr.StochasticRank(name, mu=0.2)
    straight = estimates(loss, scores, labels)[:, order]
    permuted = estimates(dataclasses.replace(loss, seed=1), scores[order], labels[order])
    for a, b in zip(straight.T, permuted.T, strict=True):
        assert scipy.stats.ks_2samp(a, b).pvalue > 1e-4
        assert abs(a.mean() - b.mean()) <= 5 * math.sqrt((a.var() + b.var()) / COPIES)
    if name != "map":  # where gains tell documents apart, each keeps its own noise, whatever row it stands in
        labels = np.array([3.0, 0.0, 1.0, 2.0, 4.0])
        direct = loss.bind(labels, [5]).gradient(scores)
        np.testing.assert_allclose(
            loss.bind(labels[order], [5]).gradient(scores[order]), direct[order], rtol=1e-9, atol=1e-15
        )


@pytest.mark.parametrize("name", ["ndcg@10", "ndcg", "err", "map", "mrr", "pfound@7"])
@pytest.mark.parametrize("estimator", ["ccs", "reinforce"])
def test_bit_identical_for_any_number_of_threads(name: str, estimator: str) -> None:
    rng = np.random.default_rng(0)
    groups = rng.integers(1, 80, 150).tolist()
    scores, labels = make(name, groups, 9)
    results = []
    for threads in (1, 2, 3, 5):
        loss = sr.StochasticRank(name, threads=threads, samples=2, estimator=estimator)
        results.append(loss.bind(labels, groups).gradient(scores, 4))
    assert results[0].any()
    for other in results[1:]:
        assert other.tobytes() == results[0].tobytes()


def test_a_query_gets_the_same_gradient_in_any_company() -> None:
    groups = [7, 40, 3, 12, 25]
    keys = np.array([11, 2**40 + 5, 0, 7, 2**63 + 9], np.uint64)
    scores, labels = make("ndcg@5", groups, 10)
    ends = np.cumsum([0, *groups])
    loss = sr.StochasticRank("ndcg@5", samples=2)
    together = loss.bind(labels, groups, query_keys=keys).gradient(scores, 3)
    for q, n in enumerate(groups):
        rows = slice(ends[q], ends[q + 1])
        alone = loss.bind(labels[rows], [n], query_keys=keys[q : q + 1]).gradient(scores[rows], 3)
        assert alone.tobytes() == together[rows].tobytes()
    backwards = np.concatenate([np.arange(ends[q], ends[q + 1]) for q in reversed(range(5))])
    turned = loss.bind(labels[backwards], groups[::-1], query_keys=keys[::-1]).gradient(scores[backwards], 3)
    assert turned.tobytes() == together[backwards].tobytes()
    numbered = loss.bind(labels, groups, query_keys=range(5)).gradient(scores, 3)
    assert numbered.tobytes() == loss.bind(labels, groups).gradient(scores, 3).tobytes()
    assert not np.array_equal(numbered, together)


def test_seed_iteration_query_and_sample_select_the_noise() -> None:
    scores, labels = make("ndcg", [8], 1)
    twice = np.tile(scores, 2), np.tile(labels, 2)
    loss = sr.StochasticRank("ndcg")
    seen = [loss.bind(labels, [8]).gradient(scores, iteration) for iteration in (0, 1, 2, 2**31, 2**40)]
    seen += [dataclasses.replace(loss, seed=seed).bind(labels, [8]).gradient(scores) for seed in (1, 2, 2**32, 2**63)]
    seen += [dataclasses.replace(loss, samples=2).bind(labels, [8]).gradient(scores)]
    seen += [loss.bind(twice[1], [8, 8]).gradient(twice[0])[8:]]
    for i, one in enumerate(seen):
        for other in seen[:i]:
            assert np.abs(one - other).max() > 1e-6
    np.testing.assert_array_equal(loss.bind(labels, [8]).gradient(scores), seen[0])


def test_gradient_keeps_no_state_and_leaves_its_input_alone() -> None:
    scores, labels = make("err", [8, 9], 1)
    before = scores.copy(), labels.copy()
    bound = sr.StochasticRank("err").bind(labels, [8, 9])
    first = bound.gradient(scores, 0)
    bound.gradient(-scores, 1)
    kept = first.copy()
    np.testing.assert_array_equal(bound.gradient(scores, 0), first)
    np.testing.assert_array_equal(first, kept)
    np.testing.assert_array_equal(scores, before[0])
    np.testing.assert_array_equal(labels, before[1])
    labels[:] = 0  # what was bound stays bound
    np.testing.assert_array_equal(bound.gradient(scores, 0), first)


@pytest.mark.parametrize("sfa", [False, True])
@pytest.mark.parametrize("estimator", ["ccs", "reinforce"])
@pytest.mark.parametrize("name", naive.NAMES)
def test_exact_zeros(name: str, estimator: str, sfa: bool) -> None:
    top = 1.0 if name.startswith("pfound") else 4.0
    labels = np.array([top, 0.0, 0.0, 0.0, top, top, top, 0.0, top])  # one document; none relevant; all alike; mixed
    groups = [1, 3, 3, 2]
    scores = np.random.default_rng(0).normal(size=9)
    actual = sr.StochasticRank(name, estimator=estimator, sfa=sfa).bind(labels, groups).gradient(scores)
    assert not actual[:7].any()
    # The mixed pair has a gradient wherever its order matters to the metric.
    matters = naive.value(name, [top, 0.0]) != naive.value(name, [0.0, top])
    if estimator == "ccs":
        assert actual[7:].all() == matters
    if not matters:
        assert not actual[7:].any()


# ---------------------------------------------------------- objects


def test_copies_and_pickles_give_the_same_gradients() -> None:
    scores, labels = make("ndcg@4", [8, 9], 1)
    keys, weights = [5, 9], [1.0, 2.0]
    loss = sr.StochasticRank("ndcg@4", mu=0.3, sigma=0.5, samples=2, seed=3, sfa=0.5)
    bound = loss.bind(labels, [8, 9], weights, query_keys=keys)
    expected = bound.gradient(scores, 6)
    for twin in (copy.copy(loss), copy.deepcopy(loss), pickle.loads(pickle.dumps(loss))):
        assert twin == loss
        assert hash(twin) == hash(loss)
        np.testing.assert_array_equal(twin.bind(labels, [8, 9], weights, query_keys=keys).gradient(scores, 6), expected)
    for other in (copy.copy(bound), copy.deepcopy(bound), pickle.loads(pickle.dumps(bound))):
        np.testing.assert_array_equal(other.gradient(scores, 6), expected)
    assert len(pickle.dumps(loss)) < 1000


def test_objects_print_usefully() -> None:
    loss = sr.StochasticRank("ndcg@4:gain=linear", mu=0.5, seed=3)
    assert str(loss) == "StochasticRank('ndcg@4:gain=linear', mu=0.5, seed=3)"
    assert eval(str(loss), {"StochasticRank": sr.StochasticRank}) == loss
    assert eval(repr(loss), vars(sr)) == loss
    assert repr(loss.bind([1, 0, 0], [3])) == f"<{loss} bound to 3 rows in 1 queries>"
    assert sr.StochasticRank(sr.NDCG(k=4)) == sr.StochasticRank("ndcg@4")
    with pytest.raises(dataclasses.FrozenInstanceError):
        loss.sigma = 2.0  # type: ignore[misc]


def _read_only(a: np.ndarray) -> np.ndarray:
    a = a.copy()
    a.flags.writeable = False
    return a


KINDS = {
    "list": list,
    "tuple": tuple,
    "series": lambda a: pd.Series(a, index=np.arange(len(a))[::-1]),
    "nullable": lambda a: pd.Series(a).convert_dtypes(),
    "read-only": _read_only,
    "strided": lambda a: np.repeat(a, 3)[::3],
    "backwards": lambda a: np.ascontiguousarray(a[::-1])[::-1],
    "column": lambda a: np.asfortranarray(np.stack([a, a, a], axis=1))[:, 1],
    "big-endian": lambda a: a.astype(a.dtype.newbyteorder(">")),
    "object": lambda a: a.astype(object),
    "float32": lambda a: a.astype(np.float32),
    "float16": lambda a: a.astype(np.float16),
    "longdouble": lambda a: a.astype(np.longdouble),
}


@pytest.mark.parametrize("kind", KINDS)
def test_any_kind_of_input(kind: str) -> None:
    turn = KINDS[kind]
    scores = np.array([0.5, -0.25, 0.125, 2.0, -1.0, 0.75, 0.0])  # exact in every type
    labels, groups, weights = np.array([2, 0, 1, 0, 1, 3, 0]), np.array([4, 3]), np.array([1.5, 0.5])
    loss = sr.StochasticRank("ndcg@3")
    expected = loss.bind(labels, groups, weights).gradient(scores, 2)
    np.testing.assert_array_equal(loss.bind(turn(labels), turn(groups), turn(weights)).gradient(turn(scores), 2), expected)
    qid = turn(np.array([5, 5, 5, 5, 2, 2, 2]))
    np.testing.assert_array_equal(loss.bind(labels, weights=weights, qid=qid).gradient(scores, 2), expected)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "uint64", "bool"])
def test_integer_labels_and_scores(dtype: str) -> None:
    values = np.array([1, 0, 1, 0, 1, 1, 0])
    loss = sr.StochasticRank("map")
    expected = loss.bind(values.astype(float), [4, 3]).gradient(values[::-1].astype(float))
    found = loss.bind(values.astype(dtype), [4, 3]).gradient(values[::-1].astype(dtype))
    np.testing.assert_array_equal(found, expected)


def test_qid_may_be_strings() -> None:
    loss = sr.StochasticRank("map")
    expected = loss.bind([1, 0, 1, 0, 0], [2, 3]).gradient([0.0, 1.0, 2.0, 3.0, 4.0])
    for qid in (["b", "b", "a", "a", "a"], pd.Series(["b", "b", "a", "a", "a"]), pd.Categorical(["b", "b", "a", "a", "a"])):
        np.testing.assert_array_equal(loss.bind([1, 0, 1, 0, 0], qid=qid).gradient([0.0, 1.0, 2.0, 3.0, 4.0]), expected)


# ------------------------------------------------------------ hessians


@pytest.mark.parametrize("weights", [None, "rows", "queries"])
@pytest.mark.parametrize("keywords", [{"hessian_constant": constant} for constant in (0.0, 0.25, 1)])
def test_hessian_and_gradient_have_one_unit(keywords: dict[str, float], weights: str | None) -> None:
    """Below 1, the gradient is in units of its mean size per unit of weight at scores 0, whatever the scores are later."""
    rng = np.random.default_rng(0)
    labels, groups, scores = rng.integers(0, 4, 90), [30, 20, 40], rng.normal(size=90)
    given = {None: None, "rows": rng.uniform(0.5, 2, 90), "queries": np.array([1.0, 0.5, 3.0])}[weights]
    of_rows = {None: np.ones(90), "rows": given, "queries": np.repeat([1.0, 0.5, 3.0], groups)}[weights]
    plain = sr.StochasticRank("err@5", sfa=False).bind(labels, groups, given)
    gradient, hessian = sr.StochasticRank("err@5", sfa=False, **keywords).bind(labels, groups, given).derivatives(scores, 3)
    constant = keywords["hessian_constant"]
    if constant == 1:
        assert hessian is None
        close(gradient, plain.gradient(scores, 3))
        return
    close(gradient, plain.gradient(scores, 3) * of_rows.sum() / np.abs(plain.gradient(np.zeros(90))).sum())
    assert hessian is not None
    close(hessian, max(constant, 1e-3) * of_rows + (1 - constant) * np.abs(gradient))


@pytest.mark.parametrize(
    "keywords",
    [{}, {"sfa": False}, {"sfa": 0.5}, {"estimator": "reinforce"}, {"noise": "logistic"}, {"samples": 3, "mu": 0.0}]
    + [{"sfa": False, "hessian_constant": constant} for constant in (0.0, 0.5, 1.0)],
)
def test_derivatives_begin_with_the_gradient(keywords: dict[str, Any]) -> None:
    for name in FEW:
        scores, labels = make(name, [4, 9, 30], 2)
        bound = sr.StochasticRank(name, **keywords).bind(labels, [4, 9, 30], [1.0, 2.0, 0.5])
        np.testing.assert_array_equal(bound.derivatives(scores, 5)[0], bound.gradient(scores, 5))


def test_where_there_is_nothing_to_learn_the_gradient_is_zero_and_the_hessian_is_not() -> None:
    bound = sr.StochasticRank("ndcg@5", sfa=False, hessian_constant=0.0).bind([1, 1, 0, 0], [2, 2])
    gradient, hessian = bound.derivatives(np.zeros(4))
    assert not gradient.any()
    assert hessian is not None
    assert (hessian > 0).all()


def test_hessians_that_cannot_be() -> None:
    assert sr.StochasticRank("ndcg@5").bind([1, 0], [2]).derivatives([0, 0])[1] is None
    for wrong in (-0.5, 2, np.nan, None, True, "one"):
        with pytest.raises(
            ValueError, match=r"hessian_constant must be a finite number at least 0 and at most 1, got .*paper"
        ):
            sr.StochasticRank("ndcg@5", sfa=False, hessian_constant=wrong)  # type: ignore[arg-type]
    for constant in (0.0, 0.5):
        with pytest.raises(ValueError, match=rf"hessian_constant={constant} goes with sfa=False, got sfa=True"):
            sr.StochasticRank("ndcg@5", hessian_constant=constant)


# ------------------------------------------------------------ logistic noise

LOGISTIC = [
    {"mu": 0.0, "sfa": False},
    {"mu": 0.4, "sfa": False, "sigma": 0.6, "samples": 3},
    {"mu": 0.2, "sfa": True, "sigma": 1.7},
]


@pytest.mark.parametrize("name", naive.NAMES)
def test_logistic_noise_equals_naive(name: str) -> None:
    groups = [1, 2, 3, 5, 9, 18]
    for case, keywords in enumerate(LOGISTIC):
        scores, labels = make(name, groups, case, decimals=None if case % 2 else 1)
        loss = sr.StochasticRank(name, seed=case, noise="logistic", **keywords)
        expected = naive.gradient(loss, scores, labels, groups, iteration=case)
        close(loss.bind(labels, groups).gradient(scores, case), expected)


@pytest.mark.parametrize("name", ["ndcg", "ndcg@10", "err", "mrr", "map", "pfound@150"])
def test_logistic_noise_in_long_lists_equals_the_formula(name: str) -> None:
    groups = [40, 300]
    scores, labels = make(name, groups, 1)
    loss = sr.StochasticRank(name, mu=0.3, sfa=False, noise="logistic")
    expected = naive.gradient(loss, scores, labels, groups, iteration=1, by_formula=True)
    close(loss.bind(labels, groups).gradient(scores, 1), expected)


@pytest.mark.parametrize("mu", [0.0, 0.3])
@pytest.mark.parametrize("name", FEW)
def test_mean_of_ccs_with_logistic_noise_is_the_exact_gradient(name: str, mu: float) -> None:
    for n in (2, 3):
        scores, labels = np.array([0.3, -0.4, 0.1])[:n], few_labels(name, n)
        truth = naive.exact_by_integration(name, scores, labels, sigma=0.7, mu=mu, law="logistic")
        loss = sr.StochasticRank(name, sigma=0.7, mu=mu, sfa=False, samples=DRAWS, seed=n, noise="logistic")
        found = estimates(loss, scores, labels)
        within(found, truth)
        error = found.std(axis=0, ddof=1) / math.sqrt(COPIES)
        assert error.max() <= 0.02 * np.abs(truth).max() + 1e-12


@pytest.mark.parametrize("name", FEW)
def test_exact_gradients_by_integration_are_those_of_the_closed_forms(name: str) -> None:
    for n, exact in ((2, naive.exact_pair), (3, naive.exact_triple)):
        scores, labels = np.array([0.3, -0.4, 0.1])[:n], few_labels(name, n)
        expected = exact(name, scores, labels, sigma=0.7, mu=0.6)
        found = naive.exact_by_integration(name, scores, labels, sigma=0.7, mu=0.6)
        np.testing.assert_allclose(found, expected, atol=1e-10)


def test_noise_that_cannot_be() -> None:
    with pytest.raises(ValueError, match='noise must be "normal" or "logistic", got \'gumbel\''):
        sr.StochasticRank("ndcg@5", noise="gumbel")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="noise='logistic' goes with estimator=\"ccs\", got estimator='reinforce'"):
        sr.StochasticRank("ndcg@5", noise="logistic", estimator="reinforce")


# ------------------------------------------------------------ mu, power, seeds and threads


@pytest.mark.parametrize("name", ["ndcg@5:gain=linear", "dcg:gain=linear", "map"])
def test_mu_does_not_depend_on_the_range_of_the_labels(name: str) -> None:
    scores, labels = make(name, [5, 9, 14], 3)
    loss = sr.StochasticRank(name, mu=0.7)
    one, many = (loss.bind(labels * times, [5, 9, 14]).gradient(scores) for times in (1.0, 100.0))
    close(many, one * (100.0 if name.startswith("dcg") else 1.0))
    assert np.abs(sr.StochasticRank(name, mu=0.0).bind(labels, [5, 9, 14]).gradient(scores) - one).max() > 1e-3


def test_mu_is_the_shift_per_grade_on_grades_up_to_four() -> None:
    scores, labels = np.array([0.2, -0.1, 0.4]), np.array([4.0, 1.0, 0.0])
    loss = sr.StochasticRank("ndcg:gain=linear", mu=0.3, sfa=False)
    shifted = dataclasses.replace(loss, mu=0.0).bind(labels, [3]).gradient(scores - 0.3 * labels)
    close(loss.bind(labels, [3]).gradient(scores), shifted)
    assert not sr.StochasticRank("ndcg", mu=0.3).bind(np.zeros(3), [3]).gradient(scores).any()


@pytest.mark.parametrize("power", [0.0, 0.3, 1.0])
def test_power_of_the_ideal(power: float) -> None:
    groups = [4, 9, 20]
    scores, labels = make("ndcg", groups, 3)
    dcg = sr.StochasticRank("dcg@5").bind(labels, groups).gradient(scores)
    ideal = sr.evaluate("dcg@5", labels, labels, groups, per_query=True)
    found = sr.StochasticRank(sr.NDCG(5, power=power)).bind(labels, groups).gradient(scores)
    close(found, dcg / np.repeat(ideal**power, groups))
    assert str(sr.StochasticRank("ndcg@5:power=0.5")) == "StochasticRank('ndcg@5:power=0.5')"


@pytest.mark.parametrize("seed", [-1, 2**64, 2**70, 1.0, True, None, "1"])
def test_seeds_that_cannot_be(seed: Any) -> None:
    for loss in (sr.StochasticRank, sr.LambdaMART, sr.YetiLoss):
        with pytest.raises(ValueError, match=r"seed must be a whole number of at least 0.*, got"):
            loss("map", seed=seed)
    with pytest.raises(ValueError, match=r"seed must be a whole number of at least 0.*, got"):
        sr.XENDCG(seed=seed)


def test_every_bit_of_a_seed_counts() -> None:
    scores, labels = make("ndcg", [8], 1)
    seeds = [0, *(1 << bit for bit in range(64)), 2**64 - 1]
    found = {sr.StochasticRank("ndcg", seed=seed).bind(labels, [8]).gradient(scores).tobytes() for seed in seeds}
    assert len(found) == len(seeds)


@pytest.mark.parametrize(
    "loss",
    [sr.StochasticRank("ndcg@5"), sr.LambdaMART("ndcg@5"), sr.YetiLoss("ndcg@5"), sr.XENDCG()],
    ids=lambda loss: str(loss),
)
def test_threads_are_those_of_the_loss_or_else_those_set(loss: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    used: set[int] = set()
    run = _threads.run
    monkeypatch.setattr(
        _threads,
        "run",
        lambda work, borders, threads, scratch=None: used.add(threads) or run(work, borders, threads, scratch),
    )
    monkeypatch.setenv("NUMBA_NUM_THREADS", "3")
    for own, given, expected in ((None, None, 3), (None, 2, 2), (4, 2, 4)):
        bound = dataclasses.replace(loss, threads=own).bind([0, 1, 2, 0], [4])
        assert bound.threads is None
        bound.threads = given
        used.clear()
        bound.gradient(np.zeros(4))
        assert used == {expected}
