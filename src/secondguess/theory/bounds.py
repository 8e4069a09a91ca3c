"""Bounds from two moments: an interval, a lower bound and a hallucination bound for p(y|x).

All of them hold if the pair model is calibrated: then, over the inputs the model cannot tell apart,
the true p(y|x) is a random variable with mean `probs` and variance `variance`, and the inequalities
of Chebyshev and Cantelli apply; the records that come back say so. For bounds that hold without
that assumption see `theory/calibration/`. Arrays may have any shape, one entry per response.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from secondguess._arrays import FloatArray, as_floats, check_rate, fail_at, same_shape
from secondguess.theory.records import Bound, Interval, RestsOn, SelfCheatScores

# A variance of zero, computed as a difference of probabilities, can come out this far below zero.
_ROUNDING = 1e-15
# A confidence of one, computed from log-probabilities, can come out this far above one.
_CONFIDENCE_ROUNDING = 1e-9


def chebyshev_interval(
    probs: ArrayLike,
    variance: ArrayLike,
    miss_rate: float,
    *,
    rests_on: RestsOn = RestsOn.CALIBRATED_PAIRS,
) -> Interval:
    """Theorem 4.2: probs ± sqrt(variance / miss_rate), missed with probability at most `miss_rate`.

    The interval is closed and a miss is a strict inequality, because the printed form (a miss
    already on the edge) is false where the variance is zero. It is cut to [0, 1], where every
    probability lies.

    >>> interval = chebyshev_interval([0.5, 0.5], [0.0, 0.0025], miss_rate=0.25)
    >>> interval.lower, interval.upper
    (array([0.5, 0.4]), array([0.5, 0.6]))

    Args:
        probs: predicted probabilities, any shape.
        variance: their epistemic variances, of the same shape, none negative.
        miss_rate: the share of true probabilities that may lie outside, in (0, 1).
        rests_on: what the variances rest on; recorded in the interval.
    """
    mean, var = _as_moments(probs, variance)
    radius = interval_radius(var, miss_rate)
    return Interval(np.maximum(mean - radius, 0.0), np.minimum(mean + radius, 1.0), rests_on)


def interval_radius(variance: FloatArray, miss_rate: float) -> FloatArray:
    """Half the width of Chebyshev's interval before it is cut: sqrt(variance / miss_rate)."""
    return np.sqrt(variance / check_rate("miss_rate", miss_rate))


def cantelli_lower_bound(probs: ArrayLike, variance: ArrayLike, miss_rate: float) -> Bound:
    """Proposition D.1: p(y|x) is at least this, except with probability at most `miss_rate`.

    probs - sqrt(variance (1/miss_rate - 1)), tighter than the lower end of `chebyshev_interval`
    because nothing is spent on the upper side, and cut at 0. Rests on a calibrated pair model.

    >>> print(cantelli_lower_bound([0.5], [0.0025], miss_rate=0.2))
    [0.4] if calibrated on pairs
    """
    mean, var = _as_moments(probs, variance)
    lower = mean - np.sqrt(var * (1 / check_rate("miss_rate", miss_rate) - 1))
    return Bound(np.maximum(lower, 0.0), RestsOn.CALIBRATED_PAIRS)


def hallucination_bound(scores: SelfCheatScores) -> Bound:
    """Theorem 4.5: the chance that the true p(y|x) is zero is at most 1 - C(y|x).

    Averaged over the responses that a decoder gives, this bounds its rate of statistical
    hallucinations, provided that the decoder sees the input only through the model. Rests on a
    calibrated pair model, which has no confidence above 1; where another model has one, the theorem
    says nothing and there is no bound, whatever `SelfCheatScores.confidence_gap` makes of it. The
    bound is met with equality where p(y|x) is either zero or one constant.

    >>> scores = SelfCheatScores(np.log([0.5, 0.1, 0.5]), np.log([0.5, 0.4, 0.4]))
    >>> print(hallucination_bound(scores))  # C = 1, 0.25 and 1.25
    [0.   0.75  nan] if calibrated on pairs; 1 of 3 outside the theorem
    """
    gap = scores.confidence_gap("one_minus")
    value = np.where(gap < -_CONFIDENCE_ROUNDING, np.nan, np.maximum(gap, 0.0))
    return Bound(value, RestsOn.CALIBRATED_PAIRS)


def _as_moments(probs: ArrayLike, variance: ArrayLike) -> tuple[FloatArray, FloatArray]:
    mean, var = as_floats("probs", probs), as_floats("variance", variance)
    same_shape(probs=mean, variance=var)
    fail_at("probs", (mean < 0) | (mean > 1), mean, "a probability in [0, 1]")
    fail_at(
        "variance",
        var < -_ROUNDING,
        var,
        "0 or more: a negative epistemic variance shows that the model is not calibrated on pairs, "
        "so no interval follows from it (leave these rows out, or take guaranteed intervals from "
        "fit_variance_inflation, which allows them)",
    )
    return mean, np.maximum(var, 0.0)
