"""Ranking metrics as small values: frozen, comparable, parsed from and printed as their names.

What a metric *is* stands here; how it is computed stands in the kernels. Every metric here is a sum over the positions
i = 0, 1, ... of the ranked list, ``M = sum_i w_i F_i g_i``, with a discount w of the position, a gain g of the document
there, and a factor F made of the documents before it (see `Rule`). Metrics of whole rankings are in `ranks`, those of
selections in `selecting`.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import math
import operator
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ._checks import check_number
from ._constants import AVERAGE, CASCADE, PLAIN, Array, Integers


def _checked_cut(k: Any) -> int:
    try:
        cut = operator.index(k)
    except TypeError:
        cut = 0
    if cut < 1 or isinstance(k, bool):
        raise ValueError(f"k must be a whole number of at least 1, got {k!r}; it is the number of top positions that count")
    return cut


@dataclasses.dataclass(frozen=True)
class Metric:
    """What all metrics share. `k` is how many top positions count; None means all of them.

    Metrics can be multiplied by positive numbers and added: ``0.7 * NDCG(10) + 0.3 * MRR()`` is a `Sum`.
    """

    __array_ufunc__: ClassVar[None] = None  # so that numpy's numbers leave the multiplication to us
    factor: ClassVar[int] = PLAIN
    normaliser: ClassVar[Literal["none", "ideal", "relevant", "pairs", "ranks", "concordance"]] = "none"
    needs_k: ClassVar[bool] = False
    family: ClassVar[Literal["ranked", "selected", "concordant"]] = "ranked"
    """What decides: discounted positions, the sign of each score, or the order of pairs. Each has kernels of its own."""
    signed: ClassVar[bool] = False
    """Whether labels may be negative: where only their order counts."""
    constant: ClassVar[float] = 0.0
    """What is added to the sum over positions."""
    listed: ClassVar[bool] = False  # whether it is a function of the ranked list, see `FunctionMetric`

    k: int | None = None

    def __post_init__(self) -> None:
        if self.k is not None:
            object.__setattr__(self, "k", _checked_cut(self.k))
        elif self.needs_k:
            name = type(self).__name__.lower()
            raise ValueError(f'{name} needs a cut k; write for example "{name}@10"')

    def __str__(self) -> str:
        name = type(self).__name__.lower() + (f"@{self.k}" if self.k else "")
        changed = [
            f"{field.name}={getattr(self, field.name)}"
            for field in dataclasses.fields(self)
            if field.name != "k" and getattr(self, field.name) != field.default
        ]
        return ":".join([name, *changed])

    def check(self, labels: Array) -> None:
        """Raise ValueError if these labels, already known to be finite and not negative, do not suit the metric."""

    def gains(self, labels: Array) -> Array:
        """The gain g of each document; by default its label."""
        return labels

    def relevance(self, labels: Array) -> Array:
        """The relevance r by which mu shifts the scores."""
        return labels

    def discounts(self, positions: int) -> Array:
        """The discounts w of the first so many positions; by default all the same."""
        return np.ones(positions)

    @property
    def cut(self) -> float:
        """`k`, or infinity."""
        return math.inf if self.k is None else self.k

    def parts(self) -> Terms:
        """Weights and metrics of which it is the sum: itself once, unless it is a `Sum`."""
        return ((1.0, self),)

    def components(self) -> tuple[tuple[float, str | None, Metric], ...]:
        """What it is computed from: weights, each with a column of the labels (None for the first) and a metric of it."""
        return ((1.0, None, self),)

    def ideals(self, columns: Sequence[Array], ptr: Integers) -> Array | None:
        """What the sum of its components is divided by in each query, from the labels of each; None if by nothing."""
        return None

    def __add__(self, other: Metric) -> Metric:
        return _added([(1.0, self), (1.0, other)]) if isinstance(other, Metric) else NotImplemented

    def __radd__(self, other: Any) -> Metric:
        """``0 + metric``, with which Python's `sum` begins."""
        return self if isinstance(other, int) and other == 0 else NotImplemented

    def __mul__(self, weight: float) -> Metric:
        return _added([(weight, self)]) if isinstance(weight, (int, float, np.number)) else NotImplemented

    __rmul__ = __mul__


Terms: TypeAlias = tuple[tuple[float, Metric], ...]
"""Weights, each with its metric."""


def _refuse(labels: Array, wrong: NDArray[np.bool_], meaning: str, remedy: str) -> None:
    if wrong.any():
        at = int(np.argmax(wrong))
        raise ValueError(f"labels[{at}] = {labels[at]:g} {meaning}; {remedy}")


def _logarithmic(positions: int) -> Array:
    discounts: Array = 1.0 / np.log2(np.arange(positions) + 2.0)
    return discounts


@dataclasses.dataclass(frozen=True)
class DCG(Metric):
    """Discounted cumulative gain: ``sum_i g_i / log2(i + 2)``, with ``g = 2^r - 1`` (gain="exp") or r ("linear").

    A number a as the gain means ``g = r^a``: 1 is linear, and 2 is close to exponential for grades up to 4.
    Reference: Järvelin & Kekäläinen, "Cumulated gain-based evaluation of IR techniques", TOIS 2002.
    """

    gain: Literal["exp", "linear"] | float = "exp"

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.gain, str):
            if self.gain not in ("exp", "linear"):
                raise ValueError(f'gain must be "exp", "linear" or the power of the label that it is, got {self.gain!r}')
        else:
            power = check_number("gain", self.gain, 0, open_low=True, hint='it is a power of the label, "exp" or "linear"')
            object.__setattr__(self, "gain", "linear" if power == 1 else int(power) if power.is_integer() else power)

    def check(self, labels: Array) -> None:
        if self.gain == "exp":
            _refuse(labels, labels > 500, "is too large for 2^label - 1", 'use gain="linear" or smaller grades')
        elif not isinstance(self.gain, str):
            with np.errstate(over="ignore"):
                wrong = self.gains(labels) > 1e150
            _refuse(labels, wrong, f"is too large for label^{self.gain:g}", 'use gain="linear" or smaller grades')

    def gains(self, labels: Array) -> Array:
        if self.gain == "linear":
            return labels
        gains: Array = np.exp2(labels) - 1.0 if isinstance(self.gain, str) else labels**self.gain
        return gains

    def discounts(self, positions: int) -> Array:
        return _logarithmic(positions)


@dataclasses.dataclass(frozen=True)
class NDCG(DCG):
    """Normalised discounted cumulative gain: DCG@k divided by the largest DCG@k that the query allows, to the power `power`.

    At power 1 it is NDCG, in which all queries count alike; at 0 it is DCG, in which queries with more to gain count more.
    Values between 0 and 1 are for training. Reference: Järvelin & Kekäläinen, "Cumulated gain-based evaluation of IR
    techniques", TOIS 2002.
    """

    normaliser = "ideal"

    power: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("power", self.power, 0, 1, hint="1 is NDCG, 0 is DCG")


@dataclasses.dataclass(frozen=True)
class ERR(Metric):
    """Expected reciprocal rank: ``sum_i g_i prod_{l<i} (1 - g_l) / (i + 1)``, ``g = (2^r - 1) / 2^max_grade``.

    Labels run from 0 to `max_grade`. Reference: Chapelle et al., "Expected reciprocal rank for graded relevance", CIKM 2009.
    """

    factor = CASCADE

    max_grade: float = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("max_grade", self.max_grade, 0, 50, open_low=True, hint="it is the largest grade there is")

    def check(self, labels: Array) -> None:
        remedy = f"name the largest grade there is, as in ERR(max_grade={labels.max(initial=0):g})"
        _refuse(labels, labels > self.max_grade, f"is above max_grade={self.max_grade:g}", remedy)

    def gains(self, labels: Array) -> Array:
        chance: Array = (np.exp2(labels) - 1.0) / 2.0**self.max_grade
        return chance

    def discounts(self, positions: int) -> Array:
        return np.divide(1.0, np.arange(1, positions + 1))


@dataclasses.dataclass(frozen=True)
class PFound(Metric):
    """The chance that the user finds an answer: ``sum_i decay^i r_i prod_{l<i} (1 - r_l)``, labels r from 0 to 1.

    Reference: Gulin, Karpovich, Raskovalov & Segalovich, "Yandex at ROMIP'2009"; the metric of CatBoost's PFound.
    """

    factor = CASCADE

    decay: float = 0.85

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("decay", self.decay, 0, 1, open_low=True, hint="it is the chance to look one position further")

    def check(self, labels: Array) -> None:
        remedy = "map grades to the chance that a document satisfies the user, for example labels / labels.max()"
        _refuse(labels, labels > 1, "is not a probability, and pfound needs labels from 0 to 1", remedy)

    def discounts(self, positions: int) -> Array:
        return self.decay ** np.arange(positions, dtype=np.float64)


@dataclasses.dataclass(frozen=True)
class _Binary(Metric):
    """A metric of binary relevance: a document is relevant if its label is above `threshold`."""

    threshold: float = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("threshold", self.threshold, 0, hint="a document is relevant if its label is above it")

    def gains(self, labels: Array) -> Array:
        return (labels > self.threshold).astype(np.float64)

    def relevance(self, labels: Array) -> Array:
        return self.gains(labels)


@dataclasses.dataclass(frozen=True)
class BinaryDCG(_Binary):
    """DCG of binary relevance: ``sum_i g_i / log2(i + 2)``, ``g = 1 + grades * label`` for relevant documents, else 0.

    Relevant means label > threshold. It is made to be trained on: with `grades` above 0, better labels count a little more.
    """

    grades: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("grades", self.grades, 0, hint="0 means that all relevant documents gain alike")

    def gains(self, labels: Array) -> Array:
        return super().gains(labels) * (1.0 + self.grades * labels)

    def discounts(self, positions: int) -> Array:
        return _logarithmic(positions)


@dataclasses.dataclass(frozen=True)
class MRR(_Binary):
    """Reciprocal rank of the first relevant document, 0 if none is among the first k.

    Relevant means label > threshold. Reference: Voorhees, "The TREC-8 question answering track report", 1999.
    """

    factor = CASCADE

    def discounts(self, positions: int) -> Array:
        return np.divide(1.0, np.arange(1, positions + 1))


@dataclasses.dataclass(frozen=True)
class Hit(_Binary):
    """1 if a relevant document is among the first k, else 0 (also called success@k). Relevant means label > threshold."""

    factor = CASCADE
    needs_k = True


@dataclasses.dataclass(frozen=True)
class MAP(_Binary):
    """Average precision: ``1/R sum_{i<k} g_i (relevant among the first i + 1) / (i + 1)``, R relevant in the whole query.

    Relevant means label > threshold; R is not limited to k, as in trec_eval's map_cut. Reference: Buckley & Voorhees,
    "Evaluating evaluation measure stability", SIGIR 2000.
    """

    factor = AVERAGE
    normaliser = "relevant"

    def discounts(self, positions: int) -> Array:
        return np.divide(1.0, np.arange(1, positions + 1))


@dataclasses.dataclass(frozen=True)
class Precision(_Binary):
    """How much of the first k is relevant: ``1/k sum_{i<k} g_i``, also for queries with fewer than k documents.

    Relevant means label > threshold.
    """

    needs_k = True

    def discounts(self, positions: int) -> Array:
        return np.full(positions, 1.0 / self.cut)


@dataclasses.dataclass(frozen=True)
class Recall(_Binary):
    """How many of the query's R relevant documents are among the first k: ``1/R sum_{i<k} g_i``.

    Relevant means label > threshold.
    """

    normaliser = "relevant"
    needs_k = True


@dataclasses.dataclass(frozen=True)
class RBP(_Binary):
    """Rank-biased precision: ``(1 - p) sum_i p^i g_i``, p the chance to go on to the next document.

    Relevant means label > threshold. Reference: Moffat & Zobel, "Rank-biased precision for measurement of retrieval
    effectiveness", TOIS 2008.
    """

    p: float = 0.8

    def __init__(self, p: float = 0.8, k: int | None = None, threshold: float = 0) -> None:
        object.__setattr__(self, "p", p)
        object.__setattr__(self, "k", k)
        object.__setattr__(self, "threshold", threshold)
        self.__post_init__()

    def __post_init__(self) -> None:
        super().__post_init__()
        hint = "it is the chance to go on to the next document, below 1"
        check_number("p", self.p, 0, 1 - 2**-53, open_low=True, hint=hint)

    def discounts(self, positions: int) -> Array:
        return (1.0 - self.p) * self.p ** np.arange(positions, dtype=np.float64)


_FACTORS = {"plain": PLAIN, "cascade": CASCADE, "average": AVERAGE}
_TRIED = 1000  # positions at which a function of the position is tried when a metric is defined


@dataclasses.dataclass(frozen=True)
class PositionMetric(Metric):
    """A metric of your own: ``sum_i w_i F_i g_i`` over positions i = 0, 1, ..., with weights w and gains g of your choice.

    It runs in the kernels of the built-in metrics, at the same speed, and works wherever they do; but it has no
    name that could be parsed. It prints as `name`. Functions are compared by identity and pickled by reference, so that only
    those of a module can be pickled.

    Parameters
    ----------
    k
        How many top positions count; None means all, or as many as there are weights.
    weights
        What each position weighs, from the top: numbers, or a function of an array of positions 0, 1, ... They are finite,
        not negative, and never rise: a relevant document is never worth more further down.
    gain
        What a document is worth by its label: ``"linear"`` (the label), ``"exp"`` (2^label - 1), numbers for the grades 0,
        1, ..., or a function of an array of labels. Gains are finite, not negative, and never fall as the label rises.
    rule
        The factor F: ``"plain"``, 1, as in DCG; ``"cascade"``, the product of 1 - g over the documents before, as in ERR,
        with gains from 0 to 1; ``"average"``, 1 + the relevant documents before, as in average precision, with gains 0 or 1.
    normalise
        What the sum is divided by: None; ``"relevant"``, the number of documents with a gain; or, with rule="plain",
        ``"ideal"``, the largest value that the query allows.
    name
        What it prints as, without spaces or colons.

    Examples
    --------
    >>> slots = PositionMetric(weights=[0.5, 0.3, 0.2], gain=[0, 1, 5], name="slots")
    >>> print(slots, 0.5 * slots + NDCG(10))
    slots@3 0.5*slots@3 + ndcg@10
    >>> from stochasticrank_objectives import evaluate
    >>> evaluate(slots, scores=[3, 2, 1], labels=[1, 0, 2], groups=[3])
    1.5
    """

    _: dataclasses.KW_ONLY
    weights: Sequence[float] | Callable[[Array], Any]
    gain: Literal["linear", "exp"] | Sequence[float] | Callable[[Array], Any] = "linear"
    rule: Literal["plain", "cascade", "average"] = "plain"
    normalise: Literal["ideal", "relevant"] | None = None
    name: str = "position"

    def __post_init__(self) -> None:
        if not callable(self.weights):
            object.__setattr__(self, "weights", _numbers("weights", self.weights))
            assert isinstance(self.weights, tuple)
            object.__setattr__(self, "k", len(self.weights) if self.k is None else self.k)
        super().__post_init__()
        if isinstance(self.weights, tuple) and (self.k or 0) > len(self.weights):
            raise ValueError(f"k={self.k}, but there are {len(self.weights)} weights; leave k out or give a weight for each")
        if not isinstance(self.rule, str) or self.rule not in _FACTORS:
            raise ValueError(f'rule must be "plain", "cascade" or "average", got {self.rule!r}')
        if self.normalise not in (None, "ideal", "relevant"):
            raise ValueError(f'normalise must be None, "ideal" or "relevant", got {self.normalise!r}')
        if self.normalise == "ideal" and self.rule != "plain":
            raise ValueError(f'normalise="ideal" goes with rule="plain", got rule={self.rule!r}; use None or "relevant"')
        if not isinstance(self.name, str) or self.name.split() != [self.name] or ":" in self.name:
            raise ValueError(f"name must have no spaces and no colon, got {self.name!r}")
        if isinstance(self.gain, str):
            if self.gain not in ("linear", "exp"):
                raise ValueError(f'gain must be "linear", "exp", numbers or a function, got {self.gain!r}')
        elif not callable(self.gain):
            object.__setattr__(self, "gain", _numbers("gain", self.gain))
            self.check(np.arange(len(self.gain), dtype=np.float64))
        self.discounts(min(self.k or _TRIED, _TRIED))

    @property
    def factor(self) -> int:  # type: ignore[override]
        """The rule as kernels know it."""
        return _FACTORS[self.rule]

    @property
    def normaliser(self) -> str:  # type: ignore[override]
        """What divides, in the words of the built-in metrics."""
        return self.normalise or "none"

    def __str__(self) -> str:
        return self.name + (f"@{self.k}" if self.k else "")

    def check(self, labels: Array) -> None:
        if isinstance(self.gain, tuple):
            wrong = (labels != np.floor(labels)) | (labels >= len(self.gain))
            _refuse(labels, wrong, f"has no gain among those of the grades 0 to {len(self.gain) - 1}", "give more gains")
        if self.gain == "exp":
            _refuse(labels, labels > 500, "is too large for 2^label - 1", 'use gain="linear" or smaller grades')
        grades = np.unique(labels)
        gains = self.gains(grades)
        highest = math.inf if self.rule == "plain" else 1.0
        meaning = {"plain": "", "cascade": ' with rule="cascade" from 0 to 1', "average": ' with rule="average" 0 or 1'}
        wrong = ~(np.isfinite(gains) & (gains >= 0) & (gains <= highest))
        if self.rule == "average":
            wrong |= (gains != 0) & (gains != 1)
        if wrong.any():
            at = int(np.argmax(wrong))
            what = f"gains are finite and not negative,{meaning[self.rule]}".rstrip(",")
            raise ValueError(f"the gain of label {grades[at]:g} is {gains[at]:g}, but {what}")
        if (fall := np.diff(gains) < 0).any():
            at = int(np.argmax(fall))
            raise ValueError(
                f"the gain falls from {gains[at]:g} for label {grades[at]:g} to {gains[at + 1]:g} for label "
                f"{grades[at + 1]:g}; a better label never gains less"
            )

    def gains(self, labels: Array) -> Array:
        if isinstance(self.gain, tuple):
            return np.array(self.gain)[labels.astype(np.int64)]
        if callable(self.gain):
            return _called("gain", self.gain, labels)
        return labels.copy() if self.gain == "linear" else np.exp2(labels) - 1.0

    def discounts(self, positions: int) -> Array:
        if callable(self.weights):
            found = _called("weights", self.weights, np.arange(positions, dtype=np.float64))
        else:
            found = np.array(self.weights[:positions])
        if (wrong := ~(np.isfinite(found) & (found >= 0))).any():
            at = int(np.argmax(wrong))
            raise ValueError(f"weights[{at}] = {found[at]:g}, but a weight is finite and not negative")
        if (rise := np.diff(found) > 0).any():
            at = int(np.argmax(rise))
            raise ValueError(
                f"weights rise from {found[at]:g} at position {at} to {found[at + 1]:g} at the next; a relevant document "
                "may not be worth more further down"
            )
        return found


def _numbers(name: str, values: Any) -> tuple[float, ...]:
    """At least one number, as a tuple, which can be compared and hashed."""
    try:
        array = np.asarray(values)
        if array.ndim != 1 or not len(array) or array.dtype.kind not in "fiub":
            raise ValueError
    except ValueError:
        raise ValueError(f"{name} must be a sequence of numbers or a function, got {values!r}") from None
    return tuple(float(value) for value in array)


def _called(name: str, function: Callable[[Array], Any], argument: Array) -> Array:
    """What a user's function makes of an array: a number for each of its values."""
    found = np.asarray(function(argument.copy()))
    if found.shape != argument.shape or found.dtype.kind not in "fiub":
        raise ValueError(
            f"{name} must turn an array of {len(argument)} numbers into as many, got {found.dtype} of shape {found.shape}; "
            "write it with numpy, or wrap it in numpy.vectorize(..., otypes=[float])"
        )
    return found.astype(np.float64)


@dataclasses.dataclass(frozen=True, repr=False)
class Sum(Metric):
    """A weighted sum of metrics, ``sum_t weight_t M_t``, such as ``0.7*ndcg@10 + 0.3*mrr``.

    Write it as a name or with ``*`` and ``+``. A sum within a sum is taken apart, and terms of the same metric are merged.
    Weights are positive: every metric here rises with the relevance of what stands high, and a sum with a negative weight
    would not. Then no order of ties would be the worst for all terms, which is what `mu` smooths towards.

    The relevance by which `mu` shifts is the label. Where all terms are binary, it is how many of them take the document for
    relevant. In one gradient, all terms share the noise and the sorted list.

    >>> 0.7 * NDCG(10) + 0.3 * MRR() == parse_metric("0.7*ndcg@10 + 0.3*mrr")
    True
    >>> print(2 * (NDCG(5) + MRR()) + MRR())
    2*ndcg@5 + 3*mrr
    """

    terms: Terms
    k: int | None = dataclasses.field(default=None, init=False, compare=False)

    def __post_init__(self) -> None:
        merged = _merged(self.terms)
        if not merged:
            raise ValueError("a sum has at least one term, a pair of weight and metric; got none")
        if len(merged) == 1 and merged[0][0] == 1:
            raise ValueError(f"a sum of one metric with weight 1 is that metric: use {merged[0][1]!r}")
        object.__setattr__(self, "terms", merged)
        for _, metric in merged:
            if metric.family != "ranked":
                raise ValueError(f"{metric} cannot be part of a sum, whose terms weigh positions of one ranked list")
        cuts = [metric.k for _, metric in merged]
        object.__setattr__(self, "k", None if None in cuts else max(cut or 0 for cut in cuts))

    @property
    def signed(self) -> bool:  # type: ignore[override]
        """Whether all terms allow negative labels."""
        return all(metric.signed for _, metric in self.terms)

    def parts(self) -> Terms:
        return self.terms

    def check(self, labels: Array) -> None:
        for _, metric in self.terms:
            metric.check(labels)

    def relevance(self, labels: Array) -> Array:
        if not all(isinstance(getattr(metric, "metric", metric), _Binary) for _, metric in self.terms):  # also if `Labelled`
            return labels
        counts: Array = np.sum([metric.relevance(labels) > 0 for _, metric in self.terms], axis=0, dtype=np.float64)
        return counts

    def gains(self, labels: Array) -> Array:
        raise TypeError(f"the terms of {self} have gains of their own; see parts()")

    def discounts(self, positions: int) -> Array:
        raise TypeError(f"the terms of {self} have discounts of their own; see parts()")

    def __str__(self) -> str:
        return " + ".join(("" if weight == 1 else f"{_number(weight)}*") + str(metric) for weight, metric in self.terms)

    def __repr__(self) -> str:
        return " + ".join(("" if weight == 1 else f"{_number(weight)} * ") + repr(metric) for weight, metric in self.terms)


@dataclasses.dataclass(frozen=True, repr=False)
class Labelled(Metric):
    """A metric of another column of labels than the first, such as ``price.dcg@10``: ``Labelled("price", DCG(10))``.

    With it a sum trades off several things that are known of each document: ``0.7*ndcg@10 + 0.3*price.dcg@10`` is relevance
    against revenue. Labels are then given as columns, a mapping of names or a DataFrame. Terms that name no column take the
    first one; in an adapter that is the booster's own label, and `adapters.label_columns` gives the others.

    All terms share the noise and the sorted list. Terms of different columns may disagree about which of two documents is
    better. The relevance by which `mu` shifts is then the sum over the terms of weight times relevance, each relevance in
    units of its largest in the data. Ties in the worst order are those with less of it first. That is the worst for the
    terms together, as far as one number per document can tell, not for each of them. So a sum over columns is in the
    paper's class R0; it is in R1 where the columns agree.

    Parameters
    ----------
    column
        The name of the column: letters, digits and _, not beginning with a digit.
    metric
        The metric of that column, by name or as a metric; not a sum: each of its terms can name its own column.

    Examples
    --------
    >>> from stochasticrank_objectives import evaluate
    >>> metric = 0.5 * Hit(1) + Labelled("price", DCG(2, gain="linear"))
    >>> print(metric)
    0.5*hit@1 + price.dcg@2:gain=linear
    >>> evaluate(metric, scores=[2, 1], labels={"click": [1, 0], "price": [30, 0]}, groups=[2])
    30.5
    """

    column: str
    metric: Metric
    k: int | None = dataclasses.field(default=None, init=False, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.column, str) or not _WORD.fullmatch(self.column):
            raise ValueError(f"column must be one word of letters, digits and _, got {self.column!r}")
        metric = parse_metric(self.metric)
        if isinstance(metric, Sum) or [column for _, column, _ in metric.components()] != [None]:
            raise ValueError(f"a column goes with a metric of one column, got {str(metric)!r}; name it at each of its terms")
        if metric.family != "ranked" or metric.constant or metric.signed:
            raise ValueError(f"a column goes with a metric that weighs positions of a ranked list, and {metric} does not")
        object.__setattr__(self, "metric", metric)
        object.__setattr__(self, "k", metric.k)

    def components(self) -> tuple[tuple[float, str | None, Metric], ...]:
        return ((1.0, self.column, self.metric),)

    def check(self, labels: Array) -> None:
        self.metric.check(labels)

    def gains(self, labels: Array) -> Array:
        return self.metric.gains(labels)

    def relevance(self, labels: Array) -> Array:
        return self.metric.relevance(labels)

    def discounts(self, positions: int) -> Array:
        return self.metric.discounts(positions)

    def __str__(self) -> str:
        return f"{self.column}.{self.metric}"

    def __repr__(self) -> str:
        return f"Labelled({self.column!r}, {self.metric!r})"


def _number(value: float) -> str:
    return repr(value).removesuffix(".0")


def _merged(terms: Iterable[tuple[float, Metric]]) -> Terms:
    """Terms with positive weights, none of them a sum, each metric once, in the order in which they come."""
    weights: dict[Metric, float] = {}
    for term in terms:
        try:
            weight, metric = term
        except (TypeError, ValueError):
            raise ValueError(f"a term of a sum is a pair of weight and metric, got {term!r}") from None
        if not isinstance(metric, Metric):
            raise ValueError(f"a term of a sum is a pair of weight and metric, got {term!r}")
        hint = "a metric with a negative weight would reward worse rankings"
        outer = check_number(f"weight of {metric}", weight, 0, open_low=True, hint=hint)
        for inner, part in metric.parts():
            weights[part] = weights.get(part, 0.0) + outer * inner
    for part, weight in weights.items():
        check_number(f"weight of {part}", weight, 0, open_low=True)
    return tuple((weight, metric) for metric, weight in weights.items())


def _added(terms: Iterable[tuple[float, Metric]]) -> Metric:
    """The sum of the terms, or the metric itself if there is one, of weight 1."""
    merged = _merged(terms)
    return merged[0][1] if len(merged) == 1 and merged[0][0] == 1 else Sum(merged)


_METRICS: dict[str, Callable[..., Metric]] = {
    kind.__name__.lower(): kind for kind in (NDCG, DCG, BinaryDCG, ERR, MRR, MAP, PFound, RBP, Precision, Recall, Hit)
}


_WORDS = ("gain", "discount")  # options whose values need not be numbers
_REGISTERED: dict[str, Metric] = {}
"""Metrics that users have defined, by their names in small letters."""

_WORD = re.compile(r"[^\W\d]\w*")  # the name of a column, or of a metric that a user defines
_PLUS = re.compile(r"(?<!=)(?<![0-9.][eE])\+")  # between terms, not a sign or part of a number such as 1e+3
_MINUS = re.compile(r"[^\s=@*+eE]\s*-")  # likewise


def parse_metric(name: str | Metric) -> Metric:
    """The metric that a name means: ``name``, ``name@k`` or ``name@k:option=value:...``; a metric is returned as it is.

    Names with weights, such as ``"0.7*ndcg@10 + 0.3*mrr"``, are a `Sum`; one with a column before it, such as
    ``"price.dcg@10"``, is `Labelled`.

    >>> parse_metric("ndcg@10")
    NDCG(k=10, gain='exp', power=1.0)
    >>> str(parse_metric("NDCG@5:gain=linear"))
    'ndcg@5:gain=linear'
    >>> str(parse_metric("0.7*ndcg@10+0.3*mrr"))
    '0.7*ndcg@10 + 0.3*mrr'
    """
    if isinstance(name, Metric):
        return name
    if not isinstance(name, str):
        raise ValueError(f'metric must be a name such as "ndcg@10" or a metric such as NDCG(k=10), got {name!r}')
    if _MINUS.search(name):
        raise ValueError(f"metric {name!r}: metrics can be added, not subtracted, which would reward worse rankings")
    terms = _PLUS.split(name)
    if len(terms) == 1 and "*" not in name:
        return _parse_one(name)
    return _added([_parse_term(term, name) for term in terms])


def _parse_term(term: str, whole: str) -> tuple[float, Metric]:
    weight, times, name = term.rpartition("*")
    if not name.strip():
        missing = "a metric is missing after *" if times else "a metric is missing beside +"
        raise ValueError(f'metric {whole!r}: {missing}; write for example "0.7*ndcg@10 + 0.3*mrr"')
    try:
        factor = float(weight) if times else 1.0
    except ValueError:
        wrong = weight.strip()
        raise ValueError(f"metric {whole!r}: before * stands a number, as in 0.7*ndcg@10, got {wrong!r}") from None
    return factor, _parse_one(name)


def _parse_one(name: str) -> Metric:
    head, *options = name.strip().split(":")
    column, dot, stem = head.partition(".")
    if dot and _WORD.fullmatch(column.strip()):
        return Labelled(column.strip(), _parse_one(":".join([stem, *options])))
    stem, at, cut = head.partition("@")
    own = _REGISTERED.get(stem.strip().lower())
    kind = _METRICS.get(stem.strip().lower()) if own is None else functools.partial(dataclasses.replace, own)
    if kind is None:
        known_names = [*_METRICS, *_REGISTERED]
        near = difflib.get_close_matches(stem.strip().lower(), known_names, n=1, cutoff=0.4)
        hint = f'did you mean "{near[0]}{at}{cut}"? ' if near else ""
        raise ValueError(f"unknown metric {name!r}: {hint}known are {', '.join(known_names)}")
    arguments: dict[str, Any] = {}
    if at:
        try:
            arguments["k"] = int(cut)
        except ValueError:
            raise ValueError(f"metric {name!r}: k must be a whole number of at least 1, got {cut!r}") from None
    fields = dataclasses.fields(kind) if own is None else ()  # type: ignore[arg-type]
    given = {field.name for field in fields if field.init}
    if own is None and at and "k" not in given:
        raise ValueError(f"metric {name!r}: {stem} counts all documents; write it without a cut")
    known = given - {"k"}
    for option in options:
        key, equals, text = (part.strip() for part in option.partition("="))
        if not equals or key not in known:
            allowed = ", ".join(sorted(known)) or "none"
            raise ValueError(f"metric {name!r}: unknown option {option!r}; options of {stem} are: {allowed}")
        if key == "topics":
            arguments[key] = tuple(topic.strip() for topic in text.split("|"))
        else:
            try:
                arguments[key] = float(text) if not text.lstrip("+-").isdigit() else int(text)
            except ValueError:
                if key not in _WORDS:
                    raise ValueError(f"metric {name!r}: {key} must be a number, got {text!r}") from None
                arguments[key] = text
    return kind(**arguments)
