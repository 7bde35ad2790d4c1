"""Metrics that are functions of the ranked list: `metric` makes a `FunctionMetric` of any function."""

from __future__ import annotations

import dataclasses
import importlib
import pickle
from collections.abc import Callable
from typing import Any, ClassVar, overload

import numpy as np
from numpy.typing import ArrayLike

from ._constants import Array
from .metrics import _METRICS, _REGISTERED, _WORD, Metric

Function = Callable[[Array], Any]

_SIZES = (1, 2, 3, 5, 10, 30, 100, 1000)  # of the lists on which a function is tried
_TOP = 4  # the largest grade in them


@dataclasses.dataclass(frozen=True, repr=False)
class FunctionMetric(Metric):
    """A metric that is a function of the query's labels in ranked order, the first for the top; made by `metric`.

    Every such metric depends on nothing but the order, so it is scale-free and does not change when all scores of a query
    move together. Its values are bounded, which is tried when it is defined. So it is in the paper's class R0. It is in R1,
    the class for which `mu` > 0 smooths consistently, if a more relevant document is never worth more further down:
    `testing.check_metric` tries that.

    Called with the labels of a ranked list, it gives the value of that list. Two are equal if they have the same function,
    name and cut. It is pickled as a reference to its function, which must be found in a module. The relevance by which `mu`
    shifts is the label; ties in the worst order are those with the lower labels first.

    Parameters
    ----------
    k
        How many top positions the function sees; None means all of them.
    function
        The function.
    name
        What it prints as, and is parsed from.
    """

    listed: ClassVar[bool] = True

    _: dataclasses.KW_ONLY
    function: Function
    name: str

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.name, str) or not _WORD.fullmatch(self.name):
            raise ValueError(f"name must be one word of letters, digits and _ that begins with a letter, got {self.name!r}")
        if self.name.lower() in _METRICS:
            raise ValueError(f"name: {self.name!r} is the name of a built-in metric; choose another")

    def __call__(self, relevance: ArrayLike) -> float:
        """The value of one ranked list of labels."""
        return float(self.function(np.array(relevance, np.float64)[: self.k]))

    def __str__(self) -> str:
        return self.name + (f"@{self.k}" if self.k else "")

    def __repr__(self) -> str:
        return f"parse_metric({str(self)!r})"

    def __copy__(self) -> FunctionMetric:
        return self

    def __deepcopy__(self, memo: Any) -> FunctionMetric:
        return self

    def __reduce__(self) -> Any:
        module, path = _place(self.function)
        if "<" in path or _found(module, path) not in (self.function, _REGISTERED.get(self.name.lower())):
            raise pickle.PicklingError(
                f"{self} cannot be pickled: its function {path} is not found by that name in the module {module}; define it "
                "with def at the top of a module"
            )
        return _loaded, (module, path, self.name, self.k)


def _found(module: str, path: str) -> Any:
    try:
        found: Any = importlib.import_module(module)
        for name in path.split("."):
            found = getattr(found, name)
    except (ImportError, AttributeError):
        return None
    return found


def _loaded(module: str, path: str, name: str, k: int | None) -> FunctionMetric:
    """The metric of a function of a module, which has been put in the function's place if `metric` was used with @."""
    found = _found(module, path)
    function = found.function if isinstance(found, FunctionMetric) else found
    if not callable(function):
        raise pickle.UnpicklingError(f"the metric {name} needs the function {path} of {module}, which has none")
    return FunctionMetric(k, function=function, name=name)


@overload
def metric(function: Function, *, name: str | None = ..., k: int | None = ...) -> FunctionMetric: ...
@overload
def metric(function: None = ..., *, name: str | None = ..., k: int | None = ...) -> Callable[[Function], FunctionMetric]: ...
def metric(
    function: Function | None = None, *, name: str | None = None, k: int | None = None
) -> FunctionMetric | Callable[[Function], FunctionMetric]:
    """Make a metric of any function of the ranked list, to train on and to report wherever a built-in one can be.

    The function is given the labels of a query's documents in ranked order, the top first, as an array of float64, and
    returns a number; more is better. It must depend on nothing else, leave its argument as it is, and work for lists of any
    length from 1 on. It is tried on random lists of grades 0 to 4 when it is defined, and refused with a ValueError if it
    fails, returns NaN, infinity or anything but one number, changes its argument, answers the same list differently, or
    grows faster than the length of the list, which no bound allows.

    The gradient is found by re-evaluation: every document is moved through the positions that the function sees, n documents
    through k positions in a query. With `k` this is far cheaper. Where numba can compile the function, it does, when data
    are first bound; where it cannot, a RuntimeWarning says what plain Python costs. `PositionMetric` runs in the kernels of
    the built-in metrics, faster still, if the metric is a sum over positions.

    The metric is known by its name from then on: ``parse_metric("name")``, ``"name@5"`` for the first 5 positions,
    ``"0.7*ndcg@10 + 0.3*name"``.

    Parameters
    ----------
    function
        The function; use it as a decorator, with or without the parameters below.
    name
        By default the name of the function. Names of built-in metrics are refused, and so is one that another function has.
    k
        How many top positions it sees: longer lists are cut. None means all of them.

    Examples
    --------
    >>> @metric(k=3)
    ... def all_good(relevance):
    ...     return 1.0 if relevance.min() >= 2 else 0.0
    >>> print(all_good, all_good([2, 3, 4, 0]), all_good([2, 0, 4, 3]))
    all_good@3 1.0 0.0
    >>> from stochasticrank_objectives import evaluate
    >>> evaluate("all_good@2", scores=[3, 2, 1], labels=[2, 4, 0], groups=[3])
    1.0
    """
    if function is None:
        return lambda given: metric(given, name=name, k=k)
    if not callable(function):
        raise ValueError(f"metric is for a function of the ranked labels, got {function!r}")
    if isinstance(function, FunctionMetric):
        raise ValueError(f"{function} is a metric already; give metric the function itself")
    made = FunctionMetric(k, function=function, name=getattr(function, "__name__", "") if name is None else name)
    known = _REGISTERED.get(made.name.lower())
    if isinstance(known, FunctionMetric) and _place(known.function) != _place(function):
        raise ValueError(f"name: {made.name!r} is the metric of {'.'.join(_place(known.function))}; choose another")
    _try(made)
    _REGISTERED[made.name.lower()] = made
    return made


def _place(function: Any) -> tuple[str, str]:
    return str(getattr(function, "__module__", "")), str(getattr(function, "__qualname__", function))


# ------------------------------------------------------------ tried when defined


def tried_lists(k: int | None) -> list[Array]:
    """Ranked lists of all kinds, of all sizes that a function with this cut can see."""
    rng = np.random.default_rng(0)
    lists = []
    for size in sorted({min(size, k or size) for size in _SIZES}):
        random = rng.integers(0, _TOP + 1, size)
        kinds = [np.zeros(size), np.full(size, _TOP), random, np.sort(random), np.sort(random)[::-1], random > 2]
        lists += [np.ascontiguousarray(kind, np.float64) for kind in kinds]
    return lists


def _try(made: FunctionMetric) -> None:
    """Refuse a function that cannot be a metric."""
    lists = tried_lists(made.k)
    values = np.array([_value(made, ranked) for ranked in lists])
    for ranked, value in zip(lists, values, strict=True):
        if _value(made, ranked) != value:
            raise ValueError(f"{made.name} is not deterministic: it answers {_shown(ranked)} with different values")
    sizes = np.array([len(ranked) for ranked in lists])
    shares = [np.abs(values[sizes == size]).max() / size for size in np.unique(sizes)]
    if len(shares) == len(_SIZES) and shares[-1] > 2 * max(shares[:-1]):
        raise ValueError(
            f"{made.name} is not bounded: it grows faster than its list, to {np.abs(values).max():g} for one of "
            f"{_SIZES[-1]} labels; divide by what it can be at most, or set k"
        )


def _value(made: FunctionMetric, ranked: Array) -> float:
    given = ranked.copy()
    try:
        with np.errstate(all="ignore"):
            value = made.function(given)
    except Exception as error:
        raise ValueError(f"{made.name} fails on {_shown(ranked)}: {type(error).__name__}: {error}") from error
    if not np.array_equal(given, ranked):
        raise ValueError(f"{made.name} changes its argument; let it work on a copy: relevance = relevance.copy()")
    array = np.asarray(value)
    if array.ndim != 0 or array.dtype.kind not in "fiub":
        raise ValueError(f"{made.name} must return one number, but for {_shown(ranked)} it returns {value!r}")
    if not np.isfinite(array):
        raise ValueError(f"{made.name} must be finite, but for {_shown(ranked)} it is {float(array)}")
    return float(array)


def _shown(ranked: Array) -> str:
    head = ", ".join(f"{label:g}" for label in ranked[:6])
    return f"[{head}{', ...' if len(ranked) > 6 else ''}]" + (f" ({len(ranked)} labels)" if len(ranked) > 6 else "")


def defining_modules() -> list[str]:
    """The modules in which metrics have been defined: another process that imports them knows the same names."""
    functions = (getattr(known, "function", None) for known in _REGISTERED.values())
    return sorted({function.__module__ for function in functions if function is not None} - {"__main__"})
