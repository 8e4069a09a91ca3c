"""Weights of items: a weight of 2 is the item twice, whichever way the rows come."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier

from secondguess import PairClassifier, PairData, PairMetaClassifier
from secondguess.classification.weighting import distinct_rows, item_weights

MODELS = [
    PairClassifier("counts", backbone="linear"),
    PairMetaClassifier(LogisticRegression(), "counts"),
    PairMetaClassifier(KNeighborsClassifier(20), "counts"),  # takes no weights
]


def _world(num_rows: int):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(num_rows, 3))
    chance = 1 / (1 + np.exp(-2 * X[:, 0]))
    first = rng.binomial(3, chance)
    return X, np.stack([first, 3 - first], axis=1), rng.integers(0, 3, size=num_rows), rng


@pytest.mark.filterwarnings("ignore::secondguess.classification.fit_warnings.PairFitWarning")
@pytest.mark.parametrize("model", MODELS, ids=lambda model: str(model)[:40])
def test_a_weight_is_as_good_as_copies_in_any_order(model) -> None:
    X, counts, weights, rng = _world(120)
    groups = np.arange(len(X)) // 2
    weighted = model.fit(X, counts, sample_weight=weights, groups=groups).predict_moments(X)
    copies = rng.permutation(np.repeat(np.arange(len(X)), weights))
    repeated = model.fit(X[copies], counts[copies], groups=groups[copies]).predict_moments(X)
    np.testing.assert_allclose(repeated.probs, weighted.probs, rtol=1e-9)
    np.testing.assert_allclose(repeated.variance, weighted.variance, rtol=1e-9)


def test_copies_of_an_input_share_a_group() -> None:
    data = PairData.from_responses([[0, 1], [1, 1], [0, 0]])
    found = distinct_rows(np.array([[5.0], [-0.0], [0.0]]), data, None, None)
    by_row = dict(zip(found.rows.tolist(), found.groups.tolist(), strict=True))
    assert by_row[1] == by_row[2] != by_row[0]
    assert found.weights is None  # the responses differ, so that none is a copy


@pytest.mark.parametrize(
    ("sample_weight", "match"),
    [([0, 0], "non-zero"), ([1, -1], "Negative values"), ([1, 2, 3], "sample_weight")],
)
def test_impossible_weights_are_refused(sample_weight, match) -> None:
    data = PairData.from_counts([[3, 0], [0, 3]])
    with pytest.raises(ValueError, match=match):
        item_weights(data, sample_weight)


def test_an_estimator_without_weights_takes_whole_numbers_only() -> None:
    X, counts, weights, _ = _world(60)
    model = PairMetaClassifier(KNeighborsClassifier(), "counts")
    with pytest.raises(TypeError, match="takes no sample_weight"):
        model.fit(X, counts, sample_weight=weights / 2)
    forest = PairMetaClassifier(RandomForestClassifier(5, random_state=0), "counts")
    forest.fit(X, counts, sample_weight=weights / 2)
