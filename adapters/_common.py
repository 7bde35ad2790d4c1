"""What the adapters share: the optional import, the loss and the metric that they are given, and what is bound to data."""

from __future__ import annotations

import dataclasses
import importlib
import math
import sys
import weakref
from collections.abc import Callable
from types import FrameType, ModuleType
from typing import Any, ClassVar, Generic, TypeVar

from numpy.typing import ArrayLike

from stochasticrank_objectives._data import Labels
from stochasticrank_objectives._threads import check, default_threads
from stochasticrank_objectives.evaluation import Empty, Evaluation, Ties, bind_evaluation
from stochasticrank_objectives.losses import Loss
from stochasticrank_objectives.metrics import Metric, parse_metric
from stochasticrank_objectives.recommended import recommended

from .columns import blank_row

Bound = TypeVar("Bound")


_EXTRAS = {
    "pandas": "sklearn",
    "distributed": "dask",
    "dask.dataframe": "dask",
    "dask.array": "dask",
    "xgboost.dask": "dask",
}


def require(module: str) -> ModuleType:
    """Import a booster, or say which extra installs it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        install = f'pip install "stochasticrank-objectives[{_EXTRAS.get(module, module)}]"'
        raise ImportError(f"this adapter needs {module}, which is not installed: {install}") from error


# ------------------------------------------------------------ what is trained, and what is reported


def as_loss(
    given: str | Metric | Loss, keywords: dict[str, Any], *, booster: str, train_on: str | Metric | None = None
) -> Loss:
    """A loss as it is, or `recommended` for a metric, with the fields that the keywords name changed."""
    if isinstance(given, (str, Metric)):
        loss = recommended(given, booster=booster, train_on=train_on)
        fields = [field.name for field in dataclasses.fields(loss) if field.init and field.name != "metric"]
        if unknown := [name for name in keywords if name not in fields]:
            raise ValueError(f"{', '.join(unknown)}: {type(loss).__name__} has no such field; it has {', '.join(fields)}")
        return dataclasses.replace(loss, **keywords)
    if not callable(getattr(given, "bind", None)):
        raise ValueError(
            f'loss must be a metric such as "ndcg@10" or a loss such as StochasticRank("ndcg@10"), got {given!r}'
        )
    if train_on is not None:
        raise ValueError(f"train_on goes with a metric's name; {given} says itself what it trains on")
    if keywords:
        raise ValueError(f"{', '.join(keywords)}: set these on the loss itself, not beside it")
    return given


def own_metric(loss: Any) -> Metric | None:
    """The metric of a loss, or of the one that it wraps, as `SGLB` does; None if there is none."""
    while loss is not None:
        if (metric := getattr(loss, "metric", None)) is not None:
            return parse_metric(metric)
        loss = getattr(loss, "loss", None)
    return None


def reported_metric(given: Any, metric: str | Metric | None = None) -> Metric:
    """What an adapter that is given a metric or a loss reports: the metric beside it, else the name, else the loss's own."""
    found = metric if metric is not None else given if isinstance(given, (str, Metric)) else own_metric(given)
    if found is None:
        raise ValueError(f'{given} has no metric of its own; name the one to report, such as metric="ndcg@10"')
    return parse_metric(found)


class Objective:
    """What objectives are made of: the loss to train with, and the metric to report, which need not be the loss's own."""

    _booster: ClassVar[str]

    def __init__(
        self,
        loss: str | Metric | Loss,
        *,
        metric: str | Metric | None = None,
        train_on: str | Metric | None = None,
        **keywords: Any,
    ) -> None:
        self.loss = as_loss(loss, keywords, booster=self._booster, train_on=train_on)
        named = metric is not None or isinstance(loss, (str, Metric))
        self.metric = reported_metric(loss, metric) if named else own_metric(loss)

    def __repr__(self) -> str:
        metric = "" if self.metric == own_metric(self.loss) else f", metric={str(self.metric)!r}"
        return f"{type(self).__name__}({self.loss}{metric})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, type(self)):
            return NotImplemented
        return (self.loss, self.metric) == (other.loss, other.metric)

    def __hash__(self) -> int:
        return hash((self.loss, self.metric))


class ReportedMetric:
    """What metrics of boosters are made of: a metric, what counts as what in it, and the name that it is reported under."""

    _booster: ClassVar[str]

    def __init__(
        self,
        metric: str | Metric,
        *,
        ties: Ties = "worst",
        empty: Empty = 0.0,
        name: str | None = None,
        threads: int | None = None,
    ) -> None:
        self.metric = parse_metric(metric)
        self.ties: Ties = ties
        self.empty: Empty = empty
        self.name = self._default_name() if name is None else name
        self.threads = threads
        self._bind(blank_row(self.metric), [1])  # to complain now, not in training

    def _default_name(self) -> str:
        """A sum has spaces around its +, at which boosters may split their reports."""
        return str(self.metric).replace(" ", "")

    def __repr__(self) -> str:
        name = "" if self.name == self._default_name() else f", name={self.name!r}"
        return f"{type(self).__name__}({str(self.metric)!r}, ties={self.ties!r}, empty={self.empty!r}{name})"

    def _compared(self) -> tuple[Any, ...]:
        return self._booster, self.metric, self.ties, self.empty, self.name, self.threads

    def __eq__(self, other: object) -> bool:
        return self._compared() == other._compared() if isinstance(other, ReportedMetric) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._compared())

    def _bind(
        self,
        labels: Labels,
        groups: ArrayLike | None = None,
        *,
        qid: ArrayLike | None = None,
        weights: ArrayLike | None = None,
        threads: int | None = None,
    ) -> Evaluation:
        """The metric of these data; `threads` applies if none were given to the metric itself."""
        return bind_evaluation(
            self.metric, labels, groups, qid=qid, weights=weights, ties=self.ties, empty=self.empty,
            threads=threads if self.threads is None else self.threads,
        )  # fmt: skip


# ------------------------------------------------------------ what is bound to data


class Bindings(Generic[Bound]):
    """What was bound to some objects together, such as a data set and the Booster that trains on it, while all of them live.

    They are compared by identity. Copies and pickles start empty.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[int, ...], tuple[Bound, list[Any]]] = {}

    def __len__(self) -> int:
        return len(self._known)

    def get(self, objects: tuple[Any, ...], bind: Callable[[], Bound]) -> Bound:
        """What is bound to these objects; bound now if it is not yet."""
        known, key = self._known, tuple(map(id, objects))
        if key not in known:
            bound = bind()

            def held(one: Any) -> Any:
                try:
                    return weakref.ref(one, lambda _: known.pop(key, None))
                except TypeError:  # lists and None: kept, so that no other object can get their identity
                    return one

            known[key] = bound, [held(one) for one in objects]
        return known[key][0]

    def __reduce__(self) -> tuple[type[Bindings[Bound]], tuple[()]]:
        return Bindings, ()


# ------------------------------------------------------------ the booster


def calling(kind: type) -> Any:
    """The object of this kind whose method is the nearest such caller; None if there is none.

    XGBoost and LightGBM tell an objective neither which Booster it serves nor how far its training is. The Booster knows,
    and it is always among the callers. Counting calls instead goes wrong wherever a training is interrupted, goes on from
    another model, or shares an objective or a data set with another.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        caller = frame.f_locals.get("self")
        if isinstance(caller, kind):
            return caller
        frame = frame.f_back
    return None


def check_learning_rate(loss: Any, rate: float, booster: str) -> None:
    """SGLB measures noise and shrinkage in the booster's learning rate: refuse another. Boosters may keep it as float32."""
    wanted = getattr(loss, "learning_rate", None)
    if wanted is not None and not math.isclose(rate, wanted, rel_tol=1e-5):
        raise ValueError(
            f"learning_rate={wanted:g} of SGLB is not {booster}'s, {rate:g}; set both to the same value, and keep it during "
            "the training"
        )


def threads_beside(given: Any) -> int | None:
    """Our threads beside a booster that was told this number: no more. None, our default, if it was told none."""
    if given is None or int(given) < 1:  # 0 and -1 mean all processors
        return None
    return min(check(int(given)), default_threads())


def limit_threads(bound: Any, threads: int | None) -> None:
    """What is bound uses so many threads, unless the loss was given a number itself."""
    if hasattr(bound, "threads"):
        bound.threads = threads
