"""`calibrate`: Algorithm 1 with the choice of `min_variance`, its cutoff, on rows set aside for it.

A small cutoff allows narrow intervals where the predictor is sure and right, but makes the bound on
the mean loose: how small it can be depends on the predictor and on the number of rows. The choice
looks at responses, so the rows it saw must not be used again for the guarantee. They are a random
fifth, by position (or by group), so that it does not matter how the rows are ordered.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from secondguess._arrays import as_floats, check_at_least
from secondguess.theory.bounds import interval_radius
from secondguess.theory.calibration.families import ClassInflations, fit_inflation_by_class
from secondguess.theory.calibration.fit_inflation import Annotators, stream_of
from secondguess.theory.calibration.inflation import VarianceInflation
from secondguess.theory.calibration.means import MeanMethod
from secondguess.theory.calibration.products import check_rows
from secondguess.theory.calibration.scatter import group_keys, keys_below, set_aside

DEFAULT_CANDIDATES = tuple(
    root**2 for root in (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
)
"""The squares listed in appendix B of the paper, and some between them."""

_SELECTION_SHARE = 0.2
_MAX_SELECTION_ROWS = 1_000_000  # a million rows choose as well as more, and fit in memory


def calibrate(
    probs: ArrayLike,
    variance: ArrayLike,
    responses: ArrayLike,
    *,
    failure_rate: float = 0.05,
    miss_rate: float = 0.1,
    groups: ArrayLike | None = None,
    annotators: Annotators = None,
    method: MeanMethod = "betting",
    seed: int = 0,
) -> VarianceInflation | ClassInflations:
    """Algorithm 1 with a cutoff chosen on a random fifth of the rows; the others certify.

    >>> rng = np.random.default_rng(0)
    >>> true_probs = np.sort(rng.uniform(0.1, 0.9, size=5000))  # sorted: the order is no matter
    >>> responses = rng.random((5000, 2)) < true_probs[:, None]
    >>> probs, variance = np.full(5000, 0.5), np.full(5000, 0.01)
    >>> inflation = calibrate(probs, variance, responses)
    >>> inflation.num_rows
    3936
    >>> inflation.interval(probs, variance, miss_rate=0.1).contains(true_probs).mean()
    np.float64(1.0)

    Args:
        probs: shape `(n,)`, or `(n, num_classes)` for every class against the rest.
        variance: of the same shape.
        responses: zeros and ones, or class numbers, shape `(n, k)`.
        failure_rate: how often, over calibration sets, the guarantee may not hold.
        miss_rate: the one that the chosen cutoff should be best for; the guarantee holds for all.
        groups: see `fit_variance_inflation`; whole groups choose or certify.
        annotators: see `fit_variance_inflation`.
        method: how the means are bounded.
        seed: see `fit_variance_inflation`.
    """
    p, v, y = as_floats("probs", probs), as_floats("variance", variance), np.asarray(responses)
    share = selection_share(len(p))
    chosen = choosing_rows(0, len(p), share, groups, seed)
    if not 0 < np.count_nonzero(chosen) < len(p):
        raise ValueError(
            f"{np.count_nonzero(chosen)} of {len(p)} rows would choose min_variance; expected some "
            f"to choose and some to certify (pass min_variance to fit_variance_inflation instead)."
        )
    num_classes = 1 if p.ndim == 1 else p.shape[1]
    is_class = y[:, None, :] == np.arange(num_classes)[:, None] if p.ndim == 2 else y[:, None, :]
    options = {"failure_rate": failure_rate / num_classes, "miss_rate": miss_rate}
    min_variance = select_min_variance(
        p[chosen].ravel(),
        v[chosen].ravel(),
        is_class[chosen].reshape(-1, y.shape[1]),
        num_calibration_rows=int(np.count_nonzero(~chosen)),
        method=method,
        **options,
    )
    if p.ndim == 2:
        return fit_inflation_by_class(
            p,
            v,
            y,
            min_variance=min_variance,
            failure_rate=failure_rate,
            groups=groups,
            annotators=annotators,
            method=method,
            seed=seed,
            used=~chosen,
        )
    stream = stream_of(
        p,
        v,
        y,
        min_variance=min_variance,
        groups=groups,
        annotators=annotators,
        method=method,
        seed=seed,
        used=~chosen,
    )
    return stream.result(failure_rate)


def selection_share(num_rows: int) -> float:
    """The share of the rows that chooses: a fifth, and no more than a million rows."""
    return min(_SELECTION_SHARE, _MAX_SELECTION_ROWS / max(num_rows, 1))


def choosing_rows(
    start: int, num_rows: int, share: float, groups: ArrayLike | None = None, seed: int = 0
) -> NDArray[np.bool_]:
    """Which rows of a stretch choose; the others certify. Rows of one group go together."""
    if groups is None:
        return set_aside(start, num_rows, share, seed)
    return keys_below(group_keys(groups), share)


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

    `calibrate` does both steps; this is for rows that are too many for it.
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
        units = stream_of(
            *rows, min_variance=candidate, groups=None, annotators=None, method=method
        ).units()
        # E[D] is no less than 0: a negative estimate of it is noise, and no reason for hope.
        # Nor is a bound below the estimate, which the least one over all looks may be.
        slack = shrink * max(units.upper(failure_rate) - units.mean, 0.0)
        expected = max(units.mean, 0.0) + slack
        radius = interval_radius(expected * np.maximum(rows[1], candidate), miss_rate)
        ends = np.clip([rows[0] - radius, rows[0] + radius], 0, 1)
        widths.append(float(np.mean(ends[1] - ends[0])))
    return float(candidates[int(np.argmin(widths))])
