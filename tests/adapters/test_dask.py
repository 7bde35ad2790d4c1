"""Training on several processes of a real Dask cluster, against training in one process."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import inspect
import itertools
import os
import pickle
import signal
import socket
import sys
import threading
import time
import warnings
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what Dask imports warns about itself
    import dask
    import dask.array as da
    import dask.dataframe as dd
    import distributed
    import lightgbm as lgb
    import xgboost as xgb
    from sklearn.base import clone
    from xgboost import dask as dxgb

import stochasticrank_objectives as sr
from stochasticrank_objectives.adapters import (
    LightGBMMetric,
    LightGBMObjective,
    XGBoostMetric,
    XGBoostObjective,
    _collective,
    _dask_lightgbm,
    _dask_xgboost,
)
from stochasticrank_objectives.adapters._partitions import query_keys
from stochasticrank_objectives.adapters.dask import (
    DaskLightGBMRanker,
    DaskXGBoostRanker,
    check_partitions,
    partition_by_query,
    query_matrix,
)
from stochasticrank_objectives.datasets import RankingData, make_ranking

# Dask, its HTTP server and LightGBM's Dask interface warn about themselves; nothing of ours does.
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore:.*Parameter n_jobs will be ignored"),
    pytest.mark.filterwarnings("ignore:.*will be ignored.*:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*was not allocated eval_set data.*:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*Sending large graph.*:UserWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning"),
]

ROUNDS = 6
XGB = {"max_depth": 3, "learning_rate": 0.1, "tree_method": "hist", "base_score": 0.0}
LGB: dict[str, Any] = {
    "num_leaves": 6,
    "min_child_samples": 5,
    "learning_rate": 0.1,
    "verbose": -1,
    "deterministic": True,
    "min_data_in_bin": 1,  # LightGBM finds the bins of a feature from the rows of one worker
    "feature_pre_filter": False,
}
SGLB = sr.SGLB(sr.StochasticRank("ndcg@5"), learning_rate=0.1, diffusion_temperature=1e6, model_shrink_rate=0.1)
YETI = sr.recommended("ndcg@5", booster="xgboost")
ABSOLUTE = sr.StochasticRank("ndcg@5", sfa=False, hessian_constant=0.0)
LOSSES = {"yeti": YETI, "absolute": ABSOLUTE, "sglb": SGLB}


def coarse(queries: int = 60, seed: int = 0) -> RankingData:
    """Data of which every part has all values of all features, so that all partitionings give the same bins.

    In the second half, labels are rare and at most 2: what is computed from one part is not what is computed from all.
    """
    data = make_ranking(queries, documents=(6, 20), features=6, seed=seed)
    features, row = np.clip(np.round(data.features * 2), -3, 3), np.arange(len(data.labels))
    labels = np.where(row < len(row) // 2, data.labels, np.where(row % 7 == 0, np.minimum(data.labels, 2), 0))
    return RankingData(features, labels, data.groups)


DATA, VALID = coarse(), coarse(30, seed=1)
QID = 1000 + 7 * np.arange(len(DATA.groups))[::-1]  # neither counted from 0 nor rising


def warm() -> None:
    """Import the boosters and load the kernels, which takes longer than any training here."""
    import lightgbm.dask  # noqa: F401
    import xgboost.dask  # noqa: F401

    from stochasticrank_objectives.adapters import dask  # noqa: F401

    for loss in LOSSES.values():
        loss.bind([0.0, 1.0, 2.0], [3]).derivatives(np.zeros(3))
    sr.evaluate("ndcg@5", np.zeros(3), [0.0, 1.0, 2.0], [3])


@pytest.fixture(scope="module")
def cluster():
    warm()  # compiles once, not in every worker
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with (
            # A LocalCluster gives up a worker for good that is not there 15 seconds after it was lost, even if lost anew.
            dask.config.set({"distributed.worker.memory.terminate": False, "distributed.deploy.lost-worker-timeout": "1h"}),
            distributed.LocalCluster(
                n_workers=3, threads_per_worker=1, processes=True, dashboard_address=None, silence_logs=50
            ) as made,
        ):
            with distributed.Client(made) as first:
                first.run(warm)
            yield made


@pytest.fixture
def client(cluster):
    with distributed.Client(cluster, set_as_default=True) as made:
        made.wait_for_workers(3, timeout=30)
        yield made


class Placed:
    """Data in partitions of whole queries, each on a worker of its own: `[[3, 4], [5]]` are queries 3 and 4, and 5."""

    def __init__(self, client: Any, data: RankingData, parts: list[Any], qid: Any = None, weights: Any = None) -> None:
        workers = sorted(client.nthreads())
        ids = np.arange(len(data.groups)) if qid is None else np.asarray(qid)
        ends = np.cumsum(data.groups)
        columns: dict[str, list[Any]] = {"X": [], "y": [], "qid": [], "weight": [], "group": []}
        for at, part in enumerate(parts):
            rows = np.concatenate([np.arange(ends[q] - data.groups[q], ends[q]) for q in part])
            of = np.repeat(part, data.groups[part])
            values = {"X": data.features[rows], "y": data.labels[rows], "qid": ids[of]}
            values["weight"] = np.ones(len(rows)) if weights is None else np.asarray(weights)[of]
            values["group"] = data.groups[part]  # Dask moves a partition to where its groups are, if they are elsewhere
            for name, value in values.items():
                future = client.scatter(value, workers=[workers[at % len(workers)]], hash=False)
                shape = value.shape
                columns[name].append(da.from_delayed(dask.delayed(future), shape, value.dtype))
        self.X, self.y, self.qid, self.weight, self.group = (da.concatenate(column) for column in columns.values())


def halves(queries: int, parts: int = 2, uneven: bool = False) -> list[Any]:
    borders = np.linspace(0, queries, parts + 1).astype(int)
    if uneven:
        borders[1:-1] -= queries // 5
    return [np.arange(a, b) for a, b in itertools.pairwise(borders)]


def predict(booster: Any, data: RankingData = DATA) -> Any:
    return booster.predict(xgb.DMatrix(data.features) if isinstance(booster, xgb.Booster) else data.features)


def alone(loss: Any, weights: Any = None, qid: Any = QID) -> Any:
    """XGBoost in one process, keys given."""
    keys = _collective.keys_to_rows(query_keys(qid), DATA.groups)
    data = xgb.DMatrix(DATA.features, DATA.labels, group=DATA.groups, label_lower_bound=keys)
    if weights is not None:
        data.set_weight(weights)
    return xgb.train(XGB, data, ROUNDS, obj=XGBoostObjective(loss))


def alone_lgb(loss: Any, weights: Any = None) -> Any:
    class Keyed:
        def bind(self, *arguments: Any, **keywords: Any) -> Any:
            return loss.bind(*arguments, query_keys=QID, **keywords)

        learning_rate = 0.1

    data = lgb.Dataset(DATA.features, DATA.labels, group=DATA.groups)
    if weights is not None:
        data.set_weight(np.repeat(weights, DATA.groups))
    return lgb.train({**LGB, "objective": LightGBMObjective(Keyed())}, data, ROUNDS)


# ------------------------------------------------------------ the same model as in one process


@pytest.mark.parametrize("name", LOSSES)
def test_xgboost_trains_the_model_of_one_process(client, name):
    loss, weights = LOSSES[name], np.linspace(0.5, 2, len(DATA.groups)) if name == "yeti" else None
    expected = predict(alone(loss, weights))
    for parts in (halves(60), halves(60, 3, uneven=True), halves(60, 5)[::-1]):
        placed = Placed(client, DATA, parts, QID, weights)
        matrix = query_matrix(client, placed.X, placed.y, qid=placed.qid, weight=None if weights is None else placed.weight)
        booster = dxgb.train(client, XGB, matrix, ROUNDS, obj=XGBoostObjective(loss))["booster"]
        np.testing.assert_allclose(predict(booster), expected, rtol=1e-3, atol=2e-5)


@pytest.mark.parametrize("name", LOSSES)
def test_lightgbm_trains_the_model_of_one_process(client, name):
    loss, weights = LOSSES[name], np.linspace(0.5, 2, len(DATA.groups)) if name == "yeti" else None
    expected = predict(alone_lgb(loss, weights))
    for parts in (halves(60), halves(60, 3, uneven=True), halves(60, 5)[::-1]):
        placed = Placed(client, DATA, parts, QID, weights)
        model = DaskLightGBMRanker(loss, metric="ndcg@5", n_estimators=ROUNDS, **LGB)
        model.fit(placed.X, placed.y, qid=placed.qid, sample_weight=None if weights is None else placed.weight)
        np.testing.assert_allclose(predict(model.booster_), expected, rtol=1e-3, atol=2e-5)
        assert len(pickle.dumps(model.to_local())) < 100_000


def test_the_same_noise_is_never_used_by_two_workers(client):
    """A plain DaskDMatrix, or DaskLGBMRanker, has no keys: [A, A] on two workers is not A, and the same every time."""
    loss = sr.StochasticRank("ndcg@5")
    twice = Placed(client, DATA, [np.arange(60), np.arange(60)])
    matrix = dxgb.DaskDMatrix(
        client, twice.X, twice.y, qid=da.concatenate([twice.qid[: len(DATA.labels)], twice.qid[len(DATA.labels) :] + 60])
    )
    models = [dxgb.train(client, XGB, matrix, ROUNDS, obj=XGBoostObjective(loss))["booster"] for _ in range(2)]
    one = xgb.train(XGB, xgb.DMatrix(DATA.features, DATA.labels, group=DATA.groups), ROUNDS, obj=XGBoostObjective(loss))
    np.testing.assert_array_equal(predict(models[0]), predict(models[1]))
    assert np.abs(predict(models[0]) - predict(one)).max() > 1e-3

    rankers = [lgb.DaskLGBMRanker(objective=LightGBMObjective(loss), n_estimators=ROUNDS, **LGB) for _ in range(2)]
    fitted = [predict(ranker.fit(twice.X, twice.y, group=twice.group).booster_) for ranker in rankers]
    alone = lgb.LGBMRanker(objective=LightGBMObjective(loss), n_estimators=ROUNDS, **LGB)
    alone.fit(DATA.features, DATA.labels, group=DATA.groups)
    np.testing.assert_array_equal(fitted[0], fitted[1])
    assert np.abs(fitted[0] - alone.predict(DATA.features)).max() > 1e-3


def test_keys_depend_on_which_data_are_together_not_on_numbers_of_workers():
    class Fake(_collective.Collective):
        def __init__(self, rank: int, rows: Any) -> None:
            self.rank, self.size, self.rows = rank, 2, rows

        def gather(self, row: Any) -> Any:
            self.rows[self.rank] = row
            return np.array(self.rows)

    def keys(first: Any, second: Any) -> list[Any]:
        rows = [np.zeros(4), np.zeros(4)]
        for _ in range(2):  # the second time all rows are known
            found = [Fake(rank, rows).keys(part, [2], None).tolist() for rank, part in enumerate((first, second))]
        return found

    assert keys([0, 1], [1, 0]) == keys([1, 0], [0, 1])[::-1]
    assert keys([0, 1], [0, 1]) == [[0], [2**40]]


@pytest.mark.parametrize("how", ["xgboost", "estimator"])
def test_the_same_partitions_give_the_same_model_bit_by_bit(client, how):
    """Whatever the order in which Dask tells where they are; features are continuous, so LightGBM's bins depend on it."""
    data = make_ranking(70, documents=(6, 20), features=6, seed=2)
    found = []
    for _ in range(3):
        model = fit(client, how, YETI, halves(70, 7), 3, data)
        found.append(predict(model if how == "xgboost" else model.booster_, data))
    for other in found[1:]:
        np.testing.assert_array_equal(other, found[0])


@pytest.mark.parametrize("booster", ["xgboost", "lightgbm"])
def test_without_keys_noise_depends_on_which_data_are_together(client, booster):
    """Not on the order of workers, which changes from one training of LightGBM to the next."""
    loss = sr.StochasticRank("ndcg@5", mu=0.0)
    found = []
    for parts in (halves(60, 3, uneven=True), halves(60, 3, uneven=True)[::-1]):
        placed = Placed(client, DATA, parts, np.argsort(np.concatenate(parts)))  # XGBoost wants query ids to rise
        for _ in range(2):
            if booster == "xgboost":
                matrix = dxgb.DaskDMatrix(client, placed.X, placed.y, qid=placed.qid)
                model = dxgb.train(client, XGB, matrix, ROUNDS, obj=XGBoostObjective(loss))["booster"]
            else:
                ranker = lgb.DaskLGBMRanker(objective=LightGBMObjective(loss), n_estimators=ROUNDS, **LGB)
                model = ranker.fit(placed.X, placed.y, group=placed.group).booster_
            found.append(predict(model))
    for other in found[1:]:
        np.testing.assert_allclose(other, found[0], rtol=1e-3, atol=2e-5)


class Means:
    """A loss that writes down the sum of its hessians in each process, and how many rows they are of."""

    def __init__(self, loss: Any, folder: Any) -> None:
        self.loss, self.folder = loss, folder

    def bind(self, *arguments: Any, **keywords: Any) -> Any:
        bound = self.loss.bind(*arguments, **keywords)
        hessian = bound.derivatives(np.zeros(bound.rows))[1]
        learning = np.repeat(np.add.reduceat(hessian, bound.ptr[:-1]) > 0, np.diff(bound.ptr)).sum()
        (self.folder / f"{os.getpid()}").write_text(f"{hessian.sum()!s} {learning}")
        return bound


@pytest.mark.parametrize("booster", ["xgboost", "lightgbm"])
def test_the_hessian_averages_its_mean_over_the_rows_of_all_workers(client, booster, tmp_path):
    placed = Placed(client, DATA, [np.arange(30), np.arange(30, 60)])
    loss: Any = Means(dataclasses.replace(YETI, hessian_mean=0.5), tmp_path)
    if booster == "xgboost":
        matrix = query_matrix(client, placed.X, placed.y, qid=placed.qid)
        dxgb.train(client, XGB, matrix, 1, obj=XGBoostObjective(loss))
    else:
        lgb.DaskLGBMRanker(objective=LightGBMObjective(loss), n_estimators=1, **LGB).fit(
            placed.X, placed.y, group=placed.group
        )
    sums, rows = np.array([path.read_text().split() for path in tmp_path.iterdir()], float).T
    assert len(sums) == 2
    assert sums.sum() / rows.sum() == pytest.approx(0.5, rel=1e-6)
    assert max(sums / rows) > 1.3 * min(sums / rows)  # neither of them has that mean by itself


# ------------------------------------------------------------ metrics of all workers


def early(history: list[float]) -> int:
    return int(np.argmax(history))


@pytest.mark.parametrize("weighted", [False, True])
def test_xgboost_evaluates_and_stops_by_the_queries_of_all_workers(client, weighted):
    weights = np.linspace(0.1, 3, len(VALID.groups)) if weighted else None
    train = Placed(client, DATA, halves(60), QID)
    seen = Placed(client, VALID, [np.arange(25), np.arange(25, 30)] if weighted else [np.arange(30)], None, weights)
    matrix = query_matrix(client, train.X, train.y, qid=train.qid)
    valid = query_matrix(client, seen.X, seen.y, qid=seen.qid, weight=seen.weight if weighted else None, ref=matrix)
    result = dxgb.train(
        client, XGB, matrix, 40, obj=XGBoostObjective("ndcg@5"), custom_metric=XGBoostMetric("ndcg@5"),
        evals=[(matrix, "train"), (valid, "valid")], early_stopping_rounds=4, verbose_eval=False,
    )  # fmt: skip
    history, booster = result["history"]["valid"]["ndcg@5"], result["booster"]
    scores = [booster.predict(xgb.DMatrix(VALID.features), iteration_range=(0, at + 1)) for at in range(len(history))]
    expected = [sr.evaluate("ndcg@5", one, VALID.labels, VALID.groups, weights=weights) for one in scores]
    np.testing.assert_allclose(history, expected, atol=2e-6)
    assert booster.best_iteration == early(history)
    assert len(history) == early(history) + 5 < 40


def test_lightgbm_evaluates_and_stops_by_the_queries_of_all_workers(client):
    train, seen = Placed(client, DATA, halves(60, 3), QID), Placed(client, VALID, [np.arange(25), np.arange(25, 30)])
    model = DaskLightGBMRanker("ndcg@5", n_estimators=40, early_stopping_rounds=4, **LGB)
    model.fit(train.X, train.y, qid=train.qid, eval_set=[(seen.X, seen.y)], eval_qid=[seen.qid])
    (history,) = model.evals_result_["valid_0"].values()
    known = early(history) + 1  # trees that came later are not in the model
    scores = [model.booster_.predict(VALID.features, num_iteration=at + 1) for at in range(known)]
    np.testing.assert_allclose(
        history[:known], [sr.evaluate("ndcg@5", one, VALID.labels, VALID.groups) for one in scores], atol=1e-9
    )
    assert model.best_iteration_ == early(history) + 1
    assert len(history) == early(history) + 5 < 40
    assert model.score(seen.X, seen.y, qid=seen.qid) == pytest.approx(max(history))


def test_lightgbm_stops_by_the_last_evaluation_set(client):
    """Not by the first that makes no progress: here the same data with labels upside down."""
    train, seen = Placed(client, DATA, halves(60, 3), QID), Placed(client, VALID, halves(30, 3))
    model = DaskLightGBMRanker("ndcg@5", n_estimators=40, early_stopping_rounds=4, **LGB)
    model.fit(
        train.X, train.y, qid=train.qid, eval_set=[(seen.X, 4 - seen.y), (seen.X, seen.y)], eval_qid=[seen.qid] * 2,
        eval_names=["worse", "valid"],
    )  # fmt: skip
    worse, valid = (model.evals_result_[name]["ndcg@5"] for name in ("worse", "valid"))
    assert early(worse) + 5 < len(valid) == early(valid) + 5
    assert model.best_iteration_ == early(valid) + 1
    assert {name: dict(values) for name, values in model.best_score_.items()} == {
        "worse": {"ndcg@5": worse[early(valid)]},
        "valid": {"ndcg@5": max(valid)},
    }


def test_lightgbm_refuses_an_evaluation_set_of_which_a_worker_has_no_part(client):
    train, seen = Placed(client, DATA, halves(60)), Placed(client, VALID, [np.arange(30)])
    ranker = lgb.DaskLGBMRanker(objective=LightGBMObjective("ndcg@5"), n_estimators=3, metric="None", **LGB)
    known = inspect.signature(ranker.fit).parameters
    with pytest.raises(ValueError, match=r"workers have .* evaluation sets: .* use DaskLightGBMRanker"):
        ranker.fit(
            train.X, train.y, group=train.group, eval_group=[seen.group], eval_metric=LightGBMMetric("ndcg@5"),
            **({"eval_X": seen.X, "eval_y": seen.y} if "eval_X" in known else {"eval_set": [(seen.X, seen.y)]}),
        )  # fmt: skip
    DaskLightGBMRanker("ndcg@5", n_estimators=2, **LGB).fit(train.X, train.y, qid=train.qid)


# ------------------------------------------------------------ estimators


def frame(data: RankingData = DATA, chunks: int = 3) -> Any:
    table = pd.DataFrame(data.features, columns=[f"f{at}" for at in range(data.features.shape[1])])
    table = table.assign(label=data.labels, query=[f"query {at}" for at in data.qid])
    return dd.from_pandas(table, npartitions=chunks, sort=False)


@pytest.mark.parametrize("kind", [DaskXGBoostRanker, DaskLightGBMRanker])
def test_estimators_train_on_frames_of_which_queries_were_made_whole(client, kind):
    given = frame()
    features = [name for name in given.columns if name.startswith("f")]
    own = LGB if kind is DaskLightGBMRanker else {"max_depth": 3}
    model = kind("ndcg@5", n_estimators=10, **own)
    with pytest.raises(ValueError, match=r"queries are cut .* partition_by_query"):
        model.fit(given[features], given["label"], qid=given["query"])
    table = partition_by_query(given, qid="query")
    assert model.fit(table[features], table["label"], qid=table["query"]) is model
    score = model.score(table[features], table["label"], qid=table["query"])
    local = table.compute()
    scores = model.predict(table[features]).compute()
    assert score == pytest.approx(sr.evaluate("ndcg@5", scores, local["label"], qid=local["query"]))
    assert score > 0.1 + sr.evaluate("ndcg@5", np.zeros(len(local)), local["label"], qid=local["query"], ties="mean")
    assert pickle.loads(pickle.dumps(model)).get_params()["loss"] == "ndcg@5"


@pytest.mark.parametrize("kind", [DaskXGBoostRanker, DaskLightGBMRanker])
def test_data_whose_partitions_do_not_go_together_are_refused(client, kind):
    placed = Placed(client, DATA, halves(60))
    with pytest.raises(ValueError, match=r"same partitions, but there are of (X|data) 2, (y|label) 1, qid 2; rechunk"):
        kind("ndcg@5").fit(placed.X, placed.y.rechunk(-1), qid=placed.qid)
    with pytest.raises(ValueError, match=r"(y|label) must be a dask array, DataFrame or Series, got ndarray"):
        kind("ndcg@5").fit(placed.X, DATA.labels, qid=placed.qid)


# ------------------------------------------------------------ partitions


def blocks(collection: Any) -> list[Any]:
    return [np.asarray(block) for block in dask.compute(*collection.to_delayed().ravel())]


def test_rows_move_to_where_most_of_their_query_is():
    with dask.config.set(scheduler="sync"):
        qid = da.from_array(np.repeat([5, 9, 1, 7, 3], [3, 4, 2, 6, 1]), chunks=(5, 5, 6))  # 555 99|99 11 7|77777 3
        with pytest.raises(ValueError, match=r"2 queries are cut .* key 9 has rows in partitions 0, 1"):
            check_partitions(qid)
        rows, ids = partition_by_query(da.arange(16, chunks=qid.chunks), qid=qid)
        assert [one.tolist() for one in blocks(rows)] == [[0, 1, 2, 3, 4, 5, 6], [7, 8], [9, 10, 11, 12, 13, 14, 15]]
        check_partitions(ids)
        again, _ = partition_by_query(rows, qid=ids)
        assert [one.tolist() for one in blocks(again)] == [one.tolist() for one in blocks(rows)]


@pytest.mark.parametrize("npartitions", [None, 2, 4])
@pytest.mark.parametrize("seed", range(4))
def test_queries_become_whole_and_rows_keep_their_order(seed, npartitions):
    rng = np.random.default_rng(seed)
    ids = np.repeat(rng.permutation(12), rng.integers(1, 9, 12))
    if seed % 2:
        rng.shuffle(ids)  # rows of a query are anywhere
    names = np.array([f"q{one}" for one in ids]) if seed > 1 else ids
    rows = len(ids)
    chunks = tuple(np.diff([0, *sorted(rng.choice(np.arange(1, rows), 4, replace=False)), rows]).tolist())
    with dask.config.set(scheduler="sync"):
        x = np.stack([np.arange(rows), np.arange(rows)], 1).astype(float)
        made = partition_by_query(
            da.from_array(x, chunks=(chunks, 2)), qid=da.from_array(names, chunks=(chunks,)), npartitions=npartitions
        )
        check_partitions(made[1])
        values, new = np.concatenate(blocks(made[0])), np.concatenate(blocks(made[1]))
        assert made[0].chunks[0] == made[1].chunks[0] == tuple(len(block) for block in blocks(made[0]))
        np.testing.assert_array_equal(np.sort(values[:, 0]), np.arange(rows))
        np.testing.assert_array_equal(names[values[:, 0].astype(int)], new)
        for one in np.unique(names):
            assert (np.diff(values[new == one, 0]) > 0).all()
        if npartitions:
            assert all(len(block) for block in blocks(made[0]))


def test_keys_travel_through_float32():
    keys = np.array([3, 2**64 - 1, 2**40 + 5, 7], np.uint64)
    sizes = np.array([4, 3, 2, 1])
    np.testing.assert_array_equal(_collective.keys_from_rows(_collective.keys_to_rows(keys, sizes), sizes), keys)
    with pytest.raises(ValueError, match="missing"):
        query_keys(np.array(["a", None], object))
    strings = pd.Series(["a", "b", "a"])
    np.testing.assert_array_equal(query_keys(strings), query_keys(strings.astype("category")))
    assert query_keys(np.array([1.0, 2.0])).tolist() == [1, 2]


# ------------------------------------------------------------ faults


class Slow:
    """A loss that gives time to disturb a training, and says when it has begun."""

    metric: ClassVar = sr.NDCG(5)

    def __init__(self, folder: Any) -> None:
        self.folder = folder

    def bind(self, *arguments: Any, **keywords: Any) -> Any:
        self.bound = YETI.bind(*arguments, **keywords)
        return self

    def derivatives(self, scores: Any, iteration: int) -> Any:
        if iteration == 2:
            (self.folder / f"{os.getpid()}").touch()
        time.sleep(0.05)
        return self.bound.derivatives(scores, iteration)


class Failing(Slow):
    """A loss that fails on the worker with fewer rows, in its third iteration."""

    def derivatives(self, scores: Any, iteration: int) -> Any:
        if iteration == 2 and len(scores) < 300:
            raise ValueError("this worker has had enough")
        return self.bound.derivatives(scores, iteration)


class Refusing(Slow):
    """A loss that cannot be bound on one worker."""

    def bind(self, labels: Any, *arguments: Any, **keywords: Any) -> Any:
        return YETI.bind(-np.ones(len(labels)) if len(labels) < 300 else labels, *arguments, **keywords)


def fit(client: Any, how: str, loss: Any, parts: list[Any], rounds: int = 200, data: RankingData = DATA) -> Any:
    placed = Placed(client, data, parts)
    if how == "xgboost":
        matrix = query_matrix(client, placed.X, placed.y, qid=placed.qid)
        return dxgb.train(client, XGB, matrix, rounds, obj=XGBoostObjective(loss))["booster"]
    if how == "xgboost-estimator":
        return DaskXGBoostRanker(loss, metric="ndcg@5", n_estimators=rounds, **XGB).fit(placed.X, placed.y, qid=placed.qid)
    if how == "lightgbm":
        ranker = lgb.DaskLGBMRanker(objective=LightGBMObjective(loss), n_estimators=rounds, **LGB)
        return ranker.fit(placed.X, placed.y, group=placed.group)
    model = DaskLightGBMRanker(LightGBMObjective(loss), metric="ndcg@5", n_estimators=rounds, **LGB)
    try:
        return model.fit(placed.X, placed.y, qid=placed.qid)
    except Exception:
        assert not hasattr(model, "fitted_") or not model.fitted_  # no half of a model
        raise


def idle(client: Any) -> bool:
    return not any(client.processing().values())


def wait_until(condition: Any, seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


HOW = ["xgboost", "lightgbm", "estimator"]


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("kind", [Failing, Refusing])
def test_what_fails_on_one_worker_fails_on_all_and_the_next_training_works(client, how, kind, tmp_path):
    begin = time.monotonic()
    clear = "had enough|negative|could not use|Allreduce|see its own error"  # DaskLGBMRanker may tell what it heard of first
    with pytest.raises(Exception, match=clear + ("|Socket" if how == "lightgbm" else "")):
        fit(client, how, kind(tmp_path), [np.arange(40), np.arange(40, 60)])
    assert time.monotonic() - begin < 15
    wait_until(lambda: idle(client))
    if how != "lightgbm":  # by itself it uses connections of the training that failed
        assert fit(client, how, YETI, [np.arange(60)], 2) is not None
    assert fit(client, how, YETI, halves(60), 2) is not None


# XGBoost by itself sometimes leaves a worker waiting for ever, on a busy machine at least; our estimator restarts that one.
@pytest.mark.parametrize(("how", "workers"), [("xgboost-estimator", 3), ("lightgbm", 2), ("lightgbm", 3), ("estimator", 3)])
def test_a_killed_worker_ends_the_training_within_seconds(client, how, workers, tmp_path):
    def kill() -> None:
        wait_until(lambda: len(list(tmp_path.iterdir())) == workers)
        victims.append(int(sorted(tmp_path.iterdir())[-1].name))
        os.kill(victims[0], signal.SIGKILL)
        killed.append(time.monotonic())

    victims: list[int] = []

    killed: list[float] = []
    places = {pid: address for address, pid in client.run(os.getpid).items()}
    thread = threading.Thread(target=kill)
    thread.start()
    with pytest.raises(Exception, match=r"lost|closed|Socket|Invalid worker address|failed|cancelled"):
        fit(client, how, Slow(tmp_path), halves(60, workers))
    assert time.monotonic() - killed[0] < 15
    thread.join()
    wait_until(lambda: places[victims[0]] not in client.nthreads())
    client.wait_for_workers(3, timeout=60)
    wait_until(lambda: idle(client))
    assert fit(client, how, YETI, halves(60, workers), 2) is not None


def test_a_killed_worker_whose_data_dask_computes_again_ends_the_training_as_fast(client, tmp_path, monkeypatch):
    """Its task then waits for ever for that worker; the others have ended, and are not restarted."""
    monkeypatch.setattr(_dask_lightgbm, "_GRACE", 60.0)
    parts = tuple(sum(DATA.groups[part]) for part in halves(60, 3))
    chunked = [da.from_array(values, chunks=(parts, *values.shape[1:])) for values in (DATA.features, DATA.labels, DATA.qid)]
    held: list[Any] = []

    def everywhere() -> bool:
        """On a busy machine Dask may put all partitions on one worker."""
        held.clear()
        held.extend(dask.persist(*chunked))
        distributed.wait(held)
        return len({worker for holders in client.who_has(held[0]).values() for worker in holders}) > 1

    wait_until(everywhere)
    features, labels, qid = held
    killed: list[float] = []

    def kill() -> None:
        wait_until(lambda: len(list(tmp_path.iterdir())) >= 2)
        os.kill(int(sorted(tmp_path.iterdir())[-1].name), signal.SIGKILL)
        killed.append(time.monotonic())

    def train(loss: Any, rounds: int) -> Any:
        return DaskLightGBMRanker(loss, metric="ndcg@5", n_estimators=rounds, **LGB).fit(features, labels, qid=qid)

    before = set(client.run(os.getpid).values())
    thread = threading.Thread(target=kill)
    thread.start()
    with pytest.raises(RuntimeError, match=r"worker tcp.* was lost during training; no model was made"):
        train(LightGBMObjective(Slow(tmp_path)), 200)
    assert time.monotonic() - killed[0] < 20
    thread.join()
    assert train("ndcg@5", 2).booster_.num_trees() == 2  # at once, with the workers that there are
    client.wait_for_workers(3, timeout=60)
    assert len(before & set(client.run(os.getpid).values())) == 2


def test_the_cause_of_a_failure_is_told_not_what_follows_from_it():
    class Future:
        def __init__(self, error: Exception) -> None:
            self.status, self.error = "error", error

        def exception(self) -> Exception:
            return self.error

    closed, cause = lgb.basic.LightGBMError("Socket recv error"), ValueError("labels must not be negative")
    assert _dask_lightgbm._first_cause([Future(closed), Future(cause)], closed) is cause
    assert _dask_lightgbm._first_cause([Future(closed)], closed) is closed


class FailingOnce(Slow):
    """A loss that fails on the worker with fewer rows, in its third iteration, the first time."""

    def derivatives(self, scores: Any, iteration: int) -> Any:
        if iteration == 2 and len(scores) < 300 and not (self.folder / "failed").exists():
            (self.folder / "failed").touch()
            raise ValueError("this worker has had enough")
        return self.bound.derivatives(scores, iteration)


def trees(model: Any) -> Any:
    return predict(model if isinstance(model, xgb.Booster) else model.booster_)


@pytest.mark.parametrize("how", HOW)
def test_a_training_that_is_tried_again(client, how, tmp_path):
    """Dask runs the tasks again: with LightGBM they train the same model, while XGBoost has given up its connections."""
    parts, begin = [np.arange(40), np.arange(40, 60)], time.monotonic()
    with dask.annotate(retries=1):
        if how == "xgboost":
            with pytest.raises(xgb.core.XGBoostError, match=r"connect|Allreduce|closed"):
                fit(client, how, FailingOnce(tmp_path), parts, ROUNDS)
        else:
            try:
                model = fit(client, how, FailingOnce(tmp_path), parts, ROUNDS)
            except RuntimeError as error:  # rarely, on a busy machine: LightGBM aborts while its workers connect again
                if how != "estimator" or "was lost during training" not in str(error):
                    raise
                client.wait_for_workers(3, timeout=60)
                model = fit(client, how, YETI, parts, ROUNDS)
    assert time.monotonic() - begin < 60
    assert (tmp_path / "failed").exists()
    wait_until(lambda: idle(client))
    expected = fit(client, how, YETI, parts, ROUNDS)
    if how != "xgboost":
        np.testing.assert_allclose(trees(model), trees(expected), rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("how", HOW)
def test_a_worker_that_comes_late_to_the_training_is_waited_for(client, how, tmp_path):
    """One of the two stands still while the training starts."""
    expected = trees(fit(client, how, YETI, halves(60), ROUNDS))
    placed = {address: pid for address, pid in client.run(os.getpid).items() if address in sorted(client.nthreads())[:2]}
    late = placed[max(placed)]
    os.kill(late, signal.SIGSTOP)
    wake = threading.Timer(1.0, os.kill, (late, signal.SIGCONT))
    wake.start()
    try:
        begin = time.monotonic()
        found = trees(fit(client, how, YETI, halves(60), ROUNDS))
        assert 0.8 < time.monotonic() - begin < 30
    finally:
        wake.join()
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-5)


class Stuck(Slow):
    """A loss that does not end on the worker with more rows until that is restarted, as a booster that waits for ever."""

    def derivatives(self, scores: Any, iteration: int) -> Any:
        if iteration == 2 and len(scores) > 300:
            (self.folder / f"{os.getpid()}").touch()
            worker = distributed.get_worker()
            while worker.status == distributed.Status.running:
                time.sleep(0.05)
        return super().derivatives(scores, iteration)


@pytest.mark.parametrize("how", ["xgboost-estimator", "estimator"])
def test_workers_that_do_not_notice_a_loss_are_restarted(client, how, tmp_path, monkeypatch):
    """They get new processes, and the next training works."""
    monkeypatch.setattr(_dask_lightgbm, "_GRACE", 1.0)
    monkeypatch.setattr(_dask_xgboost, "_GRACE", 1.0)
    killed: list[float] = []

    def kill() -> None:
        wait_until(lambda: len(list(tmp_path.iterdir())) == 2)
        killed.append(time.monotonic())
        os.kill(min((int(path.name) for path in tmp_path.iterdir()), key=rows.__getitem__), signal.SIGKILL)

    parts = [np.arange(40), np.arange(40, 60)]
    pids = client.run(os.getpid)
    rows = dict(zip((pids[address] for address in sorted(pids)), (len(part) for part in parts), strict=False))
    thread = threading.Thread(target=kill)
    thread.start()
    with pytest.raises(
        Exception, match=r"worker tcp.* was lost during training; no model was made|Invalid worker address|cancelled"
    ):
        fit(client, how, Stuck(tmp_path), parts)
    assert time.monotonic() - killed[0] < 30
    thread.join()
    client.wait_for_workers(3, timeout=60)
    wait_until(lambda: idle(client))
    trained = {int(path.name) for path in tmp_path.iterdir()}
    assert len(trained) == 2
    assert not trained & set(client.run(os.getpid).values())  # the one that was not killed is new, too
    assert fit(client, how, YETI, halves(60), 2) is not None


@pytest.mark.parametrize("how", ["xgboost", "estimator"])
def test_a_late_worker_and_a_retried_task_change_nothing(cluster, client, how, tmp_path):
    """Partitions that fail when they are first read; a fourth worker that starts in the middle of training."""

    def read(part: Any, path: Any) -> Any:
        if not path.exists():
            path.touch()
            raise OSError("the disk is busy")
        return part

    def start() -> None:
        wait_until(lambda: len(list(seen.iterdir())) >= 1)
        cluster.scale(4)

    seen = tmp_path / "seen"
    seen.mkdir()
    expected = fit(client, how, YETI, halves(60), 20)
    placed = Placed(client, DATA, halves(60))
    with dask.annotate(retries=3):
        parts = [dask.delayed(read)(block, tmp_path / f"{at}") for at, block in enumerate(placed.X.to_delayed().ravel())]
        shapes = [(size, DATA.features.shape[1]) for size in placed.X.chunks[0]]
        read_x = da.concatenate([da.from_delayed(one, shape, float) for one, shape in zip(parts, shapes, strict=True)])
        (read_x,) = dask.persist(read_x, optimize_graph=False)
        distributed.wait(read_x)
    thread = threading.Thread(target=start)
    thread.start()
    loss: Any = Slow(seen)
    if how == "xgboost":
        matrix = query_matrix(client, read_x, placed.y, qid=placed.qid)
        model = dxgb.train(client, XGB, matrix, 20, obj=XGBoostObjective(loss))["booster"]
    else:
        model = DaskLightGBMRanker(LightGBMObjective(loss), metric="ndcg@5", n_estimators=20, **LGB)
        model, expected = model.fit(read_x, placed.y, qid=placed.qid).booster_, expected.booster_
    thread.join()
    np.testing.assert_allclose(predict(model), predict(expected), rtol=1e-3, atol=1e-5)
    client.wait_for_workers(4, timeout=60)
    assert fit(client, how, YETI, halves(60, 4), 2) is not None
    with contextlib.suppress(TimeoutError):
        cluster.scale(3)
        wait_until(lambda: len(client.nthreads()) == 3)


def test_a_place_that_dask_does_not_tell_at_first_is_asked_for_again():
    """A Variable that is set just as a worker begins to wait for it is not told: that wait ends with its timeout."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        class Place:
            asked = 0

            def get(self, timeout: float) -> Any:
                Place.asked += 1
                if Place.asked == 1:
                    time.sleep(timeout)
                    raise asyncio.TimeoutError
                return [*server.getsockname()[:2], "00" * 16]

        meeting = object.__new__(_collective.Meeting)
        meeting.rank, meeting.size, begin = 1, 2, time.monotonic()
        meeting._peers = [meeting._join(Place(), begin + 60)]
        assert time.monotonic() - begin < 5
        assert Place.asked == 2
        meeting.close()


def test_parameters_of_the_booster_are_parameters_of_the_estimator():
    """LightGBM before 4.6 would forget them."""
    model = DaskLightGBMRanker("ndcg@5", num_leaves=6, n_estimators=3, min_data_in_bin=1)
    params = {"num_leaves": 6, "n_estimators": 3, "min_data_in_bin": 1, "loss": "ndcg@5"}
    assert params.items() <= model.get_params().items()
    assert params.items() <= clone(model).get_params().items()
    assert clone(DaskXGBoostRanker("ndcg@5", max_depth=3)).get_params()["max_depth"] == 3


@pytest.mark.parametrize("kind", [DaskXGBoostRanker, DaskLightGBMRanker])
def test_without_scikit_learn_the_rankers_say_what_to_install(kind, monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(ImportError, match=r"pip install \"stochasticrank-objectives\[sklearn\]\""):
        kind("ndcg@5")


def test_what_is_sent_to_workers_is_small():
    for one in (XGBoostObjective("ndcg@5"), LightGBMObjective(SGLB), XGBoostMetric("mrr"), LightGBMMetric("mrr")):
        assert len(pickle.dumps(one)) < 2000
