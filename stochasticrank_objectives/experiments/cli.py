"""The command line: what it is given is checked here, what it does stands in `experiments`, `reports` and the adapters."""

from __future__ import annotations

import argparse
import ast
import concurrent.futures
import contextlib
import dataclasses
import importlib
import math
import os
import re
import sys
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

import numpy as np

from stochasticrank_objectives import __version__

_DATA_HELP = (
    'a data set in the svmlight format ("label qid:ID index:value ..."): a folder with Fold1, Fold2, ..., or with train, '
    "vali and test files, or with parts S1, S2, ..., or a single file, plain or gzipped; or the word generated "
    "(generated:500 for 500 queries), which needs no files"
)


_FILE_HELP = "an svmlight file, plain or gzipped, or - for standard input"
_NOT_OPTIONS = ("command", "run", "data", "scores", "model", "more", "fields", "modules")


class _Parser(argparse.ArgumentParser):
    """Errors are one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message} (see {self.prog} --help)\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; errors in input are one line and exit code 2, Ctrl-C is one line and 130."""
    chosen = _parser().parse_args(arguments)
    try:
        for module in chosen.modules:
            _import(module)
        chosen.run(chosen)
    except KeyboardInterrupt:
        kept = (
            f"; what is finished is kept in {chosen.output}: the same command goes on" if hasattr(chosen, "resume") else ""
        )
        return _fail(f"interrupted{kept}", 130)
    except concurrent.futures.BrokenExecutor:
        return _fail(
            "a process ended unexpectedly, perhaps because memory ran out; the same command resumes, try fewer --jobs",
            1,
        )
    except BrokenPipeError:  # the reader of standard output has closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except OSError as error:
        return _fail(f"{error.filename}: {error.strerror}" if error.filename and error.strerror else str(error), 2)
    except (ValueError, ImportError) as error:
        from .words import in_options

        return _fail(in_options(str(error), [name for name in vars(chosen) if name not in _NOT_OPTIONS]), 2)
    return 0


def _fail(message: str, code: int) -> int:
    print(f"stochasticrank: {' '.join(message.split())}", file=sys.stderr)
    return code


# ------------------------------------------------------------ arguments


def _names(text: str) -> list[str]:
    return [name for name in (part.strip() for part in text.split(",")) if name]


def _above_0(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, got {text!r}")
    return int(text)


def _patience(text: str) -> int | None:
    return None if text == "none" else _above_0(text)


def _depths(text: str) -> tuple[int, int]:
    low, _, high = text.partition("-")
    if not low.isdigit() or not (high or low).isdigit():
        raise argparse.ArgumentTypeError(f"must be a depth such as 6 or a range such as 6-10, got {text!r}")
    return int(low), int(high or low)


def _empty(text: str) -> Any:
    try:
        return text if text == "skip" else float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a number or skip, got {text!r}") from None


def _setting(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise argparse.ArgumentTypeError(f"must be NAME=VALUE, got {text!r}")
    try:
        return name, ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return name, value


def _import(module: str) -> None:
    """Import a module of the user's, for what it defines; the current folder is looked into, as by python -m."""
    if "" not in sys.path:
        sys.path.insert(0, "")
    importlib.import_module(module)


def _parser() -> argparse.ArgumentParser:
    from stochasticrank_objectives._threads import default_threads
    from stochasticrank_objectives.recommended import BOOSTERS

    from .methods import ABLATED, COMPARED, ITS_OWN, METHODS
    from .synthetic import SYNTHETIC_ROWS

    parser = _Parser(
        prog="stochasticrank",
        description="Gradient-boosted rankers trained on the metric that is reported. Begin with: stochasticrank demo",
    )
    parser.add_argument("--version", action="version", version=__version__)
    parser.add_argument(
        "--import", dest="modules", action="append", default=[], metavar="MODULE",
        help="a module to import first: metrics that it defines are known by their names",
    )  # fmt: skip
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=_Parser)

    def command(name: str, run: Any, text: str, more: str = "") -> argparse.ArgumentParser:
        made: argparse.ArgumentParser = commands.add_parser(
            name, help=text, description=f"{text[0].upper()}{text[1:]}. {more}".strip()
        )
        made.set_defaults(run=run)
        return made

    def boosters(made: argparse.ArgumentParser) -> None:
        made.add_argument(
            "--booster", type=_names, default=list(BOOSTERS), metavar="NAMES",
            help=f"one or several of {','.join(BOOSTERS)} (default: all)",
        )  # fmt: skip

    def jobs(made: argparse.ArgumentParser, default: int = 1) -> None:
        made.add_argument(
            "--jobs", type=_above_0, default=default, metavar="N", help="processes at once (default: %(default)s)"
        )

    def first_index(made: argparse.ArgumentParser) -> None:
        made.add_argument(
            "--first-index", type=int, choices=(0, 1), default=None,
            help="the index of the first feature (default: as in training; there, 0 if the file has index 0, else 1)",
        )  # fmt: skip

    demo = command("demo", _demo, "train the three boosters on generated data, beside their own objectives")
    demo.add_argument("--picture", default="demo.png", help="where the learning curves go (default: %(default)s)")
    command(
        "warm-up", _warm_up, "compile everything once, so that later processes need not",
        "Compiled code goes to numba's cache, in the folder that the environment variable NUMBA_CACHE_DIR names.",
    )  # fmt: skip

    def tables(made: argparse.ArgumentParser, methods: Sequence[str], output: str) -> None:
        made.add_argument(
            "--metric", type=_names, default=["ndcg@5"], metavar="NAMES",
            help="what is optimised, chosen by and reported, such as ndcg@5 or ndcg@5,mrr (default: ndcg@5)",
        )  # fmt: skip
        boosters(made)
        made.add_argument(
            "--methods", type=_names, default=list(methods), metavar="NAMES",
            help=f"some of {', '.join([*METHODS, ITS_OWN])}; {ITS_OWN} means the booster's own objectives "
            f"(default: {','.join(methods)})",
        )  # fmt: skip
        made.add_argument("--trials", type=_above_0, default=20, metavar="N", help="settings tried per method (default: 20)")
        made.add_argument("--rounds", type=_above_0, default=1000, metavar="N", help="trees at most (default: 1000)")
        made.add_argument(
            "--patience", type=_patience, default=100, metavar="N",
            help="stop a training when the validation metric has not improved for so many trees, or none (default: 100)",
        )  # fmt: skip
        made.add_argument(
            "--depth", type=_depths, default=(6, 10), metavar="LOW-HIGH",
            help="the depths of trees that are tried (default: 6-10, as in the paper; less for small data)",
        )  # fmt: skip
        made.add_argument(
            "--seeds", type=_above_0, default=5, metavar="N",
            help="how often the best settings are trained, for the mean and its interval (default: 5)",
        )  # fmt: skip
        made.add_argument("--folds", type=_above_0, default=None, metavar="N", help="only the first N folds (default: all)")
        jobs(made)
        made.add_argument(
            "--output", default=output, metavar="FOLDER",
            help="where tables, pictures and all trials go (default: %(default)s)",
        )  # fmt: skip
        made.add_argument(
            "--resume", action=argparse.BooleanOptionalAction, default=True,
            help="go on from what the output folder has (default); --no-resume refuses a folder that has anything",
        )  # fmt: skip
        first_index(made)

    compare = command(
        "compare", _compare, "tune and test methods side by side on your data (the paper's Table 2)",
        "Every method is tuned on validation data by random search, then trained with several seeds and measured on test "
        "data. It may take long: it can be interrupted at any time, and the same command goes on where it stood.",
    )  # fmt: skip
    compare.add_argument("data", nargs="+", metavar="DATA", help=_DATA_HELP)
    tables(compare, COMPARED, "compare")

    ablate = command("ablate", _ablate, "what each part of StochasticRank adds on your data (the paper's Table 3)")
    ablate.add_argument("data", nargs="+", metavar="DATA", help=_DATA_HELP)
    tables(ablate, ABLATED, "ablate")

    synthetic = command("synthetic", _synthetic, "who finds the global optimum on two tiny queries (the paper's Table 1)")
    boosters(synthetic)
    synthetic.add_argument(
        "--methods", type=_names, default=[*SYNTHETIC_ROWS, ITS_OWN], metavar="NAMES",
        help=f"some of {', '.join([*SYNTHETIC_ROWS, ITS_OWN])} (default: all)",
    )  # fmt: skip
    synthetic.add_argument("--seeds", type=_above_0, default=20, metavar="N", help="trainings per cell (default: 20)")
    synthetic.add_argument("--rounds", type=_above_0, default=300, metavar="N", help="iterations (default: 300)")
    jobs(synthetic, default_threads())
    synthetic.add_argument(
        "--output", default="synthetic", metavar="FOLDER",
        help="where synthetic.md, synthetic.json and all finished runs go, which are not run again (default: %(default)s)",
    )  # fmt: skip

    evaluate = command("evaluate", _evaluate, "metrics of scores in a file, with a stated choice for ties")
    evaluate.add_argument("data", metavar="DATA", help=f"the labels and queries: {_FILE_HELP}")
    evaluate.add_argument("scores", metavar="SCORES", help="one score per line, in the order of DATA; - for standard input")
    evaluate.add_argument(
        "--metric", type=_names, default=["ndcg@5", "ndcg@10", "mrr", "map"], metavar="NAMES",
        help="such as ndcg@10,err@5:max_grade=4 (default: ndcg@5,ndcg@10,mrr,map)",
    )  # fmt: skip
    evaluate.add_argument(
        "--ties", choices=("worst", "mean", "best"), default="worst", help="the order of equal scores (default: worst)"
    )
    evaluate.add_argument(
        "--empty", type=_empty, default=0.0, metavar="VALUE",
        help="what a query without relevant documents counts as: a number, or skip to leave it out (default: 0)",
    )  # fmt: skip
    evaluate.add_argument(
        "--per-query", metavar="FILE",
        help="also write each query's id and values there, tab-separated; - for standard output, and the means go to "
        "standard error",
    )  # fmt: skip
    first_index(evaluate)

    train = command(
        "train", _train, "train a model on an svmlight file and save it",
        "The model file is the booster's own: .json or .ubj for xgboost, .txt for lightgbm, .cbm for catboost.",
    )  # fmt: skip
    train.add_argument("data", metavar="DATA", help=f"what to train on: {_FILE_HELP}, or the word generated")
    train.add_argument("model", metavar="MODEL", help="where the model goes; the suffix says which booster trains it")
    train.add_argument("--valid", metavar="DATA", help=f"to choose the number of trees on: {_FILE_HELP}")
    train.add_argument("--metric", default="ndcg@10", help="what to train for, and what is watched (default: ndcg@10)")
    train.add_argument("--objective", metavar="NAME", help="one of the booster's own objectives instead, such as lambdarank")
    train.add_argument("--train-on", metavar="METRIC", help="what is optimised (default: as recommended for --metric)")
    train.add_argument("--mu", type=float, help="shift of relevant documents (default: as recommended)")
    train.add_argument("--sigma", type=float, help="strength of the noise on scores (default: as recommended)")
    train.add_argument(
        "--loss", dest="fields", action="append", type=_setting, default=[], metavar="NAME=VALUE",
        help="any field of the recommended loss; may be repeated",
    )  # fmt: skip
    train.add_argument("--rounds", type=_above_0, default=300, help="trees at most (default: 300)")
    train.add_argument(
        "--patience", type=_patience, default=None, help="with --valid: stop after so many trees without improvement"
    )
    train.add_argument("--learning-rate", type=float, default=0.1, help="(default: 0.1)")
    train.add_argument("--depth", type=_above_0, default=6, help="of trees (default: 6)")
    train.add_argument("--l2", type=float, help="regularisation of leaves (default: the booster's)")
    train.add_argument("--seed", type=int, default=0, help="(default: 0)")
    train.add_argument(
        "--set", dest="more", action="append", type=_setting, default=[], metavar="NAME=VALUE",
        help="any other parameter of the booster; may be repeated",
    )  # fmt: skip
    first_index(train)

    predict = command("predict", _predict, "scores of a saved model, one per line")
    predict.add_argument("data", metavar="DATA", help=_FILE_HELP)
    predict.add_argument("model", metavar="MODEL", help="a model file of train, or any of the booster's own")
    predict.add_argument("--output", metavar="FILE", default="-", help="where the scores go (default: -, standard output)")
    first_index(predict)
    return parser


# ------------------------------------------------------------ commands


def _warm_up(_: argparse.Namespace) -> None:
    import tempfile

    from stochasticrank_objectives._warmup import warm_up

    from .letor import read_svmlight

    folder = warm_up()
    with tempfile.TemporaryDirectory() as place:
        path = os.path.join(place, "small.txt")
        with open(path, "w") as file:
            file.write("1 qid:1 1:0.5\n0 qid:1 1:0.25\n")
        read_svmlight(path, cache=False, progress=False)
    print(f"compiled; kept in {folder}" if folder else "compiled, but nothing can be kept: set NUMBA_CACHE_DIR to a folder")


def _demo(chosen: argparse.Namespace) -> None:
    from . import demo

    demo.run(chosen.picture)


def _tables(chosen: argparse.Namespace, job: Any, name: str, rival: str) -> None:
    from . import reports
    from .search import Protocol
    from .streams import STANDARD

    if STANDARD in chosen.data:
        raise ValueError(f"{name} reads its data more than once: give a file or a folder, not standard input")
    if not chosen.resume and os.path.isdir(chosen.output) and os.listdir(chosen.output):
        raise ValueError(f"{chosen.output} is not empty, and --no-resume was given; choose another --output")
    protocol = Protocol(rounds=chosen.rounds, patience=chosen.patience, depths=chosen.depth)
    rows = job(
        chosen.data, metrics=chosen.metric, boosters=chosen.booster, methods=chosen.methods, folder=chosen.output,
        trials=chosen.trials, seeds=chosen.seeds, jobs=chosen.jobs, protocol=protocol, folds=chosen.folds,
        first_index=chosen.first_index,
    )  # fmt: skip
    about = reports.notes(rows, protocol, chosen.trials, chosen.seeds, rival=rival)
    print(reports.as_text(rows, about))
    for path in reports.write(rows, about, chosen.output, name, protocol=protocol, trials=chosen.trials, seeds=chosen.seeds):
        print(path)


def _compare(chosen: argparse.Namespace) -> None:
    from .tables import compare

    _tables(chosen, compare, "compare", "the best method on the same booster that is not StochasticRank of this package")


def _ablate(chosen: argparse.Namespace) -> None:
    from .tables import ablate

    _tables(chosen, ablate, "ablate", "the row above")


def _synthetic(chosen: argparse.Namespace) -> None:
    from . import reports
    from .synthetic import synthetic

    found = synthetic(
        boosters=chosen.booster, methods=chosen.methods, seeds=chosen.seeds, rounds=chosen.rounds, jobs=chosen.jobs,
        folder=chosen.output,
    )  # fmt: skip
    print(reports.grid(*reports.synthetic_cells(found)))
    print()
    print(reports.synthetic_notes(chosen.rounds))
    for path in reports.write_synthetic(found, chosen.rounds, chosen.output):
        print(path)


def read_scores(path: str) -> np.ndarray[Any, np.dtype[np.float64]]:
    """One number per line."""
    from .streams import reading, shown

    scores = []
    with reading(path) as file:
        for line, text in enumerate(file, 1):
            try:
                score = float(text)
            except ValueError:
                kind = "this is a gzip file; unpack it first" if line == 1 and text.startswith("\x1f") else ""
                kind = kind or ("this looks like a CSV file; it must have one number per line" if "," in text else "")
                wrong = kind or f"{text.strip()[:40]!r} is not a number"
                raise ValueError(f"{shown(path)}, line {line}: {wrong}") from None
            if not math.isfinite(score):
                raise ValueError(f"{shown(path)}, line {line}: {text.strip()!r} is not finite")
            scores.append(score)
    return np.array(scores)


def _evaluate(chosen: argparse.Namespace) -> None:
    from stochasticrank_objectives.evaluation import bind_evaluation
    from stochasticrank_objectives.metrics import parse_metric

    from .streams import STANDARD, read_data, shown, writing

    metrics = [parse_metric(name) for name in chosen.metric]
    if chosen.data == chosen.scores == STANDARD:
        raise ValueError("DATA and SCORES cannot both come from standard input")
    scores = read_scores(chosen.scores)
    data, queries, _ = read_data(chosen.data, first_index=chosen.first_index)
    if len(scores) != len(data.labels):
        raise ValueError(
            f"{shown(chosen.scores)} has {len(scores)} scores, but {shown(chosen.data)} has {len(data.labels)} rows"
        )
    columns = []
    means = sys.stderr if chosen.per_query == STANDARD else sys.stdout
    for metric in metrics:
        bound = bind_evaluation(metric, data.labels, data.groups, ties=chosen.ties, empty=chosen.empty)
        columns.append(bound.per_query(scores))
        print(f"{metric!s:24} {bound.mean(scores):.6f}", file=means)
    if chosen.per_query:
        with writing(chosen.per_query) as file:
            print("qid", *metrics, sep="\t", file=file)
            for query, *values in zip(queries, *columns, strict=True):
                print(query, *(f"{value:.6f}" for value in values), sep="\t", file=file)


def _generated(path: str, seed: int) -> Any:
    """Generated data, if the word for it stands where a file would; else None."""
    from stochasticrank_objectives.datasets import make_ranking

    from .sources import Source

    queries = Source(path).queries
    return make_ranking(queries, seed=seed) if queries else None


def _read_like(path: str, first_index: int | None, features: int, whose: str) -> Any:
    """Data with the columns of others, which are called `whose`."""
    from .letor import OutsideColumnsError
    from .streams import read_data, shown

    try:
        return read_data(path, first_index=first_index, features=features)
    except OutsideColumnsError as error:
        first = first_index or 0
        remedy = "if all count from 0, train with --first-index 0" if error.index < first else "number them as in training"
        raise ValueError(
            f"{shown(path)}, line {error.line}: feature {error.index}, but those of {whose} are {first} to "
            f"{first + features - 1}; {remedy}"
        ) from None


def _train(chosen: argparse.Namespace) -> None:
    from tqdm import tqdm

    from stochasticrank_objectives.metrics import parse_metric

    from .streams import STANDARD, read_data, shown
    from .training import Settings, booster_of, train

    if chosen.model == STANDARD:
        raise ValueError("MODEL must be a file: its name says which booster trains it")
    booster, metric = booster_of(chosen.model), parse_metric(chosen.metric)
    if not os.path.isdir(os.path.dirname(os.path.abspath(chosen.model))):
        raise ValueError(f"{chosen.model}: there is no such folder")
    if chosen.patience is not None and chosen.valid is None:
        raise ValueError("--patience needs --valid: the metric of the training data always improves")
    if chosen.data == chosen.valid == STANDARD:
        raise ValueError("DATA and --valid cannot both come from standard input")
    objective = _objective(chosen, booster, metric)
    with _about_objective(chosen.objective, booster):
        _check_more(chosen, booster, objective)
    first_index = chosen.first_index
    if (learn := _generated(chosen.data, 1)) is None:
        learn, _, first_index = read_data(chosen.data, first_index=chosen.first_index)
    valid = learn
    if chosen.valid is not None and (valid := _generated(chosen.valid, 2)) is None:
        valid = _read_like(chosen.valid, first_index, learn.features.shape[1], shown(chosen.data)).data
    if valid.features.shape[1] != learn.features.shape[1]:
        wide, held = learn.features.shape[1], valid.features.shape[1]
        raise ValueError(f"{shown(chosen.data)} has {wide} features, but {chosen.valid} has {held}")
    settings = Settings(
        rounds=chosen.rounds, learning_rate=chosen.learning_rate, depth=chosen.depth, l2=chosen.l2,
        patience=chosen.patience, seed=chosen.seed, more=dict(chosen.more), first_index=first_index,
    )  # fmt: skip
    with tqdm(total=chosen.rounds, unit="tree", disable=None) as bar:

        def show(value: float) -> None:
            bar.set_postfix_str(f"{metric} {value:.4f}", refresh=False)
            bar.update()

        with _about_objective(chosen.objective, booster):
            trained = train(booster, objective, learn, valid, metric=metric, settings=settings, progress=show)
    rounds = len(trained.curve) if chosen.valid is None else trained.best_rounds
    trained.save(chosen.model, rounds)
    where = "training" if chosen.valid is None else "validation"
    print(f"{chosen.model}: {booster}, {objective}, {rounds} trees, {where} {metric} {trained.curve[rounds - 1]:.4f}")


def _objective(chosen: argparse.Namespace, booster: str, metric: Any) -> Any:
    """One of the booster's own, or the recommended loss with what the options change."""
    from stochasticrank_objectives.adapters._common import as_loss

    fields = {name: getattr(chosen, name) for name in ("mu", "sigma") if getattr(chosen, name) is not None}
    fields.update(chosen.fields)
    if chosen.objective and (chosen.train_on or set(fields) - {"seed"}):
        raise ValueError("--train-on, --mu, --sigma and --loss are for our own losses, and do not go with --objective")
    if chosen.objective:
        return chosen.objective
    try:
        loss: Any = as_loss(metric, fields, booster=booster, train_on=chosen.train_on)
    except ValueError as error:
        if any(str(error).startswith((f"{name} ", f"{name}:")) for name, _ in chosen.fields):
            raise ValueError(f"--loss {error}") from None
        raise
    seeded = hasattr(loss, "seed") and "seed" not in fields  # squared errors, for Spearman, have no noise
    return dataclasses.replace(loss, seed=chosen.seed) if seeded else loss


@contextlib.contextmanager
def _about_objective(name: str | None, booster: str) -> Iterator[None]:
    """Boosters do not say where an objective's name came from if they do not know it."""
    try:
        yield
    except ValueError as error:
        if name and re.search(r"Unknown objective|loss is not supported", str(error)):
            raise ValueError(f"--objective {name}: {booster} has no such objective") from None
        raise


def _check_more(chosen: argparse.Namespace, booster: str, objective: Any) -> None:
    """What --set sets must be known to the booster, and must not be what another option sets."""
    from .training import option_for, unknown_parameters

    for name, _ in chosen.more:
        if option := option_for(name):
            raise ValueError(f"--set {name}: use --{option.replace('_', '-')} instead")
    if unknown := unknown_parameters(booster, objective, dict(chosen.more)):
        raise ValueError(f"--set {unknown[0]}: {booster} has no such parameter, or does not use it with this objective")


def _predict(chosen: argparse.Namespace) -> None:
    from .streams import shown, writing
    from .training import load

    model = load(chosen.model)
    if (data := _generated(chosen.data, 1)) is None:
        data = _read_like(chosen.data, _first_index(chosen, model), model.features, chosen.model).data
    if data.features.shape[1] != model.features:
        raise ValueError(
            f"{chosen.model} wants {model.features} features, but {shown(chosen.data)} has {data.features.shape[1]}"
        )
    text = "".join(f"{score!r}\n" for score in model.predict(data.features).tolist())
    with writing(chosen.output) as file:
        file.write(text)


def _first_index(chosen: argparse.Namespace, model: Any) -> int:
    """The one that the model was trained with: the model tells, or --first-index does; it is never guessed."""
    if model.first_index is None:
        if chosen.first_index is None:
            raise ValueError(
                f"{chosen.model} does not tell whether its features count from 0 or from 1, as models of this command do; "
                "pass --first-index 0 or 1, as in the file that it was trained on"
            )
        return int(chosen.first_index)
    if chosen.first_index not in (None, model.first_index):
        raise ValueError(
            f"--first-index {chosen.first_index}, but {chosen.model} was trained on features that count from "
            f"{model.first_index}; leave --first-index out, and number the features of {chosen.data} as in training"
        )
    return int(model.first_index)
