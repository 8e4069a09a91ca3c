"""What both pair classifiers promise: scikit-learn's own checks, and the predictions of pairs."""

from __future__ import annotations

from typing import Any, cast

import joblib
import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from sklearn.utils.validation import column_or_1d

from secondguess import (
    PairClassifier,
    PairData,
    PairMetaClassifier,
    cross_predict,
)
from secondguess.classification.estimators import BackboneName
from secondguess.classification.heads import HeadName
from secondguess.classification.scorers import (
    counts_log_likelihood,
    majority_accuracy,
    pair_log_likelihood,
)

HEADS: list[HeadName] = ["correlation", "mixture", "symmetric", "binary"]
NO_FIT_WARNINGS = pytest.mark.filterwarnings(
    "ignore::secondguess.classification.fit_warnings.PairFitWarning"
)


class Twice:
    """Takes the one label per row that scikit-learn's checks have, and says it twice."""

    def fit(self, X, y, *, sample_weight=None, groups=None, validation=None):
        return cast(Any, super()).fit(X, _doubled(y), sample_weight=sample_weight)

    def score(self, X, y, sample_weight=None):
        return cast(Any, super()).score(X, _doubled(y), sample_weight)


class TwicePairs(Twice, PairClassifier):
    pass


class TwiceMeta(Twice, PairMetaClassifier):
    pass


def _doubled(y) -> Any:
    return y if y is None else np.stack([column_or_1d(y, warn=True)] * 2, axis=1)


def _twice(head: HeadName, backbone: BackboneName = "mlp") -> TwicePairs:
    settings = {"width": 16, "num_steps": 40, "learning_rate": 0.02}
    return TwicePairs("responses", backbone=backbone, head=head, **settings)


# One check skips itself, because the array API of SciPy is not in use here; none is expected to
# fail.
@NO_FIT_WARNINGS
@parametrize_with_checks(
    [
        TwicePairs("responses"),
        _twice("mixture"),
        TwiceMeta(LogisticRegression(max_iter=1000), "responses"),
    ]
)
def test_scikit_learn_finds_nothing(estimator, check) -> None:
    check(estimator)


@pytest.mark.slow
@NO_FIT_WARNINGS
@parametrize_with_checks(
    [*(_twice(head) for head in HEADS), *(_twice(head, "linear") for head in HEADS)]
)
def test_scikit_learn_finds_nothing_with_the_other_heads(estimator, check) -> None:
    check(estimator)


MODELS = [
    PairClassifier("responses", backbone="linear"),
    PairMetaClassifier(LogisticRegression(), "responses"),
]
BOTH = pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)


def _responses(num_rows: int = 240, num_raters: int = 3, seed: int = 0):
    """Three classes in a plane; raters see a point with noise of their own."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(num_rows, 2))
    seen = X[:, None, 0] + 0.5 * rng.normal(size=(num_rows, num_raters))
    return X, np.array(["low", "mid", "top"])[np.digitize(seen, [-0.5, 0.5])]


@BOTH
def test_predictions_are_those_of_the_joint(model) -> None:
    X, Y = _responses()
    model = model.fit(X, Y)
    assert model.classes_.tolist() == ["low", "mid", "top"]
    probs, variance = model.predict_proba(X), model.predict_variance(X)
    joint = model.predict_joint(X)
    np.testing.assert_allclose(probs.sum(axis=1), 1)
    np.testing.assert_allclose(joint.marginal, probs)
    np.testing.assert_allclose(joint.epistemic_variance, variance)
    np.testing.assert_allclose(joint.epistemic_confidence, model.predict_confidence(X))
    np.testing.assert_allclose(joint.log_joint, joint.log_joint.mT)
    assert (variance >= -1e-12).all()
    assert (variance <= probs * (1 - probs) + 1e-12).all()
    labels = np.searchsorted(model.classes_, Y[:, :2])
    likelihood = joint.log_joint.numpy()[np.arange(len(X)), labels[:, 0], labels[:, 1]]
    assert model.score(X, Y[:, :2]) == pytest.approx(likelihood.mean())


@BOTH
def test_intervals_are_forgotten_by_the_next_fit(model) -> None:
    X, Y = _responses(400)
    model = model.fit(X[:200], Y[:200]).calibrate(X[200:], Y[200:])
    interval = model.predict_interval(X, miss_rate=0.2)
    assert str(interval.rests_on) == "guaranteed by a calibration set"
    assert ((interval.lower <= model.predict_proba(X)) & (interval.upper <= 1)).all()
    with pytest.raises(Exception, match="is not calibrated"):
        model.fit(X, Y).predict_interval(X)


@BOTH
def test_a_pickle_predicts_the_same(model, tmp_path) -> None:
    X, Y = _responses(400)
    model = model.fit(X[:200], Y[:200]).calibrate(X[200:], Y[200:])
    joblib.dump(model, tmp_path / "model.joblib")
    again = joblib.load(tmp_path / "model.joblib")
    np.testing.assert_array_equal(again.predict_variance(X), model.predict_variance(X))
    interval, expected = (each.predict_interval(X, miss_rate=0.2) for each in (again, model))
    np.testing.assert_array_equal(interval.lower, expected.lower)
    assert again.calibration_conditions_ == model.calibration_conditions_


def test_pairs_on_another_classifier_have_no_format_of_their_own(tmp_path) -> None:
    model = PairMetaClassifier(LogisticRegression(), "responses")
    with pytest.raises(TypeError, match=r"LogisticRegression, .* joblib.dump\(model, path\)"):
        model.save(tmp_path / "model")


@BOTH
def test_counts_names_and_singles_are_read_alike(model) -> None:
    X, Y = _responses()
    data = PairData.from_responses(Y)
    expected = model.fit(X, Y).predict_proba(X)
    np.testing.assert_array_equal(model.fit(X, data).predict_proba(X), expected)
    ragged = PairData.from_ragged([list(row[: 1 + i % 3]) for i, row in enumerate(Y)])
    assert model.fit(X, ragged).classes_.tolist() == ["low", "mid", "top"]
    with pytest.raises(ValueError, match="y holds one class"):
        model.fit(X, np.full_like(Y, "low"))


@BOTH
def test_ragged_data_go_through_scikit_learns_selection(model) -> None:
    X, Y = _responses()
    ragged = PairData.from_ragged([list(row[: 2 + i % 2]) for i, row in enumerate(Y)])
    assert np.isfinite(cross_val_score(model, X, ragged, cv=3)).all()
    search = GridSearchCV(model, {"recalibrate": [True, False]}, cv=2).fit(X, ragged)
    assert search.best_estimator_.predict_variance(X).shape == (240, 3)


@BOTH
def test_data_frames_go_through_pipelines_and_cross_prediction(model) -> None:
    pandas = pytest.importorskip("pandas")
    X, Y = _responses()
    table = pandas.DataFrame(X, columns=["left", "right"])
    by_array = cross_predict(model, X, Y, cv=3)
    by_table = cross_predict(make_pipeline(StandardScaler(), model), table, Y, cv=3)
    np.testing.assert_allclose(by_table.probs, by_array.probs, atol=0.02)
    pipeline: Any = make_pipeline(StandardScaler(), model).fit(table, Y)
    # The documented way: what scikit-learn's pipelines do not pass on is asked of the last step.
    features, last = pipeline[:-1].transform(table), pipeline[-1]
    assert last.calibrate(features, Y).predict_interval(features).lower.shape == (240, 3)


@BOTH
@NO_FIT_WARNINGS
def test_groups_stay_together(model) -> None:
    # Sixty items, five near-copies of each: people agree on a label that the features do not show.
    # A copy in another fold would give the label away, and the variance would be that of a model
    # which knows the answers. The truth is p = 1/2 and the variance 1/4.
    rng = np.random.default_rng(0)
    X, labels = rng.normal(size=(60, 80)), rng.integers(2, size=60)
    new, groups = rng.normal(size=(500, 80)), np.repeat(np.arange(60), 5)
    copies, Y = X[groups], np.stack([labels[groups]] * 3, axis=1)
    copies = copies + 1e-6 * rng.normal(size=copies.shape)  # exact ones would be one row
    alone = model.fit(copies, Y).predict_variance(new)
    together = model.fit(copies, Y, groups=groups).predict_variance(new)
    assert alone.mean() < 0.1  # so that the next line can fail
    assert together.mean() > 0.2
    with pytest.raises(ValueError, match="groups has shape"):
        model.fit(copies, Y, groups=[1, 2])


@BOTH
def test_scorers_are_what_they_say_and_go_through_grid_search(model) -> None:
    X, Y = _responses()
    counts = PairData.from_responses(Y).counts()
    pipeline: Any = make_pipeline(StandardScaler(), model).fit(X, Y)
    probs = pipeline.predict_proba(X)
    chosen = counts[np.arange(240), probs.argmax(axis=1)]
    assert majority_accuracy(pipeline, X, Y) == (chosen == counts.max(axis=1)).mean()
    by_hand = np.log(np.take_along_axis(probs, np.searchsorted(model.classes_, Y), axis=1)).mean()
    assert counts_log_likelihood(pipeline, X, Y) == pytest.approx(by_hand)
    assert pair_log_likelihood(pipeline, X, Y) == pipeline.score(X, Y)
    search = GridSearchCV(model, {"recalibrate": [True]}, scoring=counts_log_likelihood, cv=2).fit(
        X, Y
    )
    assert np.isfinite(search.best_score_)
