"""A threshold from marked answers: the promise holds at its rate, whatever the score."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from secondguess.theory.calibration.thresholds import guaranteed_threshold
from secondguess.theory.records import RestsOn

NUM_SETS, FAILURE_RATE, MAX_ERROR_RATE = 1000, 0.05, 0.1
GRID = np.linspace(0, 1, 20_001)

ERROR_RATES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "good score": lambda score: 0.6 * (1 - score) ** 2,
    "useless score": lambda score: np.full_like(score, 0.11),
    "sure and wrong at the top": lambda score: np.where(score > 0.95, 0.9, 0.05),
    "wrong below a cliff": lambda score: np.where(score > 0.4, 0.08, 0.9),
}


def error_above(rate: Callable[[np.ndarray], np.ndarray], value: float) -> float:
    """The true error rate of answers above a threshold; scores are uniform."""
    above = GRID[min(value, 1.0) <= GRID]
    return float(rate(above).mean())


@pytest.mark.statistical
@pytest.mark.parametrize("name", ERROR_RATES)
@pytest.mark.parametrize("graded", [False, True])
def test_the_promise_fails_at_most_at_its_rate(name: str, graded: bool) -> None:
    """More than 85 of 1,000 failures at a rate of 0.05 have a chance below 2e-6."""
    rate = ERROR_RATES[name]
    failures = answered = 0
    num_sets = NUM_SETS // 5 if graded else NUM_SETS
    for seed in range(num_sets):
        rng = np.random.default_rng([seed, len(name)])
        scores = rng.random(300)
        wrong = (rng.random(300) < rate(scores)).astype(float)
        if graded:  # some errors count half and twice as many are made: the same mean
            wrong = np.where(rng.random(300) < 0.5, wrong, 0.5 * wrong + 0.5 * rate(scores))
        found = guaranteed_threshold(
            scores, wrong, max_error_rate=MAX_ERROR_RATE, failure_rate=FAILURE_RATE
        )
        if np.isfinite(found.value):
            answered += 1
            failures += error_above(rate, found.value) > MAX_ERROR_RATE
    # Of 200 sets, more than 25 failures have a chance below 3e-5.
    assert failures <= (25 if graded else 85)
    if name == "good score":
        assert answered > 0.5 * num_sets


def test_ties_are_answered_together() -> None:
    rng = np.random.default_rng(0)
    scores = rng.integers(3, size=900).astype(float)
    wrong = rng.random(900) < np.array([0.9, 0.5, 0.02])[scores.astype(int)]
    found = guaranteed_threshold(scores, wrong, max_error_rate=0.1)
    assert found.value == 2.0
    assert found.rests_on is RestsOn.CALIBRATION_SET
    np.testing.assert_array_equal(found.answers([0, 1, 2]), [False, False, True])
    assert "at most 10.0% of the answers are wrong" in str(found)


def test_nothing_is_answered_where_nothing_can_be_promised() -> None:
    rng = np.random.default_rng(0)
    found = guaranteed_threshold(rng.random(200), np.ones(200), max_error_rate=0.1)
    assert not found.answers(rng.random(100)).any()
    assert "no threshold" in str(found)


@pytest.mark.parametrize(
    ("scores", "wrong", "words"),
    [
        (np.zeros(10), np.zeros(10), "at least 20"),
        (np.zeros(30), np.zeros(31), "shape"),
        (np.zeros(30), np.full(30, 2.0), "between 0 and 1"),
    ],
)
def test_bad_arguments_are_refused(scores: np.ndarray, wrong: np.ndarray, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        guaranteed_threshold(scores, wrong, max_error_rate=0.1)
