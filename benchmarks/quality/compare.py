"""Paired differences between objectives, pooled over data sets."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from scipy import stats

from . import datasets
from .cells import Array, Record
from .objectives import METRICS, opponents, resolve

Records = dict[str, Record]
ByReplicate = dict[int, Record]


class Difference(NamedTuple):
    """A mean of paired differences and its standard error."""

    mean: float
    error: float
    ours: float  # mean test values
    own: float
    name: str  # what it is compared with


class Pooled(NamedTuple):
    """Differences of several data sets together, in two ways, each with the one-sided p of "not better"."""

    sets: int
    weighted: float  # with weights of inverse variance, how data sets differ included
    weighted_error: float
    weighted_p: float
    equal: float  # each data set counts the same
    equal_half_width: float  # of the interval of 95 %, from how data sets differ
    equal_p: float


def test_value(record: Record, metric: str) -> float:
    """The mean over blocks."""
    return float(np.mean(record["metrics"][metric]["test"]))


def by_validation(records: Iterable[Record], metric: str) -> ByReplicate:
    """The record of each replicate that is best on validation data."""
    best: ByReplicate = {}
    for record in records:
        known = best.get(record["replicate"])
        if known is None or record["metrics"][metric]["valid"] > known["metrics"][metric]["valid"]:
            best[record["replicate"]] = record
    return best


def of(records: Records, booster: str, names: Iterable[str]) -> list[Record]:
    """The records of a booster and of objectives of these names."""
    names = set(names)
    return [record for record in records.values() if record["booster"] == booster and record["objective"] in names]


def names_of(spec: str, data: str, booster: str, metric: str, records: Records) -> set[str]:
    """The names under which an objective is stored; "recommended" is what the name of the metric stands for."""
    spec = f"name:{metric}" if spec == "recommended" else spec
    if spec.startswith("own:"):
        return {spec}
    rates = {record["rate"] for record in records.values() if record["booster"] == booster}
    return {resolve(spec, booster, rate, datasets.max_grade(data)).name for rate in rates}


def best_own(records: list[Record], metric: str, replicates: Iterable[int]) -> ByReplicate:
    """The single own objective with the best mean test value, its learning rate chosen by validation: a hard opponent."""
    wanted = set(replicates)
    if not wanted:
        return {}
    names = dict.fromkeys(record["objective"] for record in records)
    every = [by_validation([r for r in records if r["objective"] == name], metric) for name in names]
    whole = [{r: one[r] for r in wanted} for one in every if wanted <= set(one)]
    return max(whole, key=lambda one: np.mean([test_value(record, metric) for record in one.values()]), default={})


def paired(ours: ByReplicate, own: ByReplicate, metric: str) -> Difference | None:
    """Differences of blocks of queries, replicate by replicate; None if no replicate has both."""
    common = sorted(set(ours) & set(own))
    if not common:
        return None
    blocks = [np.array([one[r]["metrics"][metric]["test"] for one in (ours, own)]) for r in common]
    values = np.hstack(blocks)
    change = values[0] - values[1]
    error = float(change.std(ddof=1) / math.sqrt(len(change))) if len(change) > 1 else math.nan
    names = sorted({own[r]["objective"].removeprefix("own:") for r in common})
    return Difference(float(change.mean()), error, float(values[0].mean()), float(values[1].mean()), " / ".join(names))


def pool(differences: list[Difference]) -> Pooled | None:
    """All data sets together; None if there are none."""
    if not differences:
        return None
    means = np.array([one.mean for one in differences])
    errors = np.array([one.error for one in differences])
    known = errors > 0  # an objective that is compared with itself has no error, and must not outweigh all others
    errors[~known] = errors[known].mean() if known.any() else 1e-6
    weights = (errors**2 + _between(means, errors)) ** -1.0
    weighted, error = float(means @ weights / weights.sum()), float(weights.sum() ** -0.5)
    equal, half, p = float(means.mean()), math.nan, math.nan
    if len(means) > 1:
        spread = max(float(means.std(ddof=1)) / math.sqrt(len(means)), 1e-12)
        half, p = float(stats.t.ppf(0.975, len(means) - 1)) * spread, float(stats.t.sf(equal / spread, len(means) - 1))
    return Pooled(len(means), weighted, error, float(stats.norm.sf(weighted / error)), equal, half, p)


def _between(means: Array, errors: Array) -> float:
    """The variance of true differences from data set to data set (DerSimonian & Laird, "Meta-analysis in clinical trials",
    1986). Without it the sets whose test values hardly differ, near 1, would outweigh all others."""
    weights = errors**-2.0
    excess = weights @ (means - means @ weights / weights.sum()) ** 2 - (len(means) - 1)
    scale = weights.sum() - (weights**2).sum() / weights.sum()
    return max(float(excess / scale), 0.0) if len(means) > 1 else 0.0


def seconds_to(record: Record, value: float) -> float:
    """Seconds of training until validation NDCG@10 reaches a value, between checkpoints by a line; inf if never."""
    _, seconds, best = np.array(record["curve"]).T
    return _to(seconds, best, value)


def trees_to(record: Record, value: float) -> float:
    """Trees until then."""
    trees, _, best = np.array(record["curve"]).T
    return _to(trees, best, value)


def _to(spent: Array, best: Array, value: float) -> float:
    at = int(np.argmax(best >= value))
    if best[at] < value:
        return math.inf
    if at == 0 or best[at] == best[at - 1]:
        return float(spent[at])
    part = (value - best[at - 1]) / (best[at] - best[at - 1])
    return float(spent[at - 1] + part * (spent[at] - spent[at - 1]))


def reach(ours: ByReplicate, own: ByReplicate) -> list[tuple[float, float, bool]]:
    """Per replicate that has both: ours' trees to own's best validation value, over own's trees to it and over own's
    whole training (inf if ours never has it), and whether own ever has ours' best."""
    found = []
    for replicate in sorted(set(ours) & set(own)):
        one, other = ours[replicate], own[replicate]
        best, mine = (max(value for _, _, value in record["curve"]) for record in (other, one))
        trees = trees_to(one, best)
        back = math.isfinite(trees_to(other, mine))
        found.append((trees / trees_to(other, best), trees / other["curve"][-1][0], back))
    return found


class Comparison(NamedTuple):
    """Ours on one data set with one booster: differences per metric."""

    data: str
    booster: str
    careful: dict[str, Difference]  # to what a careful user would take, chosen by validation
    hard: dict[str, Difference]  # to the own objective that is best on test data


def compare(data: str, booster: str, spec: str, records: Records, *, variants: bool = False) -> Comparison | None:
    """Ours beside the own objectives; None if nothing is stored of either."""
    careful, hard = {}, {}
    against = of(records, booster, opponents(booster, variants=variants))
    for metric in METRICS:
        ours = by_validation(of(records, booster, names_of(spec, data, booster, metric, records)), metric)
        own = by_validation(against, metric)
        one = paired(ours, own, metric)
        other = paired(ours, best_own(against, metric, set(ours) & set(own)), metric)
        if one is not None:
            careful[metric] = one
        if other is not None:
            hard[metric] = other
    return Comparison(data, booster, careful, hard) if careful else None


class Behind(NamedTuple):
    """A cell in which ours is below own by more than two errors."""

    data: str
    booster: str
    metric: str
    difference: Difference
    p: float  # one-sided, that ours is as good; adjusted for the number of cells as Holm does


def behind(comparisons: Iterable[Comparison]) -> list[Behind]:
    """The cells below own chosen by validation by more than two errors, the clearest first."""
    cells = [(c.data, c.booster, metric, one) for c in comparisons for metric, one in c.careful.items() if one.error > 0]
    cells.sort(key=lambda cell: cell[3].mean / cell[3].error)
    found, adjusted = [], 0.0
    for place, (data, booster, metric, one) in enumerate(cells):
        adjusted = max(adjusted, min(1.0, (len(cells) - place) * float(stats.norm.cdf(one.mean / one.error))))
        if one.mean < -2 * one.error:
            found.append(Behind(data, booster, metric, one, adjusted))
    return found
