"""Every Python snippet of the README and the guides runs, and the files that they link to are there."""

from __future__ import annotations

import pathlib
import re
import textwrap

import pytest

ROOT = pathlib.Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
SNIPPET = re.compile(r"^(?P<indent> *)```python[^\n]*\n(?P<code>.*?)^(?P=indent)```", re.DOTALL | re.MULTILINE)
COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
SNIPPETS = {
    f"{page.relative_to(ROOT)}:{number}": textwrap.dedent(found["code"])
    for page in PAGES
    for number, found in enumerate(SNIPPET.finditer(page.read_text(encoding="utf-8")), 1)
}


@pytest.mark.parametrize("name", SNIPPETS)
def test_snippet_runs(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(SNIPPETS[name], name, "exec"), {"__name__": "__main__"})
    assert capsys.readouterr().out.strip()


def test_there_is_a_snippet_for_each_booster() -> None:
    text = "\n".join(code for name, code in SNIPPETS.items() if name.startswith("README"))
    assert all(f"import {name}" in text for name in ("XGBoostMetric, XGBoostObjective", "LightGBMMetric", "CatBoost"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: pathlib.Path) -> None:
    """As the repository shows them; `make docs` checks them as the site does."""
    text = COMMENT.sub("", page.read_text(encoding="utf-8"))
    targets = [target.partition("#")[0] for target in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in target]
    assert not [target for target in targets if target and not (page.parent / target).exists()]
