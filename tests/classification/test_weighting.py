"""Weights of items: a weight of 2 is the item twice, whichever way the rows come."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier

from secondguess import PairClassifier, PairData, PairMetaClassifier
from secondguess.classification.logistic import cross_fit_logistic
from secondguess.classification.weighting import decision_weights, distinct_rows, item_weights

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


def test_copies_are_one_row_unless_an_input_recurs_with_other_responses() -> None:
    inputs = np.array([[5.0], [-0.0], [0.0], [5.0]])
    copies = PairData.from_responses([[0, 1], [1, 1], [1, 1], [1, 0]])
    found = distinct_rows(inputs, copies, None, np.array([1, 1, 2, 0.5]))
    assert found.weights is not None
    by_row = dict(zip(found.rows.tolist(), found.weights.tolist(), strict=True))
    assert by_row == {0: 1.5, 1: 3.0}
    others = PairData.from_responses([[0, 1], [1, 1], [1, 1], [1, 1]])
    found = distinct_rows(inputs, others, None, np.array([1, 1, 2, 0]))
    assert len(found.rows) == 2  # the row that makes the difference has no weight
    found = distinct_rows(inputs, others, None, None)
    np.testing.assert_array_equal(found.rows, range(4))
    assert found.weights is None


@pytest.mark.statistical
def test_a_few_categories_are_fitted_by_items_and_not_by_categories() -> None:
    # One column of four values: each has half of its items settled, to one side or the other.
    # Merged and held out by value, nothing would be left to learn the variance from. The seed is
    # fixed; the true values are within four standard errors of 3,000 items.
    rng = np.random.default_rng(0)
    value = rng.integers(4, size=3000)
    settled = rng.random(3000) < np.array([0.0, 0.3, 0.6, 0.9])[value]
    chance = np.where(settled, rng.integers(2, size=3000), 0.5)
    first = rng.binomial(2, chance)
    X = np.eye(4)[value]
    model = PairClassifier("counts").fit(X, np.stack([first, 2 - first], axis=1))
    found = model.predict_moments(np.eye(4))
    np.testing.assert_allclose(found.probs[:, 0], 0.5, atol=0.08)
    exact = np.array([0.0, 0.3, 0.6, 0.9]) / 4
    np.testing.assert_allclose(found.variance[:, 0], exact, atol=0.04)


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


@pytest.mark.filterwarnings("ignore::secondguess.classification.fit_warnings.PairFitWarning")
@pytest.mark.parametrize("model", MODELS, ids=lambda model: str(model)[:40])
def test_weights_of_classes_decide_and_change_no_probability(model, tmp_path) -> None:
    X, counts, _, _ = _world(200)
    plain, weighted = (cast(Any, clone(model)) for _ in range(2))
    plain.fit(X, counts)
    weighted.set_params(class_weight={1: 5.0}).fit(X, counts)
    np.testing.assert_array_equal(weighted.predict_proba(X), plain.predict_proba(X))
    np.testing.assert_array_equal(weighted.predict_variance(X), plain.predict_variance(X))
    probs = plain.predict_proba(X)
    np.testing.assert_array_equal(weighted.predict(X), (5 * probs[:, 1] > probs[:, 0]).astype(int))
    assert (weighted.predict(X) != plain.predict(X)).any()
    if isinstance(model, PairClassifier):
        weighted.save(tmp_path / "model")
        loaded = PairClassifier.load(tmp_path / "model")
        np.testing.assert_array_equal(loaded.predict(X), weighted.predict(X))


@pytest.mark.parametrize(
    "class_weight", ["even", {"maybe": 2.0}, {0: -1.0}, {0: np.nan}, {0: 0.0, 1: 0.0}]
)
def test_impossible_weights_of_classes_are_refused(class_weight) -> None:
    with pytest.raises(ValueError, match="class_weight"):
        decision_weights(class_weight, PairData.from_counts([[3, 0], [0, 3]]))


def test_copies_of_a_column_scale_get_their_spread_back_where_that_helps() -> None:
    # Eighty columns of which four matter, and these spread most, as in principal components.
    rng = np.random.default_rng(0)
    spreads = np.r_[np.full(4, 10.0), np.full(76, 0.1)]
    inputs = rng.normal(size=(300, 80))
    chance = 1 / (1 + np.exp(-inputs[:, :4].sum(axis=1)))
    first = rng.binomial(3, chance)
    counts, folds = np.stack([3 - first, first], axis=1), np.arange(300) % 20
    found = cross_fit_logistic(inputs, counts, folds, spreads=spreads)
    assert found.scales[0] > 3 * found.scales[-1]
    assert (cross_fit_logistic(inputs, counts, folds).scales == 1).all()
    shuffled = spreads[rng.permutation(80)]  # where it says nothing about what matters
    assert (cross_fit_logistic(inputs, counts, folds, spreads=shuffled).scales == 1).all()
