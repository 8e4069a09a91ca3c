"""Calibration of higher order, on worlds whose laws are known exactly."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy import stats

from secondguess.theory.distribution import PredictedDistribution
from secondguess.theory.higher_order import (
    higher_order_ece,
    higher_order_ece_floor,
    observed_laws,
    predicted_laws,
)


def two_classes(weights, truths, num_rows):
    """The same distribution over p(1|x) for every row."""
    truths = np.asarray(truths)
    components = np.stack([1 - truths, truths], axis=1)
    shape = (num_rows, *components.shape)
    return PredictedDistribution(
        np.tile(weights, (num_rows, 1)), np.broadcast_to(components, shape)
    )


def exact_counts(truths, denominator, k):
    """Rows of k responses in exactly the proportions of a uniform choice among the truths.

    Truths are whole multiples of 1/denominator.
    """
    ones = []
    for truth in truths:
        faces = np.arange(denominator) < round(truth * denominator)
        ones += [sum(faces[i] for i in dice) for dice in product(range(denominator), repeat=k)]
    ones = np.array(ones)
    return np.stack([k - ones, ones], axis=1)


@pytest.mark.parametrize("k", [1, 2, 3, 5])
def test_the_true_law_has_no_error_and_a_wrong_one_its_distance(k):
    truths = [0.25, 0.75]
    counts = exact_counts(truths, 4, k)
    right = two_classes([0.5, 0.5], truths, len(counts))
    assert higher_order_ece(right, counts, order=k, num_splits=1) == pytest.approx(0, abs=1e-12)
    # A model that knows the mean only: the distance of the two laws, once per class.
    sure = two_classes([1.0], [0.5], len(counts))
    j = np.arange(k + 1)
    laws = [
        stats.binom.pmf(j, k, 0.5),
        (stats.binom.pmf(j, k, 0.25) + stats.binom.pmf(j, k, 0.75)) / 2,
    ]
    expected = 2 * stats.wasserstein_distance(j / k, j / k, *laws)
    found = higher_order_ece(sure, counts, order=k, num_splits=1)
    assert found == pytest.approx(expected, abs=1e-12)


def test_pairs_cannot_tell_laws_that_four_responses_can():
    """p is 0, 1/2 or 1 with weights 1/8, 3/4, 1/8, or 1/4 and 3/4: the same two moments."""
    three = [0.0] + [0.5] * 6 + [1.0]
    for k, seen in ((2, False), (3, False), (4, True), (6, True)):
        counts = exact_counts(three, 2, k)
        model = two_classes([0.5, 0.5], [0.25, 0.75], len(counts))
        error = higher_order_ece(model, counts, order=k, num_splits=1)
        assert (error > 0.01) == seen, k
        assert seen or error < 1e-12


def test_more_annotations_than_the_order_lose_nothing():
    """The law of two of four annotations, averaged over what four can be, is the law of two."""
    counts = exact_counts([0.25, 0.75], 4, 4)
    model = two_classes([0.5, 0.5], [0.25, 0.75], len(counts))
    for order in (1, 2, 3, 4):
        assert higher_order_ece(model, counts, order=order, num_splits=1) < 1e-12


def test_laws_sum_to_one_and_have_the_moments_of_the_mixture():
    rng = np.random.default_rng(0)
    weights, components = rng.dirichlet(np.ones(4), 30), rng.dirichlet(np.ones(3), (30, 4))
    distribution = PredictedDistribution(weights, components)
    prediction = distribution.prediction()
    for order in (1, 2, 7, 60):
        laws, share = predicted_laws(distribution, order), np.arange(order + 1) / order
        np.testing.assert_allclose(laws.sum(axis=2), 1, atol=1e-12)
        np.testing.assert_allclose(laws @ share, prediction.probs, atol=1e-12)
        # Var(C/k) = V + E[p(1-p)]/k.
        spread = prediction.probs * (1 - prediction.probs) - prediction.variance
        variance = laws @ share**2 - prediction.probs**2
        np.testing.assert_allclose(variance, prediction.variance + spread / order, atol=1e-12)


def test_draws_without_replacement():
    counts, totals = np.array([0, 3, 7, 30]), np.array([50, 47, 7, 63])
    for order in (1, 2, 7):
        laws = observed_laws(counts, totals, order)
        for law, ones, total in zip(laws, counts, totals, strict=True):
            expected = stats.hypergeom.pmf(np.arange(order + 1), total, ones, order)
            np.testing.assert_allclose(law, expected, atol=1e-12)


def test_order_one_is_a_first_order_error_in_the_same_bins():
    rng = np.random.default_rng(1)
    distribution = PredictedDistribution(
        rng.dirichlet(np.ones(3), 400), rng.dirichlet(np.ones(4), (400, 3))
    )
    counts = rng.multinomial(6, np.full(4, 0.25), 400)
    probs = distribution.prediction().probs
    found = higher_order_ece(distribution, counts, order=1, num_splits=1)
    expected = np.abs((probs - counts / 6).mean(axis=0)).sum()
    assert found == pytest.approx(expected, abs=1e-12)


def test_finer_bins_see_no_less():
    rng = np.random.default_rng(2)
    distribution = PredictedDistribution(
        rng.dirichlet(np.ones(3), 600), rng.dirichlet(np.ones(2), (600, 3))
    )
    counts = rng.multinomial(5, [0.3, 0.7], 600)
    coarse, fine = (higher_order_ece(distribution, counts, order=5, num_splits=s) for s in (1, 6))
    assert fine >= coarse


def test_the_order_of_rows_with_equal_predictions_is_nothing():
    """A model that says one thing of everything, and rows sorted by their labels."""
    counts = np.repeat([[4, 0], [2, 2], [0, 4]], 20, axis=0)
    model = two_classes([0.25, 0.5, 0.25], [0.0, 0.5, 1.0], 60)
    shuffled = np.random.default_rng(0).permutation(60)
    found = [higher_order_ece(model, c, order=4, num_splits=3) for c in (counts, counts[shuffled])]
    assert found[0] == pytest.approx(found[1], abs=1e-12)
    together = higher_order_ece(model, counts, order=4, num_splits=1)
    assert found[0] == pytest.approx(together, abs=1e-12)


@pytest.mark.statistical
def test_a_calibrated_model_is_at_its_floor_and_a_wrong_one_above():
    """Within five deviations of the floor's mean: false alarm 1e-6, were it normal."""
    rng = np.random.default_rng(3)
    weights, components = rng.dirichlet(np.ones(3), 2000), rng.dirichlet(np.ones(4), (2000, 3))
    truth = PredictedDistribution(weights, components)
    at = (rng.random((2000, 1)) > np.cumsum(weights, axis=1)).sum(axis=1).clip(max=2)
    counts = rng.multinomial(8, components[np.arange(2000), at])
    floor = higher_order_ece_floor(truth, 8, order=8, rng=rng)
    assert floor.truths == "predicted"
    error = higher_order_ece(truth, counts, order=8)
    assert abs(error - floor.mean) < 5 * floor.standard_deviation
    mean = truth.prediction().probs
    never_cheats = PredictedDistribution(np.ones((2000, 1)), mean[:, None])
    own_floor = higher_order_ece_floor(never_cheats, 8, order=8, rng=rng)
    assert higher_order_ece(never_cheats, counts, order=8) > own_floor.mean + 0.05


def test_complaints_say_what_to_do():
    coin = two_classes([1.0], [0.5], 2)
    with pytest.raises(ValueError, match="has 2 annotation"):
        higher_order_ece(coin, [[1, 1], [3, 1]], order=3)
    with pytest.raises(ValueError, match=r"counts has shape \(1, 2\); expected \(2, 2\)"):
        higher_order_ece(coin, [[1, 1]], order=2)
