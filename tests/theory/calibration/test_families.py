"""Classes, bins, one-sided bounds and the choice of the cutoff, on worlds whose truth is known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import secondguess as sg
from secondguess.theory.calibration.products import BadRowError

RATES = (0.05, 0.1, 0.2, 0.5)


def class_world(rng, size, num_responses=2):
    """Four classes; the predictor averages over what it cannot see and understates its error."""
    true_probs = rng.dirichlet([0.5, 1, 1, 2], size=size)
    probs = 0.5 * true_probs + 0.5 * np.array([0.4, 0.2, 0.2, 0.2])
    variance = np.full_like(probs, 0.002)
    draws = rng.random((size, num_responses, 1))
    responses = (draws > true_probs.cumsum(axis=1)[:, None, :3]).sum(axis=2)
    return true_probs, probs, variance, responses


def binary_world(rng, size, num_responses=2):
    """Right on average only: too low below one half and too high above, too sure everywhere."""
    true_probs = rng.beta(2, 2, size=size)
    probs = np.clip(1.6 * true_probs - 0.3, 0, 1)
    variance = np.full(size, 0.005)
    responses = (rng.random((size, num_responses)) < true_probs[:, None]).astype(int)
    return true_probs, probs, variance, responses


def test_every_class_is_covered():
    rng = np.random.default_rng(0)
    rows = class_world(rng, 5000)[1:]
    fitted = sg.fit_inflation_by_class(*rows, min_variance=0.002, failure_rate=0.004)
    assert [f.failure_rate for f in fitted.inflations] == [0.001] * 4
    true_probs, probs, variance, _ = class_world(rng, 50_000)
    for rate in RATES:
        apart = fitted.interval(probs, variance, rate)
        assert (apart.contains(true_probs).mean(axis=0) >= 1 - rate).all()
        together = fitted.interval(probs, variance, rate, jointly=True)
        assert together.contains(true_probs).all(axis=1).mean() >= 1 - rate
        assert (together.width >= apart.width).all()


def test_a_class_is_the_binary_problem_against_the_rest():
    _, probs, variance, responses = class_world(np.random.default_rng(1), 500)
    fitted = sg.fit_inflation_by_class(
        probs, variance, responses, min_variance=0.01, failure_rate=0.04
    )
    alone = sg.fit_variance_inflation(
        probs[:, 2], variance[:, 2], responses == 2, min_variance=0.01, failure_rate=0.01
    )
    assert fitted.inflations[2] == alone
    assert alone.num_rows == 500


def test_every_bin_is_covered_where_one_inflation_for_all_would_not_do():
    """Half of the inputs are predicted exactly, half badly; the bins tell the halves apart."""
    rng = np.random.default_rng(2)

    def world(size):
        true_probs = rng.uniform(0, 1, size)
        bad = rng.random(size) < 0.05
        probs = np.where(bad, 1 - true_probs, true_probs)
        responses = (rng.random((size, 2)) < true_probs[:, None]).astype(int)
        return true_probs, probs, np.full(size, 0.01), responses, bad.astype(int)

    _, probs, variance, responses, bins = world(60_000)
    options: dict[str, Any] = {"min_variance": 0.01, "failure_rate": 0.01}
    overall = sg.fit_variance_inflation(probs, variance, responses, **options)
    fitted = sg.fit_inflation_by_bin(probs, variance, responses, bins, num_bins=3, **options)
    assert fitted.inflations[2].value == 1 / 0.01  # no rows
    true_probs, probs, variance, _, bins = world(60_000)
    rate = 0.1
    one = overall.interval(probs, variance, rate).contains(true_probs)
    apart = fitted.interval(probs, variance, bins, rate).contains(true_probs)
    assert one.mean() >= 1 - rate
    assert one[bins == 1].mean() < 1 - rate
    for number in (0, 1):
        assert apart[bins == number].mean() >= 1 - rate


@pytest.mark.statistical
def test_bin_guarantees_fail_no_more_often_than_promised():
    """E[D] of each of 3 bins, 200 calibration sets; false alarms below 1e-3 at a rate of 0.2."""
    rng = np.random.default_rng(3)
    edges = [0.35, 0.65]
    big = binary_world(rng, 400_000)
    bins = np.digitize(big[1], edges)
    true_inflation = [
        np.mean(((big[0] - big[1]) ** 2 / 0.005)[bins == number]) for number in range(3)
    ]
    fails = 0
    for _ in range(200):
        _, probs, variance, responses = binary_world(rng, 300)
        fitted = sg.fit_inflation_by_bin(
            probs,
            variance,
            responses,
            np.digitize(probs, edges),
            num_bins=3,
            min_variance=0.005,
            failure_rate=0.2,
        )
        fails += any(
            f.value < right for f, right in zip(fitted.inflations, true_inflation, strict=True)
        )
    assert fails / 200 <= 0.2 + 3.1 * np.sqrt(0.2 * 0.8 / 200)


@pytest.mark.parametrize("method", ["betting", "bernstein", "hoeffding"])
@pytest.mark.parametrize("shift", [-0.15, 0.0, 0.15])
def test_lower_bounds_cover(method, shift):
    rng = np.random.default_rng(4)

    def world(size):
        true_probs = rng.uniform(0.2, 0.8, size)
        probs = np.full(size, 0.5 + shift)
        responses = (rng.random((size, 2)) < true_probs[:, None]).astype(int)
        return true_probs, probs, np.full(size, 0.01), responses

    rows = world(20_000)[1:]
    options: dict[str, Any] = {"min_variance": 0.01, "failure_rate": 0.001, "method": method}
    one_sided = sg.fit_calibrated_lower_bound(*rows, **options)
    two_sided = sg.fit_variance_inflation(*rows, **options)
    true_probs, probs, variance, _ = world(50_000)
    for rate in RATES:
        lower = one_sided.lower_bound(probs, variance, rate).value
        assert (lower <= true_probs).mean() >= 1 - rate
        if shift < 0:  # the predictor is too low, which the first moment tells
            two = two_sided.interval(probs, variance, rate).lower
            assert (lower >= two).all()
            assert (lower > two).any() or not two.any()


def test_the_lower_bound_is_the_worst_case_over_the_allowed_means():
    """Against a fine search over every mean that both moment bounds allow."""
    rows = binary_world(np.random.default_rng(5), 4000)[1:]
    fitted = sg.fit_calibrated_lower_bound(*rows, min_variance=0.005, failure_rate=0.05)
    second = fitted.inflation.value
    means = np.linspace(fitted.mean_error, np.sqrt(second), 200_001)
    for rate in RATES:
        worst = (means - np.sqrt(np.maximum(second - means**2, 0) * (1 - rate) / rate)).min()
        found = fitted.lower_bound(0.9, 0.005, rate)
        assert found.rests_on is sg.RestsOn.CALIBRATION_SET
        assert found.value == pytest.approx(max(0.9 + np.sqrt(0.005) * worst, 0), abs=1e-8)


@pytest.mark.statistical
def test_moment_bounds_fail_no_more_often_than_promised():
    """False alarms below 1e-3 even if the failure rate were exactly 0.2."""
    rng = np.random.default_rng(6)
    true_probs, probs, *_ = binary_world(rng, 400_000)
    scaled = (true_probs - probs) / np.sqrt(0.005)
    fails = 0
    for _ in range(200):
        rows = binary_world(rng, 300)[1:]
        fitted = sg.fit_calibrated_lower_bound(*rows, min_variance=0.005, failure_rate=0.2)
        fails += fitted.mean_error > scaled.mean() or fitted.inflation.value < (scaled**2).mean()
    assert fails / 200 <= 0.2 + 3.1 * np.sqrt(0.2 * 0.8 / 200)


def test_more_responses_give_a_tighter_inflation():
    rng = np.random.default_rng(7)
    _, probs, variance, responses = binary_world(rng, 5000, 5)
    options: dict[str, Any] = {"min_variance": 0.005, "failure_rate": 0.05}
    two = sg.fit_variance_inflation(probs, variance, responses[:, :2], **options)
    five = sg.fit_variance_inflation(probs, variance, responses, **options)
    assert five.value - five.mean < 0.8 * (two.value - two.mean)


@pytest.mark.parametrize("miss_rate", [0.1, 0.5])
def test_the_selected_cutoff_is_nearly_the_best(miss_rate):
    rng = np.random.default_rng(8)
    size, first = 20_000, 4000
    true_probs = rng.uniform(0.1, 0.9, size)
    known = rng.random(size) < 0.5
    probs, variance = np.where(known, true_probs, 0.5), np.where(known, 0.0, 0.05)
    responses = rng.random((size, 2)) < true_probs[:, None]
    head, tail = slice(None, first), slice(first, None)
    candidates = (1e-6, 1e-4, 4e-4, 2.5e-3, 0.25)
    chosen = sg.select_min_variance(
        probs[head],
        variance[head],
        responses[head],
        num_calibration_rows=size - first,
        failure_rate=0.05,
        miss_rate=miss_rate,
        candidates=candidates,
    )
    widths = {
        cutoff: sg.fit_variance_inflation(
            probs[tail], variance[tail], responses[tail], min_variance=cutoff, failure_rate=0.05
        )
        .interval(probs, variance, miss_rate)
        .width.mean()
        for cutoff in candidates
    }
    assert widths[chosen] <= 1.05 * min(widths.values())


def test_bad_input():
    _, probs, variance, responses = class_world(np.random.default_rng(9), 20)
    options: dict[str, Any] = {"min_variance": 0.01, "failure_rate": 0.05}
    wrong = responses.copy()
    wrong[3, 1] = 4
    with pytest.raises(BadRowError, match=r"responses\[3, 1\] is 4; expected a whole number below"):
        sg.fit_inflation_by_class(probs, variance, wrong, **options)
    with pytest.raises(ValueError, match=r"expected \(n, num_classes\)"):
        sg.fit_inflation_by_class(probs[:, 0], variance[:, 0], responses, **options)
    with pytest.raises(ValueError, match=r"probs has shape \(20, 3\); expected \(n, 4\)"):
        sg.fit_inflation_by_class(probs, variance, responses, **options).interval(
            probs[:, :3], variance[:, :3], 0.1
        )
    binary = responses > 1
    with pytest.raises(BadRowError, match=r"bins\[0\] is 2; expected a whole number below 2"):
        sg.fit_inflation_by_bin(
            probs[:, 0], variance[:, 0], binary, np.full(20, 2), num_bins=2, **options
        )
    with pytest.raises(ValueError, match="candidates is empty"):
        sg.select_min_variance(
            probs[:, 0],
            variance[:, 0],
            binary,
            num_calibration_rows=5,
            failure_rate=0.05,
            candidates=[],
        )
    with pytest.raises(ValueError, match=r"probs is 1.5; expected a probability"):
        sg.fit_calibrated_lower_bound(probs[:, 0], variance[:, 0], binary, **options).lower_bound(
            1.5, 0.1, 0.1
        )
