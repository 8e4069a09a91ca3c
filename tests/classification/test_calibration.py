"""Calibration sets as people have them: sorted, grouped, rated by fixed people, joined by label.

Each either covers at its level or is refused. The predictor is a function whose truth is known, so
that a bound can be compared with the mean scaled squared error E[D] itself.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import binom

from secondguess.classification.estimators import PairClassifier
from secondguess.classification.pairs import PairData
from secondguess.classification.predictions import PairPredictions
from secondguess.theory.calibration.raters import LEANING_LEVEL, UnequalRatersError
from secondguess.theory.records import Prediction

NUM_SETS = 200
FAILURE_RATE = 0.05
# At most 5 % of the sets may fail; more than this many of 200 do with probability below 1e-4.
MOST_FAILURES = int(binom.isf(1e-4, NUM_SETS, FAILURE_RATE))
# The test for equal leanings has a level of its own, and the same false-alarm rate holds for it.
MOST_REFUSALS = int(binom.isf(1e-4, NUM_SETS, LEANING_LEVEL))
VARIANCE = 0.05


class Half(PairPredictions):
    """Says 1/2 of everything, and states one variance."""

    targets, classes_ = "responses", np.array([0, 1])

    def predict_moments(self, X) -> Prediction:
        shape = (len(np.asarray(X)), 2)
        return Prediction(np.full(shape, 0.5), np.full(shape, VARIANCE))


def test_what_predicts_no_moments_cannot_be_made():
    with pytest.raises(TypeError, match="predict_moments"):
        PairPredictions()  # pyright: ignore[reportAbstractUsage]


def _failures(make: Callable[[np.random.Generator], tuple], mean_scaled_error: float) -> int:
    """In how many calibration sets a bound is below E[D].

    A set that the test for equal leanings refuses is none of them, and few may be refused.
    """
    failures = refusals = 0
    for seed in range(NUM_SETS):
        X, y, groups = make(np.random.default_rng([7, seed]))
        model = Half()
        try:
            model.calibrate(X, y, groups=groups, failure_rate=FAILURE_RATE, min_variance=VARIANCE)
        except UnequalRatersError:
            refusals += 1
            continue
        bounds = [inflation.value for inflation in model.inflations_.inflations]
        failures += min(bounds) < mean_scaled_error
    assert refusals <= MOST_REFUSALS
    return failures


def _draw(rng: np.random.Generator, probs: np.ndarray, num_raters: int = 2) -> np.ndarray:
    return (rng.random((len(probs), num_raters)) < probs[:, None]).astype(int)


@pytest.mark.statistical
@pytest.mark.parametrize("order", ["agreed first", "disputed first", "by label"])
def test_sorted_rows_cover(order) -> None:
    # False alarm: below 2e-4 for each order.
    def make(rng):
        X = rng.random((800, 1))
        y = _draw(rng, X[:, 0])
        keys = {
            "agreed first": y[:, 0] != y[:, 1],
            "disputed first": y[:, 0] == y[:, 1],
            "by label": y.sum(axis=1),
        }
        rows = np.argsort(keys[order], kind="stable")
        return X[rows], y[rows], None

    # p(y|x) = x is uniform, and E (x - 1/2)^2 = 1/12.
    assert _failures(make, 1 / 12 / VARIANCE) <= MOST_FAILURES


@pytest.mark.statistical
@pytest.mark.parametrize(("num_groups", "size"), [(100, 20), (40, 50)])
def test_grouped_rows_cover(num_groups, size) -> None:
    # False alarm: below 2e-4 for each. Without groups, 36 % and more of such sets fail.
    def make(rng):
        items = np.repeat(rng.random(num_groups), size)
        X = items[:, None] + rng.normal(scale=1e-6, size=(len(items), 1))
        return X, _draw(rng, items), np.repeat(np.arange(num_groups), size)

    assert _failures(make, 1 / 12 / VARIANCE) <= MOST_FAILURES


OFFSETS = np.array([-2.0, 0.0, 2.0])


def _ratings(rng: np.random.Generator, num_rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Items, and ratings of three people who lean differently."""
    X = rng.normal(size=(num_rows, 1))
    return X, (rng.random((num_rows, 3)) < expit(X + OFFSETS)).astype(int)


def test_fixed_raters_who_lean_differently_are_refused_unless_named() -> None:
    X, y = _ratings(np.random.default_rng(0), 500)
    with pytest.raises(UnequalRatersError, match="annotators="):
        Half().calibrate(X, y)
    with pytest.raises(UnequalRatersError):
        Half().calibrate(X, PairData.from_ragged(y))
    named = PairData.from_responses(y, annotators=["ann", "bob", "cem"])
    conditions = Half().calibrate(X, named).calibration_conditions_
    assert any("3 annotators" in condition for condition in conditions)


@pytest.mark.statistical
@pytest.mark.parametrize("design", ["three columns", "two of three at random"])
def test_named_raters_cover_the_share_among_them(design) -> None:
    # False alarm: below 2e-4 for each design.
    def make(rng):
        X, y = _ratings(rng, 800)
        if design == "three columns":
            return X, PairData.from_responses(y, annotators=[0, 1, 2]), None
        who = rng.permuted(np.tile(np.arange(3), (len(X), 1)), axis=1)[:, :2]
        return X, PairData.from_responses(np.take_along_axis(y, who, 1), annotators=who), None

    rng = np.random.default_rng(1)
    shares = expit(rng.normal(size=(200_000, 1)) + OFFSETS).mean(axis=1)
    # The mean over 200,000 draws is a little low or high: 4 standard errors to the safe side.
    errors = (shares - 0.5) ** 2 / VARIANCE
    mean_scaled_error = errors.mean() - 4 * errors.std() / np.sqrt(len(errors))
    assert _failures(make, mean_scaled_error) <= MOST_FAILURES


def test_responses_that_repel_each_other_are_refused() -> None:
    # Two fixed people who never agree, in shuffled columns: no test of the columns can see them.
    rng = np.random.default_rng(0)
    y = rng.permuted(np.tile([0, 1], (500, 1)), axis=1)
    with pytest.raises(ValueError, match="no square is negative"):
        Half().calibrate(rng.normal(size=(500, 1)), y, min_variance=VARIANCE)


def test_copies_of_a_row_are_reported_unless_groups_say_what_they_are() -> None:
    rng = np.random.default_rng(0)
    X = np.repeat(rng.random((100, 1)), 3, axis=0)
    y = _draw(rng, X[:, 0])
    with pytest.warns(UserWarning, match=r"200 of 300 rows .* pass groups="):
        Half().calibrate(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Half().calibrate(X, y, groups=np.repeat(np.arange(100), 3))
        grouped = Half().calibrate(X, y, groups=np.repeat(np.arange(100), 3), min_variance=0.05)
        Half().calibrate(X, y, groups=range(300))
    assert grouped.inflations_.inflations[0].num_groups == 100
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        Half().calibrate(X, y, groups=[0, 1])


def test_the_result_depends_neither_on_label_order_nor_on_that_of_columns() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2))
    seen = X[:, :1] + 0.5 * rng.normal(size=(300, 3))
    Y = np.array(["low", "mid", "top"])[np.digitize(seen, [-0.5, 0.5])]
    model = PairClassifier(targets="responses").fit(X[:150], Y[:150])
    given = PairData.from_responses(Y[150:])
    turned = PairData.from_responses(Y[150:], classes=["top", "other", "low", "mid"])
    assert turned.classes.tolist() != model.classes_.tolist()
    assert (
        model.score(X[150:], turned) == model.score(X[150:], given) == model.score(X[150:], Y[150:])
    )
    bounds = [
        [each.value for each in model.calibrate(X[150:], y).inflations_.inflations]
        for y in (given, turned)
    ]
    assert bounds[0] == bounds[1]
    again = PairClassifier(targets="responses", backbone="mlp", width=16, num_steps=30)
    losses = [
        again.fit(X[:150], Y[:150], validation=(X[150:], y)).history_.validation_losses
        for y in (given, turned)
    ]
    assert losses[0] == losses[1]

    unknown = PairData.from_responses(np.where(Y == "mid", "new", Y))
    for use in (
        lambda: model.score(X, unknown),
        lambda: model.calibrate(X, unknown),
        lambda: again.fit(X[:150], Y[:150], validation=(X, unknown)),
    ):
        with pytest.raises(ValueError, match="'new'"):
            use()


def test_a_class_that_the_calibration_set_lacks_is_a_stated_condition() -> None:
    rng = np.random.default_rng(0)
    X = rng.random((200, 1))
    with_all = Half().calibrate(X, _draw(rng, X[:, 0]))
    assert not any("no rater chose" in each for each in with_all.calibration_conditions_)
    lacking = Half().calibrate(X, np.zeros((200, 2), dtype=int))
    assert any("no rater chose [1]" in each for each in lacking.calibration_conditions_)


def test_conditions_are_saved_with_the_intervals(tmp_path) -> None:
    rng = np.random.default_rng(0)
    X = rng.random((300, 1))
    y = _draw(rng, X[:, 0])
    model = PairClassifier(targets="responses").fit(X[:100], y[:100])
    model.calibrate(X[100:], y[100:]).save(tmp_path / "model")
    loaded = PairClassifier.load(tmp_path / "model")
    assert loaded.calibration_conditions_ == model.calibration_conditions_
    model.fit(X, y)
    assert not hasattr(model, "calibration_conditions_")
