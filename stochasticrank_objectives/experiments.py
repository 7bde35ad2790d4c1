"""The paper's experiments: methods, what is tuned and how, and the tables that come out.

A *study* is one method on one booster, tuned for one metric on one fold of a data set. Its trials are settings drawn at
random, each trained once; the best on validation data is then trained with several seeds and measured on test data.
All that is finished is kept in a folder, from which a run that was interrupted goes on.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import csv
import dataclasses
import functools
import hashlib
import importlib.metadata
import itertools
import json
import multiprocessing
import os
import pathlib
import platform
import re
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from .datasets import RankingData, make_ranking
from .evaluation import evaluate
from .losses import Loss, StochasticRank
from .metrics import DCG, ERR, MRR, NDCG, Array, Metric, PFound, parse_metric
from .sglb import SGLB

Params = dict[str, Any]

# ------------------------------------------------------------ what is tuned, from the paper's appendix


class Range(NamedTuple):
    """Where a setting is drawn from: uniformly, or so that its logarithm is uniform; whole numbers if both ends are."""

    low: float
    high: float
    log: bool = False


SPACE = {
    "learning_rate": Range(1e-3, 1.0, log=True),
    "l2": Range(0.1, 10.0, log=True),
    "noise": Range(0.0, 1.0),
    "model_shrink_rate": Range(1e-5, 1e-2, log=True),
    "diffusion_temperature": Range(1e8, 1e11, log=True),
    "mu": Range(1e-2, 10.0, log=True),
}
DEPTHS = (6, 10)

# ------------------------------------------------------------ methods


@dataclasses.dataclass(frozen=True)
class Method:
    """A row of a table: how its loss is made, and what is tuned beside learning rate and depth."""

    title: str
    make: Callable[[Metric, Params, int], Loss]
    tuned: tuple[str, ...]
    ours: bool = False

    @property
    def ndcg_only(self) -> bool:
        return "lambda-Loss" in self.title


def _lambda_mart(metric: Metric, params: Params, seed: int) -> Loss:
    """With the normalisation by query that the boosters' own have by default, and without which it is clearly weaker."""
    from .baselines import LambdaMART

    return LambdaMART(metric, norm=True, noise=params.get("noise", 0.0), seed=seed)


def _lambda_loss(metric: Metric, params: Params, seed: int) -> Loss:
    from .baselines import LambdaLoss

    return LambdaLoss(metric, norm=True, noise=params.get("noise", 0.0), seed=seed)


def _soft_rank(metric: Metric, params: Params, seed: int) -> Loss:
    from .baselines import soft_rank

    return soft_rank(metric, seed=seed)


def _reinforce(metric: Metric, params: Params, seed: int) -> Loss:
    from .baselines import reinforce

    return reinforce(metric, seed=seed)


def _with_sfa(metric: Metric, params: Params, seed: int) -> Loss:
    return StochasticRank(metric, mu=0.0, seed=seed)


def _with_sglb(metric: Metric, params: Params, seed: int) -> Loss:
    return SGLB(
        StochasticRank(metric, mu=params.get("mu", 0.0), seed=seed), learning_rate=params["learning_rate"],
        diffusion_temperature=params["diffusion_temperature"], model_shrink_rate=params["model_shrink_rate"], seed=seed,
    )  # fmt: skip


def _absolute(metric: Metric, params: Params, seed: int) -> Loss:
    return StochasticRank(metric, mu=params["mu"], sfa=False, hessian="absolute", seed=seed)


_LANGEVIN = ("model_shrink_rate", "diffusion_temperature")

METHODS = {
    "lambdamart": Method("lambda-MART", _lambda_mart, ("l2",)),
    "lambdaloss": Method("lambda-Loss", _lambda_loss, ("l2",)),
    "e-lambdamart": Method("E-lambda-MART", _lambda_mart, ("l2", "noise")),
    "e-lambdaloss": Method("E-lambda-Loss", _lambda_loss, ("l2", "noise")),
    "softrank": Method("SoftRank", _soft_rank, ("l2",)),
    "sr-r1-soft": Method("SR-R1-soft", _with_sglb, _LANGEVIN, ours=True),
    "sr-r1": Method("SR-R1", _with_sglb, (*_LANGEVIN, "mu"), ours=True),
    "sr-absolute": Method("SR-absolute", _absolute, ("l2", "mu"), ours=True),
    "reinforce": Method("REINFORCE", _reinforce, (), ours=True),
    "ccs": Method("CCS", _soft_rank, (), ours=True),
    "ccs+sfa": Method("CCS+SFA", _with_sfa, (), ours=True),
}
"""The rows of the paper's tables 2 and 3, and one more: StochasticRank with a hessian; by the names of the command line.
What is not `ours` is a baseline."""

OWN = "own"  # stands for the booster's own objectives
COMPARED = (
    "lambdamart",
    "lambdaloss",
    "e-lambdamart",
    "e-lambdaloss",
    "softrank",
    OWN,
    "sr-r1-soft",
    "sr-r1",
    "sr-absolute",
)
ABLATED = ("reinforce", "ccs", "ccs+sfa", "sr-r1-soft", "sr-r1")
_ABLATED_TITLES = {"sr-r1-soft": "CCS+SFA+SGLB (SR-R1-soft)", "sr-r1": "CCS+SFA+SGLB+mu (SR-R1)"}
BOOSTERS = ("xgboost", "lightgbm", "catboost")


def own_objectives(booster: str, metric: Metric) -> list[str]:
    """The booster's own ranking objectives, aimed at this metric where they can be."""
    if booster == "xgboost":
        return ["rank:ndcg"]
    if booster == "lightgbm":
        return ["lambdarank", "rank_xendcg"]
    top = "" if metric.k is None else f";top={metric.k}"
    if isinstance(metric, DCG):
        gain = "Exp" if metric.gain == "exp" else "Base"
        return ["YetiRank", f"StochasticRank:metric={'NDCG' if isinstance(metric, NDCG) else 'DCG'}{top};type={gain}"]
    if isinstance(metric, MRR):
        return ["YetiRank", "StochasticRank:metric=MRR"]  # with top= CatBoost 1.2.10 ends the process
    if isinstance(metric, (ERR, PFound)):
        return ["YetiRank", f"StochasticRank:metric={type(metric).__name__}{top}"]
    return ["YetiRank"]


def title(method: str) -> str:
    """What a table calls a method; a booster's own objective by its own name."""
    return METHODS[method].title if method in METHODS else method


def check_names(kind: str, given: Sequence[str], known: Sequence[str]) -> list[str]:
    """Each name once and known, or a ValueError."""
    for name in given:
        if name not in known:
            raise ValueError(f"unknown {kind} {name!r}; known are {', '.join(known)}")
    if not given:
        raise ValueError(f"no {kind} is given; known are {', '.join(known)}")
    return list(dict.fromkeys(given))


# ------------------------------------------------------------ data


class Split(NamedTuple):
    """What a method is trained on, chosen by and measured on."""

    learn: RankingData
    valid: RankingData
    test: RankingData


@dataclasses.dataclass(frozen=True)
class Source:
    """A data set as it was named: a folder, a file, or the word "generated", perhaps with a colon and a number of queries.

    Where a folder has no validation file, a fifth of the training queries is taken for it; a single file is divided into
    three fifths, one and one. The division is by query, at random, always the same.
    """

    path: str
    first_index: int | None = None

    @property
    def queries(self) -> int | None:
        """How many queries to generate; None for files."""
        word, colon, number = self.path.partition(":")
        if word != "generated":
            return None
        if colon and not (number.isdigit() and int(number) > 0):
            raise ValueError(f'after "generated:" comes a number of queries, got {number!r}')
        return int(number) if colon else 300

    @property
    def name(self) -> str:
        return self.path if self.queries else os.path.basename(os.path.abspath(self.path))

    def _folds(self) -> list[Any]:
        from .letor import load_folds

        return load_folds(self.path, first_index=self.first_index)

    @property
    def _one_file(self) -> bool:
        if not os.path.exists(self.path):
            raise ValueError(f'{self.path}: there is no such file or folder; "generated" stands for generated data')
        return os.path.isfile(self.path)

    def folds(self) -> list[str]:
        """The names of the folds."""
        return ["generated"] if self.queries else ["all"] if self._one_file else [fold.name for fold in self._folds()]

    def fingerprint(self) -> str:
        """Changes when the files do; it does not depend on where they are."""
        if self.queries:
            return self.path
        files = {self.path}
        if not self._one_file:
            files = {path for fold in self._folds() for path in (*fold.train_files, *fold.valid_files, *fold.test_files)}
        listed = sorted((os.path.relpath(path, self.path), os.path.getsize(path)) for path in files)
        return hashlib.sha256(repr((listed, self.first_index)).encode()).hexdigest()[:16]

    def load(self, fold: int) -> Split:
        """One fold, by its place."""
        if self.queries:
            return Split(*(make_ranking(self.queries, seed=seed) for seed in (1, 2, 3)))
        if self._one_file:
            from .letor import read_svmlight

            return Split(*divide(read_svmlight(self.path, first_index=self.first_index), (3, 1, 1)))
        chosen = self._folds()[fold]
        learn, valid = chosen.train, chosen.valid
        if valid is None:
            learn, valid = divide(learn, (4, 1))
        return Split(learn, valid, chosen.test)


def divide(data: RankingData, shares: Sequence[int]) -> list[RankingData]:
    """Parts with so many shares of the queries each, drawn at random, always the same; queries keep their order."""
    count = len(data.groups)
    if count < sum(shares):
        raise ValueError(f"{count} queries are too few to divide into {' : '.join(map(str, shares))}; there must be more")
    ends = np.cumsum(shares) * count // sum(shares)
    shuffled = np.random.default_rng(0).permutation(count)
    parts = []
    for begin, end in itertools.pairwise([0, *ends.tolist()]):
        taken = np.zeros(count, bool)
        taken[shuffled[begin:end]] = True
        rows = np.repeat(taken, data.groups)
        parts.append(RankingData(data.features[rows], data.labels[rows], data.groups[taken]))
    return parts


@functools.lru_cache(maxsize=1)  # tasks come fold by fold
def _loaded(source: Source, fold: int) -> Split:
    return source.load(fold)


# ------------------------------------------------------------ one training


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
    from .adapters.training import Settings, train

    split = _loaded(study.source, study.fold)
    metric = parse_metric(study.metric)
    learn, more = split.learn, {}
    objective: Loss | str = study.method
    if study.method in METHODS:
        objective = METHODS[study.method].make(metric, params, seed)
        if study.booster == "xgboost":  # would compare sums of second derivatives, which are small for lambdas, with 1
            more["min_child_weight"] = 0
    elif hasattr(metric, "threshold"):  # a metric of binary relevance, of which the booster's own objective knows nothing
        learn = learn._replace(labels=metric.gains(learn.labels))
    trained = train(
        study.booster, objective, learn, split.valid, metric=metric,
        settings=Settings(
            rounds=protocol.rounds, patience=protocol.patience, learning_rate=params["learning_rate"],
            depth=params["depth"], l2=params.get("l2", 0.0), seed=seed, threads=_threads(), more=more,
        ),
    )  # fmt: skip
    result = {"valid": max(trained.curve), "rounds": trained.best_rounds, "seconds": trained.seconds}
    if test:
        values = evaluate(metric, trained.predict(split.test.features), split.test.labels, split.test.groups, per_query=True)
        result |= {"curve": trained.curve, "per_query": values.tolist()}
    return result


# ------------------------------------------------------------ processes


def _threads() -> int:
    from ._threads import default_threads

    return default_threads()


def _start_worker(threads: int) -> None:
    """Ctrl-C is for the process that started this one; when that is gone, however it ended, so is this."""
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
    """Does tasks in so many processes at once, or in this one if it is one; results come as they are ready."""

    def __init__(self, jobs: int) -> None:
        if jobs < 1:
            raise ValueError(f"jobs must be at least 1, got {jobs}")
        self.jobs = jobs
        self._pool: concurrent.futures.ProcessPoolExecutor | None = None
        self._before: set[Any] = set()

    def __enter__(self) -> Workers:
        if self.jobs > 1:
            self._before = set(multiprocessing.active_children())
            self._pool = concurrent.futures.ProcessPoolExecutor(
                self.jobs, multiprocessing.get_context("spawn"), _start_worker, (max(1, _threads() // self.jobs),)
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


def _write(path: pathlib.Path, text: str) -> None:
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
                _write(path, json.dumps(finals[study, seed]))
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


# ------------------------------------------------------------ tables 2 and 3


def interval(values: Sequence[float]) -> float | None:
    """Half the 95 % interval of the mean of a few values (Student's); None of a single one."""
    from scipy import stats

    if len(values) < 2:
        return None
    return float(stats.t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / np.sqrt(len(values)))


def p_value(values: Array, other: Array) -> float:
    """The paired one-tailed t-test over queries: how likely so much of an advantage is if there is none."""
    from scipy import stats

    if np.array_equal(values, other):
        return 0.5
    return float(stats.ttest_rel(values, other, alternative="greater").pvalue)


@dataclasses.dataclass
class Row:
    """A method on a booster: its test metric over the queries of all folds, as a mean over seeds."""

    data: str
    booster: str
    metric: str
    method: str
    title: str
    ours: bool
    mean: float | None = None
    interval: float | None = None
    by_seed: list[float] = dataclasses.field(default_factory=list)
    p: float | None = None
    against: str = ""
    queries: int = 0
    rounds: float | None = None
    seconds: float | None = None
    params: list[Params] = dataclasses.field(default_factory=list)
    valid: float | None = None
    error: str = ""
    per_query: Array | None = dataclasses.field(default=None, repr=False)
    curves: list[list[float]] = dataclasses.field(default_factory=list, repr=False)

    @property
    def key(self) -> tuple[str, str, str]:
        """Rows of the same key stand beside each other."""
        return self.data, self.metric, self.booster

    def summary(self) -> dict[str, Any]:
        """What goes into a file."""
        left_out = {"per_query", "curves"}
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name not in left_out}


def _row(outcomes: Sequence[Outcome]) -> Row:
    """The folds of a method together."""
    study = outcomes[0].study
    known = METHODS.get(study.method)
    row = Row(
        study.source.name, study.booster, study.metric, study.method, title(study.method),
        ours=known is not None and known.ours, error="; ".join(each.error for each in outcomes if each.error),
    )  # fmt: skip
    if row.error:
        return row
    seeds = sorted(set.intersection(*({final["seed"] for final in each.finals} for each in outcomes)))
    by_seed = [
        np.concatenate([next(f["per_query"] for f in each.finals if f["seed"] == seed) for each in outcomes])
        for seed in seeds
    ]
    finals = [final for each in outcomes for final in each.finals]
    row.per_query = np.mean(by_seed, axis=0)
    row.by_seed = [float(values.mean()) for values in by_seed]
    row.mean, row.interval, row.queries = float(np.mean(row.by_seed)), interval(row.by_seed), len(row.per_query)
    row.rounds = float(np.mean([final["rounds"] for final in finals]))
    row.seconds = float(np.mean([final["seconds"] for final in finals]))
    row.valid = float(np.mean([final["valid"] for final in finals]))
    row.params = [final["params"] for final in (each.finals[0] for each in outcomes)]
    row.curves = [final["curve"] for final in outcomes[0].finals]
    return row


def _rows(outcomes: Sequence[Outcome]) -> list[Row]:
    by_method: dict[tuple[str, ...], list[Outcome]] = {}
    for each in outcomes:
        study = each.study
        by_method.setdefault((study.source.name, study.metric, study.booster, study.method), []).append(each)
    return [_row(together) for together in by_method.values()]


def _studies(
    data: Sequence[str],
    metrics: Sequence[str],
    boosters: Sequence[str],
    methods: Sequence[str],
    folds: int | None,
    first_index: int | None,
) -> list[Study]:
    names = list(dict.fromkeys(str(parse_metric(metric)) for metric in metrics))
    sources = [Source(path, first_index) for path in dict.fromkeys(data)]
    if len({source.name for source in sources}) < len(sources):
        raise ValueError(
            f"two data sets have the same name: {', '.join(source.path for source in sources)}; rename a folder"
        )
    boosters = check_names("booster", boosters, BOOSTERS)
    for booster in boosters:
        _check_installed(booster)
    studies = []
    for source in sources:
        for number, fold in enumerate(source.folds()[:folds]):
            for name, booster, method in itertools.product(names, boosters, methods):
                metric = parse_metric(name)
                if method in METHODS and METHODS[method].ndcg_only and not isinstance(metric, DCG):
                    continue
                wanted = own_objectives(booster, metric) if method == OWN else [method]
                studies += [Study(source, number, fold, booster, name, each) for each in wanted]
    if not studies:
        raise ValueError(f"none of {', '.join(methods)} can be trained for {', '.join(names)}")
    return studies


def _check_installed(booster: str) -> None:
    try:
        importlib.metadata.version(booster)
    except importlib.metadata.PackageNotFoundError:
        install = f'pip install "stochasticrank-objectives[{booster}]"'
        raise ImportError(f"{booster} is not installed: {install}; or leave it out with --booster") from None


def compare(
    data: Sequence[str],
    *,
    metrics: Sequence[str] = ("ndcg@5",),
    boosters: Sequence[str] = BOOSTERS,
    methods: Sequence[str] = COMPARED,
    folder: str | os.PathLike[str],
    trials: int = 20,
    seeds: int = 5,
    jobs: int = 1,
    protocol: Protocol | None = None,
    folds: int | None = None,
    first_index: int | None = None,
    progress: bool = True,
) -> list[Row]:
    """The paper's Table 2 on any data: every method tuned and tested, with a test against the best that is not ours."""
    protocol = protocol or Protocol()
    methods = check_names("method", methods, (*METHODS, OWN))
    studies = _studies(data, metrics, boosters, methods, folds, first_index)
    rows = _rows(search(studies, protocol, pathlib.Path(folder), trials=trials, seeds=seeds, jobs=jobs, progress=progress))
    for row in rows:
        rivals = [each for each in rows if each.key == row.key and not each.ours and each.per_query is not None]
        if rivals and row.ours and row.per_query is not None:
            best = max(rivals, key=lambda each: each.mean or 0.0)
            assert best.per_query is not None
            row.against, row.p = best.title, p_value(row.per_query, best.per_query)
    return rows


def ablate(data: Sequence[str], *, methods: Sequence[str] = ABLATED, **options: Any) -> list[Row]:
    """The paper's Table 3: what each part of the method adds, with a test against the row before; options as `compare`'s."""
    rows = compare(data, methods=methods, **options)
    before: dict[tuple[str, str, str], Row] = {}
    for row in rows:
        row.title = _ABLATED_TITLES.get(row.method, row.title)
        above = before.get(row.key)
        if above is not None and row.per_query is not None and above.per_query is not None:
            row.against, row.p = above.title, p_value(row.per_query, above.per_query)
        before[row.key] = row
    return rows


# ------------------------------------------------------------ table 1

SYNTHETIC = RankingData(
    np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 1], [1, 0, 0]], np.float64),
    np.array([3.0, 2.0, 1.0, 3.0, 2.0]),
    np.array([3, 2]),
)
"""Two queries with several local optima for NDCG@3; the best order of the three distinct documents gives 0.917."""

GLOBAL = 0.9165  # reached if NDCG@3 is at least this; the best local optimum is 0.903
_SINGLE_ROWS: dict[str, dict[str, Any]] = {  # a tree may split off a single row
    "xgboost": {"min_child_weight": 0},
    "lightgbm": {
        "min_data_in_leaf": 1, "min_sum_hessian_in_leaf": 0, "min_data_in_bin": 1, "feature_pre_filter": False,
    },
    "catboost": {"bootstrap_type": "No", "random_strength": 0},
}  # fmt: skip
_SYNTHETIC_PARAMS = {"learning_rate": 0.1, "diffusion_temperature": 1e3, "model_shrink_rate": 1e-3, "noise": 0.5, "mu": 0.1}


def _no_sfa(metric: Metric, params: Params, seed: int) -> Loss:
    loss = _with_sglb(metric, params, seed)
    assert isinstance(loss, SGLB)
    return dataclasses.replace(loss, loss=StochasticRank(metric, sigma=0.3, mu=params["mu"], sfa=False, seed=seed))


SYNTHETIC_ROWS: dict[str, tuple[str, Callable[[Metric, Params, int], Loss]]] = {
    "lambdamart": ("lambda-MART", lambda metric, params, seed: _lambda_mart(metric, {}, seed)),
    "lambdaloss": ("lambda-Loss", lambda metric, params, seed: _lambda_loss(metric, {}, seed)),
    "e-lambdamart": ("E-lambda-MART, noise 0.5", _lambda_mart),
    "e-lambdaloss": ("E-lambda-Loss, noise 0.5", _lambda_loss),
    "softrank": ("SoftRank", _soft_rank),
    "sr-r1": ("StochasticRank + SGLB", _with_sglb),
    "sr-r1-no-sfa": ("StochasticRank + SGLB, sfa=False, sigma=0.3", _no_sfa),
}


def _train_synthetic(task: tuple[str, str, int, int]) -> dict[str, Any]:
    from .adapters.training import Settings, train

    booster, method, seed, rounds = task
    metric = NDCG(3)
    objective = SYNTHETIC_ROWS[method][1](metric, _SYNTHETIC_PARAMS, seed) if method in SYNTHETIC_ROWS else method
    trained = train(
        booster, objective, SYNTHETIC, SYNTHETIC, metric=metric,
        settings=Settings(
            rounds=rounds, learning_rate=0.1, depth=3, l2=0.0, seed=seed, threads=1, more=_SINGLE_ROWS[booster]
        ),
    )  # fmt: skip
    return {"ndcg@3": trained.curve[-1], "seconds": trained.seconds}


@dataclasses.dataclass
class SyntheticCell:
    """A method on a booster: NDCG@3 after the last iteration, by seed."""

    booster: str
    method: str
    title: str
    values: list[float]

    @property
    def reached(self) -> int:
        """From how many seeds the global optimum was reached."""
        return sum(value >= GLOBAL for value in self.values)

    @property
    def mean(self) -> float:
        return float(np.mean(self.values))


def synthetic(
    *,
    boosters: Sequence[str] = BOOSTERS,
    methods: Sequence[str] = (*SYNTHETIC_ROWS, OWN),
    seeds: int = 20,
    rounds: int = 1000,
    jobs: int = 1,
    progress: bool = True,
) -> list[SyntheticCell]:
    """The paper's Table 1: whether the global optimum is reached on two tiny queries."""
    from tqdm import tqdm

    if seeds < 1 or rounds < 1:
        raise ValueError(f"seeds and rounds must be at least 1, got seeds={seeds}, rounds={rounds}")
    methods = check_names("method", methods, (*SYNTHETIC_ROWS, OWN))
    cells = []
    for booster in check_names("booster", boosters, BOOSTERS):
        _check_installed(booster)
        for method in methods:
            for each in own_objectives(booster, NDCG(3)) if method == OWN else [method]:
                name = SYNTHETIC_ROWS[each][0] if each in SYNTHETIC_ROWS else title(each)
                cells.append(SyntheticCell(booster, each, name, [float("nan")] * seeds))
    tasks = [((cell, seed), (cell.booster, cell.method, seed, rounds)) for cell in cells for seed in range(seeds)]
    with Workers(jobs) as workers, tqdm(total=len(tasks), unit="run", disable=not progress) as bar:
        for (cell, seed), result in workers.run(_train_synthetic, iter(tasks)):
            cell.values[seed] = result["ndcg@3"]
            bar.update()
    return cells


def versions() -> dict[str, str]:
    """What the results were made with."""
    found = {"python": platform.python_version()}
    for name in ("stochasticrank-objectives", "numpy", "numba", "optuna", *BOOSTERS):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found
