"""Imports point one way: experiments -> adapters -> core -> _kernels -> _constants, lazy and relative ones included."""

from __future__ import annotations

import ast
import pathlib
from collections.abc import Iterator

import pytest

ROOT = pathlib.Path(__file__).parent.parent
PACKAGE = "stochasticrank_objectives"
FOLDERS = {PACKAGE: ROOT / PACKAGE, f"{PACKAGE}.adapters": ROOT / "adapters"}
ROOMS = ["constants", "kernels", "core", "adapters", "experiments"]  # each may import those before it, and itself
ENTRY_POINTS = {f"{PACKAGE}.__main__"}
BOOSTERS = {"xgboost", "lightgbm", "catboost"}


def modules() -> dict[str, pathlib.Path]:
    """Every module of the package by its dotted name; a package by the name of its folder."""
    found = {}
    for name, folder in FOLDERS.items():
        for path in folder.rglob("*.py"):
            parts = path.relative_to(folder).with_suffix("").parts
            found[".".join([name, *parts]).removesuffix(".__init__")] = path
    return found


MODULES = modules()


def room(module: str) -> str:
    if module == f"{PACKAGE}._constants":
        return "constants"
    for folder in ("_kernels", "adapters", "experiments"):
        if module == f"{PACKAGE}.{folder}" or module.startswith(f"{PACKAGE}.{folder}."):
            return folder.strip("_")
    return "core"


def imports(module: str, path: pathlib.Path, text: str | None = None) -> Iterator[str]:
    """The full name of everything that a module imports, at its top or inside a function, by `import_module` too."""
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8") if text is None else text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parts = package.split(".")
            base = parts[: len(parts) - node.level + 1] if node.level else []
            origin = ".".join([*base, *([node.module] if node.module else [])])
            for alias in node.names:
                submodule = f"{origin}.{alias.name}"
                yield submodule if submodule in MODULES else origin
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) == "import_module":
            name = node.args[0]
            if isinstance(name, ast.Constant) and str(name.value).startswith(PACKAGE):
                yield str(name.value)


def graph() -> dict[str, set[str]]:
    return {module: {name for name in imports(module, path) if name in MODULES} for module, path in MODULES.items()}


def test_the_walk_sees_relative_lazy_and_package_imports() -> None:
    text = "from . import _threads\nfrom ._kernels import noise\ndef f():\n    from .adapters.xgboost import xgb\n"
    assert set(imports(f"{PACKAGE}.sglb", pathlib.Path("sglb.py"), text)) == {
        f"{PACKAGE}._threads",
        f"{PACKAGE}._kernels.noise",
        f"{PACKAGE}.adapters.xgboost",
    }
    assert {room(module) for module in MODULES} == set(ROOMS)
    assert f"{PACKAGE}._kernels.noise" in graph()[f"{PACKAGE}.sglb"]


def test_imports_point_one_way() -> None:
    against = [
        f"{module} -> {name}"
        for module, names in graph().items()
        for name in names
        if module not in ENTRY_POINTS and ROOMS.index(room(name)) > ROOMS.index(room(module))
    ]
    assert against == []


def test_only_entry_points_import_experiments() -> None:
    outside = [
        m for m, names in graph().items() if room(m) != "experiments" and any(room(n) == "experiments" for n in names)
    ]
    assert set(outside) == ENTRY_POINTS


def test_there_is_no_cycle() -> None:
    arrows = {module: set(names) for module, names in graph().items()}
    while leaves := {module for module, names in arrows.items() if not names & arrows.keys()}:
        arrows = {module: names for module, names in arrows.items() if module not in leaves}
    assert arrows == {}


@pytest.mark.parametrize("place", ["constants", "kernels", "core"])
def test_no_booster_below_the_adapters(place: str) -> None:
    for module, path in MODULES.items():
        if room(module) == place:
            assert not {name.split(".")[0] for name in imports(module, path)} & (BOOSTERS | {"sklearn", "pandas"}), module
