"""Gradient-boosted rankers trained on the metric that is reported: StochasticRank for XGBoost, LightGBM and CatBoost."""

from . import testing as testing
from .baselines import LambdaLoss, LambdaMART, reinforce, soft_rank
from .diversity import ERRIA, AlphaNDCG
from .evaluation import Evaluation, bind_evaluation, evaluate
from .functions import FunctionMetric, metric
from .listwise import XENDCG, QueryRMSE
from .losses import StochasticRank
from .metrics import (
    DCG,
    ERR,
    MAP,
    MRR,
    NDCG,
    RBP,
    BinaryDCG,
    Hit,
    Labelled,
    Metric,
    PFound,
    PositionMetric,
    Precision,
    Recall,
    Sum,
    parse_metric,
)
from .propensity import debias, estimate_propensities
from .ranks import AUC, Kendall, Spearman
from .recommended import recommended
from .selecting import DCGRR, Accuracy, FBeta
from .sglb import SGLB
from .yeti import YetiLoss, YetiRank

__version__ = "0.1.0"

__all__ = [
    "AUC",
    "DCG",
    "DCGRR",
    "ERR",
    "ERRIA",
    "MAP",
    "MRR",
    "NDCG",
    "RBP",
    "SGLB",
    "XENDCG",
    "Accuracy",
    "AlphaNDCG",
    "BinaryDCG",
    "Evaluation",
    "FBeta",
    "FunctionMetric",
    "Hit",
    "Kendall",
    "Labelled",
    "LambdaLoss",
    "LambdaMART",
    "Metric",
    "PFound",
    "PositionMetric",
    "Precision",
    "QueryRMSE",
    "Recall",
    "Spearman",
    "StochasticRank",
    "Sum",
    "YetiLoss",
    "YetiRank",
    "bind_evaluation",
    "debias",
    "estimate_propensities",
    "evaluate",
    "metric",
    "parse_metric",
    "recommended",
    "reinforce",
    "soft_rank",
]
