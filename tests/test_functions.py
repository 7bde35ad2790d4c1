"""Metrics made of functions: equal to the built-in ones where they say the same, to brute force elsewhere."""

from __future__ import annotations

import copy
import dataclasses
import pathlib
import pickle
import random
import subprocess
import sys
import warnings
from typing import Any

import hypothesis
import hypothesis.strategies as st
import naive
import numba
import numpy as np
import pytest
from test_losses import COPIES, DRAWS, close, estimates, make, within
from test_package import python

import stochasticrank_objectives as sr
from stochasticrank_objectives.datasets import make_ranking

PROPERTY = hypothesis.settings(deadline=None, derandomize=True, database=None, max_examples=60)


@sr.metric
def own_dcg(relevance):  # type: ignore[no-untyped-def]
    total = 0.0
    for i in range(len(relevance)):
        total += (2.0 ** relevance[i] - 1.0) / np.log2(i + 2.0)
    return total


@sr.metric
def own_ndcg(relevance):  # type: ignore[no-untyped-def]
    best = np.sort(relevance)[::-1]
    total = ideal = 0.0
    for i in range(len(relevance)):
        total += (2.0 ** relevance[i] - 1.0) / np.log2(i + 2.0)
        ideal += (2.0 ** best[i] - 1.0) / np.log2(i + 2.0)
    return total / ideal if ideal > 0 else 0.0


@sr.metric
def own_err(relevance):  # type: ignore[no-untyped-def]
    goes_on, total = 1.0, 0.0
    for i, label in enumerate(relevance):
        stops = (2.0**label - 1.0) / 16.0
        total += goes_on * stops / (i + 1)
        goes_on *= 1.0 - stops
    return total


@sr.metric
def own_map(relevance):  # type: ignore[no-untyped-def]
    found, total = 0, 0.0
    for i in range(len(relevance)):
        if relevance[i] > 0:
            found += 1
            total += found / (i + 1)
    return total / found if found else 0.0


@sr.metric(k=4)
def varied(relevance):  # type: ignore[no-untyped-def]
    """How many different grades are shown, one in four for the best: no sum over positions."""
    return len(np.unique(relevance)) / 4 + (relevance[0] == relevance.max())


@sr.metric(k=3, name="spelled")
def by_words(relevance):  # type: ignore[no-untyped-def]
    """Nothing that numba compiles."""
    return float("".join(sorted(f"{int(label)}" for label in relevance))[-1]) / 4 + 0.1 * float(relevance[0])


@sr.metric
@numba.njit
def compiled_before(relevance):  # type: ignore[no-untyped-def]
    return relevance[0] / (1.0 + relevance.max())


TWINS = [("own_dcg@3", "dcg@3"), ("own_dcg", "dcg"), ("own_ndcg", "ndcg"), ("own_err@7", "err@7"), ("own_map", "map")]
GROUPS = [1, 2, 3, 6, 40]
SETTINGS: list[dict[str, Any]] = [
    {"mu": 0.0, "sfa": False},
    {"mu": 0.4, "sfa": True, "sigma": 0.6, "samples": 3},
    {"mu": 0.2, "sfa": True, "estimator": "reinforce", "sigma": 0.8, "samples": 2},
    {"mu": 0.2, "sfa": 0.5, "noise": "logistic", "samples": 2},
    {"mu": 0.1, "sfa": False, "hessian_constant": 0.3},
]


def data(groups: list[int], seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Labels fall in every query, so that all metrics number documents alike and get the same noise."""
    rng = np.random.default_rng(seed)
    labels = np.concatenate([np.sort(rng.integers(0, 5, n))[::-1] for n in groups]).astype(float)
    return rng.normal(size=len(labels)).round(1), labels


# ---------------------------------------------------------- equal to the built-in metrics


@pytest.mark.parametrize(("own", "built_in"), TWINS)
def test_gradient_equals_the_built_in_metric(own: str, built_in: str) -> None:
    for case, keywords in enumerate(SETTINGS):
        scores, labels = data(GROUPS, case)
        if built_in == "map":  # whose relevance is 0 or 1
            labels = (labels > 2).astype(float)
        found, expected = (sr.StochasticRank(m, **keywords).bind(labels, GROUPS) for m in (own, built_in))
        # boxes, for which a list of 40 is long enough, have an error of 1e-12 of the largest density
        close(found.gradient(scores, case), expected.gradient(scores, case), 1e-12 if built_in == "dcg@3" else 1e-10)
        for one, other in zip(found.derivatives(scores, 1), expected.derivatives(scores, 1), strict=True):
            assert (one is None) == (other is None)
            close(np.asarray(one or 0) if one is None else one, np.asarray(0) if other is None else other, 1e-10)


@pytest.mark.parametrize(("own", "built_in"), TWINS)
def test_value_equals_the_built_in_metric(own: str, built_in: str) -> None:
    scores, labels = data([1, 2, 3, 5, 6, 7], 3)
    labels[3:6] = 0.0
    groups = [1, 2, 3, 5, 6, 7]
    for ties in ("worst", "best", "mean"):
        for empty in (0.0, 1.0, "skip"):
            one, other = (
                sr.evaluate(m, scores.round(0), labels, groups, ties=ties, empty=empty, per_query=True)  # type: ignore
                for m in (own, built_in)
            )
            if ties != "mean":
                np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-15)
            else:  # where 720 orders are not all, it is a sample
                np.testing.assert_allclose(one, other, rtol=0.1)
                np.testing.assert_allclose(one[:4], other[:4], rtol=1e-12, atol=1e-15)
        assert sr.evaluate(own, scores, labels, groups, ties=ties) == sr.evaluate(own, scores, labels, groups, ties=ties)  # type: ignore


# ---------------------------------------------------------- equal to brute force


@pytest.mark.parametrize("name", ["varied", "varied@2", "own_ndcg@5", "own_err", "compiled_before", "varied + 0.5*mrr"])
def test_gradient_equals_naive(name: str) -> None:
    groups = [1, 2, 2, 3, 5, 9, 12]
    for case, keywords in enumerate(SETTINGS[:4]):
        scores, labels = make("ndcg", groups, case, decimals=None if case % 2 else 1)
        loss = sr.StochasticRank(name, seed=case, **keywords)
        expected = naive.gradient(loss, scores, labels, groups, iteration=case)
        close(loss.bind(labels, groups).gradient(scores, case), expected)


@pytest.mark.parametrize("ties", ["worst", "best", "mean"])
def test_ties(ties: Any) -> None:
    """The worst order is that of rising labels, which for a metric that no label can harm is the worst there is."""
    rng = np.random.default_rng(4)
    for name in ("own_ndcg", "own_dcg@2", "own_map"):
        for n in (1, 2, 3, 5, 6):
            labels, scores = rng.integers(0, 5, n), rng.integers(0, 2, n).astype(float)
            expected = naive.tied_value(name, list(scores), list(labels), ties) if labels.any() else 0.0
            assert sr.evaluate(name, scores, labels, [n], ties=ties) == pytest.approx(expected, rel=1e-12)
    assert sr.evaluate("varied@1", [0, 0], [0, 3], [2], ties=ties) == {"worst": 1.25, "best": 1.25, "mean": 1.25}[ties]
    assert sr.evaluate("varied@2", [0, 0], [0, 3], [2], ties=ties) == {"worst": 0.5, "best": 1.5, "mean": 1.0}[ties]


@pytest.mark.parametrize("mu", [0.0, 0.3])
@pytest.mark.parametrize("name", ["varied@2", "own_ndcg", "0.5*own_err@2 + 2*mrr"])
def test_mean_of_ccs_is_the_exact_gradient(name: str, mu: float) -> None:
    for n, exact in ((2, naive.exact_pair), (3, naive.exact_triple)):
        scores, labels = np.array([0.3, -0.4, 0.1])[:n], np.array([0.0, 3.0, 1.0])[:n]
        truth = exact(name, scores, labels, sigma=0.7, mu=mu)
        found = estimates(sr.StochasticRank(name, sigma=0.7, mu=mu, sfa=False, samples=DRAWS, seed=n), scores, labels)
        within(found, truth)
        assert (found.std(axis=0, ddof=1) / COPIES**0.5).max() <= 0.02 * np.abs(truth).max() + 1e-12


@PROPERTY
@hypothesis.given(st.data())
def test_naive_on_whatever_hypothesis_finds(data: st.DataObject) -> None:
    n = data.draw(st.integers(1, 8))
    name = data.draw(st.sampled_from(["varied", "varied@1", "own_ndcg@3", "own_err", "own_map@9", "0.3*varied + map"]))
    labels = np.array(data.draw(st.lists(st.sampled_from([0.0, 0.5, 1.0, 3.0]), min_size=n, max_size=n)))
    scores = np.array(
        data.draw(st.lists(st.sampled_from([-1.0, 0.0, 2.0]) | st.floats(-8, 8, width=16), min_size=n, max_size=n))
    )
    kinds: list[dict[str, Any]] = [{}, {"estimator": "reinforce"}, {"noise": "logistic"}]
    loss = sr.StochasticRank(
        name, mu=data.draw(st.sampled_from([0.0, 2.0])), sfa=data.draw(st.booleans()), **data.draw(st.sampled_from(kinds))
    )
    close(loss.bind(labels, [n]).gradient(scores, 3), naive.gradient(loss, scores, labels, [n], iteration=3))


def test_sums_are_linear_in_their_terms() -> None:
    scores, labels = data([3, 40, 300], 1)

    def gradient(name: str) -> np.ndarray:
        return sr.StochasticRank(name, mu=0.2).bind(labels, [3, 40, 300]).gradient(scores, 2)

    close(
        gradient("2*ndcg@5 + 0.5*varied + own_dcg@3"), 2 * gradient("ndcg@5") + 0.5 * gradient("varied") + gradient("dcg@3")
    )
    close(gradient("err + ndcg@5 + varied"), gradient("err + ndcg@5") + gradient("varied"))


def test_weights_threads_and_many_queries() -> None:
    groups = [4, 60, 1, 5, 300, 2000]
    rng = np.random.default_rng(0)
    labels, scores = rng.integers(0, 5, sum(groups)), rng.normal(size=sum(groups))
    loss = sr.StochasticRank("varied", sfa=False)
    plain = loss.bind(labels, groups).gradient(scores)
    of_query, of_row = np.array([0.5, 0.0, 3.0, 2.0, 1.0, 0.3]), rng.random(len(labels))
    close(loss.bind(labels, groups, of_query).gradient(scores), plain * np.repeat(of_query, groups), 1e-13)
    close(loss.bind(labels, groups, of_row).gradient(scores), plain * of_row, 1e-13)
    bound = dataclasses.replace(loss, threads=3).bind(labels, groups)
    assert bound.gradient(scores).tobytes() == plain.tobytes() == bound.gradient(scores).tobytes()
    assert not loss.bind(np.ones(5), [5]).gradient(np.arange(5)).any()


def test_values_that_do_not_fit_into_memory_together(monkeypatch: pytest.MonkeyPatch) -> None:
    scores, labels = data([3, 30, 20, 7], 1)
    bound = sr.StochasticRank("own_err").bind(labels, [3, 30, 20, 7])
    expected = bound.gradient(scores)
    monkeypatch.setattr("stochasticrank_objectives._listed._TOGETHER", 100)
    assert bound.gradient(scores).tobytes() == expected.tobytes()


# ---------------------------------------------------------- plain Python


def test_what_cannot_be_compiled_works_and_says_what_it_costs() -> None:
    scores, labels = data([5, 9], 2)

    @sr.metric(k=2, name="unseen_before")
    def words(relevance):  # type: ignore[no-untyped-def]
        return float(f"{relevance[0]}")

    with pytest.warns(RuntimeWarning, match=r"unseen_before@2 runs as plain Python, .* up to n \(k \+ 1\) times in a query"):
        gradient = sr.StochasticRank(words, mu=0.3).bind(labels, [5, 9]).gradient(scores)
    close(gradient, naive.gradient(sr.StochasticRank(words, mu=0.3), scores, labels, [5, 9]))
    with warnings.catch_warnings():  # once is enough
        warnings.simplefilter("error")
        assert sr.evaluate(words, scores, labels, [5, 9]) > 0


def test_a_loss_of_compiled_and_plain_terms() -> None:
    scores, labels = data([5, 9], 2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        for keywords in SETTINGS[:4]:
            loss = sr.StochasticRank("spelled + 0.5*ndcg@3 + varied", **keywords)
            close(loss.bind(labels, [5, 9]).gradient(scores), naive.gradient(loss, scores, labels, [5, 9]))


def test_a_function_that_numba_understands_differently_runs_as_python() -> None:
    @sr.metric(name="differs")
    def differs(relevance):  # type: ignore[no-untyped-def]
        power = 1
        for _ in range(70):
            power *= 3  # more than 64 bits
        return power % 1000 + relevance[0]

    with pytest.warns(RuntimeWarning, match=r"differs runs as plain Python, .* \(compiled, it has other values\)"):
        assert sr.evaluate("differs", [1, 0], [3, 1], [2]) == 3**70 % 1000 + 3.0


# ---------------------------------------------------------- a value with a name


def test_known_by_its_name() -> None:
    assert sr.parse_metric("varied") is not None
    assert sr.parse_metric("Varied") == varied == sr.parse_metric("varied@4")
    assert sr.parse_metric("varied@2") == dataclasses.replace(varied, k=2) != varied
    assert str(sr.parse_metric("varied@2")) == "varied@2"
    assert str(by_words) == "spelled@3"
    assert str(own_dcg) == "own_dcg"
    total = sr.parse_metric("0.7*ndcg@10 + 0.3*varied@2")
    assert total == 0.7 * sr.NDCG(10) + 0.3 * sr.parse_metric("varied@2")
    assert eval(repr(total), {name: getattr(sr, name) for name in sr.__all__}) == total
    assert sr.parse_metric(str(total)) == total
    assert varied([1, 1, 0, 2, 4, 4]) == 0.75
    with pytest.raises(ValueError, match="unknown metric 'varied_': did you mean \"varied\""):
        sr.parse_metric("varied_")
    with pytest.raises(ValueError, match="unknown option 'gain=linear'; options of varied are: none"):
        sr.parse_metric("varied:gain=linear")


def test_copied_compared_and_pickled() -> None:
    for metric in (varied, own_dcg, sr.parse_metric("own_dcg@7"), by_words, compiled_before, varied + 2 * sr.MRR()):
        for twin in (copy.copy(metric), copy.deepcopy(metric), pickle.loads(pickle.dumps(metric))):
            assert twin == metric
            assert hash(twin) == hash(metric)
            assert str(twin) == str(metric)
    loss = sr.StochasticRank("varied")
    assert pickle.loads(pickle.dumps(loss)) == loss == copy.deepcopy(loss)
    bound = loss.bind([0, 1, 2], [3])
    twin = pickle.loads(pickle.dumps(bound))
    assert twin.gradient([0, 0, 0]).tobytes() == bound.gradient([0, 0, 0]).tobytes()

    def local(relevance):  # type: ignore[no-untyped-def]
        return float(relevance[0])

    for function in (local, lambda relevance: float(relevance[0])):
        with pytest.raises(pickle.PicklingError, match=r"of_here cannot be pickled: its function .* with def at the top"):
            pickle.dumps(sr.FunctionMetric(function=function, name="of_here"))


def plain_function(relevance: np.ndarray) -> float:
    return float(relevance[0])


def test_a_function_that_keeps_its_name() -> None:
    metric = sr.metric(plain_function, name="kept")
    assert metric == pickle.loads(pickle.dumps(metric)) == sr.parse_metric("kept")
    assert plain_function(np.array([2.0])) == 2.0


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda r: np.nan, r"wrong must be finite, but for \[0\] it is nan"),
        (lambda r: 1.0 / (r.sum() - 4.0), r"wrong must be finite, but for \[4\] it is inf"),
        (lambda r: r, r"wrong must return one number, but for \[0\] it returns array"),
        (lambda r: None, "wrong must return one number, .* it returns None"),
        (lambda r: "1", "wrong must return one number"),
        (lambda r: 1j, "wrong must return one number"),
        (lambda r: r.sort() or 0.0, "wrong changes its argument; let it work on a copy"),
        (lambda r: random.random(), "wrong is not deterministic"),
        (lambda r: r[4], r"wrong fails on \[0\]: IndexError"),
        (lambda r, other: 1.0, "wrong fails on .*: TypeError"),
        (lambda r: (r * np.arange(len(r))).sum(), "wrong is not bounded: it grows faster than its list"),
        (lambda r: 2.0 ** len(r) - 2.0 ** len(r) * (r[0] > 2), "wrong is not bounded"),
    ],
)
def test_refused_when_defined(function: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        sr.metric(function, name="wrong")
    with pytest.raises(ValueError, match="unknown metric 'wrong'"):
        sr.parse_metric("wrong")


def test_names_that_are_refused() -> None:
    for name in ("a b", "a:b", "a@2", "0a", "", "a.b", "a-b", "a+b", 3):
        with pytest.raises(ValueError, match="name must be one word"):
            sr.metric(plain_function, name=name)  # type: ignore[arg-type]
    for name in ("ndcg", "MAP"):
        with pytest.raises(ValueError, match="is the name of a built-in metric"):
            sr.metric(plain_function, name=name)
    with pytest.raises(ValueError, match=r"'varied' is the metric of test_functions.varied; choose another"):
        sr.metric(plain_function, name="varied")
    with pytest.raises(ValueError, match="name must be one word"):
        sr.metric(lambda relevance: 1.0)
    with pytest.raises(ValueError, match="is a metric already"):
        sr.metric(varied)  # type: ignore[call-overload]
    with pytest.raises(ValueError, match="metric is for a function"):
        sr.metric(3)  # type: ignore[call-overload]
    with pytest.raises(ValueError, match="k must be a whole number"):
        sr.metric(plain_function, k=0)


def test_a_value_that_is_not_finite_on_the_data() -> None:
    @sr.metric(name="fraction")
    def fraction(relevance):  # type: ignore[no-untyped-def]
        return 1.0 if relevance[0] <= 4 else np.nan

    with pytest.raises(ValueError, match="fraction is not finite in query 1: nan"):
        sr.evaluate("fraction", [1, 0, 1, 0], [1, 0, 7, 0], [2, 2])
    with pytest.raises(ValueError, match="fraction is not finite for the labels of this data"):
        sr.StochasticRank("fraction").bind([1, 0, 7, 0], [2, 2]).gradient([0, 0, 0, 0])


def test_scores_that_are_not_finite() -> None:
    for name in ("varied", "varied + ndcg"):
        with pytest.raises(ValueError, match=r"scores\[1\] = nan is not finite"):
            sr.StochasticRank(name).bind([1, 0, 2], [3]).gradient([0, np.nan, 1])


# ---------------------------------------------------------- other losses, compiled code


def test_losses_of_pairs_say_that_they_cannot() -> None:
    for loss in (sr.YetiLoss, sr.LambdaMART):
        with pytest.raises(
            ValueError, match=rf"{loss.__name__} cannot train on varied@4, a function of the whole list; use St"
        ):
            loss("ndcg@3 + varied")
    assert sr.recommended("varied@60", booster="xgboost").metric == sr.DCG(120, gain="linear")
    with pytest.raises(ValueError, match="cannot train on varied@4"):
        sr.recommended("ndcg", booster="xgboost", train_on="varied")


def test_built_in_metrics_do_not_load_these_kernels() -> None:
    loaded = python(
        "import sys\nimport stochasticrank_objectives as sr\n"
        "sr.StochasticRank('ndcg@3 + mrr').bind([0, 1], [2]).gradient([0, 0]), sr.evaluate('ndcg', [0, 1], [0, 1], [2])\n"
        "print([name for name in sys.modules if name.endswith('.listed')])"
    )
    assert loaded == []


# ---------------------------------------------------------- boosters

NAME = "0.5*varied + own_dcg@3"


def test_xgboost() -> None:
    xgb = pytest.importorskip("xgboost")
    from stochasticrank_objectives.adapters import XGBoostMetric, XGBoostObjective

    data, record = make_ranking(40, seed=1), {}
    matrix = xgb.DMatrix(data.features, data.labels, qid=data.qid)
    model = xgb.train(
        {"max_depth": 3}, matrix, 5, obj=XGBoostObjective(sr.StochasticRank(NAME)), custom_metric=XGBoostMetric(NAME),
        evals=[(matrix, "learn")], evals_result=record, verbose_eval=False,
    )  # fmt: skip
    values = record["learn"]["0.5*varied@4+own_dcg@3"]
    expected = sr.evaluate(NAME, model.predict(matrix, output_margin=True), data.labels, data.groups)
    assert values[-1] == pytest.approx(expected, abs=1e-6)
    assert values[-1] > values[0]
    assert XGBoostObjective("varied").metric == varied
    assert pickle.loads(pickle.dumps(XGBoostMetric("varied"))) == XGBoostMetric("varied")


def test_lightgbm() -> None:
    lgb = pytest.importorskip("lightgbm")
    from stochasticrank_objectives.adapters import LightGBMMetric, LightGBMObjective

    data, record = make_ranking(40, seed=1), {}
    learn = lgb.Dataset(data.features, data.labels, group=data.groups)
    params = {"objective": LightGBMObjective(sr.StochasticRank(NAME)), "verbose": -1, "num_leaves": 8}
    callbacks = [lgb.record_evaluation(record)]
    model = lgb.train(params, learn, 5, valid_sets=[learn], feval=LightGBMMetric(NAME), callbacks=callbacks)
    values = record["training"]["0.5*varied@4+own_dcg@3"]
    assert values[-1] == pytest.approx(sr.evaluate(NAME, model.predict(data.features), data.labels, data.groups))
    assert values[-1] > values[0]


def test_catboost() -> None:
    catboost = pytest.importorskip("catboost")
    from stochasticrank_objectives.adapters import CatBoostStochasticRank

    data = make_ranking(40, seed=1)
    pool = catboost.Pool(data.features, data.labels, group_id=data.qid)
    model = CatBoostStochasticRank(
        sr.StochasticRank(NAME), iterations=5, depth=3, verbose=False, allow_writing_files=False
    ).fit(pool)  # fmt: skip
    values = model.get_evals_result()["learn"]["0.5*varied@4+own_dcg@3"]
    assert values[-1] == pytest.approx(sr.evaluate(NAME, model.predict(pool), data.labels, data.groups))
    assert values[-1] > values[0]


def test_command_line(tmp_path: pathlib.Path) -> None:
    """A module in the current folder that defines a metric, named before the command."""
    (tmp_path / "shop_metrics.py").write_text(
        "import stochasticrank_objectives as sr\n\n\n@sr.metric\ndef halves(relevance):\n    return relevance[0] / 8\n"
    )
    (tmp_path / "data.txt").write_text("1 qid:1 1:0\n0 qid:1 1:1\n3 qid:1 1:1\n")
    (tmp_path / "scores.txt").write_text("1\n0\n2\n")

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        arguments = [
            sys.executable,
            "-c",
            "import sys; sys.path.remove(''); from stochasticrank_objectives.__main__ import main",
        ]
        arguments[-1] += "; sys.exit(main())"
        return subprocess.run([*arguments, *words], capture_output=True, text=True, cwd=tmp_path, timeout=300)

    evaluation = ["evaluate", "data.txt", "scores.txt", "--metric", "halves,mrr"]
    assert run("--import", "shop_metrics", *evaluation).stdout.split() == ["halves", "0.375000", "mrr", "1.000000"]
    compared = ["compare", "generated:20", "--booster", "lightgbm", "--methods", "recommended", "--metric", "halves"]
    small = ["--trials", "2", "--rounds", "3", "--seeds", "1", "--jobs", "2", "--output", "out"]
    assert "recommended" in run("--import", "shop_metrics", *compared, *small).stdout  # processes of its own know it, too
    for words, problem in (([], "unknown metric"), (["--import", "no_such"], "No module named 'no_such'")):
        failed = run(*words, *evaluation)
        assert (failed.returncode, failed.stdout) == (2, "")
        assert problem in failed.stderr
        assert len(failed.stderr.splitlines()) == 1
