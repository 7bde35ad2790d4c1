"""What the adapters share: the optional import, and the loss that an objective was given."""

from __future__ import annotations

import dataclasses
import importlib
import sys
import weakref
from collections.abc import Callable
from types import FrameType, ModuleType
from typing import Any, Generic, TypeVar

from stochasticrank_objectives.losses import Loss
from stochasticrank_objectives.metrics import Metric
from stochasticrank_objectives.recommended import recommended

Bound = TypeVar("Bound")


class Bindings(Generic[Bound]):
    """What was bound to each data set, for as long as the data set lives; copies and pickles start empty."""

    def __init__(self) -> None:
        self._bound: weakref.WeakKeyDictionary[Any, Bound] = weakref.WeakKeyDictionary()

    def get(self, data: Any, bind: Callable[[], Bound], *, fresh: bool = False) -> Bound:
        """What is bound to this data set; bound now if it is not yet, or `fresh` is asked for."""
        bound = None if fresh else self._bound.get(data)
        if bound is None:
            bound = self._bound[data] = bind()
        return bound

    def __reduce__(self) -> tuple[type[Bindings[Bound]], tuple[()]]:
        return Bindings, ()


def require(module: str) -> ModuleType:
    """Import a booster, or say which extra installs it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        install = f'pip install "stochasticrank-objectives[{module}]"'
        raise ImportError(f"this adapter needs {module}, which is not installed: {install}") from error


def as_loss(loss: str | Metric | Loss, keywords: dict[str, Any], booster: str) -> Loss:
    """A loss as it is, or `recommended` for a metric, with the fields that the keywords name changed."""
    if isinstance(loss, (str, Metric)):
        return dataclasses.replace(recommended(loss, booster=booster), **keywords)
    if not callable(getattr(loss, "bind", None)):
        raise ValueError(
            f'loss must be a metric such as "ndcg@10" or a loss such as StochasticRank("ndcg@10"), got {loss!r}'
        )
    if keywords:
        raise ValueError(f"{', '.join(keywords)}: set these on the loss itself, not beside it")
    return loss


def calling(kind: type) -> Any:
    """The object of this kind of which a method is among the callers, the nearest; None if there is none.

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
