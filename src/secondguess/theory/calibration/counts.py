"""What a count of k responses says about an interval: the test behind intervals from counts.

A row has c ones among k independent responses, each one with probability p. For an interval [a, b]
the randomised test below calls the row a miss with probability at least `detection_rate` if p is
outside; so P(p outside) is at most the share of rows called a miss, divided by `detection_rate`.
Whether a row is called a miss changes once as the interval of a nested family grows: each row gives
one number, its score, the least radius at which it is no longer called a miss.

Arrays have one entry per row. The proofs are on the page "Intervals from counts" of the
documentation; the certificate over many rows is in `count_stream.py`.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy import special

from secondguess._arrays import FloatArray, IntArray
from secondguess.theory.calibration.nested import NestedFamily
from secondguess.theory.calibration.scatter import mixed

NUM_SLOTS = 32
"""The uniform draw of a randomised test is rounded down to one of so many values.

Rounded down, a test calls more rows a miss, never fewer: it stays valid."""

_LARGEST_TABLE = 500
"""Rows with more responses have thresholds of their own: a table for each k would need too much."""

_ROUNDING = 1e-12
_NEWTON_STEPS = 60


@lru_cache(maxsize=512)
def upper_thresholds(num_responses: int, detection_rate: float) -> FloatArray:
    """How far up an interval must reach for a count not to speak against its upper end.

    Entry (c, j) is the least b with (1 - u) P_b(C > c) + u P_b(C >= c) >= detection_rate, where C
    is Binomial(k, b) and u = j / NUM_SLOTS. A row with c ones and draw u is called a miss of [., b]
    if and only if b is less. Over u uniform that is the randomised test that calls a miss with
    probability `detection_rate` exactly when p = b, and more often when p > b, because the left
    side is the mean of a function that grows with C. By symmetry the thresholds of the lower end
    are one minus those of k - c.

    >>> upper_thresholds(2, 0.5)[:, 0].round(3)  # u = 0: the medians of Beta(c + 1, k - c)
    array([0.293, 0.707, 1.   ])

    Args:
        num_responses: k, 1 or more.
        detection_rate: in (0, 1).

    Returns:
        Shape `(k + 1, NUM_SLOTS)`, in [0, 1], falling along the second axis.
    """
    c, u = np.arange(num_responses + 1.0)[:, None], np.arange(NUM_SLOTS) / NUM_SLOTS
    thresholds = _least_reach(c, np.array(float(num_responses)), u, detection_rate)
    thresholds.flags.writeable = False
    return thresholds


def _least_reach(
    c: FloatArray, num_responses: FloatArray, u: FloatArray, detection_rate: float
) -> FloatArray:
    """The thresholds of `upper_thresholds` for any c, k and u, shapes as they broadcast."""
    shape = np.broadcast_shapes(c.shape, num_responses.shape, u.shape)
    low, high = np.zeros(shape), np.ones(shape)
    b = np.broadcast_to((c + 1 - u) / (num_responses + 1), shape).copy()
    log_binomial = -np.log(num_responses + 1.0) - special.betaln(c + 1, num_responses - c + 1)
    for _ in range(_NEWTON_STEPS):
        # P(C >= c) = I_b(c, k - c + 1), whose slope is k Bin(c - 1; k - 1, b) = c Bin(c; k, b) / b.
        at_least = np.where(c > 0, special.betainc(np.maximum(c, 1), num_responses - c + 1, b), 1)
        mass = np.exp(log_binomial + special.xlogy(c, b) + special.xlog1py(num_responses - c, -b))
        above = np.maximum(at_least - mass, 0.0)
        value = (1 - u) * above + u * at_least - detection_rate
        enough = value >= 0
        high, low = np.where(enough, b, high), np.where(enough, low, b)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            slope = mass * ((1 - u) * (num_responses - c) / (1 - b) + u * c / b)
            newton = b - value / slope
        # Newton's step where it stays inside the bracket, else its middle.
        inside = (newton > low) & (newton < high)
        following = np.where(inside, newton, (low + high) / 2)
        if np.abs(following - b).max() < 1e-15:
            break
        b = following
    return np.minimum(high + _ROUNDING, 1.0)


def uniform_slots(start: int, num_rows: int, seed: int) -> NDArray[np.int64]:
    """The rounded uniform draws of rows `start` to `start + num_rows - 1`, from their positions.

    They depend neither on the data nor on how the rows are divided among processes.

    >>> together = uniform_slots(0, 6, seed=1)
    >>> bool((together[2:] == uniform_slots(2, 4, seed=1)).all())
    True
    """
    # Apart from all that `scatter.hashed` draws, whose offsets are digests.
    offset = np.uint64((seed * 0xD1342543DE82EF95 + 1) % 2**64)
    bits = mixed(np.arange(start, start + num_rows, dtype=np.uint64) + offset)
    return (bits >> np.uint64(64 - NUM_SLOTS.bit_length() + 1)).astype(np.int64)


def count_scores(
    family: NestedFamily,
    probs: FloatArray,
    variance: FloatArray,
    ones: IntArray,
    num_responses: IntArray,
    slots: NDArray[np.int64],
    detection_rate: float,
) -> FloatArray:
    """The score of each row: the least radius at which it is not called a miss, maybe infinite.

    >>> family = NestedFamily("symmetric", 0.01)
    >>> probs, variance, slots = np.full(3, 0.5), np.full(3, 0.01), np.zeros(3, int)
    >>> ones, num_responses = np.array([5, 9, 10]), np.full(3, 10)
    >>> count_scores(family, probs, variance, ones, num_responses, slots, 0.5).round(2)
    array([0.48, 4.33, 5.  ])

    Args:
        family: the family of intervals.
        probs: shape `(n,)`.
        variance: of the same shape.
        ones: how many of a row's responses are ones.
        num_responses: how many responses a row has.
        slots: the draws of `uniform_slots`.
        detection_rate: see `upper_thresholds`.
    """
    upper, lower = np.empty(len(ones)), np.empty(len(ones))
    small = num_responses <= _LARGEST_TABLE
    for rows, reach in ((small, _reach_by_tables), (~small, _reach_one_by_one)):
        if rows.any():
            c, k, slot = ones[rows], num_responses[rows], slots[rows]
            upper[rows], below = reach(c, k, slot, detection_rate)
            lower[rows] = 1.0 - below
    return family.radius_to_hold(probs, variance, lower, upper)


def _reach_by_tables(
    ones: IntArray, num_responses: IntArray, slots: NDArray[np.int64], detection_rate: float
) -> tuple[FloatArray, FloatArray]:
    """The threshold of each row, and that of its mirror image, from a table for each k."""
    table, starts = _joined_thresholds(num_responses, detection_rate)
    first = starts[num_responses] if len(starts) > 1 else starts[0]
    # Row c of k's table is at `first + c`; the mirrored row is k - c.
    upper = table[(first + ones) * NUM_SLOTS + slots]
    return upper, table[(first + num_responses - ones) * NUM_SLOTS + slots]


def _reach_one_by_one(
    ones: IntArray, num_responses: IntArray, slots: NDArray[np.int64], detection_rate: float
) -> tuple[FloatArray, FloatArray]:
    """The same for any k: in memory that does not grow with it."""
    k, u = num_responses.astype(np.float64), slots / NUM_SLOTS
    upper = _least_reach(ones.astype(np.float64), k, u, detection_rate)
    return upper, _least_reach(k - ones, k, u, detection_rate)


def _joined_thresholds(
    num_responses: IntArray, detection_rate: float
) -> tuple[FloatArray, IntArray]:
    """The tables of all k that occur, end to end, and where the table of each k starts."""
    low, high = int(num_responses.min()), int(num_responses.max())
    if low == high:
        return upper_thresholds(low, detection_rate).ravel(), np.zeros(1, np.int64)
    present = np.unique(num_responses)
    starts = np.zeros(high + 1, np.int64)
    starts[present] = np.concatenate([[0], np.cumsum(present[:-1] + 1)])
    tables = [upper_thresholds(int(k), detection_rate).ravel() for k in present]
    return np.concatenate(tables), starts
