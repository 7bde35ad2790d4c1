"""SGLB without a booster: the scale of the model, the Langevin noise, and the gradient made of both."""

from __future__ import annotations

import copy
import dataclasses
import math
import pickle
from typing import Any

import numpy as np
import pytest
import scipy.stats

import stochasticrank_objectives as sr
from stochasticrank_objectives import _threads

RANK = sr.StochasticRank("ndcg@3", mu=0.1)
RNG = np.random.default_rng(0)
GROUPS = RNG.integers(2, 9, 50)
ROWS = int(GROUPS.sum())
LABELS = RNG.integers(0, 4, ROWS)
SCORES = RNG.normal(size=ROWS)


@pytest.mark.parametrize(("rate", "step"), [(0.0, 0.1), (1e-3, 0.1), (1e-2, 0.5), (0.9, 1.0), (5.0, 0.1)])
def test_scale_in_constant_mode_is_the_product(rate: float, step: float) -> None:
    sglb = sr.SGLB(RANK, learning_rate=step, model_shrink_rate=rate)
    product = 1.0
    for t in range(300):
        assert sglb.shrinkage(t) == pytest.approx(product, rel=1e-11)
        product *= 1.0 - rate * step


@pytest.mark.parametrize("rate", [0.0, 1e-3, 1e-2, 0.5, 0.99])
def test_scale_in_decreasing_mode_is_the_product(rate: float) -> None:
    """Before iteration t = 1, 2, ... (counted from 0) the model is multiplied by 1 - rate/t; an empty one needs nothing."""
    sglb = sr.SGLB(RANK, model_shrink_rate=rate, model_shrink_mode="Decreasing")
    product = 1.0
    assert sglb.shrinkage(0) == 1.0
    for t in range(1, 300):
        assert sglb.shrinkage(t) == pytest.approx(product, rel=1e-11)
        product *= 1.0 - rate / t


def test_scale_of_long_trainings() -> None:
    constant = sr.SGLB(RANK, learning_rate=0.1, model_shrink_rate=1e-3)
    assert constant.shrinkage(100_000) == pytest.approx((1 - 1e-4) ** 100_000, rel=1e-9)
    decreasing = sr.SGLB(RANK, model_shrink_rate=0.01, model_shrink_mode="Decreasing")
    assert decreasing.shrinkage(100_000) == pytest.approx(math.prod(1 - 0.01 / t for t in range(1, 100_000)), rel=1e-9)


def test_true_scores() -> None:
    sglb = sr.SGLB(RANK, learning_rate=0.1, model_shrink_rate=0.5)
    np.testing.assert_allclose(sglb.true_scores([1.0, -2.0], 3), np.array([1.0, -2.0]) * 0.95**3, rtol=1e-14)
    np.testing.assert_array_equal(sglb.true_scores(np.array([1.0, -2.0], np.float32), 0), [1.0, -2.0])


@pytest.mark.parametrize("mode", ["Constant", "Decreasing"])
@pytest.mark.parametrize("t", [0, 1, 2, 40])
def test_gradient_is_that_of_the_true_scores_plus_noise_over_the_next_scale(mode: Any, t: int) -> None:
    sglb = sr.SGLB(RANK, learning_rate=0.2, model_shrink_rate=0.05, diffusion_temperature=50.0, model_shrink_mode=mode)
    bound, inner = sglb.bind(LABELS, GROUPS), RANK.bind(LABELS, GROUPS)
    expected = (inner.gradient(sglb.shrinkage(t) * SCORES, t) + bound.noise(t)) / sglb.shrinkage(t + 1)
    np.testing.assert_array_equal(bound.gradient(SCORES, t), expected)
    assert bound.rows == ROWS


def test_without_shrinkage_and_noise_it_is_the_loss_itself() -> None:
    sglb = sr.SGLB(RANK, model_shrink_rate=0.0, diffusion_temperature=math.inf)
    for t in (0, 7):
        np.testing.assert_array_equal(
            sglb.bind(LABELS, GROUPS).gradient(SCORES, t), RANK.bind(LABELS, GROUPS).gradient(SCORES, t)
        )


@pytest.mark.parametrize("mode", ["Constant", "Decreasing"])
def test_adding_trees_equals_explicit_shrinkage(mode: Any) -> None:
    """F <- c F + eps tree(gradient(F) + noise), written as G with F = s G; the "tree" here is minus the gradient itself."""
    step, rate = 0.3, 0.2
    sglb = sr.SGLB(RANK, learning_rate=step, model_shrink_rate=rate, diffusion_temperature=100.0, model_shrink_mode=mode)
    bound, inner = sglb.bind(LABELS, GROUPS), RANK.bind(LABELS, GROUPS)
    true, raw = np.zeros(ROWS), np.zeros(ROWS)
    for t in range(30):
        keep = 1.0 - rate * step if mode == "Constant" else 1.0 - (rate / t if t else 0.0)
        true = keep * true - step * (inner.gradient(true, t) + bound.noise(t))
        raw = raw - step * bound.gradient(raw, t)
        np.testing.assert_allclose(sglb.true_scores(raw, t + 1), true, rtol=1e-6, atol=1e-9)
        assert sr.evaluate("ndcg@3", raw, LABELS, GROUPS) == sr.evaluate("ndcg@3", true, LABELS, GROUPS)


def test_noise_is_normal_with_the_stated_strength() -> None:
    groups = np.full(4000, 25)
    rate, temperature = 0.1, 400.0
    bound = sr.SGLB(RANK, learning_rate=rate, diffusion_temperature=temperature).bind(
        np.tile(np.arange(25) % 4, 4000), groups
    )
    noise = bound.noise(3) / math.sqrt(2.0 / (rate * temperature))
    n = len(noise)
    assert abs(noise.mean()) < 4.5 / math.sqrt(n)
    assert abs(noise.var() - 1) < 4.5 * math.sqrt(2 / n)
    assert scipy.stats.kstest(noise, "norm").pvalue > 1e-4
    for other in (bound.noise(4) / math.sqrt(2.0 / (rate * temperature)), np.roll(noise, 1), np.roll(noise, 25)):
        assert abs(np.corrcoef(noise, other)[0, 1]) < 4.5 / math.sqrt(n)


def test_noise_is_independent_of_the_noise_of_the_loss() -> None:
    """Also with the same seed: over many iterations, a document's Langevin noise tells nothing of its gradient."""
    bound = sr.SGLB(RANK, seed=0).bind(LABELS, GROUPS)
    pairs = np.array([(bound.noise(t), bound.bound.gradient(SCORES, t)) for t in range(400)])
    noise, gradient = pairs[:, 0], pairs[:, 1] - pairs[:, 1].mean(axis=0)
    active = gradient.std(axis=0) > 0
    products = (noise * gradient)[:, active] / gradient.std(axis=0)[active] / noise.std()
    assert abs(products.mean()) < 4.5 / math.sqrt(products.size)
    assert active.sum() > 100


def test_noise_does_not_depend_on_scores_labels_or_company() -> None:
    sglb = sr.SGLB(RANK, seed=4)
    keys = np.arange(50) * 7 + 3
    together = sglb.bind(LABELS, GROUPS, query_keys=keys).noise(5)
    ends = np.cumsum([0, *GROUPS])
    for q in (0, 17, 49):
        rows = slice(ends[q], ends[q + 1])
        alone = sglb.bind(np.zeros(GROUPS[q]), [GROUPS[q]], query_keys=keys[q : q + 1]).noise(5)
        np.testing.assert_array_equal(alone, together[rows])
    assert not np.array_equal(together, sglb.bind(LABELS, GROUPS).noise(5))


def test_seed_and_iteration_select_the_noise() -> None:
    bound = sr.SGLB(RANK).bind(LABELS, GROUPS)
    other = sr.SGLB(RANK, seed=1).bind(LABELS, GROUPS)
    np.testing.assert_array_equal(bound.noise(2), bound.noise(2))
    assert np.abs(bound.noise(2) - bound.noise(3)).min() > 0
    assert np.abs(bound.noise(2) - other.noise(2)).min() > 0
    # The seed of the loss is its own.
    reseeded = sr.SGLB(dataclasses.replace(RANK, seed=9)).bind(LABELS, GROUPS)
    np.testing.assert_array_equal(reseeded.noise(2), bound.noise(2))


def test_queries_without_a_gradient_have_noise_all_the_same() -> None:
    """Langevin dynamics moves every row."""
    assert np.abs(sr.SGLB(RANK).bind([0, 0, 1], [2, 1]).gradient([0.0, 1.0, 2.0])).min() > 0


@pytest.mark.parametrize("threads", ["1", "2", "5"])
def test_bit_identical_for_any_number_of_threads(threads: str, monkeypatch: pytest.MonkeyPatch) -> None:
    groups = np.full(1000, 40)
    labels, scores = np.arange(40_000) % 4, np.sin(np.arange(40_000.0))
    monkeypatch.setenv("NUMBA_NUM_THREADS", "3")
    expected = sr.SGLB(RANK).bind(labels, groups).gradient(scores, 1)
    monkeypatch.setenv("NUMBA_NUM_THREADS", threads)
    assert sr.SGLB(RANK).bind(labels, groups).gradient(scores, 1).tobytes() == expected.tobytes()


@pytest.mark.parametrize("mode", ["Constant", "Decreasing"])
def test_scale_is_guarded_against_underflow(mode: Any) -> None:
    rate = 5.0 if mode == "Constant" else 0.999
    bound = sr.SGLB(RANK, learning_rate=0.1, model_shrink_rate=rate, model_shrink_mode=mode).bind(LABELS, GROUPS)
    assert np.isfinite(bound.gradient(SCORES, 10)).all()
    last = 2000 if mode == "Constant" else 10**13
    message = rf"iteration {last}.*model_shrink_rate={rate:g} .*(lower model_shrink_rate|stop earlier)"
    with pytest.raises(ValueError, match=message):
        bound.gradient(SCORES, last)


def test_gradients_stay_finite_up_to_the_guard() -> None:
    bound = sr.SGLB(RANK, learning_rate=0.1, model_shrink_rate=5.0).bind(LABELS, GROUPS)
    refused_at = None
    for t in range(200):
        try:
            gradient = bound.gradient(SCORES / bound.loss.shrinkage(t), t).astype(np.float32)
        except ValueError:
            refused_at = t
            break
        assert np.isfinite(gradient * gradient).all()  # boosters hold them, and sum their squares, in single precision
    assert refused_at is not None
    assert refused_at > 20


@pytest.mark.parametrize(
    ("parameter", "values", "message"),
    [
        ("loss", ["ndcg", None, 3, sr.NDCG(3)], r"such as StochasticRank\(.*got"),
        ("learning_rate", [0, -0.1, math.nan, math.inf, True, "0.1", None], r"above 0, got .*booster"),
        ("diffusion_temperature", [0, -1, math.nan, -math.inf, True, "1", None], r"above 0, got .*inf means no noise"),
        ("model_shrink_rate", [-1e-3, math.nan, math.inf, True, "0", None], r"at least 0, got"),
        ("model_shrink_mode", ["constant", "Falling", None, 0], r"\"Constant\" or \"Decreasing\", got"),
        ("seed", [-1, 1.0, True, "1", None, 2**64, 2**70], r"whole number of at least 0.*, got"),
    ],
)
def test_bad_parameters(parameter: str, values: list[Any], message: str) -> None:
    for value in values:
        with pytest.raises(ValueError, match=f"{parameter} must be .*{message}"):
            sr.SGLB(**{"loss": RANK, parameter: value})


def test_a_model_must_not_be_shrunk_to_nothing_or_beyond() -> None:
    with pytest.raises(ValueError, match=r"model_shrink_rate \* learning_rate must be below 1, got 1"):
        sr.SGLB(RANK, learning_rate=0.1, model_shrink_rate=10.0)
    with pytest.raises(ValueError, match=r"model_shrink_rate must be below 1, got 1"):
        sr.SGLB(RANK, model_shrink_rate=1.0, model_shrink_mode="Decreasing")


@pytest.mark.parametrize("iterations", [-1, 1.5, True, None, "3"])
def test_bad_iterations(iterations: Any) -> None:
    with pytest.raises(ValueError, match="iterations must be a whole number of at least 0, got"):
        sr.SGLB(RANK).shrinkage(iterations)


def test_bad_data_is_refused_as_by_the_loss() -> None:
    with pytest.raises(ValueError, match=r"labels\[1\] = -1"):
        sr.SGLB(RANK).bind([0, -1], [2])
    with pytest.raises(ValueError, match=r"scores\[0\] = nan"):
        sr.SGLB(RANK).bind([0, 1], [2]).gradient([math.nan, 0.0])


def test_copies_and_pickles() -> None:
    sglb = sr.SGLB(RANK, learning_rate=0.2, model_shrink_rate=0.01, seed=3)
    bound = sglb.bind(LABELS, GROUPS, np.arange(50.0), query_keys=np.arange(50) + 9)
    expected = bound.gradient(SCORES, 6)
    for twin in (copy.copy(sglb), copy.deepcopy(sglb), pickle.loads(pickle.dumps(sglb))):
        assert twin == sglb
        assert hash(twin) == hash(sglb)
        again = twin.bind(LABELS, GROUPS, np.arange(50.0), query_keys=np.arange(50) + 9).gradient(SCORES, 6)
        np.testing.assert_array_equal(again, expected)
    for other in (copy.deepcopy(bound), pickle.loads(pickle.dumps(bound))):
        np.testing.assert_array_equal(other.gradient(SCORES, 6), expected)
    assert len(pickle.dumps(sglb)) < 1500


def test_objects_print_usefully() -> None:
    sglb = sr.SGLB(RANK, learning_rate=0.2, seed=3)
    assert str(RANK) in str(sglb)
    for part in ("learning_rate=0.2", "diffusion_temperature=10000.0", "model_shrink_rate=0.001", "seed=3"):
        assert part in str(sglb)
    assert eval(str(sglb), vars(sr)) == sglb
    assert eval(repr(sglb), vars(sr)) == sglb
    assert repr(sglb.bind(LABELS, GROUPS)) == f"<{sglb} bound to {ROWS} rows in 50 queries>"
    with pytest.raises(dataclasses.FrozenInstanceError):
        sglb.seed = 2  # type: ignore[misc]


def test_any_loss_can_be_wrapped() -> None:
    wrapped = sr.SGLB(sr.StochasticRank("map", estimator="reinforce"), diffusion_temperature=math.inf, model_shrink_rate=0.0)
    inner = sr.StochasticRank("map", estimator="reinforce")
    np.testing.assert_array_equal(wrapped.bind(LABELS, GROUPS).gradient(SCORES), inner.bind(LABELS, GROUPS).gradient(SCORES))


def test_noise_goes_with_a_hessian_of_one() -> None:
    loss = sr.StochasticRank("ndcg@5", sfa=False, hessian_constant=0.0)
    with pytest.raises(
        ValueError, match=r"diffusion_temperature goes with hessian_constant=1.*got StochasticRank\('ndcg@5', .*inf shrinks"
    ):
        sr.SGLB(loss)


@pytest.mark.parametrize(
    "loss", [sr.StochasticRank("ndcg@5", sfa=False, hessian_constant=0.3), sr.LambdaMART("map"), sr.YetiLoss("mrr")]
)
def test_shrinkage_without_noise_goes_with_any_hessian(loss: Any) -> None:
    sglb = sr.SGLB(loss, learning_rate=0.2, diffusion_temperature=math.inf, model_shrink_rate=0.5)
    gradient, hessian = sglb.bind(LABELS, GROUPS).derivatives(SCORES, 3)
    inner, curvature = loss.bind(LABELS, GROUPS).derivatives(0.9**3 * SCORES, 3)
    np.testing.assert_allclose(gradient, inner / 0.9**4, rtol=1e-7, atol=1e-12)
    np.testing.assert_allclose(hessian, curvature, rtol=1e-7, atol=1e-12)


def test_threads_are_those_of_the_loss_or_else_those_set(monkeypatch: pytest.MonkeyPatch) -> None:
    used: set[int] = set()
    run = _threads.run
    monkeypatch.setattr(
        _threads,
        "run",
        lambda work, borders, threads, scratch=None: used.add(threads) or run(work, borders, threads, scratch),
    )
    monkeypatch.setenv("NUMBA_NUM_THREADS", "3")
    for loss, given, expected in ((RANK, None, 3), (RANK, 2, 2), (dataclasses.replace(RANK, threads=4), 2, 4)):
        bound = sr.SGLB(loss).bind(LABELS, GROUPS)
        assert bound.threads is None
        bound.threads = given
        used.clear()
        bound.gradient(SCORES)
        assert used == {expected}
