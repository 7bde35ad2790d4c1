"""The data sets of the study by name, such as "noisy-500" (a family and its number of training queries) or "MQ2008"."""

from __future__ import annotations

import pathlib

from . import families, real
from .real import Split

TEST_QUERIES = 3000
CHOSEN_ON = [f"{name}-{size}" for size in (500, 4000) for name in families.CHOSEN_ON] + ["noisy-16000", "MQ2008"]
"""The half on which a recommendation may be chosen."""
JUDGED_ON = [f"{name}-{size}" for size in (500, 4000) for name in families.JUDGED_ON]
JUDGED_ON += ["web-16000", "OHSUMED", "LightGBM-lambdarank"]
"""The half on which it is judged."""


def is_real(name: str) -> bool:
    """Whether the data set is read from files."""
    return name in real.FOLDS


def exists(name: str) -> bool:
    """Whether there is such a data set; families may have any number of training queries."""
    family, _, size = name.partition("-")
    return is_real(name) or (family in families.FAMILIES and size.isdigit() and int(size) > 0)


def max_grade(name: str) -> int:
    """The highest label, which ERR needs to know."""
    return real.GRADES[name] if is_real(name) else families.GRADES[name.split("-")[0]]


def replicates(name: str, wanted: int) -> range:
    """All folds of real data, and as many replicates of generated data as wanted."""
    return range(real.FOLDS[name] if is_real(name) else wanted)


def load(name: str, replicate: int, folder: pathlib.Path | None = None) -> Split:
    """Train, validation and test parts of one replicate or fold."""
    if is_real(name):
        if folder is None:
            raise ValueError(f"{name} is read from files: say where with --data FOLDER")
        return real.load(folder, name, replicate)
    family, size = name.split("-")
    make, train = families.FAMILIES[family], int(size)
    sizes = (train, min(max(300, train // 4), 2000), TEST_QUERIES)
    return Split(*(make(queries, seed, replicate) for seed, queries in enumerate(sizes)))
