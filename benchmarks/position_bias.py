"""`python -m benchmarks.position_bias [--quick]`: training on clicks, with and without correction, against true labels.

Clicks are simulated: rankers that like one of the features show each query many times; a document is looked at with a
probability that falls with its position, and clicked with one that grows with its label. Prints the table of
docs/position-bias.md and writes benchmarks/position_bias.json.
"""

from __future__ import annotations

import argparse
import json
import pathlib
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

import stochasticrank_objectives as sr
from stochasticrank_objectives.datasets import RankingData, make_ranking
from stochasticrank_objectives.experiments.training import BOOSTERS, Settings, train

RESULTS = pathlib.Path(__file__).with_name("position_bias.json")
LIKED = 0  # the feature that the rankers of the log like, whether it is relevant or not


class Log(NamedTuple):
    """One row per document that was shown: which one, where, and whether it was clicked."""

    items: NDArray[np.int64]  # rows of the data
    positions: NDArray[np.int64]
    clicks: NDArray[np.float64]


def simulate(data: RankingData, sessions: int, propensities: NDArray[np.float64], *, seed: int = 0) -> Log:
    """Every query, shown so many times, by rankers that differ somewhat."""
    rng = np.random.default_rng(seed)
    rankers = data.features[:, LIKED] * 1.5 + data.labels * 0.3
    shown, positions = [], []
    starts = np.cumsum(data.groups) - data.groups
    for start, size in zip(starts, data.groups, strict=True):
        rows = np.arange(start, start + size)
        for _ in range(sessions):
            order = rows[np.argsort(-(rankers[rows] + rng.normal(size=size)))][: len(propensities)]
            shown.append(order)
            positions.append(np.arange(1, len(order) + 1))
    items, places = np.concatenate(shown), np.concatenate(positions)
    relevance = 0.1 + 0.9 * data.labels[items] / 4
    clicks = rng.random(len(items)) < propensities[places - 1] * relevance
    return Log(items, places, clicks.astype(np.float64))


def labels(log: Log, rows: int, propensities: NDArray[np.float64] | None, clip: float | None = 10.0) -> NDArray[np.float64]:
    """Labels per row of the data: clicks per time shown, corrected if propensities are given."""
    clicks = log.clicks if propensities is None else sr.debias(log.clicks, log.positions, propensities, clip=clip)
    shown = np.bincount(log.items, minlength=rows)
    return np.bincount(log.items, clicks, rows) / np.maximum(shown, 1)


def trained(booster: str, learn: RankingData, test: RankingData, metric: str, rounds: int, seed: int = 0) -> float:
    """The metric on the true labels of the test data after training with the recommended loss."""
    loss = sr.recommended(metric, booster=booster)
    more = {"min_data_in_leaf": 20} if booster == "lightgbm" else {}
    settings = Settings(rounds=rounds, depth=4, l2=1.0, threads=1, seed=seed, more=more)
    model = train(booster, loss, learn, test, metric=metric, settings=settings)
    return model.curve[-1]


def compare(
    queries: int, sessions: int, rounds: int, seed: int, boosters: tuple[str, ...] = BOOSTERS
) -> dict[str, dict[str, float]]:
    """NDCG@10 on true labels, per booster and per kind of label."""
    learn, test = (make_ranking(queries, documents=(6, 15), features=12, seed=2 * seed + part) for part in (0, 1))
    true = 1.0 / np.arange(1, 16)
    log = simulate(learn, sessions, true, seed=seed)
    estimated = sr.estimate_propensities(log.positions, log.clicks, items=log.items)
    rows = len(learn.labels)
    kinds = {
        "clicks as they are": labels(log, rows, None),
        "corrected, propensities estimated": labels(log, rows, estimated),
        "corrected, propensities known": labels(log, rows, true),
        "true labels": learn.labels,
    }
    return {
        booster: {
            kind: trained(booster, learn._replace(labels=one), test, "ndcg@10", rounds, seed) for kind, one in kinds.items()
        }
        for booster in boosters
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.position_bias", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small data, one seed; writes no results")
    quick = parser.parse_args().quick
    size = {"queries": 150, "sessions": 40, "rounds": 30} if quick else {"queries": 500, "sessions": 50, "rounds": 150}
    runs = [compare(**size, seed=seed) for seed in range(1 if quick else 5)]
    kinds = list(runs[0][BOOSTERS[0]])
    means = {booster: {kind: float(np.mean([run[booster][kind] for run in runs])) for kind in kinds} for booster in BOOSTERS}
    print("| trained on | " + " | ".join(BOOSTERS) + " |\n| --- |" + " --- |" * len(BOOSTERS))
    for kind in kinds:
        print(f"| {kind} | " + " | ".join(f"{means[booster][kind]:.3f}" for booster in BOOSTERS) + " |")
    if not quick:
        RESULTS.write_text(json.dumps({"size": size, "runs": runs, "means": means}, indent=1) + "\n")


if __name__ == "__main__":
    main()
