"""The count test, its thresholds and its scores, against exact binomial sums."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import stats

from secondguess.theory.calibration.count_stream import CountStream, allowed_misses
from secondguess.theory.calibration.counts import (
    NUM_SLOTS,
    count_scores,
    uniform_slots,
    upper_thresholds,
)
from secondguess.theory.calibration.nested import NestedFamily
from secondguess.theory.calibration.products import BadRowError

FAMILIES = (
    NestedFamily("symmetric", 0.0001),
    NestedFamily("symmetric", 0.01),
    NestedFamily("beta", 0.0001),
    NestedFamily("beta", 0.0025),
)


def miss_probability(k, true_prob, lower, upper, detection_rate):
    """How often a row is called a miss of [lower, upper]: an exact sum over counts and draws."""
    thresholds = upper_thresholds(k, detection_rate)
    above = upper < thresholds
    below = lower > 1 - thresholds[::-1]
    return float(stats.binom.pmf(np.arange(k + 1), k, true_prob) @ (above | below).mean(axis=1))


@pytest.mark.parametrize("k", [1, 2, 5, 50, 100])
@pytest.mark.parametrize("detection_rate", [0.1, 0.5, 0.9])
def test_a_truth_outside_is_called_a_miss_often_enough(k, detection_rate):
    ends = np.array([0.0, 1e-6, 0.01, 0.2, 0.5, 0.77, 0.99, 1 - 1e-6])
    for end in ends:
        for distance in (1e-9, 1e-3, 0.05, 0.3):
            if end + distance <= 1:
                seen = miss_probability(k, end + distance, 0.0, end, detection_rate)
                assert seen >= detection_rate - 1e-9
            if 1 - end - distance >= 0:
                seen = miss_probability(k, 1 - end - distance, 1 - end, 1.0, detection_rate)
                assert seen >= detection_rate - 1e-9


def test_the_test_is_exact_at_the_end_up_to_the_rounded_draw():
    for end in (0.1, 0.5, 0.93):
        seen = miss_probability(20, end, 0.0, end - 1e-9, 0.5)
        assert 0.5 <= seen + 1e-6 <= 0.5 + 1 / NUM_SLOTS


def test_an_end_at_zero_or_one_is_never_missed():
    for k in (2, 50):
        for true_prob in (0.0, 0.3, 1.0):
            assert miss_probability(k, true_prob, 0.0, 1.0, 0.9) == 0


@given(
    family=st.sampled_from(FAMILIES),
    prob=st.sampled_from([0.0, 1e-12, 0.003, 0.4, 0.97, 1.0]),
    variance=st.sampled_from([-0.1, 0.0, 1e-5, 0.01, 0.25]),
    radii=st.tuples(st.floats(0, 60), st.floats(0, 60)),
)
@settings(max_examples=200, deadline=None)
def test_families_are_nested(family, prob, variance, radii):
    small, large = (
        family.ends(np.array([prob]), np.array([variance]), radius) for radius in sorted(radii)
    )
    assert 0 <= large[0] <= small[0] + 1e-12
    assert small[1] - 1e-12 <= large[1] <= 1
    assert small[0] <= small[1]
    everything = family.ends(np.array([prob]), np.array([variance]), np.inf)
    assert (everything[0], everything[1]) == (0, 1)


@given(
    family=st.sampled_from(FAMILIES),
    prob=st.floats(0, 1),
    variance=st.sampled_from([-0.1, 0.0, 1e-5, 0.01, 0.2]),
    ends=st.tuples(st.floats(0, 1), st.floats(0, 1)),
)
@example(NestedFamily("beta", 0.0025), 0.939453125, 1e-5, (1.0, 0.6957063072126531))
@settings(max_examples=300, deadline=None)
def test_the_radius_is_the_least_that_holds_both_points(family, prob, variance, ends):
    p, v = np.array([prob]), np.array([variance])
    low, high = sorted(ends)
    radius = family.radius_to_hold(p, v, np.array([low]), np.array([high]))[0]
    lower, upper = family.ends(p, v, radius)
    assert lower <= low + 1e-7
    assert upper >= high - 1e-7
    if 1e-3 < radius < 50:
        lower, upper = family.ends(p, v, radius * 0.999)
        assert lower >= low - 1e-7 or upper <= high + 1e-7


def test_scores_agree_with_the_test_at_every_radius():
    rng = np.random.default_rng(0)
    n, detection_rate = 400, 0.5
    k = rng.integers(1, 30, n)
    ones = rng.binomial(k, 0.3)
    probs, variance, slots = rng.random(n), rng.random(n) * 0.1, rng.integers(0, NUM_SLOTS, n)
    for family in FAMILIES:
        scores = count_scores(family, probs, variance, ones, k, slots, detection_rate)
        for radius in (0.3, 1.0, 3.0):
            lower, upper = family.ends(probs, variance, radius)
            rows = zip(ones, k, slots, lower, upper, strict=True)
            called = np.array(
                [
                    b < upper_thresholds(total, detection_rate)[c, j]
                    or a > 1 - upper_thresholds(total, detection_rate)[total - c, j]
                    for c, total, j, a, b in rows
                ]
            )
            clear = np.abs(scores - radius) > 1e-6
            assert (called == (scores > radius))[clear].all()
            assert clear.mean() > 0.99


def test_the_draws_are_uniform_and_belong_to_positions():
    """A chi-square test at level 1e-6, on fixed seeds: it cannot fail by chance again."""
    for seed in (0, 1, 12345):
        slots = uniform_slots(0, 100_000, seed)
        counts = np.bincount(slots, minlength=NUM_SLOTS)
        assert len(counts) == NUM_SLOTS
        assert stats.chisquare(counts).pvalue > 1e-6
    assert abs(np.corrcoef(uniform_slots(0, 50_000, 0), uniform_slots(0, 50_000, 1))[0, 1]) < 0.03


@pytest.mark.parametrize("rate", [0.001, 0.05, 0.45])
@pytest.mark.parametrize("failure_rate", [0.001, 0.05, 0.5])
def test_allowed_misses_are_the_binomial_quantile(rate, failure_rate):
    for n in (1, 10, 59, 1000, 100_000):
        allowed = allowed_misses(n, rate, failure_rate)
        assert allowed == -1 or stats.binom.cdf(allowed, n, rate) <= failure_rate
        assert stats.binom.cdf(allowed + 1, n, rate) > failure_rate


def rows(rng, n, k=10):
    true_probs = rng.beta(2, 5, n)
    probs = np.clip(true_probs + rng.normal(0, 0.1, n), 0, 1)
    return probs, np.full(n, 0.01), rng.binomial(k, true_probs), np.full(n, k)


def test_the_stream_does_not_depend_on_chunks_order_or_workers():
    p, v, c, k = rows(np.random.default_rng(3), 5000)
    family = NestedFamily("beta", 0.0004)
    whole = CountStream(family, detection_rate=0.5)
    whole.update(p, v, c, k)
    parts = [CountStream(family, detection_rate=0.5) for _ in range(3)]
    cuts = [0, 700, 4000, 5000]
    for number in (2, 0, 1):
        part = slice(cuts[number], cuts[number + 1])
        parts[number].update(p[part], v[part], c[part], k[part], start=cuts[number])
    parts[1].merge(parts[2])
    parts[1].merge(parts[0])
    rates = {"miss_rate": 0.1, "failure_rate": 0.05}
    assert parts[1].result(**rates) == whole.result(**rates)


def test_too_few_rows_certify_nothing():
    p, v, c, k = rows(np.random.default_rng(3), 50)
    stream = CountStream(NestedFamily("symmetric", 0.01), detection_rate=0.5)
    stream.update(p, v, c, k)
    fitted = stream.result(miss_rate=0.1, failure_rate=0.05)
    assert fitted.radius == np.inf
    interval = fitted.interval(p, v)
    assert (interval.lower == 0).all()
    assert (interval.upper == 1).all()


def test_wrong_rows_are_named():
    stream = CountStream(NestedFamily("symmetric", 0.01), detection_rate=0.5)
    with pytest.raises(BadRowError, match=r"ones\[1\] is 4; expected from 0 to num_responses"):
        stream.update([0.5, 0.5], [0.1, 0.1], [1, 4], [3, 3])
    with pytest.raises(BadRowError, match=r"num_responses\[0\] is 0; expected a whole number"):
        stream.update([0.5], [0.1], [0], [0])
    with pytest.raises(BadRowError, match=r"probs\[0\] is 1.5"):
        stream.update([1.5], [0.1], [0], [2])
    stream.update([0.5], [0.1], [0], [2], start=3)
    with pytest.raises(ValueError, match="expected every position exactly once"):
        stream.result(miss_rate=0.1, failure_rate=0.05)


def test_a_beta_interval_is_never_undefined():
    """Quantiles of tiny tails can fail: the interval then reaches to the end of the range."""
    rng = np.random.default_rng(0)
    probs = np.concatenate([[0.0, 1.0, 1e-9, 1 - 1e-9], rng.beta(0.05, 1, 500)])
    family = NestedFamily("beta", 1e-6)
    for variance in (1e-12, 1e-6, 1e-3, 0.2):
        for radius in (0.0, 1.0, 30.0, 900.0, 1060.0, 1080.0, 2.0**20):
            lower, upper = family.ends(probs, np.full(len(probs), variance), radius)
            assert (lower >= 0).all()
            assert (upper <= 1).all()
            assert (lower <= upper).all()


@pytest.mark.parametrize("k", [499, 500, 501, 700])
def test_large_counts_need_no_table_and_score_as_with_one(k):
    """Above 500 responses thresholds are found one by one; they are those of the table."""
    ones, slots = np.arange(k + 1), np.arange(k + 1) % NUM_SLOTS
    family = NestedFamily("symmetric", 0.01)
    probs, variance = np.full(k + 1, 0.5), np.full(k + 1, 0.01)
    table = upper_thresholds(k, 0.7)
    expected = family.radius_to_hold(
        probs, variance, 1 - table[k - ones, slots], table[ones, slots]
    )
    found = count_scores(family, probs, variance, ones, np.full(k + 1, k), slots, 0.7)
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_a_row_may_have_many_annotations_but_not_any_number():
    stream = CountStream(NestedFamily("symmetric", 0.01), detection_rate=0.7, seed=0)
    half = np.full(4, 10**9 // 2)
    stream.update(np.full(4, 0.5), np.full(4, 0.01), half, np.full(4, 10**9))
    with pytest.raises(BadRowError, match="from 1 to 1,000,000,000,000"):
        stream.update(np.full(4, 0.5), np.full(4, 0.01), half, np.full(4, 2**62))
