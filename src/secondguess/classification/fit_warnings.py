"""What a fit has to say about itself: warnings of `PairClassifier` and its kin.

A warning names what was seen, with its noise where it has one, and what to do about it.
"""

from __future__ import annotations

import warnings

import numpy as np

from secondguess._arrays import FloatArray
from secondguess.classification.pairs import PairData
from secondguess.classification.variance_map import MIN_ROWS, VarianceMap
from secondguess.theory.metrics import squared_error_estimate
from secondguess.theory.records import Prediction
from secondguess.training.loop import TrainingHistory

_LARGE_MOVE = 2.0
_STANDARD_ERRORS = 4.0
"""Beyond this many a difference is called one: a false alarm in 16,000 fits."""

_SMALL = 0.1
"""A smaller share than this is not worth a warning, however sure."""
_NEGLIGIBLE = 1e-4
"""Nor is a smaller squared error, summed over classes: a hundredth of a probability."""


class PairFitWarning(UserWarning):
    """A fitted pair classifier has reason to doubt itself."""


def warn_of_training(history: TrainingHistory) -> None:
    """Warn where the first look at the held-out rows was the best."""
    looks = history.validation_steps
    if len(looks) > 2 and history.best_step == looks[0]:  # one worse look may be chance
        warnings.warn(
            f"the first validation, after step {looks[0]}, was the best: the network had learned "
            f"too fast, or overfits at once. Lower learning_rate or validate_every, or use "
            f"backbone='linear'.",
            PairFitWarning,
            stacklevel=4,
        )


def warn_of_recalibration(
    prediction: Prediction,
    data: PairData,
    fitted: VarianceMap,
    raw_variance: FloatArray | None = None,
    weights: FloatArray | None = None,
) -> None:
    """Warn where held-out rows contradict the variance, or moved it far.

    Args:
        prediction: of held-out rows, before the map.
        data: the responses to them.
        fitted: the map.
        raw_variance: before any recalibration, where that is another.
        weights: `(n,)`, of the rows; equal by default.
    """
    paired = data.has_pair
    parts = (np.ones(len(data)) if weights is None else weights)[paired]
    if paired.sum() < MIN_ROWS:
        return
    probs = prediction.probs[paired]
    unmapped = prediction.variance if raw_variance is None else raw_variance
    raw = np.average(unmapped[paired].sum(axis=1), weights=parts)
    total = prediction.variance[paired].sum(axis=1)
    most = (probs * (1 - probs)).sum(axis=1)
    mapped = total if fitted.kind == "identity" else np.minimum(fitted.of(total), most)
    stated = np.average(mapped, weights=parts)
    errors = squared_error_estimate(probs, data[paired].counts()).sum(axis=1)
    error = np.average(errors, weights=parts)
    noise = np.sqrt(np.square(parts * (errors - error)).sum()) / parts.sum()
    ratio = stated / max(raw, 1e-12)
    if not 1 / _LARGE_MOVE <= ratio <= _LARGE_MOVE and _differ(error, raw, noise):
        warnings.warn(
            f"recalibration multiplied the mean variance by {ratio:.2g}: held-out rows have a "
            f"squared error of {error:.3g} (standard error {noise:.1g}) where the model "
            f"stated {raw:.3g}. More rows, a smaller backbone or more weight_decay would help.",
            PairFitWarning,
            stacklevel=3,
        )
    if _differ(error, stated, noise):
        warnings.warn(
            f"held-out rows have a squared error of {error:.3g} (standard error "
            f"{noise:.1g}) where the model states {stated:.3g}: do not trust its variance. Use "
            f"recalibrate=True, more rows, or intervals from calibrate().",
            PairFitWarning,
            stacklevel=3,
        )


def warn_of_ignored_response(conditional: FloatArray) -> None:
    """Warn where p(y2|x, y1) is the same for every y1.

    Args:
        conditional: `(n, K, K)`, one row for each y1.
    """
    if np.ptp(conditional, axis=1).max() < 1e-9:
        warnings.warn(
            "the estimator does not look at the first response, so that it learns nothing about "
            "which rows it is wrong on. Let it use the columns behind the features "
            "(first_response_...).",
            PairFitWarning,
            stacklevel=4,
        )


def _differ(found: float, stated: float, noise: float) -> bool:
    """Whether two means differ beyond noise, and by enough to matter."""
    return abs(found - stated) > max(_STANDARD_ERRORS * noise, _SMALL * abs(found), _NEGLIGIBLE)
