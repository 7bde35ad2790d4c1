"""Generated data: reproducible, of the promised shape, and learnable."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import sklearn.linear_model

import stochasticrank_objectives as sr
from stochasticrank_objectives.datasets import RankingData, make_ranking


def test_shape() -> None:
    data = make_ranking(50, documents=(3, 9), features=8)
    assert isinstance(data, RankingData)
    features, labels, groups = data
    assert len(groups) == 50
    assert groups.min() == 3
    assert groups.max() == 9
    assert features.shape == (groups.sum(), 8)
    assert features.dtype == labels.dtype == np.float64
    assert labels.shape == (groups.sum(),)
    np.testing.assert_array_equal(data.qid, np.repeat(np.arange(50), groups))
    assert np.isfinite(features).all()


def test_labels_are_grades_mostly_zero() -> None:
    labels = make_ranking().labels
    assert set(labels) == {0.0, 1.0, 2.0, 3.0, 4.0}
    shares = np.bincount(labels.astype(int)) / len(labels)
    assert shares[0] > 0.5
    assert (np.diff(shares) < 0).all()


def test_reproducible() -> None:
    for one, other in zip(make_ranking(20, seed=5), make_ranking(20, seed=5), strict=True):
        np.testing.assert_array_equal(one, other)
    assert not np.array_equal(make_ranking(20, seed=5).groups, make_ranking(20, seed=6).groups)
    assert not np.array_equal(make_ranking(20, model_seed=5).labels, make_ranking(20, model_seed=6).labels)


def test_a_model_of_one_seed_ranks_another_of_the_same_model_seed() -> None:
    train, test = make_ranking(300, seed=0), make_ranking(300, seed=1)
    other = make_ranking(300, seed=1, model_seed=1)
    model = sklearn.linear_model.Ridge().fit(train.features, train.labels)

    def quality(data: RankingData) -> float:
        return sr.evaluate("ndcg@5", model.predict(data.features), data.labels, data.groups, empty="skip")

    constant = sr.evaluate("ndcg@5", np.zeros(len(test.labels)), test.labels, test.groups, ties="mean", empty="skip")
    assert quality(test) > constant + 0.1
    assert quality(test) > quality(other) + 0.1


def test_some_features_tie_and_some_tell_only_of_the_query() -> None:
    data = make_ranking(100, features=20)
    distinct = np.array([len(np.unique(column)) for column in data.features.T])
    assert (distinct < 20).any()
    starts = np.cumsum([0, *data.groups])[:-1]
    constant = (data.features == np.repeat(data.features[starts], data.groups, axis=0)).all(axis=0)
    assert constant.any()
    assert not constant.all()


@pytest.mark.parametrize(
    "wrong", [{"queries": 0}, {"queries": -3}, {"features": 3}, {"documents": (0, 5)}, {"documents": (6, 5)}]
)
def test_bad_arguments(wrong: dict[str, Any]) -> None:
    (name,) = wrong
    with pytest.raises(ValueError, match=f"there must be .*got .*{name}="):
        make_ranking(**wrong)


def test_one_document_a_query_and_few_features() -> None:
    data = make_ranking(10, documents=(1, 1), features=4)
    np.testing.assert_array_equal(data.groups, np.ones(10))
    assert not sr.StochasticRank("ndcg").bind(data.labels, data.groups).gradient(np.zeros(10)).any()
