"""Run the cells that are not stored yet, in several processes; what is done stays done when it is stopped."""

from __future__ import annotations

import concurrent.futures
import multiprocessing
import os
import pathlib
import sys
import time
from collections.abc import Iterable

from tqdm import tqdm

from . import datasets, store
from .cells import Cell, Record, run
from .objectives import RATES, expand


def plan(
    sets: Iterable[str], boosters: Iterable[str], specs: list[str], *, replicates: int, rates: list[float] | None = None
) -> list[Cell]:
    """All cells of a grid, those of one data set together, each loss once however it is spelled."""
    cells = {
        (name, cell.key): cell
        for name in sets
        for replicate in datasets.replicates(name, replicates)
        for booster in boosters
        for rate in rates or RATES[booster]
        for spec in expand(specs, booster, datasets.max_grade(name))
        for cell in [Cell(name, replicate, booster, spec, rate)]
    }
    return list(cells.values())


def _timed(cell: Cell, folder: pathlib.Path | None) -> tuple[Record, float]:
    start = time.perf_counter()
    return run(cell, folder), time.perf_counter() - start


def run_all(
    cells: list[Cell],
    folder: pathlib.Path | None,
    *,
    jobs: int = 2,
    again: bool = False,
    results: pathlib.Path = store.RESULTS,
) -> int:
    """Run what is missing and store each result as it comes; returns how many cells failed."""
    stored = {name: store.read(name, results) for name in {cell.data for cell in cells}}
    missing = cells if again else [cell for cell in cells if cell.key not in stored[cell.data]]
    if not missing:
        return 0
    os.environ["NUMBA_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"  # for the processes to be started
    failed = 0
    with (
        concurrent.futures.ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool,
        tqdm(total=len(cells), initial=len(cells) - len(missing), unit="cell", mininterval=5) as bar,
    ):
        waiting = {pool.submit(_timed, cell, folder): cell for cell in missing}
        try:
            for done in concurrent.futures.as_completed(waiting):
                cell = waiting[done]
                try:
                    record, seconds = done.result()
                except Exception as error:
                    failed += 1
                    tqdm.write(f"{cell.data} {cell.key} failed: {type(error).__name__}: {error}", file=sys.stderr)
                else:
                    store.add(cell.data, {cell.key: record}, results)
                    tqdm.write(f"{cell.data} {cell.key}: {record['trees']} trees, {seconds:.0f} s")
                bar.update()
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return failed
