"""Every notebook runs from top to bottom in a fresh kernel, and is stored with what it printed and drew."""

from __future__ import annotations

import pathlib
import re
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

FOLDER = pathlib.Path(__file__).parent.parent / "notebooks"
NAMES = ["compare_objectives", "global_optimum", "quick_start", "smoothing"]
ABSOLUTE_PATH = re.compile(r"(?<![\w:./<])/(?:home|root|tmp|work|usr|var|opt|Users|private|mnt)/|\b[A-Za-z]:\\")


def _read(name: str) -> Any:
    return nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)


def _code(notebook: Any) -> list[Any]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def _texts(cell: Any) -> list[str]:
    """All that a cell has put out, pictures aside."""
    found = []
    for output in cell.outputs:
        if output.output_type == "stream":
            found.append(output.text)
        elif output.output_type == "error":
            found += [output.ename, output.evalue, *output.traceback]
        else:
            found += [text for kind, text in output.data.items() if kind.startswith("text/")]
    return found


def _check_outputs(notebook: Any) -> None:
    """Something was printed and drawn; nothing failed, warned or told where it ran."""
    outputs = [output for cell in _code(notebook) for output in cell.outputs]
    assert not [output for output in outputs if output.output_type == "error"]
    assert "".join(output.text for output in outputs if output.output_type == "stream" and output.name == "stderr") == ""
    assert any("image/png" in output.get("data", {}) for output in outputs)
    text = "\n".join(text for cell in _code(notebook) for text in _texts(cell))
    assert text.strip()
    assert "warning" not in text.lower()
    assert not ABSOLUTE_PATH.search(text)


def test_all_notebooks_are_tested() -> None:
    assert sorted(path.stem for path in FOLDER.glob("*.ipynb")) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_saved_outputs(name: str) -> None:
    notebook = _read(name)
    nbformat.validate(notebook)
    assert [cell.execution_count for cell in _code(notebook)] == list(range(1, len(_code(notebook)) + 1))
    assert (FOLDER / f"{name}.ipynb").stat().st_size < 500_000
    assert not ABSOLUTE_PATH.search("\n".join(cell.source for cell in notebook.cells))
    _check_outputs(notebook)


@pytest.mark.parametrize("name", NAMES)
def test_notebook_runs(name: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUPYTER_PLATFORM_DIRS", "1")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    notebook = _read(name)
    for cell in _code(notebook):
        cell.outputs, cell.execution_count = [], None
    NotebookClient(notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}).execute()
    _check_outputs(notebook)
    assert not [path for path in tmp_path.iterdir() if path.name != "ipython"]  # it leaves no files behind
