"""The main job on generated data: each booster trained for a metric as we recommend, beside its own ranking objective."""

from __future__ import annotations

from typing import Any

from stochasticrank_objectives.datasets import RankingData, make_ranking
from stochasticrank_objectives.evaluation import evaluate
from stochasticrank_objectives.losses import Loss
from stochasticrank_objectives.metrics import parse_metric
from stochasticrank_objectives.recommended import BOOSTERS, recommended

from .methods import own_objectives

METRIC = "ndcg@10"
RIVALS = {booster: own_objectives(booster, parse_metric(METRIC))[0] for booster in BOOSTERS}


def run(picture: str = "demo.png", *, queries: int = 400, rounds: int = 600) -> list[dict[str, Any]]:
    """Train, print a table, save the learning curves as a picture; returns the rows of the table.

    On data like these nothing of the recommended loss was chosen. Both sides have the same settings, and the number of trees
    is chosen on validation queries for both.
    """
    from tqdm import tqdm

    from .training import Settings, train

    learn, valid, test = (make_ranking(count, seed=seed) for seed, count in ((1, queries), (2, queries), (3, 4 * queries)))
    jobs: list[tuple[str, str | Loss]] = []
    for booster, own in RIVALS.items():
        jobs += [(booster, own), (booster, recommended(METRIC, booster=booster))]
    recommended(METRIC, booster=BOOSTERS[0]).bind(test.labels, test.groups)  # compiles: that is not to be timed
    results = []
    with tqdm(total=rounds * len(jobs), unit="tree", smoothing=0.05) as bar:
        for booster, objective in jobs:
            bar.set_description(f"{booster} {_short(objective)}")
            trained = train(
                booster, objective, learn, valid, metric=METRIC,
                settings=Settings(rounds=rounds, learning_rate=0.1, depth=6, l2=1.0), progress=lambda _: bar.update(),
            )  # fmt: skip
            score = evaluate(METRIC, trained.predict(test.features), test.labels, test.groups)
            row = {"booster": booster, "objective": str(objective), "short": _short(objective)}
            results.append({**row, METRIC: score, "trained": trained})
    print(_table(results, test))
    _draw(results, picture)
    print(f"learning curves, over trees and over seconds: {picture}")
    return results


def _short(objective: str | Loss) -> str:
    return objective if isinstance(objective, str) else type(objective).__name__


def _table(results: list[dict[str, Any]], test: RankingData) -> str:
    wide = max(len(row["objective"]) for row in results)
    lines = [
        f"{METRIC} on {len(test.groups)} test queries, ties in the worst order; trees chosen on validation queries",
        f"{'booster':10} {'objective':{wide}} {METRIC:>8} {'trees':>6} {'seconds':>8}",
    ]
    for row in results:
        trained = row["trained"]
        lines.append(
            f"{row['booster']:10} {row['objective']:{wide}} {row[METRIC]:8.4f} "
            f"{trained.best_rounds:6d} {trained.seconds:8.1f}"
        )
    return "\n".join(lines)


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
                trained = row["trained"]
                for axis, at in zip(axes[:, column], (range(1, len(trained.curve) + 1), trained.clock), strict=True):
                    axis.plot(at, trained.curve, color=color, label=row["short"])
        axes[0, column].set_title(booster)
        for axis, label in zip(axes[:, column], ("trees", "seconds"), strict=True):
            axis.set_xlabel(label)
            axis.grid(alpha=0.3)
        axes[0, column].legend(loc="lower right")
    for axis in axes[:, 0]:
        axis.set_ylabel(f"validation {METRIC}")
    figure.savefig(picture, dpi=120)
