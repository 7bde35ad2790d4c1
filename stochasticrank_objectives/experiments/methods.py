"""The methods of the paper's tables: how each one's loss is made, and what is tuned, from the paper's appendix."""

from __future__ import annotations

import dataclasses
import importlib.metadata
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from stochasticrank_objectives.baselines import LambdaLoss, LambdaMART, reinforce, soft_rank
from stochasticrank_objectives.listwise import XENDCG, QueryRMSE
from stochasticrank_objectives.losses import Loss, StochasticRank
from stochasticrank_objectives.metrics import DCG, ERR, MRR, NDCG, Metric, PFound
from stochasticrank_objectives.recommended import recommended
from stochasticrank_objectives.sglb import SGLB
from stochasticrank_objectives.yeti import YetiRank

Params = dict[str, Any]


class Range(NamedTuple):
    """Where a setting is drawn from: uniformly, or so that its logarithm is uniform; whole numbers if both ends are."""

    low: float
    high: float
    log: bool = False


SPACE = {
    "learning_rate": Range(1e-3, 1.0, log=True),
    "l2": Range(0.1, 10.0, log=True),
    "noise": Range(0.0, 1.0),
    "model_shrink_rate": Range(1e-5, 1e-2, log=True),
    "diffusion_temperature": Range(1e8, 1e11, log=True),
    "mu": Range(1e-2, 10.0, log=True),
}
DEPTHS = (6, 10)

# ------------------------------------------------------------ methods


@dataclasses.dataclass(frozen=True)
class Method:
    """A row of a table: how its loss is made, and what is tuned beside learning rate and depth."""

    title: str
    make: Callable[[Metric, Params, int], Loss]
    tuned: tuple[str, ...]
    ours: bool = False

    @property
    def ndcg_only(self) -> bool:
        return "lambda-Loss" in self.title


def make_lambda_mart(metric: Metric, params: Params, seed: int) -> Loss:
    """With the normalisation by query that the boosters' own have by default, and without which it is clearly weaker."""
    return LambdaMART(metric, norm=len(metric.parts()) == 1, noise=params.get("noise", 0.0), seed=seed)


def make_lambda_loss(metric: Metric, params: Params, seed: int) -> Loss:
    return LambdaLoss(metric, norm=True, noise=params.get("noise", 0.0), seed=seed)


def make_soft_rank(metric: Metric, params: Params, seed: int) -> Loss:
    return soft_rank(metric, seed=seed)


def make_reinforce(metric: Metric, params: Params, seed: int) -> Loss:
    return reinforce(metric, seed=seed)


def make_with_sfa(metric: Metric, params: Params, seed: int) -> Loss:
    return StochasticRank(metric, mu=0.0, seed=seed)


def make_with_sglb(metric: Metric, params: Params, seed: int) -> Loss:
    return SGLB(
        StochasticRank(metric, mu=params.get("mu", 0.0), seed=seed), learning_rate=params["learning_rate"],
        diffusion_temperature=params["diffusion_temperature"], model_shrink_rate=params["model_shrink_rate"], seed=seed,
    )  # fmt: skip


def make_absolute(metric: Metric, params: Params, seed: int) -> Loss:
    return StochasticRank(metric, mu=params["mu"], sfa=False, hessian_constant=0.0, seed=seed)


def make_yeti_rank(metric: Metric, params: Params, seed: int) -> Loss:
    return YetiRank(seed=seed)


def make_xendcg(metric: Metric, params: Params, seed: int) -> Loss:
    return XENDCG(seed=seed)


def make_query_rmse(metric: Metric, params: Params, seed: int) -> Loss:
    return QueryRMSE()


def make_recommended(metric: Metric, params: Params, seed: int) -> Loss:
    """What a metric's name stands for on LightGBM. On XGBoost it has other units, but the regularisation is tuned."""
    loss = recommended(metric, booster="lightgbm")
    return loss if isinstance(loss, QueryRMSE) else dataclasses.replace(loss, seed=seed)  # squared errors have no noise


_LANGEVIN = ("model_shrink_rate", "diffusion_temperature")

METHODS = {
    "lambdamart": Method("lambda-MART", make_lambda_mart, ("l2",)),
    "lambdaloss": Method("lambda-Loss", make_lambda_loss, ("l2",)),
    "e-lambdamart": Method("E-lambda-MART", make_lambda_mart, ("l2", "noise")),
    "e-lambdaloss": Method("E-lambda-Loss", make_lambda_loss, ("l2", "noise")),
    "softrank": Method("SoftRank", make_soft_rank, ("l2",)),
    "yetirank": Method("YetiRank", make_yeti_rank, ("l2",)),
    "xendcg": Method("XE-NDCG", make_xendcg, ("l2",)),
    "queryrmse": Method("QueryRMSE", make_query_rmse, ("l2",)),
    "sr-r1-soft": Method("SR-R1-soft", make_with_sglb, _LANGEVIN, ours=True),
    "sr-r1": Method("SR-R1", make_with_sglb, (*_LANGEVIN, "mu"), ours=True),
    "sr-absolute": Method("SR-absolute", make_absolute, ("l2", "mu"), ours=True),
    "recommended": Method("recommended", make_recommended, ("l2",), ours=True),
    "reinforce": Method("REINFORCE", make_reinforce, (), ours=True),
    "ccs": Method("CCS", make_soft_rank, (), ours=True),
    "ccs+sfa": Method("CCS+SFA", make_with_sfa, (), ours=True),
}
"""The rows of the paper's tables 2 and 3, and a few more: YetiRank, XE-NDCG and QueryRMSE, StochasticRank with steps by the
absolute gradient, and what the adapters take for a metric's name. The keys are the names on the command line. What is not
`ours` is a baseline."""

ITS_OWN = "own"  # stands for the booster's own objectives
COMPARED = (
    "lambdamart",
    "lambdaloss",
    "e-lambdamart",
    "e-lambdaloss",
    "softrank",
    "yetirank",
    "xendcg",
    "queryrmse",
    ITS_OWN,
    "sr-r1-soft",
    "sr-r1",
    "sr-absolute",
    "recommended",
)
ABLATED = ("reinforce", "ccs", "ccs+sfa", "sr-r1-soft", "sr-r1")
ABLATED_TITLES = {"sr-r1-soft": "CCS+SFA+SGLB (SR-R1-soft)", "sr-r1": "CCS+SFA+SGLB+mu (SR-R1)"}


def own_objectives(booster: str, metric: Metric) -> list[str]:
    """The booster's own ranking objectives, aimed at this metric where they can be."""
    if booster == "xgboost":
        return ["rank:ndcg"]
    if booster == "lightgbm":
        return ["lambdarank", "rank_xendcg"]
    top = "" if metric.k is None else f";top={metric.k}"
    if isinstance(metric, DCG) and isinstance(metric.gain, str):
        gain = "Exp" if metric.gain == "exp" else "Base"
        return ["YetiRank", f"StochasticRank:metric={'NDCG' if isinstance(metric, NDCG) else 'DCG'}{top};type={gain}"]
    if isinstance(metric, MRR):
        return ["YetiRank", "StochasticRank:metric=MRR"]  # with top= CatBoost 1.2.10 aborts
    if isinstance(metric, (ERR, PFound)):
        return ["YetiRank", f"StochasticRank:metric={type(metric).__name__}{top}"]
    return ["YetiRank"]


def title(method: str) -> str:
    """What a table calls a method; a booster's own objective by its own name."""
    return METHODS[method].title if method in METHODS else method


def check_names(kind: str, given: Sequence[str], known: Sequence[str]) -> list[str]:
    """Each name once and known, or a ValueError."""
    for name in given:
        if name not in known:
            raise ValueError(f"unknown {kind} {name!r}; known are {', '.join(known)}")
    if not given:
        raise ValueError(f"no {kind} is given; known are {', '.join(known)}")
    return list(dict.fromkeys(given))


def check_installed(booster: str) -> None:
    try:
        importlib.metadata.version(booster)
    except importlib.metadata.PackageNotFoundError:
        install = f'pip install "stochasticrank-objectives[{booster}]"'
        raise ImportError(f"{booster} is not installed: {install}; or leave it out with --booster") from None
