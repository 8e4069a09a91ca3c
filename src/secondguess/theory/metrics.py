"""What appendix F.2.4 measures: errors against annotators or known truth, coverage, curves.

`probs` has shape `(n, num_classes)`, or `(n,)` for one event. The truth comes in one of two ways:

- `counts`, `(n, num_classes)`: how many annotations of a row chose each class. For `probs` of shape
  `(n,)` the columns are (event absent, event present).
- `true_probs`, of the shape of `probs`: known worlds only.

Where an experiment splits each class into sub-classes at random, `subclass_probs` of shape
`(num_classes, num_subclasses)` holds p(sub-class | class); `probs` then has shape
`(n, num_classes * num_subclasses)`, the sub-classes of one class side by side, while `counts` still
counts classes. Errors are summed over classes and averaged over rows. Calibration errors and their
bins are in `reliability.py`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import rel_entr

from secondguess._arrays import (
    FloatArray,
    as_counts,
    as_floats,
    as_probs,
    fail_at,
    same_shape,
)
from secondguess.theory.records import Interval


def squared_error_estimate(
    probs: ArrayLike,
    counts: ArrayLike | None = None,
    *,
    true_probs: ArrayLike | None = None,
    subclass_probs: ArrayLike | None = None,
) -> FloatArray:
    """An unbiased estimate of (probs - p(y|x))^2 from annotations; exact from known probabilities.

    `p_hat^2 - 2 p_hat k/K + k(k-1)/(K(K-1))`, where k of the K annotations chose the class; with
    sub-classes, the two shares are multiplied by `p(y'|y)` and by its square. Unbiased means that
    single entries may be negative. Each row needs at least two annotations.

    >>> squared_error_estimate([[0.5, 0.5]], [[3, 1]])
    array([[0., 0.]])
    >>> squared_error_estimate([0.25], [[1, 3]])  # one event: (absent, present)
    array([0.1875])
    >>> squared_error_estimate([0.25], true_probs=[0.5])
    array([0.0625])

    Returns:
        The shape of `probs`.
    """
    predicted = as_probs("probs", probs)
    _check_one_truth(counts, true_probs)
    if counts is None:
        return (predicted - _as_true_probs(predicted, true_probs)) ** 2
    first, second = _annotation_moments(predicted, counts, subclass_probs)
    # p_hat^2 - 2 p_hat m1 + m2 in place: with 10^7 rows each temporary is 80 MB.
    first *= -2
    first += predicted
    first *= predicted
    first += second
    return first


def empirical_probs(
    probs: ArrayLike,
    counts: ArrayLike | None = None,
    *,
    true_probs: ArrayLike | None = None,
    subclass_probs: ArrayLike | None = None,
) -> FloatArray:
    """p(y|x) as the annotators' shares k/K, or as known, in the shape of `probs`.

    >>> empirical_probs([[0.5, 0.5]], [[3, 1]])
    array([[0.75, 0.25]])
    """
    predicted = as_probs("probs", probs)
    _check_one_truth(counts, true_probs)
    if counts is not None:
        return _annotation_shares(predicted, counts, subclass_probs, min_annotations=1)[0]
    return _as_true_probs(predicted, true_probs)


def mean_variance(variance: ArrayLike) -> float:
    """E[v]: the predicted variance, summed over classes and averaged over rows.

    >>> mean_variance([[0.01, 0.03], [0.02, 0.02]])
    0.04
    """
    array = as_floats("variance", variance)
    if array.ndim not in (1, 2) or array.size == 0:
        raise ValueError(f"variance has shape {array.shape}; expected (n,) or (n, num_classes).")
    return float(array.sum() / len(array))


def grouping_error(
    probs: ArrayLike,
    counts: ArrayLike | None = None,
    *,
    true_probs: ArrayLike | None = None,
    subclass_probs: ArrayLike | None = None,
) -> float:
    """E[(p_hat - p)^2]: the squared error, summed over classes and averaged over rows.

    For a second-order calibrated method it equals `mean_variance`.

    >>> grouping_error([[0.5, 0.5], [0.5, 0.5]], true_probs=[[0.75, 0.25], [0.25, 0.75]])
    0.125
    """
    errors = squared_error_estimate(
        probs, counts, true_probs=true_probs, subclass_probs=subclass_probs
    )
    return float(errors.sum() / len(errors))


def annotator_kl(
    probs: ArrayLike,
    counts: ArrayLike | None = None,
    *,
    true_probs: ArrayLike | None = None,
    subclass_probs: ArrayLike | None = None,
) -> float:
    """The mean of sum_y p (log p - log p_hat), p being the annotators' shares or the known truth.

    Infinite where a class that was chosen has predicted probability zero.

    >>> round(annotator_kl([[0.5, 0.5]], [[2, 0]]), 6)
    0.693147
    """
    predicted = as_probs("probs", probs)
    truth = empirical_probs(predicted, counts, true_probs=true_probs, subclass_probs=subclass_probs)
    divergence = rel_entr(truth, predicted)
    if predicted.ndim == 1:
        divergence = divergence + rel_entr(1 - truth, 1 - predicted)
    return float(divergence.sum() / len(predicted))


def accuracy(probs: ArrayLike, labels: ArrayLike) -> float:
    """The share of rows whose most probable class is the label.

    >>> accuracy([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]], [0, 1, 1])
    0.6666666666666666

    Args:
        probs: `(n, num_classes)`, or `(n,)` for one event, called when its probability is above
            one half.
        labels: `(n,)`, class indices.
    """
    predicted = as_probs("probs", probs)
    truth = as_floats("labels", labels)
    num_classes = 2 if predicted.ndim == 1 else predicted.shape[1]
    if truth.shape != (len(predicted),):
        raise ValueError(
            f"labels has shape {truth.shape}; expected ({len(predicted)},), one a row."
        )
    bad = (truth != np.floor(truth)) | (truth < 0) | (truth >= num_classes)
    fail_at("labels", bad, truth, f"a class index from 0 to {num_classes - 1}")
    called = predicted > 0.5 if predicted.ndim == 1 else predicted.argmax(axis=1)
    return float(np.mean(called == truth))


def interval_coverage(interval: Interval, true_probs: ArrayLike) -> float:
    """The share of true probabilities that lie in their (closed) intervals.

    >>> from secondguess import chebyshev_interval
    >>> interval_coverage(chebyshev_interval([0.5, 0.5], [0.0, 0.01], 0.25), [0.5, 0.9])
    0.5
    """
    inside = interval.contains(true_probs)
    if inside.size == 0:
        raise ValueError("the interval is empty: it has no rows; expected at least one.")
    return float(inside.mean())


class RiskCoverageCurve(NamedTuple):
    """Running means over responses sorted from the smallest gap to the largest, `(n,)` each.

    >>> curve = risk_coverage_curve([0.1, 0.9], [0.2, 0.4], rng=np.random.default_rng(0))
    >>> curve.coverage
    array([0.5, 1. ])

    Attributes:
        coverage: the share of responses seen so far.
        risk: the mean loss of those.
    """

    coverage: FloatArray
    risk: FloatArray


def risk_coverage_curve(
    gap: ArrayLike, losses: ArrayLike, *, rng: np.random.Generator
) -> RiskCoverageCurve:
    """The mean loss when only the most trusted share of all responses is given.

    >>> curve = risk_coverage_curve([0.1, 0.9, 0.2], [0.0, 1.0, 0.5], rng=np.random.default_rng(0))
    >>> curve.risk
    array([0.  , 0.25, 0.5 ])

    Args:
        gap: `(n,)`, any score that is smaller for responses to trust more.
        losses: `(n,)`, what each response costs.
        rng: puts responses of equal gap in random order.
    """
    # A clustered ranker gives few distinct scores, so the order of ties would decide the curve.
    scores = as_floats("gap", gap, allow_infinite=True)
    costs = as_floats("losses", losses)
    if scores.ndim != 1 or scores.size == 0:
        raise ValueError(f"gap has shape {scores.shape}; expected (n,), with n at least 1.")
    same_shape(gap=scores, losses=costs)
    order = np.lexsort((rng.permutation(len(scores)), scores))
    seen = np.arange(1, len(scores) + 1)
    return RiskCoverageCurve(seen / len(scores), np.cumsum(costs[order]) / seen)


class HallucinationCurve(NamedTuple):
    """Running rates over responses sorted from the smallest gap to the largest, `(n,)` each.

    >>> curve = hallucination_curve([0.1, 0.9], [False, True], rng=np.random.default_rng(0))
    >>> curve.response_rate
    array([0.5, 1. ])

    Attributes:
        response_rate: the share of responses seen so far.
        hallucination_rate: the share of those that are hallucinations.
    """

    response_rate: FloatArray
    hallucination_rate: FloatArray


def hallucination_curve(
    gap: ArrayLike, is_hallucination: ArrayLike, *, rng: np.random.Generator
) -> HallucinationCurve:
    """How often one hallucinates when answering only the most confident share (section 5.2).

    It is the risk-coverage curve whose loss is 1 for a hallucination and 0 otherwise.

    >>> curve = hallucination_curve([0.1, 0.9, 0.2], [0, 1, 0], rng=np.random.default_rng(0))
    >>> curve.hallucination_rate.round(6)
    array([0.      , 0.      , 0.333333])

    Args:
        gap: `(n,)`, any score that is smaller for responses to trust more.
        is_hallucination: `(n,)`, whether the true probability of the response is zero.
        rng: puts responses of equal gap in random order.
    """
    scores = as_floats("gap", gap, allow_infinite=True)
    wrong = as_floats("is_hallucination", is_hallucination)
    same_shape(gap=scores, is_hallucination=wrong)
    fail_at("is_hallucination", (wrong != 0) & (wrong != 1), wrong, "True or False")
    return HallucinationCurve(*risk_coverage_curve(scores, wrong, rng=rng))


def _check_one_truth(counts: ArrayLike | None, true_probs: ArrayLike | None) -> None:
    if (counts is None) == (true_probs is None):
        came = "neither" if counts is None else "both"
        raise ValueError(
            f"{came} of counts and true_probs came; expected exactly one: annotator counts, or the "
            f"known probabilities."
        )


def _as_true_probs(predicted: FloatArray, true_probs: ArrayLike | None) -> FloatArray:
    truth = as_probs("true_probs", np.asarray(true_probs))
    same_shape(probs=predicted, true_probs=truth)
    return truth


def _annotation_moments(
    predicted: FloatArray, counts: ArrayLike, subclass_probs: ArrayLike | None
) -> tuple[FloatArray, FloatArray]:
    """Unbiased estimates of p(y|x) and of its square, in the shape of `predicted`."""
    shares, totals, scale = _annotation_shares(predicted, counts, subclass_probs, min_annotations=2)
    # k(k-1) / (K(K-1)) = s (s K - 1) / (K - 1) with the share s = k/K; a sub-class has p(y'|y) s.
    second = shares * totals
    second -= scale
    second *= shares
    second /= totals - 1
    return shares, second


def _annotation_shares(
    predicted: FloatArray,
    counts: ArrayLike,
    subclass_probs: ArrayLike | None,
    *,
    min_annotations: int,
) -> tuple[FloatArray, FloatArray, FloatArray | float]:
    """Shares k/K in the shape of `predicted`, the totals K, and p(y'|y) for each column."""
    chosen = as_counts("counts", counts, min_annotations=min_annotations)
    totals = chosen.sum(axis=1).astype(np.float64)
    if predicted.ndim == 1:
        if chosen.shape != (len(predicted), 2) or subclass_probs is not None:
            raise ValueError(
                f"probs has shape {predicted.shape} and counts {chosen.shape}; for one event, "
                f"expected counts of shape ({len(predicted)}, 2), (absent, present), and no "
                f"sub-classes."
            )
        return chosen[:, 1] / totals, totals, 1.0
    totals = totals[:, None]
    shares, scale = chosen / totals, 1.0
    if subclass_probs is not None:
        split = as_probs("subclass_probs", subclass_probs)
        if split.ndim != 2 or len(split) != chosen.shape[1]:
            raise ValueError(
                f"subclass_probs has shape {split.shape}; expected ({chosen.shape[1]}, "
                f"num_subclasses), a row for each class of counts."
            )
        scale = split.reshape(-1)
        shares = np.repeat(shares, split.shape[1], axis=1) * scale
    if shares.shape != predicted.shape:
        raise ValueError(
            f"probs has shape {predicted.shape} but the annotations speak of {shares.shape}; "
            f"expected one column a class (or sub-class) in both."
        )
    return shares, totals, scale
