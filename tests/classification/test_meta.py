"""Pairs on other people's classifiers: valid joints, the rows they learn from, what they find."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.naive_bayes import BernoulliNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from secondguess import PairData, PairMetaClassifier, mean_variance
from secondguess.classification.conditionals import (
    draw_responses,
    smoothed,
    valid_joints,
    with_first_response,
)
from secondguess.classification.fit_warnings import PairFitWarning
from secondguess.classification.splitting import num_repeated_rows

shares = st.integers(2, 5).flatmap(
    lambda k: hnp.arrays(np.float64, (3, k + 1, k), elements=st.floats(1e-6, 1.0))
)


@settings(deadline=None, max_examples=60)
@given(shares)
def test_whatever_an_estimator_says_becomes_a_valid_joint(raw) -> None:
    probs = raw / raw.sum(axis=-1, keepdims=True)
    tables = valid_joints(*smoothed(probs[:, 0], probs[:, 1:], 1e-4))
    np.testing.assert_allclose(tables, tables.transpose(0, 2, 1), atol=1e-12)
    np.testing.assert_allclose(tables.sum(axis=(1, 2)), 1)
    assert (tables >= 0).all()
    assert np.linalg.eigvalsh(tables).min() > -1e-9
    marginal = tables.sum(axis=2)
    variance = np.diagonal(tables, axis1=1, axis2=2) - marginal**2
    assert variance.min() > -1e-9


def test_a_joint_that_is_valid_stays_as_it_is() -> None:
    rng = np.random.default_rng(0)
    parts = rng.dirichlet(np.ones(4), size=(7, 5))
    tables = np.einsum("nri,nrj->nij", parts, parts) / 5
    marginal = tables.sum(axis=2)
    np.testing.assert_allclose(valid_joints(marginal, tables / marginal[:, :, None]), tables)


def test_each_row_teaches_as_many_pairs_as_singles_and_never_pairs_a_response_with_itself() -> None:
    data = PairData.from_ragged([["a", "b"], ["a"], ["b"] * 9 + ["a"]])
    rows, first, response = draw_responses(data, np.random.default_rng(0))
    assert [(rows[first < 0] == i).sum() for i in range(3)] == [2, 1, 5]
    assert [(rows[first >= 0] == i).sum() for i in range(3)] == [2, 0, 5]
    pairs = (rows == 0) & (first >= 0)
    assert (first[pairs] != response[pairs]).all()  # the two responses are one a and one b
    last = (rows == 2) & (first >= 0)
    assert ((first[last] == 0) & (response[last] == 0)).sum() == 0


@pytest.mark.statistical
def test_pairs_are_drawn_like_pairs() -> None:
    # 4,000 items with 3 of 5 responses alike: 30 % of ordered pairs are (0, 0). An item's five
    # pairs are neighbours in a random circle; the share of all 20,000 has a standard error below
    # 0.0033 (that of independent pairs), so 0.02 is 6 of them: a false alarm below 1e-8.
    data = PairData.from_responses([[0, 0, 0, 1, 1]] * 4000)
    _, first, response = draw_responses(data, np.random.default_rng(0))
    paired = first >= 0
    assert abs(((first == 0) & (response == 0))[paired].mean() - 0.3) < 0.02
    assert abs((response[~paired] == 0).mean() - 0.6) < 1e-12


def _world(num_rows: int, rng: np.random.Generator):
    """The second feature says whether people are split or agree on what the features hide."""
    X = rng.normal(size=(num_rows, 3))
    hidden = np.where(rng.random(num_rows) < 0.5, 0.95, 0.05)
    truth = np.where(X[:, 1] > 0, 0.5, hidden)
    Y = np.where(rng.random((num_rows, 3)) < truth[:, None], "yes", "no")
    return X, Y


def _xgboost():
    xgboost = pytest.importorskip("xgboost")
    return xgboost.XGBClassifier(n_estimators=30, max_depth=3, n_jobs=1)


def _lightgbm():
    lightgbm = pytest.importorskip("lightgbm")
    return lightgbm.LGBMClassifier(n_estimators=30, num_leaves=7, verbose=-1, n_jobs=1)


ESTIMATORS = {
    "gradient boosting": lambda: HistGradientBoostingClassifier(max_iter=30, max_leaf_nodes=7),
    "lightgbm": _lightgbm,
    "xgboost": _xgboost,
    "random forest": lambda: RandomForestClassifier(50, min_samples_leaf=10, random_state=0),
    "logistic regression": LogisticRegression,
}


@pytest.mark.statistical
@pytest.mark.parametrize("name", list(ESTIMATORS))
def test_what_is_hidden_is_told_from_what_people_disagree_on(name) -> None:
    # The variances are 0 and 0.2025 in truth. The law of the fit is not known: the seed is fixed
    # and no false-alarm rate is claimed. A linear model cannot let the weight of the first response
    # depend on a feature, so that only its mean can be right.
    rng = np.random.default_rng(0)
    X, Y = _world(3000, rng)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PairFitWarning)
        model = PairMetaClassifier(ESTIMATORS[name](), "responses").fit(X[:1500], Y[:1500])
    variance = model.predict_variance(X[1500:])[:, 1]
    assert abs(mean_variance(model.predict_moments(X[1500:])) / 2 - 0.101) < 0.02
    if name != "logistic regression":
        split = X[1500:, 1] > 0
        assert variance[split].mean() < 0.05
        assert variance[~split].mean() > 0.15


def _reviews(num_rows: int, rng: np.random.Generator):
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame(
        {
            "color": pandas.Categorical(rng.choice(["red", "green", "blue"], size=num_rows)),
            "shop": rng.choice(["north", "south"], size=num_rows).astype(object),
            "size": rng.normal(size=num_rows),
        }
    )
    chance = 0.2 + 0.6 * (table["color"] == "red").to_numpy()
    return table, np.where(rng.random((num_rows, 3)) < chance[:, None], "good", "bad")


def test_a_pipeline_over_a_data_frame_with_categories() -> None:
    # remainder="drop" is scikit-learn's default: the first response must not be lost by it.
    table, Y = _reviews(400, np.random.default_rng(0))
    columns = ColumnTransformer(
        [("names", OneHotEncoder(), ["color", "shop"]), ("numbers", StandardScaler(), ["size"])]
    )
    model = PairMetaClassifier(make_pipeline(columns, LogisticRegression()), "responses")
    probs = model.fit(table, Y).predict_proba(table)[:, 1]
    assert list(model.feature_names_in_) == ["color", "shop", "size"]
    assert abs(probs[table["color"] == "red"].mean() - 0.8) < 0.1
    assert abs(probs[table["color"] != "red"].mean() - 0.2) < 0.1
    with pytest.raises(ValueError, match="feature names"):
        model.predict(table.rename(columns={"size": "length"}))


def test_a_booster_takes_categories_as_they_are() -> None:
    table, Y = _reviews(400, np.random.default_rng(0))
    table["shop"] = table["shop"].astype("category")
    booster = HistGradientBoostingClassifier(max_iter=20, categorical_features="from_dtype")
    model = PairMetaClassifier(booster, "responses").fit(table, Y)
    assert model.predict_variance(table).shape == (400, 2)


def test_texts_and_sparse_features() -> None:
    rng = np.random.default_rng(0)
    words = rng.choice(["fine", "poor", "table", "chair"], size=(200, 3))
    texts = [" ".join(row) for row in words]
    good = np.array(["fine" in text for text in texts])
    Y = np.where(rng.random((200, 2)) < np.where(good, 0.9, 0.2)[:, None], "good", "bad")
    whole = PairMetaClassifier(make_pipeline(CountVectorizer(), LogisticRegression()), "responses")
    assert (whole.fit(texts, Y).predict(texts) == np.where(good, "good", "bad")).mean() > 0.9
    counts: Any = CountVectorizer().fit_transform(texts)
    last = PairMetaClassifier(LogisticRegression(), "responses").fit(counts, Y)
    # Rows are ordered by what is in them, so folds and draws are others, and nothing else is.
    np.testing.assert_allclose(last.predict_proba(counts), whole.predict_proba(texts), atol=0.02)
    assert num_repeated_rows(counts) == num_repeated_rows(counts.toarray())


def test_polars_tables() -> None:
    polars = pytest.importorskip("polars")
    table, Y = _reviews(200, np.random.default_rng(0))
    frame = polars.DataFrame({"size": table["size"].to_numpy()})
    grown = with_first_response(frame, np.zeros(200, dtype=int), np.array(["bad", "good"]))
    assert grown.columns == ["size", "first_response_bad", "first_response_good"]
    model = PairMetaClassifier(LogisticRegression(), "responses").fit(frame, Y)
    assert model.predict_variance(frame).shape == (200, 2)


class Forgetful(BernoulliNB):
    """A classifier that looks at its first column only."""

    def fit(self, X, y, sample_weight=None):
        return super().fit(X[:, :1], y, sample_weight)

    def predict_proba(self, X):
        return super().predict_proba(X[:, :1])


class NoGaps(LogisticRegression):
    """As XGBoost: the labels must be 0, 1, ... without a gap."""

    def fit(self, X, y, sample_weight=None):
        assert np.unique(y).tolist() == list(range(len(np.unique(y))))
        return super().fit(X, y, sample_weight)


def test_a_class_that_a_fold_has_not_seen_leaves_no_gap() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    Y = np.where(X[:, :1] + rng.normal(size=(60, 2)) > 0, "yes", "no")
    Y[7] = "hm"  # before the others in the order of classes, and in one item only
    model = PairMetaClassifier(NoGaps(), "responses").fit(X, Y)
    assert model.classes_.tolist() == ["hm", "no", "yes"]
    probs = model.predict_proba(X)
    assert probs[:, 0].max() < 0.3
    assert (probs[X[:, 0] > 1.5].argmax(axis=1) == 2).all()


def test_an_estimator_that_cannot_learn_pairs_is_named() -> None:
    X, Y = _world(200, np.random.default_rng(0))
    with pytest.warns(PairFitWarning) as caught:
        PairMetaClassifier(Forgetful(), "responses").fit(X, Y)
    assert "does not look at the first response" in str(caught[0].message)
    with pytest.raises(TypeError, match="RidgeClassifier, which has no predict_proba"):
        PairMetaClassifier(RidgeClassifier(), "responses").fit(X, Y)


def test_without_recalibration_there_is_one_clone_and_its_word_is_taken() -> None:
    X, Y = _world(100, np.random.default_rng(0))
    model = PairMetaClassifier(LogisticRegression(), "responses", recalibrate=False).fit(X, Y)
    assert model.variance_map_.kind == "identity"
    assert model.recalibration_.temperature == 1
