"""What appendix F.2.4 measures: errors against annotators or known truth, coverage, curves.

A prediction is a `Prediction`, or its probabilities where nothing else is needed: `(n,
num_classes)`, or `(n,)` for one event. The truth is an `Annotations`, or plain counts, `(n,
num_classes)`: how many annotations of a row chose each class. Errors are summed over classes and
averaged over rows. Calibration errors and their bins are in `reliability.py`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import rel_entr

from secondguess._arrays import FloatArray, as_floats, as_probs, fail_at, same_shape
from secondguess.theory.annotations import Annotations, as_annotations
from secondguess.theory.records import Interval, Prediction


def squared_error_estimate(
    prediction: Prediction | ArrayLike, truth: Annotations | ArrayLike
) -> FloatArray:
    """An unbiased estimate of (probs - p(y|x))^2 from annotations; exact from known probabilities.

    `p_hat^2 - 2 p_hat m1 + m2`, where m1 and m2 are the unbiased estimates of p(y|x) and of its
    square of `Annotations`. Unbiased means that single entries may be negative. Each row needs at
    least two annotations.

    >>> squared_error_estimate([[0.5, 0.5]], [[3, 1]])
    array([[0., 0.]])
    >>> squared_error_estimate([0.25], [[1, 3]])  # one event: (absent, present)
    array([0.1875])
    >>> squared_error_estimate([0.25], Annotations.known([0.5]))
    array([0.0625])

    Returns:
        The shape of the probabilities.
    """
    probs = probs_of(prediction)
    annotations = as_annotations(truth).of(probs)
    if annotations.squares is None:
        return (probs - annotations.shares) ** 2
    _check_two_annotations(annotations.squares)
    errors = annotations.shares * -2
    errors += probs
    errors *= probs
    errors += annotations.squares
    return errors


def mean_variance(prediction: Prediction | ArrayLike) -> float:
    """E[v]: the predicted variance, summed over classes and averaged over rows.

    >>> mean_variance([[0.01, 0.03], [0.02, 0.02]])
    0.04

    Args:
        prediction: a `Prediction`, or its variances.
    """
    variance = prediction.variance if isinstance(prediction, Prediction) else prediction
    array = as_floats("variance", variance)
    if array.ndim not in (1, 2) or array.size == 0:
        raise ValueError(f"variance has shape {array.shape}; expected (n,) or (n, num_classes).")
    return float(array.sum() / len(array))


def grouping_error(prediction: Prediction | ArrayLike, truth: Annotations | ArrayLike) -> float:
    """E[(p_hat - p)^2]: the squared error, summed over classes and averaged over rows.

    For a second-order calibrated method it equals `mean_variance`.

    >>> truth = Annotations.known([[0.75, 0.25], [0.25, 0.75]])
    >>> grouping_error([[0.5, 0.5], [0.5, 0.5]], truth)
    0.125
    """
    errors = squared_error_estimate(prediction, truth)
    return float(errors.sum() / len(errors))


def annotator_kl(prediction: Prediction | ArrayLike, truth: Annotations | ArrayLike) -> float:
    """The mean of sum_y p (log p - log p_hat), p being the annotators' shares or the known truth.

    Infinite where a class that was chosen has predicted probability zero.

    >>> round(annotator_kl([[0.5, 0.5]], [[2, 0]]), 6)
    0.693147
    """
    probs = probs_of(prediction)
    shares = as_annotations(truth).of(probs).shares
    divergence = rel_entr(shares, probs)
    if probs.ndim == 1:
        divergence = divergence + rel_entr(1 - shares, 1 - probs)
    return float(divergence.sum() / len(probs))


def accuracy(prediction: Prediction | ArrayLike, labels: ArrayLike) -> float:
    """The share of rows whose most probable class is the label.

    >>> accuracy([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]], [0, 1, 1])
    0.6666666666666666

    Args:
        prediction: of classes, or of one event, which is called when its probability is above one
            half.
        labels: `(n,)`, class indices.
    """
    predicted = probs_of(prediction)
    truth = as_floats("labels", labels)
    num_classes = 2 if predicted.ndim == 1 else predicted.shape[1]
    if truth.shape != (len(predicted),):
        raise ValueError(
            f"labels has shape {truth.shape}; expected ({len(predicted)},), one per row."
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


def probs_of(prediction: Prediction | ArrayLike) -> FloatArray:
    """The checked probabilities of a prediction.

    >>> probs_of(Prediction(probs=[0.5], variance=[0.1]))
    array([0.5])
    """
    if isinstance(prediction, Prediction):
        return prediction.probs
    return as_probs("probs", prediction)


def _check_two_annotations(squares: FloatArray) -> None:
    unknown = np.isnan(squares.reshape(len(squares), -1)).any(axis=1)
    if unknown.any():
        raise ValueError(
            f"counts row {int(np.argmax(unknown))} has 1 annotation(s); a squared error needs at "
            f"least 2 (drop the row, or collect another response)."
        )
