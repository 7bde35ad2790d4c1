"""The demo and its command line, on fewer queries and trees."""

from __future__ import annotations

import pathlib

import pytest

import stochasticrank_objectives as sr
from stochasticrank_objectives.__main__ import main
from stochasticrank_objectives.experiments import demo
from stochasticrank_objectives.recommended import BOOSTERS


def test_demo_trains_three_boosters_and_draws(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = tmp_path / "curves.png"
    rows = demo.run(str(picture), queries=60, rounds=12)
    assert [row["booster"] for row in rows] == ["xgboost"] * 2 + ["lightgbm"] * 2 + ["catboost"] * 2
    assert all(len(row["trained"].curve) == 12 and row[demo.METRIC] > 0.6 for row in rows)
    assert picture.read_bytes().startswith(b"\x89PNG")
    printed = capsys.readouterr().out
    for booster in BOOSTERS:
        assert str(sr.recommended(demo.METRIC, booster=booster)) in printed


def test_an_unwritable_picture_is_one_line_and_exit_code_2(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo.run, "__kwdefaults__", {"queries": 10, "rounds": 2})
    assert main(["demo", "--picture", str(tmp_path / "missing" / "curves.png")]) == 2
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert error.startswith("stochasticrank: ")
    assert "missing" in error
