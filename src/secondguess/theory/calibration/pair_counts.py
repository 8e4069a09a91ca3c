"""Algorithm 1 from counts: rows may have different numbers of responses, none is thinned.

What `inflation.py` does for a table of responses, for rows that are known by how many of their
responses are ones. Arrays have one entry per row.
"""

from __future__ import annotations

import numpy as np

from secondguess._arrays import FloatArray, IntArray
from secondguess.theory.calibration.inflation import VarianceInflation, inflation_bound
from secondguess.theory.calibration.means import BoundedMean


def pair_inflation(
    probs: FloatArray,
    variance: FloatArray,
    ones: IntArray,
    num_responses: IntArray,
    min_variance: float,
    failure_rate: float,
) -> VarianceInflation:
    """Algorithm 1 from counts, all pairs of each row, rows with different numbers of responses.

    >>> pair_inflation(
    ...     np.full(100, 0.5), np.full(100, 0.25), np.full(100, 2), np.full(100, 2), 0.25, 0.05
    ... ).mean
    1.0

    Args:
        probs: shape `(n,)`.
        variance: of the same shape.
        ones: of the same shape.
        num_responses: 2 or more, of the same shape.
        min_variance: the least variance of an interval.
        failure_rate: how often the bound may fail.
    """
    mean = pair_products(probs, variance, ones, num_responses, min_variance)
    return VarianceInflation(
        value=inflation_bound(mean, failure_rate),
        mean=mean.mean,
        min_variance=min_variance,
        failure_rate=failure_rate,
        method="betting",
        num_rows=len(probs),
        num_responses=int(num_responses.min()),
        num_negative_variances=int(np.count_nonzero(variance < 0)),
    )


def pair_products(
    probs: FloatArray,
    variance: FloatArray,
    ones: IntArray,
    num_responses: IntArray,
    min_variance: float,
) -> BoundedMean:
    """The scaled products that `pair_inflation` bounds; the arguments are its own.

    With c ones among k the mean over pairs of (y1 - p)(y2 - p) is
    [c(c-1)(1-p)² - 2c(k-c)p(1-p) + (k-c)(k-c-1)p²] / (k(k-1)), no less than -1/(4(k-1)).
    """
    c, k = ones.astype(np.float64), num_responses.astype(np.float64)
    rest = k - c
    products = c * (c - 1) * (1 - probs) ** 2 - 2 * c * rest * probs * (1 - probs)
    products += rest * (rest - 1) * probs**2
    products /= k * (k - 1)
    low = -0.25 / (float(k.min()) - 1)
    # Rounding of the sum may step over the ends of its range.
    scaled = np.clip(products, low, 1.0) / np.maximum(variance, min_variance)
    mean = BoundedMean(low / min_variance, 1 / min_variance)
    mean.update(scaled)
    return mean
