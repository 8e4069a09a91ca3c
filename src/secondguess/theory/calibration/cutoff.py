"""The choice of `min_variance`, the cutoff of Algorithm 1, on rows set aside for it.

A small cutoff allows narrow intervals where the predictor is sure and right, but makes the bound on
the mean loose: how small it can be depends on the predictor and on the number of rows. The choice
looks at responses, so the rows it saw must not be used again for the guarantee.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from secondguess._arrays import check_at_least
from secondguess.theory.calibration.inflation import check_rows, fit_variance_inflation
from secondguess.theory.calibration.means import MeanMethod

DEFAULT_CANDIDATES = tuple(
    root**2 for root in (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
)
"""The squares listed in appendix B of the paper, and some between them."""


def select_min_variance(
    probs: ArrayLike,
    variance: ArrayLike,
    responses: ArrayLike,
    *,
    num_calibration_rows: int,
    failure_rate: float,
    miss_rate: float = 0.1,
    candidates: Sequence[float] = DEFAULT_CANDIDATES,
    method: MeanMethod = "betting",
) -> float:
    """The candidate whose intervals are expected to be the narrowest.

    >>> rng = np.random.default_rng(1)
    >>> true_probs = rng.uniform(0.1, 0.9, size=20_000)
    >>> known = rng.random(20_000) < 0.5  # the predictor is right there, and says so
    >>> probs, variance = np.where(known, true_probs, 0.5), np.where(known, 0.0, 0.05)
    >>> responses = rng.random((20_000, 2)) < true_probs[:, None]
    >>> cutoff = select_min_variance(
    ...     probs[:4000], variance[:4000], responses[:4000],
    ...     num_calibration_rows=16_000, failure_rate=0.05, miss_rate=0.5,
    ... )
    >>> round(cutoff, 6)
    0.01
    >>> inflation = fit_variance_inflation(
    ...     probs[4000:], variance[4000:], responses[4000:],
    ...     min_variance=cutoff, failure_rate=0.05,
    ... )

    For each candidate the bound on the rows given is carried over to `num_calibration_rows` rows,
    its distance from the mean shrinking as one over the square root of the number of rows, and the
    width of the intervals it gives, cut to [0, 1], is averaged.

    Args:
        probs: predicted probabilities of the rows set aside, shape `(n,)`.
        variance: their stated variances, shape `(n,)`.
        responses: zeros and ones, shape `(n, k)`.
        num_calibration_rows: how many other rows will be calibrated on.
        failure_rate: the one that will be asked for there.
        miss_rate: the one that the intervals will be used with.
        candidates: cutoffs to choose from; of equally good ones the first is taken.
        method: how the mean will be bounded.
    """
    rows = check_rows(probs, variance, responses)
    check_at_least("num_calibration_rows", num_calibration_rows, 1)
    if not len(candidates):
        raise ValueError("candidates is empty; expected at least one cutoff.")
    shrink = min(1.0, float(np.sqrt(len(rows[0]) / num_calibration_rows)))
    widths = []
    for candidate in candidates:
        inflation = fit_variance_inflation(
            *rows, min_variance=candidate, failure_rate=failure_rate, method=method
        )
        # E[D] is no less than 0: a negative estimate of it is noise, and no reason for hope.
        expected = max(inflation.mean, 0.0) + shrink * (inflation.upper_bound - inflation.mean)
        radius = np.sqrt(expected * np.maximum(rows[1], candidate) / miss_rate)
        ends = np.clip([rows[0] - radius, rows[0] + radius], 0, 1)
        widths.append(float(np.mean(ends[1] - ends[0])))
    return float(candidates[int(np.argmin(widths))])
