"""The pairwise baselines against naive twins, numerical derivatives and the boosters' own objectives."""

from __future__ import annotations

import copy
import dataclasses
import doctest
import math
import pickle
from typing import Any

import catboost
import hypothesis
import hypothesis.strategies as st
import lightgbm
import naive
import naive_baselines as twins
import numpy as np
import pandas as pd
import pytest
import scipy.stats
import xgboost

import stochasticrank_objectives as sr
from stochasticrank_objectives import baselines
from stochasticrank_objectives.baselines import LambdaLoss, LambdaMART, reinforce, soft_rank
from stochasticrank_objectives.datasets import RankingData, make_ranking

RTOL = 1e-8  # the kernels' exponential has a relative error of 5e-11
GROUPS = [1, 2, 2, 3, 5, 9, 18]
DCGS = ["ndcg", "ndcg@1", "ndcg@3", "ndcg@200", "ndcg@5:gain=linear", "dcg", "dcg@4:gain=linear", "ndcg@4:gain=1.5"]
FEW = [
    LambdaMART("ndcg@5"),
    LambdaMART("mrr"),
    LambdaMART("map@4"),
    LambdaMART("err"),
    LambdaLoss("ndcg@5"),
    LambdaLoss("dcg"),
]


def close(actual: Any, expected: Any, rtol: float = RTOL) -> None:
    for a, e in zip(actual, expected, strict=True):
        np.testing.assert_allclose(a, e, rtol=rtol, atol=rtol * np.abs(e).max(initial=0) + 1e-14)


def make(metric: Any, groups: list[int], seed: int, decimals: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Random scores (rounded, so that they tie, if told) and labels."""
    rng = np.random.default_rng(seed)
    labels = np.concatenate([naive.random_labels(metric, n, rng) for n in groups])
    scores = rng.normal(size=len(labels)) * 1.5
    return (scores if decimals is None else scores.round(decimals)), labels


# ---------------------------------------------------------- against the naive versions


@pytest.mark.parametrize("name", naive.NAMES)
def test_lambdamart_for_every_metric_equals_naive(name: str) -> None:
    for case, keywords in enumerate([{}, {"sigma": 0.6, "norm": True}, {"noise": 0.7, "samples": 2, "sigma": 1.8}]):
        scores, labels = make(name, GROUPS, case, decimals=1 if case < 2 else None)
        loss = LambdaMART(name, seed=case, **keywords)  # type: ignore[arg-type]
        expected = twins.derivatives(loss, scores, labels, GROUPS, iteration=case)
        close(loss.bind(labels, GROUPS).derivatives(scores, case), expected)


@pytest.mark.parametrize("name", DCGS)
def test_lambdaloss_equals_naive(name: str) -> None:
    for case, keywords in enumerate(
        [{}, {"sigma": 0.6, "mu": 0.3}, {"noise": 0.7, "samples": 2, "norm": True}, {"mu": 0.0}]
    ):
        scores, labels = make(name, GROUPS, case, decimals=1 if case < 2 else None)
        loss = LambdaLoss(name, seed=case, **keywords)
        expected = twins.derivatives(loss, scores, labels, GROUPS, iteration=case)
        close(loss.bind(labels, GROUPS).derivatives(scores, case), expected)


@pytest.mark.parametrize("name", ["ndcg", "ndcg@40", "mrr", "map@35", "pfound", "err@10", "hit@33"])
@pytest.mark.parametrize("n", [32, 33, 70])
def test_long_lists_equal_naive(name: str, n: int) -> None:
    scores, labels = make(name, [n], n)
    labels[n // 3 :] *= np.arange(n - n // 3) % 4 == 0  # many without gain, as in real data
    losses = [LambdaMART(name), LambdaLoss(name)] if name.startswith("ndcg") else [LambdaMART(name)]
    for loss in losses:
        close(loss.bind(labels, [n]).derivatives(scores), twins.derivatives(loss, scores, labels, [n]))


def test_two_documents_by_hand() -> None:
    """The worse leads by 1/2: NDCG is 1/log2(3) and a swap makes it 1."""
    weight = 1.0 - 1.0 / math.log2(3.0)
    wrong = 1.0 / (1.0 + math.exp(-0.5))
    gradient, hessian = LambdaMART("ndcg").bind([0, 3], [2]).derivatives([0.5, 0.0])
    close(gradient, [weight * wrong, -weight * wrong])
    close(hessian, [weight * wrong * (1 - wrong)] * 2)
    # G = 1 for the better, 0 for the other; neighbours: rho = delta = 1/log2(2) - 1/log2(3)
    close(LambdaLoss("ndcg", mu=5).bind([0, 3], [2]).gradient([0.5, 0.0]), [6 * weight * wrong, -6 * weight * wrong])


def test_ties_are_ranked_in_the_worst_order() -> None:
    """All tie: for NDCG@1 only what is ranked first has pairs, the last of the rows without gain."""
    gradient, hessian = LambdaMART("dcg@1").bind([1, 0, 0, 2], [4]).derivatives([0.0] * 4)
    close(gradient, [-0.5, 0.0, 2.0, -1.5])
    close(hessian, [0.25, 0.0, 1.0, 0.75])


# ---------------------------------------------------------- derivatives and properties


@pytest.mark.parametrize("loss", FEW, ids=str)
def test_derivatives_are_those_of_the_pairwise_loss(loss: LambdaMART) -> None:
    """Central differences of sum weight * log(1 + exp(-sigma (z_i - z_j))) with the weights held fixed."""
    scores, labels = make(loss.metric, [7], 3)
    loss = dataclasses.replace(loss, sigma=0.8)
    if isinstance(loss, LambdaLoss):
        weights = twins.loss2pp_weights(loss.metric, scores, labels, loss.mu)
    else:
        weights = twins.swap_weights(loss.metric, scores, labels)
    step, wide = 1e-4, 1e-3  # a second difference rounds more

    def value(j: int, by: float) -> float:
        return twins.pair_loss(weights, scores + by * (np.arange(7) == j), 0.8)

    first = [(value(j, step) - value(j, -step)) / (2 * step) for j in range(7)]
    second = [(value(j, wide) - 2 * value(j, 0.0) + value(j, -wide)) / wide**2 for j in range(7)]
    gradient, hessian = loss.bind(labels, [7]).derivatives(scores)
    np.testing.assert_allclose(gradient, first, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(hessian, second, rtol=1e-6, atol=1e-6)


scores_of_any_size = st.one_of(
    st.integers(-3, 3).map(float),
    st.floats(-10, 10),
    st.sampled_from([0.0, 1e30, -1e30, 1e300, -1e300, 5e-324, -5e-324, 1e-310]),
)


@hypothesis.settings(deadline=None, derandomize=True, database=None, max_examples=150)
@hypothesis.given(
    documents=st.lists(st.tuples(st.sampled_from([0, 0, 1, 2, 4]), scores_of_any_size), min_size=1, max_size=40),
    loss=st.sampled_from(FEW),
    norm=st.booleans(),
    noise=st.sampled_from([0.0, 0.5]),
    sigma=st.sampled_from([1e-6, 1.0, 1e6]),
)
def test_properties(documents: list[tuple[int, float]], loss: LambdaMART, norm: bool, noise: float, sigma: float) -> None:
    labels, scores = np.array(documents, float).T
    loss = dataclasses.replace(loss, norm=norm, noise=noise, sigma=sigma)
    gradient, hessian = loss.bind(labels, [len(labels)]).derivatives(scores)
    assert np.isfinite(gradient).all()
    assert np.isfinite(hessian).all()
    assert (hessian >= 0).all()
    assert abs(gradient.sum()) <= 1e-12 * np.abs(gradient).sum()
    assert (hessian <= sigma * np.abs(gradient).sum()).all()  # p (1 - p) <= p, pair by pair
    gains = labels > 0 if str(loss.metric) in ("mrr", "map@4") else labels
    assert (gradient[gains == gains.max()] <= 0).all()  # nothing is better than the best
    assert (gradient[gains == gains.min()] >= 0).all()
    if noise == 0 and len(labels) <= 12:
        close((gradient, hessian), twins.derivatives(loss, scores, labels, [len(labels)]))


@pytest.mark.parametrize("loss", FEW, ids=str)
def test_scaling_and_translation(loss: LambdaMART) -> None:
    scores, labels = make(loss.metric, [12, 8], 5)
    gradient, hessian = loss.bind(labels, [12, 8]).derivatives(scores)
    close(loss.bind(labels, [12, 8]).derivatives(scores + np.repeat([3.0, -7.0], [12, 8])), (gradient, hessian))
    wider = dataclasses.replace(loss, sigma=0.25).bind(labels, [12, 8])
    close(wider.derivatives(4 * scores), (gradient / 4, hessian / 16))


def test_without_pairs_there_is_nothing() -> None:
    """No relevant document, all the same, or one document; and those that no swap can help are zero too."""
    labels, groups = [0, 0, 0, 2, 2, 1, 1, 0, 0], [3, 2, 1, 3]
    for loss in (LambdaMART("ndcg@5"), LambdaMART("mrr"), LambdaLoss("ndcg@5")):
        gradient, hessian = loss.bind(labels, groups).derivatives(np.arange(9.0))
        assert not gradient[:6].any()
        assert not hessian[:6].any()
        assert gradient[6] < 0 < hessian[6]
        for nothing in loss.bind([0, 0, 1, 1], [2, 2]).derivatives([1, 2, 3, 4]):
            assert not nothing.any()
    below_the_cut = LambdaMART("ndcg@2").bind([0, 0, 2, 0, 3], [5]).gradient([5, 4, 3, 2, 1])
    assert below_the_cut[3] == 0  # only a swap with one of the first two counts
    assert (below_the_cut[[0, 1, 2, 4]] != 0).all()


# ---------------------------------------------------------- against the boosters


def check_leaves(
    leaf: np.ndarray, value: np.ndarray, cover: np.ndarray, derivatives: Any, rtol: float, times: float
) -> None:
    """Each row has the value -G/H and the cover H of its leaf; our sums over the rows of that leaf must give both."""
    _, member = np.unique(leaf, return_inverse=True)
    gradient, hessian = (np.bincount(member, d)[member] for d in derivatives)
    np.testing.assert_allclose(cover, times * hessian, rtol=rtol)
    np.testing.assert_allclose(-value * cover, gradient, rtol=rtol, atol=rtol * np.abs(derivatives[0]).sum())


@pytest.mark.parametrize("gain", ["exp", "linear"])
@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_lightgbm_has_the_same_derivatives(gain: str, norm: bool, weighted: bool) -> None:
    """Trees of two leaves on features that are random halves of the rows: the sums over each half."""
    groups = [8, 5, 11, 30]
    scores, labels = make("ndcg", groups, 6)
    rng = np.random.default_rng(0)
    weights = rng.uniform(0.5, 2, len(labels)) if weighted else None
    params = {
        "objective": "lambdarank", "lambdarank_norm": norm, "lambdarank_truncation_level": 100, "sigmoid": 0.7,
        "label_gain": [0, 1, 3, 7, 15] if gain == "exp" else [0, 1, 2, 3, 4], "learning_rate": 1.0,
        "num_leaves": 2, "min_data_in_leaf": 1, "min_sum_hessian_in_leaf": 0.0, "verbosity": -1, "num_threads": 1,
    }  # fmt: skip
    ours = LambdaMART(f"ndcg:gain={gain}", sigma=0.7, norm=norm).bind(labels, groups, weights).derivatives(scores)
    for _ in range(30):
        half = rng.integers(0, 2, (len(labels), 1)).astype(float)
        data = lightgbm.Dataset(half, labels, group=groups, init_score=scores, weight=weights, params=params)
        booster = lightgbm.train(params, data, 1)
        leaf = np.asarray(booster.predict(half, pred_leaf=True)).ravel().astype(int)
        assert np.unique(leaf).tolist() == [0, 1]
        table = booster.trees_to_dataframe().set_index("node_index").loc[[f"0-L{i}" for i in leaf]]
        # LightGBM looks the logistic function up in a table.
        check_leaves(leaf, table["value"].to_numpy(), table["weight"].to_numpy(), ours, 1e-4, 1.0)


@pytest.mark.parametrize("gain", ["exp", "linear"])
def test_xgboost_has_the_same_derivatives(gain: str) -> None:
    groups = [8, 5, 11, 30]
    scores, labels = make("ndcg", groups, 7)
    params = {
        "objective": "rank:ndcg", "lambdarank_pair_method": "topk", "lambdarank_num_pair_per_sample": 100,
        "lambdarank_normalization": False, "lambdarank_score_normalization": False, "ndcg_exp_gain": gain == "exp",
        "tree_method": "exact", "max_depth": 60, "reg_lambda": 0, "min_child_weight": 0, "eta": 1, "nthread": 1,
    }  # fmt: skip
    data = xgboost.DMatrix(np.arange(float(len(labels)))[:, None], labels, base_margin=scores)
    data.set_group(groups)
    booster = xgboost.train(params, data, 1)
    leaf = booster.predict(data, pred_leaf=True).ravel().astype(int)
    table = booster.trees_to_dataframe().set_index("Node").loc[leaf]
    assert len(np.unique(leaf)) > 0.8 * len(leaf)  # almost every row has a leaf to itself
    ours = LambdaMART(f"ndcg:gain={gain}").bind(labels, groups).derivatives(scores)
    check_leaves(leaf, table["Gain"].to_numpy(), table["Cover"].to_numpy(), ours, 1e-4, 2.0)  # XGBoost doubles the second


@pytest.mark.parametrize(("name", "theirs"), [("ndcg:gain=linear", "NDCG"), ("ndcg", "NDCG;type=Exp"), ("mrr", "MRR")])
def test_catboost_takes_the_same_newton_step(name: str, theirs: str) -> None:
    """One document a leaf. CatBoost's weights for MRR are those of a swap while the first relevant document leads."""
    scores, labels = make(name, [16], 8)
    if name == "mrr":
        labels = (labels > 1).astype(float)
        labels[scores.argmax()] = 1.0
    rows = (np.arange(16)[:, None] >> np.arange(4) & 1).astype(float)
    model = catboost.CatBoost(
        {
            "loss_function": f"LambdaMart:metric={theirs};sigma=1;norm=false", "iterations": 1, "learning_rate": 1,
            "depth": 4, "l2_leaf_reg": 0, "leaf_estimation_method": "Newton", "leaf_estimation_iterations": 1,
            "boosting_type": "Plain", "random_strength": 0, "bootstrap_type": "No", "thread_count": 1, "verbose": 0,
            "allow_writing_files": False,
        }
    )  # fmt: skip
    model.fit(catboost.Pool(rows, labels, group_id=np.zeros(16, int), baseline=scores))
    gradient, hessian = LambdaMART(name).bind(labels, [16]).derivatives(scores)
    step = np.divide(-gradient, hessian, out=np.zeros(16), where=hessian > 0)
    assert np.count_nonzero(step) > 8
    np.testing.assert_allclose(model.predict(rows), step, rtol=1e-5, atol=1e-6)


def trained(loss: Any, data: RankingData, test: RankingData) -> np.ndarray:
    """Test scores of LightGBM with one of our losses, or with its own objective given by parameters."""
    params: dict[str, Any] = {"num_leaves": 15, "learning_rate": 0.1, "verbosity": -1, "num_threads": 1, "seed": 1}
    params |= {"min_sum_hessian_in_leaf": 1e-3, "min_data_in_leaf": 20}
    if isinstance(loss, dict):
        params |= loss
    else:
        bound, iteration = loss.bind(data.labels, data.groups), iter(range(1000))
        params["objective"] = lambda scores, _: bound.derivatives(scores, next(iteration))
    booster = lightgbm.train(params, lightgbm.Dataset(data.features, data.labels, group=data.groups), 40)
    return np.asarray(booster.predict(test.features, raw_score=True))


def test_models_are_as_good_as_lightgbms_own() -> None:
    """The same settings, two training sets each. Between training sets NDCG@5 moves by about 0.005."""
    test = make_ranking(600, seed=99)
    evaluation = sr.bind_evaluation("ndcg@5", test.labels, test.groups)

    def value(loss: Any) -> float:
        return float(np.mean([evaluation.mean(trained(loss, make_ranking(300, seed=seed), test)) for seed in (0, 1)]))

    own = {
        norm: value({"objective": "lambdarank", "lambdarank_norm": norm, "lambdarank_truncation_level": 100})
        for norm in (False, True)
    }
    assert own[True] > 0.8
    for loss in (
        LambdaMART("ndcg"),
        LambdaMART("ndcg", norm=True),
        LambdaMART("ndcg", norm=True, noise=0.3),
        LambdaLoss("ndcg", norm=True),
        LambdaLoss("ndcg", norm=True, noise=0.3),
    ):
        assert value(loss) > own[loss.norm] - 0.015, str(loss)


# ---------------------------------------------------------- noise


def test_noise_is_standard_gumbel() -> None:
    draws = np.concatenate([twins.gumbels(1000, seed=5, query_key=q, sample=s) for q in range(20) for s in range(5)])
    n = len(draws)
    assert abs(draws.mean() - np.euler_gamma) < 4 * math.sqrt(math.pi**2 / 6 / n)
    assert draws.var() == pytest.approx(math.pi**2 / 6, rel=4 * math.sqrt(4.4 / n))  # kurtosis 5.4
    assert scipy.stats.kstest(draws, scipy.stats.gumbel_r.cdf).pvalue > 1e-3
    columns = draws.reshape(100, 1000)
    assert abs(np.corrcoef(columns[:, :-1].ravel(), columns[:, 1:].ravel())[0, 1]) < 4 / math.sqrt(n)


def test_noise_strength_is_the_scale_of_the_scores_distribution() -> None:
    """Two tied documents: the better leads with probability 1/2, or by Gumbel's logistic difference if it is ahead."""
    bound = LambdaMART("ndcg@1", sigma=1e-9, noise=0.5).bind([1, 0, 0] * 2000, [3] * 2000)
    first = bound.gradient(np.tile([0.4, 0.0, 0.0], 2000)).reshape(-1, 3)
    # It leads: pairs with both others. It does not: a pair with the first alone, the other has none.
    leads = (np.count_nonzero(first, axis=1) == 3).mean()
    expected = math.exp(0.8) / (math.exp(0.8) + 2.0)  # the choice of Plackett and Luce with scores z/noise
    assert abs(leads - expected) < 4 * math.sqrt(expected * (1 - expected) / 2000)


def test_noise_is_selected_by_seed_iteration_query_and_sample() -> None:
    scores, labels = make("ndcg", [20, 20], 9)
    labels[20:], scores[20:] = labels[:20], scores[:20]
    noisy = LambdaMART("ndcg", noise=0.5)
    bound = noisy.bind(labels, [20, 20])
    gradient = bound.gradient(scores, 3)
    np.testing.assert_array_equal(gradient, bound.gradient(scores, 3))
    np.testing.assert_array_equal(gradient, bound.derivatives(scores, 3)[0])
    assert (gradient[:20] != gradient[20:]).any()
    assert (gradient != bound.gradient(scores, 4)).any()
    assert (gradient != dataclasses.replace(noisy, seed=1).bind(labels, [20, 20]).gradient(scores, 3)).any()
    alone = noisy.bind(labels[20:], [20], query_keys=[1]).gradient(scores[20:], 3)
    np.testing.assert_array_equal(gradient[20:], alone)
    plain = LambdaMART("ndcg", samples=7).bind(labels, [20, 20])
    np.testing.assert_array_equal(plain.gradient(scores, 3), plain.gradient(scores, 4))
    np.testing.assert_array_equal(plain.gradient(scores), LambdaMART("ndcg", seed=1).bind(labels, [20, 20]).gradient(scores))


def test_more_samples_average() -> None:
    """The spread of the mean of 16 draws is a quarter of that of one."""
    scores, labels = make("ndcg", [10], 10)

    def spread(samples: int) -> float:
        bound = LambdaLoss("ndcg@5", noise=0.8, samples=samples).bind(labels, [10])
        return float(np.std([bound.gradient(scores, i) for i in range(400)], axis=0).sum())

    assert spread(16) == pytest.approx(spread(1) / 4, rel=0.15)


# ---------------------------------------------------------- data and parameters


@pytest.mark.parametrize("loss", [*FEW, LambdaLoss("ndcg@5", noise=0.4, samples=2)], ids=str)
def test_any_number_of_threads_gives_the_same_bits(loss: LambdaMART) -> None:
    rng = np.random.default_rng(11)
    groups = rng.integers(1, 90, 300).tolist()
    scores, labels = make(loss.metric, groups, 11, decimals=2)
    one = dataclasses.replace(loss, threads=1).bind(labels, groups).derivatives(scores, 2)
    for threads in (2, 3):
        several = dataclasses.replace(loss, threads=threads).bind(labels, groups).derivatives(scores, 2)
        for a, b in zip(one, several, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("loss", FEW, ids=str)
def test_weights_of_queries_and_rows(loss: LambdaMART) -> None:
    groups = [6, 9, 5]
    scores, labels = make(loss.metric, groups, 12)
    plain = loss.bind(labels, groups).derivatives(scores)
    of_queries = np.array([2.0, 0.0, 0.5])
    weighted = loss.bind(labels, groups, of_queries).derivatives(scores)
    close(weighted, [np.repeat(of_queries, groups) * d for d in plain])
    close(weighted, twins.derivatives(loss, scores, labels, groups, of_queries))
    of_rows = np.linspace(0, 2, 20)
    close(loss.bind(labels, groups, of_rows).derivatives(scores), [of_rows * d for d in plain])


def test_kinds_of_input_and_qid() -> None:
    scores, labels = make("ndcg", [4, 3], 13, decimals=0)
    expected = LambdaMART("ndcg@3").bind(labels, [4, 3]).gradient(scores)
    fixed = scores.copy()
    fixed.flags.writeable = False
    bound = LambdaMART("ndcg@3").bind(pd.Series(labels.astype(int)), qid=list("aaaabbb"))
    for given in (list(scores), fixed, scores.astype(np.float32), pd.Series(scores), np.repeat(scores, 2)[::2]):
        np.testing.assert_array_equal(bound.gradient(given), expected)
    assert bound.rows == 7
    assert bound.ptr.tolist() == [0, 4, 7]
    assert bound.keys.tolist() == [0, 1]


def test_values() -> None:
    loss = LambdaLoss("ndcg@5", noise=0.3)
    assert str(loss) == "LambdaLoss('ndcg@5', noise=0.3)"
    assert str(LambdaMART("mrr", sigma=2.0, seed=4)) == "LambdaMART('mrr', sigma=2.0, seed=4)"
    assert loss == pickle.loads(pickle.dumps(loss)) == copy.deepcopy(loss)
    assert loss != LambdaLoss("ndcg@5")
    assert len({loss, LambdaLoss(sr.NDCG(5), noise=0.3), LambdaMART("ndcg@5")}) == 2
    assert repr(loss.bind([1, 0], [2])) == "<LambdaLoss('ndcg@5', noise=0.3) bound to 2 rows in 1 queries>"


@pytest.mark.parametrize(
    ("make_it", "words"),
    [
        (lambda: LambdaMART("ndgc"), "did you mean"),
        (lambda: LambdaMART("ndcg", sigma=0), "sigma must be a finite number above 0, got 0"),
        (lambda: LambdaMART("ndcg", norm=1), "norm must be True or False, got 1"),  # type: ignore[arg-type]
        (lambda: LambdaMART("ndcg", noise=-0.1), "noise must be a finite number at least 0, got -0.1"),
        (lambda: LambdaMART("ndcg", noise=math.nan), "noise must be a finite number"),
        (lambda: LambdaMART("ndcg", samples=0), "samples must be a whole number of at least 1, got 0"),
        (lambda: LambdaMART("ndcg", seed=1.5), "seed must be a whole number"),  # type: ignore[arg-type]
        (lambda: LambdaMART("ndcg", threads=0), "threads must be a whole number of at least 1"),
        (lambda: LambdaLoss("mrr"), 'must be ndcg or dcg, got "mrr"; LambdaMART takes every metric'),
        (lambda: LambdaLoss("ndcg", mu=-1), "mu must be a finite number at least 0, got -1"),
        (lambda: LambdaMART("ndcg").bind([1, -1], [2]), r"labels\[1\] = -1 is negative"),
        (lambda: LambdaMART("ndcg").bind([1, 0], [3]), "groups sum to 3 but there are 2 rows"),
        (lambda: LambdaMART("ndcg").bind([1, 0], [2], [1, 2, 3]), "weights must have one value per query"),
        (lambda: LambdaMART("ndcg").bind([1, 0], [2], query_keys=[0.5]), "query_keys must be whole numbers"),
        (lambda: LambdaMART("err").bind([5, 0], [2]), "is above max_grade=4"),
        (lambda: LambdaMART("ndcg").bind([1, 0], [2]).gradient([0, math.inf]), "the model has diverged"),
        (lambda: LambdaMART("ndcg").bind([1, 0], [2]).gradient([0, 1, 2]), "scores must have one value per row, 2 in all"),
        (lambda: LambdaMART("ndcg").bind([1, 0], [2]).gradient([0, 1], -1), "iteration must be a whole number"),
    ],
)  # fmt: skip
def test_bad_parameters_and_data(make_it: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make_it()


# ---------------------------------------------------------- beside the rest


def test_soft_rank_and_reinforce_are_settings_of_stochastic_rank() -> None:
    keywords: dict[str, Any] = {"sigma": 0.5, "samples": 3, "seed": 2, "threads": 1}
    assert soft_rank("ndcg@5", **keywords) == sr.StochasticRank("ndcg@5", mu=0.0, sfa=False, **keywords)
    expected = sr.StochasticRank("mrr", mu=0.0, sfa=False, estimator="reinforce", **keywords)
    assert reinforce("mrr", **keywords) == expected
    with pytest.raises(ValueError, match="sigma must be"):
        soft_rank("ndcg", sigma=0)


def test_sglb_wraps_them() -> None:
    scores, labels = make("ndcg", [10, 10], 14)
    loss = LambdaMART("ndcg@5")
    wrapped = sr.SGLB(loss, diffusion_temperature=math.inf, model_shrink_rate=1e-2).bind(labels, [10, 10])  # type: ignore[arg-type]
    shrunk, following = 0.999**3, 0.999**4
    close(wrapped.gradient(scores, 3), loss.bind(labels, [10, 10]).gradient(shrunk * scores, 3) / following)


def test_examples_in_docstrings_run() -> None:
    result = doctest.testmod(baselines)
    assert result.failed == 0
    assert result.attempted >= 8
