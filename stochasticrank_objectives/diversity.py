"""Metrics of diversity: a query has several topics, each a column of the labels, and a document is about some of them."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Sequence

import numpy as np

from ._checks import check_number
from ._constants import CASCADE, PLAIN, Array, Integers
from .metrics import _METRICS, _WORD, ERR, Metric, _Binary


@dataclasses.dataclass(frozen=True)
class _Novelty(_Binary):
    """What one topic adds to alpha-DCG, times alpha: ``sum_i g_i prod_{l<i} (1 - g_l) / log2(i + 2)``, g = alpha or 0.

    Every earlier document about the topic has left 1 - alpha of the interest in it. For alpha = 0 it is DCG.
    """

    alpha: float = 0.5

    @property
    def factor(self) -> int:  # type: ignore[override]
        """A cascade, unless alpha is 0: then no document is ever enough."""
        return CASCADE if self.alpha > 0 else PLAIN

    def gains(self, labels: Array) -> Array:
        return super().gains(labels) * (self.alpha or 1.0)

    def relevance(self, labels: Array) -> Array:
        return super().gains(labels)

    def discounts(self, positions: int) -> Array:
        logarithmic: Array = 1.0 / np.log2(np.arange(positions) + 2.0)
        return logarithmic


@dataclasses.dataclass(frozen=True)
class _Topical(Metric, abc.ABC):
    """A metric that is a sum over topics, each a column of the labels."""

    _: dataclasses.KW_ONLY
    topics: Sequence[str]

    def __post_init__(self) -> None:
        super().__post_init__()
        topics = (self.topics,) if isinstance(self.topics, str) else tuple(self.topics)
        if not topics or len(set(topics)) < len(topics):
            raise ValueError(f"topics must be the names of different label columns, at least one, got {self.topics!r}")
        for topic in topics:
            if not isinstance(topic, str) or not _WORD.fullmatch(topic):
                raise ValueError(f"a topic is one word of letters, digits and _, the name of a label column, got {topic!r}")
        object.__setattr__(self, "topics", topics)

    @abc.abstractmethod
    def _of_topic(self) -> tuple[float, Metric]:
        """A weight and the metric of each topic."""

    def components(self) -> tuple[tuple[float, str | None, Metric], ...]:
        weight, metric = self._of_topic()
        return tuple((weight, topic, metric) for topic in self.topics)

    def relevance(self, labels: Array) -> Array:
        """The relevance of a single topic."""
        return self._of_topic()[1].relevance(labels)

    def __str__(self) -> str:
        name, *options = super().__str__().split(":")
        others = [option for option in options if not option.startswith("topics=")]
        return ":".join([name, f"topics={'|'.join(self.topics)}", *others])


@dataclasses.dataclass(frozen=True)
class AlphaNDCG(_Topical):
    """alpha-nDCG, normalised gain with novelty: ``sum_i 1/log2(i + 2) sum_t J_it (1 - alpha)^c_it``, divided by the ideal.

    J_it is 1 if the document at position i is about topic t, its label in that column being above `threshold`; c_it is how
    many documents before it are. As usual, the ideal is that of the list which takes the best next document again and again.
    The best list of all is hard to find, so values a little above 1 are possible. Of equally good documents the first in the
    data is taken.

    It runs in the kernels of the built-in metrics: with gains of alpha or 0, every topic is a cascade. It is in the paper's
    class R0, and in R1 where topics agree about documents; `mu` shifts by the number of topics that a document is about.
    Reference: Clarke et al., "Novelty and diversity in information retrieval evaluation", SIGIR 2008.

    Parameters
    ----------
    k
        How many top positions count; None means all of them.
    topics
        The columns of labels, one per topic.
    alpha
        The chance that a document about a topic has told all that the user wants to know about it, from 0 to 1.
    threshold
        A document is about a topic if its label there is above it.

    Examples
    --------
    >>> from stochasticrank_objectives import evaluate
    >>> labels = {"cat": [1, 1, 0], "dog": [0, 0, 1]}
    >>> print(AlphaNDCG(2, topics=["cat", "dog"]))
    alphandcg@2:topics=cat|dog
    >>> evaluate("alphandcg@2:topics=cat|dog", [3, 1, 2], labels, [3])
    1.0
    """

    alpha: float = 0.5
    threshold: float = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("alpha", self.alpha, 0, 1, hint="it is the chance that one document about a topic is enough")
        check_number("threshold", self.threshold, 0, hint="a document is about a topic if its label there is above it")

    def _of_topic(self) -> tuple[float, Metric]:
        return 1.0 / (self.alpha or 1.0), _Novelty(self.k, threshold=self.threshold, alpha=self.alpha)

    def ideals(self, columns: Sequence[Array], ptr: Integers) -> Array:
        """The values of lists that take the best next document again and again, for all queries at once."""
        sizes = np.diff(ptr)
        query = np.repeat(np.arange(len(sizes)), sizes)
        covered = (np.array(columns) > self.threshold).astype(np.float64)
        left, total = np.ones((len(columns), len(sizes))), np.zeros(len(sizes))  # interest in each topic, and the value
        for discount in _Novelty().discounts(int(min(self.cut, sizes.max()))):
            worth = (left[:, query] * covered).sum(axis=0)
            best = np.maximum.reduceat(worth, ptr[:-1])
            if not best.any():
                break
            total += discount * best
            rows = np.flatnonzero(worth == best[query])
            chosen = rows[np.unique(query[rows], return_index=True)[1]]  # the first of each query
            left *= (1.0 - self.alpha) ** covered[:, chosen]
            covered[:, chosen] = 0.0
        return total


@dataclasses.dataclass(frozen=True)
class ERRIA(_Topical):
    """Intent-aware expected reciprocal rank: the mean of `ERR` over those topics that some document of the query is about.

    It runs in the kernels of the built-in metrics: every topic is a cascade. With binary labels and max_grade=1 a document
    about a topic satisfies half of those who want it, as in TREC's ndeval with alpha = 0.5. It is in the paper's class R0,
    and in R1 where topics agree about documents. `mu` shifts by the sum over topics of the label, in units of its largest.
    Reference: Chapelle et al., "Intent-based diversification of web search results: metrics and algorithms", Information
    Retrieval 2011.

    Parameters
    ----------
    k
        How many top positions count; None means all of them.
    topics
        The columns of labels, one per topic.
    max_grade
        The largest grade there is, in all columns.

    Examples
    --------
    >>> from stochasticrank_objectives import evaluate
    >>> labels = {"cat": [1, 1, 0], "dog": [0, 0, 1]}
    >>> evaluate(ERRIA(topics=["cat", "dog"], max_grade=1), [3, 1, 2], labels, [3])  # (1/2 + 1/4 * 1/3 + 1/2 * 1/2) / 2
    0.4166666666666667
    """

    max_grade: float = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        self._of_topic()  # which checks max_grade

    def _of_topic(self) -> tuple[float, Metric]:
        return 1.0, ERR(self.k, max_grade=self.max_grade)

    def ideals(self, columns: Sequence[Array], ptr: Integers) -> Array:
        """How many topics each query has."""
        topics: Array = np.sum([np.maximum.reduceat(column, ptr[:-1]) > 0 for column in columns], axis=0, dtype=np.float64)
        return topics


_METRICS.update({kind.__name__.lower(): kind for kind in (AlphaNDCG, ERRIA)})
