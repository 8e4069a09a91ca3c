"""Bounds from two moments: an interval, a lower bound and a hallucination bound for p(y|x).

All of them hold if the pair model is calibrated: then, over the inputs the model cannot tell apart,
the true p(y|x) is a random variable with mean `probs` and variance `variance`, and the inequalities
of Chebyshev and Cantelli apply. For bounds that hold without that assumption see `calibration.py`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from secondguess._arrays import FloatArray, as_floats, check_rate, fail_at, same_shape
from secondguess.theory.records import Interval, RestsOn, SelfCheatScores

# A variance of zero, computed as a difference of probabilities, can come out this far below zero.
_ROUNDING = 1e-15


def chebyshev_interval(
    probs: ArrayLike,
    variance: ArrayLike,
    miss_rate: float,
    *,
    rests_on: RestsOn = RestsOn.CALIBRATED_PAIRS,
) -> Interval:
    """Theorem 4.2: probs ± sqrt(variance / miss_rate), missed with probability at most `miss_rate`.

    The interval is closed and a miss is a strict inequality, because the printed form (a miss
    already on the edge) is false where the variance is zero. It is not cut to [0, 1]; call
    `.clipped()` for that.

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
    radius = np.sqrt(var / check_rate("miss_rate", miss_rate))
    return Interval(mean - radius, mean + radius, rests_on)


def cantelli_lower_bound(probs: ArrayLike, variance: ArrayLike, miss_rate: float) -> FloatArray:
    """Proposition D.1: p(y|x) is at least this, except with probability at most `miss_rate`.

    probs - sqrt(variance (1/miss_rate - 1)), tighter than the lower end of `chebyshev_interval`
    because nothing is spent on the upper side. Rests on a calibrated pair model.

    >>> cantelli_lower_bound([0.5], [0.0025], miss_rate=0.2)
    array([0.4])
    """
    mean, var = _as_moments(probs, variance)
    return mean - np.sqrt(var * (1 / check_rate("miss_rate", miss_rate) - 1))


def hallucination_bound(scores: SelfCheatScores) -> FloatArray:
    """Theorem 4.5: the chance that the true p(y|x) is zero is at most 1 - C(y|x).

    Averaged over the responses that a decoder gives, this bounds its rate of statistical
    hallucinations, provided that the decoder sees the input only through the model. Rests on a
    calibrated pair model, which never gives a negative value; another model may, and that is
    reported as it is. The bound is met with equality where p(y|x) is either zero or one constant.

    >>> hallucination_bound(SelfCheatScores(np.log([0.5, 0.1]), np.log([0.5, 0.4]))).round(6)
    array([0.  , 0.75])
    """
    return scores.confidence_gap("one_minus")


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
