"""Calibration errors against a plain re-computation; their noise against fresh worlds."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import secondguess as sg


def plain_calibration_error(predicted, observed, num_bins):
    """Steps 2 to 5 of appendix F.2.4, word by word, for predictions without ties."""
    order = np.argsort(predicted)
    predicted, observed = np.asarray(predicted)[order], np.asarray(observed)[order]
    edges = [bin * len(order) // num_bins for bin in range(num_bins + 1)]
    total = 0.0
    for start, stop in pairwise(edges):
        if stop > start:
            gap = np.mean(predicted[start:stop]) - np.mean(observed[start:stop])
            total += (stop - start) * abs(gap)
    return total / len(order)


@given(st.integers(1, 500), st.integers(1, 120), st.integers(0, 2**32 - 1))
def test_bins_equal_a_plain_loop(num_rows, num_bins, seed):
    rng = np.random.default_rng(seed)
    predicted, observed = rng.random(num_rows), rng.random(num_rows)
    bins = sg.reliability_bins(predicted, observed, num_bins=num_bins)
    expected = plain_calibration_error(predicted, observed, min(num_bins, num_rows))
    assert bins.calibration_error == pytest.approx(expected, abs=1e-12)
    assert bins.num_rows.sum() == num_rows


@given(st.integers(1, 300), st.integers(1, 8), st.integers(1, 120), st.integers(0, 2**32 - 1))
def test_ties_share_their_mean_whatever_the_order(num_rows, num_values, num_bins, seed):
    rng = np.random.default_rng(seed)
    predicted = rng.integers(num_values, size=num_rows) / num_values
    observed = rng.random(num_rows)
    bins = sg.reliability_bins(predicted, observed, num_bins=num_bins)

    order = rng.permutation(num_rows)
    again = sg.reliability_bins(predicted[order], observed[order], num_bins=num_bins)
    np.testing.assert_allclose(again.observed, bins.observed, atol=1e-12)

    shared = np.array([observed[predicted == key].mean() for key in predicted])
    expected = plain_calibration_error(predicted, shared, min(num_bins, num_rows))
    assert bins.calibration_error == pytest.approx(expected, abs=1e-12)


def test_eces_are_summed_over_classes():
    rng = np.random.default_rng(0)
    probs = rng.dirichlet(np.ones(5), size=200)
    variance = rng.random((200, 5)) * 0.1
    counts = rng.multinomial(7, np.full(5, 0.2), size=200)
    first = 5 * plain_calibration_error(probs.ravel(), (counts / 7).ravel(), 100)
    errors = sg.squared_error_estimate(probs, counts)
    second = 5 * plain_calibration_error(variance.ravel(), errors.ravel(), 100)
    assert sg.first_order_ece(probs, counts) == pytest.approx(first, abs=1e-12)
    assert sg.second_order_ece(probs, variance, counts) == pytest.approx(second, abs=1e-12)


def test_one_event_is_counted_once_and_two_classes_twice():
    rng = np.random.default_rng(0)
    event, truth = rng.random(400), rng.random(400)
    variance = rng.random(400) * 0.1

    def both(column):
        return np.stack([1 - column, column], axis=1)

    one = sg.second_order_ece(event, variance, true_probs=truth)
    two = sg.second_order_ece(both(event), np.stack([variance] * 2, axis=1), true_probs=both(truth))
    assert two == pytest.approx(2 * one)


def test_sub_classes_enter_the_eces():
    rng = np.random.default_rng(3)
    split = rng.dirichlet(np.ones(3), size=4)
    probs = rng.dirichlet(np.ones(12), size=50)
    counts = rng.multinomial(6, np.full(4, 0.25), size=50)
    shares = (counts[:, :, None] / 6 * split).reshape(50, 12)
    expected = 12 * plain_calibration_error(probs.ravel(), shares.ravel(), 100)
    got = sg.first_order_ece(probs, counts, subclass_probs=split)
    assert got == pytest.approx(expected, abs=1e-12)


def test_known_truth_and_many_annotations_agree():
    rng = np.random.default_rng(1)
    truth = rng.dirichlet(np.ones(3), size=300)
    probs = rng.dirichlet(np.ones(3), size=300)
    variance = rng.random((300, 3))
    counts = np.round(truth * 10**9).astype(int)
    known = sg.second_order_ece(probs, variance, true_probs=truth)
    assert sg.second_order_ece(probs, variance, counts) == pytest.approx(known, abs=1e-6)


def dirichlet_world(rng, num_rows=2_000, num_classes=4, num_annotations=20):
    """A calibrated predictor of truths that scatter around it, and annotations of them."""
    probs = rng.dirichlet(np.ones(num_classes), size=num_rows)
    concentration = 1 + 20 * rng.random((num_rows, 1))
    truth = rng.standard_gamma(probs * concentration) + 1e-300
    truth /= truth.sum(axis=1, keepdims=True)
    variance = probs * (1 - probs) / (concentration + 1)
    return probs, variance, rng.multinomial(num_annotations, truth)


@pytest.mark.statistical
@pytest.mark.parametrize("num_subclasses", [None, 3])
def test_floor_is_what_calibrated_predictors_measure(num_subclasses):
    """60 worlds against their floors; false-alarm rate below 1e-4 (4 standard errors)."""
    rng = np.random.default_rng(0)
    split = num_subclasses and rng.dirichlet(np.ones(num_subclasses), size=4)
    measured, floors = [], []
    for _ in range(60):
        probs, variance, counts = dirichlet_world(rng)
        if split is not None:
            # A calibrated predictor knows how classes are split.
            probs = (probs[:, :, None] * split).reshape(len(probs), -1)
            variance = (variance[:, :, None] * split**2).reshape(len(probs), -1)
        measured.append(sg.second_order_ece(probs, variance, counts, subclass_probs=split))
        floors.append(
            sg.second_order_ece_floor(
                probs, variance, 20, rng=rng, num_simulations=5, subclass_probs=split
            )
        )
    differences = np.subtract(measured, floors)
    standard_error = differences.std(ddof=1) / np.sqrt(len(differences))
    assert abs(differences.mean()) < 4 * standard_error
    assert standard_error < 0.03 * np.mean(floors)  # so that the test has power


def test_floor_shrinks_with_more_rows_and_is_zero_without_variance_of_anything():
    rng = np.random.default_rng(0)
    small = sg.second_order_ece_floor(
        np.full(500, 0.5), np.full(500, 0.02), 10, rng=rng, num_simulations=20
    )
    large = sg.second_order_ece_floor(
        np.full(50_000, 0.5), np.full(50_000, 0.02), 10, rng=rng, num_simulations=20
    )
    assert large < small / 5
    certain = sg.second_order_ece_floor(np.ones((100, 1)), np.zeros((100, 1)), 10, rng=rng)
    assert certain == 0


def test_floor_takes_impossible_variances_at_their_limit():
    rng = np.random.default_rng(0)
    probs = np.full((100, 2), 0.5)
    negative = sg.second_order_ece_floor(probs, np.full((100, 2), -1.0), 10, rng=rng)
    zero = sg.second_order_ece_floor(probs, np.zeros((100, 2)), 10, rng=np.random.default_rng(0))
    assert negative == zero
    assert np.isfinite(sg.second_order_ece_floor(probs, np.ones((100, 2)), 10, rng=rng))


@pytest.mark.statistical
@pytest.mark.parametrize("order", [1, 2])
def test_bootstrap_standard_error_matches_fresh_worlds(order):
    """Against the spread over 200 fresh worlds, itself known to 5 %; the bootstrap is within 25 %.

    The expected calibration error is not smooth at zero, so the bootstrap is only approximate
    there; a miscalibrated predictor is used. Fixed seed: no false alarms.
    """
    rng = np.random.default_rng(5)
    values, errors = [], []
    for world in range(200):
        probs, variance, counts = dirichlet_world(rng, num_rows=800)
        if order == 1:
            wrong = (probs + 0.5) / 3  # towards the uniform distribution over four classes
            values.append(sg.first_order_ece(wrong, counts))
            if world < 5:
                errors.append(sg.first_order_ece_standard_error(wrong, counts, rng=rng))
        else:
            values.append(sg.second_order_ece(probs, 3 * variance, counts))
            if world < 5:
                errors.append(
                    sg.second_order_ece_standard_error(probs, 3 * variance, counts, rng=rng)
                )
    assert np.mean(errors) == pytest.approx(np.std(values, ddof=1), rel=0.25)


def test_a_calibrated_predictor_is_told_from_an_overconfident_one():
    probs, variance, counts = dirichlet_world(np.random.default_rng(0), num_rows=5_000)
    calibrated = sg.second_order_ece(probs, variance, counts)
    assert sg.second_order_ece(probs, variance / 4, counts) > 3 * calibrated
    assert sg.second_order_ece(probs, probs * (1 - probs), counts) > 3 * calibrated


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: sg.reliability_bins([], []), "predicted is empty"),
        (lambda: sg.reliability_bins([0.1], [0.1, 0.2]), r"observed has shape \(2,\)"),
        (lambda: sg.reliability_bins([0.1], [0.1], num_bins=0), "num_bins is 0"),
        (lambda: sg.second_order_ece([[0.5, 0.5]], [0.1], [[1, 1]]), r"variance has shape \(1,\)"),
        (
            lambda: sg.second_order_ece_floor([0.5], [0.1], 1, rng=np.random.default_rng()),
            "num_annotations is 1.0; expected 2 or more",
        ),
        (
            lambda: sg.second_order_ece_standard_error(
                [0.5], [0.1], [[1, 1]], rng=np.random.default_rng(), num_resamples=1
            ),
            "num_resamples is 1",
        ),
    ],
)
def test_bad_input_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
