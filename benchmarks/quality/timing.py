"""How long ours takes to the best validation value of the booster's own objective: both trained again, one after the other.

The seconds in the records of the study are of trainings side by side, under whatever load there was. These are not.
"""

from __future__ import annotations

import json
import math
import pathlib
from collections.abc import Iterator
from typing import Any

import numpy as np
from tqdm import tqdm

from ..harness import table
from . import store
from .cells import Cell, Record, run
from .compare import by_validation, names_of, of, seconds_to
from .objectives import BOOSTERS, STOPS_ON, opponents

SECONDS = pathlib.Path(__file__).with_name("seconds.json")
HEAD = ["booster", "tasks", "reached", "ours / own's best", "ours at own's rate / own's best", "ours / own's whole training"]


def _tasks(sets: list[str], boosters: list[str]) -> Iterator[tuple[Cell, Cell]]:
    """The own objective and learning rate that validation prefers, and ours likewise."""
    for name in sets:
        records = store.read(name)
        for booster in boosters:
            own = by_validation(of(records, booster, opponents(booster, variants=False)), STOPS_ON)
            ours = by_validation(of(records, booster, names_of("recommended", name, booster, STOPS_ON, records)), STOPS_ON)
            for replicate in sorted(set(own) & set(ours)):
                rates = own[replicate]["rate"], ours[replicate]["rate"]
                specs = own[replicate]["objective"], f"name:{STOPS_ON}"
                theirs, mine = (Cell(name, replicate, booster, spec, rate) for spec, rate in zip(specs, rates, strict=True))
                yield theirs, mine


def _to_own(record: Record, best: float) -> float | None:
    seconds = seconds_to(record, best)
    return seconds if math.isfinite(seconds) else None


def measure(sets: list[str], boosters: list[str], folder: pathlib.Path | None, again: bool) -> None:
    """Train what is not stored yet, and store it; nothing else should run on the machine."""
    stored: dict[str, Any] = read()
    tasks = {f"{own.data}|{own.replicate}|{own.booster}": (own, ours) for own, ours in _tasks(sets, boosters)}
    for key in tqdm([key for key in tasks if again or key not in stored], unit="task"):
        cell, mine = tasks[key]
        own, ours = run(cell, folder), run(mine, folder)
        at_own_rate = ours if mine.rate == cell.rate else run(mine._replace(rate=cell.rate), folder)
        best = max(value for _, _, value in own["curve"])
        stored[key] = {
            "own": f"{cell.spec.removeprefix('own:')}, {cell.rate:g}",
            "rate": mine.rate,
            "own's best": seconds_to(own, best),
            "own's whole": own["curve"][-1][1],
            "ours": _to_own(ours, best),
            "ours at own's rate": _to_own(at_own_rate, best),
        }
        SECONDS.write_text(json.dumps(stored, indent=1, sort_keys=True) + "\n")


def read() -> dict[str, dict[str, Any]]:
    """What is stored, by "data|replicate|booster"."""
    return json.loads(SECONDS.read_text()) if SECONDS.exists() else {}


def ratios(rows: list[dict[str, Any]], ours: str, own: str) -> list[float]:
    """Ours over own's; infinite where ours does not get there."""
    return [math.inf if row[ours] is None else row[ours] / row[own] for row in rows]


def summary(sets: list[str]) -> list[list[str]]:
    """A row per booster, with medians over the tasks of some data sets; see `HEAD`."""
    lines = []
    for booster in BOOSTERS:
        rows = [row for key, row in read().items() if key.split("|")[0] in sets and key.endswith(f"|{booster}")]
        if rows:
            reached = sum(row["ours"] is not None for row in rows)
            kinds = ("ours", "own's best"), ("ours at own's rate", "own's best"), ("ours", "own's whole")
            medians = [f"{np.median(ratios(rows, *kind)):.2f}" for kind in kinds]
            lines.append([booster, str(len(rows)), str(reached), *medians])
    return lines


def show(sets: list[str]) -> None:
    """Print the medians."""
    table(f"Seconds to own's best validation {STOPS_ON}: medians over tasks", HEAD, summary(sets))
