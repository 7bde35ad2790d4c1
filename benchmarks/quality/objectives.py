"""What is compared: the boosters' own ranking objectives, and losses of this package, each given as a short text.

"own:lambdarank" is an objective of the booster's own. "name:ndcg@10" is what a user gets who gives the adapter the name of a
metric. Anything else is a Python expression in which `sr` is the package and `rate` the learning rate, such as
"sr.StochasticRank('dcg@20:gain=linear', sfa=False, hessian_constant=0.0)".
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import stochasticrank_objectives as sr
from stochasticrank_objectives import adapters

BOOSTERS = ("xgboost", "lightgbm", "catboost")
METRICS = ("ndcg@5", "ndcg@10", "mrr", "map", "err@10", "precision@5")
STOPS_ON = "ndcg@10"
RATES = {"xgboost": (0.05, 0.15), "lightgbm": (0.05, 0.15), "catboost": (0.1, 0.3)}
OWN: dict[str, dict[str, dict[str, Any]]] = {
    "xgboost": {
        "own:rank:ndcg": {"objective": "rank:ndcg"},
        "own:rank:pairwise": {"objective": "rank:pairwise"},
        "own:rank:ndcg:ndcg_exp_gain=False": {"objective": "rank:ndcg", "ndcg_exp_gain": False},
    },
    "lightgbm": {
        "own:lambdarank": {"objective": "lambdarank"},
        "own:rank_xendcg": {"objective": "rank_xendcg"},
        "own:lambdarank:label_gain=linear": {"objective": "lambdarank", "label_gain": list(range(32))},
    },
    "catboost": {
        "own:YetiRank": {"loss_function": "YetiRank"},
        "own:QueryRMSE": {"loss_function": "QueryRMSE"},
        "own:StochasticRank:metric=NDCG;top=10;type=Exp": {"loss_function": "StochasticRank:metric=NDCG;top=10;type=Exp"},
    },
}
"""The word `own`: what a user finds first."""
VARIANTS: dict[str, dict[str, dict[str, Any]]] = {
    "xgboost": {
        f"own:{name}:lambdarank_score_normalization=False": {"objective": name, "lambdarank_score_normalization": False}
        for name in ("rank:ndcg", "rank:pairwise")
    },
    "lightgbm": {
        "own:lambdarank:lambdarank_norm=False": {"objective": "lambdarank", "lambdarank_norm": False},
        "own:lambdarank:lambdarank_norm=False,label_gain=linear": {
            "objective": "lambdarank", "lambdarank_norm": False, "label_gain": list(range(32)),
        },
    },
    "catboost": {},
}  # fmt: skip
"""The word `variants`: what a user finds who tries the options of these objectives."""
LINEAR = ("ndcg_exp_gain=False", "label_gain=linear")
"""How names of objectives end that differ from others only for labels above 1."""
RECOMMENDED = tuple(f"name:{metric}" for metric in METRICS)


class Objective(NamedTuple):
    """An objective as it is stored and trained: its name, and parameters of the booster or a loss."""

    name: str
    own: dict[str, Any] | None
    loss: Any


def reported(max_grade: int) -> dict[str, Any]:
    """The metrics that are reported, for labels up to `max_grade`."""
    return {name: sr.ERR(10, max_grade=max_grade) if name == "err@10" else sr.parse_metric(name) for name in METRICS}


def resolve(spec: str, booster: str, rate: float, max_grade: int) -> Objective:
    """What a text stands for. Losses are named as they print, so one that has two spellings is trained only once."""
    if spec.startswith("own:"):
        known = OWN[booster] | VARIANTS[booster]
        if spec not in known:
            raise ValueError(f"{spec} is not one of {booster}'s own objectives: {', '.join(known)}")
        return Objective(spec, known[spec], None)
    if spec.startswith("name:"):
        metric = spec.removeprefix("name:")
        loss = _of_metric(reported(max_grade).get(metric, metric), booster)
        if max_grade == 1 and isinstance(loss.metric, (sr.DCG, sr.BinaryDCG)):  # trains the same model, whatever the gain
            loss = dataclasses.replace(loss, metric=sr.DCG(loss.metric.k, gain="linear"))
        return Objective(str(loss), None, loss)
    loss = eval(spec, {"sr": sr, "rate": rate})
    return Objective(spec if " at 0x" in str(loss) else str(loss), None, loss)


def _of_metric(metric: Any, booster: str) -> Any:
    if booster == "xgboost":
        return adapters.XGBoostObjective(metric).loss
    if booster == "lightgbm":
        return adapters.LightGBMObjective(metric).loss
    return adapters.CatBoostObjective(metric).loss


def expand(specs: list[str], booster: str, max_grade: int) -> list[str]:
    """Texts with the words written out, without own objectives of other boosters and those that equal another one."""
    words = {"own": list(OWN[booster]), "variants": list(VARIANTS[booster]), "recommended": list(RECOMMENDED)}
    every = [one for spec in specs for one in words.get(spec, [spec])]
    known = [one for one in OWN[booster] | VARIANTS[booster] if max_grade > 1 or not one.endswith(LINEAR)]
    return [spec for spec in every if not spec.startswith("own:") or spec in known]


def opponents(booster: str, *, variants: bool) -> list[str]:
    """The names of the own objectives that a comparison is with."""
    return [*OWN[booster], *(VARIANTS[booster] if variants else ())]
