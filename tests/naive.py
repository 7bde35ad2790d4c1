"""Slow, obvious versions of everything the kernels compute, written from the definitions.

Nothing here calls the package's own mathematics: a metric object is read only for its name and parameters. The one thing
taken from the package is the noise itself (`noise`), so that an estimate can be compared with the kernel's draw by draw.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numba
import numpy as np
from scipy.special import expit, ndtr

from stochasticrank_objectives import Metric, Sum, parse_metric
from stochasticrank_objectives._constants import SMOOTHING
from stochasticrank_objectives._kernels import noise as noise_kernels
from stochasticrank_objectives._streams import stream_key

CUTS = ("", "@1", "@2", "@5", "@200")
FAMILIES = ("ndcg", "dcg", "binarydcg", "err", "mrr", "map", "pfound", "rbp", "precision", "recall", "hit")
OPTIONS = {
    "ndcg": ("", ":gain=linear", ":power=0.5"), "dcg": ("", ":gain=linear", ":gain=1.5"), "pfound": ("", ":decay=0.6"),
    "rbp": ("", ":p=0.5"), "err": ("", ":max_grade=5"), "mrr": ("", ":threshold=2"),
    "binarydcg": ("", ":threshold=1:grades=0.25"),
}  # fmt: skip
NAMES = [
    family + cut + option
    for family in FAMILIES
    for cut in CUTS
    for option in OPTIONS.get(family, ("",))
    if cut or family not in ("precision", "recall", "hit")
]
"""Every family of metrics, full and cut at 1, 2, 5 and far below the end, with their options."""


def random_labels(metric: str | Metric, n: int, rng: np.random.Generator) -> np.ndarray:
    """Labels that suit a metric, every grade likely, gain exactly 1 among them for cascades."""
    names = {type(part).__name__ for _, part in parse_metric(metric).parts()}
    grades = (0.0, 0.0, 0.07, 0.14, 0.41, 0.61, 1.0) if "PFound" in names else (0.0, 0.0, 1.0, 2.0, 3.0, 4.0)
    return rng.choice(grades, n)


# ---------------------------------------------------------- metrics


def _relevant(metric: Any, label: float) -> bool:
    return bool(label > metric.threshold)


def dcg_gain(metric: Any, label: float) -> float:
    """2^r - 1, r, or r^a where the gain is a number a."""
    return 2.0**label - 1.0 if metric.gain == "exp" else label if metric.gain == "linear" else math.pow(label, metric.gain)


def _dcg(metric: Any, ranked: Sequence[float]) -> float:
    return sum(dcg_gain(metric, label) / math.log2(i + 2) for i, label in enumerate(ranked[: metric.k]))


def _binarydcg(metric: Any, ranked: Sequence[float]) -> float:
    gains = [1 + metric.grades * label if _relevant(metric, label) else 0.0 for label in ranked]
    return sum(gain / math.log2(i + 2) for i, gain in enumerate(gains[: metric.k]))


def _ndcg(metric: Any, ranked: Sequence[float]) -> float:
    ideal = _dcg(metric, sorted(ranked, reverse=True))
    return _dcg(metric, ranked) / ideal**metric.power if ideal > 0 else 0.0


def _err(metric: Any, ranked: Sequence[float]) -> float:
    total, goes_on = 0.0, 1.0
    for i, label in enumerate(ranked[: metric.k]):
        stops = (2.0**label - 1.0) / 2.0**metric.max_grade
        total += goes_on * stops / (i + 1)
        goes_on *= 1.0 - stops
    return total


def _pfound(metric: Any, ranked: Sequence[float]) -> float:
    total, looks = 0.0, 1.0
    for label in ranked[: metric.k]:
        total += looks * label
        looks *= (1.0 - label) * metric.decay
    return total


def _mrr(metric: Any, ranked: Sequence[float]) -> float:
    for i, label in enumerate(ranked[: metric.k]):
        if _relevant(metric, label):
            return 1.0 / (i + 1)
    return 0.0


def _map(metric: Any, ranked: Sequence[float]) -> float:
    found, total = 0, 0.0
    for i, label in enumerate(ranked):
        if _relevant(metric, label):
            found += 1
            if metric.k is None or i < metric.k:
                total += found / (i + 1)
    return total / found if found else 0.0


def _rbp(metric: Any, ranked: Sequence[float]) -> float:
    return (1.0 - metric.p) * sum(metric.p**i for i, label in enumerate(ranked[: metric.k]) if _relevant(metric, label))


def _found(metric: Any, ranked: Sequence[float]) -> int:
    return sum(_relevant(metric, label) for label in ranked[: metric.k])


def _precision(metric: Any, ranked: Sequence[float]) -> float:
    return _found(metric, ranked) / metric.k


def _recall(metric: Any, ranked: Sequence[float]) -> float:
    relevant = sum(_relevant(metric, label) for label in ranked)
    return _found(metric, ranked) / relevant if relevant else 0.0


def _hit(metric: Any, ranked: Sequence[float]) -> float:
    return 1.0 if _found(metric, ranked) else 0.0


def _auc(metric: Any, ranked: Sequence[float]) -> float:
    pairs = [
        (p, q) for p, a in enumerate(ranked) for q, b in enumerate(ranked) if _relevant(metric, a) > _relevant(metric, b)
    ]
    return sum(p < q for p, q in pairs) / len(pairs) if pairs else 0.0


def _spearman(metric: Any, ranked: Sequence[float]) -> float:
    if len(set(ranked)) < 2:
        return 0.0
    ranks = [sum(b < a for b in ranked) + 0.5 * sum(b == a for b in ranked) for a in ranked]
    return float(np.corrcoef(ranks, range(len(ranked), 0, -1))[0, 1])


def _kendall(metric: Any, ranked: Sequence[float]) -> float:
    pairs = list(itertools.combinations(ranked, 2))
    different = sum(a != b for a, b in pairs)
    return sum((a > b) - (a < b) for a, b in pairs) / math.sqrt(len(pairs) * different) if different else 0.0


def _function(metric: Any, ranked: Sequence[float]) -> float:
    return float(metric.function(np.array(ranked[: metric.k])))


_VALUES: dict[str, Callable[[Any, Sequence[float]], float]] = {
    "NDCG": _ndcg, "DCG": _dcg, "BinaryDCG": _binarydcg, "ERR": _err, "PFound": _pfound, "MRR": _mrr, "MAP": _map,
    "RBP": _rbp, "Precision": _precision, "Recall": _recall, "Hit": _hit, "AUC": _auc, "Spearman": _spearman,
    "Kendall": _kendall, "FunctionMetric": _function,
}  # fmt: skip


def value(metric: str | Metric, ranked: Sequence[float]) -> float:
    """The metric of a list of labels, the best ranked first; 0 without a relevant one."""
    metric = parse_metric(metric)
    if isinstance(metric, Sum):
        return math.fsum(weight * value(part, ranked) for weight, part in metric.terms)
    return _VALUES[type(metric).__name__](metric, [float(label) for label in ranked])


def relevance(metric: str | Metric, labels: np.ndarray) -> np.ndarray:
    """The relevance of documents: the label, or for a metric of binary relevance whether it is above the threshold.

    For a sum of binary metrics it is how many of them take the document for relevant; for other sums, the label.
    """
    metric = parse_metric(metric)
    if isinstance(metric, Sum) and all(hasattr(part, "threshold") for _, part in metric.terms):
        return np.array([float(sum(_relevant(part, label) for _, part in metric.terms)) for label in labels])
    if hasattr(metric, "threshold"):
        grades = getattr(metric, "grades", 0)
        return np.array([float(_relevant(metric, label)) * (1 + grades * label) for label in labels])
    return np.asarray(labels, float)


def is_empty(metric: str | Metric, labels: Sequence[float]) -> bool:
    """Whether a query has no relevant document: no order of it scores anything, however deep one looks."""
    return not relevance(metric, np.asarray(labels, float)).any()


def tied_orders(scores: Sequence[float]) -> Iterator[list[int]]:
    """All orders of documents by falling score: every permutation of those that tie."""
    blocks = [[j for j, s in enumerate(scores) if s == level] for level in sorted(set(scores), reverse=True)]
    for choice in itertools.product(*(itertools.permutations(block) for block in blocks)):
        yield list(itertools.chain.from_iterable(choice))


def tied_value(metric: str | Metric, scores: Sequence[float], labels: Sequence[float], ties: str) -> float:
    """The metric with ties in the worst, best or mean order, by trying all orders."""
    values = [value(metric, [labels[j] for j in order]) for order in tied_orders(list(scores))]
    return {"worst": min, "best": max, "mean": lambda v: math.fsum(v) / len(v)}[ties](values)


def sorted_value(metric: str | Metric, scores: Sequence[float], labels: Sequence[float], ties: str) -> float:
    """The metric with ties in the worst or best order, for lists too long to try all: less or more relevant first."""
    sign = {"worst": 1, "best": -1}[ties]
    order = sorted(range(len(scores)), key=lambda j: (-scores[j], sign * labels[j]))
    return value(metric, [labels[j] for j in order])


# ---------------------------------------------------------- gradients


def highest(metric: str | Metric, labels: np.ndarray) -> float:
    """The largest relevance in all the data, by size: labels may be negative for some metrics."""
    return float(np.abs(relevance(metric, labels)).max())


def place(
    metric: str | Metric, scores: np.ndarray, labels: np.ndarray, sigma: float, mu: float, top: float | None = None
) -> np.ndarray:
    """x = z/sigma - mu*r of one query; r is its relevance, in units in which the largest in the data, `top`, is 4."""
    top = highest(metric, labels) if top is None else top
    return np.asarray(scores, float) / sigma - mu * relevance(metric, labels) * (4.0 / top if top > 0 else 0.0)


def density(t: np.ndarray | float, law: str = "normal") -> Any:
    """Of the noise: standard normal, or standard logistic."""
    if law == "logistic":
        return 1.0 / (2.0 + np.exp(t) + np.exp(-t))  # e^-t/(1 + e^-t)^2
    return np.exp(-0.5 * np.square(t)) / math.sqrt(2.0 * math.pi)


def ccs(
    metric: str | Metric,
    scores: np.ndarray,
    labels: np.ndarray,
    noise: np.ndarray,
    *,
    sigma: float = 1.0,
    mu: float = 0.0,
    top: float | None = None,
    law: str = "normal",
) -> np.ndarray:
    """CCS estimate of d(loss)/d(score) in one query for given noise: the whole metric anew at each place of a document."""
    n = len(labels)
    x = place(metric, scores, labels, sigma, mu, top)
    y = x + noise
    gradient = np.zeros(n)
    for j in range(n):
        others = sorted((u for u in range(n) if u != j), key=lambda u: -y[u])
        at = [value(metric, [labels[u] for u in [*others[:m], j, *others[m:]]]) for m in range(n)]
        for m, u in enumerate(others):  # j passes u: from just below it, place m + 1, to just above it, place m
            gradient[j] -= (at[m] - at[m + 1]) * density(y[u] - x[j], law) / sigma
    return gradient


def _family(metric: Any, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Position weights w (0 from the cut on), gains g and continuations d of M = sum_i w_i g_i prod_{l<i} d_l."""
    name, i = type(metric).__name__, np.arange(len(labels) + 1)
    g = relevance(metric, labels)
    if name in ("NDCG", "DCG"):
        w = 1.0 / np.log2(i + 2)
        g = np.array([dcg_gain(metric, label) for label in labels])
        if name == "NDCG":
            g = g / max(_dcg(metric, sorted(labels, reverse=True)), 1e-300) ** metric.power
    elif name == "ERR":
        w, g = 1.0 / (i + 1), (2.0**labels - 1.0) / 2.0**metric.max_grade
    elif name == "BinaryDCG":
        w = 1.0 / np.log2(i + 2)
    elif name == "MRR":
        w = 1.0 / (i + 1)
    elif name == "PFound":
        w, g = metric.decay**i, labels
    elif name == "RBP":
        w = (1.0 - metric.p) * metric.p**i
    else:
        w = np.full(len(i), {"Hit": 1.0, "Precision": 1.0 / (metric.k or 1), "Recall": 1.0 / max(g.sum(), 1.0)}[name])
    if metric.k is not None:
        w = np.where(i < metric.k, w, 0.0)
    return w, g, 1.0 - g if name in ("ERR", "MRR", "PFound", "Hit") else np.ones(len(labels))


def ccs_by_formula(
    metric: str | Metric,
    scores: np.ndarray,
    labels: np.ndarray,
    noise: np.ndarray,
    *,
    sigma: float = 1.0,
    mu: float = 0.0,
    top: float | None = None,
    law: str = "normal",
    documents: Sequence[int] | None = None,
) -> np.ndarray:
    """`ccs` for longer lists: the jumps by their formula, for each document in the list without it.

    D(j, m) = P_m [w_m (g_j - g_u) + w_{m+1} (d_j g_u - d_u g_j)]; for MAP (g_j - g_u) (c_m + 1) (w_m - w_{m+1}) / R.
    `documents`: only these; zero for the rest.
    """
    metric = parse_metric(metric)
    n = len(labels)
    x = place(metric, scores, labels, sigma, mu, top)
    if isinstance(metric, Sum):  # every term sees the documents where the relevance of the sum has placed them
        common: Any = {"sigma": sigma, "law": law, "documents": documents}
        return np.sum(
            [weight * ccs_by_formula(part, x * sigma, labels, noise, **common) for weight, part in metric.terms], axis=0
        )
    y = x + noise
    ranked = np.argsort(-y, kind="stable")
    average = type(metric).__name__ == "MAP"
    if average:
        g = relevance(metric, labels)
        w = 1.0 / np.arange(1, n + 2) / max(g.sum(), 1.0)
        w[n + 1 if metric.k is None else metric.k :] = 0.0
    else:
        w, g, d = _family(metric, labels)
    gradient = np.zeros(n)
    for j in range(n) if documents is None else documents:
        others = ranked[ranked != j]
        if average:
            before = np.cumsum(g[others]) - g[others]
            jump = (g[j] - g[others]) * (before + 1.0) * (w[: n - 1] - w[1:n])
        else:
            reached = np.concatenate([[1.0], np.cumprod(d[others])])[: n - 1]
            passed = w[1:n] * (d[j] * g[others] - d[others] * g[j])
            jump = reached * (w[: n - 1] * (g[j] - g[others]) + passed)
        gradient[j] = -(jump @ density(y[others] - x[j], law)) / sigma
    return gradient


def reinforce(
    metric: str | Metric,
    scores: np.ndarray,
    labels: np.ndarray,
    noise: np.ndarray,
    *,
    sigma: float = 1.0,
    mu: float = 0.0,
    top: float | None = None,
    law: str = "normal",
) -> np.ndarray:
    """REINFORCE estimate of d(loss)/d(score): -(M(y) - M(z)) noise / sigma, ties of z in the worst order."""
    assert law == "normal"
    y = place(metric, scores, labels, sigma, mu, top) + noise
    gained = value(metric, labels[np.argsort(-y)]) - sorted_value(metric, list(scores), list(labels), "worst")
    return -gained * noise / sigma


def sfa(gradient: np.ndarray, scores: np.ndarray, nu: float, strength: float = 1.0) -> np.ndarray:
    """Scale-free acceleration of one query's gradient."""
    g, z = gradient - gradient.mean(), scores - scores.mean()
    return g - strength * (g @ z) * z / (np.linalg.norm(z) + nu) ** 2


@numba.njit
def _fill_normals(out, n, key, query, sample):  # type: ignore[no-untyped-def]
    noise_kernels.fill_normals(out, n, key, query, sample, 0, noise_kernels.room(n) // 4)


@numba.njit
def _fill_logistics(out, n, key, query, sample):  # type: ignore[no-untyped-def]
    noise_kernels.fill_logistics(out, n, key, query, sample)


@numba.njit
def _fill_gumbels(out, n, key, query, sample):  # type: ignore[no-untyped-def]
    noise_kernels.fill_gumbels(out, n, key, query, sample)


@numba.njit
def _fill_uniforms(out, n, key, query, sample):  # type: ignore[no-untyped-def]
    noise_kernels.fill_uniforms(out, n, key, query, sample)


_FILL = {"normal": _fill_normals, "logistic": _fill_logistics, "gumbel": _fill_gumbels, "uniform": _fill_uniforms}


def noise(
    n: int,
    *,
    seed: int = 0,
    iteration: int = 0,
    query_key: int = 0,
    sample: int = 0,
    law: str = "normal",
    purpose: int = SMOOTHING,
) -> np.ndarray:
    """The noise that the kernels use for one query and sample, the j-th for the document with the j-th largest gain."""
    out = np.empty(n + 32)  # it is made in blocks
    _FILL[law](out, n, stream_key(seed, iteration, purpose), np.uint64(query_key), sample)
    return out[:n]


def query_noise(loss: Any, labels: np.ndarray, *, iteration: int = 0, query_key: int = 0, sample: int = 0) -> np.ndarray:
    """The kernels' noise for each document of a query, where it stands in the data: they count documents by falling gain."""
    parts = [part for _, part in parse_metric(loss.metric).parts()]
    # Gains rise with relevance in all metrics. A sum can count documents alike that gain differently in a term.
    order = np.argsort(-np.sum([relevance(part, labels) for part in parts], axis=0), kind="stable")
    out = np.empty(len(labels))
    out[order] = noise(len(labels), seed=loss.seed, iteration=iteration, query_key=query_key, sample=sample, law=loss.noise)
    return out


def gradient(
    loss: Any,
    scores: np.ndarray,
    labels: np.ndarray,
    groups: Sequence[int],
    weights: np.ndarray | None = None,
    *,
    iteration: int = 0,
    query_keys: Sequence[int] | None = None,
    by_formula: bool = False,
) -> np.ndarray:
    """All that `loss.bind(labels, groups, weights).gradient(scores, iteration)` promises, with the kernels' own noise."""
    estimate = {"ccs": ccs_by_formula if by_formula else ccs, "reinforce": reinforce}[loss.estimator]
    out = np.zeros(len(labels))
    top = highest(loss.metric, np.asarray(labels, float))
    begin = 0
    for q, n in enumerate(groups):
        rows = slice(begin, begin + n)
        begin += n
        r, z = np.asarray(labels, float)[rows], np.asarray(scores, float)[rows]
        total = np.zeros(n)
        for sample in range(loss.samples):
            key = q if query_keys is None else query_keys[q]
            eps = query_noise(loss, r, iteration=iteration, query_key=key, sample=sample)
            total += estimate(loss.metric, z, r, eps, sigma=loss.sigma, mu=loss.mu, top=top, law=loss.noise)
        total /= loss.samples
        if loss.sfa:
            total = sfa(total, z, loss.nu, float(loss.sfa))
        if weights is not None:
            total *= weights[q] if len(weights) == len(groups) else np.asarray(weights)[rows]
        out[rows] = total
    return out


# ---------------------------------------------------------- exact expectations


def exact_pair(
    metric: str | Metric, scores: np.ndarray, labels: np.ndarray, *, sigma: float = 1.0, mu: float = 0.0
) -> np.ndarray:
    """d(loss)/d(score) of the smoothed metric for two documents: y_0 - y_1 is normal with variance 2."""
    x = place(metric, scores, labels, sigma, mu)
    jump = value(metric, labels) - value(metric, labels[::-1])
    rise = jump * density((x[0] - x[1]) / math.sqrt(2.0)) / math.sqrt(2.0) / sigma
    return np.array([-rise, rise])


def exact_triple(
    metric: str | Metric, scores: np.ndarray, labels: np.ndarray, *, sigma: float = 1.0, mu: float = 0.0
) -> np.ndarray:
    """d(loss)/d(score) of the smoothed metric for three documents.

    An order a > b > c has the probability P(y_a - y_b > 0, y_b - y_c > 0) = Phi2(h, k; -1/2), h = (x_a - x_b)/sqrt(2),
    k = (x_b - x_c)/sqrt(2), and dPhi2/dh = phi(h) Phi((k - rho h)/sqrt(1 - rho^2)).
    """
    x = place(metric, scores, labels, sigma, mu)
    gradient = np.zeros(3)
    rho = -0.5
    for a, b, c in itertools.permutations(range(3)):
        h, k = (x[a] - x[b]) / math.sqrt(2.0), (x[b] - x[c]) / math.sqrt(2.0)
        by_h = density(h) * ndtr((k - rho * h) / math.sqrt(1.0 - rho * rho))
        by_k = density(k) * ndtr((h - rho * k) / math.sqrt(1.0 - rho * rho))
        reached = -value(metric, [labels[a], labels[b], labels[c]]) / (sigma * math.sqrt(2.0))
        gradient[a] += reached * by_h
        gradient[b] += reached * (by_k - by_h)
        gradient[c] -= reached * by_k
    return gradient


def _integral(values: np.ndarray, t: np.ndarray) -> float:
    return float(values.sum() * (t[1] - t[0]))


def exact_by_integration(
    metric: str | Metric, scores: np.ndarray, labels: np.ndarray, *, sigma: float = 1.0, mu: float = 0.0, law: str = "normal"
) -> np.ndarray:
    """d(loss)/d(score) of the smoothed metric for two or three documents and any law of the noise, with density f and
    distribution function F: P(a > b) = int f(t - x_b) (1 - F(t - x_a)) dt, P(a > b > c) has a further factor F(t - x_c)."""
    x = place(metric, scores, labels, sigma, mu)
    t = np.linspace(x.min() - 60.0, x.max() + 60.0, 200_001)
    below = expit if law == "logistic" else ndtr
    gradient = np.zeros(len(x))
    for order in itertools.permutations(range(len(x))):
        a, b, *rest = order
        worth = -value(metric, [labels[j] for j in order]) / sigma
        here, third = density(t - x[b], law), np.prod([below(t - x[c]) for c in rest], axis=0)
        by_a = _integral(here * density(t - x[a], law) * third, t)
        by_rest = [-_integral(here * below(x[a] - t) * density(t - x[c], law), t) for c in rest]
        gradient[a] += worth * by_a
        for c, by in zip(rest, by_rest, strict=True):
            gradient[c] += worth * by
        gradient[b] -= worth * (by_a + sum(by_rest))  # a shift of all changes nothing
    return gradient
