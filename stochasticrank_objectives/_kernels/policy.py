"""How every kernel is compiled: one place for flags, caching and the fallback when no folder can hold the cache.

``kernel`` marks the few functions that Python calls; they are compiled on first use and cached on disk. ``inner``
marks what only kernels call: it is compiled with its callers and never cached by itself. ``inline`` marks small ``inner``
functions that must become part of the loop around them for it to vectorise. ``reduction`` is an ``inner`` whose sums may be
reordered, to the same end. ``spliced`` marks steps of a kernel that become part of its text before it is compiled: a step
takes whole named tuples, and handing over so many arrays would take longer than a short query. An argument that is a plain
constant has a type of its own, for which numba compiles a function once more: where that must not be, it is written
np.int64(0). ``around`` marks loops around functions that users write. With NUMBA_DISABLE_JIT=1 all of this is plain Python,
slow and easy to step through.
"""

from __future__ import annotations

import functools
import itertools
import pathlib
import warnings
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from numba.core import types
from numba.extending import intrinsic
from numpy.typing import NDArray

_LINE = 8  # float64 in a cache line

# Elementwise code has no reassociation and no finite-math flags: rounding tricks rely on the order of operations, and
# the result must not depend on how a loop is split among threads. Contraction to fused multiply-add keeps both.
# References to arrays are not counted, which would take longer than many a loop here: nothing can allocate, callers bring
# all arrays. And functions are inlined only where we say so: else what an inlined one calls would be inlined too.
FLAGS: dict[str, Any] = {
    "nogil": True,
    "error_model": "numpy",
    "fastmath": {"contract", "nsz"},
    "_nrt": False,
    "forceinline": False,
}


# What only other kernels call needs no entrance from Python or C, which would take as long to compile as the function.
_BARE: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}


def inner(function: Callable[..., Any]) -> Any:
    """Compile a function that other kernels call."""
    return numba.njit(**FLAGS, **_BARE)(function)


def inline(function: Callable[..., Any]) -> Any:
    """Compile a small function into every place that calls it."""
    return numba.njit(**{**FLAGS, **_BARE, "forceinline": True})(function)


def spliced(function: Callable[..., Any]) -> Any:
    """Part of a kernel's own text, put in before it is compiled."""
    return numba.njit(**FLAGS, inline="always")(function)


def reduction(function: Callable[..., Any]) -> Any:
    """Compile a sum over a whole query; its order is fixed by the compiler, never by threads."""
    return numba.njit(**{**FLAGS, **_BARE, "fastmath": {"contract", "nsz", "reassoc"}})(function)


def around(function: Callable[..., Any]) -> Any:
    """A loop around a function that a user wrote: compiled once for each, kept only as long as the process lives.

    Users' functions may allocate, so references are counted. With `plain` it runs around one that cannot be compiled.
    """
    return numba.njit(nogil=True, error_model="numpy")(function)


def compiled(function: Any) -> Any:
    """A user's function, for `around`; compiled when it is first called, which may fail with a `NumbaError`."""
    return function if hasattr(function, "py_func") else numba.njit(nogil=True, error_model="numpy")(function)


def plain(function: Any) -> Any:
    """The Python function that was compiled, to be called from Python."""
    return getattr(function, "py_func", function)


if numba.config.DISABLE_JIT:

    def wide() -> None:
        """Nothing is vectorised where nothing is compiled."""

else:

    @intrinsic
    def wide(typing_context: Any) -> Any:
        """Called in a function: vectorise its loops with 512 bits where the processor has them; LLVM takes 256 by itself."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            # llvmlite's own `add` knows only attributes without a value
            set.add(builder.function.attributes, '"prefer-vector-width"="512"')
            return context.get_dummy_value()

        return types.void(), generate


def kernel(function: Callable[..., Any]) -> Any:
    """Compile an entry point, cached on disk wherever numba finds a folder it can write to."""
    try:
        compiled = numba.njit(cache=True, no_cfunc_wrapper=True, **FLAGS)(function)
    except RuntimeError:  # "no locator available": nothing is writable, so compile anew in each process
        _say_that_nothing_is_kept()
        return numba.njit(no_cfunc_wrapper=True, **FLAGS)(function)
    # Numba compiles anew when the file of the entry point has changed, but what it calls may be in any of ours.
    file: Any = getattr(getattr(compiled, "_cache", None), "_cache_file", None)
    if hasattr(file, "_source_stamp"):
        file._source_stamp = _stamp()
    return compiled


@functools.cache
def _say_that_nothing_is_kept() -> None:
    """Once per process."""
    warnings.warn(
        "stochasticrank_objectives found no folder to keep compiled code in, so every process compiles it again, which "
        "takes seconds; set the environment variable NUMBA_CACHE_DIR to a folder that can be written to",
        RuntimeWarning,
        stacklevel=2,
    )


def aligned(*lengths: int) -> list[NDArray[np.float64]]:
    """Arrays for a kernel to work in, each at the start of a cache line, which wide vectors need to be fast."""
    starts = [0, *itertools.accumulate((length + _LINE - 1) // _LINE * _LINE for length in lengths)]
    whole = np.empty(starts[-1] + _LINE)
    whole = whole[-(whole.__array_interface__["data"][0] // whole.itemsize) % _LINE :]
    return [whole[start : start + length] for start, length in zip(starts, lengths, strict=False)]


def table(rows: int, length: int) -> NDArray[np.float64]:
    """Such arrays of one length, as the rows of one: kernels take it as a single argument, which costs less."""
    length = (length + _LINE - 1) // _LINE * _LINE
    return aligned(rows * length)[0].reshape(rows, length)


@functools.cache
def _stamp() -> tuple[tuple[str, float, int], ...]:
    """Changes when any kernel's file does."""
    here = pathlib.Path(__file__).parent
    files = [*sorted(here.glob("*.py")), here.parent / "_constants.py"]
    return tuple((file.name, file.stat().st_mtime, file.stat().st_size) for file in files)
