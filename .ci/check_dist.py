"""Check what `python -m build` has made: that it holds what it should, installs into an empty environment, and trains.

python .ci/check_dist.py dist [--python python3.10 --python ...] [--import-only]
"""

from __future__ import annotations

import argparse
import pathlib
import subprocess
import sys
import tarfile
import tempfile
import zipfile

ROOT = pathlib.Path(__file__).parent.parent
PACKAGE = "stochasticrank_objectives"

IMPORT = """
import stochasticrank_objectives as sr
from stochasticrank_objectives.experiments import cli, letor
bound = sr.StochasticRank("ndcg@3").bind([0, 2, 1], [3])
assert bound.gradient([0.0, 0.0, 0.0]).shape == (3,)
assert sr.evaluate("mrr", [0.2, 0.9, 0.5], [1, 0, 1], [3]) == 0.5
print(sr.__version__, sr.__file__)
"""

TRAIN = """
import numpy as np, xgboost, lightgbm, catboost
import stochasticrank_objectives as sr
from stochasticrank_objectives.adapters import CatBoostObjective, LightGBMObjective, XGBoostObjective
from stochasticrank_objectives.datasets import make_ranking
from stochasticrank_objectives.experiments.training import BOOSTERS, Settings, train
learn, test = (make_ranking(60, seed=seed) for seed in (1, 2))
for booster in BOOSTERS:
    loss = sr.recommended("ndcg@10", booster=booster)
    trained = train(booster, loss, learn, test, metric="ndcg@10", settings=Settings(rounds=20, threads=1))
    assert trained.curve[-1] > 0.5, (booster, trained.curve)
    print(booster, round(trained.curve[-1], 3))
"""


def expected() -> set[str]:
    """The files that a wheel has, beside its metadata."""
    rooms = {PACKAGE: ROOT / PACKAGE, f"{PACKAGE}/adapters": ROOT / "adapters"}
    modules = {f"{name}/{path.relative_to(room).as_posix()}" for name, room in rooms.items() for path in room.rglob("*.py")}
    return {*modules, f"{PACKAGE}/py.typed"}


def check_contents(wheel: pathlib.Path, sdist: pathlib.Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        found = {name for name in archive.namelist() if ".dist-info/" not in name}
        metadata = [name for name in archive.namelist() if ".dist-info/" in name]
    assert found == expected(), f"{wheel.name}: {sorted(found ^ expected())}"
    assert any(name.endswith("licenses/LICENSE") for name in metadata), metadata
    with tarfile.open(sdist) as archive:
        files = {name.partition("/")[2] for name in archive.getnames()}
    sources = {name.replace(f"{PACKAGE}/adapters/", "adapters/") for name in expected()}
    wanted = sources | {"pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "CITATION.cff"}
    assert wanted <= files, f"{sdist.name} lacks {sorted(wanted - files)}"
    others = [name for name in files if name.split("/")[0] in ("tests", "notebooks", "benchmarks", "docs", ".ci", ".github")]
    assert not others, f"{sdist.name} has {others}"
    print(f"{wheel.name}: {len(found)} files, {sdist.name}: {len(files)} files, as they should be")


def install_and_run(python: str, what: str, code: list[str], *, command: bool) -> None:
    """In an environment of its own, away from the checkout."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([python, "-m", "venv", f"{folder}/venv"], check=True)
        inside = f"{folder}/venv/bin/python"
        subprocess.run([inside, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", what], check=True)
        for one in code:
            subprocess.run([inside, "-W", "error::DeprecationWarning", "-c", one], check=True, cwd=folder)
        if command:
            run = [f"{folder}/venv/bin/stochasticrank", "train", "generated:30", "model.json", "--rounds", "5"]
            subprocess.run(run, check=True, cwd=folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dist", type=pathlib.Path)
    parser.add_argument("--python", action="append", help="an interpreter to install into; may be repeated")
    parser.add_argument("--import-only", action="store_true", help="without boosters: import it and compute a gradient")
    chosen = parser.parse_args()
    (wheel,), (sdist,) = chosen.dist.glob("*.whl"), chosen.dist.glob("*.tar.gz")
    check_contents(wheel, sdist)
    for python in chosen.python or [sys.executable]:
        if chosen.import_only:
            install_and_run(python, str(wheel), [IMPORT], command=False)
        else:
            install_and_run(python, f"{wheel}[xgboost,lightgbm,catboost,cli]", [IMPORT, TRAIN], command=True)
            install_and_run(python, str(sdist), [IMPORT], command=False)
        print(f"{python}: installs and {'imports' if chosen.import_only else 'trains'}")


if __name__ == "__main__":
    main()
