"""The generator against published vectors, its functions against libm, and the noise against the normal law."""

from __future__ import annotations

import itertools
import math

import naive
import numba
import numpy as np
import pytest
import scipy.stats

from stochasticrank_objectives._constants import LANGEVIN, SMOOTHING, Layout
from stochasticrank_objectives._kernels import noise
from stochasticrank_objectives._streams import stream_key


@numba.njit
def philox(counter, key):  # type: ignore[no-untyped-def]
    return noise.philox(counter[0], counter[1], counter[2], counter[3], key[0], key[1])


@numba.njit
def logarithms(u):  # type: ignore[no-untyped-def]
    out = np.empty_like(u)
    for i in range(len(u)):
        out[i] = noise._log(u[i])
    return out


@numba.njit
def pairs(a, b):  # type: ignore[no-untyped-def]
    out = np.empty((len(a), 2))
    for i in range(len(a)):
        out[i, 0], out[i, 1] = noise._pair(a[i], b[i])
    return out


# Random123's kat_vectors: philox4x32 10 rounds.
VECTORS = [
    ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
]


def words(text: str) -> np.ndarray:
    return np.array([int(word, 16) for word in text.split()], np.uint64)


@pytest.mark.parametrize(("counter", "key", "expected"), VECTORS)
def test_philox_gives_the_published_vectors(counter: str, key: str, expected: str) -> None:
    assert [f"{int(word):08x}" for word in philox(words(counter), words(key))] == expected.split()


def test_logarithm() -> None:
    rng = np.random.default_rng(0)
    u = np.concatenate([rng.random(20_000), 2.0 ** -rng.uniform(0, 33, 20_000), (np.arange(2000) + 0.5) * 2.0**-32])
    u = np.concatenate([u, 1 - (np.arange(2000) + 0.5) * 2.0**-32, [math.sqrt(0.5), 0.5, 0.25, 2.0**-33, 1 - 2.0**-33]])
    np.testing.assert_allclose(logarithms(u), np.log(u), rtol=1e-8, atol=0)


def test_box_muller() -> None:
    """The radius is that of the first word, the angle that of the second, the whole circle round."""
    rng = np.random.default_rng(0)
    edges = [0, 1, 2**30 - 1, 2**30, 2**31 - 1, 2**31, 3 * 2**30 - 1, 3 * 2**30, 2**32 - 1]
    a = np.concatenate([rng.integers(0, 2**32, 50_000), np.repeat(edges, len(edges))]).astype(np.uint64)
    b = np.concatenate([rng.integers(0, 2**32, 50_000), np.tile(edges, len(edges))]).astype(np.uint64)
    first, second = pairs(a, b).T
    radius = np.sqrt(-2.0 * np.log((a.astype(float) + 0.5) / 2.0**32))
    np.testing.assert_allclose(np.hypot(first, second), radius, rtol=1e-8)
    # Which way the circle is cut does not matter, as long as equal steps of the word are equal steps of the angle.
    turn = np.exp(1j * (np.arctan2(second, first) - 2.0 * math.pi * (b.astype(float) + 0.5) / 2.0**32))
    np.testing.assert_allclose(turn, turn[0], rtol=0, atol=1e-8)


def queries(sizes: list[int], *, seed: int = 0, iteration: int = 0, purpose: int = SMOOTHING) -> np.ndarray:
    ptr = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    out = np.empty(ptr[-1])
    keys = np.arange(len(sizes), dtype=np.uint64)
    fill_queries(out, ptr, keys, stream_key(seed, iteration, purpose), 0, len(sizes))
    return out


def fill_queries(out: np.ndarray, ptr: np.ndarray, keys: np.ndarray, key: np.uint64, begin: int, end: int) -> None:
    buffer = np.empty(np.diff(ptr).max() + 32)
    noise.fill_query_normals(buffer, out, Layout(ptr, np.empty(0, np.int32), np.empty(0), keys), key, begin, end)


def looks_normal(sample: np.ndarray) -> None:
    n = len(sample)
    assert np.isfinite(sample).all()
    assert abs(sample.mean()) < 4.5 / math.sqrt(n)
    assert abs(sample.var() - 1) < 4.5 * math.sqrt(2 / n)
    assert abs((sample**3).mean()) < 4.5 * math.sqrt(15 / n)
    assert abs((sample**4).mean() - 3) < 4.5 * math.sqrt(96 / n)
    assert scipy.stats.kstest(sample, "norm").pvalue > 1e-4


def independent(a: np.ndarray, b: np.ndarray) -> None:
    """No correlation between two samples, nor between their sizes."""
    limit = 4.5 / math.sqrt(len(a))
    assert abs(np.corrcoef(a, b)[0, 1]) < limit
    assert abs(np.corrcoef(np.abs(a), np.abs(b))[0, 1]) < limit


@pytest.mark.parametrize("sizes", [[200_000], [1] * 200_000, [7] * 30_000, [100] * 2_000])
def test_normal_along_queries_and_along_documents(sizes: list[int]) -> None:
    looks_normal(queries(sizes))


def test_normal_in_the_tails() -> None:
    sample = queries([1000] * 1000)
    for level in (2.0, 3.0, 4.0):
        expected = len(sample) * 2 * scipy.stats.norm.sf(level)
        assert abs((np.abs(sample) > level).sum() - expected) < 4.5 * math.sqrt(expected)
    assert np.abs(sample).max() < math.sqrt(2 * 33 * math.log(2))


def test_normal_along_iterations_seeds_samples_and_keys() -> None:
    looks_normal(np.concatenate([naive.noise(8, iteration=i) for i in range(15_000)]))
    looks_normal(np.concatenate([naive.noise(8, seed=i) for i in range(15_000)]))
    looks_normal(np.concatenate([naive.noise(8, sample=i) for i in range(15_000)]))
    looks_normal(np.concatenate([naive.noise(8, query_key=i << 32) for i in range(15_000)]))


def test_documents_of_a_query_are_independent() -> None:
    """Over many queries: documents made from the same words (Box-Muller pairs among them) and from others."""
    for n in (5, 33, 70):
        table = queries([n] * 20_000).reshape(-1, n)
        for a, b in itertools.islice(itertools.combinations(range(n), 2), 0, None, max(1, n * n // 200)):
            independent(table[:, a], table[:, b])


def test_streams_are_independent() -> None:
    base = queries([40] * 3000)
    others = {
        "neighbouring query": np.roll(base.reshape(-1, 40), 1, axis=0).ravel(),
        "next iteration": queries([40] * 3000, iteration=1),
        "far iteration": queries([40] * 3000, iteration=2**32),
        "next seed": queries([40] * 3000, seed=1),
        "other purpose": queries([40] * 3000, purpose=LANGEVIN),
        "next sample": np.concatenate([naive.noise(40, query_key=q, sample=1) for q in range(3000)]),
    }
    for other in others.values():
        independent(base, other)
    independent(queries([40] * 3000, seed=3, iteration=5), queries([40] * 3000, seed=5, iteration=3))


def test_every_part_of_the_key_counts() -> None:
    variants = [
        naive.noise(4, **{name: value})
        for name in ("seed", "iteration", "query_key", "sample")
        for value in (1, 2, 2**16, 2**31, *(() if name == "sample" else (2**32, 2**40, 2**63)))
    ]
    variants.append(naive.noise(4))
    assert len({variant.tobytes() for variant in variants}) == len(variants)
    assert len(set(np.concatenate(variants).tolist())) == 4 * len(variants)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 7, 8, 9, 31, 32, 33, 63, 64, 65, 100, 257, 1000])
def test_no_deviate_comes_twice_in_a_query_of_any_size(n: int) -> None:
    noise = naive.noise(n, seed=5)
    assert noise.shape == (n,)
    assert np.isfinite(noise).all()
    assert len(set(noise.tolist())) == n


@pytest.mark.parametrize("n", [1, 3, 20, 33, 100])
def test_noise_of_a_query_does_not_depend_on_its_neighbours(n: int) -> None:
    alone = naive.noise(n, query_key=1)
    np.testing.assert_array_equal(queries([500, n, 2])[500 : 500 + n], alone)
    np.testing.assert_array_equal(queries([1, n, 1000])[1 : 1 + n], alone)
    ptr, keys = np.array([0, 9, 9 + n, 12 + n]), np.array([4, 1, 6], np.uint64)
    out = np.zeros(12 + n)
    fill_queries(out, ptr, keys, stream_key(0, 0, SMOOTHING), 1, 2)
    np.testing.assert_array_equal(out[9 : 9 + n], alone)
    assert not out[:9].any()  # only the queries asked for are written
    assert not out[9 + n :].any()


def test_both_halves_of_the_stream_key_count() -> None:
    ptr, keys = np.array([0, 40]), np.zeros(1, np.uint64)
    seen = []
    for key in (0, 1, 1 << 31, 1 << 32, 1 << 63):
        out = np.empty(40)
        fill_queries(out, ptr, keys, np.uint64(key), 0, 1)
        seen.append(out)
    assert len(set(np.concatenate(seen).tolist())) == 200


@pytest.mark.parametrize("law", ["logistic", "gumbel", "uniform"])
def test_other_laws(law: str) -> None:
    sample = np.concatenate([naive.noise(50, query_key=q, law=law) for q in range(4000)])
    assert np.isfinite(sample).all()
    assert scipy.stats.kstest(sample, {"gumbel": "gumbel_r"}.get(law, law)).pvalue > 1e-4
    assert len(set(sample.tolist())) > 0.9999 * len(sample)  # they come from 32 bits
    independent(sample, np.roll(sample, 1))
