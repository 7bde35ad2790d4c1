"""scikit-learn's own checks of the rankers, with the exceptions listed and justified."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from sklearn.utils import estimator_checks

from stochasticrank_objectives.adapters import CatBoostRanker, LightGBMRanker, XGBoostRanker

# All that fails, for each of the rankers: these give the rows of a query different weights, which rankers refuse, because a
# query has one weight.
EXCEPTIONS = {
    "check_sample_weights_not_overwritten",
    "check_sample_weight_equivalence_on_dense_data",
    "check_sample_weight_equivalence_on_sparse_data",
    "check_sample_weights_invariance",  # the name before scikit-learn 1.6
}
ARRAY_API = "check_array_api_input"  # needs a process that was started with SCIPY_ARRAY_API=1


class OneQuery:
    """scikit-learn's checks know no queries, which the rankers insist on: here all rows are one where none are given."""

    def fit(self, X: Any, y: Any = None, *, sample_weight: Any = None, **given: Any) -> Any:
        return super().fit(X, y, sample_weight=sample_weight, **one_query(X, given))  # type: ignore[misc]

    def score(self, X: Any, y: Any = None, **given: Any) -> Any:
        return super().score(X, y, **one_query(X, given))  # type: ignore[misc]


def one_query(X: Any, given: dict[str, Any]) -> dict[str, Any]:
    return {"qid": np.zeros(X.shape[0] if hasattr(X, "shape") else len(np.asarray(X)), int), **given}


class CheckedXGBoostRanker(OneQuery, XGBoostRanker):
    pass


class CheckedLightGBMRanker(OneQuery, LightGBMRanker):
    pass


class CheckedCatBoostRanker(OneQuery, CatBoostRanker):
    pass


SMALL: dict[str, Any] = {"n_estimators": 3, "random_state": 0, "n_jobs": 1}
MODELS = [
    CheckedXGBoostRanker(**SMALL),
    CheckedLightGBMRanker(**SMALL, min_child_samples=1, min_data_in_bin=1),  # else LightGBM refuses 20 rows
    CheckedCatBoostRanker(**SMALL),
]


def name_of(check: Any) -> str:
    name = str(getattr(check, "func", check).__name__)
    return name + {"ones": "(ones)"}.get(getattr(check, "keywords", {}).get("kind", ""), "")


def checks() -> Iterator[Any]:
    """Each model with each check."""
    for model in MODELS:
        if hasattr(estimator_checks, "estimator_checks_generator"):
            found = estimator_checks.estimator_checks_generator(model)
        else:  # before scikit-learn 1.6; what LightGBM itself excepts would be skipped
            left_out = estimator_checks._safe_tags(model, "_xfail_checks") or ()
            every = estimator_checks.check_estimator(model, generate_only=True)
            found = (one for one in every if name_of(one[1]) not in left_out)
        for estimator, check in found:
            yield pytest.param(estimator, check, id=f"{type(estimator).__name__}-{name_of(check)}")


CHECKS = list(checks())


@pytest.mark.parametrize(("estimator", "check"), [one for one in CHECKS if name_of(one.values[1]) != ARRAY_API])
def test_scikit_learns_checks(estimator: Any, check: Any) -> None:
    if name_of(check) in EXCEPTIONS:
        with pytest.raises(ValueError, match="differs from its query's first"):
            check(estimator)
    else:
        check(estimator)


def run_array_api_checks() -> int:
    """How many there were; called in a process of its own."""
    found = [one.values for one in CHECKS if name_of(one.values[1]) == ARRAY_API]
    for estimator, check in found:
        check(estimator)
    return len(found)


def test_scikit_learns_checks_of_arrays_by_the_standard() -> None:
    program = "import test_estimator_checks as t; print(t.run_array_api_checks())"
    environment = {**os.environ, "SCIPY_ARRAY_API": "1", "PYTHONPATH": os.path.dirname(__file__)}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) == sum(name_of(one.values[1]) == ARRAY_API for one in CHECKS)
