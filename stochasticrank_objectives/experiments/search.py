"""Random search, resumable.

A *study* is one method on one booster, tuned for one metric on one fold of a data set. Its trials are settings drawn at
random, each trained once; the best on validation data is then trained with several seeds and measured on test data.
All that is finished is kept in a folder, from which a run that was interrupted goes on.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import csv
import dataclasses
import hashlib
import importlib
import itertools
import json
import logging
import multiprocessing
import os
import pathlib
import re
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from stochasticrank_objectives._threads import default_threads
from stochasticrank_objectives.evaluation import evaluate
from stochasticrank_objectives.functions import defining_modules
from stochasticrank_objectives.losses import Loss
from stochasticrank_objectives.metrics import parse_metric

from . import training
from .methods import DEPTHS, METHODS, SPACE, Params, Range
from .sources import Source, loaded


@dataclasses.dataclass(frozen=True)
class Protocol:
    """What is the same for all methods."""

    rounds: int = 1000
    patience: int | None = 100
    depths: tuple[int, int] = DEPTHS
    seed: int = 0  # of the random search

    def __post_init__(self) -> None:
        low, high = self.depths
        if self.rounds < 1 or (self.patience is not None and self.patience < 1) or not 1 <= low <= high <= 16:
            raise ValueError(
                f"rounds and patience must be at least 1 and depths between 1 and 16, the smaller first, got "
                f"rounds={self.rounds}, patience={self.patience}, depths={low}-{high}"
            )


@dataclasses.dataclass(frozen=True)
class Study:
    """One method on one booster, for one metric, on one fold."""

    source: Source
    fold: int
    fold_name: str
    booster: str
    metric: str
    method: str

    @property
    def name(self) -> str:
        return "/".join([self.source.name, self.fold_name, self.booster, self.metric, self.method])

    @property
    def slug(self) -> str:
        """The name as that of a file."""
        return re.sub(r"[^\w@.+-]+", "_", self.name)

    def space(self, protocol: Protocol) -> dict[str, Range]:
        """What is tuned; own objectives are tuned as baselines are."""
        tuned = METHODS[self.method].tuned if self.method in METHODS else ("l2",)
        return {name: SPACE[name] for name in ("learning_rate", *tuned)} | {"depth": Range(*protocol.depths)}


def _train(study: Study, protocol: Protocol, params: Params, seed: int, test: bool) -> dict[str, Any]:
    """Train once: the best validation metric and when it was reached; with `test`, also the curve and each test query."""
    split = loaded(study.source, study.fold)
    metric = parse_metric(study.metric)
    learn, more = split.learn, {}
    objective: Loss | str = study.method
    if study.method in METHODS:
        objective = METHODS[study.method].make(metric, params, seed)
        if study.booster == "xgboost":  # would compare sums of second derivatives, which are small for lambdas, with 1
            more["min_child_weight"] = 0
    elif hasattr(metric, "threshold"):  # a metric of binary relevance, of which the booster's own objective knows nothing
        learn = learn._replace(labels=metric.gains(learn.labels))
    trained = training.train(
        study.booster, objective, learn, split.valid, metric=metric,
        settings=training.Settings(
            rounds=protocol.rounds, patience=protocol.patience, learning_rate=params["learning_rate"],
            depth=params["depth"], l2=params.get("l2", 0.0), seed=seed, threads=default_threads(), more=more,
        ),
    )  # fmt: skip
    result: dict[str, Any] = {"valid": max(trained.curve), "rounds": trained.best_rounds, "seconds": trained.seconds}
    if test:
        values = evaluate(metric, trained.predict(split.test.features), split.test.labels, split.test.groups, per_query=True)
        result |= {"curve": trained.curve, "per_query": values.tolist()}
    return result


# ------------------------------------------------------------ processes


def _start_worker(threads: int, modules: list[str]) -> None:
    """Ctrl-C is for the process that started this one; when that one is gone, however it ended, this one ends."""
    for module in modules:
        importlib.import_module(module)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ["NUMBA_NUM_THREADS"] = str(threads)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def follow() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()


def _attempt(task: tuple[Any, ...]) -> dict[str, Any]:
    """A training may fail, by diverging for example: that is a result too."""
    try:
        return _train(*task)
    except ValueError as error:
        return {"error": str(error)}


class Workers:
    """Does tasks in so many processes at once, or in this process if one is asked for; results come as they are ready."""

    def __init__(self, jobs: int) -> None:
        if jobs < 1:
            raise ValueError(f"jobs must be at least 1, got {jobs}")
        self.jobs = jobs
        self._pool: concurrent.futures.ProcessPoolExecutor | None = None
        self._before: set[Any] = set()

    def __enter__(self) -> Workers:
        if self.jobs > 1:
            self._before = set(multiprocessing.active_children())
            given = (max(1, default_threads() // self.jobs), defining_modules())
            self._pool = concurrent.futures.ProcessPoolExecutor(
                self.jobs, multiprocessing.get_context("spawn"), _start_worker, given
            )
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        if self._pool is None:
            return
        if kind is not None:  # do not wait for trainings that nobody wants any more
            for child in set(multiprocessing.active_children()) - self._before:
                child.terminate()
        self._pool.shutdown(cancel_futures=True)

    def run(
        self, work: Callable[[Any], Any], tasks: Iterator[tuple[Any, tuple[Any, ...]]]
    ) -> Iterator[tuple[Any, dict[str, Any]]]:
        """Pairs of a key and what `work` makes of its task. A task is taken from the iterator only when it can start."""
        if self._pool is None:
            for key, task in tasks:
                yield key, work(task)
            return
        running: dict[concurrent.futures.Future[dict[str, Any]], Any] = {}
        while True:
            for key, task in itertools.islice(tasks, self.jobs - len(running)):
                running[self._pool.submit(work, task)] = key
            if not running:
                return
            done, _ = concurrent.futures.wait(running, return_when=concurrent.futures.FIRST_COMPLETED)
            for future in done:
                yield running.pop(future), future.result()


@contextlib.contextmanager
def _locked(folder: pathlib.Path) -> Iterator[None]:
    """Keep a second run out of a folder; the system lets go of the lock when this process ends, however that happens."""
    with open(folder / "lock", "w") as file:
        try:
            import fcntl
        except ImportError:  # not on Windows
            yield
            return
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ValueError(f"another run is writing to {folder}; wait for it, or choose another folder") from None
        yield


# ------------------------------------------------------------ tuning


def _optuna() -> Any:
    try:
        import optuna
    except ImportError as error:
        install = 'pip install "stochasticrank-objectives[cli]"'
        raise ImportError(f"tuning needs optuna, which is not installed: {install}") from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


@contextlib.contextmanager
def _storage(path: pathlib.Path) -> Iterator[Any]:
    storage = _optuna().storages.RDBStorage(f"sqlite:///{path.resolve()}")
    # A Ctrl-C in the middle of returning a connection is raised, and is not to be logged with a traceback besides.
    logging.getLogger("sqlalchemy.pool").setLevel(logging.CRITICAL)
    try:
        yield storage
    finally:
        storage.remove_session()
        storage.engine.dispose()


class Record:
    """The trials of a study, on disk.

    A trial has an index, and its settings follow from the index alone: whatever was interrupted, and however many ran at
    once, the same settings are tried, each once.
    """

    def __init__(self, study: Study, protocol: Protocol, storage: Any) -> None:
        optuna = _optuna()
        self.study, self.protocol = study, protocol
        self._failed = optuna.trial.TrialState.FAIL
        self._random = optuna.samplers.RandomSampler
        self._distributions = {
            name: optuna.distributions.IntDistribution(*each[:2])
            if isinstance(each.low, int)
            else optuna.distributions.FloatDistribution(each.low, each.high, log=each.log)
            for name, each in study.space(protocol).items()
        }
        self._stored = optuna.create_study(
            storage=storage, study_name=study.name, direction="maximize", load_if_exists=True, sampler=self._random(seed=0)
        )
        # As JSON has it, for comparison with what was stored.
        now = json.loads(json.dumps({**dataclasses.asdict(protocol), "data": study.source.fingerprint()}))
        then = self._stored.user_attrs.get("protocol")
        if then is None:
            self._stored.set_user_attr("protocol", now)
        elif then != now:
            changed = ", ".join(f"{name} {then.get(name)} (now {now[name]})" for name in now if now[name] != then.get(name))
            raise ValueError(f"the output folder has results of {study.name} with other settings: {changed}; choose another")
        self.done: dict[int, dict[str, Any]] = {}
        for trial in self._stored.trials:
            result = trial.user_attrs.get("result")
            if not trial.state.is_finished():  # it was running when the run was interrupted, and will be run again
                self._tell(trial.number, result or {"error": "interrupted"})
            if result is not None:
                self.done[trial.user_attrs["index"]] = {**result, "params": trial.params}

    def _tell(self, trial: Any, result: dict[str, Any]) -> None:
        if "error" in result:
            self._stored.tell(trial, state=self._failed)
        else:
            self._stored.tell(trial, result["valid"])

    def start(self, index: int) -> Any:
        """Draw the settings of a trial."""
        key = hashlib.sha256(f"{self.protocol.seed}/{self.study.name}/{index}".encode()).digest()
        self._stored.sampler = self._random(seed=int.from_bytes(key[:4], "big"))
        trial = self._stored.ask(self._distributions)
        trial.set_user_attr("index", index)
        return trial

    def finish(self, trial: Any, result: dict[str, Any]) -> None:
        """Keep what came out."""
        trial.set_user_attr("result", result)
        self._tell(trial, result)
        self.done[trial.user_attrs["index"]] = {**result, "params": trial.params}

    def best(self, trials: int) -> dict[str, Any] | None:
        """The first of the best among the first so many trials; None if all failed."""
        succeeded = [self.done[index] | {"trial": index} for index in range(trials) if "error" not in self.done[index]]
        return max(succeeded, key=lambda one: one["valid"], default=None)


def write_whole(path: pathlib.Path, text: str) -> None:
    """All or nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".part")
    temporary.write_text(text, encoding="utf-8")
    os.replace(temporary, path)


def _final(folder: pathlib.Path, study: Study, seed: int, params: Params) -> tuple[pathlib.Path, dict[str, Any] | None]:
    """Where the training of the best settings with a seed is kept, and what is there already."""
    path = folder / "final" / study.slug / f"{seed}.json"
    if path.exists():
        kept: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if kept["params"] == params:
            return path, kept
    return path, None


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What came out of a study: the best trial, and the trainings with its settings; or why there is none."""

    study: Study
    best: dict[str, Any] | None
    finals: list[dict[str, Any]]
    error: str = ""


def search(
    studies: Sequence[Study],
    protocol: Protocol,
    folder: pathlib.Path,
    *,
    trials: int,
    seeds: int,
    jobs: int = 1,
    progress: bool = True,
) -> list[Outcome]:
    """Tune all studies, then train the best of each with several seeds; goes on from what the folder has."""
    if trials < 1 or seeds < 1:
        raise ValueError(f"trials and seeds must be at least 1, got trials={trials}, seeds={seeds}")
    from tqdm import tqdm

    folder.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        stack.enter_context(_locked(folder))
        workers = stack.enter_context(Workers(jobs))
        storage = stack.enter_context(_storage(folder / "trials.sqlite"))
        records = {study: Record(study, protocol, storage) for study in studies}
        for source, fold in dict.fromkeys((study.source, study.fold) for study in studies):
            source.load(fold)  # a damaged file is an error now, not after hours; and this fills the cache for all processes
        missing = [
            (study, index)
            for _, fold in itertools.groupby(studies, lambda one: (one.source, one.fold))
            for index, study in itertools.product(range(trials), list(fold))
            if index not in records[study].done
        ]
        total = len(studies) * (trials + seeds)
        with tqdm(total=total, initial=len(studies) * trials - len(missing), unit="run", disable=not progress) as bar:

            def starting() -> Iterator[tuple[Any, tuple[Any, ...]]]:
                for study, index in missing:
                    trial = records[study].start(index)
                    yield (study, trial), (study, protocol, trial.params, 0, False)

            for (study, trial), result in workers.run(_attempt, starting()):
                records[study].finish(trial, result)
                bar.set_description(f"{study.booster} {study.method}"[:32])
                bar.update()
            _write_trials(folder / "trials.csv", records)

            best = {study: records[study].best(trials) for study in studies}
            finals: dict[tuple[Study, int], dict[str, Any]] = {}
            wanted = []
            for study, seed in itertools.product(studies, range(1, seeds + 1)):
                chosen = best[study]
                if chosen is None:
                    bar.update()
                    continue
                path, kept = _final(folder, study, seed, chosen["params"])
                if kept is None:
                    wanted.append(((study, seed, path), (study, protocol, chosen["params"], seed, True)))
                else:
                    finals[study, seed] = kept
                    bar.update()
            for (study, seed, path), result in workers.run(_attempt, iter(wanted)):
                finals[study, seed] = {"params": best[study]["params"], "seed": seed, **result}  # type: ignore[index]
                write_whole(path, json.dumps(finals[study, seed]))
                bar.update()
    outcomes = []
    for study in studies:
        results = [finals[study, seed] for seed in range(1, seeds + 1) if (study, seed) in finals]
        errors = [each["error"] for each in (*results, *records[study].done.values()) if "error" in each]
        results = [each for each in results if "error" not in each]
        outcomes.append(Outcome(study, best[study], results, "" if results else errors[0]))
    if not any(outcome.finals for outcome in outcomes):
        raise ValueError(f"every training failed; the first said: {outcomes[0].error}")
    return outcomes


def _write_trials(path: pathlib.Path, records: dict[Study, Record]) -> None:
    """All trials as a table, for those who look for good settings."""
    columns = [
        "data",
        "fold",
        "booster",
        "metric",
        "method",
        "trial",
        "valid",
        "rounds",
        "seconds",
        "depth",
        *SPACE,
        "error",
    ]
    with open(path, "w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, columns, restval="")
        table.writeheader()
        for study, record in records.items():
            where = {"data": study.source.name, "fold": study.fold_name, "booster": study.booster}
            for index, trial in sorted(record.done.items()):
                row = {**where, "metric": study.metric, "method": study.method, "trial": index, **trial, **trial["params"]}
                del row["params"]
                table.writerow(row)
