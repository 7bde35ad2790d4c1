"""The paper's experiments: what is tuned, what a table's numbers are, and that nothing is lost by an interruption."""

from __future__ import annotations

import dataclasses
import fcntl
import itertools
import json
import logging
import math
import os
import pathlib
import signal
import sqlite3
import subprocess
import sys
import time
from typing import Any

import numpy as np
import optuna
import pytest

import stochasticrank_objectives as sr
from stochasticrank_objectives.datasets import make_ranking
from stochasticrank_objectives.experiments import reports, search, tables, training
from stochasticrank_objectives.experiments.methods import ABLATED, METHODS, own_objectives
from stochasticrank_objectives.experiments.search import Outcome, Protocol, Record, Study
from stochasticrank_objectives.experiments.sources import Source, divide
from stochasticrank_objectives.experiments.synthetic import SYNTHETIC, synthetic
from stochasticrank_objectives.experiments.tables import ablate, compare, interval, p_value


@pytest.fixture(autouse=True)
def _modest(monkeypatch: pytest.MonkeyPatch) -> None:
    """One thread a process, for data so small, and the user's cache folder is left alone."""
    monkeypatch.setenv("NUMBA_NUM_THREADS", "1")
    monkeypatch.setenv("STOCHASTICRANK_OBJECTIVES_CACHE", "0")


TINY = Protocol(rounds=8, patience=5, depths=(2, 3))
DATA = "generated:20"


def study(method: str = "sr-r1", booster: str = "lightgbm", metric: str = "ndcg@5") -> Study:
    return Study(Source(DATA), 0, "generated", booster, metric, method)


def tiny(folder: pathlib.Path, **options: Any) -> list[tables.Row]:
    given: dict[str, Any] = {
        "boosters": ["lightgbm"], "methods": ["own", "sr-r1"], "trials": 2, "seeds": 2, "protocol": TINY, "progress": False,
    }  # fmt: skip
    return compare([DATA], folder=folder, **{**given, **options})


# ------------------------------------------------------------ what is tuned

PAPER = {
    "learning_rate": (1e-3, 1.0, True),
    "l2": (0.1, 10.0, True),
    "noise": (0.0, 1.0, False),
    "depth": (6, 10, False),
    "model_shrink_rate": (1e-5, 1e-2, True),
    "diffusion_temperature": (1e8, 1e11, True),
    "mu": (1e-2, 10.0, True),
}
ALL = {"learning_rate", "depth"}


@pytest.mark.parametrize(
    ("method", "beside"),
    [
        ("lambdamart", {"l2"}),
        ("lambdaloss", {"l2"}),
        ("e-lambdamart", {"l2", "noise"}),
        ("e-lambdaloss", {"l2", "noise"}),
        ("softrank", {"l2"}),
        ("lambdarank", {"l2"}),
        ("sr-r1-soft", {"model_shrink_rate", "diffusion_temperature"}),
        ("sr-r1", {"model_shrink_rate", "diffusion_temperature", "mu"}),
        ("sr-absolute", {"l2", "mu"}),
        ("ccs", set()),
    ],
)
def test_search_spaces_are_those_of_the_paper(method: str, beside: set[str]) -> None:
    space = study(method).space(Protocol())
    assert {name: tuple(found) for name, found in space.items()} == {name: PAPER[name] for name in ALL | beside}


def test_trials_are_drawn_from_the_space_and_depend_on_their_index_alone() -> None:
    record = Record(study(), Protocol(), optuna.storages.InMemoryStorage())
    drawn = [record.start(index).params for index in range(300)]
    for name in drawn[0]:
        low, high, log = PAPER[name]
        values = np.array([params[name] for params in drawn], float)
        assert low <= values.min() <= values.max() <= high
        if name == "depth":
            assert set(values) == {6, 7, 8, 9, 10}
        else:
            place = np.log(values / low) / math.log(high / low) if log else (values - low) / (high - low)
            assert place.mean() == pytest.approx(0.5, abs=0.06)  # 3.6 standard errors of a uniform variable
            assert place.std() == pytest.approx(math.sqrt(1 / 12), abs=0.04)
    again = Record(study(), Protocol(), optuna.storages.InMemoryStorage())
    assert [again.start(index).params for index in (7, 2, 299)] == [drawn[7], drawn[2], drawn[299]]


def test_losses_are_those_of_the_methods() -> None:
    metric = sr.parse_metric("ndcg@5")
    params = {"learning_rate": 0.2, "noise": 0.3, "mu": 0.4, "model_shrink_rate": 1e-3, "diffusion_temperature": 1e9}
    soft = {name: value for name, value in params.items() if name != "mu"}
    made = {name: str(method.make(metric, soft if name == "sr-r1-soft" else params, 0)) for name, method in METHODS.items()}
    sglb = "learning_rate=0.2, diffusion_temperature=1000000000.0, model_shrink_rate=0.001, model_shrink_mode='Constant')"
    assert made["e-lambdamart"] == "LambdaMART('ndcg@5', norm=True, noise=0.3)"
    assert made["softrank"] == made["ccs"] == "StochasticRank('ndcg@5', mu=0.0, sfa=False)"
    assert made["reinforce"] == "StochasticRank('ndcg@5', mu=0.0, sfa=False, estimator='reinforce')"
    assert made["ccs+sfa"] == "StochasticRank('ndcg@5', mu=0.0)"
    assert made["sr-r1-soft"] == f"SGLB(StochasticRank('ndcg@5', mu=0.0), {sglb}"
    assert made["sr-absolute"] == "StochasticRank('ndcg@5', mu=0.4, sfa=False, hessian_constant=0.0)"
    assert made["sr-r1"] == f"SGLB(StochasticRank('ndcg@5', mu=0.4), {sglb}"


def test_own_objectives() -> None:
    assert own_objectives("xgboost", sr.NDCG(5)) == ["rank:ndcg"]
    assert own_objectives("lightgbm", sr.MRR()) == ["lambdarank", "rank_xendcg"]
    assert own_objectives("catboost", sr.NDCG(5)) == ["YetiRank", "StochasticRank:metric=NDCG;top=5;type=Exp"]
    assert own_objectives("catboost", sr.MRR(3)) == ["YetiRank", "StochasticRank:metric=MRR"]


@pytest.mark.parametrize(("method", "binary"), [("lambdarank", True), ("sr-r1", False)])
def test_own_objectives_get_binary_labels_for_mrr(monkeypatch: pytest.MonkeyPatch, method: str, binary: bool) -> None:
    seen = []
    train = training.train
    monkeypatch.setattr(training, "train", lambda *data, **more: seen.append(data) or train(*data, **more))
    params = {"learning_rate": 0.1, "depth": 2, "mu": 0.1, "model_shrink_rate": 1e-3, "diffusion_temperature": 1e9}
    search._train(study(method, metric="mrr"), TINY, params, 0, False)
    original = Source(DATA).load(0)
    _, _, learn, valid = seen[0]
    expected = (original.learn.labels > 0).astype(float) if binary else original.learn.labels
    assert np.array_equal(learn.labels, expected)
    assert np.array_equal(valid.labels, original.valid.labels)


# ------------------------------------------------------------ data


def test_divide_takes_whole_queries_each_once() -> None:
    data = make_ranking(23, documents=(2, 6), features=4)
    parts = divide(data, (3, 1, 1))
    assert [len(part.groups) for part in parts] == [13, 5, 5]
    assert sum(len(part.labels) for part in parts) == len(data.labels)
    rows = np.concatenate([part.features for part in parts])
    assert np.array_equal(np.sort(rows[:, 0]), np.sort(data.features[:, 0]))
    assert all(part.groups.sum() == len(part.labels) for part in parts)
    with pytest.raises(ValueError, match="4 queries are too few to divide into 3 : 1 : 1"):
        divide(make_ranking(4), (3, 1, 1))


def write_svmlight(path: pathlib.Path, queries: int, seed: int) -> None:
    data = make_ranking(queries, documents=(3, 6), features=4, seed=seed)
    with open(path, "w") as file:
        for label, query, values in zip(data.labels, data.qid, data.features, strict=True):
            pairs = " ".join(f"{at}:{value:.4f}" for at, value in enumerate(values, 1))
            file.write(f"{label:g} qid:{query} {pairs}\n")


def test_sources(tmp_path: pathlib.Path) -> None:
    for part, queries in (("train", 20), ("test", 7)):
        write_svmlight(tmp_path / f"{part}.txt", queries, seed=queries)
    folder = Source(str(tmp_path))
    assert (folder.name, folder.folds()) == (tmp_path.name, [tmp_path.name])
    assert [len(part.groups) for part in folder.load(0)] == [16, 4, 7]  # a fifth of the training queries for validation
    one = Source(str(tmp_path / "train.txt"))
    assert [len(part.groups) for part in one.load(0)] == [12, 4, 4]
    before = folder.fingerprint()
    write_svmlight(tmp_path / "test.txt", 8, seed=1)
    assert folder.fingerprint() != before
    with pytest.raises(ValueError, match="there is no such file or folder"):
        Source(str(tmp_path / "none")).folds()
    with pytest.raises(ValueError, match="comes a number of queries, got 'x'"):
        Source("generated:x").folds()


# ------------------------------------------------------------ numbers of a table


def test_interval_and_test_by_hand() -> None:
    assert interval([0.4]) is None
    assert interval([0.1, 0.2, 0.3]) == pytest.approx(4.302653 * 0.1 / math.sqrt(3))  # Student's t, 2 degrees of freedom
    difference = np.array([1.0, 2.0, 3.0])  # t = 2 / (1 / sqrt(3)), for which p = (1 - t / sqrt(t^2 + 2)) / 2
    t = 2 * math.sqrt(3)
    assert p_value(difference + 5, np.full(3, 5.0)) == pytest.approx((1 - t / math.sqrt(t * t + 2)) / 2)
    assert p_value(np.full(3, 5.0), difference + 5) == pytest.approx((1 + t / math.sqrt(t * t + 2)) / 2)
    assert p_value(difference, difference) == 0.5


def final(seed: int, values: list[float]) -> dict[str, Any]:
    return {"seed": seed, "params": {}, "per_query": values, "rounds": 3, "seconds": 1.0, "valid": 0.5, "curve": [0.5]}


def test_a_row_weighs_queries_not_folds() -> None:
    folds = [
        Outcome(study(), {}, [final(1, [1.0]), final(2, [0.0])]),
        Outcome(dataclasses.replace(study(), fold=1), {}, [final(1, [0.0, 0.0, 0.5]), final(2, [0.0, 0.0, 0.5])]),
    ]
    row = tables._rows(folds)[0]
    assert row.by_seed == [1.5 / 4, 0.5 / 4]
    assert row.mean == 0.25
    assert row.per_query is not None
    assert row.per_query.tolist() == [0.5, 0.0, 0.0, 0.5]
    assert row.queries == 4


def test_rows_are_what_training_by_hand_gives(tmp_path: pathlib.Path) -> None:
    rows = tiny(tmp_path, metrics=["ndcg@5", "mrr"])
    split = Source(DATA).load(0)
    assert [(row.metric, row.method) for row in rows] == list(
        itertools.product(["ndcg@5", "mrr"], ["lambdarank", "rank_xendcg", "sr-r1"])
    )
    ours, rivals = rows[2], rows[:2]
    params = ours.params[0]
    tuned = []
    for seed in (0, 1, 2):
        trained = training.train(
            "lightgbm", METHODS["sr-r1"].make(sr.NDCG(5), params, seed), split.learn, split.valid, metric="ndcg@5",
            settings=training.Settings(
                rounds=8, patience=5, learning_rate=params["learning_rate"], depth=params["depth"], l2=0.0,
                seed=seed, threads=1,
            ),
        )  # fmt: skip
        tuned.append(max(trained.curve))
        if seed:
            scores = trained.predict(split.test.features)
            expected = sr.evaluate("ndcg@5", scores, split.test.labels, split.test.groups)
            assert ours.by_seed[seed - 1] == pytest.approx(expected, abs=1e-12)
    with open(tmp_path / "trials.csv", encoding="utf-8") as file:
        lines = [line.split(",") for line in file]
    valid = [float(line[6]) for line in lines[1:] if line[3:5] == ["ndcg@5", "sr-r1"]]
    assert max(valid) == tuned[0]  # the best trial was chosen
    best = max(rivals, key=lambda row: row.mean or 0)
    assert ours.against == best.title
    assert ours.per_query is not None
    assert best.per_query is not None
    assert ours.p == p_value(ours.per_query, best.per_query)


def test_ablation_compares_with_the_row_above(tmp_path: pathlib.Path) -> None:
    rows = ablate(
        [DATA], folder=tmp_path, boosters=["lightgbm"], trials=1, seeds=1, protocol=TINY, progress=False
    )  # fmt: skip
    assert tuple(row.method for row in rows) == ABLATED
    assert [row.against for row in rows] == ["", *(row.title for row in rows[:-1])]
    assert rows[-1].title == "CCS+SFA+SGLB+mu (SR-R1)"


def test_reports(tmp_path: pathlib.Path) -> None:
    rows = tiny(tmp_path, metrics=["ndcg@5", "mrr"], methods=["lambdaloss", "lambdamart", "sr-r1"], trials=1)
    about = reports.notes(rows, TINY, 1, 2, rival="the best")
    text = reports.as_text(rows, about)
    line = next(line for line in text.splitlines() if "lambda-Loss" in line)
    assert line.split()[-1] == "-"  # there is no such loss for MRR
    paths = [pathlib.Path(path) for path in reports.write(rows, about, tmp_path, "t", protocol=TINY, trials=1, seeds=2)]
    best = max((row for row in rows if row.metric == "ndcg@5"), key=lambda row: row.mean or 0)
    assert f"**{best.mean:.4f} ± {best.interval:.4f}**" in paths[0].read_text(encoding="utf-8")
    content = json.loads(paths[1].read_text(encoding="utf-8"))
    assert [row["mean"] for row in content["rows"]] == [row.mean for row in rows]
    assert content["protocol"]["trials"] == 1
    assert len(paths) == 6
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in paths[2:])


# ------------------------------------------------------------ what goes wrong


def test_failed_trials_are_kept_as_such(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    method, calls = METHODS["sr-r1"], []

    def sometimes(metric: Any, params: Any, seed: int) -> Any:
        calls.append(params)
        if len(calls) == 1:
            raise ValueError("it diverged")
        return method.make(metric, params, seed)

    monkeypatch.setitem(METHODS, "sr-r1", dataclasses.replace(method, make=sometimes))
    rows = tiny(tmp_path, methods=["sr-r1"], seeds=1)
    assert len(calls) == 3  # two trials, one of them failed, and the best with its seed
    assert rows[0].params == [calls[1]]
    assert "it diverged" in (tmp_path / "trials.csv").read_text(encoding="utf-8")
    tiny(tmp_path, methods=["sr-r1"], seeds=1)
    assert len(calls) == 3  # a failure is a result: it is not tried again


def test_a_method_that_always_fails(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(metric: Any, params: Any, seed: int) -> Any:
        raise ValueError("it diverged")

    monkeypatch.setitem(METHODS, "sr-r1", dataclasses.replace(METHODS["sr-r1"], make=never))
    rows = tiny(tmp_path / "some")
    assert [row.error for row in rows] == ["", "", "it diverged"]
    assert "failed" in reports.as_text(rows, "")
    with pytest.raises(ValueError, match="every training failed; the first said: it diverged"):
        tiny(tmp_path / "all", methods=["sr-r1"])


def test_a_folder_is_for_one_protocol_and_one_run_at_a_time(tmp_path: pathlib.Path) -> None:
    tiny(tmp_path, methods=["sr-r1"], trials=1, seeds=1)
    with pytest.raises(ValueError, match=r"with other settings: rounds 8 \(now 9\)"):
        tiny(tmp_path, methods=["sr-r1"], protocol=dataclasses.replace(TINY, rounds=9))
    with open(tmp_path / "lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(ValueError, match="another run is writing to"):
            tiny(tmp_path, methods=["sr-r1"])


# ------------------------------------------------------------ interruption


def finished(folder: pathlib.Path) -> dict[tuple[str, int], tuple[int, str]]:
    """(study, index) -> (trial's number in the database, its result) of all trials that have one; each is there once."""
    path = folder / "trials.sqlite"
    if not path.exists():
        return {}
    query = """
        select s.study_name, i.value_json, t.trial_id, r.value_json from trials t join studies s using (study_id)
        join trial_user_attributes i on i.trial_id = t.trial_id and i.key = 'index'
        join trial_user_attributes r on r.trial_id = t.trial_id and r.key = 'result'
    """
    connection = sqlite3.connect(path, timeout=30)
    try:
        found = connection.execute(query).fetchall()
    except sqlite3.OperationalError:  # the tables are not there yet
        return {}
    finally:
        connection.close()
    assert len({(name, index) for name, index, _, _ in found}) == len(found)
    return {(name, int(index)): (trial, result) for name, index, trial, result in found}


def alive(session: int) -> list[int]:
    """The processes of a session that still run."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                state, _, _, of = (entry / "stat").read_text().rpartition(")")[2].split()[:4]
            except OSError:
                continue
            if int(of) == session and state != "Z":
                found.append(int(entry.name))
    return found


TRIALS = 5


def command(folder: pathlib.Path, jobs: int) -> list[str]:
    return [
        sys.executable, "-m", "stochasticrank_objectives", "compare", DATA, "--booster", "lightgbm",
        "--methods", "sr-r1-soft,sr-r1", "--trials", str(TRIALS), "--rounds", "600", "--patience", "none", "--depth", "2-3",
        "--seeds", "1", "--jobs", str(jobs), "--output", str(folder),
    ]  # fmt: skip


def heed_interrupts() -> None:
    """What is started in the background of a shell inherits from it that SIGINT is ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def interrupt(folder: pathlib.Path, jobs: int, how: int, whole_group: bool) -> tuple[int, str, dict[Any, Any]]:
    """Start, interrupt when some trials are finished; returns the exit code, stderr and what had been finished."""
    process = subprocess.Popen(
        command(folder, jobs), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True,
        preexec_fn=heed_interrupts,
    )  # fmt: skip
    try:
        limit = time.monotonic() + 200  # kernels may have to be compiled
        while len(finished(folder)) < 3:
            assert process.poll() is None
            assert time.monotonic() < limit
            time.sleep(0.02)
        before = finished(folder)
        (os.killpg if whole_group else os.kill)(process.pid, how)
        _, stderr = process.communicate(timeout=60)
        limit = time.monotonic() + 30
        while alive(process.pid):
            assert time.monotonic() < limit, "processes were left behind"
            time.sleep(0.05)
    finally:
        for left in alive(process.pid):
            os.kill(left, signal.SIGKILL)
    return process.returncode, stderr, before


def test_an_interrupted_connection_is_not_logged_besides(tmp_path: pathlib.Path) -> None:
    """SQLAlchemy logs what interrupts the return of a connection, with a traceback, and raises it, too."""
    with search._storage(tmp_path / "trials.sqlite") as storage:
        assert not storage.engine.pool.logger.isEnabledFor(logging.ERROR)


@pytest.mark.parametrize(
    ("jobs", "how", "whole_group", "code"),
    [(2, signal.SIGKILL, False, -9), (2, signal.SIGINT, True, 130), (1, signal.SIGINT, True, 130)],
    ids=["killed", "ctrl-c", "ctrl-c-one-process"],
)  # fmt: skip
def test_nothing_is_lost_or_done_twice(tmp_path: pathlib.Path, jobs: int, how: int, whole_group: bool, code: int) -> None:
    returned, stderr, before = interrupt(tmp_path, jobs, how, whole_group)
    assert returned == code
    if code == 130:
        assert stderr.splitlines()[-1].endswith(f"what is finished is kept in {tmp_path}: the same command goes on")
        assert "Traceback" not in stderr
    assert 3 <= len(before) < 2 * TRIALS
    assert before.items() <= finished(tmp_path).items()
    if code == 130 and jobs > 1:
        return  # going on is the same as after a kill, which is harder
    subprocess.run(command(tmp_path, jobs), check=True, capture_output=True, timeout=200)
    after = finished(tmp_path)
    assert {index for _, index in after} == set(range(TRIALS))
    assert len(after) == 2 * TRIALS
    assert before.items() <= after.items()  # the same rows of the database: kept, not made anew


def test_any_number_of_processes_gives_the_same(tmp_path: pathlib.Path) -> None:
    alone = tiny(tmp_path / "1", trials=3)
    together = tiny(tmp_path / "2", trials=3, jobs=2)
    more = tiny(tmp_path / "1", trials=4)
    assert [row.by_seed for row in alone] == [row.by_seed for row in together]
    assert [row.params for row in alone] == [row.params for row in together]
    assert len(finished(tmp_path / "1")) == 3 * 4
    assert all((one.valid or 0) > 0 for one in more)


# ------------------------------------------------------------ table 1


def test_synthetic_data_is_the_papers() -> None:
    """Its global optimum over all orders of the three distinct documents, written out."""
    log3 = math.log2(3)
    first_two = (7 + 3 / log3 + 1 / 2, 7 + 3 / log3)  # ideal DCG@3 of both queries
    expected = (1 + (3 + 7 / log3) / first_two[1]) / 2
    found = [
        sr.evaluate("ndcg@3", SYNTHETIC.features @ np.array(order, float), SYNTHETIC.labels, SYNTHETIC.groups)
        for order in itertools.product(range(3), repeat=3)
    ]
    assert max(found) == pytest.approx(expected)
    assert sorted({round(value, 3) for value in found})[-2:] == [0.903, 0.917]


def test_the_papers_settings_reach_the_global_optimum() -> None:
    """From every seed, where LambdaMART stays in the usual local optimum; the other boosters see the same gradients."""
    found = {cell.method: cell for cell in synthetic(
        boosters=["lightgbm"], methods=["lambdamart", "sr-r1"], seeds=6, progress=False
    )}  # fmt: skip
    assert found["sr-r1"].reached == 6
    assert found["lambdamart"].reached == 0


def test_finished_runs_of_the_synthetic_table_are_kept(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options: dict[str, Any] = {"boosters": ["lightgbm"], "methods": ["sr-r1"], "rounds": 5, "folder": tmp_path}
    first = synthetic(seeds=2, progress=False, **options)
    monkeypatch.setattr(training, "train", None)  # what is trained again would fail
    monkeypatch.setattr("stochasticrank_objectives.experiments.synthetic.train", None)
    assert synthetic(seeds=2, progress=False, **options)[0].values == first[0].values
    with pytest.raises(TypeError):
        synthetic(seeds=3, progress=False, **options)


def test_synthetic_table() -> None:
    """No model can be better than the optimum, so a larger number would be another metric's."""
    cells = synthetic(seeds=1, rounds=40, progress=False, methods=["lambdamart", "sr-r1", "own"])
    assert [(cell.booster, cell.method) for cell in cells if cell.booster == "catboost"][2:] == [
        ("catboost", "YetiRank"), ("catboost", "StochasticRank:metric=NDCG;top=3;type=Exp"),
    ]  # fmt: skip
    assert all(0.5 < value < 0.917 for cell in cells for value in cell.values)
    header, lines = reports.synthetic_cells(cells)
    assert header[2:] == ["xgboost", "lightgbm", "catboost"]
    assert [line[0] for line in lines][:2] == ["lambda-MART", "StochasticRank + SGLB"]
