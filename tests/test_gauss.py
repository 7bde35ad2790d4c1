"""The kernels' power of two against numpy in extended precision."""

from __future__ import annotations

import math

import numba
import numpy as np
import pytest

from stochasticrank_objectives._kernels import gauss


@numba.njit
def powers(t):  # type: ignore[no-untyped-def]
    out = np.empty_like(t)
    for i in range(len(t)):
        out[i] = gauss.exp2_negative(t[i])
    return out


def check(t: np.ndarray) -> None:
    truth = np.exp2(t.astype(np.longdouble))
    assert (np.abs(powers(t) / truth - 1) < 1e-10).all()


def test_relative_error() -> None:
    rng = np.random.default_rng(0)
    check(-rng.uniform(0, 1000, 200_000))
    check(-rng.uniform(0, 2, 200_000))
    check(-(rng.normal(size=200_000) ** 2))
    check(-(10.0 ** rng.uniform(-320, 3, 50_000)))


def test_edges() -> None:
    whole = -np.arange(0, 1001, dtype=float)
    check(whole)
    check(whole[1:] + 0.5)
    for toward in (-np.inf, 0.0):
        check(np.nextafter(whole[1:], toward))
        check(np.nextafter(whole[1:] + 0.5, toward))
    assert powers(np.array([0.0, -0.0])) == pytest.approx([1.0, 1.0], rel=1e-10)


def test_far_away_there_is_nothing_left_but_no_underflow_or_nan() -> None:
    far = powers(np.array([-1020.0, -1021.0, -1074.0, -1e4, -1e18, -1e300, -np.inf]))
    assert (far > 0).all()
    assert (far <= 2.0**-1019).all()


@pytest.mark.parametrize("n", [0, 1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 31, 33, 100])
def test_vectors_of_any_length(n: int) -> None:
    t = -np.linspace(0, 50, n)
    np.testing.assert_allclose(powers(t), 2.0**t, rtol=1e-10)
    np.testing.assert_array_equal(powers(t), [powers(np.array([one]))[0] for one in t])  # vectorised or not, the same


def test_units() -> None:
    """exp(-t^2/2) = 2^-(kappa t)^2."""
    t = np.linspace(0, 30, 1000)
    np.testing.assert_allclose(powers(-((gauss.KAPPA * t) ** 2)), np.exp(-0.5 * t * t), rtol=1e-9)
    assert pytest.approx(math.sqrt(0.5 / math.log(2.0))) == gauss.KAPPA
