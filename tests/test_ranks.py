"""AUC, Spearman's rho and Kendall's tau: values as scikit-learn and scipy have them, gradients against slow truths."""

from __future__ import annotations

import copy
import dataclasses
import math
import pickle
import subprocess
import sys
from typing import Any

import hypothesis
import hypothesis.strategies as st
import naive
import naive_baselines
import naive_pairs
import numpy as np
import pytest
import scipy.stats
import sklearn.metrics

import stochasticrank_objectives as sr

RTOL = 1e-8  # the kernels' exponential has a relative error of 5e-11
PROPERTY = hypothesis.settings(deadline=None, derandomize=True, database=None, max_examples=100)
NAMES = ["auc", "auc:threshold=2", "spearman", "kendall"]
SUMS = ["0.5*auc + 0.5*ndcg@5", "0.3*spearman + mrr", "2*spearman", "auc + spearman"]


def close(actual: np.ndarray, expected: np.ndarray) -> None:
    np.testing.assert_allclose(actual, expected, rtol=RTOL, atol=RTOL * np.abs(expected).max(initial=0) + 1e-14)


def make(
    groups: list[int], seed: int, *, decimals: int | None = None, kind: str = "grades"
) -> tuple[np.ndarray, np.ndarray]:
    """Scores, and labels: grades with many ties, or signed ones without any."""
    rng = np.random.default_rng(seed)
    rows = sum(groups)
    labels = rng.choice([0.0, 0.0, 1.0, 2.0, 3.0, 4.0], rows) if kind == "grades" else rng.normal(size=rows) - 0.3
    scores = rng.normal(size=rows) * 1.5
    return (scores if decimals is None else scores.round(decimals)), labels


def jumps(name: str, labels: np.ndarray) -> np.ndarray:
    """What the metric gains when document j (row) passes u (column): for these it depends on the two labels alone."""
    if name.startswith("auc"):
        relevant = (labels > sr.parse_metric(name).threshold).astype(float)  # type: ignore[attr-defined]
        return (relevant[:, None] - relevant) / (relevant.sum() * (len(labels) - relevant.sum()))
    n = len(labels)
    if name == "spearman":
        ranks = scipy.stats.rankdata(labels)
        return (ranks[:, None] - ranks) / math.sqrt(((ranks - ranks.mean()) ** 2).sum() * (n**3 - n) / 12)
    signs = np.sign(labels[:, None] - labels)
    different = np.count_nonzero(signs) / 2
    return 2 * signs / math.sqrt(different * n * (n - 1) / 2)


def by_formula(loss: Any, scores: np.ndarray, labels: np.ndarray, iteration: int = 0) -> np.ndarray:
    """The CCS estimate of one query, for lists that are too long to evaluate the metric at every place."""
    x = naive.place(loss.metric, scores, labels, loss.sigma, loss.mu)
    y = x + naive.query_noise(loss, labels, iteration=iteration)
    crossed = jumps(str(loss.metric), labels) * naive.density(y[None, :] - x[:, None], loss.noise)
    return -crossed.sum(axis=1) / loss.sigma


# ---------------------------------------------------------- names


@pytest.mark.parametrize(
    ("name", "metric"),
    [("auc", sr.AUC()), ("auc:threshold=2", sr.AUC(2)), ("spearman", sr.Spearman()), ("kendall", sr.Kendall())],
)
def test_names_parse_and_print(name: str, metric: sr.Metric) -> None:
    assert sr.parse_metric(name) == metric
    assert str(metric) == name
    assert eval(repr(metric), {kind.__name__: kind for kind in (sr.AUC, sr.Spearman, sr.Kendall)}) == metric
    for twin in (copy.deepcopy(metric), pickle.loads(pickle.dumps(metric))):
        assert twin == metric
        assert hash(twin) == hash(metric)


def test_average_precision_has_a_second_name() -> None:
    assert sr.parse_metric("ap") == sr.MAP()
    assert sr.parse_metric("ap@10:threshold=1") == sr.MAP(10, threshold=1)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: sr.parse_metric("auc@10"), "auc counts all documents; write it without a cut"),
        (lambda: sr.parse_metric("spearman@3"), "spearman counts all documents"),
        (lambda: sr.parse_metric("kendal"), 'did you mean "kendall"'),
        (lambda: sr.Kendall() + sr.NDCG(5), "kendall cannot be part of a sum, whose terms weigh positions"),
        (
            lambda: sr.YetiLoss("kendall"),
            "YetiLoss takes metrics that weigh positions of a ranked list, and kendall does not",
        ),
        (lambda: sr.LambdaMART("kendall"), "LambdaMART takes metrics that weigh positions .*use StochasticRank"),
        (lambda: sr.StochasticRank("auc").bind([1, -1], [2]), r"labels\[1\] = -1 is negative"),
        (lambda: sr.evaluate("spearman + ndcg@3", [1, 2], [1, -1], [2]), r"labels\[1\] = -1 is negative"),
        (lambda: sr.evaluate("spearman", [1, 2], [1, np.nan], [2]), r"labels\[1\] = nan is not finite"),
    ],
)
def test_refused(wrong: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        wrong()


# ---------------------------------------------------------- values


@pytest.mark.parametrize("kind", ["grades", "signed"])
@pytest.mark.parametrize("n", [2, 3, 10, 257, 4000])
def test_values_as_scipy(n: int, kind: str) -> None:
    for seed in range(3):
        scores, labels = make([n], seed, kind=kind)
        if len(set(labels)) > 1:
            for ties in ("worst", "mean", "best"):  # scores do not tie
                rho, tau = (sr.evaluate(name, scores, labels, [n], ties=ties) for name in ("spearman", "kendall"))  # type: ignore[arg-type]
                assert rho == pytest.approx(scipy.stats.spearmanr(scores, labels).statistic, abs=1e-12)
                assert tau == pytest.approx(scipy.stats.kendalltau(scores, labels).statistic, abs=1e-12)


@pytest.mark.parametrize("n", [10, 257, 4000])
def test_values_as_scikit_learn(n: int) -> None:
    for seed in range(3):
        scores, labels = make([n], seed, decimals=1)  # AUC with ties in the mean order is scikit-learn's
        ours = sr.evaluate("auc", scores, labels, [n], ties="mean")
        assert ours == pytest.approx(sklearn.metrics.roc_auc_score(labels > 0, scores), rel=1e-12)
        scores, labels = make([n], seed)
        ours = sr.evaluate("ap", scores, labels, [n])
        assert ours == pytest.approx(sklearn.metrics.average_precision_score(labels > 0, scores), rel=1e-12)
        relevant = int((np.sort(scores)[-20:].min() <= scores)[labels > 0].sum())
        assert sr.evaluate("precision@20", scores, labels, [n]) == pytest.approx(relevant / 20)


@pytest.mark.parametrize("ties", ["worst", "mean", "best"])
@pytest.mark.parametrize("name", [*NAMES, *SUMS])
def test_ties_by_trying_all_orders(name: str, ties: Any) -> None:
    groups = [1, 2, 3, 5, 7]
    for seed in range(6):
        scores, labels = make(groups, seed, decimals=0)
        found = sr.evaluate(name, scores, labels, groups, ties=ties, per_query=True)
        begin = 0
        for value, n in zip(found, groups, strict=True):
            rows = slice(begin, begin + n)
            begin += n
            expected = naive.tied_value(name, list(scores[rows]), list(labels[rows]), ties)
            assert value == pytest.approx(expected, abs=1e-12)


def test_values_written_out() -> None:
    labels = [3, 1, 2]
    assert sr.evaluate("spearman", [3, 2, 1], labels, [3]) == pytest.approx(1 - 6 * (0 + 1 + 1) / (3 * 8))
    assert sr.evaluate("kendall", [3, 2, 1], labels, [3]) == pytest.approx((2 - 1) / 3)
    assert sr.evaluate("auc", [3, 2, 1], [1, 0, 1], [3]) == pytest.approx(1 / 2)
    assert sr.evaluate("kendall", [3, 2, 1], [-1, -1, -2], [3]) == pytest.approx(2 / math.sqrt(2 * 3))


def test_queries_in_which_nothing_can_be_ranked() -> None:
    labels, groups, scores = [1, 1, 0, 0, 1, 1, 0], [2, 2, 1, 2], np.arange(7.0)[::-1]
    for name in ("auc", "spearman", "kendall"):
        found = sr.evaluate(name, scores, labels, groups, per_query=True, empty=0.25)
        assert found.tolist() == [0.25, 0.25, 0.25, 1.0]
        assert sr.evaluate(name, scores, labels, groups, empty="skip") == 1.0
        gradient = sr.StochasticRank(name, sfa=False).bind(labels, groups).gradient(scores)
        assert not gradient[:5].any()
        assert gradient[5:].all()


@pytest.mark.parametrize("name", ["spearman", "kendall"])
def test_only_the_order_of_labels_counts(name: str) -> None:
    scores, labels = make([5, 40], 2, kind="signed")
    for changed in (3.0 * labels - 7.0, np.exp(labels)):
        assert sr.evaluate(name, scores, changed, [5, 40]) == pytest.approx(sr.evaluate(name, scores, labels, [5, 40]))
        loss = sr.StochasticRank(name, mu=0.0)
        close(loss.bind(changed, [5, 40]).gradient(scores), loss.bind(labels, [5, 40]).gradient(scores))


# ---------------------------------------------------------- gradients against the naive version

SETTINGS = [
    {"mu": 0.0, "sfa": False},
    {"mu": 0.4, "sfa": False, "sigma": 0.6, "samples": 3},
    {"mu": 0.4, "sfa": True, "sigma": 1.7},
    {"mu": 0.0, "sfa": 0.5, "nu": 0.3, "samples": 2},
    {"mu": 0.2, "sfa": True, "estimator": "reinforce", "sigma": 0.8, "samples": 2},
    {"mu": 0.1, "sfa": False, "noise": "logistic", "sigma": 0.7},
]


@pytest.mark.parametrize("kind", ["grades", "signed"])
@pytest.mark.parametrize("name", [*NAMES, *SUMS])
def test_gradients_equal_naive(name: str, kind: str) -> None:
    if kind == "signed" and not sr.parse_metric(name).signed:
        kind = "grades"
    groups = [1, 2, 2, 3, 5, 9, 18]
    for case, keywords in enumerate(SETTINGS):
        scores, labels = make(groups, case, decimals=None if case % 2 else 1, kind=kind)
        loss = sr.StochasticRank(name, seed=case, **keywords)
        expected = naive.gradient(loss, scores, labels, groups, iteration=case)
        close(loss.bind(labels, groups).gradient(scores, case), expected)


def spread(kind: str, n: int, rng: np.random.Generator) -> np.ndarray:
    return {
        "plain": lambda: rng.normal(size=n),
        "wide": lambda: rng.normal(size=n) * 100.0,
        "clumps": lambda: rng.integers(-4, 5, n) * 6.0 + rng.normal(size=n) * 0.01,
        "ties": lambda: rng.integers(-2, 3, n).astype(float),
        "far": lambda: rng.normal(size=n) + 1e5 * (rng.random(n) < 0.02),
    }[kind]()


@pytest.mark.parametrize("scattered", ["plain", "wide", "clumps", "ties", "far"])
@pytest.mark.parametrize("name", ["auc", "spearman", "kendall"])
def test_long_lists_equal_the_formula(name: str, scattered: str) -> None:
    """Fast transforms, and for Kendall halves of halves, cut between runs of equal labels of any length."""
    rng = np.random.default_rng(4)
    for n, labels in (
        (300, rng.integers(0, 5, 300).astype(float)),
        (1300, rng.permutation(1300).astype(float)),
        (2100, np.where(rng.random(2100) < 0.9, 0.0, rng.integers(0, 4, 2100))),
        (2600, rng.integers(0, 3, 2600).astype(float)),
    ):
        scores = spread(scattered, n, rng)
        loss = sr.StochasticRank(name, mu=0.3, sfa=False, sigma=0.9, seed=1)
        close(loss.bind(labels, [n]).gradient(scores, 1), by_formula(loss, scores, labels, 1))


def test_long_lists_with_logistic_noise_equal_the_formula() -> None:
    scores, labels = make([700], 3)
    for name in ("auc", "spearman", "kendall"):
        loss = sr.StochasticRank(name, sfa=False, noise="logistic")
        close(loss.bind(labels, [700]).gradient(scores), by_formula(loss, scores, labels))


def test_the_formula_equals_re_evaluation() -> None:
    scores, labels = make([12], 3)
    for name in NAMES:
        loss = sr.StochasticRank(name, mu=0.2, sfa=False)
        close(by_formula(loss, scores, labels), naive.gradient(loss, scores, labels, [12]))


@pytest.mark.parametrize("name", ["auc", "spearman", "kendall"])
def test_any_number_of_threads_gives_the_same(name: str) -> None:
    groups = [7, 1, 300, 40, 3] * 30 + [1100]
    scores, labels = make(groups, 6)
    results = {
        sr.StochasticRank(name, threads=threads, samples=2).bind(labels, groups).gradient(scores, 3).tobytes()
        for threads in (1, 2, 5)
    }
    assert len(results) == 1


@pytest.mark.parametrize("name", ["auc", "spearman", "kendall"])
def test_all_rows_as_one_huge_list(name: str) -> None:
    """In which, for positions that all count alike, threads share the documents."""
    n = 60_001
    rng = np.random.default_rng(3)
    labels = rng.integers(0, 3, n).astype(float)
    scores = (rng.normal(size=n) + 0.3 * labels).round(2)
    loss = sr.StochasticRank(name, mu=0.0, sfa=False)
    actual = loss.bind(labels, [n]).gradient(scores)
    y = scores + naive.query_noise(loss, labels)
    some = np.array([0, 5, 777, 30_000, 60_000])
    worth = {"auc": labels > 0, "spearman": scipy.stats.rankdata(labels), "kendall": labels}[name].astype(float)
    difference = worth[some, None] - worth
    if name == "auc":
        difference /= worth.sum() * (n - worth.sum())
    elif name == "spearman":
        difference /= math.sqrt(((worth - worth.mean()) ** 2).sum() * (n**3 - n) / 12)
    else:
        sizes = np.unique(labels, return_counts=True)[1]
        pairs = n * (n - 1) / 2
        difference = 2 * np.sign(difference) / math.sqrt(pairs * (pairs - (sizes * (sizes - 1) / 2).sum()))
    expected = -(difference * naive.density(y - scores[some, None])).sum(axis=1)
    np.testing.assert_allclose(actual[some], expected, rtol=RTOL, atol=RTOL * np.abs(actual).max())


# ---------------------------------------------------------- exact expectations

COPIES, DRAWS = 400, 250


@pytest.mark.parametrize("mu", [0.0, 0.3])
@pytest.mark.parametrize("name", ["auc", "spearman", "kendall", "0.5*auc + 0.5*ndcg@2"])
def test_mean_of_ccs_is_the_exact_gradient(name: str, mu: float) -> None:
    for n, exact in ((2, naive.exact_pair), (3, naive.exact_triple)):
        scores, labels = np.array([0.3, -0.4, 0.1])[:n], np.array([0.0, 3.0, 1.0])[:n]
        truth = exact(name, scores, labels, sigma=0.7, mu=mu)
        loss = sr.StochasticRank(name, sigma=0.7, mu=mu, sfa=False, samples=DRAWS, seed=n)
        bound = loss.bind(np.tile(labels, COPIES), np.full(COPIES, n))
        found = bound.gradient(np.tile(scores, COPIES)).reshape(COPIES, n)
        error = found.std(axis=0, ddof=1) / math.sqrt(COPIES)
        assert (np.abs(found.mean(axis=0) - truth) <= 5 * error + 1e-12).all(), (found.mean(axis=0), truth, error)
        assert error.max() <= 0.02 * np.abs(truth).max() + 1e-12


@pytest.mark.parametrize("name", ["auc", "spearman", "kendall"])
def test_mean_of_ccs_in_longer_lists(name: str) -> None:
    """Jumps do not depend on the other documents, so the expectation is known for any length: y_u - y_j has variance 2."""
    scores, labels = make([9], 1)
    difference = (scores[None, :] - scores[:, None]) / math.sqrt(2.0)
    truth = -(jumps(name, labels) * naive.density(difference)).sum(axis=1) / math.sqrt(2.0)
    bound = sr.StochasticRank(name, mu=0.0, sfa=False, samples=DRAWS).bind(np.tile(labels, COPIES), np.full(COPIES, 9))
    found = bound.gradient(np.tile(scores, COPIES)).reshape(COPIES, 9)
    error = found.std(axis=0, ddof=1) / math.sqrt(COPIES)
    assert (np.abs(found.mean(axis=0) - truth) <= 5 * error + 1e-12).all()
    assert error.max() <= 0.02 * np.abs(truth).max()


# ---------------------------------------------------------- properties


@pytest.mark.parametrize("name", ["auc", "spearman", "kendall"])
def test_invariant_to_shift_and_scale(name: str) -> None:
    groups = [2, 9, 40]
    scores, labels = make(groups, 4)
    here = sr.evaluate(name, scores, labels, groups, per_query=True)
    assert (sr.evaluate(name, 8.0 * scores + 3.0, labels, groups, per_query=True) == here).all()
    loss = sr.StochasticRank(name, sfa=False)
    close(loss.bind(labels, groups).gradient(scores + 5.0), loss.bind(labels, groups).gradient(scores))
    sharp = sr.StochasticRank(name, nu=1e-14).bind(labels, groups).gradient(scores)
    for rows in np.split(np.arange(51), np.cumsum(groups)[:-1]):
        assert abs(sharp[rows] @ (scores[rows] - scores[rows].mean())) < 1e-9
        assert abs(sharp[rows].sum()) < 1e-9


@pytest.mark.parametrize("name", ["auc", "spearman", "kendall"])
def test_a_larger_label_is_never_better_further_down(name: str) -> None:
    rng = np.random.default_rng(0)
    for _ in range(40):
        labels, scores = rng.integers(0, 4, 9).astype(float), rng.permutation(9).astype(float)
        before = sr.evaluate(name, scores, labels, [9])
        order = np.argsort(-scores)
        at = rng.integers(8)
        swapped = scores.copy()
        swapped[order[at]], swapped[order[at + 1]] = scores[order[at + 1]], scores[order[at]]
        change = sr.evaluate(name, swapped, labels, [9]) - before
        better = labels[order[at + 1]] - labels[order[at]]
        assert change >= -1e-12 if better >= 0 else change <= 1e-12
        assert better == 0 or abs(change) > 0 or name == "auc"


EXTREME = [0.0, 5e-324, 1e-300, -1e-8, 1.0, -1.0, 50.0, 1e8, -1e150, 1e200, 1.7e308, -1.7e308]


@PROPERTY
@hypothesis.given(st.data())
def test_anything_gives_finite_bounded_gradients(data: st.DataObject) -> None:
    n = data.draw(st.integers(1, 60))
    name = data.draw(st.sampled_from(["auc", "spearman", "kendall", *SUMS]))
    lowest = [-1e300, -2.0] if sr.parse_metric(name).signed else []
    labels = data.draw(st.lists(st.sampled_from([0.0, 0.5, 1.0, 4.0, *lowest]), min_size=n, max_size=n))
    score = st.one_of(st.sampled_from(EXTREME), st.floats(allow_nan=False, allow_infinity=False))
    scores = data.draw(st.one_of(score.map(lambda v: [v] * n), st.lists(score, min_size=n, max_size=n)))
    loss = sr.StochasticRank(name, sfa=data.draw(st.booleans()), mu=data.draw(st.sampled_from([0.0, 0.5])))
    actual = loss.bind(labels, [n]).gradient(scores)
    assert actual.shape == (n,)
    assert np.isfinite(actual).all()
    assert np.linalg.norm(actual) <= 4 * math.sqrt(n)
    if len(set(labels)) == 1:
        assert not actual.any()
    worst, best = (sr.evaluate(name, scores, labels, [n], ties=ties) for ties in ("worst", "best"))  # type: ignore[arg-type]
    assert worst <= best + 1e-12
    assert abs(best) <= 2 + 1e-12


@PROPERTY
@hypothesis.given(st.integers(2, 25), st.sampled_from(NAMES), st.integers(0, 2**32))
def test_random_queries_equal_naive(n: int, name: str, seed: int) -> None:
    scores, labels = make([n], seed, decimals=1)
    loss = sr.StochasticRank(name, seed=seed, sfa=bool(seed % 2), samples=1 + seed % 3, mu=0.1 * (seed % 4))
    close(loss.bind(labels, [n]).gradient(scores, 2), naive.gradient(loss, scores, labels, [n], iteration=2))


# ---------------------------------------------------------- other losses


@pytest.mark.parametrize("name", ["auc", "spearman", "0.5*auc + 0.5*ndcg@5"])
def test_pairwise_losses_equal_naive(name: str) -> None:
    groups = [1, 2, 3, 9, 21]
    scores, labels = make(groups, 3, decimals=1)
    loss = sr.LambdaMART(name)
    expected = naive_baselines.derivatives(loss, scores, labels, groups)
    for ours, theirs in zip(loss.bind(labels, groups).derivatives(scores), expected, strict=True):
        close(ours, theirs)
    yeti = sr.YetiLoss(name, neighbours=3, permutations=2)
    expected = naive_pairs.rescaled(naive_pairs.yeti_derivatives(yeti, scores, labels, groups), labels, groups)
    for ours, theirs in zip(yeti.bind(labels, groups).derivatives(scores), expected, strict=True):
        close(ours, theirs)


def test_query_rmse_takes_negative_labels() -> None:
    scores, labels = make([5, 7], 3, kind="signed")
    assert labels.min() < 0
    shift = sr.QueryRMSE().bind(labels + 10.0, [5, 7]).gradient(scores)
    close(sr.QueryRMSE().bind(labels, [5, 7]).gradient(scores), shift)


def test_query_rmse_of_ranks_is_that_of_ranks_as_labels() -> None:
    groups = [1, 2, 5, 30]
    for kind in ("grades", "signed"):
        scores, labels = make(groups, 3, kind=kind)
        ranks = np.concatenate([scipy.stats.rankdata(one) / len(one) for one in np.split(labels, np.cumsum(groups)[:-1])])
        close(
            sr.QueryRMSE(ranks=True).bind(labels, groups).gradient(scores),
            sr.QueryRMSE().bind(ranks, groups).gradient(scores),
        )
    assert str(sr.QueryRMSE(ranks=True)) == "QueryRMSE(ranks=True)"
    with pytest.raises(ValueError, match="ranks must be True or False, got 1"):
        sr.QueryRMSE(ranks=1)  # type: ignore[arg-type]


def test_hessians_and_sglb() -> None:
    scores, labels = make([6, 30], 3, kind="signed")
    loss = sr.StochasticRank("spearman", sfa=False, hessian_constant=0.0)
    gradient, hessian = loss.bind(labels, [6, 30]).derivatives(scores)
    assert hessian is not None
    np.testing.assert_allclose(hessian, np.abs(gradient) + 1e-3, rtol=1e-9)
    noisy = sr.SGLB(dataclasses.replace(loss, hessian_constant=1.0)).bind(labels, [6, 30])
    assert np.isfinite(noisy.gradient(scores, 5)).all()


def test_metrics_of_ranked_lists_do_not_load_these_kernels() -> None:
    code = """
import sys
import stochasticrank_objectives as sr
sr.StochasticRank("ndcg@3").bind([1, 0], [2]).gradient([0.0, 1.0])
sr.evaluate("ndcg@3", [0.0, 1.0], [1, 0], [2])
before = [name for name in sys.modules if name.endswith((".selected", ".concordance"))]
sr.evaluate("kendall", [0.0, 1.0], [1, 0], [2])
print(before, "stochasticrank_objectives._kernels.concordance" in sys.modules)
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.split("\n")[0] == "[] True"
