"""ECE-1 and ECE-2, calibration errors of first and second order (F.2.4), and their noise.

Rows are (example, class) pairs. They are sorted by what the model predicts, cut into equal-count
bins, and in each bin the mean prediction is compared with the mean of what was observed; the
average absolute difference is multiplied by the number of classes, so that it is a sum over
classes. Rows with equal predictions share the mean of their group, so the result depends on the
set of rows, not on their order. Predictions and truths come as in `metrics.py`; the floor of the
error is in `floors.py`.

Cost: one sort, O(N log N) time and O(N) memory for N = n * num_classes rows.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from secondguess._arrays import FloatArray, as_floats, check_at_least, same_shape
from secondguess.theory.annotations import Annotations, as_annotations
from secondguess.theory.metrics import probs_of, squared_error_estimate
from secondguess.theory.records import Prediction

NUM_BINS = 100


class ReliabilityBins(NamedTuple):
    """What a reliability diagram draws, one entry per bin, from the smallest prediction up.

    >>> reliability_bins([0.25, 0.75], [0.0, 1.0]).calibration_error
    0.25

    Attributes:
        predicted: the mean prediction of the bin.
        observed: the mean of what was observed in it.
        num_rows: how many rows it holds.
    """

    predicted: FloatArray
    observed: FloatArray
    num_rows: FloatArray

    @property
    def calibration_error(self) -> float:
        """The average over rows of the absolute difference of the two."""
        gaps = np.abs(self.predicted - self.observed)
        return float(np.sum(self.num_rows * gaps) / self.num_rows.sum())


def reliability_bins(
    predicted: ArrayLike, observed: ArrayLike, *, num_bins: int = NUM_BINS
) -> ReliabilityBins:
    """Means of predictions and observations over equal-count bins of the sorted predictions.

    >>> bins = reliability_bins([0.1, 0.4, 0.4, 0.9], [0.0, 0.0, 1.0, 1.0], num_bins=2)
    >>> bins.predicted, bins.observed  # the two rows at 0.4 share their mean, 0.5
    (array([0.25, 0.65]), array([0.25, 0.75]))

    Args:
        predicted: probabilities or variances, any shape.
        observed: 0/1 outcomes, shares or squared errors, of the same shape.
        num_bins: with fewer rows than bins, each row is a bin.
    """
    keys = as_floats("predicted", predicted)
    values = as_floats("observed", observed)
    same_shape(predicted=keys, observed=values)
    if keys.size == 0:
        raise ValueError("predicted is empty; expected at least one row.")
    return _equal_count_bins(keys.reshape(-1), values.reshape(-1), num_bins)


def first_order_ece(
    prediction: Prediction | ArrayLike,
    truth: Annotations | ArrayLike,
    *,
    num_bins: int = NUM_BINS,
) -> float:
    """ECE-1: how far predicted probabilities are from annotators' shares, summed over classes.

    >>> first_order_ece([[0.5, 0.5], [0.5, 0.5]], [[3, 1], [1, 3]])
    0.0
    """
    probs, shares = _first_order_rows(prediction, truth)
    bins = reliability_bins(probs, shares, num_bins=num_bins)
    return _num_classes(probs) * bins.calibration_error


def second_order_ece(
    prediction: Prediction, truth: Annotations | ArrayLike, *, num_bins: int = NUM_BINS
) -> float:
    """ECE-2: how far predicted variances are from true squared errors, summed over classes.

    >>> truth = Annotations.known([[0.75, 0.25], [0.25, 0.75]])
    >>> probs = np.full((2, 2), 0.5)
    >>> second_order_ece(Prediction(probs, np.full((2, 2), 0.0625)), truth)
    0.0
    >>> second_order_ece(Prediction(probs, np.zeros((2, 2))), truth)
    0.125
    """
    bins = reliability_bins(
        prediction.variance, squared_error_estimate(prediction, truth), num_bins=num_bins
    )
    return _num_classes(prediction.probs) * bins.calibration_error


def top_label_event(
    prediction: Prediction, truth: Annotations | ArrayLike
) -> tuple[Prediction, Annotations]:
    """The most probable class of each row as one event, "the guess is right", for all metrics.

    Top-label calibration (appendix C), of the second order with `second_order_ece` of the two: how
    well the variance of the guess alone matches its squared error. A model may be calibrated there
    and not classwise, or the other way round.

    >>> truth = Annotations.known([[0.75, 0.25], [0.25, 0.75]])
    >>> prediction = Prediction([[0.6, 0.4], [0.4, 0.6]], np.full((2, 2), 0.0225))
    >>> guess, annotations = top_label_event(prediction, truth)
    >>> guess.probs, annotations.shares
    (array([0.6, 0.6]), array([0.75, 0.75]))
    >>> round(second_order_ece(guess, annotations), 12)
    0.0

    Args:
        prediction: `(n, num_classes)`; of equally probable classes the first is the guess.
        truth: annotations, or counts, of the same shape.

    Returns:
        Both of the shape `(n,)`.
    """
    if prediction.probs.ndim != 2:
        raise ValueError(
            f"prediction has probabilities of shape {prediction.probs.shape}; expected "
            f"(n, num_classes): a prediction of one event has no class to choose."
        )
    annotations = as_annotations(truth).of(prediction.probs)
    best = prediction.probs.argmax(axis=1)[:, None]

    def chosen(array: FloatArray) -> FloatArray:
        return np.take_along_axis(array, best, axis=1)[:, 0]

    squares = None if annotations.squares is None else chosen(annotations.squares)
    return (
        Prediction(chosen(prediction.probs), chosen(prediction.variance)),
        Annotations(chosen(annotations.shares), squares),
    )


def first_order_ece_standard_error(
    prediction: Prediction | ArrayLike,
    truth: Annotations | ArrayLike,
    *,
    rng: np.random.Generator,
    num_bins: int = NUM_BINS,
    num_resamples: int = 200,
) -> float:
    """The bootstrap standard error of `first_order_ece`, resampling examples.

    >>> rng = np.random.default_rng(0)
    >>> first_order_ece_standard_error([[0.5, 0.5]] * 4, [[1, 1]] * 4, rng=rng)
    0.0
    """
    return _bootstrap(*_first_order_rows(prediction, truth), num_bins, num_resamples, rng)


def second_order_ece_standard_error(
    prediction: Prediction,
    truth: Annotations | ArrayLike,
    *,
    rng: np.random.Generator,
    num_bins: int = NUM_BINS,
    num_resamples: int = 200,
) -> float:
    """The bootstrap standard error of `second_order_ece`, resampling examples.

    >>> truth = Annotations.known([[0.75, 0.25], [0.25, 0.75]])
    >>> prediction = Prediction(np.full((2, 2), 0.5), np.full((2, 2), 0.0625))
    >>> second_order_ece_standard_error(prediction, truth, rng=np.random.default_rng(0))
    0.0
    """
    errors = squared_error_estimate(prediction, truth)
    return _bootstrap(prediction.variance, errors, num_bins, num_resamples, rng)


def _first_order_rows(
    prediction: Prediction | ArrayLike, truth: Annotations | ArrayLike
) -> tuple[FloatArray, FloatArray]:
    probs = probs_of(prediction)
    return probs, as_annotations(truth).of(probs).shares


def _num_classes(predicted: FloatArray) -> int:
    return 1 if predicted.ndim == 1 else predicted.shape[1]


def _equal_count_bins(keys: FloatArray, values: FloatArray, num_bins: int) -> ReliabilityBins:
    check_at_least("num_bins", num_bins, 1)
    order = np.argsort(keys)
    keys, values = keys[order], values[order]
    edges = _bin_edges(len(keys), num_bins)
    # An edge inside a group of equal keys splits the group's sum in proportion. Sums are needed at
    # the edges and at the ends of the groups they fall in, so a few hundred segments suffice.
    inner = keys[edges[1:-1]]
    cuts = np.unique(
        np.concatenate(
            [
                edges[[0, -1]],
                np.searchsorted(keys, inner, side="left"),
                np.searchsorted(keys, inner, side="right"),
            ]
        )
    )
    predicted, observed = (
        np.diff(np.interp(edges, cuts, _running_sums(array, cuts))) for array in (keys, values)
    )
    num_rows = np.diff(edges).astype(np.float64)
    return ReliabilityBins(predicted / num_rows, observed / num_rows, num_rows)


def _bin_edges(num_rows: int, num_bins: int) -> np.ndarray:
    num_bins = min(num_bins, num_rows)
    return np.arange(num_bins + 1) * num_rows // num_bins


def _running_sums(array: FloatArray, cuts: np.ndarray) -> FloatArray:
    return np.concatenate([[0.0], np.cumsum(np.add.reduceat(array, cuts[:-1]))])


def _bootstrap(
    predicted: FloatArray,
    observed: FloatArray,
    num_bins: int,
    num_resamples: int,
    rng: np.random.Generator,
) -> float:
    """The standard deviation of the ECE when examples are drawn again with replacement.

    The rows are sorted once; a resample only weights them.
    """
    check_at_least("num_resamples", num_resamples, 2)
    num_examples, num_classes = len(predicted), _num_classes(predicted)
    keys, values = predicted.reshape(-1), observed.reshape(-1)
    order = np.argsort(keys)
    example = order // num_classes
    keys, values = keys[order], values[order]
    group_ends = np.append(np.flatnonzero(np.diff(keys)), len(keys) - 1)
    edges = _bin_edges(len(keys), num_bins)
    errors = np.empty(num_resamples)
    for resample in range(num_resamples):
        drawn = rng.integers(num_examples, size=num_examples)
        weights = np.bincount(drawn, minlength=num_examples)[example]
        ends = np.append(0, np.cumsum(weights)[group_ends])
        difference = np.append(0.0, np.cumsum(weights * (keys - values))[group_ends])
        bins = np.diff(np.interp(edges, ends, difference))
        errors[resample] = num_classes * np.abs(bins).sum() / len(keys)
    return float(errors.std(ddof=1))
