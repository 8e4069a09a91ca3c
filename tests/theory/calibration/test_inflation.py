"""Algorithm 1 on worlds whose truth is known."""

from __future__ import annotations

from functools import partial
from itertools import combinations

import numpy as np
import pytest

from secondguess.theory.calibration.fit_inflation import fit_variance_inflation
from secondguess.theory.calibration.inflation import DependentResponsesError, InflationStream
from secondguess.theory.calibration.products import BadRowError, scaled_products
from secondguess.theory.records import RestsOn


def calibration_set(rng, size, num_responses=2):
    """True probabilities, a predictor that is wrong and too sure of itself, and responses."""
    true_probs = rng.beta(1, 1, size=size)
    probs = np.clip(0.3 + 0.5 * true_probs + rng.normal(0, 0.05, size), 0, 1)
    variance = np.where(rng.random(size) < 0.1, -0.01, 0.004)
    responses = (rng.random((size, num_responses)) < true_probs[:, None]).astype(int)
    return true_probs, probs, variance, responses


@pytest.mark.parametrize("num_responses", [2, 3, 5])
def test_scaled_products_average_all_pairs_and_keep_their_range(num_responses):
    rng = np.random.default_rng(0)
    _, probs, variance, responses = calibration_set(rng, 500, num_responses)
    probs[:3] = [0.0, 0.5, 1.0]
    found = scaled_products(probs, variance, responses, 0.001)
    pairs = [
        (responses[:, i] - probs) * (responses[:, j] - probs)
        for i, j in combinations(range(num_responses), 2)
    ]
    expected = np.mean(pairs, axis=0) / np.maximum(variance, 0.001)
    assert found == pytest.approx(expected, rel=1e-12, abs=1e-9)


@pytest.mark.parametrize("num_responses", [2, 3, 4, 7])
def test_the_range_of_scaled_products_is_reached_and_never_left(num_responses):
    probs = np.repeat(np.linspace(0, 1, 1001), num_responses + 1)
    ones = np.tile(np.arange(num_responses + 1), 1001)
    responses = np.arange(num_responses)[None, :] < ones[:, None]
    found = scaled_products(probs, np.zeros_like(probs), responses.astype(int), 0.3)
    assert found.max() == 1 / 0.3
    low = -0.25 / (num_responses - 1) / 0.3
    assert found.min() >= low
    if num_responses % 2 == 0:
        assert found.min() == pytest.approx(low, rel=1e-9)


@pytest.mark.parametrize("num_responses", [2, 3])
def test_scaled_products_are_unbiased_for_the_scaled_squared_error(num_responses):
    """Summed over every possible set of responses, weighted by its exact probability."""
    true, prob = 0.3, 0.55
    patterns = np.array(list(np.ndindex(*[2] * num_responses)))
    weights = np.prod(np.where(patterns == 1, true, 1 - true), axis=1)
    full = np.full(len(patterns), prob)
    found = weights @ scaled_products(full, np.full(len(patterns), 0.02), patterns, 0.01)
    assert found == pytest.approx((true - prob) ** 2 / 0.02, rel=1e-12)


@pytest.mark.parametrize("method", ["betting", "bernstein", "hoeffding"])
def test_intervals_of_a_wrong_predictor_cover(method):
    rng = np.random.default_rng(1)
    _, *rows = calibration_set(rng, 4000)
    inflation = fit_variance_inflation(*rows, min_variance=0.004, failure_rate=0.001, method=method)
    true_probs, probs, variance, _ = calibration_set(rng, 100_000)
    for miss_rate in (0.05, 0.1, 0.2, 0.5):
        interval = inflation.interval(probs, variance, miss_rate)
        assert interval.rests_on is RestsOn.CALIBRATION_SET
        assert interval.contains(true_probs).mean() >= 1 - miss_rate
        raised = np.maximum(variance, 0.004)
        radius = np.sqrt(inflation.value * raised / miss_rate)
        np.testing.assert_allclose(interval.lower, (probs - radius).clip(0), rtol=0, atol=1e-12)


def test_the_record_says_what_was_seen():
    rows = calibration_set(np.random.default_rng(2), 300, 3)[1:]
    inflation = fit_variance_inflation(*rows, min_variance=0.01, failure_rate=0.1)
    assert inflation.num_rows == 300
    assert inflation.num_responses == 3
    assert inflation.num_negative_variances == np.count_nonzero(rows[1] < 0) > 0
    assert inflation.mean < inflation.value
    assert inflation.num_groups is None


def test_a_bound_below_zero_is_refused():
    """Responses that always disagree are not independent: S is negative in every row."""
    responses = np.random.default_rng(0).permuted(np.tile([0, 1], (2000, 1)), axis=1)
    rows = np.full(2000, 0.5), np.full(2000, 0.01), responses
    with pytest.raises(DependentResponsesError, match="no square is negative"):
        fit_variance_inflation(*rows, min_variance=0.01, failure_rate=0.05)


@pytest.mark.statistical
def test_a_perfect_predictor_is_hardly_ever_refused():
    """E[D] = 0: 5 or more refusals in 1,000 sets have probability 4e-3 at a level of 0.001."""
    rng = np.random.default_rng(1)
    refused = 0
    for _ in range(1000):
        probs = rng.random(200)
        rows = probs, np.full(200, 0.01), rng.random((200, 2)) < probs[:, None]
        try:
            assert fit_variance_inflation(*rows, min_variance=0.01, failure_rate=0.05).value >= 0
        except ValueError:
            refused += 1
    assert refused < 5


def test_streams_and_shards_agree_with_one_array():
    rows = calibration_set(np.random.default_rng(3), 5000)[1:]
    whole = fit_variance_inflation(*rows, min_variance=1e-6, failure_rate=0.05)
    head, tail = InflationStream(min_variance=1e-6), InflationStream(min_variance=1e-6)
    probs, variance, responses = rows
    tail.update(probs[1234:], variance[1234:], responses[1234:], start=1234)
    head.update(probs[:1000], variance[:1000], responses[:1000])
    head.update(probs[1000:1234], variance[1000:1234], responses[1000:1234])
    head.merge(tail)
    joined = head.result(0.05)
    assert joined == whole


@pytest.mark.parametrize(
    ("argument", "bad", "message"),
    [
        (0, 1.2, r"probs\[103\] is 1.2; expected a probability in \[0, 1\]"),
        (0, np.nan, r"probs\[103\] is nan"),
        (1, np.nan, r"variance\[103\] is nan; expected a finite number"),
        (1, -np.inf, r"variance\[103\] is -inf"),
        (2, 2, r"responses\[103, 0\] is 2; expected 0 or 1"),
        (2, -1, r"responses\[103, 0\] is -1"),
    ],
)
def test_bad_rows_are_named(argument, bad, message):
    rows = list(calibration_set(np.random.default_rng(4), 10)[1:])
    stream = InflationStream(min_variance=0.01)
    rows[argument][3, ...] = bad
    if argument == 2:
        rows[2][3, 1] = 0
    with pytest.raises(BadRowError, match=message) as caught:
        stream.update(*rows, start=100)
    assert caught.value.row == 103
    assert stream.products.num_rows == 0


def test_bad_shapes_and_arguments():
    rows = calibration_set(np.random.default_rng(4), 10)[1:]
    fit = partial(fit_variance_inflation, min_variance=0.01, failure_rate=0.05)
    with pytest.raises(ValueError, match=r"responses has shape \(10,\); expected \(n, k\)"):
        fit(rows[0], rows[1], rows[2][:, 0])
    with pytest.raises(ValueError, match="num_responses is 1"):
        fit(rows[0], rows[1], rows[2][:, :1])
    with pytest.raises(ValueError, match=r"variance has shape \(9,\)"):
        fit(rows[0], rows[1][:9], rows[2])
    with pytest.raises(ValueError, match=r"expected \(10, k\)"):
        fit(rows[0], rows[1], rows[2][:9])
    with pytest.raises(ValueError, match="min_variance is 0"):
        fit_variance_inflation(*rows, min_variance=0, failure_rate=0.05)
    with pytest.raises(ValueError, match=r"min_variance is 1e-300; expected a variance in \[1e-12"):
        fit_variance_inflation(*rows, min_variance=1e-300, failure_rate=0.05)
    with pytest.raises(ValueError, match="failure_rate is 1"):
        fit_variance_inflation(*rows, min_variance=0.01, failure_rate=1)
    with pytest.raises(ValueError, match="no rows"):
        fit([], [], np.zeros((0, 2)))
    with pytest.raises(ValueError, match="3 columns; expected 2"):
        InflationStream(min_variance=0.01).update(
            *calibration_set(np.random.default_rng(4), 10, 3)[1:]
        )
