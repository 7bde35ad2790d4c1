"""Real data sets, read from a folder: MQ2008 and OHSUMED in five folds, LightGBM's ranking example in one split."""

from __future__ import annotations

import functools
import pathlib
from typing import NamedTuple

import numpy as np
from sklearn.datasets import load_svmlight_file

from stochasticrank_objectives.datasets import RankingData

FOLDS = {"MQ2008": 5, "OHSUMED": 5, "LightGBM-lambdarank": 1}
GRADES = {"MQ2008": 2, "OHSUMED": 2, "LightGBM-lambdarank": 4}
"""The highest label of each data set."""


class Split(NamedTuple):
    """What one training needs."""

    train: RankingData
    valid: RankingData
    test: RankingData


@functools.lru_cache(maxsize=8)
def _read(path: pathlib.Path) -> RankingData:
    features, labels, qid = load_svmlight_file(str(path), query_id=True, dtype=np.float32)
    starts = np.flatnonzero(np.append(True, qid[1:] != qid[:-1]))
    return RankingData(features.toarray(), labels.astype(np.float64), np.diff(np.append(starts, len(qid))))


def _joined(parts: list[RankingData]) -> RankingData:
    width = max(part.features.shape[1] for part in parts)
    padded = [np.pad(part.features, ((0, 0), (0, width - part.features.shape[1]))) for part in parts]
    labels, groups = np.concatenate([p.labels for p in parts]), np.concatenate([p.groups for p in parts])
    return RankingData(np.vstack(padded), labels, groups)


def some(data: RankingData, chosen: np.ndarray) -> RankingData:
    """Some of the queries, told by True or False for each."""
    rows = np.repeat(chosen, data.groups)
    return RankingData(data.features[rows], data.labels[rows], data.groups[chosen])


def _same_width(split: Split) -> Split:
    """Files leave out zeros, so the last features may be missing in one of them."""
    width = max(part.features.shape[1] for part in split)
    return Split(*(p._replace(features=np.pad(p.features, ((0, 0), (0, width - p.features.shape[1])))) for p in split))


def load(folder: pathlib.Path, name: str, fold: int) -> Split:
    """Fold f trains on parts f, f+1, f+2, validates on f+3 and tests on f+4; LightGBM's example holds out queries."""
    if name == "LightGBM-lambdarank":
        whole, test = _read(folder / name / "train.txt.gz"), _read(folder / name / "test.txt.gz")
        held = np.arange(len(whole.groups)) % 4 == 3
        return _same_width(Split(some(whole, ~held), some(whole, held), test))
    parts = [_read(folder / name / f"S{1 + (fold + shift) % 5}.txt.gz") for shift in range(5)]
    return _same_width(Split(_joined(parts[:3]), parts[3], parts[4]))
