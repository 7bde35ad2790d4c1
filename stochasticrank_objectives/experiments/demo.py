"""The main job on generated data: each booster trained for a metric as we recommend, beside its own ranking objective."""

from __future__ import annotations

from typing import Any

import numpy as np

from stochasticrank_objectives.datasets import make_ranking
from stochasticrank_objectives.evaluation import evaluate
from stochasticrank_objectives.losses import Loss
from stochasticrank_objectives.metrics import parse_metric
from stochasticrank_objectives.recommended import BOOSTERS, recommended

from .methods import own_objectives

METRIC = "ndcg@10"
RIVALS = {booster: own_objectives(booster, parse_metric(METRIC))[0] for booster in BOOSTERS}


def run(picture: str = "demo.png", *, queries: int = 400, rounds: int = 1000, tasks: int = 3) -> list[dict[str, Any]]:
    """Train, print a table, save the learning curves as a picture; returns the rows of the table.

    Each task has another relevance function; nothing of the recommended loss was chosen on these tasks. Both sides have the
    same settings, and for both the number of trees is chosen on validation queries.
    """
    from tqdm import tqdm

    from .training import Settings, train

    data = [
        [make_ranking(count, seed=seed, model_seed=task) for seed, count in ((1, queries), (2, queries), (3, 4 * queries))]
        for task in range(tasks)
    ]
    jobs: list[tuple[str, str | Loss]] = []
    for booster, own in RIVALS.items():
        jobs += [(booster, own), (booster, recommended(METRIC, booster=booster))]
    recommended(METRIC, booster=BOOSTERS[0]).bind(data[0][2].labels, data[0][2].groups)  # compiles: that is not to be timed
    results = []
    with tqdm(total=rounds * len(jobs) * tasks, unit="tree", smoothing=0.05) as bar:
        for booster, objective in jobs:
            bar.set_description(f"{booster} {_short(objective)}")
            row: dict[str, Any] = {"booster": booster, "objective": str(objective), "short": _short(objective)}
            row |= {"trained": [], "per_query": []}
            for task, (learn, valid, test) in enumerate(data):
                settings = Settings(rounds=rounds, learning_rate=0.1, depth=6, seed=task)
                trained = train(
                    booster, objective, learn, valid, metric=METRIC, settings=settings, progress=lambda _: bar.update()
                )
                values = evaluate(METRIC, trained.predict(test.features), test.labels, test.groups, per_query=True)
                row["trained"].append(trained)
                row["per_query"].append(values)
            results.append({**row, METRIC: float(np.mean(row["per_query"]))})
    print(_table(results))
    _draw(results, picture)
    print(f"learning curves, over trees and over seconds: {picture}")
    return results


def _short(objective: str | Loss) -> str:
    return objective if isinstance(objective, str) else type(objective).__name__


def _table(results: list[dict[str, Any]]) -> str:
    wide = max(len(row["objective"]) for row in results)
    tasks, queries = np.shape(results[0]["per_query"])
    lines = [
        f"{METRIC} on {queries} test queries of each of {tasks} tasks, ties in the worst order;",
        "trees chosen on validation queries; differences are paired by query, with the error of their mean",
        f"{'booster':10} {'objective':{wide}} {METRIC:>8} {'difference':>17} {'trees':>6} {'seconds':>8}",
    ]
    for row in results:
        trees, seconds = (np.mean([getattr(one, what) for one in row["trained"]]) for what in ("best_rounds", "seconds"))
        lines.append(
            f"{row['booster']:10} {row['objective']:{wide}} {row[METRIC]:8.4f} {_difference(row, results):>17} "
            f"{trees:6.0f} {seconds:8.1f}"
        )
    return "\n".join(lines)


def _difference(row: dict[str, Any], results: list[dict[str, Any]]) -> str:
    """Of ours to the booster's own."""
    own = next(other for other in results if other["booster"] == row["booster"])
    if row is own:
        return ""
    differences = np.subtract(row["per_query"], own["per_query"])
    error = np.sqrt(differences.var(axis=1, ddof=1).sum() / differences.shape[1]) / len(differences)
    return f"{differences.mean():+.4f} ± {error:.4f}"


def _draw(results: list[dict[str, Any]], picture: str) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 6.4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(2, len(RIVALS), sharey=True)
    for column, booster in enumerate(RIVALS):
        for row in results:
            if row["booster"] == booster:
                color = "tab:gray" if row["objective"] == RIVALS[booster] else "tab:blue"
                curve, clock = (
                    np.mean([getattr(one, what) for one in row["trained"]], axis=0) for what in ("curve", "clock")
                )
                for axis, at in zip(axes[:, column], (np.arange(1, len(curve) + 1), clock), strict=True):
                    axis.plot(at, curve, color=color, label=row["short"])
        axes[0, column].set_title(booster)
        for axis, label in zip(axes[:, column], ("trees", "seconds"), strict=True):
            axis.set_xlabel(label)
            axis.grid(alpha=0.3)
        axes[0, column].legend(loc="lower right")
    for axis in axes[:, 0]:
        axis.set_ylabel(f"validation {METRIC}, mean of the tasks")
    figure.savefig(picture, dpi=120)
