"""Calibration error of the first and of the second order (appendix F.2.4), and its noise floor.

Rows are (example, class) pairs. They are sorted by what the model predicts, cut into equal-count
bins, and in each bin the mean prediction is compared with the mean of what was observed; the
average absolute difference is multiplied by the number of classes, so that it is a sum over
classes. Rows with equal predictions share the mean of their group, so the result depends on the
set of rows, not on their order. The arguments are those of `metrics.py`.

Cost: one sort, O(N log N) time and O(N) memory for N = n * num_classes rows.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from secondguess._arrays import (
    FloatArray,
    as_floats,
    as_probs,
    check_at_least,
    fail_at,
    same_shape,
)
from secondguess.theory.metrics import empirical_probs, squared_error_estimate

NUM_BINS = 100


class ReliabilityBins(NamedTuple):
    """What a reliability diagram draws, one entry a bin, from the smallest prediction up.

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
    probs: ArrayLike,
    counts: ArrayLike | None = None,
    *,
    true_probs: ArrayLike | None = None,
    subclass_probs: ArrayLike | None = None,
    num_bins: int = NUM_BINS,
) -> float:
    """ECE-1: how far predicted probabilities are from annotators' shares, summed over classes.

    >>> first_order_ece([[0.5, 0.5], [0.5, 0.5]], [[3, 1], [1, 3]])
    0.0
    """
    rows = _first_order_rows(probs, counts, true_probs, subclass_probs)
    return _num_classes(rows[0]) * reliability_bins(*rows, num_bins=num_bins).calibration_error


def second_order_ece(
    probs: ArrayLike,
    variance: ArrayLike,
    counts: ArrayLike | None = None,
    *,
    true_probs: ArrayLike | None = None,
    subclass_probs: ArrayLike | None = None,
    num_bins: int = NUM_BINS,
) -> float:
    """ECE-2: how far predicted variances are from true squared errors, summed over classes.

    >>> truth = [[0.75, 0.25], [0.25, 0.75]]
    >>> second_order_ece([[0.5, 0.5]] * 2, [[0.0625, 0.0625]] * 2, true_probs=truth)
    0.0
    >>> second_order_ece([[0.5, 0.5]] * 2, [[0.0, 0.0]] * 2, true_probs=truth)
    0.125
    """
    rows = _second_order_rows(probs, variance, counts, true_probs, subclass_probs)
    return _num_classes(rows[0]) * reliability_bins(*rows, num_bins=num_bins).calibration_error


def first_order_ece_standard_error(
    probs: ArrayLike,
    counts: ArrayLike | None = None,
    *,
    rng: np.random.Generator,
    true_probs: ArrayLike | None = None,
    subclass_probs: ArrayLike | None = None,
    num_bins: int = NUM_BINS,
    num_resamples: int = 200,
) -> float:
    """The bootstrap standard error of `first_order_ece`, resampling examples.

    >>> rng = np.random.default_rng(0)
    >>> first_order_ece_standard_error([[0.5, 0.5]] * 4, [[1, 1]] * 4, rng=rng)
    0.0
    """
    rows = _first_order_rows(probs, counts, true_probs, subclass_probs)
    return _bootstrap(*rows, num_bins, num_resamples, rng)


def second_order_ece_standard_error(
    probs: ArrayLike,
    variance: ArrayLike,
    counts: ArrayLike | None = None,
    *,
    rng: np.random.Generator,
    true_probs: ArrayLike | None = None,
    subclass_probs: ArrayLike | None = None,
    num_bins: int = NUM_BINS,
    num_resamples: int = 200,
) -> float:
    """The bootstrap standard error of `second_order_ece`, resampling examples.

    >>> rng = np.random.default_rng(0)
    >>> truth = [[0.75, 0.25], [0.25, 0.75]]
    >>> variance = [[0.0625, 0.0625]] * 2
    >>> second_order_ece_standard_error([[0.5, 0.5]] * 2, variance, true_probs=truth, rng=rng)
    0.0
    """
    rows = _second_order_rows(probs, variance, counts, true_probs, subclass_probs)
    return _bootstrap(*rows, num_bins, num_resamples, rng)


def second_order_ece_floor(
    probs: ArrayLike,
    variance: ArrayLike,
    num_annotations: ArrayLike,
    *,
    rng: np.random.Generator,
    subclass_probs: ArrayLike | None = None,
    num_bins: int = NUM_BINS,
    num_simulations: int = 50,
) -> float:
    """The mean ECE-2 that a perfectly calibrated predictor of this spread would measure.

    Finite samples and finitely many annotations give even a perfect predictor an ECE-2 above zero.
    Truths are drawn from a Dirichlet distribution around each row of `probs` (a Beta distribution
    for one event), annotations from the truths, and the ECE-2 of the predictor that reports exactly
    the variances of those distributions is averaged. One Dirichlet distribution has one spread, so
    of the variances of a row their sum is matched: p(1 - p) times the ratio of the sums. For one
    event and for two classes that is each variance itself. Variances that no calibrated predictor
    can have, below 0 or above p(1 - p), are taken at that limit. With sub-classes, a calibrated
    predictor knows p(sub-class | class), so all that is uncertain is the class.

    >>> rng = np.random.default_rng(0)
    >>> probs, variance = np.full((2000, 2), 0.5), np.full((2000, 2), 0.01)
    >>> floor = second_order_ece_floor(probs, variance, 50, rng=rng)
    >>> 0 < floor < 0.002  # the grouping error here is 0.02
    True

    Args:
        probs: `(n, num_classes)` or `(n,)`.
        variance: of the same shape.
        num_annotations: how many annotations a row has, one number or `(n,)`; at least two.
        rng: the source of truths and annotations.
        subclass_probs: as in `second_order_ece`.
        num_bins: as in `second_order_ece`.
        num_simulations: how many worlds to average over.
    """
    predicted = as_probs("probs", probs)
    var = as_floats("variance", variance)
    same_shape(probs=predicted, variance=var)
    check_at_least("num_simulations", num_simulations, 1)
    totals = as_floats("num_annotations", num_annotations)
    fail_at("num_annotations", (totals < 2) | (totals % 1 != 0), totals, "2 or more annotations")
    totals = np.broadcast_to(totals, len(predicted)).astype(np.int64)

    split = (
        np.ones((1, 1)) if subclass_probs is None else as_probs("subclass_probs", subclass_probs)
    )
    classes = predicted if predicted.ndim == 2 else np.stack([1 - predicted, predicted], axis=1)
    if subclass_probs is not None and classes.shape[1] != split.size:
        raise ValueError(
            f"probs has shape {predicted.shape} and subclass_probs {split.shape}; expected one "
            f"column of probs for each entry of subclass_probs."
        )
    # (n, classes, sub-classes), the last axis of size one where classes are not split
    classes = classes.reshape(len(classes), -1, split.shape[1]).sum(axis=2)
    classes = classes / classes.sum(axis=1, keepdims=True)
    naive = classes * (1 - classes)
    columns = (slice(None),) if predicted.ndim == 2 else (slice(None), 1)

    def spread_over_subclasses(per_class: FloatArray, power: int) -> FloatArray:
        return (per_class[:, :, None] * split**power).reshape(len(per_class), -1)

    spread = spread_over_subclasses(naive, 2).sum(axis=1)
    total_variance = var.sum(axis=1) if predicted.ndim == 2 else 2 * var
    ratio = np.zeros(len(classes))
    np.divide(total_variance, spread, out=ratio, where=spread > 0)
    ratio = ratio.clip(0.0, 1.0)
    reported = spread_over_subclasses(ratio[:, None] * naive, 2)[columns]
    said = spread_over_subclasses(classes, 1)[columns]

    floors = []
    for _ in range(num_simulations):
        counts = rng.multinomial(totals, _dirichlet(classes, ratio, rng))
        floors.append(
            second_order_ece(
                said, reported, counts, subclass_probs=subclass_probs, num_bins=num_bins
            )
        )
    return float(np.mean(floors))


def _dirichlet(mean: FloatArray, ratio: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Rows with this mean and Var = ratio * mean (1 - mean): Dirichlet(mean (1/ratio - 1))."""
    draws = mean.copy()
    inner = (ratio > 0) & (ratio < 1)
    concentration = mean[inner] * (1 / ratio[inner] - 1)[:, None]
    # log Gamma(a) = log Gamma(a + 1) + log(U) / a in distribution: tiny concentrations, whose
    # gamma variates underflow to zero, stay comparable in log space.
    uniform = rng.random(concentration.shape)
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(rng.standard_gamma(concentration + 1)) + np.log1p(-uniform) / concentration
    logs[concentration == 0] = -np.inf
    weights = np.exp(logs - logs.max(axis=1, keepdims=True))
    draws[inner] = weights / weights.sum(axis=1, keepdims=True)
    certain = ratio == 1
    draws[certain] = rng.multinomial(1, mean[certain])
    return draws


def _first_order_rows(probs, counts, true_probs, subclass_probs) -> tuple[FloatArray, FloatArray]:
    observed = empirical_probs(probs, counts, true_probs=true_probs, subclass_probs=subclass_probs)
    return as_floats("probs", probs), observed


def _second_order_rows(
    probs, variance, counts, true_probs, subclass_probs
) -> tuple[FloatArray, FloatArray]:
    var = as_floats("variance", variance)
    errors = squared_error_estimate(
        probs, counts, true_probs=true_probs, subclass_probs=subclass_probs
    )
    same_shape(probs=errors, variance=var)
    return var, errors


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
