"""With everything at its default: as many trees, and as fast, as a booster trains if it is told the objective alone."""

from __future__ import annotations

import concurrent.futures
import multiprocessing
import os
import pathlib
import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

import stochasticrank_objectives as sr
from stochasticrank_objectives import adapters
from stochasticrank_objectives.datasets import RankingData

from . import datasets, families, store, tables
from .cells import Record, block_means
from .compare import Difference, best_own, paired, pool
from .objectives import BOOSTERS, METRICS, OWN, STOPS_ON, expand, reported

FOLDER = pathlib.Path(__file__).parent  # of defaults.json
SETS = [f"{name}-500" for name in families.CHOSEN_ON | families.JUDGED_ON]
SETS += ["passages-150", *tables.TABLES]
TREES = {"xgboost": 100, "lightgbm": 100, "catboost": 1000}
"""The defaults of the boosters' classes for scikit-learn, and of CatBoost."""
TOO_SLOW = "own:StochasticRank"  # CatBoost's, with so many trees; it is far behind in the study
OURS = {booster: str(sr.recommended(STOPS_ON, booster=booster)) for booster in BOOSTERS}

Array = NDArray[np.float64]
Task = tuple[str, int, str, str]  # data set, replicate, booster, objective


def _xgboost(train: RankingData, test: RankingData, own: dict[str, Any] | None) -> Array:
    import xgboost as xgb

    learn = xgb.DMatrix(train.features, train.labels, group=train.groups, nthread=1)
    objective = adapters.XGBoostObjective(STOPS_ON) if own is None else None
    model = xgb.train({"nthread": 1, **(own or {})}, learn, TREES["xgboost"], obj=objective)
    return np.asarray(model.predict(xgb.DMatrix(test.features, nthread=1), output_margin=True), np.float64)


def _lightgbm(train: RankingData, test: RankingData, own: dict[str, Any] | None) -> Array:
    import lightgbm as lgb

    params = own or {"objective": adapters.LightGBMObjective(STOPS_ON)}
    learn = lgb.Dataset(train.features, train.labels, group=train.groups)
    model = lgb.train({"num_threads": 1, "verbosity": -1, **params}, learn, TREES["lightgbm"])
    return np.asarray(model.predict(test.features, raw_score=True), np.float64)


def _catboost(train: RankingData, test: RankingData, own: dict[str, Any] | None) -> Array:
    import catboost

    common = {"thread_count": 1, "verbose": False, "allow_writing_files": False}
    model = adapters.CatBoostStochasticRank(STOPS_ON, **common) if own is None else catboost.CatBoost({**common, **own})
    model.fit(train.features, train.labels, group_id=train.qid)
    return np.asarray(model.predict(test.features), np.float64)


_TRAIN = {"xgboost": _xgboost, "lightgbm": _lightgbm, "catboost": _catboost}


def _run(task: Task, folder: pathlib.Path | None = None) -> Record:
    """Train, and record test values as a cell of the study does."""
    name, replicate, booster, objective = task
    data = datasets.load(name, replicate, folder)
    scores = _TRAIN[booster](data.train, data.test, OWN[booster].get(objective))
    metrics = {}
    for metric, known in reported(datasets.max_grade(name)).items():
        values = sr.evaluate(known, scores, data.test.labels, data.test.groups, per_query=True, threads=1)
        metrics[metric] = {"valid": 0.0, "test": block_means(values)}
    return {"replicate": replicate, "booster": booster, "objective": objective, "metrics": metrics}


def read() -> dict[str, Record]:
    """What is stored, by "data|replicate|booster|objective"."""
    return store.read("defaults", FOLDER)


def measure(
    sets: list[str], boosters: list[str], folder: pathlib.Path | None, *, replicates: int, jobs: int, again: bool
) -> int:
    """Train what is not stored yet, and store it as it comes; returns how many trainings failed."""
    stored, failed = read(), 0
    tasks: list[Task] = [
        (name, replicate, booster, objective)
        for name in sets
        for replicate in datasets.replicates(name, replicates)
        for booster in boosters
        for objective in [*expand(["own"], booster, datasets.max_grade(name)), OURS[booster]]
        if not objective.startswith(TOO_SLOW)
    ]
    missing = [task for task in tasks if again or "|".join(map(str, task)) not in stored]
    os.environ["NUMBA_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"  # for the processes to be started
    with concurrent.futures.ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool_of_processes:
        waiting = {pool_of_processes.submit(_run, task, folder): task for task in missing}
        for done in tqdm(concurrent.futures.as_completed(waiting), total=len(waiting), unit="training", mininterval=5):
            task = "|".join(map(str, waiting[done]))
            if (error := done.exception()) is not None:
                failed += 1
                tqdm.write(f"{task} failed: {type(error).__name__}: {error}", file=sys.stderr)
                continue
            store.add("defaults", {task: done.result()}, FOLDER)
    return failed


def differences(sets: list[str], booster: str, metric: str) -> dict[str, Difference]:
    """Ours minus the own objective that is best on the test data, per data set."""
    found = {}
    for name in sets:
        records = [record for key, record in read().items() if key.split("|")[0] == name and record["booster"] == booster]
        ours = {record["replicate"]: record for record in records if record["objective"] == OURS[booster]}
        own = best_own([record for record in records if record["objective"] in OWN[booster]], metric, ours)
        if (one := paired(ours, own, metric)) is not None:
            found[name] = one
    return found


def page(sets: list[str]) -> str:
    """The tables, in Markdown."""
    head = ["data set", *(f"{booster}: best own" for booster in BOOSTERS)]
    found = {booster: differences(sets, booster, STOPS_ON) for booster in BOOSTERS}
    known = [name for name in sets if any(name in of_booster for of_booster in found.values())]
    rows = [[name, *(_cell(found[booster].get(name)) for booster in BOOSTERS)] for name in known]
    totals = [["metric", *BOOSTERS], ["---"] * (1 + len(BOOSTERS))]
    for metric in METRICS:
        pooled = [pool(list(differences(sets, booster, metric).values())) for booster in BOOSTERS]
        totals.append(
            [metric, *("" if one is None else f"{one.weighted:+.4f} ± {one.weighted_error:.4f}" for one in pooled)]
        )
    text = [
        "# Everything at its default\n",
        f"Test {STOPS_ON}, ours minus the booster's own objective that is best on the test data. All parameters are the "
        f"boosters' defaults, with {TREES['xgboost']} trees on XGBoost, {TREES['lightgbm']} on LightGBM and "
        f"{TREES['catboost']} on CatBoost; no validation data. Written by `python -m benchmarks.quality defaults`.\n",
        *("| " + " | ".join(row) + " |" for row in [head, ["---"] * len(head), *rows]),
        "\n## All data sets together\n\nWeighted by precision.\n",
        *("| " + " | ".join(row) + " |" for row in totals),
    ]
    return "\n".join(text) + "\n"


def _cell(one: Difference | None) -> str:
    return "" if one is None else f"{one.mean:+.4f} ± {one.error:.4f} ({one.name})"
