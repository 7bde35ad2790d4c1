"""Slow, obvious versions of metrics of a selection and their gradients, written from the definitions."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import naive
import numpy as np
from scipy.special import expit, ndtr

from stochasticrank_objectives import Metric, parse_metric

NAMES = [
    "dcgrr", "dcgrr@1", "dcgrr@2", "dcgrr@5", "dcgrr:gain=exp", "dcgrr@3:gain=1.5", "dcgrr:discount=log",
    "dcgrr@3:gain=exp:discount=log",
    "fbeta", "fbeta:beta=2", "fbeta:beta=0.5", "fbeta:threshold=1", "accuracy", "accuracy:threshold=2",
]  # fmt: skip


def value(metric: str | Metric, shown: Sequence[bool], labels: Sequence[float]) -> float:
    """The metric of showing some documents; 0 if it is undefined."""
    metric = parse_metric(metric)
    name = type(metric).__name__
    if name == "DCGRR":
        total, place = 0.0, 0
        for label, is_shown in zip(labels, shown, strict=True):
            if is_shown:
                place += 1
                gain = naive.dcg_gain(metric, label)
                reached = metric.k is None or place <= metric.k
                log = metric.discount == "log"  # type: ignore[attr-defined]
                total += reached * gain / (math.log2(place + 1) if log else place)
        return total
    relevant = [label > metric.threshold for label in labels]  # type: ignore[attr-defined]
    if name == "Accuracy":
        return sum(a == bool(b) for a, b in zip(relevant, shown, strict=True)) / len(labels)
    hits = sum(a and bool(b) for a, b in zip(relevant, shown, strict=True))
    if not hits:
        return 0.0
    precision, recall, square = hits / sum(shown), hits / sum(relevant), metric.beta**2  # type: ignore[attr-defined]
    return (1.0 + square) * precision * recall / (square * precision + recall)


def _with(shown: np.ndarray, j: int, is_shown: bool) -> np.ndarray:
    changed = shown.copy()
    changed[j] = is_shown
    return changed


def ccs(loss: Any, scores: np.ndarray, labels: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """CCS estimate of d(loss)/d(score) in one query for given noise: the whole metric anew with and without a document."""
    shown = scores / loss.sigma + noise > 0
    jumps = [
        value(loss.metric, _with(shown, j, True), labels) - value(loss.metric, _with(shown, j, False), labels)
        for j in range(len(labels))
    ]
    return -np.array(jumps) * naive.density(scores / loss.sigma, loss.noise) / loss.sigma


def reinforce(loss: Any, scores: np.ndarray, labels: np.ndarray, noise: np.ndarray) -> np.ndarray:
    gained = value(loss.metric, scores / loss.sigma + noise > 0, labels) - value(loss.metric, scores > 0, labels)
    return -gained * noise / loss.sigma


def gradient(loss: Any, scores: np.ndarray, labels: np.ndarray, groups: Sequence[int], *, iteration: int = 0) -> np.ndarray:
    """All that `loss.bind(labels, groups).gradient(scores, iteration)` promises, with the kernels' own noise."""
    estimate = {"ccs": ccs, "reinforce": reinforce}[loss.estimator]
    out, begin = np.zeros(len(labels)), 0
    for query, n in enumerate(groups):
        rows = slice(begin, begin + n)
        begin += n
        z, total = np.asarray(scores, float)[rows], np.zeros(n)
        for sample in range(loss.samples):
            noise = naive.noise(
                n, seed=loss.seed, iteration=iteration, query_key=query, sample=sample, law=loss.noise
            )  # in the order of the data
            total += estimate(loss, z, labels[rows], noise)
        total /= loss.samples
        if loss.sfa:  # along the scores as they are: nothing is centred
            total -= float(loss.sfa) * (total @ z) * z / (np.linalg.norm(z) + loss.nu) ** 2
        out[rows] = total
    return out


def exact(metric: str | Metric, scores: np.ndarray, labels: np.ndarray, *, sigma: float, law: str = "normal") -> np.ndarray:
    """d(loss)/d(score) of the smoothed metric: the sum over all sets of other documents that may be shown.

    Documents are shown independently, i with the probability F(z_i/sigma), whose derivative is the density.
    """
    chances = (expit if law == "logistic" else ndtr)(scores / sigma)
    out = np.zeros(len(labels))
    for shown in itertools.product([False, True], repeat=len(labels)):
        chance = np.where(shown, chances, 1.0 - chances)
        for j in range(len(labels)):
            others = np.prod(np.delete(chance, j))
            sign = 1.0 if shown[j] else -1.0
            out[j] -= sign * others * value(metric, shown, labels) * naive.density(scores[j] / sigma, law) / sigma
    return out
