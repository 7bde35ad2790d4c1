"""Import, first use, the cache of compiled kernels, and what is public."""

from __future__ import annotations

import ast
import doctest
import importlib
import importlib.metadata
import inspect
import os
import pathlib
import re
import shutil
import subprocess
import sys
from typing import Any

import pytest

import stochasticrank_objectives as sr

PACKAGE = pathlib.Path(sr.__file__).parent


def python(code: str, **environment: str) -> Any:
    """What a fresh interpreter makes of the code, whose last line prints one value."""
    result = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=500,
        cwd=os.sep,  # not in the checkout: what is installed counts
        env={**os.environ, "PYTHONWARNINGS": "error", **environment},
    )
    assert result.returncode == 0, result.stderr
    return ast.literal_eval(result.stdout.strip().splitlines()[-1])


# ------------------------------------------------------------ import


def test_import_compiles_nothing_and_is_quick() -> None:
    """Quick beside numba's own import, which is put off until a kernel is needed."""
    ours, theirs, loaded = python(
        """
import sys, time
import numpy
a = time.perf_counter()
import stochasticrank_objectives as sr
sr.StochasticRank("ndcg@10", mu=0.2), sr.parse_metric("err@3"), sr.SGLB(sr.StochasticRank("map"))
b = time.perf_counter()
heavy = {"numba", "llvmlite", "scipy", "pandas", "xgboost", "lightgbm", "catboost"}
loaded = sorted(heavy & set(sys.modules))
c = time.perf_counter()
import numba
d = time.perf_counter()
print((b - a, d - c, loaded))
"""
    )
    assert loaded == []
    assert ours < theirs


def test_importing_the_kernels_compiles_nothing() -> None:
    compiled = python(
        """
from stochasticrank_objectives._kernels import gradients, noise
from numba.core.dispatcher import Dispatcher
found = [f for module in (gradients, noise) for f in vars(module).values() if isinstance(f, Dispatcher)]
print((len(found) > 3, sum(len(f.signatures) for f in found)))
"""
    )
    assert compiled == (True, 0)


# ------------------------------------------------------------ compiled kernels

USE = """
import numpy as np
import stochasticrank_objectives as sr
labels, groups = [1, 0, 2, 0, 1], [2, 3]
gradient = sr.StochasticRank("ndcg@3").bind(labels, groups).gradient([0.1, 0.2, 0.3, 0.4, 0.5])
value = sr.evaluate("ndcg@3", [0.1, 0.2, 0.3, 0.4, 0.5], labels, groups)
noise = sr.SGLB(sr.StochasticRank("map")).bind(labels, groups).noise(0)
from stochasticrank_objectives._kernels import gradients, noise
from numba.core.dispatcher import Dispatcher
used = {name: f for module in (gradients, noise) for name, f in vars(module).items() if isinstance(f, Dispatcher)}
used = {name: f for name, f in used.items() if f.targetoptions.get("cache") or f.stats.cache_path}
hits = sum(sum(f.stats.cache_hits.values()) for f in used.values())
misses = sum(sum(f.stats.cache_misses.values()) for f in used.values())
"""


def test_a_second_process_finds_compiled_kernels() -> None:
    python(USE + "print(1)")  # the suite's cache folder is warm after this, if it was not before
    assert python(USE + "print((hits >= 3, misses))") == (True, 0)


def test_no_folder_for_the_cache(tmp_path: pathlib.Path) -> None:
    """Nothing is writable: each folder that numba could use lies below a regular file."""
    package = tmp_path / "site" / "stochasticrank_objectives"
    shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__"))
    (package / "__pycache__").write_text("not a folder")
    (tmp_path / "file").write_text("not a folder")
    nowhere = str(tmp_path / "file" / "below")
    expected = python(USE + "print(gradient.tolist())")
    path, found, hits = python(
        USE + "print((sr.__file__, gradient.tolist(), hits))",
        PYTHONPATH=str(tmp_path / "site"),
        PYTHONDONTWRITEBYTECODE="1",
        NUMBA_CACHE_DIR=nowhere,
        HOME=nowhere,
        XDG_CACHE_HOME=nowhere,
        LOCALAPPDATA=nowhere,
    )
    assert pathlib.Path(path).parent == package
    assert hits == 0
    assert found == expected
    assert (tmp_path / "file").read_text() == "not a folder"


def test_few_specialisations() -> None:
    """One compiled version of each kernel serves every metric, setting and kind of input."""
    signatures = python(
        """
import numpy as np
import pandas as pd
import stochasticrank_objectives as sr
from stochasticrank_objectives._kernels import gradients
labels, groups, scores = np.array([1, 0, 1, 0, 1]), np.array([2, 3]), np.array([1, 2, 3, 4, 5])
fixed = scores.astype(float)
fixed.flags.writeable = False
kinds = [scores, list(scores), scores.astype(float), scores.astype(np.float32), fixed, pd.Series(scores.astype(float)),
         np.repeat(scores.astype(float), 2)[::2]]
fixed_labels = labels.astype(float)
fixed_labels.flags.writeable = False
for name in ("ndcg@3", "err", "map", "pfound@2:decay=1", "hit@1"):
    for given in (labels, fixed_labels, pd.Series(labels)):
        loss = sr.StochasticRank(name, sigma=1, mu=0, samples=2, sfa=False)
        bound = loss.bind(given, groups, pd.Series([1.0, 2.0]), query_keys=pd.Series([3, 4]))
        for kind in kinds:
            bound.gradient(kind, 1)
            for ties in ("worst", "mean", "best"):
                sr.evaluate(name, kind, given, groups, ties=ties)
print({name: len(getattr(gradients, name).signatures) for name in ("gradient_range", "value_range", "order_range")})
"""
    )
    assert signatures == {"gradient_range": 1, "value_range": 1, "order_range": 1}


# ------------------------------------------------------------ what is public


def test_public_names() -> None:
    wanted = {"NDCG", "DCG", "ERR", "MRR", "MAP", "PFound", "RBP", "Precision", "Recall", "Hit", "Metric"}
    wanted |= {"parse_metric", "evaluate", "StochasticRank", "SGLB"}
    assert wanted <= set(sr.__all__)
    assert sr.__all__ == sorted(sr.__all__, key=lambda name: (not name.isupper(), name[0].islower(), name))
    for name in sr.__all__:
        assert inspect.getdoc(getattr(sr, name)), f"{name} has no docstring"


def test_version() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+([a-z0-9.+]*)?", sr.__version__)
    assert importlib.metadata.version("stochasticrank-objectives") == sr.__version__


def test_typed() -> None:
    assert (PACKAGE / "py.typed").exists()


def test_there_is_no_top_level_package_called_adapters() -> None:
    site = python(
        "import importlib.util, os; os.chdir('/'); print(importlib.util.find_spec('adapters') is None)", PYTHONPATH=""
    )
    assert site is True


@pytest.mark.parametrize("module", ["metrics", "evaluation", "losses", "sglb", "datasets"])
def test_examples_in_docstrings_run(module: str) -> None:
    result = doctest.testmod(importlib.import_module(f"stochasticrank_objectives.{module}"))
    assert result.failed == 0


@pytest.mark.parametrize("name", ["evaluate", "StochasticRank", "parse_metric", "SGLB"])
def test_public_things_have_an_example(name: str) -> None:
    assert ">>> " in (getattr(sr, name).__doc__ or "")


def test_every_kernel_is_compiled_under_the_one_policy() -> None:
    """Flags, caching and the fallback live in one module, so that no kernel repeats or forgets them."""
    for path in PACKAGE.rglob("*.py"):
        if path.name != "policy.py":
            assert "njit" not in path.read_text(encoding="utf-8"), path.name
