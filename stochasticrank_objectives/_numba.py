"""How every kernel is compiled: one place for flags, caching and the fallback when no folder can hold the cache.

``kernel`` marks the few functions that Python calls; they are compiled on first use and cached on disk. ``allocating``
marks what makes arrays for them. ``inner`` marks what only kernels call: it is compiled with its callers and never cached
by itself. ``inline`` marks small ``inner`` functions that must become part of the loop around them for it to vectorise.
``reduction`` is an ``inner`` whose sums may be reordered, to the same end.
"""

from __future__ import annotations

import functools
import pathlib
from collections.abc import Callable
from typing import Any

import numba
from numba.core import types
from numba.extending import intrinsic

# Elementwise code has no reassociation and no finite-math flags: rounding tricks rely on the order of operations, and
# the result must not depend on how a loop is split among threads. Contraction to fused multiply-add keeps both.
_FLAGS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "fastmath": {"contract", "nsz"}}
_REDUCTION: dict[str, Any] = {**_FLAGS, "fastmath": {"contract", "nsz", "reassoc"}}


# Functions that only kernels call do not count references to arrays, which would take longer than many a loop here; they
# cannot allocate. And they are inlined where it is said so: else what an inlined function calls would be inlined too.
_BORROWED: dict[str, Any] = {"_nrt": False, "forceinline": False}


def inner(function: Callable[..., Any]) -> Any:
    """Compile a function that other kernels call."""
    return numba.njit(**_FLAGS, **_BORROWED)(function)


def inline(function: Callable[..., Any]) -> Any:
    """Compile a small function into every place that calls it."""
    return numba.njit(**_FLAGS, **{**_BORROWED, "forceinline": True})(function)


def reduction(function: Callable[..., Any]) -> Any:
    """Compile a sum over a whole query; its order is fixed by the compiler, never by threads."""
    return numba.njit(**_REDUCTION, **_BORROWED)(function)


def allocating(function: Callable[..., Any]) -> Any:
    """Compile a function that allocates arrays for a kernel."""
    return numba.njit(**_FLAGS)(function)


@intrinsic  # type: ignore[untyped-decorator]
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
        compiled = numba.njit(cache=True, **_FLAGS)(function)
    except RuntimeError:  # "no locator available": nothing is writable, so compile anew in each process
        return numba.njit(**_FLAGS)(function)
    # Numba compiles anew when the file of the entry point has changed, but what it calls may be in any of ours.
    file: Any = getattr(compiled._cache, "_cache_file", None)
    if hasattr(file, "_source_stamp"):
        file._source_stamp = _stamp()
    return compiled


@functools.cache
def _stamp() -> tuple[tuple[str, float, int], ...]:
    """Changes when any kernel's file does."""
    files = sorted(pathlib.Path(__file__).parent.glob("_*.py"))
    return tuple((file.name, file.stat().st_mtime, file.stat().st_size) for file in files)
