"""The demo and its command line, on fewer queries and trees."""

from __future__ import annotations

import pathlib
import re
from collections.abc import Iterator

import numpy as np
import pytest
from numpy.typing import NDArray

import stochasticrank_objectives as sr
from stochasticrank_objectives.__main__ import main
from stochasticrank_objectives.experiments import demo
from stochasticrank_objectives.recommended import BOOSTERS


def test_demo_trains_three_boosters_and_draws(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = tmp_path / "curves.png"
    rows = demo.run(str(picture), queries=60, rounds=12, tasks=2)
    assert [row["booster"] for row in rows] == ["xgboost"] * 2 + ["lightgbm"] * 2 + ["catboost"] * 2
    assert all(len(trained.curve) == 12 for row in rows for trained in row["trained"])
    assert all(np.mean(row["per_query"]) == pytest.approx(row[demo.METRIC]) and row[demo.METRIC] > 0.6 for row in rows)
    assert picture.read_bytes().startswith(b"\x89PNG")
    printed = capsys.readouterr().out
    for booster in BOOSTERS:
        assert str(sr.recommended(demo.METRIC, booster=booster)) in printed
    own, ours = (np.concatenate(row["per_query"]) for row in rows[:2])
    error = np.std([np.mean(ours[at] - own[at]) for at in _resampled(tasks=2, queries=240)])
    told = re.search(r"YetiLoss.* (\S+) ± (\S+) ", printed)
    assert told is not None
    assert float(told[1]) == pytest.approx(np.mean(ours - own), abs=6e-5)
    assert float(told[2]) == pytest.approx(error, rel=0.1)


def _resampled(tasks: int, queries: int) -> Iterator[NDArray[np.int64]]:
    """Drawn with replacement within each task."""
    rng = np.random.default_rng(0)
    for _ in range(2000):
        yield np.concatenate([task * queries + rng.integers(queries, size=queries) for task in range(tasks)])


def test_an_unwritable_picture_is_one_line_and_exit_code_2(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo.run, "__kwdefaults__", {"queries": 10, "rounds": 2, "tasks": 1})
    assert main(["demo", "--picture", str(tmp_path / "missing" / "curves.png")]) == 2
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert error.startswith("stochasticrank: ")
    assert "missing" in error
