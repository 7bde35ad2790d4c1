"""Every snippet of the README runs."""

from __future__ import annotations

import pathlib
import re

import pytest

README = pathlib.Path(__file__).parent.parent / "README.md"
SNIPPETS = re.findall(r"^```python\n(.*?)^```", README.read_text(), re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("number", range(len(SNIPPETS)))
def test_snippet_runs(number: int, capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(SNIPPETS[number], f"README snippet {number}", "exec"), {"__name__": "__main__"})
    assert capsys.readouterr().out.strip()


def test_there_is_a_snippet_for_each_booster() -> None:
    text = "\n".join(SNIPPETS)
    assert len(SNIPPETS) >= 5
    assert all(f"import {name}" in text or f"from {name}" in text for name in ("xgboost", "lightgbm", "catboost"))
