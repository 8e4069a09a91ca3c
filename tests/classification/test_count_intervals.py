"""`calibrate` by counts: narrower intervals that are kept with the classifier."""

from __future__ import annotations

import numpy as np
import pytest

from secondguess.classification.estimators import PairClassifier
from secondguess.classification.pairs import PairData
from secondguess.theory.calibration.fit_intervals import fit_intervals


def world(rng, n, k: int | np.ndarray = 40):
    """One feature decides the share of ones."""
    inputs = rng.normal(size=(n, 2))
    true_probs = 1 / (1 + np.exp(-2 * inputs[:, 0]))
    ones = rng.binomial(k, true_probs)
    return inputs, np.stack([k - ones, ones], axis=1), np.stack([1 - true_probs, true_probs], 1)


@pytest.fixture(scope="module")
def fitted():
    inputs, counts, _ = world(np.random.default_rng(0), 400)
    model = PairClassifier("counts", backbone="linear")
    return model.fit(inputs, counts)


def test_counts_are_narrower_and_hold(fitted):
    rng = np.random.default_rng(1)
    inputs, counts, _ = world(rng, 1500)
    new, _, true_probs = world(rng, 3000)
    by_pairs = fitted.calibrate(inputs, counts).predict_interval(new, 0.1)
    assert not hasattr(fitted, "intervals_")
    for jointly in (False, True):
        fitted.calibrate(inputs, counts, method="counts", jointly=jointly, failure_rate=0.01)
        assert not hasattr(fitted, "inflations_")
        interval = fitted.predict_interval(new, 0.1, jointly=jointly)
        assert interval.contains(true_probs).all(axis=1).mean() >= 0.9
        assert interval.width.mean() < by_pairs.width.mean()


def test_another_miss_rate_was_not_certified(fitted):
    inputs, counts, _ = world(np.random.default_rng(2), 300)
    fitted.calibrate(inputs, counts, method="counts", miss_rate=0.2)
    with pytest.raises(ValueError, match=r"counts of responses were certified for 0\.2 only"):
        fitted.predict_interval(inputs, 0.1)
    with pytest.raises(ValueError, match="jointly=False was certified"):
        fitted.predict_interval(inputs, jointly=True)
    wide = fitted.predict_interval(inputs).width.mean()
    assert wide == fitted.predict_interval(inputs, 0.2).width.mean()


def test_naming_the_miss_rate_asks_for_the_narrowest_intervals(fitted):
    inputs, counts, _ = world(np.random.default_rng(5), 1500)
    every = fitted.calibrate(inputs, counts).predict_interval(inputs, 0.2)
    assert hasattr(fitted, "inflations_")
    one = fitted.calibrate(inputs, counts, miss_rate=0.2).predict_interval(inputs)
    assert fitted.intervals_.miss_rate == 0.2
    assert one.width.mean() <= 1.05 * every.width.mean()
    fitted.calibrate(inputs, counts, miss_rate=0.2, min_variance=0.01)
    assert hasattr(fitted, "inflations_")


def test_a_cutoff_is_for_pairs_only(fitted):
    inputs, counts, _ = world(np.random.default_rng(7), 100)
    for method in ("counts", "auto"):
        with pytest.raises(ValueError, match=r"min_variance is 0\.01 and method .*'pairs'"):
            fitted.calibrate(inputs, counts, method=method, min_variance=0.01)


def test_rows_with_different_numbers_of_responses_are_a_stated_condition(fitted):
    """All of them are used; why a row has more of them than another cannot be seen."""
    rng = np.random.default_rng(8)
    inputs, counts, true_probs = world(rng, 600, k=rng.integers(5, 40, 600))
    fitted.calibrate(inputs, counts, method="counts", miss_rate=0.2)
    totals = counts.sum(axis=1)
    said = f"({totals.min()} to {totals.max()}) does not depend on what they were"
    assert any(said in each for each in fitted.calibration_conditions_)
    assert fitted.predict_interval(inputs).contains(true_probs).mean() >= 0.8
    fitted.calibrate(*world(rng, 100)[:2], method="counts")
    assert not any("How many responses" in each for each in fitted.calibration_conditions_)


def test_pairs_that_auto_took_certify_every_miss_rate():
    rng = np.random.default_rng(6)
    truths = rng.random(3000)
    rows = rng.beta(8 * truths + 1, 9 - 8 * truths), np.full(3000, 0.03)
    by_pairs = fit_intervals(*rows, rng.binomial(2, truths), 2, method="pairs")
    narrow, wide = (by_pairs.interval(*rows, rate).width.mean() for rate in (0.5, 0.05))
    assert narrow < by_pairs.interval(*rows).width.mean() < wide


def test_what_was_certified_is_saved(fitted, tmp_path):
    inputs, counts, _ = world(np.random.default_rng(3), 300)
    fitted.calibrate(inputs, counts, method="counts")
    fitted.save(tmp_path / "model")
    again = PairClassifier.load(tmp_path / "model")
    assert again.intervals_ == fitted.intervals_
    assert again.calibration_conditions_ == fitted.calibration_conditions_
    np.testing.assert_array_equal(
        again.predict_interval(inputs).upper, fitted.predict_interval(inputs).upper
    )


def test_named_annotators_are_for_pairs(fitted):
    rng = np.random.default_rng(4)
    responses = rng.integers(2, size=(50, 3))
    data = PairData.from_responses(
        responses, classes=[0, 1], annotators=np.tile(["a", "b", "c"], (50, 1))
    )
    with pytest.raises(ValueError, match="expected method='pairs'"):
        fitted.calibrate(rng.normal(size=(50, 2)), data, method="counts")
