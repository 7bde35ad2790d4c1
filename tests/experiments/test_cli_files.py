"""What the command line reads and writes: the first index that a model remembers, standard streams, files of other kinds."""

from __future__ import annotations

import gzip
import io
import pathlib
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from test_cli import data, fails, files, write  # noqa: F401 - a fixture among them

import stochasticrank_objectives as sr
from stochasticrank_objectives.datasets import RankingData
from stochasticrank_objectives.experiments import cli
from stochasticrank_objectives.experiments.training import load, option_for, unknown_parameters
from stochasticrank_objectives.experiments.words import in_options

MODELS = ["model.json", "model.ubj", "model.txt", "model.cbm"]
FEW = ["--rounds", "8", "--depth", "2", "--learning-rate", "0.5"]


@pytest.fixture(autouse=True)
def _modest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_NUM_THREADS", "1")
    monkeypatch.setenv("STOCHASTICRANK_OBJECTIVES_CACHE", "0")


def few(model: str) -> list[str]:
    return [*FEW, "--set", "min_data_in_leaf=2"] if model == "model.txt" else FEW


def sparse(path: pathlib.Path, made: RankingData, first: int, leave_out: tuple[int, ...] = ()) -> RankingData:
    """A file whose features count from `first`; the columns to leave out never occur in it."""
    features = made.features.copy()
    features[:, list(leave_out)] = 0
    with open(path, "w") as file:
        for label, query, row in zip(made.labels, made.qid, features, strict=True):
            pairs = " ".join(f"{at + first}:{x:.3f}" for at, x in enumerate(row) if at not in leave_out)
            file.write(f"{label:g} qid:q{query} {pairs}\n")
    return made._replace(features=features)


# ------------------------------------------------------------ where features count from


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("first", [0, 1])
def test_the_model_remembers_where_features_count_from(files: pathlib.Path, model: str, first: int) -> None:  # noqa: F811
    """The trap: a file in which feature 0 never occurs looks as if it counted from 1, and all columns shift."""
    sparse(files / "learn.txt", data(1), first)
    held = sparse(files / "held.txt", data(2), first, leave_out=(0,))
    assert cli.main(["train", "learn.txt", model, *few(model)]) == 0
    loaded = load(model)
    assert loaded.first_index == first
    assert cli.main(["predict", "held.txt", model, "--output", "scores.txt"]) == 0
    scores = cli.read_scores("scores.txt")
    assert np.array_equal(scores, loaded.predict(held.features))
    shifted = np.column_stack([held.features[:, 1:], np.zeros(len(held.labels), np.float32)])
    assert not np.array_equal(scores, loaded.predict(shifted))  # what was predicted before


@pytest.mark.parametrize("model", ["model.json", "model.txt", "model.cbm"])
def test_validation_data_count_as_training_data_do(
    files: pathlib.Path,  # noqa: F811
    capsys: pytest.CaptureFixture[str],
    model: str,
) -> None:
    sparse(files / "learn.txt", data(1), 0)
    held = sparse(files / "held.txt", data(2), 0, leave_out=(0,))
    assert cli.main(["train", "learn.txt", model, "--valid", "held.txt", "--metric", "ndcg@3", *few(model)]) == 0
    reported = float(capsys.readouterr().out.split()[-1])
    scores = load(model).predict(held.features)
    assert reported == pytest.approx(sr.evaluate("ndcg@3", scores, held.labels, held.groups), abs=1e-4)


def test_a_disagreement_is_an_error(files: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:  # noqa: F811
    sparse(files / "one.txt", data(1), 1)
    sparse(files / "zero.txt", data(2), 0)
    sparse(files / "lacks.txt", data(2), 0, leave_out=(0,))  # looks as if it counted from 1
    assert (
        "zero.txt, line 1: feature 0, but those of one.txt are 1 to 5; if all count from 0, train with --first-index 0"
        in (fails(capsys, "train", "one.txt", "model.json", "--valid", "zero.txt", *FEW))
    )
    assert "one.txt, line 1: feature 5, but those of zero.txt are 0 to 4; number them as in training" in fails(
        capsys, "train", "zero.txt", "model.json", "--valid", "one.txt", *FEW
    )
    assert cli.main(["train", "lacks.txt", "model.json", *FEW]) == 0
    capsys.readouterr()
    assert "zero.txt, line 1: feature 0, but those of model.json are 1 to 4; if all count from 0, train with" in fails(
        capsys, "predict", "zero.txt", "model.json"
    )
    assert "--first-index 0, but model.json was trained on features that count from 1; leave --first-index out" in fails(
        capsys, "predict", "one.txt", "model.json", "--first-index", "0"
    )
    assert cli.main(["train", "lacks.txt", "model.json", "--first-index", "0", *FEW]) == 0
    assert cli.main(["predict", "zero.txt", "model.json"]) == 0


def test_a_model_that_does_not_tell(files: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:  # noqa: F811
    """A model that Python trained says nothing about files; nothing is guessed."""
    import lightgbm as lgb

    made = data(1)
    lgb.train({"verbose": -1}, lgb.Dataset(made.features, made.labels), 3).save_model("model.txt")
    assert load("model.txt").first_index is None
    message = fails(capsys, "predict", "test.txt", "model.txt")
    assert "model.txt does not tell whether its features count from 0 or from 1" in message
    assert "pass --first-index 0 or 1" in message
    assert cli.main(["predict", "test.txt", "model.txt", "--first-index", "1"]) == 0


def test_generated_data_have_no_index(files: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:  # noqa: F811
    assert cli.main(["train", "generated:5", "model.json", "--valid", "generated:4", *FEW]) == 0
    assert load("model.json").first_index is None
    assert cli.main(["predict", "generated:5", "model.json"]) == 0
    capsys.readouterr()
    assert "train.txt has 5 features, but generated:4 has 20" in fails(
        capsys, "train", "train.txt", "model.json", "--valid", "generated:4", *FEW
    )


# ------------------------------------------------------------ standard input and output


def type_in(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))


@pytest.mark.parametrize("zipped", [False, True])
def test_data_from_standard_input(
    files: pathlib.Path,  # noqa: F811
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    zipped: bool,
) -> None:
    content = (files / "test.txt").read_bytes()
    content = gzip.compress(content) if zipped else content
    assert cli.main(["train", "train.txt", "model.json", *FEW]) == 0
    assert cli.main(["predict", "test.txt", "model.json", "--output", "scores.txt"]) == 0
    capsys.readouterr()
    type_in(monkeypatch, content)
    assert cli.main(["predict", "-", "model.json", "--output", "-"]) == 0
    assert capsys.readouterr().out == (files / "scores.txt").read_text()
    assert cli.main(["evaluate", "test.txt", "scores.txt"]) == 0
    expected = capsys.readouterr().out
    type_in(monkeypatch, content)
    assert cli.main(["evaluate", "-", "scores.txt"]) == 0
    assert capsys.readouterr().out == expected
    type_in(monkeypatch, (files / "scores.txt").read_bytes())
    assert cli.main(["evaluate", "test.txt", "-", "--per-query", "-"]) == 0
    out, err = capsys.readouterr()
    assert err == expected
    assert out.startswith("qid\tndcg@5\t")
    assert len(out.splitlines()) == 21
    type_in(monkeypatch, content)
    assert cli.main(["train", "-", "model.json", "--valid", "train.txt", *FEW]) == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["evaluate", "-", "-"], "DATA and SCORES cannot both come from standard input"),
        (["train", "-", "model.json", "--valid", "-"], "DATA and --valid cannot both come from standard input"),
        (["train", "train.txt", "-"], "MODEL must be a file: its name says which booster trains it"),
        (["evaluate", "-", "scores.txt"], "standard input, line 1: there is no qid:ID after the label, but '1:2'"),
        (["evaluate", "test.txt", "-"], "standard input, line 1: '1 1:2 2:3' is not a number"),
        (["compare", "-"], "compare reads its data more than once: give a file or a folder, not standard input"),
    ],
)
def test_errors_about_standard_input(
    files: pathlib.Path,  # noqa: F811
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    message: str,
) -> None:
    (files / "scores.txt").write_text("1\n")
    type_in(monkeypatch, b"1 1:2 2:3\n")
    assert message in fails(capsys, *arguments)


def test_a_reader_that_has_had_enough(files: pathlib.Path) -> None:  # noqa: F811
    assert cli.main(["train", "train.txt", "model.json", *FEW]) == 0
    (files / "big.txt").write_text("".join(f"1 qid:{at} 1:0.5\n" for at in range(20_000)))
    run = f"'{sys.executable}' -m stochasticrank_objectives predict big.txt model.json | head -n 1"
    done = subprocess.run(run, shell=True, capture_output=True, text=True, check=True)
    assert len(done.stdout.splitlines()) == 1
    assert done.stderr == ""


# ------------------------------------------------------------ files of other kinds


def kinds() -> dict[str, tuple[bytes, str]]:
    whole = gzip.compress(b"".join(b"1 qid:%d 1:%f\n" % (at, at * 0.37) for at in range(2000)))
    return {
        "truncated.gz": (whole[: len(whole) // 2], "the gzip file is truncated"),
        "commas.csv": (b"label,qid,first\n1,2,0.5\n", "line 1: this looks like a CSV file, with fields between commas"),
        "numbers.csv": (b"1,2,0.5\n0,2,0.1\n", "line 1: this looks like a CSV file, with fields between commas"),
        "semicolons.csv": (b"1;2;0.5\n", "this looks like a CSV file, with fields between semicolons"),
        "tabs.tsv": (b"1\t2\t0.5\n", "this looks like a CSV file, with fields between tabs"),
        "letter.txt": (b"\n\nDear reader: hello\n", "this looks like a text file, not svmlight, in which a line is label"),
        "note.txt": (b"Dear reader, hello\n", "this looks like a text file"),
        "rows.jsonl": (b'{"label": 1}\n', "this looks like a JSON file"),
        "data.zip": (b"PK\x03\x04rest", "this is a zip archive, not svmlight text, plain or gzipped"),
        "data.parquet": (b"PAR1rest", "this is a Parquet file"),
        "data.xz": (b"\xfd7zXZ\x00rest", "this is an xz file"),
    }


@pytest.mark.parametrize("name", kinds())
def test_a_file_of_another_kind_is_called_that(
    files: pathlib.Path,  # noqa: F811
    capsys: pytest.CaptureFixture[str],
    name: str,
) -> None:
    content, message = kinds()[name]
    (files / name).write_bytes(content)
    assert message in fails(capsys, "train", name, "model.json")
    if name.endswith(("csv", "gz")):
        scores = fails(capsys, "evaluate", "test.txt", name)
        expected = {"truncated.gz": "this is a gzip file; unpack it first", "semicolons.csv": "is not a number"}
        assert expected.get(name, "this looks like a CSV file; it must have one number per line") in scores


# ------------------------------------------------------------ --set


@pytest.mark.parametrize("model", ["model.json", "model.txt", "model.cbm"])
@pytest.mark.parametrize("own", [False, True])
def test_unknown_parameters_are_refused(
    files: pathlib.Path,  # noqa: F811
    capsys: pytest.CaptureFixture[str],
    model: str,
    own: bool,
) -> None:
    objective = {"model.json": "rank:ndcg", "model.txt": "lambdarank", "model.cbm": "YetiRank"}[model]
    more = ["--objective", objective] if own else []
    said = fails(capsys, "train", "train.txt", model, *FEW, *more, "--set", "nonsense=3")
    assert said.startswith("stochasticrank: --set nonsense: ")
    assert "has no such parameter" in said
    assert not (files / model).exists()


def test_known_parameters_are_taken(files: pathlib.Path) -> None:  # noqa: F811
    known = {
        "xgboost": ("rank:ndcg", {"subsample": 0.5, "lambdarank_num_pair_per_sample": 3, "min_child_weight": 2}),
        "lightgbm": ("lambdarank", {"num_leaves": 3, "lambdarank_truncation_level": 5, "sub_feature": 0.9}),
        "catboost": ("YetiRank", {"rsm": 0.5}),
    }
    for booster, (objective, more) in known.items():
        assert unknown_parameters(booster, objective, more) == []
    assert unknown_parameters("xgboost", sr.StochasticRank("mrr"), {"lambdarank_num_pair_per_sample": 3, "eta": 1}) == [
        "lambdarank_num_pair_per_sample"
    ]
    assert cli.main(["train", "train.txt", "model.json", *FEW, "--set", "subsample=0.5"]) == 0


@pytest.mark.parametrize(
    ("given", "option"),
    [("eta", "--learning-rate"), ("num_iterations", "--rounds"), ("max_depth", "--depth"), ("eval_metric", "--metric")],
)
def test_what_has_an_option_is_not_set_twice(
    files: pathlib.Path,  # noqa: F811
    capsys: pytest.CaptureFixture[str],
    given: str,
    option: str,
) -> None:
    assert f"--set {given}: use {option} instead" in fails(capsys, "train", "train.txt", "model.txt", "--set", f"{given}=1")
    assert option_for("num_leaves") is None


# ------------------------------------------------------------ words


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "train.txt", "model.txt", "--mu", "-1"], "stochasticrank: --mu must be a finite number at least 0"),
        (["train", "train.txt", "model.txt", "--loss", "mu=-1"], "stochasticrank: --loss mu must be a finite number"),
        (["train", "train.txt", "model.txt", "--loss", "mmu=1"], "stochasticrank: --loss mmu: YetiLoss has no such field"),
        (["train", "train.txt", "model.json", "--objective", "foo"], "stochasticrank: --objective foo: "),
        (["train", "train.txt", "model.txt", "--objective", "foo"], "stochasticrank: --objective foo: "),
        (["train", "train.txt", "model.cbm", "--objective", "foo"], "stochasticrank: --objective foo: "),
        (["train", "train.txt", "model.txt", "--seed", "-1"], "stochasticrank: --seed must be a whole number"),
        (
            ["train", "train.txt", "model.txt", "--objective", "lambdarank", "--mu", "1"],
            "are for our own losses",
        ),
        (["train", ".", "model.txt"], ". is a folder; give a file of it\n"),
        (["train", "bare.txt", "model.txt"], "there is no feature after qid:ID in this line nor in any other\n"),
        (["train", "train.txt", "model.txt", "--first-index", "1", "--valid", "mixed.txt"], "train with --first-index 0"),
        (["train", "mixed.txt", "model.txt", "--first-index", "1"], "index 0, but --first-index 1; leave it out or pass 0"),
        (["evaluate", "high.txt", "two.txt", "--metric", "err@5"], "the label 9 in row 2 is above"),
    ],
)
def test_messages_speak_of_options(
    files: pathlib.Path,  # noqa: F811
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    message: str,
) -> None:
    (files / "bare.txt").write_text("1 qid:1\n0 qid:1\n")
    (files / "mixed.txt").write_text("1 qid:1 0:1 1:2\n0 qid:1 0:1\n")
    (files / "high.txt").write_text("1 qid:1 1:2\n9 qid:1 1:1\n")
    (files / "two.txt").write_text("1\n2\n")
    said = fails(capsys, *arguments)
    assert message in said
    for python in ("first_index", "features=", "max_grade=5", "load_folds", "labels["):
        assert python not in said


def test_in_options() -> None:
    said: Any = in_options("x, line 3: if all count from 0, pass first_index=0", ["first_index", "mu"])
    assert said == "x, line 3: if all count from 0, pass --first-index 0"
    assert in_options("model_mu=3 and xmu=2", ["mu"]) == "model_mu=3 and xmu=2"
