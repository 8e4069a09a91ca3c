"""A threshold for any score, so that few of the answers above it are wrong: guaranteed.

Needs answers that somebody marked right or wrong, and nothing of the score: a confidence, a
log-probability, a vote. The error rate is that of new questions from where the marked ones came
from. Arrays are one-dimensional, one entry per marked answer; rows must be independent draws.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import binom

from secondguess._arrays import FloatArray, as_floats, check_rate, fail_at, same_shape
from secondguess.theory.calibration.means import mean_upper_bound
from secondguess.theory.records import RestsOn

_SELECTION_SHARE = 0.2
FEWEST_ROWS = 20
"""Fewer marked answers are refused."""


@dataclass(frozen=True, slots=True)
class GuaranteedThreshold:
    """Answer where the score is at least `value`; what was promised, and on how many rows.

    >>> threshold = GuaranteedThreshold(0.9, 0.05, 0.05, 400, num_answered=100, num_wrong=1)
    >>> threshold.share_answered, str(threshold.rests_on)
    (0.25, 'guaranteed by a calibration set')

    Attributes:
        value: the threshold; infinite where nothing can be promised, so that nothing is answered.
        max_error_rate: the share of wrong ones among the answers to new questions is at most this,
        failure_rate: except for so many of the sets of marked answers.
        num_rows: how many marked answers certify it.
        num_answered: how many of them are above the threshold.
        num_wrong: the sum of their errors.
    """

    value: float
    max_error_rate: float
    failure_rate: float
    num_rows: int
    num_answered: int
    num_wrong: float

    @property
    def rests_on(self) -> RestsOn:
        """The marked answers, and nothing about the model."""
        return RestsOn.CALIBRATION_SET

    @property
    def share_answered(self) -> float:
        """The share of the certifying rows that is answered."""
        return self.num_answered / self.num_rows

    def answers(self, scores: ArrayLike) -> NDArray[np.bool_]:
        """Whether to answer, for scores of any shape."""
        return np.asarray(scores, dtype=np.float64) >= self.value

    def __str__(self) -> str:
        if not math.isfinite(self.value):
            return (
                f"no threshold: {self.num_rows:,} marked answers do not show an error rate of at "
                f"most {self.max_error_rate:g} anywhere"
            )
        return (
            f"answer where the score is at least {self.value:.6g}: at most "
            f"{self.max_error_rate:.1%} of the answers are wrong, {self.rests_on} of "
            f"{self.num_rows:,} rows, of which {self.share_answered:.1%} are answered (fails for "
            f"{self.failure_rate:.1%} of such sets)"
        )


def guaranteed_threshold(
    scores: ArrayLike,
    wrong: ArrayLike,
    *,
    max_error_rate: float,
    failure_rate: float = 0.05,
    seed: int = 0,
) -> GuaranteedThreshold:
    """The loosest threshold found whose answers are wrong at a rate of at most `max_error_rate`.

    >>> rng = np.random.default_rng(0)
    >>> scores = rng.random(600)
    >>> wrong = rng.random(600) < 0.5 * (1 - scores)
    >>> found = guaranteed_threshold(scores, wrong, max_error_rate=0.2)
    >>> round(found.value, 2), round(found.share_answered, 2)
    (0.34, 0.7)
    >>> found.answers([0.2, 0.9])
    array([False,  True])

    Fixed-sequence testing. A random fifth of the rows chooses a sequence of thresholds: the one
    where "the error rate is above `max_error_rate`" can best be refuted, then looser and looser
    ones. The other rows test them in this order, each at the full `failure_rate`, and the last one
    before the first that is not refuted wins. To end at a threshold that breaks the promise, the
    first such threshold of the sequence must be refuted, and that happens with probability at most
    `failure_rate`: the sequence does not depend on the rows that test it, and of these, the ones
    above a threshold are independent draws of answers above it, so the betting bound on their mean
    error is a valid test.

    Args:
        scores: any numbers, higher for answers to be trusted more; `-inf` where there is no answer,
            whatever the threshold.
        wrong: 1 for a wrong answer, 0 for a right one, or an error in between.
        max_error_rate: the share of wrong answers among those given that is still good enough.
        failure_rate: how often, over sets of marked answers, the promise may not hold.
        seed: of the random fifth; not to be chosen by the result.
    """
    scores = as_floats("scores", scores, allow_infinite=True)
    errors = as_floats("wrong", wrong)
    same_shape(scores=scores, wrong=errors)
    fail_at("wrong", (errors < 0) | (errors > 1), errors, "an error between 0 and 1")
    check_rate("max_error_rate", max_error_rate)
    check_rate("failure_rate", failure_rate)
    if scores.ndim != 1 or len(scores) < FEWEST_ROWS:
        raise ValueError(
            f"scores has shape {scores.shape}; expected one score for each of at least "
            f"{FEWEST_ROWS} marked answers."
        )
    order = np.random.default_rng(seed).permutation(len(scores))
    chooses, tests = np.split(order, [math.ceil(_SELECTION_SHARE * len(scores))])
    best = None
    growth = len(tests) / len(chooses)
    sequence = _sequence(scores[chooses], errors[chooses], growth, max_error_rate, failure_rate)
    for value in sequence:
        given = errors[tests][scores[tests] >= value]
        if not len(given):
            break
        if not _refuted(given, max_error_rate, failure_rate, seed):
            break
        best = float(value), len(given), float(given.sum())
    value, num_answered, num_wrong = best or (math.inf, 0, 0.0)
    return GuaranteedThreshold(
        value, max_error_rate, failure_rate, len(tests), num_answered, num_wrong
    )


def _refuted(errors: FloatArray, max_error_rate: float, failure_rate: float, seed: int) -> bool:
    """Whether these errors show that their mean is at most `max_error_rate`."""
    if not np.all((errors == 0) | (errors == 1)):
        bound = mean_upper_bound(errors, low=0, high=1, failure_rate=failure_rate, seed=seed)
        return bound <= max_error_rate
    # Right or wrong: the number of wrong ones is binomial, and its own tail is the sharpest test.
    return bool(binom.cdf(errors.sum(), len(errors), max_error_rate) <= failure_rate)


def _sequence(
    scores: FloatArray,
    errors: FloatArray,
    growth: float,
    max_error_rate: float,
    failure_rate: float,
) -> FloatArray:
    """Thresholds from the one that is most likely to be refuted on to looser ones.

    Args:
        scores: of the rows that choose.
        errors: of the same rows.
        growth: how many rows test for each of these.
        max_error_rate: as promised.
        failure_rate: as promised.
    """
    answered = np.isfinite(scores)
    scores, errors = scores[answered], errors[answered]
    if not len(scores):
        return scores
    order = np.argsort(-scores, kind="stable")
    values, counts = np.unique(-scores, return_counts=True)
    values, counts = -values, np.cumsum(counts)
    rates = (np.cumsum(errors[order])[counts - 1] + 0.5) / (counts + 1)
    num_tests = np.floor(growth * counts)
    # The largest number of errors that still refutes; ppf is the first that does not, or the last.
    allowed = binom.ppf(failure_rate, num_tests, max_error_rate)
    allowed -= binom.cdf(allowed, num_tests, max_error_rate) > failure_rate
    power = np.where(allowed < 0, 0.0, binom.cdf(allowed, num_tests, rates))
    return values[int(power.argmax()) :]
