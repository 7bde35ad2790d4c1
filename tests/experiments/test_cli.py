"""The command line: each command's main way, and one clear line for what is wrong."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import stochasticrank_objectives as sr
from stochasticrank_objectives.datasets import RankingData, make_ranking
from stochasticrank_objectives.experiments import cli, demo
from stochasticrank_objectives.experiments.training import load

COMMANDS = ["demo", "compare", "ablate", "synthetic", "evaluate", "train", "predict"]
TINY = ["--trials", "1", "--seeds", "1", "--rounds", "5", "--depth", "2", "--booster", "lightgbm"]


@pytest.fixture(autouse=True)
def _modest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_NUM_THREADS", "1")
    monkeypatch.setenv("STOCHASTICRANK_OBJECTIVES_CACHE", "0")


@pytest.fixture
def files(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """A folder, the current one, with train.txt and test.txt."""
    monkeypatch.chdir(tmp_path)
    for name, seed in (("train", 1), ("test", 2)):
        write(tmp_path / f"{name}.txt", data(seed))
    return tmp_path


def data(seed: int) -> RankingData:
    made = make_ranking(20, documents=(3, 8), features=5, seed=seed)
    return made._replace(features=made.features.round(3).astype(np.float32))


def write(path: pathlib.Path, made: RankingData) -> None:
    with open(path, "w") as file:
        for label, query, values in zip(made.labels, made.qid, made.features, strict=True):
            file.write(f"{label:g} qid:{query} " + " ".join(f"{at}:{x:.3f}" for at, x in enumerate(values, 1)) + "\n")


def fails(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one line on stderr of a command that exits with 2."""
    try:
        code = cli.main(arguments)
    except SystemExit as exit:
        code = exit.code  # type: ignore[assignment]
    out, err = capsys.readouterr()
    assert code == 2
    assert out == ""
    assert err.startswith("stochasticrank")
    assert err.count("\n") == 1
    return err


@pytest.mark.parametrize("command", COMMANDS)
def test_help(capsys: pytest.CaptureFixture[str], command: str) -> None:
    with pytest.raises(SystemExit, match="0"):
        cli.main(["--help"])
    assert command in capsys.readouterr().out
    with pytest.raises(SystemExit, match="0"):
        cli.main([command, "--help"])
    assert f"usage: stochasticrank {command}" in capsys.readouterr().out


def test_module_and_version() -> None:
    run = [sys.executable, "-m", "stochasticrank_objectives", "--version"]
    assert subprocess.run(run, capture_output=True, text=True, check=True).stdout.strip() == sr.__version__


def test_demo_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[Any] = []
    monkeypatch.setattr(demo, "run", called.append)
    assert cli.main(["demo", "--picture", "here.png"]) == 0
    assert called == ["here.png"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "arguments are required: COMMAND"),
        (["nonsense"], "invalid choice: 'nonsense'"),
        (["compare", "none"], "none: there is no such file or folder"),
        (["compare", "generated", "--booster", "foo"], "unknown booster 'foo'; known are xgboost, lightgbm, catboost"),
        (["compare", "generated", "--methods", "foo"], "unknown method 'foo'; known are lambdamart"),
        (["compare", "generated", "--metric", "foo@5"], "unknown metric 'foo@5'"),
        (["compare", "generated", "--trials", "0"], "--trials: must be a whole number of at least 1, got '0'"),
        (["compare", "generated", "--depth", "9-2"], "the smaller first"),
        (
            ["compare", "generated", "--methods", "lambdaloss", "--metric", "mrr"],
            "none of lambdaloss can be trained for mrr",
        ),
        (["compare", ".", "--output", ".", "--no-resume"], ". is not empty, and --no-resume was given"),
        (["synthetic", "--methods", "foo"], "unknown method 'foo'"),
        (["evaluate", "none.txt", "short.txt"], "none.txt: No such file or directory"),
        (["evaluate", "test.txt", "none.txt"], "none.txt: No such file or directory"),
        (["evaluate", "test.txt", "short.txt"], "short.txt has 2 scores, but test.txt has"),
        (["evaluate", "test.txt", "words.txt"], "words.txt, line 2: 'two' is not a number"),
        (["evaluate", "test.txt", "nan.txt"], "nan.txt, line 1: 'nan' is not finite"),
        (["evaluate", "damaged.txt", "short.txt"], "damaged.txt, line 1: there is no qid:ID after the label"),
        (["evaluate", "test.txt", "short.txt", "--empty", "foo"], "must be a number or skip, got 'foo'"),
        (["train", "train.txt", "model.foo"], "model.foo does not say by its name which booster's model it is"),
        (["train", "train.txt", "none/model.txt"], "none/model.txt: there is no such folder"),
        (["train", "train.txt", "model.txt", "--mu", "-1"], "mu must be a finite number at least 0, got -1.0"),
        (["train", "train.txt", "model.txt", "--loss", "foo=1"], "foo: YetiLoss has no such field; it has neighbours"),
        (["train", "train.txt", "model.txt", "--train-on", "foo@5"], "unknown metric 'foo@5'"),
        (["train", "train.txt", "model.txt", "--objective", "lambdarank", "--mu", "1"], "do not go with --objective"),
        (["train", "train.txt", "model.txt", "--patience", "3"], "--patience needs --valid"),
        (["train", "train.txt", "model.txt", "--set", "foo"], "must be NAME=VALUE, got 'foo'"),
        (["predict", "test.txt", "none.cbm"], "none.cbm: there is no such model file"),
    ],
)
def test_errors_are_one_line(
    files: pathlib.Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    (files / "short.txt").write_text("1\n2\n")
    (files / "words.txt").write_text("1\ntwo\n")
    (files / "nan.txt").write_text("nan\n")
    (files / "damaged.txt").write_text("1 1:0.5 2:1\n0 1:0.7 2:0\n")
    assert message in fails(capsys, *arguments)


def test_ctrl_c_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(picture: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(demo, "run", interrupted)
    assert cli.main(["demo"]) == 130
    assert capsys.readouterr().err == "stochasticrank: interrupted\n"


# ------------------------------------------------------------ commands


@pytest.mark.parametrize("ties", ["worst", "mean", "best"])
def test_evaluate(files: pathlib.Path, capsys: pytest.CaptureFixture[str], ties: Any) -> None:
    made = data(2)
    scores = made.features[:, 0].round(0)  # with ties
    (files / "scores.txt").write_text("".join(f"{score}\n" for score in scores))
    arguments = ["evaluate", "test.txt", "scores.txt", "--metric", "ndcg@3,mrr", "--ties", ties, "--empty", "skip"]
    assert cli.main([*arguments, "--per-query", "queries.tsv"]) == 0
    printed = dict(line.split() for line in capsys.readouterr().out.splitlines())
    lines = [line.split("\t") for line in (files / "queries.tsv").read_text().splitlines()]
    assert lines[0] == ["qid", "ndcg@3", "mrr"]
    assert [line[0] for line in lines[1:]] == [str(query) for query in range(20)]
    for at, metric in enumerate(["ndcg@3", "mrr"], 1):
        expected = sr.evaluate(metric, scores, made.labels, made.groups, ties=ties, empty="skip")
        assert float(printed[metric]) == pytest.approx(expected, abs=1e-6)
        each = sr.evaluate(metric, scores, made.labels, made.groups, ties=ties, empty="skip", per_query=True)
        assert [float(line[at]) for line in lines[1:]] == pytest.approx(each.tolist(), abs=1e-6, nan_ok=True)


@pytest.mark.parametrize("suffix", ["json", "ubj", "txt", "cbm"])
def test_train_and_predict(files: pathlib.Path, capsys: pytest.CaptureFixture[str], suffix: str) -> None:
    model = f"model.{suffix}"
    options = ["--valid", "test.txt", "--rounds", "6", "--depth", "2", "--metric", "ndcg@3", "--learning-rate", "0.5"]
    more = ["--set", "min_data_in_leaf=2"] if suffix == "txt" else []
    assert cli.main(["train", "train.txt", model, *options, *more]) == 0
    reported = float(capsys.readouterr().out.split()[-1])
    assert cli.main(["predict", "test.txt", model, "--output", "scores.txt"]) == 0
    made = data(2)
    scores = cli.read_scores("scores.txt")
    assert np.array_equal(scores, load(model).predict(made.features))
    assert len(set(scores)) > 1
    assert reported == pytest.approx(sr.evaluate("ndcg@3", scores, made.labels, made.groups), abs=1e-4)
    assert cli.main(["predict", "test.txt", model]) == 0
    assert capsys.readouterr().out == (files / "scores.txt").read_text()


def test_train_changes_fields_of_the_recommended_loss(files: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing given means the loss as it is recommended."""
    recommended = sr.recommended("mrr", booster="xgboost", train_on="ndcg@3")
    for given, changed in {
        (): {},
        ("--mu", "0.5", "--seed", "3", "--loss", "permutations=2", "--loss", "max_step=1.5"): {
            "mu": 0.5, "seed": 3, "permutations": 2, "max_step": 1.5,
        },
    }.items():  # fmt: skip
        arguments = ["train", "train.txt", "model.json", "--rounds", "1", "--metric", "mrr", "--train-on", "ndcg@3", *given]
        assert cli.main(arguments) == 0
        out = capsys.readouterr().out
        assert f"xgboost, {dataclasses.replace(recommended, **changed)}, 1 trees, training mrr" in out


@pytest.mark.parametrize("name", ["spearman", "dcgrr@3", "auc"])
def test_train_beyond_ranked_lists(files: pathlib.Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    """With a seed where there is noise, and predictions of which the sign means what it meant in training."""
    assert cli.main(["train", "train.txt", "model.json", "--rounds", "3", "--metric", name, "--seed", "2"]) == 0
    printed = capsys.readouterr().out
    assert ("seed=2" in printed) == (name != "spearman")
    assert cli.main(["predict", "train.txt", "model.json", "--output", "scores.txt"]) == 0
    made = data(1)
    expected = sr.evaluate(name, cli.read_scores("scores.txt"), made.labels, made.groups)
    assert float(printed.split()[-1]) == pytest.approx(expected, abs=1e-4)


def test_predict_checks_the_features(files: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["train", "train.txt", "model.json", "--rounds", "1"]) == 0
    capsys.readouterr()
    assert "model.json wants 5 features, but generated:5 has 20" in fails(capsys, "predict", "generated:5", "model.json")
    (files / "wide.txt").write_text("1 qid:1 1:1 6:1\n0 qid:1 1:2\n")
    assert "wide.txt, line 1: feature 6, but those of model.json are 1 to 5" in fails(
        capsys, "predict", "wide.txt", "model.json"
    )


def test_compare_and_ablate(files: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["compare", ".", "generated:20", *TINY, "--methods", "lambdamart,sr-r1", "--output", "out"]) == 0
    out = capsys.readouterr().out
    assert files.name in out
    assert "lambda-MART" in out
    assert "against the best method on the same booster" in out
    written = [files / line for line in out.splitlines() if line.startswith("out")]
    assert [path.suffix for path in written] == [".md", ".json", *[".png"] * 4]
    assert all(path.exists() for path in written)
    rows = json.loads((files / "out" / "compare.json").read_text(encoding="utf-8"))["rows"]
    assert [(row["data"], row["method"]) for row in rows] == [
        (name, method) for name in (files.name, "generated:20") for method in ("lambdamart", "sr-r1")
    ]
    assert "other settings: rounds 5 (now 6)" in fails(
        capsys, "compare", ".", *TINY, "--rounds", "6", "--methods", "sr-r1", "--output", "out"
    ).replace("stochasticrank: ", "")
    assert cli.main(["ablate", "generated:20", *TINY, "--methods", "ccs,ccs+sfa", "--output", "out2"]) == 0
    assert "against the row above" in capsys.readouterr().out


def test_synthetic(files: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["synthetic", "--booster", "lightgbm", "--methods", "lambdamart", "--seeds", "2", "--rounds", "20"]
    assert cli.main([*arguments, "--output", "table1"]) == 0
    out = capsys.readouterr().out
    assert "0/2  0.903" in out
    assert "20 iterations, depth 3" in out
    row = json.loads((files / "table1" / "synthetic.json").read_text(encoding="utf-8"))["rows"][0]
    assert (row["method"], row["reached"], len(row["values"])) == ("lambdamart", 0, 2)
