"""Generated learning-to-rank data that behaves like the real thing."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ._constants import Array


class RankingData(NamedTuple):
    """Features (float32 when read from files), graded labels and query sizes; the rows of a query stand together."""

    features: NDArray[np.float32] | NDArray[np.float64]
    labels: Array
    groups: NDArray[np.int64]

    @property
    def qid(self) -> NDArray[np.int64]:
        """The query of each row, counted from 0."""
        return np.repeat(np.arange(len(self.groups)), self.groups)


def make_ranking(
    queries: int = 300,
    *,
    documents: tuple[int, int] = (5, 40),
    features: int = 20,
    noise: float = 1.0,
    seed: int = 0,
    model_seed: int = 0,
) -> RankingData:
    """Queries with graded labels from 0 to 4, mostly 0, a noisy non-linear relevance and features that differ by query.

    `documents` is the smallest and the largest size of a query. Data made with different `seed` but the same `model_seed`
    follow the same relevance, so that one can serve for training and another for testing. Some features are coarse, so that
    documents tie; some tell about the query alone, some tell nothing.

    >>> data = make_ranking(3, documents=(2, 4), features=6)
    >>> data.features.shape[1], len(data.groups), int(data.groups.sum()) == len(data.labels)
    (6, 3, True)
    """
    if queries < 1 or features < 4 or not 1 <= documents[0] <= documents[1]:
        raise ValueError(
            f"there must be at least one query, four features and 1 <= documents[0] <= documents[1], "
            f"got queries={queries}, features={features}, documents={documents}"
        )
    model = np.random.default_rng([model_seed, 1])
    rng = np.random.default_rng([seed, model_seed, 2])
    groups = rng.integers(documents[0], documents[1] + 1, queries)
    query = np.repeat(np.arange(queries), groups)
    rows = len(query)

    x = rng.normal(size=(rows, features))
    x[:, : features // 4] += rng.normal(size=(queries, features // 4))[query]  # each query has its own level
    x[:, features - 2] = rng.normal(size=queries)[query]  # tells about the query only
    coarse = slice(features // 4, features // 2)
    x[:, coarse] = np.round(x[:, coarse])

    useful = features - 2
    direction = model.normal(size=useful) * (model.random(useful) < 0.6) / np.sqrt(0.6 * useful)
    hinge = model.normal(size=(3, useful)) / np.sqrt(useful)
    used = x[:, :useful]
    relevance = used @ direction + np.maximum(used @ hinge[0], 0) * (used @ hinge[1]) + np.abs(used @ hinge[2])
    relevance += noise * rng.normal(size=rows) * 0.5
    relevance += 0.5 * rng.normal(size=queries)[query]  # some queries have better answers than others
    borders = np.quantile(relevance, [0.55, 0.78, 0.90, 0.97])
    return RankingData(x, np.searchsorted(borders, relevance).astype(np.float64), groups)
