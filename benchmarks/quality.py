"""`python -m benchmarks.quality FOLDER`: each adapter beside its booster's own ranking objectives, under one protocol.

FOLDER is anything that `letor.load_folds` reads, such as LETOR's MQ2008. The protocol is the same for all: learning rate
0.1, depth 6, everything else as each booster has it by default, at most 500 trees, stop after 100 without a better
validation NDCG@5, test NDCG@5 (ties in the worst order) with the best number of trees; every fold, several seeds. Nothing is
tuned. The last columns are the difference to the booster's own better objective, its mean and standard error over folds.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import pathlib
from typing import Any

import numpy as np

import stochasticrank_objectives as sr
from stochasticrank_objectives.experiments.letor import load_folds
from stochasticrank_objectives.experiments.training import Settings, train

from .harness import machine, table

METRIC = "ndcg@5"
RESULTS = pathlib.Path(__file__).with_name("quality.json")
OWN = {
    "xgboost": ["rank:ndcg", "rank:pairwise"],
    "lightgbm": ["lambdarank", "rank_xendcg"],
    "catboost": ["YetiRank", "StochasticRank:metric=NDCG;top=5;type=Exp"],
}
OURS: dict[str, dict[str, Any]] = {
    'hessian="one", sfa=True': {},
    'hessian="one", sfa=True, 4 samples': {"samples": 4},
    'hessian="absolute", sfa=False': {"hessian": "absolute", "sfa": False},
    'hessian="absolute", sfa=False, 4 samples': {"hessian": "absolute", "sfa": False, "samples": 4},
    "hessian=0.25, sfa=False": {"hessian": 0.25, "sfa": False},
    "hessian=0.25, sfa=False, 4 samples": {"hessian": 0.25, "sfa": False, "samples": 4},
}


def _run(job: tuple[str, int, str, str, int]) -> float:
    folder, fold, booster, name, seed = job
    data = load_folds(folder, progress=False)[fold]
    objective: Any = sr.StochasticRank(METRIC, seed=seed, threads=1, **OURS[name]) if name in OURS else name
    settings = Settings(rounds=500, patience=100, learning_rate=0.1, depth=6, seed=seed, threads=1)
    assert data.valid is not None
    trained = train(booster, objective, data.train, data.valid, metric=METRIC, settings=settings)
    return sr.evaluate(METRIC, trained.predict(data.test.features), data.test.labels, data.test.groups)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quality", description=__doc__)
    parser.add_argument("folder")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=2)
    arguments = parser.parse_args()
    folds = range(len(load_folds(arguments.folder, progress=False)))
    result: dict[str, Any] = {"machine": machine(), "folder": pathlib.Path(arguments.folder).name, "seeds": arguments.seeds}
    with concurrent.futures.ProcessPoolExecutor(arguments.jobs) as pool:
        for booster, own in OWN.items():
            scores = {}
            for name in [*own, *OURS]:
                jobs = [(arguments.folder, fold, booster, name, seed) for fold in folds for seed in range(arguments.seeds)]
                scores[name] = np.array(list(pool.map(_run, jobs))).reshape(len(folds), arguments.seeds).mean(axis=1)
            best = max(own, key=lambda name: scores[name].mean())
            rows = []
            for name, values in scores.items():
                change = values - scores[best]
                error = change.std(ddof=1) / np.sqrt(len(change)) if len(change) > 1 else float("nan")
                rows.append([name, f"{values.mean():.4f}", f"{change.mean():+.4f}", f"{error:.4f}"])
            table(
                f"{booster}: test {METRIC} on {result['folder']}",
                ["objective", METRIC, f"to {best}", "standard error"],
                rows,
            )
            result[booster] = {name: values.tolist() for name, values in scores.items()}
            RESULTS.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
