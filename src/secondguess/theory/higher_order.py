"""Calibration of higher order: does a predicted distribution say how k responses will fall?

A model that predicts a distribution over p(.|x) predicts the law of the counts of k responses too.
It is calibrated to k-th order if among the inputs that get one prediction these laws agree on
average (Ahdritz et al., "Provable uncertainty decomposition via higher-order calibration", ICLR
2025). `higher_order_ece` measures by how much they differ, in bins of similar predictions. With
k = 1 it compares probabilities, with k = 2 it sees variances as well, with more it sees the shape.

Like every such error it is above zero for a calibrated model on a finite sample;
`higher_order_ece_floor` says by how much, and needs no assumption beyond the model itself, which
says how truths are distributed.

Axes: rows (n), components (R), classes (K), and how many of k responses are of a class (k + 1).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy import special
from scipy.sparse import csr_array

from secondguess._arrays import FloatArray, IntArray, as_counts, check_at_least
from secondguess.theory.distribution import PredictedDistribution
from secondguess.theory.floors import EceFloor

NUM_SPLITS = 5
"""Bins of the predicted probability, each cut into as many by the predicted variance."""

_ROWS_AT_ONCE = 1024


def higher_order_ece(
    distribution: PredictedDistribution,
    counts: ArrayLike,
    *,
    order: int,
    num_splits: int = NUM_SPLITS,
) -> float:
    """How far the predicted law of `order` responses is from the observed one, over classes.

    For each class, rows are cut into `num_splits` equal bins by predicted probability and each of
    these into `num_splits` by predicted variance. In a bin the mean predicted law of the share of
    the class among k = `order` responses is compared with the observed one by the Wasserstein
    distance W1, the area between the distribution functions. The mean over rows is summed over the
    classes. It is a lower bound of the W1 of the shares of all classes in the l1 norm, and equal to
    it with two classes. With k = 1 it is an ECE-1 in these bins.

    The observed law of k responses is the mean over all draws of k of a row's annotations without
    replacement (hypergeometric), which is unbiased.

    >>> p = np.array([[[0.75, 0.25], [0.25, 0.75]]] * 16)  # either of two coins
    >>> unsure = PredictedDistribution(np.full((16, 2), 0.5), p)
    >>> counts = [[2, 0]] * 5 + [[1, 1]] * 6 + [[0, 2]] * 5  # what such coins do, in two flips
    >>> round(higher_order_ece(unsure, counts, order=2, num_splits=1), 12)
    0.0
    >>> sure = PredictedDistribution(np.ones((16, 1)), np.full((16, 1, 2), 0.5))  # a fair coin
    >>> round(higher_order_ece(sure, counts, order=2, num_splits=1), 12)
    0.125

    Args:
        distribution: what was predicted for n rows.
        counts: how many annotations of a row chose each class, `(n, K)`; each row needs `order` at
            least.
        order: k, 1 or more.
        num_splits: see above.
    """
    chosen = _checked(distribution, counts, order)
    return _Bins(distribution, order, num_splits).error(chosen)


def higher_order_ece_floor(
    distribution: PredictedDistribution,
    num_annotations: ArrayLike,
    *,
    order: int,
    rng: np.random.Generator,
    num_splits: int = NUM_SPLITS,
    num_simulations: int = 20,
) -> EceFloor:
    """The error that the model would measure if its distributions were exactly right.

    Truths are drawn from the predicted distributions and annotations from the truths.

    >>> coin = PredictedDistribution(np.ones((2000, 1)), np.full((2000, 1, 2), 0.5))
    >>> print(higher_order_ece_floor(coin, 10, order=10, rng=np.random.default_rng(0)))
    0.0092 ± 0.0037 (predicted truths)

    Args:
        distribution: of the model whose error is to be compared with its floor.
        num_annotations: how many annotations each row has, one number or `(n,)`.
        order: as in `higher_order_ece`.
        rng: source of truths and annotations.
        num_splits: as in `higher_order_ece`.
        num_simulations: how many worlds to draw, two at least.
    """
    check_at_least("num_simulations", num_simulations, 2)
    totals = np.broadcast_to(np.asarray(num_annotations), (len(distribution.weights),))
    bins = _Bins(distribution, order, num_splits)
    errors = [
        bins.error(_checked(distribution, _drawn(distribution, totals, rng), order))
        for _ in range(num_simulations)
    ]
    return EceFloor(float(np.mean(errors)), float(np.std(errors, ddof=1)), "predicted")


def predicted_laws(distribution: PredictedDistribution, order: int) -> FloatArray:
    """The law of how many of k responses are of each class: mixtures of binomials, `(n, K, k + 1)`.

    >>> coins = np.array([[[0.75, 0.25], [0.25, 0.75]]])
    >>> predicted_laws(PredictedDistribution(np.array([[0.5, 0.5]]), coins), 2)[0, 0]
    array([0.3125, 0.375 , 0.3125])
    """
    k = check_at_least("order", order, 1)
    num_ones = np.arange(k + 1.0)
    log_ways = -np.log(k + 1.0) - special.betaln(num_ones + 1, k - num_ones + 1)
    weights, components = distribution.weights, distribution.components
    num_rows, _, num_classes = components.shape
    laws = np.empty((num_rows, num_classes, k + 1))
    for first in range(0, num_rows, _ROWS_AT_ONCE):
        rows = slice(first, first + _ROWS_AT_ONCE)
        for column in range(num_classes):
            q = components[rows, :, column, None].clip(0.0, 1.0)
            logs = special.xlogy(num_ones, q) + special.xlog1py(k - num_ones, -q)
            laws[rows, column] = np.einsum("nr,nrj->nj", weights[rows], np.exp(log_ways + logs))
    return laws


def observed_laws(counts: IntArray, totals: IntArray, order: int) -> FloatArray:
    """The law of how many of k annotations, drawn without replacement, chose a class, `(n, k + 1)`.

    >>> observed_laws(np.array([2, 3]), np.array([4, 3]), order=2).round(4)
    array([[0.1667, 0.6667, 0.1667],
           [0.    , 0.    , 1.    ]])

    Args:
        counts: how many annotations of each row chose the class, `(n,)`.
        totals: how many it has, `(n,)`; `order` at least.
        order: k.
    """
    size = int(totals.max()) + 1
    distinct, inverse = np.unique(totals * size + counts, return_inverse=True)
    total, ones = np.divmod(distinct, size)
    total, ones = total[:, None], ones[:, None]
    drawn = np.arange(order + 1)
    logs = _log_binomial(ones, drawn) + _log_binomial(total - ones, order - drawn)
    return np.exp(logs - _log_binomial(total, np.array([order])))[inverse]


def _log_binomial(n: IntArray, k: IntArray) -> FloatArray:
    """Log of n over k; -inf where there is no way to draw k of n."""
    possible = (k >= 0) & (k <= n)
    k = np.clip(k, 0, n)
    return np.where(possible, -np.log(n + 1.0) - special.betaln(n - k + 1.0, k + 1.0), -np.inf)


class _Bins:
    """Predicted laws, and the bins that they are compared in: one cell per bin and step of a law.

    Rows with equal predictions share the mean of what was observed among them, so that the error
    depends on the set of rows, not on their order.
    """

    def __init__(self, distribution: PredictedDistribution, order: int, num_splits: int) -> None:
        check_at_least("num_splits", num_splits, 1)
        self.order = order
        self.predicted = predicted_laws(distribution, order)
        prediction = distribution.prediction()
        self.columns = [
            _weights_of_bins(probs, variance, num_splits)
            for probs, variance in zip(prediction.probs.T, prediction.variance.T, strict=True)
        ]

    def error(self, counts: IntArray) -> float:
        """The error for these annotations, `(n, K)`."""
        totals = counts.sum(axis=1)
        total = 0.0
        for column, weights in enumerate(self.columns):
            observed = observed_laws(counts[:, column], totals, self.order)
            gaps = weights @ (self.predicted[:, column] - observed)
            # The distribution functions of the shares j/k differ by one number on each step of 1/k.
            total += float(np.abs(np.cumsum(gaps, axis=1)[:, :-1]).sum()) / self.order
        return total / len(counts)


def _weights_of_bins(probs: FloatArray, variance: FloatArray, num_splits: int) -> csr_array:
    """How much of each row is in each bin of one class, `(num_splits**2, n)`, columns summing to 1.

    A row belongs to one bin, unless others with the same predictions are in other bins: each of
    them then belongs to all of these, in the same proportions.
    """
    size = len(probs)
    order = np.lexsort((variance, probs))
    bins = np.empty(size, dtype=np.int64)
    for outer, rows in enumerate(np.array_split(order, num_splits)):
        by_variance = rows[np.lexsort((probs[rows], variance[rows]))]
        for inner, part in enumerate(np.array_split(by_variance, num_splits)):
            bins[part] = outer * num_splits + inner
    starts = np.ones(size, dtype=np.int64)
    starts[1:] = (np.diff(probs[order]) != 0) | (np.diff(variance[order]) != 0)
    group = np.empty(size, dtype=np.int64)
    group[order] = np.cumsum(starts) - 1
    ones, everyone = np.ones(size), np.arange(size)
    in_group = csr_array((ones, (group, everyone)), shape=(int(group.max()) + 1, size))
    in_bin = csr_array((ones, (bins, everyone)), shape=(num_splits**2, size))
    shares = in_bin @ in_group.T  # of each group, how many rows are in each bin
    return shares.multiply(1 / in_group.sum(axis=1)).tocsr() @ in_group


def _drawn(
    distribution: PredictedDistribution, totals: IntArray, rng: np.random.Generator
) -> IntArray:
    """Counts of annotations whose truths are drawn from the distribution, `(n, K)`."""
    edges = np.cumsum(distribution.weights, axis=1)
    at = (rng.random((len(edges), 1)) * edges[:, -1:] > edges).sum(axis=1)
    truths = distribution.components[np.arange(len(edges)), at]
    return rng.multinomial(totals, truths / truths.sum(axis=1, keepdims=True))


def _checked(distribution: PredictedDistribution, counts: ArrayLike, order: int) -> IntArray:
    chosen = as_counts("counts", counts).astype(np.int64)
    expected = distribution.components.shape[0], distribution.components.shape[2]
    if chosen.shape != expected:
        raise ValueError(f"counts has shape {chosen.shape}; expected {expected}, as predicted.")
    fewest = int(chosen.sum(axis=1).min())
    if fewest < check_at_least("order", order, 1):
        raise ValueError(
            f"a row of counts has {fewest} annotation(s); expected {order} or more in every row to "
            f"measure order {order} (drop such rows, or measure a lower order)."
        )
    return chosen
