"""The tables as text, Markdown, JSON and pictures."""

from __future__ import annotations

import json
import os
import pathlib
from collections.abc import Sequence
from typing import Any

from .search import Protocol
from .synthetic import GLOBAL, SyntheticCell
from .tables import Row
from .versions import versions


def grid(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Aligned columns; all but the first two to the right."""
    widths = [max(len(line[at]) for line in (header, *rows)) for at in range(len(header))]
    lines = []
    for line in (header, *rows):
        cells = [
            cell.ljust(width) if at < 2 else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(lines)


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """The same as a Markdown table."""
    rule = ["---" if at < 2 else "---:" for at in range(len(header))]
    cells = [[cell.replace("|", "\\|") for cell in line] for line in (header, rule, *rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in cells)


def _number(value: float | None, digits: int = 4) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _value(row: Row | None, best: float, bold: bool) -> str:
    if row is None or row.mean is None:
        return "failed" if row is not None and row.error else "-"
    text = _number(row.mean) + ("" if row.interval is None else f" ± {row.interval:.4f}")
    return f"**{text}**" if bold and row.mean == best else text


def cells(rows: Sequence[Row], data: str, *, bold: bool = False) -> tuple[list[str], list[list[str]]]:
    """Header and lines of one data set: a line per booster and method, with value and p of each metric."""
    here = [row for row in rows if row.data == data]
    metrics = list(dict.fromkeys(row.metric for row in here))
    found = {(row.booster, row.method, row.metric): row for row in here}
    best: dict[tuple[str, str], float] = {}
    for row in here:
        best[row.booster, row.metric] = max(best.get((row.booster, row.metric), 0.0), row.mean or 0.0)
    header = ["booster", "method"]
    for metric in metrics:
        header += [metric, "p"]
    lines = []
    for booster, method in dict.fromkeys((row.booster, row.method) for row in sorted(here, key=_order(here))):
        line = [booster, next(row.title for row in here if row.method == method)]
        for metric in metrics:
            one = found.get((booster, method, metric))
            p = "" if one is None or one.p is None else f"{one.p:.3g}"
            line += [_value(one, best.get((booster, metric), 0.0), bold), p]
        lines.append(line)
    return header, lines


def _order(rows: Sequence[Row]) -> Any:
    """By booster, then method, as they came; CatBoost's StochasticRank has another name for each metric."""
    boosters = list(dict.fromkeys(row.booster for row in rows))
    methods = list(dict.fromkeys(row.method for row in rows))
    return lambda row: (boosters.index(row.booster), row.ours, methods.index(row.method))


def notes(rows: Sequence[Row], protocol: Protocol, trials: int, seeds: int, *, rival: str) -> str:
    """How the numbers came about; `rival` says what the t-test is against."""
    patience = "" if protocol.patience is None else f", stopped after {protocol.patience} without improvement"
    lines = [
        "Test metric over all queries of all folds, ties in the worst order, queries without relevant documents count 0; "
        + (f"mean over {seeds} seeds with its 95 % interval." if seeds > 1 else "one seed."),
        f"Settings and number of trees chosen on validation data: {trials} random trials each, up to {protocol.rounds} trees"
        f"{patience}, depth {protocol.depths[0]} to {protocol.depths[1]}.",
    ]
    if any(row.p is not None for row in rows):
        lines.append(f"p: paired one-tailed t-test over queries (their means over seeds) against {rival}.")
    return "\n".join([*lines, *(f"{row.booster} {row.title} failed: {row.error}" for row in rows if row.error)])


def _sections(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(row.data for row in rows))


def as_text(rows: Sequence[Row], about: str) -> str:
    """For the terminal."""
    return "\n\n".join([*(f"{data}\n{grid(*cells(rows, data))}" for data in _sections(rows)), about])


def _settings(rows: Sequence[Row]) -> str:
    header = ["booster", "method", "data", "metric", "fold", "settings", "trees", "seconds"]
    lines = []
    for row in rows:
        for fold, params in enumerate(row.params, 1):
            text = ", ".join(f"{name} {value:.3g}" for name, value in params.items())
            trees, seconds = f"{row.rounds:.0f}", f"{row.seconds:.1f}"
            lines.append([row.booster, row.title, row.data, row.metric, str(fold), text, trees, seconds])
    return markdown(header, lines)


def write(
    rows: Sequence[Row],
    about: str,
    folder: str | os.PathLike[str],
    name: str,
    *,
    protocol: Protocol,
    trials: int,
    seeds: int,
) -> list[str]:
    """NAME.md, NAME.json and pictures in the folder; returns their paths."""
    where = pathlib.Path(folder)
    where.mkdir(parents=True, exist_ok=True)
    parts = [f"## {data}\n\n{markdown(*cells(rows, data, bold=True))}" for data in _sections(rows)]
    how = "\n".join(f"{key} {value}" for key, value in versions().items()).replace("\n", ", ")
    text = "\n\n".join([*parts, about, f"Made with {how}.", "## Chosen settings", _settings(rows)])
    (where / f"{name}.md").write_text(text + "\n", encoding="utf-8")
    content = {
        "protocol": {"rounds": protocol.rounds, "patience": protocol.patience, "depths": protocol.depths,
                     "search_seed": protocol.seed, "trials": trials, "seeds": seeds},
        "versions": versions(),
        "rows": [row.summary() for row in rows],
    }  # fmt: skip
    (where / f"{name}.json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    paths = [str(where / f"{name}.md"), str(where / f"{name}.json")]
    for key in dict.fromkeys((row.data, row.metric) for row in rows):
        here = [row for row in rows if (row.data, row.metric) == key and row.mean is not None]
        if here:
            slug = "-".join([name, *key]).replace(":", "_").replace(os.sep, "_")
            paths += [_bars(here, where / f"{slug}.png"), _curves(here, where / f"{slug}-curves.png")]
    return paths


def _figure(panels: int, height: float) -> Any:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(1.5 + 4.2 * panels, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots(1, panels, squeeze=False, sharex=False, sharey=False)[0]


def _bars(rows: Sequence[Row], path: pathlib.Path) -> str:
    """The test metric with its interval, one panel per booster."""
    boosters = list(dict.fromkeys(row.booster for row in rows))
    figure, axes = _figure(len(boosters), 1.2 + 0.32 * max(sum(r.booster == b for r in rows) for b in boosters))
    for axis, booster in zip(axes, boosters, strict=True):
        here = sorted((row for row in rows if row.booster == booster), key=_order(rows), reverse=True)
        means = [row.mean or 0.0 for row in here]
        spread = [row.interval or 0.0 for row in here]
        axis.barh(
            [_short(row.title) for row in here], means, xerr=spread, capsize=2,
            color=["tab:blue" if row.ours else "tab:gray" for row in here],
        )  # fmt: skip
        low, high = (
            min(m - s for m, s in zip(means, spread, strict=True)),
            max(m + s for m, s in zip(means, spread, strict=True)),
        )
        axis.set_xlim(max(0.0, low - 0.3 * (high - low) - 0.005), high + 0.05 * (high - low) + 0.002)
        axis.set_title(booster)
        axis.set_xlabel(f"test {rows[0].metric}")
        axis.grid(axis="x", alpha=0.3)
    figure.suptitle(rows[0].data)
    figure.savefig(path, dpi=120)
    return str(path)


def _curves(rows: Sequence[Row], path: pathlib.Path) -> str:
    """Validation curves of the first fold with the chosen settings, one seed."""
    boosters = list(dict.fromkeys(row.booster for row in rows))
    figure, axes = _figure(len(boosters), 4.0)
    colours = {title: f"C{at}" for at, title in enumerate(dict.fromkeys(row.title for row in rows))}
    for axis, booster in zip(axes, boosters, strict=True):
        for row in rows:
            if row.booster == booster and row.curves:
                curve = row.curves[0]
                style = "-" if row.ours else "--"
                axis.plot(range(1, len(curve) + 1), curve, style, color=colours[row.title], label=_short(row.title))
        axis.set_title(booster)
        axis.set_xlabel("trees")
        axis.grid(alpha=0.3)
        axis.legend(fontsize="x-small", loc="lower right")
    axes[0].set_ylabel(f"validation {rows[0].metric}")
    figure.suptitle(f"{rows[0].data}, first fold")
    figure.savefig(path, dpi=120)
    return str(path)


def _short(title: str) -> str:
    return title if len(title) <= 28 else title[:27] + "…"


# ------------------------------------------------------------ table 1


def synthetic_cells(found: Sequence[SyntheticCell]) -> tuple[list[str], list[list[str]]]:
    """A line per method, a column per booster: how many seeds reached the global optimum, and the mean."""
    boosters = list(dict.fromkeys(cell.booster for cell in found))
    at = {(cell.method, cell.booster): cell for cell in found}
    lines = []
    for method, title in dict.fromkeys((cell.method, cell.title) for cell in found):
        line = [title, ""]
        for booster in boosters:
            cell = at.get((method, booster))
            line.append("-" if cell is None else f"{cell.reached}/{len(cell.values)}  {cell.mean:.3f}")
        lines.append(line)
    return ["method", "", *boosters], lines


def synthetic_notes(rounds: int) -> str:
    """How Table 1 came about."""
    return (
        f"Each cell: from how many seeds NDCG@3 ended at {GLOBAL} or more (the global optimum is 0.917, the usual local "
        f"one 0.903), and its mean; ties in the worst order.\n{rounds} iterations, depth 3, learning rate 0.1, no "
        "regularisation, single rows may be split off; SGLB with diffusion temperature 1e4 and model shrink rate 1e-3; "
        "mu = 0.1."
    )


def write_synthetic(found: Sequence[SyntheticCell], rounds: int, folder: str | os.PathLike[str]) -> list[str]:
    """synthetic.md and synthetic.json in the folder; returns their paths."""
    where = pathlib.Path(folder)
    where.mkdir(parents=True, exist_ok=True)
    header, lines = synthetic_cells(found)
    table = markdown([header[0], *header[2:]], [[line[0], *line[2:]] for line in lines])
    (where / "synthetic.md").write_text(f"{table}\n\n{synthetic_notes(rounds)}\n", encoding="utf-8")
    rows = [
        {"booster": c.booster, "method": c.method, "reached": c.reached, "mean": c.mean, "values": c.values} for c in found
    ]
    content = {"rounds": rounds, "versions": versions(), "rows": rows}
    (where / "synthetic.json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    return [str(where / "synthetic.md"), str(where / "synthetic.json")]
