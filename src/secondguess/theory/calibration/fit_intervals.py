"""The narrowest certified intervals for a predictor's probabilities, by pairs or by counts.

A random subset of the calibration rows chooses how to certify (Algorithm 1 or counts, the family of
intervals, its cutoff and the detection rate: `interval_plan.py`) and the rest certify
(`interval_stream.py`). Which rows choose is drawn by position, so that the order of the rows does
not matter, and files that are read in pieces come to the same result.

Arrays have one row per input: `probs` and `variance` of shape `(n,)` with `ones` among
`num_responses`, or `(n, num_classes)` with counts per class.
"""

from __future__ import annotations

from typing import get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from secondguess._arrays import check_rate
from secondguess.theory.calibration.count_stream import check_count_rows
from secondguess.theory.calibration.fitted_intervals import FittedIntervals
from secondguess.theory.calibration.interval_plan import (
    CountRows,
    IntervalMethod,
    plan_intervals,
)
from secondguess.theory.calibration.interval_stream import IntervalStream, Parts
from secondguess.theory.calibration.scatter import UnsignedArray, group_keys, keys_of

CHOOSING_SHARE = 0.2
"""Share of the rows that choose; never more than `MAX_CHOOSING_ROWS`, or about so many."""

MAX_CHOOSING_ROWS = 2000
_MAX_RANKED = 1 << 16


def fit_intervals(
    probs: ArrayLike,
    variance: ArrayLike,
    ones: ArrayLike,
    num_responses: ArrayLike | None = None,
    *,
    miss_rate: float = 0.1,
    failure_rate: float = 0.05,
    method: IntervalMethod = "auto",
    jointly: bool = False,
    groups: ArrayLike | None = None,
    seed: int = 0,
) -> FittedIntervals:
    """Certified intervals, as narrow as pairs or counts of responses allow.

    >>> rng = np.random.default_rng(0)
    >>> true_probs = rng.beta(2, 2, size=2000)
    >>> probs, variance = np.clip(true_probs + rng.normal(0, 0.05, 2000), 0, 1), np.full(2000, 0.01)
    >>> ones = rng.binomial(50, true_probs)
    >>> rows = slice(0, 1500)
    >>> for method in ("pairs", "counts"):
    ...     fitted = fit_intervals(probs[rows], variance[rows], ones[rows], 50, method=method)
    ...     interval = fitted.interval(probs[1500:], variance[1500:])
    ...     held = interval.contains(true_probs[1500:])
    ...     print(f"{method}: width {interval.width.mean():.2f}, {held.mean():.1%} held")
    pairs: width 0.43, 100.0% held
    counts: width 0.27, 99.2% held

    Args:
        probs: predicted probability of response 1, shape `(n,)`; or of every class,
            `(n, num_classes)`.
        variance: the stated variances, of the same shape; may be negative.
        ones: how many responses are 1, or of each class; of the same shape.
        num_responses: how many responses each row has, shape `(n,)` or one number; by default the
            sums of `ones` over the classes. It may depend on the input, but not on what the
            responses were.
        miss_rate: the share of inputs whose p(y|x) may lie outside.
        failure_rate: how often, over calibration sets, that may not hold; divided among the classes
            where each has a certificate of its own.
        method: `pairs` is Algorithm 1, `counts` the test on counts; `auto` takes the narrower (see
            `interval_plan.CLEAR_RATIO`).
        jointly: with classes, whether all classes of an input are to be held together.
        groups: one entry per row; rows of one group may depend on each other. One row of each
            group, drawn at random, is used: the guarantee is about a random row of a random group.
        seed: of the order of the rows, of the draw from groups and of the tests.
    """
    if method not in get_args(IntervalMethod):
        raise ValueError(
            f"method is {method!r}; expected one of {', '.join(get_args(IntervalMethod))}."
        )
    for name, rate in (("miss_rate", miss_rate), ("failure_rate", failure_rate)):
        check_rate(name, rate)
    if num_responses is None and np.ndim(ones) != 2:
        raise ValueError(
            "num_responses is missing; expected how many responses each row has (it is the sum "
            "over classes only where `ones` has one column per class)."
        )
    totals = np.sum(ones, axis=1) if num_responses is None else num_responses
    rows = CountRows(*check_count_rows(probs, variance, ones, totals))
    fewest = check_fewest(int(rows.num_responses.min()), method)
    chooses, certifies = divided(len(rows.probs), groups, seed)

    def certified(rows: CountRows, failure_rate: float) -> Parts:
        plan = plan_intervals(
            rows.take(chooses),
            num_certifying=int(np.count_nonzero(certifies)),
            fewest_responses=fewest,
            miss_rate=miss_rate,
            failure_rate=failure_rate,
            method=method,
            seed=seed,
        )
        stream = IntervalStream(plan, fewest_responses=fewest)
        stream.update(rows, used=certifies)
        return stream.result()

    if jointly:
        parts = certified(rows, failure_rate)
    else:
        columns = rows.columns()
        parts = tuple(certified(column, failure_rate / len(columns))[0] for column in columns)
    return FittedIntervals(
        parts=parts,
        miss_rate=miss_rate,
        failure_rate=failure_rate,
        num_choosing=int(np.count_nonzero(chooses)),
        jointly=jointly,
    )


def check_fewest(fewest_responses: int, method: IntervalMethod) -> int:
    """The fewest responses of any row, if the method can do with them."""
    if method == "pairs" and fewest_responses < 2:
        raise ValueError('method="pairs" needs two responses per row; use "counts", or drop rows.')
    return fewest_responses


def divided(
    num_rows: int, groups: ArrayLike | None = None, seed: int = 0
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which rows choose and which certify; of each group one row, drawn at random, does either.

    >>> chooses, certifies = divided(100)
    >>> int(chooses.sum()), int(certifies.sum()), bool((chooses & certifies).any())
    (20, 80, False)
    """
    keys = keys_of(0, num_rows, seed)
    if groups is None:
        chooses = keys <= choosing_threshold(num_rows, keys)
        return chooses, ~chooses
    labels = np.asarray(groups)
    if labels.shape != (num_rows,):
        raise ValueError(f"groups has shape {labels.shape}; expected ({num_rows},).")
    # In the order of the keys, the first row of each group is a random one of it. Whether the group
    # chooses is drawn by its name: the least of many keys would say how large it is.
    order = np.argsort(keys)
    names, first = np.unique(labels[order], return_index=True)
    drawn = order[first]
    of_names = group_keys(names)
    chooses, certifies = np.zeros((2, num_rows), dtype=np.bool_)
    chosen = of_names <= choosing_threshold(len(names), of_names)
    chooses[drawn[chosen]] = certifies[drawn[~chosen]] = True
    return chooses, certifies


def choosing_threshold(num_units: int, keys: UnsignedArray | None = None) -> np.uint64:
    """Rows (or groups) with a key up to this one choose.

    Of few units a certain number, by the ranks of their keys; of many a share, without a sort.

    Args:
        num_units: how many there are in the whole calibration set, two at least.
        keys: of all of them; not needed for many.
    """
    if num_units < 2:
        raise ValueError(f"{num_units} row(s) or group(s) came; expected at least 2.")
    wanted = min(max(int(CHOOSING_SHARE * num_units), 1), MAX_CHOOSING_ROWS)
    if num_units > _MAX_RANKED:
        return np.uint64(int(wanted / num_units * 2**64))
    known = keys_of(0, num_units) if keys is None else keys
    return np.partition(known, wanted - 1)[wanted - 1]
