"""What mkdocstrings must be told about this package: where the adapters are, and how its docstrings are written.

The adapters are installed as a subpackage but lie in a folder of their own, where griffe does not look: they are read from
where Python finds them. Nothing is imported, so the boosters need not be installed.
"""

from __future__ import annotations

import importlib.util
import pathlib
import re
from typing import Any

import griffe

_SHARED = re.compile(r"^((?:\w+, )+\w+)\n((?: +.*\n?|\n)+)", re.MULTILINE)
_EXAMPLE = re.compile(r"^(?=>>> )", re.MULTILINE)


class House(griffe.Extension):
    """Adds the adapters to the package, and headings that the docstrings leave out."""

    def on_package(self, *, pkg: griffe.Module, loader: griffe.GriffeLoader, **_: Any) -> None:
        """Read the modules of the adapters and put them into the package, unless griffe has found them."""
        if pkg.path != "stochasticrank_objectives" or "adapters" in pkg.members:
            return
        spec = importlib.util.find_spec("stochasticrank_objectives.adapters")
        assert spec is not None
        assert spec.origin is not None
        folder = pathlib.Path(spec.origin).parent
        adapters = self._read(loader, folder / "__init__.py", "adapters", pkg)
        for path in sorted(folder.glob("*.py")):
            if path.stem != "__init__":
                self._read(loader, path, path.stem, adapters)

    def _read(self, loader: griffe.GriffeLoader, path: pathlib.Path, name: str, parent: griffe.Module) -> griffe.Module:
        module = griffe.visit(
            name, path, path.read_text("utf-8"), extensions=loader.extensions, parent=parent,
            docstring_parser=loader.docstring_parser, docstring_options=loader.docstring_options,
            lines_collection=loader.lines_collection, modules_collection=loader.modules_collection,
        )  # fmt: skip
        parent.set_member(name, module)
        return module

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Complete the markup of a docstring."""
        if obj.docstring is None:
            return
        text = obj.docstring.value
        # Griffe gives parameters that share a description the type and the default of the first: each gets its own.
        text = _SHARED.sub(lambda found: "".join(f"{name}\n{found[2]}" for name in found[1].split(", ")), text)
        # A short docstring has its example without a heading; Markdown would take it for a quotation.
        if "\nExamples\n---" not in text:
            text = _EXAMPLE.sub("Examples\n--------\n", text, count=1)
        obj.docstring.value = text
