"""The command line: what it is given is checked here, what it does stands in `experiments`, `reports` and the adapters."""

from __future__ import annotations

import argparse
import ast
import concurrent.futures
import math
import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np

from stochasticrank_objectives import __version__

_DATA_HELP = (
    'a data set in the svmlight format ("label qid:ID index:value ..."): a folder with Fold1, Fold2, ..., or with train, '
    "vali and test files, or with parts S1, S2, ..., or a single file, plain or gzipped; or the word generated "
    "(generated:500 for 500 queries), which needs no files"
)


class _Parser(argparse.ArgumentParser):
    """Errors are one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message} (see {self.prog} --help)\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; errors in input are one line and exit code 2, Ctrl-C is one line and 130."""
    chosen = _parser().parse_args(arguments)
    try:
        chosen.run(chosen)
    except KeyboardInterrupt:
        kept = (
            f"; what is finished is kept in {chosen.output}: the same command goes on" if hasattr(chosen, "resume") else ""
        )
        return _fail(f"interrupted{kept}", 130)
    except concurrent.futures.BrokenExecutor:
        return _fail(
            "a process ended unexpectedly, perhaps for want of memory; the same command goes on, try fewer --jobs", 1
        )
    except OSError as error:
        return _fail(f"{error.filename}: {error.strerror}" if error.filename and error.strerror else str(error), 2)
    except (ValueError, ImportError) as error:
        return _fail(str(error), 2)
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


def _parser() -> argparse.ArgumentParser:
    from stochasticrank_objectives.recommended import BOOSTERS

    from .methods import ABLATED, COMPARED, ITS_OWN, METHODS
    from .synthetic import SYNTHETIC_ROWS

    parser = _Parser(
        prog="stochasticrank",
        description="Gradient-boosted rankers trained on the metric that is reported. Begin with: stochasticrank demo",
    )
    parser.add_argument("--version", action="version", version=__version__)
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

    def jobs(made: argparse.ArgumentParser) -> None:
        made.add_argument("--jobs", type=_above_0, default=1, metavar="N", help="processes at once (default: 1)")

    def first_index(made: argparse.ArgumentParser) -> None:
        made.add_argument(
            "--first-index", type=int, choices=(0, 1), default=None,
            help="the index of the first feature in the files (default: 0 if a file has index 0, else 1)",
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
    synthetic.add_argument("--rounds", type=_above_0, default=1000, metavar="N", help="iterations (default: 1000)")
    jobs(synthetic)
    synthetic.add_argument(
        "--output", default=None, metavar="FOLDER", help="also write synthetic.md and synthetic.json there"
    )

    evaluate = command("evaluate", _evaluate, "metrics of scores in a file, with a stated choice for ties")
    evaluate.add_argument("data", metavar="DATA", help="an svmlight file with the labels and queries")
    evaluate.add_argument("scores", metavar="SCORES", help="a file with one score per line, in the order of DATA")
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
    evaluate.add_argument("--per-query", metavar="FILE", help="also write each query's values there, tab-separated")
    first_index(evaluate)

    train = command(
        "train", _train, "train a model on an svmlight file and save it",
        "The model file is the booster's own: .json or .ubj for xgboost, .txt for lightgbm, .cbm for catboost.",
    )  # fmt: skip
    train.add_argument("data", metavar="DATA", help="an svmlight file to train on, or the word generated")
    train.add_argument("model", metavar="MODEL", help="where the model goes; the suffix says which booster trains it")
    train.add_argument("--valid", metavar="DATA", help="an svmlight file to choose the number of trees on")
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
    train.add_argument("--l2", type=float, default=1.0, help="regularisation of leaves (default: 1)")
    train.add_argument("--seed", type=int, default=0, help="(default: 0)")
    train.add_argument(
        "--set", dest="more", action="append", type=_setting, default=[], metavar="NAME=VALUE",
        help="any parameter of the booster; may be repeated",
    )  # fmt: skip
    first_index(train)

    predict = command("predict", _predict, "scores of a saved model, one per line")
    predict.add_argument("data", metavar="DATA", help="an svmlight file")
    predict.add_argument("model", metavar="MODEL", help="a model file of train, or any of the booster's own")
    predict.add_argument("--output", metavar="FILE", help="where the scores go (default: the terminal)")
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
        boosters=chosen.booster, methods=chosen.methods, seeds=chosen.seeds, rounds=chosen.rounds, jobs=chosen.jobs
    )
    print(reports.grid(*reports.synthetic_cells(found)))
    print()
    print(reports.synthetic_notes(chosen.rounds))
    if chosen.output is not None:
        for path in reports.write_synthetic(found, chosen.rounds, chosen.output):
            print(path)


def read_scores(path: str) -> np.ndarray[Any, np.dtype[np.float64]]:
    """One number per line."""
    scores = []
    with open(path, encoding="utf-8", errors="replace") as file:
        for line, text in enumerate(file, 1):
            try:
                score = float(text)
            except ValueError:
                raise ValueError(f"{path}, line {line}: {text.strip()[:40]!r} is not a number") from None
            if not math.isfinite(score):
                raise ValueError(f"{path}, line {line}: {text.strip()!r} is not finite")
            scores.append(score)
    return np.array(scores)


def _evaluate(chosen: argparse.Namespace) -> None:
    from stochasticrank_objectives.evaluation import bind_evaluation
    from stochasticrank_objectives.metrics import parse_metric

    from .letor import read_svmlight

    metrics = [parse_metric(name) for name in chosen.metric]
    scores = read_scores(chosen.scores)
    data = read_svmlight(chosen.data, first_index=chosen.first_index)
    if len(scores) != len(data.labels):
        raise ValueError(f"{chosen.scores} has {len(scores)} scores, but {chosen.data} has {len(data.labels)} rows")
    columns = []
    for metric in metrics:
        bound = bind_evaluation(metric, data.labels, data.groups, ties=chosen.ties, empty=chosen.empty)
        columns.append(bound.per_query(scores))
        print(f"{metric!s:24} {bound.mean(scores):.6f}")
    if chosen.per_query:
        with open(chosen.per_query, "w", encoding="utf-8") as file:
            print("query", *metrics, sep="\t", file=file)
            for number, values in enumerate(zip(*columns, strict=True), 1):
                print(number, *(f"{value:.6f}" for value in values), sep="\t", file=file)


def _read(path: str, chosen: argparse.Namespace, features: int | None = None, seed: int = 1) -> Any:
    from stochasticrank_objectives.datasets import make_ranking

    from .letor import read_svmlight
    from .sources import Source

    if queries := Source(path).queries:
        return make_ranking(queries, seed=seed)
    return read_svmlight(path, first_index=chosen.first_index, features=features)


def _train(chosen: argparse.Namespace) -> None:
    from tqdm import tqdm

    from stochasticrank_objectives.adapters._common import as_loss
    from stochasticrank_objectives.metrics import parse_metric

    from .training import Settings, booster_of, train

    booster, metric = booster_of(chosen.model), parse_metric(chosen.metric)
    if not os.path.isdir(os.path.dirname(os.path.abspath(chosen.model))):
        raise ValueError(f"{chosen.model}: there is no such folder")
    if chosen.patience is not None and chosen.valid is None:
        raise ValueError("--patience needs --valid: the metric of the training data always improves")
    fields = {name: getattr(chosen, name) for name in ("mu", "sigma", "seed") if getattr(chosen, name) is not None}
    fields.update(chosen.fields)
    if chosen.objective and (chosen.train_on or set(fields) - {"seed"}):
        raise ValueError("--train-on, --mu, --sigma and --loss are for our own losses, and do not go with --objective")
    objective = chosen.objective or as_loss(metric, fields, booster=booster, train_on=chosen.train_on)
    learn = _read(chosen.data, chosen)
    valid = learn if chosen.valid is None else _read(chosen.valid, chosen, learn.features.shape[1], seed=2)
    settings = Settings(
        rounds=chosen.rounds, learning_rate=chosen.learning_rate, depth=chosen.depth, l2=chosen.l2,
        patience=chosen.patience, seed=chosen.seed, more=dict(chosen.more),
    )  # fmt: skip
    with tqdm(total=chosen.rounds, unit="tree", disable=None) as bar:

        def show(value: float) -> None:
            bar.set_postfix_str(f"{metric} {value:.4f}", refresh=False)
            bar.update()

        trained = train(booster, objective, learn, valid, metric=metric, settings=settings, progress=show)
    rounds = len(trained.curve) if chosen.valid is None else trained.best_rounds
    trained.save(chosen.model, rounds)
    where = "training" if chosen.valid is None else "validation"
    print(f"{chosen.model}: {booster}, {objective}, {rounds} trees, {where} {metric} {trained.curve[rounds - 1]:.4f}")


def _predict(chosen: argparse.Namespace) -> None:
    from .training import load

    model = load(chosen.model)
    features = _read(chosen.data, chosen, model.features).features
    if features.shape[1] != model.features:
        raise ValueError(f"{chosen.model} wants {model.features} features, but {chosen.data} has {features.shape[1]}")
    scores = model.predict(features)
    text = "".join(f"{score!r}\n" for score in scores.tolist())
    if chosen.output is None:
        sys.stdout.write(text)
        return
    with open(chosen.output, "w", encoding="utf-8") as file:
        file.write(text)
