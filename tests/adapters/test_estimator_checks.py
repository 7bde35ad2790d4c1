"""scikit-learn's own checks of the rankers, with the exceptions listed and justified."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import sklearn
from sklearn.utils.estimator_checks import parametrize_with_checks

from stochasticrank_objectives.adapters import CatBoostRanker, LightGBMRanker, XGBoostRanker

if tuple(map(int, sklearn.__version__.split(".")[:2])) < (1, 6):
    pytest.skip("before scikit-learn 1.6 exceptions could not be listed", allow_module_level=True)

# All that fails, for each of the rankers, and why.
WEIGHTS = "it gives the rows of a query different weights, which rankers refuse: a query has one weight"
EXCEPTIONS = {
    "check_sample_weights_not_overwritten": WEIGHTS,
    "check_sample_weight_equivalence_on_dense_data": WEIGHTS,
    "check_sample_weight_equivalence_on_sparse_data": WEIGHTS,
}


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


@parametrize_with_checks(MODELS, expected_failed_checks=lambda _: EXCEPTIONS)
def test_scikit_learns_checks(estimator: Any, check: Any) -> None:
    check(estimator)
