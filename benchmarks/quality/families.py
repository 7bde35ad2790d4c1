"""Nine families of generated ranking data that differ in labels, noise, sizes of queries and kind of relevance.

Each is a function of (queries, seed, model_seed). Data of one `model_seed` share a relevance function, so one `seed` can
serve for training and another for testing; another `model_seed` is another task of the same kind.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stochasticrank_objectives.datasets import RankingData

Array = NDArray[np.float64]
Family = Callable[[int, int, int], RankingData]


class Shape(NamedTuple):
    """What the features of a family look like."""

    documents: tuple[int, int]  # the smallest and the largest query
    relevant: int  # features of documents that matter
    query: int  # features of the query, the same in all its rows
    irrelevant: int  # features that tell nothing
    heavy: bool = False  # tails of the features: Student's t with 3 degrees of freedom, or normal
    log_uniform: bool = False  # the sizes of queries


class Draw(NamedTuple):
    """Features before labels: what is observed, and what the labels are made from."""

    groups: NDArray[np.int64]
    query: NDArray[np.int64]  # of each row
    document: Array  # relevant features, one row per document
    of_query: Array  # features of the query, one row per query
    features: Array  # what the ranker sees
    rng: np.random.Generator  # for noise of labels
    model: np.random.Generator  # for the relevance function


def _draw(name: str, shape: Shape, queries: int, seed: int, model_seed: int) -> Draw:
    """Documents and queries; relevant features are correlated, some are coarse, and each query has its own level."""
    code = zlib.crc32(name.encode())
    model, rng = np.random.default_rng([model_seed, code, 1]), np.random.default_rng([seed, model_seed, code, 2])
    low, high = shape.documents
    if shape.log_uniform:
        groups = np.exp(rng.uniform(np.log(low), np.log(high + 1), queries)).astype(np.int64)
    else:
        groups = rng.integers(low, high + 1, queries)
    query = np.repeat(np.arange(queries), groups)

    def sample(rows: int, columns: int) -> Array:
        return rng.standard_t(3, (rows, columns)) / np.sqrt(3) if shape.heavy else rng.normal(size=(rows, columns))

    mix = np.eye(shape.relevant) + 0.3 * model.normal(size=(shape.relevant, shape.relevant))
    document = sample(len(query), shape.relevant) @ (mix / np.linalg.norm(mix, axis=0))
    document += 0.5 * rng.normal(size=(queries, shape.relevant))[query]
    coarse = slice(0, shape.relevant // 3)
    document[:, coarse] = np.round(2 * document[:, coarse]) / 2
    of_query = rng.normal(size=(queries, shape.query))
    features = np.hstack([document, of_query[query], sample(len(query), shape.irrelevant)])
    return Draw(groups, query, document, of_query, features, rng, model)


def _linear(draw: Draw) -> Array:
    return _scaled(draw.document @ draw.model.normal(size=draw.document.shape[1]))


def _nonlinear(draw: Draw, hinges: int = 6) -> Array:
    """A sum of products of hinges, each of a few features."""
    total = np.zeros(len(draw.query))
    for _ in range(hinges):
        use = draw.model.choice(draw.document.shape[1], 3, replace=False)
        one, other = draw.model.normal(size=(2, 3))
        shift = draw.model.normal(size=2)
        x = draw.document[:, use]
        total += np.tanh(np.maximum(x @ one + shift[0], 0)) * np.tanh(x @ other + shift[1])
    return _scaled(total)


def _interactions(draw: Draw, terms: int = 4) -> Array:
    """Directions in which documents are good or bad depending on the query."""
    total = np.zeros(len(draw.query))
    for _ in range(terms):
        of_document = draw.document @ _sparse(draw.model, draw.document.shape[1])
        of_query = draw.of_query @ _sparse(draw.model, draw.of_query.shape[1])
        total += np.tanh(of_document) * np.tanh(2 * of_query)[draw.query]
    return _scaled(total)


def _sparse(model: np.random.Generator, size: int) -> Array:
    direction = np.zeros(size)
    use = model.choice(size, min(3, size), replace=False)
    direction[use] = model.normal(size=len(use))
    return direction


def _scaled(values: Array) -> Array:
    return (values - values.mean()) / values.std()


def _grades(draw: Draw, relevance: Array, shares: list[float], spread: float) -> Array:
    """Grades from 0 whose shares are the differences of `shares`; some queries have better answers than others."""
    level = spread * draw.rng.normal(size=len(draw.groups))[draw.query]
    total = relevance + level
    return np.searchsorted(np.quantile(total, shares), total).astype(np.float64)


def _done(draw: Draw, labels: Array) -> RankingData:
    return RankingData(draw.features.astype(np.float32), labels, draw.groups)


def noisy(queries: int, seed: int, model_seed: int) -> RankingData:
    """Five grades with much noise, heavy-tailed features, interactions of documents with queries."""
    draw = _draw("noisy", Shape((20, 60), 15, 5, 10, heavy=True), queries, seed, model_seed)
    relevance = _linear(draw) + _nonlinear(draw) + _interactions(draw) + 2.2 * draw.rng.normal(size=len(draw.query))
    return _done(draw, _grades(draw, relevance, [0.55, 0.78, 0.90, 0.97], 0.6))


def clicks(queries: int, seed: int, model_seed: int) -> RankingData:
    """Binary labels, mostly none to three per query, noisy; features with light tails."""
    draw = _draw("clicks", Shape((5, 40), 12, 4, 6), queries, seed, model_seed)
    relevance = _linear(draw) + 0.7 * _nonlinear(draw) + 0.7 * _interactions(draw)
    weight = np.exp(1.3 * relevance)
    share = weight / np.bincount(draw.query, weight)[draw.query]
    return _done(draw, (draw.rng.random(len(share)) < np.minimum(1.8 * share, 0.8)).astype(np.float64))


def clean(queries: int, seed: int, model_seed: int) -> RankingData:
    """Five grades with little noise, a nonlinear relevance, queries from 5 to 200 documents."""
    draw = _draw("clean", Shape((5, 200), 14, 3, 5, log_uniform=True), queries, seed, model_seed)
    relevance = 0.7 * _linear(draw) + _nonlinear(draw, 10) + 0.45 * draw.rng.normal(size=len(draw.query))
    return _done(draw, _grades(draw, relevance, [0.55, 0.78, 0.90, 0.97], 0.4))


def tidy(queries: int, seed: int, model_seed: int) -> RankingData:
    """Five grades with little noise, as in `clean`, but short queries: few rows to learn from."""
    draw = _draw("tidy", Shape((5, 40), 14, 3, 5), queries, seed, model_seed)
    relevance = 0.7 * _linear(draw) + _nonlinear(draw, 10) + 0.45 * draw.rng.normal(size=len(draw.query))
    return _done(draw, _grades(draw, relevance, [0.55, 0.78, 0.90, 0.97], 0.4))


def web(queries: int, seed: int, model_seed: int) -> RankingData:
    """Five grades, most of them 0 and very few 4, heavy tails, many irrelevant features."""
    draw = _draw("web", Shape((30, 70), 12, 4, 24, heavy=True), queries, seed, model_seed)
    relevance = 1.2 * _linear(draw) + _nonlinear(draw) + 0.6 * _interactions(draw) + draw.rng.normal(size=len(draw.query))
    return _done(draw, _grades(draw, relevance, [0.70, 0.88, 0.96, 0.993], 0.5))


def answer(queries: int, seed: int, model_seed: int) -> RankingData:
    """Exactly one relevant document per query."""
    draw = _draw("answer", Shape((10, 100), 14, 4, 8, log_uniform=True), queries, seed, model_seed)
    relevance = 1.6 * (_linear(draw) + _nonlinear(draw) + 0.5 * _interactions(draw)) + draw.rng.gumbel(size=len(draw.query))
    order = np.lexsort((-relevance, draw.query))
    labels = np.zeros(len(order))
    labels[order[np.cumsum(draw.groups) - draw.groups]] = 1
    return _done(draw, labels)


def shop(queries: int, seed: int, model_seed: int) -> RankingData:
    """Binary labels, many of them relevant, much noise; a price matters relative to the mean of its query."""
    draw = _draw("shop", Shape((10, 50), 12, 5, 6), queries, seed, model_seed)
    price = draw.rng.normal(size=len(draw.query)) + 1.5 * draw.rng.normal(size=len(draw.groups))[draw.query]
    mean = (np.bincount(draw.query, price) / draw.groups)[draw.query]
    wanted = np.tanh(draw.of_query[:, 0])[draw.query]  # some want cheap, some want dear
    relevance = -_scaled(np.abs(price - mean - wanted)) + 0.6 * _linear(draw) + 0.6 * _interactions(draw)
    relevance += 1.8 * draw.rng.normal(size=len(draw.query))
    features = np.column_stack([draw.features, np.exp(price), np.exp(mean), draw.groups[draw.query]])
    return _done(draw._replace(features=features), _grades(draw, relevance, [0.7], 0.5))


def catalogue(queries: int, seed: int, model_seed: int) -> RankingData:
    """Long lists of up to 1,000 documents, five grades, nine tenths of them 0."""
    draw = _draw("catalogue", Shape((200, 1000), 14, 4, 10, log_uniform=True), queries, seed, model_seed)
    relevance = _linear(draw) + _nonlinear(draw) + 0.6 * _interactions(draw) + draw.rng.normal(size=len(draw.query))
    return _done(draw, _grades(draw, relevance, [0.90, 0.96, 0.985, 0.997], 0.5))


def passages(queries: int, seed: int, model_seed: int) -> RankingData:
    """Candidates of a search, up to 1,000 of them, of which few are relevant and a third of these were never judged."""
    draw = _draw("passages", Shape((50, 1000), 12, 4, 8, heavy=True, log_uniform=True), queries, seed, model_seed)
    relevance = 1.5 * _linear(draw) + _nonlinear(draw) + _interactions(draw) + draw.rng.gumbel(size=len(draw.query))
    judged = draw.rng.random(len(draw.query)) < 2 / 3
    return _done(draw, judged * _grades(draw, relevance, [0.97, 0.985, 0.995], 0.5))


CHOSEN_ON: dict[str, Family] = {"noisy": noisy, "clicks": clicks, "clean": clean, "tidy": tidy}
JUDGED_ON: dict[str, Family] = {"web": web, "answer": answer, "shop": shop}
FAMILIES: dict[str, Family] = {**CHOSEN_ON, **JUDGED_ON, "catalogue": catalogue, "passages": passages}
GRADES = {"noisy": 4, "clicks": 1, "clean": 4, "tidy": 4, "web": 4, "answer": 1, "shop": 1, "catalogue": 4, "passages": 3}
"""The highest label of each family. `catalogue` and `passages`, of long lists, have sizes of their own in the study."""
