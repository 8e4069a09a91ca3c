"""A guaranteed one-sided bound: p(y|x) is at least this, from a calibration set.

Cantelli's inequality spends nothing on the side nobody asked about, but needs the mean of the
scaled error as well as its second moment. Both are bounded from the same calibration set. Proof:
the page "Guaranteed intervals" in the documentation.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from secondguess._arrays import as_floats, check_rate, fail_at, same_shape
from secondguess.theory.calibration.fit_inflation import Annotators, fit_variance_inflation
from secondguess.theory.calibration.groups import GroupSums
from secondguess.theory.calibration.inflation import VarianceInflation
from secondguess.theory.calibration.means import MeanMethod, mean_lower_bound
from secondguess.theory.calibration.products import check_rows
from secondguess.theory.calibration.scatter import group_keys
from secondguess.theory.records import Bound, RestsOn

# The second moment sets the width, so it gets the larger share of the failure rate.
_SHARE_OF_MEAN = 0.25


@dataclass(frozen=True, slots=True)
class CalibratedLowerBound:
    """Bounds on the first two moments of Z = (p(1|X) - probs) / sqrt(max(variance, min_variance)).

    >>> inflation = VarianceInflation(
    ...     value=1.0, mean=0.9, min_variance=0.01, failure_rate=0.0375, method="betting",
    ...     num_rows=1000, num_responses=2, num_negative_variances=0,
    ... )
    >>> bound = CalibratedLowerBound(inflation, mean_error=0.0, failure_rate=0.05)
    >>> print(bound.lower_bound(0.5, 0.01, miss_rate=0.2))
    0.3 guaranteed by a calibration set

    Attributes:
        inflation: the upper bound on E[Z²], with its share of the failure rate.
        mean_error: the lower bound on E[Z], with the rest of it.
        failure_rate: how often, over calibration sets, either bound may not hold.
    """

    inflation: VarianceInflation
    mean_error: float
    failure_rate: float

    def lower_bound(self, probs: ArrayLike, variance: ArrayLike, miss_rate: float) -> Bound:
        """Numbers, 0 at least, that p(1|x) is below for at most `miss_rate` of new inputs.

        With g = E[Z²] and b the miss rate, Cantelli's inequality gives Z >= a - sqrt((g - a²)
        (1 - b) / b) for the true mean a = E[Z]. As a function of a this is convex with its least
        value, Chebyshev's -sqrt(g / b), at a = -sqrt(g b); so the worst case above the bound on
        E[Z] is at the larger of the two.

        Args:
            probs: predicted probabilities, any shape.
            variance: their stated variances, of the same shape; may be negative.
            miss_rate: the share of inputs whose p(1|x) may lie below, in (0, 1).
        """
        p, v = as_floats("probs", probs), as_floats("variance", variance)
        same_shape(probs=p, variance=v)
        fail_at("probs", (p < 0) | (p > 1), p, "a probability in [0, 1]")
        rate, second = check_rate("miss_rate", miss_rate), self.inflation.value
        first = min(max(self.mean_error, -np.sqrt(second * rate)), np.sqrt(second))
        worst = first - np.sqrt(max(second - first**2, 0.0) * (1 / rate - 1))
        lower = p + np.sqrt(np.maximum(v, self.inflation.min_variance)) * worst
        return Bound(np.maximum(lower, 0.0), RestsOn.CALIBRATION_SET)


def fit_calibrated_lower_bound(
    probs: ArrayLike,
    variance: ArrayLike,
    responses: ArrayLike,
    *,
    min_variance: float,
    failure_rate: float,
    groups: ArrayLike | None = None,
    annotators: Annotators = None,
    method: MeanMethod = "betting",
    seed: int = 0,
) -> CalibratedLowerBound:
    """The one-sided form of Algorithm 1.

    >>> rng = np.random.default_rng(0)
    >>> true_probs = rng.uniform(0.1, 0.9, size=20_000)
    >>> responses = rng.random((20_000, 2)) < true_probs[:, None]
    >>> probs, variance = np.full(20_000, 0.5), np.full(20_000, 0.05)
    >>> options = {"min_variance": 0.05, "failure_rate": 0.05}
    >>> one_sided = fit_calibrated_lower_bound(probs, variance, responses, **options)
    >>> two_sided = fit_variance_inflation(probs, variance, responses, **options)
    >>> print(f"{one_sided.lower_bound(0.5, 0.05, miss_rate=0.5).value:.3f}",
    ...       f"{two_sided.interval(0.5, 0.05, miss_rate=0.5).lower:.3f}")
    0.260 0.160

    The arguments are those of `fit_variance_inflation`.
    """
    p, v, y = check_rows(probs, variance, responses)
    share = _SHARE_OF_MEAN * check_rate("failure_rate", failure_rate)
    inflation = fit_variance_inflation(
        p,
        v,
        y,
        min_variance=min_variance,
        failure_rate=failure_rate - share,
        groups=groups,
        annotators=annotators,
        method=method,
        seed=seed,
    )
    ends = 1 / np.sqrt(min_variance)
    errors = (y.mean(axis=1) - p) / np.sqrt(np.maximum(v, min_variance))
    if groups is not None:
        sums = GroupSums(0, unit=ends * 2.0**-40)
        sums.add(group_keys(groups), errors, np.zeros((len(errors), 0)))
        errors = sums.means().clip(-ends, ends)
    mean_error = mean_lower_bound(
        errors, low=-ends, high=ends, failure_rate=share, method=method, seed=seed
    )
    return CalibratedLowerBound(inflation, mean_error, failure_rate)
