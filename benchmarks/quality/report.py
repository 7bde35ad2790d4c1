"""Tables and pictures of what is stored."""

from __future__ import annotations

import math
import pathlib
from typing import Any

import numpy as np

from ..harness import table
from . import datasets, store, timing
from .compare import (
    Comparison,
    Difference,
    Pooled,
    behind,
    best_own,
    by_validation,
    compare,
    names_of,
    of,
    paired,
    pool,
    reach,
)
from .objectives import BOOSTERS, METRICS, STOPS_ON, opponents

HALVES = {"chosen": datasets.CHOSEN_ON, "judged": datasets.JUDGED_ON}
ABOUT = {
    "chosen": "The half of the data sets on which the recommended losses were chosen.",
    "judged": "The half of the data sets on which nothing was chosen, apart from the bound of XGBoost's steps.",
}
ABOUT_SECONDS = (
    "Medians over tasks. The own objective and learning rate that validation prefers, and ours, one after the other on a "
    "quiet machine, with one thread (`python -m benchmarks.quality time`). Own's whole training goes on for 100 trees after "
    "its best value."
)
ABOUT_REACH = (
    f"Trees until ours has the best validation {STOPS_ON} of an own objective, each with the learning rate that "
    "validation prefers: medians over tasks, with never as infinite. Trees, because the study ran on several machines."
)
KINDS = {"careful": "own objective chosen by validation", "hard": "own objective that is best on test data"}


def _comparisons(spec: str, sets: list[str], boosters: list[str], variants: bool) -> list[Comparison]:
    every = [compare(name, booster, spec, store.read(name), variants=variants) for name in sets for booster in boosters]
    return [one for one in every if one is not None]


def _markdown(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def _change(one: Difference | None) -> str:
    return "" if one is None else f"{one.mean:+.4f} ± {one.error:.4f}"


def _pooled_row(one: Pooled) -> list[str]:
    interval = f"{one.equal:+.4f} [{one.equal - one.equal_half_width:+.4f}, {one.equal + one.equal_half_width:+.4f}]"
    weighted = f"{one.weighted:+.4f} ± {one.weighted_error:.4f}"
    return [str(one.sets), weighted, f"{one.weighted_p:.2g}", interval, f"{one.equal_p:.2g}"]


def _pooled(comparisons: list[Comparison], kind: str, booster: str | None, metric: str) -> Pooled | None:
    chosen = [one for one in comparisons if booster in (None, one.booster)]
    return pool([getattr(one, kind)[metric] for one in chosen if metric in getattr(one, kind)])


def _pooled_table(comparisons: list[Comparison], kind: str) -> str:
    rows = []
    for booster in (*BOOSTERS, None):
        for metric in METRICS:
            if (one := _pooled(comparisons, kind, booster, metric)) is not None:
                rows.append([booster or "all", metric, *_pooled_row(one)])
    head = ["booster", "metric", "data sets", "weighted mean ± error", "p", "equal mean [95 % interval]", "p"]
    return _markdown(head, rows)


def _set_table(comparisons: list[Comparison], metric: str) -> str:
    rows = []
    for one in comparisons:
        if (hard := one.hard.get(metric)) is not None:
            careful = _change(one.careful.get(metric))
            rows.append([one.data, one.booster, f"{hard.own:.4f} ({hard.name})", f"{hard.ours:.4f}", careful, _change(hard)])
    return _markdown(["data set", "booster", "best own", "ours", "to own by validation", "to best own"], rows)


def _behind_table(comparisons: list[Comparison]) -> str:
    rows = []
    for data, booster, metric, difference, p in behind(comparisons):
        rows.append([data, booster, metric, _change(difference), difference.name, f"{p:.2g}"])
    return _markdown(["data set", "booster", "metric", "to own by validation", "own", "adjusted p"], rows)


def _trees_table(spec: str, sets: list[str], boosters: list[str]) -> str:
    """Trees to quality of the study's own trainings, against each own objective."""
    rows = []
    for booster in boosters:
        for name in opponents(booster, variants=False):
            found: list[tuple[float, float, bool]] = []
            for data in sets:
                records = store.read(data)
                ours = of(records, booster, names_of(spec, data, booster, STOPS_ON, records))
                theirs = of(records, booster, [name])
                found += reach(by_validation(ours, STOPS_ON), by_validation(theirs, STOPS_ON))
            if found:
                to_best, of_whole, back = np.array(found).T
                shares = [f"{np.median(to_best):.2f}", f"{np.median(of_whole):.2f}"]
                reached = [f"{np.isfinite(to_best).mean():.0%}", f"{back.mean():.0%}"]
                rows.append([booster, name.removeprefix("own:"), str(len(found)), *shares, *reached])
    head = ["booster", "own objective", "tasks", "ours / own's trees to its best", "ours / own's whole training"]
    return _markdown([*head, "ours has own's best", "own has ours' best"], rows)


def _text(half: str, spec: str, comparisons: list[Comparison]) -> str:
    parts = [
        f"# Quality of rankers: the {half} half\n",
        f"{ABOUT[half]} Ours: `{spec}`. Differences of test values, ours minus own, paired by blocks of queries; p is "
        "one-sided, against ours being no better. Weights are of inverse variance, in which how data sets differ is "
        "included. Written by `python -m benchmarks.quality report`.\n",
        f"![differences](differences-{half}.png)\n\n![pooled](pooled-{half}.png)\n",
    ]
    for kind, meaning in KINDS.items():
        parts += [f"## All data sets, to the {meaning}\n", _pooled_table(comparisons, kind)]
    sets, boosters = (
        list(dict.fromkeys(names)) for names in zip(*((one.data, one.booster) for one in comparisons), strict=True)
    )
    number = sum(len(one.careful) for one in comparisons)
    parts += [
        f"## Cells below own by more than two errors\n\nOf {number}. If ours were as good as own everywhere, and no better, "
        f"chance would give {0.0228 * number:.0f}. Own is chosen by validation; p, that ours is as good, is adjusted for "
        "the number of cells (Holm). Errors are of test queries; how trainings of one loss differ comes on top.\n",
        _behind_table(comparisons),
        f"## Trees to quality\n\n{ABOUT_REACH}\n",
        _trees_table(spec, sets, boosters),
    ]
    if rows := timing.summary(list(HALVES[half])):
        parts += [
            f"## Seconds of training to own's best validation NDCG@10\n\n{ABOUT_SECONDS}\n",
            f"![seconds](seconds-{half}.png)\n",
            _markdown(timing.HEAD, rows),
        ]
    for metric in METRICS:
        parts += [f"## {metric}\n", _set_table(comparisons, metric)]
    return "\n".join(parts)


def _panels(title: str, lines: int) -> tuple[Any, Any]:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(
        1, len(BOOSTERS), figsize=(12, max(4.5, 1.5 + 0.27 * lines)), sharey=True, layout="constrained"
    )
    figure.suptitle(title)
    for axis, booster in zip(axes, BOOSTERS, strict=True):
        axis.set_title(booster)
        axis.grid(alpha=0.3)
    return figure, axes


def _points(axis: Any, rows: list[tuple[str, float, float]], labels: list[str], shift: float, name: str) -> None:
    """Values with whiskers, each in the line of its label."""
    places = [labels.index(label) + shift for label, _, _ in rows]
    axis.errorbar([r[1] for r in rows], places, xerr=[r[2] for r in rows], fmt="o", markersize=4, capsize=2, label=name)
    axis.axvline(0, color="black", linewidth=0.8)
    axis.set_yticks(range(len(labels)), labels)
    axis.set_ylim(len(labels) - 0.5, -0.5)


def _pictures(half: str, comparisons: list[Comparison], output: pathlib.Path) -> None:
    from matplotlib import pyplot

    sets = list(dict.fromkeys(one.data for one in comparisons))
    figure, axes = _panels(f"{STOPS_ON}: ours minus own, with two standard errors", len(sets) + 1)
    for axis, booster in zip(axes, BOOSTERS, strict=True):
        for shift, (kind, meaning) in zip((-0.12, 0.12), KINDS.items(), strict=True):
            found = [(one.data, getattr(one, kind).get(STOPS_ON)) for one in comparisons if one.booster == booster]
            rows = [(name, one.mean, 2 * one.error) for name, one in found if one is not None]
            if (all_of_them := _pooled(comparisons, kind, booster, STOPS_ON)) is not None:
                rows.append(("all", all_of_them.weighted, 2 * all_of_them.weighted_error))
            _points(axis, rows, [*sets, "all"], shift, meaning)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2, fontsize=8)
    figure.savefig(output / f"differences-{half}.png", dpi=110)

    figure, axes = _panels("All data sets: ours minus own, with two standard errors", len(METRICS))
    for axis, booster in zip(axes, BOOSTERS, strict=True):
        for shift, (kind, meaning) in zip((-0.12, 0.12), KINDS.items(), strict=True):
            pooled = [(metric, _pooled(comparisons, kind, booster, metric)) for metric in METRICS]
            rows = [(metric, one.weighted, 2 * one.weighted_error) for metric, one in pooled if one is not None]
            _points(axis, rows, list(METRICS), shift, meaning)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2, fontsize=8)
    figure.savefig(output / f"pooled-{half}.png", dpi=110)

    timed = {key.split("|")[0] for key in timing.read()}
    if not (sets := [name for name in sets if name in timed]):
        pyplot.close("all")
        return
    figure, axes = _panels("Seconds to own's best validation NDCG@10, ours over own's; a cross: never", len(sets))
    for axis, booster in zip(axes, BOOSTERS, strict=True):
        rows = {key: row for key, row in timing.read().items() if key.endswith(f"|{booster}") and key.split("|")[0] in sets}
        every = timing.ratios(list(rows.values()), "ours", "own's best")
        found = [(sets.index(key.split("|")[0]), ratio) for key, ratio in zip(rows, every, strict=True)]
        reached = [(ratio, place) for place, ratio in found if math.isfinite(ratio)]
        axis.scatter([ratio for ratio, _ in reached], [place for _, place in reached])
        never = [place for place, ratio in found if not math.isfinite(ratio)]
        axis.scatter([2 * max([2.5, *(ratio for ratio, _ in reached)])] * len(never), never, marker="x", color="black")
        axis.set_xscale("log")
        axis.set_xticks([0.1, 0.2, 0.5, 1, 2, 5], ["0.1", "0.2", "0.5", "1", "2", "5"])
        axis.set_xticks([], minor=True)
        axis.axvline(1, color="black", linewidth=0.8)
        axis.set_yticks(range(len(sets)), sets)
        axis.set_ylim(len(sets) - 0.5, -0.5)
    figure.savefig(output / f"seconds-{half}.png", dpi=110)
    pyplot.close("all")


def write(spec: str, output: pathlib.Path, *, sets: list[str], boosters: list[str], variants: bool = False) -> None:
    """Write a page with pictures for each half of the data sets, and print the pooled differences."""
    output.mkdir(parents=True, exist_ok=True)
    for half, names in HALVES.items():
        comparisons = _comparisons(spec, [name for name in names if name in sets], boosters, variants)
        if not comparisons:
            print(f"{half}: nothing is stored of {spec} and of own objectives")
            continue
        (output / f"{half}.md").write_text(_text(half, spec, comparisons))
        _pictures(half, comparisons, output)
        for kind, meaning in KINDS.items():
            print(f"\n{half}: ours ({spec}) to the {meaning}\n\n{_pooled_table(comparisons, kind)}")


def explore(
    boosters: list[str], metric: str, sets: list[str], specs: list[str] | None = None, variants: bool = False
) -> None:
    """Print each stored objective's test value minus that of the best own one, per data set."""
    stored = {name: records for name in sets if (records := store.read(name))}
    for booster in boosters:
        known = {r["objective"] for records in stored.values() for r in records.values() if r["booster"] == booster}
        own = opponents(booster, variants=variants)
        rows, shown = [], []
        for spec in specs or [*own, *sorted(known - set(own))]:
            found = {}
            for name, records in stored.items():
                names = {spec} if spec in known else names_of(spec, name, booster, metric, records)
                ours = by_validation(of(records, booster, names), metric)
                if (one := paired(ours, best_own(of(records, booster, own), metric, ours), metric)) is not None:
                    found[name] = one
            if found:
                total = pool(list(found.values()))
                assert total is not None
                rows.append((spec, found, f"{total.weighted:+.4f} ± {total.weighted_error:.4f}", f"{total.equal:+.4f}"))
                shown += [name for name in found if name not in shown]
        best = ["best own", *(f"{next(f[n].own for _, f, _, _ in rows if n in f):.4f}" for n in shown), "", ""]
        lines = [[spec, *(_change(found.get(name)) for name in shown), *ends] for spec, found, *ends in rows]
        table(f"{booster}: test {metric} minus best own", ["objective", *shown, "weighted", "equal"], [best, *lines])
