"""`python -m benchmarks.soak --minutes 10 [--seed 0]`: random trainings and random bad input, against what must always hold.

Trainings of random losses, data and parameters on all three boosters must be finite, not constant, and the same: again, with
1, 2 and 4 threads, after pickling, after an interruption, from two threads at once, beside a training of another booster,
inside an objective, in a fork, and by the estimators. What is reported must be what `evaluate` finds. Bad input must be a
ValueError of ours or the booster's own error, which counts as refused; a finding is a crash, a hang, another error, or a
constant model without a word. Cases run in a process of their own, so that a crash or a hang is seen, counted and survived;
each is made from one number, so that `--case 123` runs it again.

The last quarter of the time is for memory: each booster trains again and again in one process, with its own objective and
with ours. Ours must not grow faster. Counts, findings and memory go to benchmarks/soak.json.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import ctypes
import dataclasses
import faulthandler
import gc
import importlib.metadata
import itertools
import json
import multiprocessing
import os
import pathlib
import pickle
import queue
import select
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

# Threads that spin while they wait for work take the processor from the others; it changes no result.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import numpy as np

RESULTS = pathlib.Path(__file__).with_name("soak.json")
PATIENCE = 600  # seconds for one case before it counts as a hang; the first compile kernels
EVERY = 50  # cases, or trainings, between two looks at the memory
FOR_MEMORY = 0.25  # of the time
LEAK = 2.0  # MiB per 1,000 trainings that ours may grow by beyond the booster's own
BOOSTERS = ("xgboost", "lightgbm", "catboost")
OWN_OBJECTIVES = {"xgboost": "rank:ndcg", "lightgbm": "lambdarank", "catboost": "QueryRMSE"}
# LightGBM's OpenMP hangs in a fork of a process in which it has used several threads, with any objective.
ONE_THREAD = {"verbose": -1, "num_threads": 1}
OWN_ERRORS = ("XGBoostError", "LightGBMError", "CatBoostError")


class Tally:
    """How many trainings this process has begun, its forks included; several threads count at once."""

    def __init__(self) -> None:
        self.counts = dict.fromkeys(BOOSTERS, 0)
        self._lock = threading.Lock()

    def add(self, booster: str, trainings: int = 1) -> None:
        with self._lock:
            self.counts[booster] += trainings


TALLY = Tally()


class Data(NamedTuple):
    features: Any
    labels: Any
    groups: Any
    weights: Any  # per query, or None


class Broken(AssertionError):  # noqa: N818 - a finding, not an error of this program
    """Something that must always hold does not."""


# ------------------------------------------------------------ what is drawn


def draw_data(rng: Any) -> Data:
    queries, most = int(rng.integers(3, 40)), int(rng.choice([2, 5, 15, 40]))
    groups = rng.integers(1, most + 1, queries)
    groups[0] = most
    rows = int(groups.sum())
    features = rng.normal(size=(rows, int(rng.integers(2, 8)))).round(int(rng.choice([0, 1, 6])))
    if rng.random() < 0.3:
        features[rng.random(features.shape) < 0.1] = np.nan
    kind = rng.choice(["grades", "binary", "real", "rare"])
    signal = np.nan_to_num(features[:, 0]) + 0.5 * rng.normal(size=rows)
    labels = {
        "grades": np.searchsorted([0.0, 0.7, 1.3, 2.0], signal),
        "binary": signal > 0.5,
        "real": np.maximum(signal, 0),
        "rare": signal > 1.5,
    }[str(kind)].astype(np.float64)
    labels[int(np.argmax(signal[:most]))], labels[int(np.argmin(signal[:most]))] = 1, 0  # something to learn
    weights = rng.random(queries).round(2) + 0.01 if rng.random() < 0.3 else None
    return Data(features, labels, groups, weights)


def draw_loss(rng: Any, metric: str, learning_rate: float) -> Any:
    import stochasticrank_objectives as sr

    seed = int(rng.integers(0, 1000))
    stochastic = {
        "sigma": float(rng.choice([0.3, 1.0, 2.0])), "mu": float(rng.choice([0.0, 0.1, 1.0])),
        "samples": int(rng.integers(1, 4)), "seed": seed,
    }  # fmt: skip
    kind = str(
        rng.choice(["sr", "sr", "sglb", "yeti", "yetirank", "lambdamart", "lambdaloss", "xendcg", "rmse", "recommended"])
    )
    if kind in ("sr", "sglb"):
        estimator = str(rng.choice(["ccs", "ccs", "reinforce"]))
        noise = str(rng.choice(["normal", "logistic"])) if estimator == "ccs" else "normal"
        loss: Any = sr.StochasticRank(metric, sfa=bool(rng.random() < 0.5), estimator=estimator, noise=noise, **stochastic)
        if kind == "sglb":
            return sr.SGLB(loss, learning_rate=learning_rate, diffusion_temperature=1e9, model_shrink_rate=1e-3)
        return dataclasses.replace(loss, sfa=False, hessian_constant=0.25) if rng.random() < 0.3 else loss
    if kind == "yeti":
        return sr.YetiLoss(metric, permutations=2, neighbours=int(rng.integers(1, 4)), seed=seed)
    if kind == "lambdaloss":
        return sr.LambdaLoss("ndcg@5", seed=seed)
    if kind == "recommended":
        return sr.recommended(metric, booster="xgboost")
    lambdas = {"norm": bool(rng.random() < 0.5) and "+" not in metric, "noise": float(rng.choice([0.0, 0.5])), "seed": seed}
    made = {"yetirank": lambda: sr.YetiRank(seed=seed), "lambdamart": lambda: sr.LambdaMART(metric, **lambdas)}
    made |= {"xendcg": lambda: sr.XENDCG(seed=seed), "rmse": lambda: sr.QueryRMSE()}
    return made[kind]()


def draw_metric(rng: Any, binary: bool) -> str:
    names = ["ndcg@5", "ndcg", "dcg@3:gain=linear", "mrr", "map@5", "rbp:p=0.8", "precision@3", "recall@5", "hit@3"]
    names += ["0.7*ndcg@5 + 0.3*mrr", "ndcg@3 + 2*map"]
    return str(rng.choice([*names, "err@5:max_grade=10"] + (["pfound@5"] if binary else [])))


def draw_params(rng: Any, booster: str, learning_rate: float) -> dict[str, Any]:
    depth, threads = int(rng.integers(1, 5)), int(rng.choice([1, 1, 2]))
    if booster == "xgboost":
        params: dict[str, Any] = {"eta": learning_rate, "max_depth": depth, "min_child_weight": 0, "nthread": threads}
        if rng.random() < 0.3:
            params["subsample"] = 0.8
        if rng.random() < 0.2:
            params |= {"grow_policy": "lossguide", "max_leaves": 8, "tree_method": "hist"}
        if rng.random() < 0.2:
            params["colsample_bytree"] = 0.7
        return {"tree_method": str(rng.choice(["hist", "exact", "approx"])), **params, "seed": int(rng.integers(100))}
    if booster == "lightgbm":
        params = {"learning_rate": learning_rate, "max_depth": depth, "min_data_in_leaf": 1, "min_data_in_bin": 1}
        params |= {"min_sum_hessian_in_leaf": 1e-3, "num_threads": threads, "verbose": -1, "seed": int(rng.integers(100))}
        if rng.random() < 0.3:
            params |= {"bagging_fraction": 0.8, "bagging_freq": 1}
        if rng.random() < 0.2:
            params["data_sample_strategy"] = "goss"
            params = {name: value for name, value in params.items() if not name.startswith("bagging")}
        return {**params, "deterministic": True, "feature_pre_filter": False, "force_row_wise": True}
    params = {"learning_rate": learning_rate, "depth": depth, "thread_count": 1, "random_seed": int(rng.integers(100))}
    params["bootstrap_type"] = str(rng.choice(["Bernoulli", "Bayesian", "No"]))
    if rng.random() < 0.2:
        params |= {"grow_policy": str(rng.choice(["Depthwise", "Lossguide"])), "bootstrap_type": "Bernoulli"}
    return {**params, "allow_writing_files": False, "logging_level": "Silent"}


# ------------------------------------------------------------ training


def objective_of(booster: str, loss: Any) -> Any:
    from stochasticrank_objectives.adapters import LightGBMObjective, XGBoostObjective

    return loss if booster == "catboost" else {"xgboost": XGBoostObjective, "lightgbm": LightGBMObjective}[booster](loss)


def per_row(data: Data) -> Any:
    return None if data.weights is None or data.groups is None else np.repeat(data.weights, data.groups)


def fit(
    booster: str, objective: Any, data: Data, params: dict[str, Any], rounds: int, stop_at: int | None = None
) -> np.ndarray[Any, Any]:
    """Scores of a model trained on the data; `stop_at` interrupts it there, as Ctrl-C would.

    The objective is one of ours, or the name of the booster's own.
    """
    TALLY.add(booster)
    seen, own = [0], isinstance(objective, str)

    def after(*_: Any) -> bool:
        seen[0] += 1
        if seen[0] == stop_at:
            raise KeyboardInterrupt
        return False

    if booster == "xgboost":
        import xgboost as xgb

        class Stop(xgb.callback.TrainingCallback):
            after_iteration = staticmethod(after)

        held = xgb.DMatrix(data.features, data.labels, group=data.groups, weight=data.weights, nthread=1)
        if own:
            model = xgb.train({**params, "objective": objective}, held, rounds, callbacks=[Stop()])
        else:
            model = xgb.train(params, held, rounds, obj=objective, callbacks=[Stop()])
        return np.asarray(model.predict(held, output_margin=True), np.float64)
    if booster == "lightgbm":
        import lightgbm as lgb

        weights = per_row(data)
        held = lgb.Dataset(data.features, data.labels, group=data.groups, weight=weights, params=ONE_THREAD)
        model = lgb.train({**params, "objective": objective}, held, rounds, callbacks=[after])
        return np.asarray(model.predict(data.features, raw_score=True, num_threads=1), np.float64)
    import catboost

    from stochasticrank_objectives.adapters import CatBoostStochasticRank

    class Watch:
        def after_iteration(self, info: Any) -> bool:
            return not after()

    ids = None if data.groups is None else np.repeat(np.arange(len(data.groups)), data.groups)
    weights = per_row(data)
    pool = catboost.Pool(
        data.features, data.labels, group_id=ids, weight=weights, thread_count=1
    )  # more would hang in a fork
    if own:
        model = catboost.CatBoost({**params, "loss_function": objective, "iterations": rounds})
    else:
        metric = None if hasattr(objective, "metric") or hasattr(objective, "loss") else "ndcg@5"
        model = CatBoostStochasticRank(objective, eval_metric=metric, iterations=rounds, **params)
    model.fit(pool, callbacks=[Watch()])
    return np.asarray(model.predict(pool, prediction_type="RawFormulaVal", thread_count=1), np.float64)


def native_data(data: Data) -> Data:
    """The data with labels that the boosters' own objectives take."""
    return data._replace(labels=np.minimum(np.floor(data.labels), 4))


def in_fork(work: Callable[[], np.ndarray[Any, Any]], seconds: float = 60) -> np.ndarray[Any, Any]:
    """What the work gives in a forked child of this process."""
    read, write = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside threads: that is the point
        child = os.fork()
    if child == 0:
        try:
            faulthandler.dump_traceback_later(0.8 * seconds)  # says where it hangs
            with os.fdopen(write, "wb") as file:
                file.write(pickle.dumps(work()))
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    os.close(write)
    content, deadline = b"", time.monotonic() + seconds
    with os.fdopen(read, "rb", buffering=0) as file:
        while select.select([file], [], [], max(deadline - time.monotonic(), 0))[0]:
            if not (part := file.read(2**16)):
                break
            content += part
        else:
            os.kill(child, 9)
            os.waitpid(child, 0)
            raise Broken(f"a fork has not ended after {seconds} seconds")
    _, status = os.waitpid(child, 0)
    if status:
        raise Broken(f"a fork has ended with status {status}")
    return np.asarray(pickle.loads(content))


# ------------------------------------------------------------ cases


def same(what: str, one: Any, other: Any) -> None:
    if not np.array_equal(one, other):
        raise Broken(f"not the same {what}: differs by up to {np.abs(one - other).max():g}")


def good_case(rng: Any) -> str:
    """One training and what must hold for it. Gives what was checked."""
    booster = str(rng.choice(BOOSTERS))
    data = draw_data(rng)
    rate = float(rng.choice([0.05, 0.3]))
    metric = draw_metric(rng, bool(data.labels.max() <= 1))
    loss, params, rounds = draw_loss(rng, metric, rate), draw_params(rng, booster, rate), int(rng.integers(3, 8))
    shown = f"{booster} {loss} rows={len(data.labels)} {params}"
    try:
        return _check(rng, booster, data, loss, params, rounds)
    except Broken as error:
        raise Broken(f"{error}; {shown}") from error
    except Exception as error:
        if refused_anyway(error, booster, data, params, rounds):
            return f"refused, with the booster's own objective too: {booster}"
        raise Broken(f"{type(error).__name__}: {error}; {shown}") from error


def refused_anyway(error: Exception, booster: str, data: Data, params: dict[str, Any], rounds: int) -> bool:
    """Whether the booster gives the same error of its own when it trains its own objective on these data."""
    if type(error).__name__ not in OWN_ERRORS:
        return False
    try:
        fit(booster, OWN_OBJECTIVES[booster], native_data(data), params, rounds)
    except Exception as other:
        return (type(error), str(error)) == (type(other), str(other))
    return False


class Case(NamedTuple):
    booster: str
    objective: Any
    loss: Any
    data: Data
    params: dict[str, Any]
    rounds: int
    first: Any  # the scores of its model

    def train(self, objective: Any = None, **params: Any) -> np.ndarray[Any, Any]:
        """Scores of a training that differs from the first in these alone."""
        chosen = self.objective if objective is None else objective
        return fit(self.booster, chosen, self.data, {**self.params, **params}, self.rounds)


THREADS = {"xgboost": "nthread", "lightgbm": "num_threads", "catboost": "thread_count"}


def check_again(case: Case) -> None:
    same("again", case.first, case.train())


def check_threads(case: Case) -> None:
    for threads in (1, 2, 4):
        other = objective_of(case.booster, dataclasses.replace(case.loss, threads=threads))
        same(f"for {threads} threads", case.first, case.train(other))


def check_booster_threads(case: Case) -> None:
    for threads in (1, 2, 4):
        found = case.train(**{THREADS[case.booster]: threads})
        if not np.isfinite(found).all():
            raise Broken(f"scores are not finite with {threads} threads of the booster")
        if case.booster != "catboost":  # whose sums depend on its threads
            same(f"for {threads} threads of the booster", case.first, found)


def check_pickled(case: Case) -> None:
    same("after pickling", case.first, case.train(pickle.loads(pickle.dumps(case.objective))))


def check_interrupted(case: Case) -> None:
    try:
        fit(case.booster, case.objective, case.data, case.params, case.rounds, stop_at=2)
        raise Broken("an interruption was swallowed")
    except KeyboardInterrupt:
        pass
    except Exception as error:
        if "KeyboardInterrupt" not in str(error):  # CatBoost turns it into an error of its own
            raise
    same("after an interruption", case.first, case.train())


def at_once(*work: Callable[[], Any]) -> list[Any]:
    """What these give, each in a thread of its own."""
    results: list[Any] = [None] * len(work)

    def run(at: int) -> None:
        try:
            results[at] = work[at]()
        except Exception as error:
            results[at] = error

    threads = [threading.Thread(target=run, args=(at,)) for at in range(len(work))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for result in results:
        if isinstance(result, Exception):
            raise result
    return results


def check_two_threads(case: Case) -> None:
    for found in at_once(case.train, case.train):
        same("from two threads at once", case.first, found)


def check_beside(case: Case) -> None:
    """Another booster trains in another thread, both with threads of their own."""
    other = BOOSTERS[(BOOSTERS.index(case.booster) + 1) % len(BOOSTERS)]
    rng = np.random.default_rng(case.rounds)
    params = {**draw_params(rng, other, 0.1), THREADS[other]: 2 if other != "catboost" else 1}
    loss: Any = case.loss.loss if hasattr(case.loss, "learning_rate") else case.loss
    expected = fit(other, objective_of(other, loss), case.data, params, case.rounds)
    found = at_once(case.train, lambda: fit(other, objective_of(other, loss), case.data, params, case.rounds))
    same(f"beside {other}", case.first, found[0])
    same(f"{other} beside {case.booster}", expected, found[1])


def check_inside(case: Case) -> None:
    """Each gradient comes after a whole training of the same kind."""

    def nested(scores: Any, data: Any) -> Any:
        same("inside an objective", case.first, case.train(pickle.loads(pickle.dumps(case.objective))))
        return case.objective(scores, data)

    same("around trainings", case.first, case.train(nested))


def check_fork(case: Case) -> None:
    """One thread of the booster in the child: OpenMP hangs in a fork of a process that has used several, whatever trains."""
    TALLY.add(case.booster)  # the child's own tally is lost
    same("in a fork", case.first, in_fork(lambda: case.train(**{THREADS[case.booster]: 1})))


def ranker(booster: str, loss: Any, rounds: int, rate: float) -> Any:
    """The booster's estimator."""
    from stochasticrank_objectives import adapters

    kind = {"xgboost": "XGBoostRanker", "lightgbm": "LightGBMRanker", "catboost": "CatBoostRanker"}[booster]
    words = {"n_estimators": rounds, "n_jobs": 1, "random_state": 3, "max_depth": 3, "learning_rate": rate}
    more = {"lightgbm": {"min_child_samples": 1, "min_data_in_bin": 1}, "catboost": {"bootstrap_type": "No"}}
    return getattr(adapters, kind)(loss, metric="ndcg@5", **words, **more.get(booster, {}))


def check_estimator(case: Case) -> None:
    """The estimator: the same again, from a clone and from a pickle, and its score is what `evaluate` finds."""
    import sklearn.base

    import stochasticrank_objectives as sr

    TALLY.add(case.booster, 2)
    model = ranker(case.booster, case.loss, case.rounds, getattr(case.loss, "learning_rate", 0.1))
    x, y, data = case.data.features, case.data.labels, case.data
    given = {"group": data.groups, "sample_weight": data.weights}
    scores = model.fit(x, y, **given).predict(x)
    if not np.isfinite(scores).all():
        raise Broken("the estimator's scores are not finite")
    same("from a pickle of the estimator", scores, pickle.loads(pickle.dumps(model)).predict(x))
    same("from a clone of the estimator", scores, sklearn.base.clone(model).fit(x, y, **given).predict(x))
    expected = sr.evaluate("ndcg@5", scores, y, data.groups, weights=data.weights)
    if model.score(x, y, **given) != expected:
        raise Broken("the estimator's score is not the metric of its predictions")


def check_reported(case: Case) -> None:
    """The metric that the booster reports is the one of its predictions."""
    import stochasticrank_objectives as sr
    from stochasticrank_objectives.adapters import LightGBMMetric, XGBoostMetric

    data = case.data
    TALLY.add(case.booster)
    if case.booster == "xgboost":
        import xgboost as xgb

        held, history = xgb.DMatrix(data.features, data.labels, group=data.groups, weight=data.weights), {}
        model = xgb.train(
            case.params, held, case.rounds, obj=case.objective, custom_metric=XGBoostMetric("ndcg@5"),
            evals=[(held, "held")], evals_result=history, verbose_eval=False,
        )  # fmt: skip
        scores, told = model.predict(held, output_margin=True), history["held"]["ndcg@5"][-1]
    elif case.booster == "lightgbm":
        import lightgbm as lgb

        held = lgb.Dataset(data.features, data.labels, group=data.groups, weight=per_row(data), params=ONE_THREAD)
        history = {}
        model = lgb.train(
            {**case.params, "objective": case.objective, "metric": "None"}, held, case.rounds, valid_sets=[held],
            valid_names=["held"], feval=LightGBMMetric("ndcg@5"), callbacks=[lgb.record_evaluation(history)],
        )  # fmt: skip
        scores, told = model.predict(data.features, raw_score=True), history["held"]["ndcg@5"][-1]
    else:
        model = ranker(case.booster, case.loss, case.rounds, getattr(case.loss, "learning_rate", 0.1))
        model.fit(data.features, data.labels, group=data.groups, sample_weight=data.weights)
        scores, told = model.predict(data.features), model.get_evals_result()["learn"]["ndcg@5"][-1]
    # Boosters print a float32, and scores of leaves that differ by rounding may swap neighbours: sums in another order.
    expected = sr.evaluate("ndcg@5", scores, data.labels, data.groups, weights=data.weights)
    if abs(told - expected) > 1e-5 and len(np.unique(scores)) == len(scores):
        raise Broken(f"reports {told}, but its scores have {expected}")


CHECKS: dict[str, Callable[[Case], None]] = {
    "again": check_again,
    "threads": check_threads,
    "booster threads": check_booster_threads,
    "pickled": check_pickled,
    "interrupted": check_interrupted,
    "two threads": check_two_threads,
    "beside another booster": check_beside,
    "inside an objective": check_inside,
    "fork": check_fork,
    "estimator": check_estimator,
    "reported": check_reported,
}


def checks_for(booster: str, loss: Any, params: dict[str, Any]) -> list[str]:
    """Which checks can be made of such a training."""
    left_out = set()
    if not any(field.name == "threads" for field in dataclasses.fields(loss)):
        left_out.add("threads")
    sampled = "subsample" in params or "colsample_bytree" in params  # XGBoost has one random state per thread
    counted = booster == "xgboost" and hasattr(loss, "learning_rate")  # SGLB counts iterations by XGBoost's own call
    if booster == "catboost" or sampled or counted:  # CatBoost asks its objective from threads of its own
        left_out.add("inside an objective")
    return [name for name in CHECKS if name not in left_out]


def _check(rng: Any, booster: str, data: Data, loss: Any, params: dict[str, Any], rounds: int) -> str:
    objective = objective_of(booster, loss)
    first = fit(booster, objective, data, params, rounds)
    if not np.isfinite(first).all():
        raise Broken("scores are not finite")
    sampled = "subsample" in params or "colsample_bytree" in params or "bagging_fraction" in params
    if np.ptp(first) == 0 and not sampled and learnable(loss, data):
        raise Broken("the model is constant")
    what = str(rng.choice(checks_for(booster, loss, params)))
    CHECKS[what](Case(booster, objective, loss, data, params, rounds, first))
    return f"held on {booster}: {what}"


def learnable(loss: Any, data: Data) -> bool:
    """Whether there is a gradient at all at the start, in some query with features that differ."""
    gradient = loss.bind(data.labels, data.groups, data.weights).gradient(np.zeros(len(data.labels)))
    slope = [
        np.abs(np.corrcoef(np.nan_to_num(column), gradient)[0, 1])
        for column in data.features.T
        if np.ptp(np.nan_to_num(column))
    ]
    # XGBoost makes no split that gains less than 1e-6, which is a sum of squares of gradients.
    return bool(np.abs(gradient).max() > 3e-3 and slope and np.nanmax(slope) > 0.2)


def _spoil(name: str, value: Any) -> Callable[[Any, Data], Data]:
    def spoiled(rng: Any, data: Data) -> Data:
        array = np.array(getattr(data, name) if getattr(data, name) is not None else np.ones(len(data.groups)), np.float64)
        array[int(rng.integers(len(array)))] = value
        return data._replace(**{name: array})

    return spoiled


BAD_DATA: dict[str, Callable[[Any, Data], Data]] = {
    "label nan": _spoil("labels", np.nan),
    "label infinite": _spoil("labels", np.inf),
    "label negative": _spoil("labels", -1),
    "label huge": _spoil("labels", 1e6),
    "label hugest": _spoil("labels", 1e300),
    "weight nan": _spoil("weights", np.nan),
    "weight infinite": _spoil("weights", np.inf),
    "weight hugest": _spoil("weights", 1e308),
    "weight negative": _spoil("weights", -1),
    "weights all 0": lambda rng, data: data._replace(weights=np.zeros(len(data.groups))),
    "weights too many": lambda rng, data: data._replace(weights=np.ones(len(data.labels) + 1)),
    "groups sum to less": lambda rng, data: data._replace(groups=data.groups[:-1]),
    "groups sum to more": lambda rng, data: data._replace(groups=np.append(data.groups, 3)),
    "group negative": lambda rng, data: data._replace(groups=np.append(data.groups[:-1], [-1, data.groups[-1] + 1])),
    "groups of 0 rows": lambda rng, data: data._replace(groups=np.append(data.groups, 0), weights=None),
    "groups are halves": lambda rng, data: data._replace(groups=np.append(data.groups[:-1], [0.5, data.groups[-1] - 0.5])),
    "groups missing": lambda rng, data: data._replace(groups=None),
    "labels too few": lambda rng, data: data._replace(labels=data.labels[:-1]),
    "feature infinite": lambda rng, data: data._replace(features=np.where(data.features > 1, np.inf, data.features)),
    "no features": lambda rng, data: data._replace(features=data.features[:, :0]),
    "labels are words": lambda rng, data: data._replace(labels=np.array(["high"] * len(data.labels), object)),
    "features are words": lambda rng, data: data._replace(features=np.full(data.features.shape, "high", object)),
    "no rows": lambda rng, data: Data(data.features[:0], data.labels[:0], data.groups[:0], None),
    "rates that diverge": lambda rng, data: data,
}
# Boosters may take these; then the model must be sound. A group of 0 rows is no query; labels and weights that are huge are
# numbers.
ACCEPTED = ("feature infinite", "rates that diverge", "groups of 0 rows", "label huge", "label hugest")
# LightGBM turns NaN into 0 before any objective sees it.
MADE_FINITE = ("label nan", "weight nan")

BAD_LOSS: dict[str, Callable[[Any], Any]] = {
    "sigma 0": lambda sr: sr.StochasticRank("ndcg@5", sigma=0),
    "sigma nan": lambda sr: sr.StochasticRank("ndcg@5", sigma=float("nan")),
    "mu negative": lambda sr: sr.StochasticRank("ndcg@5", mu=-1),
    "mu infinite": lambda sr: sr.StochasticRank("ndcg@5", mu=float("inf")),
    "samples 0": lambda sr: sr.StochasticRank("ndcg@5", samples=0),
    "samples half": lambda sr: sr.StochasticRank("ndcg@5", samples=1.5),
    "seed negative": lambda sr: sr.StochasticRank("ndcg@5", seed=-1),
    "seed huge": lambda sr: sr.StochasticRank("ndcg@5", seed=2**70),
    "threads 0": lambda sr: sr.StochasticRank("ndcg@5", threads=0),
    "threads a word": lambda sr: sr.StochasticRank("ndcg@5", threads="many"),
    "metric unknown": lambda sr: sr.StochasticRank("nonsense@5"),
    "metric a number": lambda sr: sr.StochasticRank(5),
    "cut 0": lambda sr: sr.StochasticRank("ndcg@0"),
    "estimator unknown": lambda sr: sr.StochasticRank("ndcg@5", estimator="guess"),
    "rate of SGLB nan": lambda sr: sr.SGLB(sr.StochasticRank("ndcg@5"), learning_rate=float("nan")),
    "rate of SGLB another": lambda sr: sr.SGLB(sr.StochasticRank("ndcg@5"), learning_rate=0.123),
    "permutations 0": lambda sr: sr.YetiLoss("ndcg@5", permutations=0),
    "grades above the highest": lambda sr: sr.StochasticRank("err@5:max_grade=0.5"),
    "labels not probabilities": lambda sr: sr.StochasticRank("pfound@5"),
}

BAD_PARAMS: dict[str, tuple[str, dict[str, Any], bool]] = {  # which booster, what it is told, whether SGLB is meant
    "bagging by query": ("lightgbm", {"bagging_by_query": True, "bagging_fraction": 0.5, "bagging_freq": 1}, False),
    "dart under SGLB, LightGBM": ("lightgbm", {"boosting": "dart"}, True),
    "dart under SGLB, XGBoost": ("xgboost", {"booster": "dart"}, True),
    "Ordered": ("catboost", {"boosting_type": "Ordered"}, False),
    "leaf iterations": ("catboost", {"leaf_estimation_iterations": 3}, False),
    "CatBoost's unknown parameter": ("catboost", {"nonsense": 1}, False),
}


def bad_case(rng: Any) -> str:
    """One training on bad input: an error of ours or of the booster, or a sound model where the input may be accepted."""
    import stochasticrank_objectives as sr

    booster = str(rng.choice(BOOSTERS))
    name = str(rng.choice([*BAD_DATA, *BAD_LOSS, *BAD_PARAMS]))
    data = draw_data(rng)
    data.labels[0] = 2  # neither a probability nor below the highest grade
    loss: Any = sr.StochasticRank("ndcg@5", mu=0.1)
    rate, more = 0.1, {}
    if name in BAD_PARAMS:
        booster, more, sglb = BAD_PARAMS[name]
        loss = sr.SGLB(loss, learning_rate=rate) if sglb else loss
    if name == "rates that diverge":
        rate = 1e300
    estimator = name not in BAD_PARAMS and bool(rng.random() < 0.4)
    way = "estimator, " if estimator else ""
    try:
        if name in BAD_LOSS:
            loss = BAD_LOSS[name](sr)
        elif name in BAD_DATA:
            data = BAD_DATA[name](rng, data)
        if estimator:
            TALLY.add(booster)
            model = ranker(booster, loss, 4, rate)
            model.fit(data.features, data.labels, group=data.groups, sample_weight=data.weights)
            scores = np.asarray(model.predict(data.features), np.float64)
        else:
            scores = fit(booster, objective_of(booster, loss), data, {**draw_params(rng, booster, rate), **more}, 4)
    except Exception as error:
        if (by := _raised_by(error)) is None or not str(error):
            raise Broken(f"{booster}, {way}{name}: {type(error).__name__}: {error}") from error
        return f"refused by {by}: {way}{name}"
    if name not in ACCEPTED and not (booster == "lightgbm" and name in MADE_FINITE and not estimator):
        raise Broken(f"{booster}, {way}{name}: accepted without a word; scores from {scores.min():g} to {scores.max():g}")
    if not np.isfinite(scores).all():
        raise Broken(f"{booster}, {way}{name}: scores that are not finite, without a word")
    finite = np.clip(np.nan_to_num(data.features), -1e3, 1e3)
    if name not in MADE_FINITE and np.ptp(scores) == 0 and learnable(loss, data._replace(features=finite)):
        raise Broken(f"{booster}, {way}{name}: a constant model, without a word")
    return f"accepted, with a sound model: {way}{name}"


def _raised_by(error: Exception) -> str | None:
    """Whose error it is: ours, the booster's, that of what makes its data; None if nobody meant to raise it."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    if type(error).__name__ in OWN_ERRORS:
        return type(error).__name__
    if last.filename == __file__:
        return "numpy, before any booster"
    if "stochasticrank_objectives" in last.filename or f"{os.sep}adapters{os.sep}" in last.filename:
        return "a ValueError of ours" if isinstance(error, ValueError) and (last.line or "").startswith("raise ") else None
    return f"the booster's {type(error).__name__}" if isinstance(error, (ValueError, TypeError)) else None


def run_case(number: int) -> str:
    rng = np.random.default_rng([number, 77])
    return bad_case(rng) if rng.random() < 0.35 else good_case(rng)


# ------------------------------------------------------------ workers


def memory() -> float:
    """MiB that this process holds, after what is free was given back."""
    gc.collect()
    with contextlib.suppress(OSError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


class Told(NamedTuple):
    """What a worker says."""

    kind: str  # begin, ok, broken or memory
    case: int
    what: Any = None
    trainings: dict[str, int] = {}  # noqa: RUF012 - so far


def worker(first: int, told: Any) -> None:
    """Case after case, until the process is ended."""
    from stochasticrank_objectives import _threads

    _threads._WORTH_A_THREAD = 1  # small data, too, are shared among threads
    warnings.simplefilter("ignore")
    for number in itertools.count(first):
        told.put(Told("begin", number))
        try:
            kind, what = "ok", run_case(number)
        except Exception as error:
            kind, what = "broken", f"{type(error).__name__}: {error}"
        told.put(Told(kind, number, what, dict(TALLY.counts)))
        if (number - first) % EVERY == EVERY - 1:
            told.put(Told("memory", number, memory(), dict(TALLY.counts)))


def train_again_and_again(booster: str, own: bool, seed: int, told: Any) -> None:
    """Training after training of one booster, with its own objective or ours, until the process is ended."""
    warnings.simplefilter("ignore")
    for number in itertools.count():
        rng = np.random.default_rng([seed, number, 78])
        data, rate = draw_data(rng), 0.1
        objective: Any = OWN_OBJECTIVES[booster]
        if not own:
            objective = objective_of(booster, draw_loss(rng, draw_metric(rng, bool(data.labels.max() <= 1)), rate))
        try:
            fit(booster, objective, native_data(data) if own else data, draw_params(rng, booster, rate), 5)
        except Exception as error:
            if type(error).__name__ not in OWN_ERRORS:
                told.put(Told("broken", number, f"{type(error).__name__}: {error}"))
        if number % EVERY == EVERY - 1:
            told.put(Told("memory", number, memory(), dict(TALLY.counts)))


class Growth(NamedTuple):
    """Memory of one process, in the order of its trainings."""

    samples: list[tuple[int, float]]  # trainings so far, MiB

    @property
    def per_thousand(self) -> float | None:
        """MiB per 1,000 trainings: the slope of a line through all but the first third, in which kernels compile."""
        late = self.samples[len(self.samples) // 3 :]
        if len(late) < 3:
            return None
        trainings, held = np.array(late, np.float64).T
        return float(1000 * np.polyfit(trainings, held, 1)[0])

    def summary(self) -> dict[str, Any]:
        growth = self.per_thousand
        return {
            "trainings": self.samples[-1][0] if self.samples else 0,
            "MiB per 1,000 trainings": None if growth is None else round(growth, 2),
            "MiB after trainings": {
                str(at): round(held, 1) for at, held in self.samples[:: max(len(self.samples) // 20, 1)]
            },
        }


def listen(process: Any, told: Any, deadline: float) -> Iterator[Told | str]:
    """What a worker says until the deadline, and how it ended if it did so by itself; afterwards the process is stopped."""
    current, since = -1, time.monotonic()
    process.start()
    while time.monotonic() < deadline:
        try:
            said: Told = told.get(timeout=1)
        except queue.Empty:
            if not process.is_alive() and told.empty():
                yield f"case {current}: crash: the process ended with code {process.exitcode}"
                break
            if time.monotonic() - since > PATIENCE:
                yield f"case {current}: hang: no end after {PATIENCE} seconds"
                break
            continue
        current, since = said.case, time.monotonic()
        yield said
    process.kill()
    process.join()


def soak_cases(context: Any, deadline: float, seed: int) -> dict[str, Any]:
    """Cases until the deadline; a worker that crashes or hangs is followed by another."""
    counts: collections.Counter[str] = collections.Counter()
    findings: list[str] = []
    following, memories, trainings = seed * 10**6, [], collections.Counter[str]()
    while time.monotonic() < deadline:
        told = context.Queue()
        samples, so_far = [], {}
        for said in listen(context.Process(target=worker, args=(following, told)), told, deadline):
            if isinstance(said, str):
                counts[said.split(": ")[1]] += 1
                findings.append(said)
                continue
            following, so_far = said.case + 1, said.trainings or so_far
            if said.kind == "memory":
                samples.append((sum(so_far.values()), said.what))
            elif said.kind == "broken":
                counts["broken"] += 1
                findings.append(f"case {said.case}: {said.what}")
                print(findings[-1], flush=True)
            elif said.kind == "ok":
                counts[said.what] += 1
        memories.append(Growth(samples))
        trainings.update(so_far)
    return {"counts": counts, "findings": findings, "memories": memories, "trainings": trainings}


def soak_memory(context: Any, minutes: float, seed: int) -> tuple[dict[str, Growth], list[str]]:
    """Memory over trainings of each booster, with its own objective and with ours."""
    found, findings = {}, []
    for booster in BOOSTERS:
        for own in (True, False):
            told, deadline = context.Queue(), time.monotonic() + 60 * minutes / 6
            process = context.Process(target=train_again_and_again, args=(booster, own, seed, told))
            samples = []
            for said in listen(process, told, deadline):
                if isinstance(said, str) or said.kind == "broken":
                    findings.append(f"memory of {booster}: {said if isinstance(said, str) else said.what}")
                else:
                    samples.append((sum(said.trainings.values()), said.what))
            found[f"{booster}, {'its own objective' if own else 'ours'}"] = Growth(samples)
        its, ours = (one.per_thousand for one in list(found.values())[-2:])
        if its is not None and ours is not None and ours > max(its, 0) + LEAK:
            findings.append(f"memory of {booster}: {ours:.1f} MiB per 1,000 trainings, with its own objective {its:.1f}")
    return found, findings


def soak(minutes: float, seed: int) -> dict[str, Any]:
    context, started = multiprocessing.get_context("spawn"), time.monotonic()
    cases = soak_cases(context, started + 60 * minutes * (1 - FOR_MEMORY), seed)
    growths, findings = soak_memory(context, FOR_MEMORY * minutes, seed)
    kinds: dict[str, dict[str, int]] = {}
    for name, count in sorted(cases["counts"].items()):
        kind, _, what = name.partition(": ")
        kinds.setdefault(kind, {})[what or kind] = count
    in_cases, for_memory = (
        sum(cases["trainings"].values()),
        sum(one.samples[-1][0] for one in growths.values() if one.samples),
    )
    return {
        "minutes": round((time.monotonic() - started) / 60, 1),
        "seed": seed,
        "versions": {name: importlib.metadata.version(name) for name in (*BOOSTERS, "numba", "numpy", "scikit-learn")},
        "findings": [*cases["findings"], *findings],
        "cases": sum(cases["counts"].values()),
        "cases per kind": {kind: sum(named.values()) for kind, named in kinds.items()},
        "trainings": {"in cases": in_cases, **cases["trainings"], "for memory": for_memory, "in all": in_cases + for_memory},
        "memory": {
            **{name: one.summary() for name, one in growths.items()},
            **{f"all cases, process {at + 1}": one.summary() for at, one in enumerate(cases["memories"])},
        },
        "counts": kinds,
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=0, help="other cases")
    parser.add_argument("--case", type=int, help="run this one case, here, and show its error")
    parser.add_argument("--output", type=pathlib.Path, default=RESULTS)
    chosen = parser.parse_args()
    if chosen.case is not None:
        from stochasticrank_objectives import _threads

        _threads._WORTH_A_THREAD = 1
        print(run_case(chosen.case))
        return
    found = soak(chosen.minutes, chosen.seed)
    chosen.output.write_text(json.dumps(found, indent=1) + "\n")
    for name, count in found["cases per kind"].items():
        print(f"{count:6} {name}")
    for name, one in found["memory"].items():
        print(f"{one['MiB per 1,000 trainings']} MiB per 1,000 trainings, of {one['trainings']}: {name}")
    print(f"{found['cases']} cases, {found['trainings']['in all']} trainings in {found['minutes']} minutes, "
          f"{len(found['findings'])} findings")  # fmt: skip
    raise SystemExit(1 if found["findings"] else 0)


if __name__ == "__main__":
    main()
