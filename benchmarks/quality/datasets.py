"""The data sets of the study by name, such as "noisy-500" (a family and its number of training queries) or "MQ2008"."""

from __future__ import annotations

import pathlib

from . import families, real, tables
from .real import Split

TEST_QUERIES = 3000
CHOSEN_ON = [f"{name}-{size}" for size in (500, 4000) for name in families.CHOSEN_ON]
CHOSEN_ON += ["clicks-16000", "catalogue-150", "MQ2008", "flights", "movies", "wages", "women"]
"""The half on which a recommendation may be chosen."""
JUDGED_ON = [f"{name}-{size}" for size in (500, 4000) for name in families.JUDGED_ON]
JUDGED_ON += ["web-16000", "passages-150", "OHSUMED", "LightGBM-lambdarank"]
JUDGED_ON += [name for name in tables.TABLES if name not in CHOSEN_ON]
"""The half on which it is judged."""


def available(name: str, folder: pathlib.Path | None) -> bool:
    """Whether the data set can be made or read here."""
    return folder is not None if name in real.FOLDS else name not in tables.TABLES or tables.installed()


def exists(name: str) -> bool:
    """Whether there is such a data set; families may have any number of training queries."""
    family, _, size = name.partition("-")
    return name in real.FOLDS or name in tables.TABLES or (family in families.FAMILIES and size.isdigit() and int(size) > 0)


def max_grade(name: str) -> int:
    """The highest label, which ERR needs to know."""
    if name in tables.TABLES:
        return len(tables.SHARES)
    return real.GRADES[name] if name in real.FOLDS else families.GRADES[name.split("-")[0]]


def replicates(name: str, wanted: int) -> range:
    """All folds of data that have them, and as many replicates of others as wanted."""
    return range(real.FOLDS.get(name, wanted))


def load(name: str, replicate: int, folder: pathlib.Path | None = None) -> Split:
    """Train, validation and test parts of one replicate or fold."""
    if name in tables.TABLES:
        return tables.load(name, replicate)
    if name in real.FOLDS:
        if folder is None:
            raise ValueError(f"{name} is read from files: say where with --data FOLDER")
        return real.load(folder, name, replicate)
    family, size = name.split("-")
    make, train = families.FAMILIES[family], int(size)
    sizes = (train, min(max(300, train // 4), 2000), TEST_QUERIES)
    return Split(*(make(queries, seed, replicate) for seed, queries in enumerate(sizes)))
