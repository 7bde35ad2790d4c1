"""Where data come from: files, folders of folds, or generated; and how they are divided."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import itertools
import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from stochasticrank_objectives.datasets import RankingData, make_ranking

from .letor import load_folds, read_svmlight


class Split(NamedTuple):
    """What a method is trained on, chosen by and measured on."""

    learn: RankingData
    valid: RankingData
    test: RankingData


@dataclasses.dataclass(frozen=True)
class Source:
    """A data set as it was named: a folder, a file, or the word "generated", perhaps with a colon and a number of queries.

    Where a folder has no validation file, a fifth of the training queries is taken for it; a single file is divided into
    three fifths, one and one. The division is by query, at random, always the same.
    """

    path: str
    first_index: int | None = None

    @property
    def queries(self) -> int | None:
        """How many queries to generate; None for files."""
        word, colon, number = self.path.partition(":")
        if word != "generated":
            return None
        if colon and not (number.isdigit() and int(number) > 0):
            raise ValueError(f'after "generated:" comes a number of queries, got {number!r}')
        return int(number) if colon else 300

    @property
    def name(self) -> str:
        return self.path if self.queries else os.path.basename(os.path.abspath(self.path))

    def _folds(self) -> list[Any]:
        return load_folds(self.path, first_index=self.first_index)

    @property
    def _one_file(self) -> bool:
        if not os.path.exists(self.path):
            raise ValueError(f'{self.path}: there is no such file or folder; "generated" stands for generated data')
        return os.path.isfile(self.path)

    def folds(self) -> list[str]:
        """The names of the folds."""
        return ["generated"] if self.queries else ["all"] if self._one_file else [fold.name for fold in self._folds()]

    def fingerprint(self) -> str:
        """Changes when the files do; it does not depend on where they are."""
        if self.queries:
            return self.path
        files = {self.path}
        if not self._one_file:
            files = {path for fold in self._folds() for path in (*fold.train_files, *fold.valid_files, *fold.test_files)}
        listed = sorted((os.path.relpath(path, self.path), os.path.getsize(path)) for path in files)
        return hashlib.sha256(repr((listed, self.first_index)).encode()).hexdigest()[:16]

    def load(self, fold: int) -> Split:
        """One fold, by its place."""
        if self.queries:
            return Split(*(make_ranking(self.queries, seed=seed) for seed in (1, 2, 3)))
        if self._one_file:
            return Split(*divide(read_svmlight(self.path, first_index=self.first_index), (3, 1, 1)))
        chosen = self._folds()[fold]
        learn, valid = chosen.train, chosen.valid
        if valid is None:
            learn, valid = divide(learn, (4, 1))
        return Split(learn, valid, chosen.test)


def divide(data: RankingData, shares: Sequence[int]) -> list[RankingData]:
    """Parts with so many shares of the queries each, drawn at random, always the same; queries keep their order."""
    count = len(data.groups)
    if count < sum(shares):
        raise ValueError(f"{count} queries are too few to divide into {' : '.join(map(str, shares))}; there must be more")
    ends = np.cumsum(shares) * count // sum(shares)
    shuffled = np.random.default_rng(0).permutation(count)
    parts = []
    for begin, end in itertools.pairwise([0, *ends.tolist()]):
        taken = np.zeros(count, bool)
        taken[shuffled[begin:end]] = True
        rows = np.repeat(taken, data.groups)
        parts.append(RankingData(data.features[rows], data.labels[rows], data.groups[taken]))
    return parts


@functools.lru_cache(maxsize=1)  # tasks come fold by fold
def loaded(source: Source, fold: int) -> Split:
    return source.load(fold)
