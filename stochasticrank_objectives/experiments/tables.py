"""The paper's tables 2 and 3: methods compared, and what each part of StochasticRank adds."""

from __future__ import annotations

import dataclasses
import itertools
import os
import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from stochasticrank_objectives._constants import Array
from stochasticrank_objectives.metrics import DCG, parse_metric
from stochasticrank_objectives.recommended import BOOSTERS

from .methods import (
    ABLATED,
    ABLATED_TITLES,
    COMPARED,
    ITS_OWN,
    METHODS,
    Params,
    check_installed,
    check_names,
    own_objectives,
    title,
)
from .search import Outcome, Protocol, Study, search
from .sources import Source


def interval(values: Sequence[float]) -> float | None:
    """Half the 95 % interval of the mean of a few values (Student's); None of a single one."""
    from scipy import stats

    if len(values) < 2:
        return None
    return float(stats.t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / np.sqrt(len(values)))


def p_value(values: Array, other: Array) -> float:
    """The paired one-tailed t-test over queries: how likely so much of an advantage is if there is none."""
    from scipy import stats

    if np.array_equal(values, other):
        return 0.5
    return float(stats.ttest_rel(values, other, alternative="greater").pvalue)


@dataclasses.dataclass
class Row:
    """A method on a booster: its test metric over the queries of all folds, as a mean over seeds."""

    data: str
    booster: str
    metric: str
    method: str
    title: str
    ours: bool
    mean: float | None = None
    interval: float | None = None
    by_seed: list[float] = dataclasses.field(default_factory=list)
    p: float | None = None
    against: str = ""
    queries: int = 0
    rounds: float | None = None
    seconds: float | None = None
    params: list[Params] = dataclasses.field(default_factory=list)
    valid: float | None = None
    error: str = ""
    per_query: Array | None = dataclasses.field(default=None, repr=False)
    curves: list[list[float]] = dataclasses.field(default_factory=list, repr=False)

    @property
    def key(self) -> tuple[str, str, str]:
        """Rows of the same key stand beside each other."""
        return self.data, self.metric, self.booster

    def summary(self) -> dict[str, Any]:
        """What goes into a file."""
        left_out = {"per_query", "curves"}
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name not in left_out}


def _row(outcomes: Sequence[Outcome]) -> Row:
    """The folds of a method together."""
    study = outcomes[0].study
    known = METHODS.get(study.method)
    row = Row(
        study.source.name, study.booster, study.metric, study.method, title(study.method),
        ours=known is not None and known.ours, error="; ".join(each.error for each in outcomes if each.error),
    )  # fmt: skip
    if row.error:
        return row
    seeds = sorted(set.intersection(*({final["seed"] for final in each.finals} for each in outcomes)))
    by_seed = [
        np.concatenate([next(f["per_query"] for f in each.finals if f["seed"] == seed) for each in outcomes])
        for seed in seeds
    ]
    finals = [final for each in outcomes for final in each.finals]
    row.per_query = np.mean(by_seed, axis=0)
    row.by_seed = [float(values.mean()) for values in by_seed]
    row.mean, row.interval, row.queries = float(np.mean(row.by_seed)), interval(row.by_seed), len(row.per_query)
    row.rounds = float(np.mean([final["rounds"] for final in finals]))
    row.seconds = float(np.mean([final["seconds"] for final in finals]))
    row.valid = float(np.mean([final["valid"] for final in finals]))
    row.params = [final["params"] for final in (each.finals[0] for each in outcomes)]
    row.curves = [final["curve"] for final in outcomes[0].finals]
    return row


def _rows(outcomes: Sequence[Outcome]) -> list[Row]:
    by_method: dict[tuple[str, ...], list[Outcome]] = {}
    for each in outcomes:
        study = each.study
        by_method.setdefault((study.source.name, study.metric, study.booster, study.method), []).append(each)
    return [_row(together) for together in by_method.values()]


def _studies(
    data: Sequence[str],
    metrics: Sequence[str],
    boosters: Sequence[str],
    methods: Sequence[str],
    folds: int | None,
    first_index: int | None,
) -> list[Study]:
    names = list(dict.fromkeys(str(parse_metric(metric)) for metric in metrics))
    sources = [Source(path, first_index) for path in dict.fromkeys(data)]
    if len({source.name for source in sources}) < len(sources):
        raise ValueError(
            f"two data sets have the same name: {', '.join(source.path for source in sources)}; rename a folder"
        )
    boosters = check_names("booster", boosters, BOOSTERS)
    for booster in boosters:
        check_installed(booster)
    studies = []
    for source in sources:
        for number, fold in enumerate(source.folds()[:folds]):
            for name, booster, method in itertools.product(names, boosters, methods):
                metric = parse_metric(name)
                if method in METHODS and METHODS[method].ndcg_only and not isinstance(metric, DCG):
                    continue
                wanted = own_objectives(booster, metric) if method == ITS_OWN else [method]
                studies += [Study(source, number, fold, booster, name, each) for each in wanted]
    if not studies:
        raise ValueError(f"none of {', '.join(methods)} can be trained for {', '.join(names)}")
    return studies


def compare(
    data: Sequence[str],
    *,
    metrics: Sequence[str] = ("ndcg@5",),
    boosters: Sequence[str] = BOOSTERS,
    methods: Sequence[str] = COMPARED,
    folder: str | os.PathLike[str],
    trials: int = 20,
    seeds: int = 5,
    jobs: int = 1,
    protocol: Protocol | None = None,
    folds: int | None = None,
    first_index: int | None = None,
    progress: bool = True,
) -> list[Row]:
    """The paper's Table 2 on any data: every method tuned and tested, with a test against the best that is not ours."""
    protocol = protocol or Protocol()
    methods = check_names("method", methods, (*METHODS, ITS_OWN))
    studies = _studies(data, metrics, boosters, methods, folds, first_index)
    rows = _rows(search(studies, protocol, pathlib.Path(folder), trials=trials, seeds=seeds, jobs=jobs, progress=progress))
    for row in rows:
        rivals = [each for each in rows if each.key == row.key and not each.ours and each.per_query is not None]
        if rivals and row.ours and row.per_query is not None:
            best = max(rivals, key=lambda each: each.mean or 0.0)
            assert best.per_query is not None
            row.against, row.p = best.title, p_value(row.per_query, best.per_query)
    return rows


def ablate(data: Sequence[str], *, methods: Sequence[str] = ABLATED, **options: Any) -> list[Row]:
    """The paper's Table 3: what each part of the method adds, with a test against the row before; options as `compare`'s."""
    rows = compare(data, methods=methods, **options)
    before: dict[tuple[str, str, str], Row] = {}
    for row in rows:
        row.title = ABLATED_TITLES.get(row.method, row.title)
        above = before.get(row.key)
        if above is not None and row.per_query is not None and above.per_query is not None:
            row.against, row.p = above.title, p_value(row.per_query, above.per_query)
        before[row.key] = row
    return rows
