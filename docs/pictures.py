"""Draws the pictures of how-it-works.md: `make pictures`, or `python docs/pictures.py`. It takes a minute at most."""

from __future__ import annotations

import itertools
import pathlib
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from numpy.typing import NDArray

import stochasticrank_objectives as sr

FOLDER = pathlib.Path(__file__).with_name("pictures")
Array = NDArray[np.float64]
BLUE, RED, GREY = "#2f6fb0", "#c0392b", "#888888"

# Scores of three documents, up to a constant that changes no order, in the plane of these two directions.
FIRST, SECOND = np.array([1, -1, 0]) / np.sqrt(2), np.array([1, 1, -2]) / np.sqrt(6)


def values(metric: str, scores: Array, labels: Array) -> Array:
    """The metric of many score vectors of one query: an array (..., documents) in, an array (...) out."""
    many = scores.size // len(labels)
    found = sr.evaluate(metric, scores.ravel(), np.tile(labels, many), np.full(many, len(labels)), per_query=True)
    return found.reshape(scores.shape[:-1])


def smoothed(metric: str, scores: Array, labels: Array, sigma: float, mu: float = 0.0) -> Array:
    """The mean of the metric over many draws of the noise, the same draws for all scores."""
    noise = np.random.default_rng(0).normal(size=(4000, len(labels))) - mu * labels
    return values(metric, scores[..., None, :] + sigma * noise, labels).mean(-1)


def save(figure: Any, name: str) -> None:
    """Write one picture and say how large it is."""
    path = FOLDER / f"{name}.png"
    figure.savefig(path, dpi=100)
    plt.close(figure)
    print(f"{path.name}: {path.stat().st_size // 1000} kB")


def smoothing() -> None:
    """Stairs become a slope."""
    labels, t = np.array([3.0, 0.0, 2.0, 1.0]), np.linspace(-3, 3, 241)
    line = np.column_stack([t, np.full_like(t, 1), np.zeros_like(t), np.full_like(t, -1)])
    figure, axis = plt.subplots(figsize=(7, 3.2), layout="constrained")
    axis.plot(t, values("ndcg@3", line, labels), "k", drawstyle="steps-mid", lw=2, label="NDCG@3")
    for sigma, colour in (0.1, "#9ecae1"), (0.3, "#4292c6"), (1.0, "#08306b"):
        axis.plot(t, smoothed("ndcg@3", line, labels, sigma), color=colour, label=f"smoothed, sigma = {sigma:g}")
    axis.set(xlabel="score of the best document (the others are at 1, 0 and -1)", ylabel="NDCG@3 of the query")
    axis.legend()
    save(figure, "smoothing")


def ties() -> None:
    """What a tie is worth: mu decides."""
    pair, t = np.array([1.0, 0.0]), np.linspace(-1.5, 1.5, 121)
    line = np.column_stack([t, np.zeros_like(t)])
    figure, axes = plt.subplots(1, 2, figsize=(8.5, 3), layout="constrained", sharey=True)
    for axis, sigma in zip(axes, (0.5, 0.05), strict=True):
        axis.plot(t, values("ndcg", line, pair), "k", lw=1, drawstyle="steps-mid", label="NDCG, ties in the worst order")
        for mu, colour in (0.0, GREY), (0.5, BLUE), (3.0, RED):
            axis.plot(t, smoothed("ndcg", line, pair, sigma, mu), color=colour, label=f"smoothed, mu = {mu:g}")
            axis.plot(0, smoothed("ndcg", np.zeros(2), pair, sigma, mu), "o", color=colour)
        axis.set(title=f"sigma = {sigma:g}", xlabel="score of the relevant document")
    axes[0].set_ylabel("NDCG (the other document is at 0)")
    axes[0].legend(loc="upper left", fontsize=8)
    save(figure, "ties")


def ccs() -> None:
    """The slope for one document is a sum over the others: jump times density."""
    labels, others = np.array([2.0, 3.0, 0.0, 1.0, 0.0]), np.array([1.6, 0.7, -0.1, -1.1])
    place, t = 0.3, np.linspace(-3, 3, 1201)
    line = np.column_stack([t, *(np.full_like(t, other) for other in others)])
    density = np.exp(-((t - place) ** 2) / 2) / np.sqrt(2 * np.pi)
    figure, axes = plt.subplots(2, 1, figsize=(7, 4.6), layout="constrained", sharex=True)
    axes[0].plot(t, values("ndcg@3", line, labels), "k", lw=1.5)
    axes[1].plot(t, density, color=BLUE, alpha=0.6)
    axes[1].fill_between(t, density, color=BLUE, alpha=0.1)
    axes[1].axvline(place, color=BLUE, ls=":", lw=1)
    axes[1].text(place + 0.04, 0.015, "its score", color=BLUE, fontsize=8)
    total = 0.0
    for other, label in zip(others, labels[1:], strict=True):
        below, above = (values("ndcg@3", np.array([other + side, *others]), labels) for side in (-1e-6, 1e-6))
        jump, at = float(above - below), float(np.interp(other, t, density))
        total += jump * at
        colour = GREY if abs(jump) < 1e-9 else BLUE if jump > 0 else RED
        axes[0].axvline(other, color=colour, ls="--", lw=1)
        axes[0].text(other + 0.05, 0.42, f"grade {label:.0f}\njump {jump:+.2f}", color=colour, va="bottom", fontsize=8)
        axes[1].plot([other, other], [0, at], color=colour, lw=2)
        axes[1].plot(other, at, "o", color=colour)
        side = {"ha": "right" if other < place else "left", "fontsize": 8}
        axes[1].text(other, at + 0.02, f"{jump:+.2f} × {at:.2f}", color=colour, **side)
    axes[0].set(ylabel="NDCG@3", ylim=(0.4, 1.02), title="The metric jumps where the document, of grade 2, passes another")
    axes[1].set(ylabel="density", ylim=(0, 0.48), xlabel="where the noise may put the document", xlim=(-3, 3))
    axes[1].set_title(f"slope = sum of jump × density = {total:+.3f}")
    save(figure, "ccs")


def sfa() -> None:
    """The part of the gradient along the scores only stretches them."""
    grades, fine = np.array([3.0, 2.0, 0.0]), np.linspace(-2, 2, 161)
    u, v = np.meshgrid(fine, fine)
    colours = values("ndcg", u[..., None] * FIRST + v[..., None] * SECOND, grades)
    grid = np.array(list(itertools.product(np.linspace(-1.75, 1.75, 9), repeat=2)))
    points, copies = grid[:, :1] * FIRST + grid[:, 1:] * SECOND, 500
    figure, axes = plt.subplots(1, 2, figsize=(8, 4), layout="constrained", sharey=True)
    for axis, on in zip(axes, (False, True), strict=True):
        many = len(points) * copies
        bound = sr.StochasticRank("ndcg", mu=0.0, sfa=on).bind(np.tile(grades, many), np.full(many, 3))
        mean = -bound.gradient(np.repeat(points, copies, axis=0).ravel()).reshape(-1, copies, 3).mean(1)
        axis.pcolormesh(u, v, colours, cmap="Greens", vmin=0.4, vmax=1.5)
        axis.quiver(*grid.T, mean @ FIRST, mean @ SECOND, angles="xy", scale=1.5, width=0.006)
        for angle in np.arange(6) * np.pi / 3:
            axis.plot([0, 3 * np.sin(angle)], [0, 3 * np.cos(angle)], color="w", lw=1)
        axis.set(title=f"sfa={on}", aspect="equal", xlim=(-2, 2), ylim=(-2, 2), xticks=[], yticks=[])
    axes[0].set_ylabel("three documents; each wedge is one order of them")
    save(figure, "sfa")


def sglb() -> None:
    """Noise and shrinkage leave a plateau on which plain boosting stays. The data are those of the paper's Table 1."""
    labels, groups, kind = np.array([3, 2, 1, 3, 2]), np.array([3, 2]), np.array([0, 1, 2, 2, 0])
    size, rate, runs = 1.1, 0.1, 20

    def value(theta: Array) -> Array:
        many = theta.size // 3
        rows = theta.reshape(-1, 3)[:, kind].ravel()
        found = sr.evaluate("ndcg@3", rows, np.tile(labels, many), np.tile(groups, many), per_query=True)
        return found.reshape(*theta.shape[:-1], 2).mean(-1)

    plain = sr.StochasticRank("ndcg@3", sigma=0.03, mu=0.1, sfa=False)
    losses = {
        "plain boosting": plain,
        "with SGLB": sr.SGLB(plain, learning_rate=rate, diffusion_temperature=1e3, model_shrink_rate=1e-3),
    }
    u, v = np.meshgrid(np.linspace(-size, size, 161), np.linspace(-size, size, 161))
    colours = value(u[..., None] * FIRST + v[..., None] * SECOND)
    mean = (kind == np.arange(3)[:, None]) / np.bincount(kind)[:, None]  # a leaf is the mean over its rows
    figure, axes = plt.subplots(1, 2, figsize=(8.5, 4), layout="constrained", sharey=True)
    for axis, (name, loss) in zip(axes, losses.items(), strict=True):
        bound = loss.bind(np.tile(labels, runs), np.tile(groups, runs))
        path = [np.tile([0.25, -0.25, 0.0], (runs, 1))]
        for iteration in range(1000):
            gradient = bound.gradient(path[-1][:, kind].ravel(), iteration).reshape(runs, 5)
            path.append(path[-1] - rate * gradient @ mean.T)
        walk = np.array(path)
        reached = int((value(walk[-1]) > 0.9165).sum())
        image = axis.pcolormesh(u, v, colours, cmap="YlGn", vmin=0.83, vmax=0.93)
        for run in range(4):
            axis.plot(walk[:, run] @ FIRST, walk[:, run] @ SECOND, lw=0.5, color=f"C{run}")
            axis.plot(walk[-1, run] @ FIRST, walk[-1, run] @ SECOND, "o", color=f"C{run}", mec="w")
        axis.plot(walk[0, 0] @ FIRST, walk[0, 0] @ SECOND, "k*", ms=12, mec="w")
        axis.set_title(f"{name}: {reached} of {runs} runs end in the best order", fontsize=9)
        axis.set(aspect="equal", xticks=[], yticks=[], xlim=(-size, size), ylim=(-size, size))
    axes[0].set_ylabel("three scores; each wedge is one order of them")
    figure.colorbar(image, label="NDCG@3")
    save(figure, "sglb")


if __name__ == "__main__":
    plt.switch_backend("agg")
    plt.rcParams.update({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False})
    FOLDER.mkdir(exist_ok=True)
    for draw in (smoothing, ties, ccs, sfa, sglb):
        draw()
