"""Algorithm 1: the variance inflation that makes any predictor's intervals valid.

A held-out calibration set of inputs with two or more independent responses each bounds, without
assumptions on the predictor, how much larger its squared errors are than the variances it states.
The intervals that follow are guaranteed for a random new input, not for each input by itself.

Arrays have one row an input: `probs` and `variance` of shape `(n,)` are about the event "the
response is 1", `responses` of shape `(n, k)` with k >= 2 holds zeros and ones. The predictor must
not have seen the calibration set. For several classes, bins of the output and one-sided bounds see
`calibration_families.py` and `calibrated_lower_bound.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from secondguess._arrays import FloatArray, as_floats, check_at_least, same_shape
from secondguess.theory.bounds import chebyshev_interval
from secondguess.theory.calibration.means import BoundedMean, MeanMethod
from secondguess.theory.records import Interval, RestsOn


class BadRowError(ValueError):
    """A row that cannot be used, with its place, so that a caller can name file and column.

    Attributes:
        argument: the argument that holds the value.
        row: its row, counted from the start of the stream.
        column: its column, or None where there is only one.
        problem: what came and what was expected.
    """

    def __init__(self, argument: str, row: int, column: int | None, problem: str) -> None:
        self.argument, self.row, self.column, self.problem = argument, row, column, problem
        at = f"{row}" if column is None else f"{row}, {column}"
        super().__init__(f"{argument}[{at}] {problem}")


@dataclass(frozen=True, kw_only=True, slots=True)
class VarianceInflation:
    """How much to inflate a predictor's variances, and the intervals that follow (Theorem 4.6).

    >>> inflation = VarianceInflation(
    ...     upper_bound=1.5, mean=0.9, min_variance=0.0004, failure_rate=0.05, method="betting",
    ...     num_rows=1000, num_responses=2, num_negative_variances=0,
    ... )
    >>> interval = inflation.interval([0.5], [0.0015], miss_rate=0.1)
    >>> interval.lower, interval.upper, str(interval.rests_on)
    (array([0.35]), array([0.65]), 'guaranteed by a calibration set')

    Attributes:
        upper_bound: the upper bound on E[D], the mean scaled squared error.
        mean: the plain estimate of E[D] on the calibration set, without a guarantee.
        min_variance: the least variance of an interval; smaller ones, and negative ones, are
            raised to it.
        failure_rate: how often, over calibration sets, the guarantee may not hold.
        method: how the mean was bounded.
        num_rows: the size of the calibration set.
        num_responses: responses to each input.
        num_negative_variances: rows whose stated variance was negative.
    """

    upper_bound: float
    mean: float
    min_variance: float
    failure_rate: float
    method: MeanMethod
    num_rows: int
    num_responses: int
    num_negative_variances: int

    @property
    def value(self) -> float:
        """The variance inflation: the upper bound, or 0 where that is negative.

        The clip is valid because E[D] is the mean of a square.
        """
        return max(self.upper_bound, 0.0)

    @property
    def clipped(self) -> bool:
        """Whether the upper bound was negative, so that `value` is 0.

        That happens with probability at most `failure_rate`, unless E[D] is 0: treat it as a sign
        that the responses to an input are not independent of each other.
        """
        return self.upper_bound < 0

    def interval(self, probs: ArrayLike, variance: ArrayLike, miss_rate: float) -> Interval:
        """Intervals probs ± sqrt(value max(variance, min_variance) / miss_rate).

        They hold the true p(y|x) for at least 1 - miss_rate of new inputs, for every miss rate at
        once, except with probability `failure_rate` over the calibration set. They are not cut to
        [0, 1]; call `.clipped()` for that.

        Args:
            probs: predicted probabilities, any shape.
            variance: stated variances, of the same shape; may be negative.
            miss_rate: the share of inputs whose p(y|x) may lie outside, in (0, 1).
        """
        raised = np.maximum(as_floats("variance", variance), self.min_variance)
        return chebyshev_interval(
            probs, self.value * raised, miss_rate, rests_on=RestsOn.CALIBRATION_SET
        )


def fit_variance_inflation(
    probs: ArrayLike,
    variance: ArrayLike,
    responses: ArrayLike,
    *,
    min_variance: float,
    failure_rate: float,
    method: MeanMethod = "betting",
) -> VarianceInflation:
    """Algorithm 1 on a calibration set in memory.

    >>> rng = np.random.default_rng(0)
    >>> true_probs = rng.uniform(0.1, 0.9, size=4000)
    >>> responses = rng.random((4000, 2)) < true_probs[:, None]
    >>> probs, variance = np.full(4000, 0.5), np.full(4000, 0.01)  # variance stated too small
    >>> inflation = fit_variance_inflation(
    ...     probs, variance, responses, min_variance=0.01, failure_rate=0.05
    ... )
    >>> round(inflation.value, 1), round(np.mean((true_probs - 0.5)**2) / 0.01, 1)
    (5.7, np.float64(5.3))
    >>> inflation.interval(probs, variance, miss_rate=0.1).contains(true_probs).mean()
    np.float64(1.0)

    Args:
        probs: predicted probability of response 1, shape `(n,)`.
        variance: its stated epistemic variance, shape `(n,)`; may be negative.
        responses: zeros and ones, shape `(n, k)`, k >= 2 independent responses to each input.
        min_variance: the cutoff epsilon of the paper, fixed before looking at these rows (see
            `select_min_variance`); smaller allows narrower intervals where the predictor is sure,
            but needs more rows.
        failure_rate: how often, over calibration sets, the guarantee may not hold.
        method: how the mean is bounded: `betting`, `bernstein` or `hoeffding`.
    """
    array = np.asarray(responses)
    if array.ndim != 2:
        raise ValueError(f"responses has shape {array.shape}; expected (n, k), k responses a row.")
    stream = InflationStream(min_variance=min_variance, num_responses=array.shape[1], method=method)
    stream.update(probs, variance, array)
    return stream.result(failure_rate)


class InflationStream:
    """Algorithm 1 over a calibration set that is read in chunks, possibly by several processes.

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
    """

    def __init__(
        self, *, min_variance: float, num_responses: int = 2, method: MeanMethod = "betting"
    ) -> None:
        self.min_variance = check_min_variance(min_variance)
        self.num_responses = check_at_least("num_responses", num_responses, 2)
        self.num_negative_variances = 0
        # (y1 - p)(y2 - p) is in [-1/4, 1], and the average over the pairs of k responses in
        # [-1/(4(k - 1)), 1]: narrower than the [-1, 1] printed in Algorithm 1.
        low = -0.25 / (self.num_responses - 1)
        self.products = BoundedMean(low / self.min_variance, 1 / self.min_variance, method)

    def update(
        self,
        probs: ArrayLike,
        variance: ArrayLike,
        responses: ArrayLike,
        start: int | None = None,
    ) -> None:
        """Read rows; `start` is the position of the first one in the whole calibration set."""
        row = self.products.next_row if start is None else start
        p, v, y = check_rows(probs, variance, responses, row)
        if y.shape[1] != self.num_responses:
            raise ValueError(
                f"responses has {y.shape[1]} columns; expected {self.num_responses}, as stated."
            )
        self.products.update(scaled_products(p, v, y, self.min_variance), start)
        self.num_negative_variances += int(np.count_nonzero(v < 0))

    def merge(self, other: InflationStream) -> None:
        """Join the rows that another process read."""
        self.products.merge(other.products)
        self.num_negative_variances += other.num_negative_variances

    def result(self, failure_rate: float, *, anytime: bool = False) -> VarianceInflation:
        """The variance inflation from all rows; for `anytime` see `BoundedMean.upper`."""
        return VarianceInflation(
            upper_bound=self.products.upper(failure_rate, anytime=anytime),
            mean=self.products.mean,
            min_variance=self.min_variance,
            failure_rate=failure_rate,
            method=self.products.method,
            num_rows=self.products.num_rows,
            num_responses=self.num_responses,
            num_negative_variances=self.num_negative_variances,
        )


def scaled_products(
    probs: FloatArray, variance: FloatArray, responses: NDArray, min_variance: float
) -> FloatArray:
    """S of Algorithm 1, averaged over all pairs of responses: unbiased for D of the same row.

    S = (y1 - p)(y2 - p) / max(variance, min_variance). With c ones among k responses the average
    over pairs is [c(c-1) (1-p)² - 2c(k-c) p(1-p) + (k-c)(k-c-1) p²] / (k(k-1)).

    >>> probs, variance = np.array([0.25, 0.25]), np.array([-0.5, 0.125])
    >>> scaled_products(probs, variance, np.array([[1, 1], [0, 1]]), min_variance=0.0625)
    array([ 9. , -1.5])
    """
    num_responses = responses.shape[1]
    scale = np.maximum(variance, min_variance)
    if num_responses == 2:
        products = responses[:, 0] - probs
        products *= responses[:, 1] - probs
    else:
        ones = np.arange(num_responses + 1)
        zeros = num_responses - ones
        agree_one, differ, agree_zero = np.stack(
            [ones * (ones - 1), -2 * ones * zeros, zeros * (zeros - 1)]
        ) / (num_responses * (num_responses - 1))
        count = np.count_nonzero(responses, axis=1)
        complement = 1 - probs
        products = (
            agree_one[count] * complement**2
            + differ[count] * probs * complement
            + agree_zero[count] * probs**2
        )
        # Rounding of the sum may step over the ends of its range by one unit in the last place.
        np.clip(products, -0.25 / (num_responses - 1), 1.0, out=products)
    products /= scale
    return products


def check_min_variance(min_variance: float) -> float:
    """A cutoff in (0, 1]: no probability has a variance above 1/4, larger cutoffs help nobody."""
    if not 0 < min_variance <= 1:
        raise ValueError(f"min_variance is {min_variance!r}; expected a variance in (0, 1].")
    return float(min_variance)


def check_rows(
    probs: ArrayLike, variance: ArrayLike, responses: ArrayLike, start: int = 0
) -> tuple[FloatArray, FloatArray, NDArray]:
    """Rows of a calibration set as arrays; `start` is the number of the first one in complaints."""
    p, v = np.asarray(probs, dtype=np.float64), np.asarray(variance, dtype=np.float64)
    y = np.asarray(responses)
    if p.ndim != 1:
        raise ValueError(
            f"probs has shape {p.shape}; expected (n,), the probability of response 1."
        )
    same_shape(probs=p, variance=v)
    if y.ndim != 2 or len(y) != len(p) or y.shape[1] < 2:
        raise ValueError(
            f"responses has shape {y.shape}; expected ({len(p)}, k), k >= 2 responses to each row."
        )
    if not len(p):
        return p, v, y
    # Two reductions find nothing wrong in most chunks; NaN fails the comparisons.
    if not (p.min() >= 0 and p.max() <= 1):
        row = int(np.argmax(~((p >= 0) & (p <= 1))))
        problem = f"is {p[row].item()!r}; expected a probability in [0, 1]."
        raise BadRowError("probs", start + row, None, problem)
    if not (np.isfinite(v.min()) and np.isfinite(v.max())):
        row = int(np.argmax(~np.isfinite(v)))
        problem = f"is {v[row].item()!r}; expected a finite number."
        raise BadRowError("variance", start + row, None, problem)
    whole = y.dtype.kind in "biu"
    if not (y.min() >= 0 and y.max() <= 1) if whole else not ((y == 0) | (y == 1)).all():
        row, column = (int(i) for i in np.argwhere((y != 0) & (y != 1))[0])
        problem = f"is {y[row, column].item()!r}; expected 0 or 1."
        raise BadRowError("responses", start + row, column, problem)
    return p, v, y.view(np.uint8) if y.dtype == np.bool_ else y
