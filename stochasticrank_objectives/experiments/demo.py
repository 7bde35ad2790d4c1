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


def run(picture: str = "demo.png", *, queries: int = 400, rounds: int = 150) -> list[dict[str, Any]]:
    """Train, print a table, save the learning curves as a picture; returns the rows of the table."""
    from tqdm import tqdm

    from .training import Settings, train

    learn, valid, test = (make_ranking(queries, seed=seed) for seed in (1, 2, 3))
    jobs: list[tuple[str, str | Loss]] = []
    for booster, own in RIVALS.items():
        jobs += [(booster, own), (booster, recommended(METRIC, booster=booster))]
    results = []
    with tqdm(total=rounds * len(jobs), unit="tree", smoothing=0.05) as bar:
        for booster, objective in jobs:
            bar.set_description(f"{booster} {_short(objective)}")
            trained = train(
                booster, objective, learn, valid, metric=METRIC,
                settings=Settings(rounds=rounds, learning_rate=0.3, depth=4, l2=1.0), progress=lambda _: bar.update(),
            )  # fmt: skip
            score = evaluate(METRIC, trained.predict(test.features), test.labels, test.groups)
            row = {"booster": booster, "objective": str(objective), "short": _short(objective)}
            results.append({**row, METRIC: score, "trained": trained})
    print(_table(results, test))
    _draw(results, picture)
    print(f"learning curves: {picture}")
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

    figure = Figure(figsize=(12, 3.6), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(1, len(RIVALS), sharey=True)
    for axis, booster in zip(axes, RIVALS, strict=True):
        for row in results:
            if row["booster"] == booster:
                ours = row["objective"] != RIVALS[booster]
                axis.plot(
                    range(1, len(row["trained"].curve) + 1), row["trained"].curve,
                    color="tab:blue" if ours else "tab:gray", label=row["short"],
                )  # fmt: skip
        axis.set_title(booster)
        axis.set_xlabel("trees")
        axis.grid(alpha=0.3)
        axis.legend(loc="lower right")
    axes[0].set_ylabel(f"validation {METRIC}")
    figure.savefig(picture, dpi=120)
