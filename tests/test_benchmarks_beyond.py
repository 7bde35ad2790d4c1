"""The benchmark of metrics beyond ranked lists: it runs, and the guide shows what it has found."""

from __future__ import annotations

import json
import pathlib
import sys
from typing import Any

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))
from benchmarks import beyond  # noqa: E402

FOUND: dict[str, Any] = json.loads(beyond.RESULTS.read_text(encoding="utf-8"))
GUIDE = (ROOT / "docs" / "beyond-ranked-lists.md").read_text(encoding="utf-8")


def test_a_million_rows_take_less_than_six_times_as_long_as_a_quarter() -> None:
    assert {"auc", "map", "fbeta", "accuracy", "dcgrr", "spearman", "kendall"} <= set(FOUND["speed"])
    for name, one in FOUND["speed"].items():
        assert one["ratio"] == pytest.approx(one["ms"][1] / one["ms"][0])
        assert one["ratio"] < 6
        assert f"| `{name}` | {one['ms'][0]:.0f} ms | {one['ms'][1]:.0f} ms | {one['ratio']:.1f} |" in GUIDE


def test_the_guide_shows_the_means() -> None:
    for of_method in FOUND["selecting"].values():
        assert f"{of_method['dcgrr']['mean']:.3f}" in GUIDE
    for section, metrics in (("returns", ("spearman", "kendall")), ("skewed", ("spearman", "kendall"))):
        for of_method in FOUND[section].values():
            assert " | ".join(f"{of_method[metric]['mean']:.4f}" for metric in metrics) in GUIDE
    for method in next(iter(FOUND["whole"].values())):
        cells = [f"{of_data[method][m]['mean']:.4f}" for m in ("auc", "fbeta") for of_data in FOUND["whole"].values()]
        assert " | ".join(cells) in GUIDE


def test_trees_and_threshold_are_chosen_on_validation_data() -> None:
    valid = beyond.Data(np.zeros((4, 1)), np.array([1.0, 1.0, 0.0, 0.0]), np.array([4]))
    test = valid._replace(y=np.array([1.0, 0.0, 0.0, 0.0]))
    good, bad = np.array([3.0, 2.0, 1.0, 0.5]), np.array([0.0, 1.0, 2.0, 3.0])
    found = [{rounds: good if rounds == 50 else bad for rounds in beyond.ROUNDS}] * 2
    assert beyond.chosen("accuracy", found, valid, test, 40) == pytest.approx(3 / 4)  # above 1: the first two are shown
    assert beyond.chosen("auc", found, valid, test) == 1.0


def test_it_runs(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beyond, "ROUNDS", (2, 4))
    for section in ("selecting", "returns"):
        result = beyond.SECTIONS[section](True)
        assert all(np.isfinite(one["mean"]) for of_method in result.values() for one in of_method.values())
    assert "Selecting from lists" in capsys.readouterr().out
