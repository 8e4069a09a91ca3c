"""Algorithm 1: the variance inflation that makes any predictor's intervals valid.

A held-out calibration set of inputs with two or more independent responses each bounds, without
assumptions on the predictor, how much larger its squared errors are than the variances it states.
The intervals that follow are guaranteed for a random new input, not for each input by itself.

Arrays have one row per input: `probs` and `variance` of shape `(n,)` are about the event "the
response is 1", `responses` of shape `(n, k)` with k >= 2 holds zeros and ones. The predictor must
not have seen the calibration set. The order of the rows does not matter. For sets in memory see
`fit_inflation.py`; for the choice of the cut-off `cutoff.py`; for several classes and bins of the
output `families.py`; for one-sided bounds `one_sided.py`; for what is asked of the raters
`raters.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from secondguess._arrays import FloatArray, as_floats, check_at_least, check_rate, fail_at
from secondguess.theory.bounds import chebyshev_interval
from secondguess.theory.calibration.groups import GroupSums
from secondguess.theory.calibration.means import PIECE, BoundedMean, MeanMethod
from secondguess.theory.calibration.products import (
    check_min_variance,
    check_rows,
    scaled_products,
)
from secondguess.theory.calibration.raters import (
    LEANING_LEVEL,
    check_leaning_counts,
    discordant_counts,
)
from secondguess.theory.calibration.scatter import UnsignedArray, group_keys
from secondguess.theory.records import Interval, RestsOn

_BOUND = "a bound on squared errors, 0 or more"


class DependentResponsesError(ValueError):
    """The responses to an input disagree more than independent ones can."""


@dataclass(frozen=True, kw_only=True, slots=True)
class VarianceInflation:
    """How much to inflate a predictor's variances, and the intervals that follow (Theorem 4.6).

    >>> inflation = VarianceInflation(
    ...     value=1.5, mean=0.9, min_variance=0.0004, failure_rate=0.05, method="betting",
    ...     num_rows=1000, num_responses=2, num_negative_variances=0,
    ... )
    >>> interval = inflation.interval([0.5], [0.0015], miss_rate=0.1)
    >>> interval.lower, interval.upper, str(interval.rests_on)
    (array([0.35]), array([0.65]), 'guaranteed by a calibration set')

    Attributes:
        value: the variance inflation: an upper bound on E[D], the mean scaled squared error.
        mean: the plain estimate of E[D] on the calibration set, without a guarantee.
        min_variance: the least variance of an interval; smaller ones, and negative ones, are
            raised to it.
        failure_rate: how often, over calibration sets, the guarantee may not hold.
        method: how the mean was bounded.
        num_rows: the size of the calibration set.
        num_responses: responses to each input.
        num_negative_variances: rows whose stated variance was negative.
        num_groups: how many groups the rows form, if they do; the guarantee is then for a random
            row of a random group.
    """

    value: float
    mean: float
    min_variance: float
    failure_rate: float
    method: MeanMethod
    num_rows: int
    num_responses: int
    num_negative_variances: int
    num_groups: int | None = None

    def __post_init__(self) -> None:
        fail_at("value", np.array(not 0 <= self.value < np.inf), np.array(self.value), _BOUND)
        if self.num_rows or not np.isnan(self.mean):  # a bin may have no rows, and then no mean
            as_floats("mean", self.mean)
            check_at_least("num_rows", self.num_rows, max(1, self.num_negative_variances))
        check_min_variance(self.min_variance)
        check_rate("failure_rate", self.failure_rate)
        check_at_least("num_responses", self.num_responses, 2)
        check_at_least("num_groups", 1 if self.num_groups is None else self.num_groups, 1)
        check_at_least("num_negative_variances", self.num_negative_variances, 0)

    def interval(self, probs: ArrayLike, variance: ArrayLike, miss_rate: float) -> Interval:
        """Intervals probs ± sqrt(value max(variance, min_variance) / miss_rate), cut to [0, 1].

        They hold the true p(y|x) for at least 1 - miss_rate of new inputs, for every miss rate at
        once, except with probability `failure_rate` over the calibration set.

        Args:
            probs: predicted probabilities, any shape.
            variance: stated variances, of the same shape; may be negative.
            miss_rate: the share of inputs whose p(y|x) may lie outside, in (0, 1).
        """
        raised = np.maximum(as_floats("variance", variance), self.min_variance)
        return chebyshev_interval(
            probs, self.value * raised, miss_rate, rests_on=RestsOn.CALIBRATION_SET
        )


class InflationStream:
    """Algorithm 1 over a calibration set that is read in chunks, possibly by several processes.

    Rows may come in any order: each is put into its place of a random order by its position, so
    the result is the same to the last bit whoever reads which rows, and when. What it asks for is
    that the rows are independent draws (or the groups are), that every position is read once, and
    that `result` is called once, after all of them.

    >>> rng = np.random.default_rng(0)
    >>> stream = InflationStream(min_variance=0.01)
    >>> for _ in range(3):
    ...     stream.update(np.full(100, 0.5), np.full(100, 0.02), rng.integers(0, 2, (100, 2)))
    >>> stream.result(failure_rate=0.05).num_rows
    300

    Args:
        min_variance: see `fit_variance_inflation`.
        num_responses: responses to each input, 2 or more.
        method: how the mean is bounded.
        self_pairs: the weight of the pairs "a rater with themselves", from `self_pair_share`, where
            the raters are known; without it the columns are tested for equal leanings.
        seed: of the random order, the same for all processes.
    """

    def __init__(
        self,
        *,
        min_variance: float,
        num_responses: int = 2,
        method: MeanMethod = "betting",
        self_pairs: float | None = None,
        seed: int = 0,
    ) -> None:
        self.min_variance = check_min_variance(min_variance)
        self.num_responses = check_at_least("num_responses", num_responses, 2)
        self.self_pairs = self_pairs
        self.num_rows = self.num_negative_variances = 0
        # (y1 - p)(y2 - p) is in [-1/4, 1], and the average over the pairs of k responses in
        # [-1/(4(k - 1)), 1]: narrower than the [-1, 1] printed in Algorithm 1.
        low = -0.25 / (self.num_responses - 1)
        self.products = BoundedMean(low / self.min_variance, 1 / self.min_variance, method, seed)
        self._discordant = np.zeros((self.num_responses, self.num_responses), dtype=np.int64)
        self._groups: GroupSums | None = None

    def update(
        self,
        probs: ArrayLike,
        variance: ArrayLike,
        responses: ArrayLike,
        start: int | None = None,
        *,
        groups: ArrayLike | None = None,
        used: NDArray[np.bool_] | None = None,
    ) -> None:
        """Read rows.

        Args:
            probs: see `fit_variance_inflation`.
            variance: of the same shape.
            responses: shape `(n, k)`.
            start: the position of the first row in the whole calibration set; by default they
                follow the last position read.
            groups: the group of each row, for all rows of the calibration set or for none.
            used: which rows count; by default all. The choice must not depend on responses.
        """
        row = self.products.next_row if start is None else start
        p, v, y = check_rows(probs, variance, responses, row)
        if y.shape[1] != self.num_responses:
            raise ValueError(
                f"responses has {y.shape[1]} columns; expected {self.num_responses}, as stated."
            )
        if groups is None:
            for first in range(0, len(p), PIECE):
                piece = slice(first, first + PIECE)
                values = self._products(p[piece], v[piece], y[piece])
                mask = None if used is None else used[piece]
                self.products.update(values, row + first, used=mask)
        else:
            values = self._products(p, v, y)
            self._add_groups(groups, values, y, used)
            self.products.update(values, row, used=np.zeros(len(values), dtype=np.bool_))
        if used is not None:
            v, y = v[used], y[used]
        self.num_rows += len(v)
        self.num_negative_variances += int(np.count_nonzero(v < 0))
        if self.self_pairs is None and groups is None:
            self._discordant += discordant_counts(y)

    def _products(self, probs: FloatArray, variance: FloatArray, responses: NDArray) -> FloatArray:
        return scaled_products(
            probs, variance, responses, self.min_variance, self.self_pairs or 0.0
        )

    def _add_groups(
        self, groups: ArrayLike, values: FloatArray, ones: NDArray, used: NDArray[np.bool_] | None
    ) -> None:
        names = np.asarray(groups)
        if names.shape != values.shape:
            raise ValueError(
                f"groups has shape {names.shape}; expected {values.shape}, one per row."
            )
        keys: UnsignedArray = group_keys(names)
        if used is not None:
            keys, values, ones = keys[used], values[used], ones[used]
        if self._groups is None:
            width = self.products.high - self.products.low
            self._groups = GroupSums(self.num_responses, unit=width * 2.0**-40)
        self._groups.add(keys, values, ones)

    def merge(self, other: InflationStream) -> None:
        """Join the rows that another process read."""
        self.products.merge(other.products)
        self.num_rows += other.num_rows
        self.num_negative_variances += other.num_negative_variances
        self._discordant += other._discordant
        if other._groups is not None:
            self._groups = self._groups or GroupSums(self.num_responses, other._groups.unit)
            self._groups.merge(other._groups)

    def units(self) -> BoundedMean:
        """The values that are averaged, one per row or one per group."""
        if self._groups is None:
            return self.products
        self.products.check_positions()
        if self.products.num_rows:
            raise ValueError("some rows came with a group and some without; expected all or none.")
        rows = self.products
        means = BoundedMean(rows.low, rows.high, rows.method, rows.seed)
        means.update(self._groups.means().clip(means.low, means.high))
        return means

    def result(self, failure_rate: float, *, level: float = LEANING_LEVEL) -> VarianceInflation:
        """The variance inflation from all rows.

        Args:
            failure_rate: how often, over calibration sets, the guarantee may not hold.
            level: how often each of the two tests of `fit_variance_inflation` may refuse sound
                data.
        """
        units = self.units()
        if self.self_pairs is None:
            ones = None if self._groups is None else self._groups.ones
            check_leaning_counts(
                self._discordant if ones is None else discordant_counts(ones), level=level
            )
        return VarianceInflation(
            value=inflation_bound(units, failure_rate, level=level),
            mean=units.mean,
            min_variance=self.min_variance,
            failure_rate=failure_rate,
            method=units.method,
            num_rows=self.num_rows,
            num_responses=self.num_responses,
            num_negative_variances=self.num_negative_variances,
            num_groups=None if self._groups is None else self._groups.num_groups,
        )


def inflation_bound(
    units: BoundedMean, failure_rate: float, *, level: float = LEANING_LEVEL
) -> float:
    """The upper bound on E[D], the mean of a square; a bound below zero is refused.

    Args:
        units: the values of S, or their means over groups.
        failure_rate: how often the bound may fail.
        level: how often sound data may be refused.
    """
    value = units.upper(failure_rate)
    if value < 0:
        # A failure of the bound, which happens at that rate, or of the responses.
        value = units.upper(min(failure_rate, level))
    if value < 0:
        raise DependentResponsesError(
            f"the mean squared error is {value:.3g} at most, by a bound that fails with "
            f"probability {min(failure_rate, level):g}, but no square is negative: the responses "
            f"to an input disagree more often than independent ones can. Was a further rater "
            f"asked because two disagreed, or were few raters assigned to columns? Collect "
            f"responses independently, or say who answered (annotators=, --annotator-cols)."
        )
    return value
