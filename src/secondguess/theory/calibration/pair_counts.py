"""Algorithm 1 from counts: rows may have different numbers of responses, none is thinned.

What `inflation.py` does for a table of responses, for rows that are known by how many of their
responses are ones. Arrays have one entry per row.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from secondguess._arrays import FloatArray, IntArray, check_at_least
from secondguess.theory.calibration.inflation import VarianceInflation, inflation_bound
from secondguess.theory.calibration.means import BoundedMean


class PairCountStream:
    """Algorithm 1 over all pairs of each row, read in chunks, possibly by several processes.

    >>> stream = PairCountStream(min_variance=0.25, fewest_responses=2)
    >>> p, v, ones = np.full(100, 0.5), np.full(100, 0.25), np.full(100, 2)
    >>> stream.update(p, v, ones, np.full(100, 2))
    >>> stream.result(failure_rate=0.05).mean
    1.0

    Args:
        min_variance: the least variance of an interval, fixed before looking at these rows.
        fewest_responses: no row has fewer responses; 2 or more.
        seed: of the random order, the same for all processes.
    """

    def __init__(self, *, min_variance: float, fewest_responses: int, seed: int = 0) -> None:
        self.min_variance = min_variance
        self.fewest_responses = check_at_least("fewest_responses", fewest_responses, 2)
        # The mean over the pairs of k responses is in [-1/(4(k - 1)), 1].
        self._low = -0.25 / (self.fewest_responses - 1)
        self.products = BoundedMean(self._low / min_variance, 1 / min_variance, "betting", seed)
        self.num_negative_variances = 0

    def update(
        self,
        probs: FloatArray,
        variance: FloatArray,
        ones: IntArray,
        num_responses: IntArray,
        start: int | None = None,
        *,
        used: NDArray[np.bool_] | None = None,
    ) -> None:
        """Read rows that `check_count_rows` has seen; arguments as in `CountStream.update`."""
        products = mean_pair_products(probs, ones, num_responses)
        # Rounding of the sum may step over the ends of its range.
        np.clip(products, self._low, 1.0, out=products)
        products /= np.maximum(variance, self.min_variance)
        self.products.update(products, start, used=used)
        negative = variance < 0 if used is None else (variance < 0) & used
        self.num_negative_variances += int(np.count_nonzero(negative))

    def merge(self, other: PairCountStream) -> None:
        """Join the rows that another process read."""
        self.products.merge(other.products)
        self.num_negative_variances += other.num_negative_variances

    def result(self, failure_rate: float) -> VarianceInflation:
        """The variance inflation from all rows; a bound below zero is refused."""
        return VarianceInflation(
            value=inflation_bound(self.products, failure_rate),
            mean=self.products.mean,
            min_variance=self.min_variance,
            failure_rate=failure_rate,
            method="betting",
            num_rows=self.products.num_rows,
            num_responses=self.fewest_responses,
            num_negative_variances=self.num_negative_variances,
        )


def mean_pair_products(probs: FloatArray, ones: IntArray, num_responses: IntArray) -> FloatArray:
    """The mean over a row's pairs of (y1 - p)(y2 - p), an unbiased estimate of (p(1|x) - p)².

    With c ones among k it is [c(c-1)(1-p)² - 2c(k-c)p(1-p) + (k-c)(k-c-1)p²] / (k(k-1)).

    >>> mean_pair_products(np.array([0.5, 0.5]), np.array([2, 1]), np.array([2, 2]))
    array([ 0.25, -0.25])
    """
    c, k = ones.astype(np.float64), num_responses.astype(np.float64)
    rest = k - c
    products = c * (c - 1) * (1 - probs) ** 2 - 2 * c * rest * probs * (1 - probs)
    products += rest * (rest - 1) * probs**2
    products /= k * (k - 1)
    return products
