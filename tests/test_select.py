"""Selection and sorting against numpy's stable sort."""

from __future__ import annotations

import hypothesis
import hypothesis.strategies as st
import numba
import numpy as np
import pytest

from stochasticrank_objectives._kernels import selection

SIZES = [1, 2, 3, 11, 12, 13, 24, 25, 31, 32, 33, 48, 49, 64, 65, 100, 500, 2999]


@numba.njit
def _select(values, size, floor, reverse, s):  # type: ignore[no-untyped-def]
    return selection.select(values, len(values), size, floor, reverse, s)


@numba.njit
def _sort(s, n):  # type: ignore[no-untyped-def]
    selection.sort_descending(s, n)


def sort(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    n = len(values)
    s = selection.make_sorting(n)
    s.values[selection.SORTED, :n], s.places[selection.SORTED, :n] = values, np.arange(n)
    _sort(s, n)
    return s.values[selection.SORTED, :n], s.places[selection.SORTED, :n]


def expected(values: np.ndarray, size: int, floor: float, reverse: bool) -> np.ndarray:
    """Indices of the largest, the smaller (or larger) index first among equals, none below the floor."""
    order = np.argsort(-values, kind="stable")
    if reverse:
        order = (len(values) - 1) - np.argsort(-values[::-1], kind="stable")
    return order[values[order] >= floor][:size]


def check_select(values: np.ndarray, size: int, floor: float, reverse: bool) -> None:
    s = selection.make_sorting(len(values))
    count = _select(values, size, floor, reverse, s)
    wanted = expected(values, size, floor, reverse)
    np.testing.assert_array_equal(s.places[selection.SORTED, :count], wanted)
    np.testing.assert_array_equal(s.values[selection.SORTED, :count], values[wanted])


def values_of(kind: str, n: int, rng: np.random.Generator) -> np.ndarray:
    return {
        "random": lambda: rng.normal(size=n),
        "tied": lambda: rng.integers(0, 5, n).astype(float),
        "equal": lambda: np.full(n, 1.5),
        "rising": lambda: np.arange(n, dtype=float),
        "falling": lambda: -np.arange(n, dtype=float),
        "outlier": lambda: np.where(np.arange(n) == n // 2, 1e150, rng.normal(size=n)),
        "sunk": lambda: np.where(np.arange(n) == n // 2, -1e150, rng.normal(size=n)),
        "infinitesimal": lambda: rng.integers(0, 9, n) * 5e-324,
    }[kind]()


KINDS = ["random", "tied", "equal", "rising", "falling", "outlier", "sunk", "infinitesimal"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", SIZES)
def test_sort(n: int, kind: str) -> None:
    values = values_of(kind, n, np.random.default_rng(n))
    falling, places = sort(values)
    order = np.argsort(-values, kind="stable")
    np.testing.assert_array_equal(places, order)
    np.testing.assert_array_equal(falling, values[order])


def test_sort_of_nothing() -> None:
    falling, places = sort(np.empty(0))
    assert len(falling) == len(places) == 0


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", SIZES)
def test_select(n: int, kind: str, reverse: bool) -> None:
    rng = np.random.default_rng(n)
    values = values_of(kind, n, rng)
    middle, top = np.median(values), values.max()
    for size in (1, 2, 5, 31, 32, 33, 40, n // 2, n - 1, n):
        if 1 <= size <= n:
            for floor in (-np.inf, values.min(), middle, top, np.nextafter(top, np.inf)):
                check_select(values, size, float(floor), reverse)


@hypothesis.settings(deadline=None, derandomize=True, database=None, max_examples=300)
@hypothesis.given(
    st.lists(st.one_of(st.integers(-3, 3).map(float), st.floats(-1e150, 1e150)), min_size=1, max_size=150),
    st.integers(1, 150),
    st.booleans(),
    st.data(),
)
def test_select_whatever_hypothesis_finds(values: list[float], size: int, reverse: bool, data: st.DataObject) -> None:
    floor = data.draw(st.sampled_from([-np.inf, *values]))
    check_select(np.array(values), min(size, len(values)), floor, reverse)
