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

import numpy as np
import pytest

import stochasticrank_objectives as sr

PACKAGE = pathlib.Path(sr.__file__).parent


def run(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A fresh interpreter that runs the code, in which warnings are errors unless told otherwise."""
    result = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=500,
        cwd=os.sep,  # not in the checkout: what is installed counts
        env={**os.environ, "PYTHONWARNINGS": "error", **environment},
    )
    assert result.returncode == 0, result.stderr
    return result


def python(code: str, **environment: str) -> Any:
    """What a fresh interpreter makes of the code, whose last line prints one value."""
    return ast.literal_eval(run(code, **environment).stdout.strip().splitlines()[-1])


def copy_package(folder: pathlib.Path) -> pathlib.Path:
    """A copy that is imported from `folder`."""
    package = folder / "stochasticrank_objectives"
    shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__"))
    return package


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
    compiled = python(KERNELS + "print((len(found) > 10, sum(len(f.signatures) for f in found)))")
    assert compiled == (True, 0)


# ------------------------------------------------------------ compiled kernels

KERNELS = """
import importlib, pkgutil
from numba.core.dispatcher import Dispatcher
from stochasticrank_objectives import _kernels
names = [module.name for module in pkgutil.iter_modules(_kernels.__path__)]
modules = [importlib.import_module(f"{_kernels.__name__}.{name}") for name in names]
found = {f for module in modules for f in vars(module).values() if isinstance(f, Dispatcher)}
entrances = {f"{f.__module__}.{f.__name__}": f for f in found if f.stats.cache_path}
"""

USE = (
    """
import numpy as np
import stochasticrank_objectives as sr
labels, groups, scores = [1, 0, 2, 0, 1], [2, 3], [0.1, 0.2, 0.3, 0.4, 0.5]
gradient = sr.StochasticRank("ndcg@3").bind(labels, groups).gradient(scores)
value = sr.evaluate("ndcg@3", scores, labels, groups)
noise = sr.SGLB(sr.StochasticRank("map")).bind(labels, groups).noise(0)
"""
    + KERNELS
    + """
hits = sum(sum(f.stats.cache_hits.values()) for f in entrances.values())
misses = sum(sum(f.stats.cache_misses.values()) for f in entrances.values())
"""
)


def test_a_second_process_finds_compiled_kernels() -> None:
    python(USE + "print(1)")  # the suite's cache folder is warm after this, if it was not before
    assert python(USE + "print((hits >= 3, misses))") == (True, 0)


def test_no_folder_for_the_cache(tmp_path: pathlib.Path) -> None:
    """Nothing is writable: each folder that numba could use lies below a regular file. A warning says so, once."""
    package = copy_package(tmp_path / "site")
    (package / "_kernels" / "__pycache__").write_text("not a folder")
    (tmp_path / "file").write_text("not a folder")
    nowhere = str(tmp_path / "file" / "below")
    code = """
import stochasticrank_objectives as sr
print((sr.__file__, sr.evaluate("mrr", [0.2, 0.9, 0.5], [1, 0, 1], [3]), sr.evaluate("mrr", [2, 1, 0], [1, 0, 1], [3])))
"""
    result = run(
        code,
        PYTHONPATH=str(tmp_path / "site"),
        PYTHONDONTWRITEBYTECODE="1",
        PYTHONWARNINGS="always",
        NUMBA_CACHE_DIR=nowhere,
        HOME=nowhere,
        XDG_CACHE_HOME=nowhere,
        LOCALAPPDATA=nowhere,
    )
    path, first, second = ast.literal_eval(result.stdout)
    assert pathlib.Path(path).parent == package
    assert (first, second) == (0.5, 1.0)
    assert result.stderr.count("RuntimeWarning") == 1
    assert "set the environment variable NUMBA_CACHE_DIR to a folder" in result.stderr
    assert (tmp_path / "file").read_text() == "not a folder"


def test_compiled_code_is_not_used_after_a_constant_has_changed(tmp_path: pathlib.Path) -> None:
    """The codes of ties are in a file of their own, from which the kernels, in another, take them when they are compiled."""
    package = copy_package(tmp_path / "site")
    code = """
import stochasticrank_objectives as sr
from stochasticrank_objectives._kernels.values import value_range
values = tuple(sr.evaluate("mrr", [1.0, 1.0], [0, 1], [2], ties=ties) for ties in ("worst", "best"))
print((sr.__file__, values, sum(value_range.stats.cache_hits.values())))
"""
    environment = {"PYTHONPATH": str(tmp_path / "site"), "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    expected = (str(package / "__init__.py"), (0.5, 1.0))
    assert python(code, **environment) == (*expected, 0)
    assert python(code, **environment) == (*expected, 1)
    constants = package / "_constants.py"
    text = constants.read_text(encoding="utf-8")
    changed = text.replace("WORST, BEST, MEAN = 0, 1, 2", "WORST, BEST, MEAN = 1, 0, 2")
    assert changed != text
    constants.write_text(changed, encoding="utf-8")
    os.utime(constants, (1e9, 1e9))  # the length is the same; so that the time is not
    assert python(code, **environment) == (*expected, 0)


def test_without_a_compiler(tmp_path: pathlib.Path) -> None:
    """NUMBA_DISABLE_JIT: kernels run as plain Python, with the same results to rounding."""
    code = """
import sys
import numpy as np
import stochasticrank_objectives as sr
rng = np.random.default_rng(0)
groups = [1, 2, 5, 30, 260]
labels, scores = rng.integers(0, 5, sum(groups)), rng.normal(size=sum(groups))
found = []
own = sr.FunctionMetric(5, function=lambda relevance: relevance[0] + relevance[-1], name="own")
for name in ("ndcg@5", "err", "map@3", "ndcg", "dcgrr@3", "fbeta", "spearman", "kendall", own):
    for keywords in ({}, {"estimator": "reinforce"}, {"noise": "logistic", "sfa": False}):
        found.append(sr.StochasticRank(name, **keywords).bind(labels[:38], groups[:4]).gradient(scores[:38], 2))
    for ties in ("worst", "mean"):
        found.append(sr.evaluate(name, scores.round(1), labels, groups, ties=ties, per_query=True))
found.append(sr.StochasticRank("ndcg").bind(labels, groups).gradient(scores))
found.append(sr.LambdaMART("ndcg@5", noise=0.5, norm=True).bind(labels[:38], groups[:4]).gradient(scores[:38]))
found.append(sr.XENDCG().bind(labels[:38], groups[:4]).gradient(scores[:38]))
found.append(sr.SGLB(sr.StochasticRank("map")).bind(labels, groups).noise(3))
from stochasticrank_objectives._kernels import gradients
np.save(sys.argv[1], np.concatenate(found))
print(hasattr(gradients.ccs, "py_func"))
"""
    results = []
    for number, environment in enumerate(({}, {"NUMBA_DISABLE_JIT": "1"})):
        path = tmp_path / f"{number}.npy"
        compiled = python(f"import sys; sys.argv = ['', {str(path)!r}]" + code, **environment)
        assert compiled == (number == 0)
        results.append(np.load(path))
    np.testing.assert_allclose(results[1], results[0], rtol=1e-9, atol=1e-12)
    assert np.abs(results[0]).max() > 0.1


def test_warm_up_leaves_nothing_to_compile(tmp_path: pathlib.Path) -> None:
    """Every kernel that Python calls is compiled, and kept in the folder that it names; those of the command line apart."""
    code = (
        KERNELS
        + """
from stochasticrank_objectives._warmup import warm_up
folder = warm_up()
missing = sorted(f.__name__ for f in entrances.values() if not f.signatures)
print((folder, missing, sum(sum(f.stats.cache_misses.values()) for f in entrances.values())))
"""
    )
    folder, missing, _ = python(code)
    assert folder.startswith(os.environ["NUMBA_CACHE_DIR"])
    assert missing == ["parse_block", "scan_block"]
    assert python(code)[2] == 0


def test_few_specialisations() -> None:
    """One compiled version of each kernel serves every metric, setting and kind of input."""
    signatures = python(
        """
import numpy as np
import pandas as pd
import stochasticrank_objectives as sr
from stochasticrank_objectives._kernels import gradients, values
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
print((len(gradients.ccs.signatures), len(values.value_range.signatures)))
"""
    )
    assert signatures == (1, 1)


# ------------------------------------------------------------ what is public


def test_public_names() -> None:
    wanted = {"NDCG", "DCG", "BinaryDCG", "ERR", "MRR", "MAP", "PFound", "RBP", "Precision", "Recall", "Hit", "Metric"}
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


DOCUMENTED = ["metrics", "functions", "diversity", "testing", "ranks", "selecting", "evaluation", "losses", "recommended"]


@pytest.mark.parametrize("module", [*DOCUMENTED, "sglb", "datasets"])
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
