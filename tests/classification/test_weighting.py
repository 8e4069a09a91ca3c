"""Weights of items: a weight of 2 is the item twice, whichever way the rows come."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from torch import nn

from secondguess import PairClassifier, PairData, PairMetaClassifier
from secondguess.classification.fit_warnings import PairFitWarning
from secondguess.classification.logistic import cross_fit_logistic
from secondguess.classification.splitting import row_keys
from secondguess.classification.weighting import (
    decision_weights,
    distinct_rows,
    item_weights,
    prepared_rows,
)

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


def _merged(inputs, responses, weights=None) -> list[tuple[float, float]]:
    """Input and weight of each row that is left."""
    found = distinct_rows(inputs, PairData.from_responses(responses), None, weights)
    amounts = np.ones(len(found.rows)) if found.weights is None else found.weights
    return sorted(zip(abs(inputs[found.rows, 0]).tolist(), amounts.tolist(), strict=True))


def test_copies_are_one_row_unless_their_input_recurs_with_other_responses() -> None:
    inputs = np.array([[5.0], [-0.0], [0.0], [5.0]])
    copies = [[0, 1], [1, 1], [1, 1], [1, 0]]
    assert _merged(inputs, copies, np.array([1, 1, 2, 0.5])) == [(0, 3.0), (5, 1.5)]
    others = [[0, 1], [1, 1], [1, 1], [1, 1]]
    without = _merged(inputs, others, np.array([1, 1, 2, 0]))
    assert without == [(0, 3.0), (5, 1.0)]  # the row that makes the difference has no weight
    # With it, the rows of its input are no copies; those of the other input still are.
    assert _merged(inputs, others) == [(0, 2.0), (5, 1.0), (5, 1.0)]


def test_an_input_of_two_minds_does_not_let_copies_leak() -> None:
    # A hundred items, three copies of each; trained on one copy, the others are no test. Two empty
    # items with opposite answers must not change that.
    rng = np.random.default_rng(0)
    X = np.repeat(rng.normal(size=(100, 5)), 3, axis=0)
    counts = np.repeat(rng.multinomial(4, [0.5, 0.5], size=100), 3, axis=0)
    both = np.vstack([X, np.zeros((2, 5))]), np.vstack([counts, [[4, 0], [0, 4]]])
    found = distinct_rows(both[0], PairData.from_counts(both[1]), None, None)
    assert len(found.rows) == 102
    assert found.weights is not None
    assert np.sort(found.weights).tolist() == [1.0] * 2 + [3.0] * 100


@pytest.mark.filterwarnings("ignore::secondguess.classification.fit_warnings.PairFitWarning")
@pytest.mark.parametrize("num_categories", [2, 8, 12])
def test_categories_on_which_people_agree_are_learned(num_categories) -> None:
    value = np.arange(480) % num_categories
    X, Y = np.eye(num_categories)[value], np.stack([value % 2] * 2, axis=1)
    for model in (
        PairClassifier("responses", backbone="linear"),
        PairMetaClassifier(LogisticRegression(), "responses"),
    ):
        found = model.fit(X, Y).predict_moments(np.eye(num_categories))
        right = found.probs[np.arange(num_categories), np.arange(num_categories) % 2]
        assert (right > 0.95).all()
        assert (found.variance < 0.05).all()


@pytest.mark.parametrize("X", ["continuous", "categories"])
def test_the_order_of_the_rows_makes_no_difference(X) -> None:
    inputs, counts, _, rng = _world(150)
    if X == "categories":
        inputs = np.round(inputs).clip(-1, 1)
    order = rng.permutation(150)
    model = PairClassifier("counts", backbone="linear")
    one = model.fit(inputs, counts).predict_moments(inputs)
    other = model.fit(inputs[order], counts[order]).predict_moments(inputs)
    np.testing.assert_array_equal(one.probs, other.probs)
    np.testing.assert_array_equal(one.variance, other.variance)


class _Named:
    """An object whose `repr` is its address."""

    def __init__(self, value: float) -> None:
        self.value = value


def test_objects_are_told_apart_by_what_is_in_them() -> None:
    long = [np.r_[np.zeros(1000), value, np.zeros(1000)] for value in range(3)]
    column = np.empty((6, 1), dtype=object)
    column[:, 0] = [*long, _Named(1.0), _Named(1.0), _Named(2.0)]
    keys = row_keys(column)
    assert len(set(keys)) == 5
    assert keys[3] == keys[4]


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


def test_weights_that_are_shares_of_a_whole_are_named() -> None:
    data = PairData.from_counts([[3, 0], [0, 3], [1, 2], [3, 0]])
    with pytest.warns(PairFitWarning, match="multiply them by 4"):
        item_weights(data, np.full(4, 0.25))


def test_large_weights_are_not_repeated_rows() -> None:
    X, counts, weights, _ = _world(60)
    with pytest.raises(TypeError, match="takes no sample_weight"):
        PairMetaClassifier(KNeighborsClassifier(), "counts").fit(
            X, counts, sample_weight=1e13 * weights
        )


def test_groups_of_another_length_are_refused_with_a_module_of_ones_own() -> None:
    X, counts, _, _ = _world(60)
    model = PairClassifier("counts", backbone=nn.Linear(3, 4))
    with pytest.raises(ValueError, match="groups has shape"):
        model.fit(X, counts, sample_weight=np.ones(60), groups=np.arange(70))


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


def test_balanced_weights_count_items_by_their_weights(tmp_path) -> None:
    X, counts, weights, _ = _world(150)
    model = PairClassifier("counts", backbone="linear", class_weight="balanced")
    weighted = model.fit(X, counts, sample_weight=weights).class_weight_
    kept = np.repeat(np.arange(150), weights)
    repeated = model.fit(X[kept], counts[kept]).class_weight_
    assert weighted is not None
    assert repeated is not None
    np.testing.assert_allclose(weighted, repeated)
    model.save(tmp_path / "model")
    loaded = PairClassifier.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
    assert loaded.class_weight == "balanced"  # and so for other labels, if it is fitted again
    absent = PairData.from_counts([[3, 0, 0], [1, 2, 0]], classes=[0, 1, 2])
    found = decision_weights("balanced", absent)
    assert found is not None
    assert found[2] == 1


@pytest.mark.parametrize(
    "class_weight",
    ["even", {"maybe": 2.0}, {0: -1.0}, {0: np.nan}, {0: 0.0, 1: 0.0}, {0: "x"}, np.ones(2)],
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


def test_a_constant_column_says_nothing_about_the_spread_of_others() -> None:
    rng = np.random.default_rng(0)
    X = 1e-6 * rng.normal(size=(50, 2)) * [1, 10]
    data = PairData.from_counts(rng.multinomial(3, [0.5, 0.5], size=50))
    rows, _ = prepared_rows(np.hstack([X, np.ones((50, 1))]), data)
    assert rows.spreads is not None
    assert rows.spreads.max() < 2e-5
