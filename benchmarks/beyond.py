"""`python -m benchmarks.beyond [section ...] [--quick]`: what docs/beyond-ranked-lists.md says in figures.

speed        one list of 1,000,000 rows beside one of 250,000, per metric
selecting    DCG-RR: trained on itself, and ranking or regression with the threshold that suits the validation data best
whole        AUC, average precision, accuracy and F1 of all rows as one list, beside log-loss
returns      Spearman's and Kendall's coefficients per query, beside squared errors and YetiLoss; little signal
skewed       the same on labels with much signal that differ by orders of magnitude

Models are LightGBM's. The number of trees, of those in ROUNDS, is chosen on validation data for each metric. Writes
benchmarks/beyond.json.
"""

from __future__ import annotations

import argparse
import functools
import json
import pathlib
from collections.abc import Callable
from typing import Any, NamedTuple

import lightgbm as lgb
import numpy as np
from numpy.typing import NDArray

import stochasticrank_objectives as sr
from stochasticrank_objectives.adapters import LightGBMObjective

from .harness import best_of, machine, table

RESULTS = pathlib.Path(__file__).with_name("beyond.json")
ROUNDS = (25, 50, 100, 200, 400)
SETTINGS = {"verbosity": -1, "num_threads": 1, "learning_rate": 0.05, "num_leaves": 15}
BOUNDED = {"sfa": False, "hessian_constant": 0.0}
Array = NDArray[np.float64]


class Data(NamedTuple):
    """Rows in groups."""

    x: Array
    y: Array
    groups: NDArray[np.int64]

    def value(self, metric: str, scores: Array) -> float:
        return sr.evaluate(metric, scores, self.y, self.groups, ties="mean")


def curves(loss: Any, learn: Data, *others: Data, **changed: Any) -> list[dict[int, Array]]:
    """The raw scores of other data after each number of trees in ROUNDS."""
    objective = loss if isinstance(loss, str) else LightGBMObjective(loss)
    rows = lgb.Dataset(learn.x, learn.y, group=learn.groups)
    model = lgb.train({**SETTINGS, **changed, "objective": objective}, rows, max(ROUNDS))
    return [{rounds: model.predict(data.x, raw_score=True, num_iteration=rounds) for rounds in ROUNDS} for data in others]


def chosen(metric: str, found: list[dict[int, Array]], valid: Data, test: Data, thresholds: int = 0) -> float:
    """The metric of the test data, the number of trees (and a threshold, if wanted) chosen on the validation data."""
    best = (-np.inf, 0, 0.0)
    for rounds in ROUNDS:
        scores = found[0][rounds]
        for threshold in np.quantile(scores, np.linspace(0, 0.99, thresholds)) if thresholds else [0.0]:
            best = max(best, (valid.value(metric, scores - threshold), rounds, float(threshold)))
    return test.value(metric, found[1][best[1]] - best[2])


def means(title: str, runs: list[dict[str, dict[str, float]]]) -> dict[str, Any]:
    """Print and return the mean per method and metric, and the standard error of its difference to the first method."""
    methods, metrics = list(runs[0]), list(next(iter(runs[0].values())))
    result: dict[str, Any] = {}
    for method in methods:
        result[method] = {}
        for metric in metrics:
            values = np.array([run[method][metric] for run in runs])
            change = values - [run[methods[0]][metric] for run in runs]
            error = float(change.std(ddof=1) / len(runs) ** 0.5) if len(runs) > 1 else 0.0
            result[method][metric] = {"mean": float(values.mean()), "error": error}
    cells = [[m, *(f"{result[m][k]['mean']:.4f} ± {result[m][k]['error']:.4f}" for k in metrics)] for m in methods]
    table(title, ["trained on", *metrics], cells)
    return result


def speed(quick: bool) -> dict[str, Any]:
    sizes = (25_000, 100_000) if quick else (250_000, 1_000_000)
    rng, result, rows = np.random.default_rng(0), {}, []
    for name in ("auc", "map", "precision@1000", "fbeta", "accuracy", "dcgrr", "spearman", "kendall"):
        work = {}
        for n in sizes:
            labels = rng.normal(size=n) if name in ("spearman", "kendall") else (rng.random(n) < 0.3).astype(float)
            bound = sr.StochasticRank(name, mu=0.0, threads=1).bind(labels, [n])
            work[str(n)] = functools.partial(bound.gradient, rng.normal(size=n))
        times = best_of(work, 3)
        small, large = (1e3 * times[str(n)] for n in sizes)
        result[name] = {"ms": [small, large], "ratio": large / small}
        rows.append([name, small, large, large / small])
    table("One list, one thread", ["metric", *(f"{n:,} rows, ms" for n in sizes), "ratio"], rows)
    return result


def shown_lists(queries: int, seed: int, size: int = 20) -> Data:
    """Lists in a given order that has nothing to do with relevance; the place in the list is a feature."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(queries * size, 8))
    x[:, 6], x[:, 7] = np.tile(np.arange(size), queries), np.repeat(rng.normal(size=queries), size)
    quality = x[:, 0] * x[:, 1] + x[:, 2] + 0.5 * x[:, 7] + 0.7 * rng.normal(size=len(x))
    return Data(x, np.digitize(quality, [0.5, 1.5, 2.5]).astype(float), np.full(queries, size))


def selecting(quick: bool) -> dict[str, Any]:
    methods = {
        "ranking (recommended for ndcg@10)": (sr.recommended("ndcg@10", booster="lightgbm"), 40),
        "regression": ("regression", 40),
        "dcgrr, hessian_constant=0": (sr.StochasticRank("dcgrr", **BOUNDED), 0),
        "dcgrr, hessian of one, sfa": (sr.StochasticRank("dcgrr"), 0),
    }
    runs = []
    for seed in range(1 if quick else 3):
        learn, valid, test = shown_lists(1000, seed), shown_lists(500, 100 + seed), shown_lists(2000, 200 + seed)
        run = {"all shown": {"dcgrr": test.value("dcgrr", np.ones(len(test.y)))}}
        for name, (loss, thresholds) in methods.items():
            found = curves(loss, learn, valid, test, learning_rate=0.1)
            run[name] = {"dcgrr": chosen("dcgrr", found, valid, test, thresholds)}
        runs.append(run)
    return means("Selecting from lists in a given order", runs)


def _binary_data(name: str) -> tuple[Array, Array]:
    from sklearn import datasets

    if name == "breast cancer":
        x, y = datasets.load_breast_cancer(return_X_y=True)
    elif name == "digits, 8 or not":
        x, y = datasets.load_digits(return_X_y=True)
        y = y == 8
    else:
        x, y = datasets.make_classification(
            4000, 20, n_informative=8, weights=[0.9], flip_y=0.1, class_sep=0.7, random_state=0
        )  # fmt: skip
    return x, np.asarray(y, float)


def whole(quick: bool) -> dict[str, Any]:
    from sklearn.model_selection import RepeatedStratifiedKFold, train_test_split

    methods: dict[str, Any] = {"log-loss": "binary"}
    methods |= {name: sr.StochasticRank(name, **BOUNDED) for name in ("auc", "map", "accuracy", "fbeta")}
    methods["YetiLoss of auc"] = sr.YetiLoss("auc", neighbours=20, permutations=3, max_step=2.0)
    result = {}
    for name in ("breast cancer",) if quick else ("breast cancer", "digits, 8 or not", "generated, noisy"):
        x, y = _binary_data(name)
        runs = []
        folds = RepeatedStratifiedKFold(n_splits=4, n_repeats=2 if name == "breast cancer" else 1, random_state=0)
        for inside, outside in list(folds.split(x, y))[: 1 if quick else None]:
            rows, stop = train_test_split(inside, test_size=0.25, random_state=1, stratify=y[inside])
            learn, valid, test = (Data(x[part], y[part], np.array([len(part)])) for part in (rows, stop, outside))
            run: dict[str, dict[str, float]] = {}
            for method, loss in methods.items():
                found = curves(loss, learn, valid, test, num_leaves=7, min_data_in_leaf=10)
                run[method] = {m: chosen(m, found, valid, test) for m in ("auc", "map", "accuracy", "fbeta")}
                if loss == "binary":  # for F1, half is not the best of all probabilities to cut at
                    tuned = {m: chosen(m, found, valid, test, 40) for m in ("accuracy", "fbeta")}
                    run["log-loss, threshold chosen"] = {**run[method], **tuned}
            runs.append(run)
        result[name] = means(f"All rows as one list: {name}", runs)
    return result


def returns(seed: int) -> Data:
    """Returns of assets per date: little signal, heavy tails, a move common to each date; labels of both signs."""
    rng = np.random.default_rng(seed)
    dates, size = 150, 60
    x = rng.normal(size=(dates * size, 10))
    y = 0.15 * np.tanh(x[:, 0]) + 0.1 * x[:, 1] * x[:, 2] + 0.1 * np.abs(x[:, 3]) + rng.standard_t(3, size=len(x))
    return Data(x, y + np.repeat(rng.normal(size=dates), size), np.full(dates, size))


def skewed(seed: int) -> Data:
    """Much signal in positive labels that differ by orders of magnitude."""
    rng = np.random.default_rng(seed)
    queries, size = 300, 30
    x = rng.normal(size=(queries * size, 10))
    y = x[:, 0] * x[:, 1] + x[:, 2] + 0.5 * np.abs(x[:, 3]) + 0.7 * rng.normal(size=len(x))
    return Data(x, np.exp(y + np.repeat(rng.normal(size=queries), size)), np.full(queries, size))


def correlation(make: Callable[[int], Data], quick: bool) -> dict[str, Any]:
    methods: dict[str, Any] = {
        "QueryRMSE": sr.QueryRMSE(),
        "QueryRMSE of ranks": sr.QueryRMSE(ranks=True),
        "spearman": sr.StochasticRank("spearman", **BOUNDED),
        "spearman, hessian of one, sfa": sr.StochasticRank("spearman"),
        "kendall": sr.StochasticRank("kendall", **BOUNDED),
        "YetiLoss of spearman, 20 neighbours": sr.YetiLoss("spearman", neighbours=20, permutations=3, max_step=2.0),
        "YetiLoss of spearman, all pairs": sr.YetiLoss("spearman", neighbours=1000, permutations=1, max_step=2.0),
    }
    runs = []
    for seed in range(1 if quick else 3):
        learn, valid, test = make(seed), make(100 + seed), make(200 + seed)
        run: dict[str, dict[str, float]] = {}
        for method, loss in methods.items():
            found = curves(loss, learn, valid, test)
            run[method] = {metric: chosen(metric, found, valid, test) for metric in ("spearman", "kendall")}
        runs.append(run)
    return means(f"Correlation: {make.__name__}", runs)


SECTIONS: dict[str, Callable[[bool], dict[str, Any]]] = {
    "speed": speed,
    "selecting": selecting,
    "whole": whole,
    "returns": functools.partial(correlation, returns),
    "skewed": functools.partial(correlation, skewed),
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.beyond", description=__doc__)
    parser.add_argument("sections", nargs="*", choices=[*SECTIONS, []], help="all by default")
    parser.add_argument("--quick", action="store_true", help="small data, one seed; writes no results")
    arguments = parser.parse_args()
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for section in arguments.sections or SECTIONS:
        results[section] = SECTIONS[section](arguments.quick)
        if not arguments.quick:
            RESULTS.write_text(json.dumps({**results, "machine": machine()}, indent=1) + "\n")


if __name__ == "__main__":
    main()
