"""Intervals certified from counts of responses: many rows' scores to one radius, in one pass.

Every row of the calibration set is called a miss at radius r or not (`counts.py`); these calls are
independent, and their mean is at least `detection_rate` times P(p outside the interval of radius
r). So the number of misses among n rows has at most the binomial tail, which tests each radius
exactly. Radii are tested from the largest down until a test fails. No correction for the many tests
is needed: the intervals are nested, so to certify any radius that misses too often one has to
reject the first such radius, one fixed hypothesis.

A stream keeps a histogram of scores: memory does not grow with the rows, and the order of the rows
does not matter. Arrays have one entry per row, or one row per input and one column per class.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from secondguess._arrays import (
    MAX_COUNT,
    FloatArray,
    IntArray,
    as_floats,
    check_at_least,
    check_rate,
    same_shape,
)
from secondguess.theory.calibration.counts import count_scores, uniform_slots
from secondguess.theory.calibration.means import Positions
from secondguess.theory.calibration.nested import NestedFamily
from secondguess.theory.calibration.products import BadRowError
from secondguess.theory.records import Interval, RestsOn

_CELLS_PER_OCTAVE = 256
_LOWEST, _HIGHEST = -20, 20  # radii from 2**-20 to 2**20, then infinity
_NUM_CELLS = (_HIGHEST - _LOWEST) * _CELLS_PER_OCTAVE + 2
_PIECE = 1 << 16  # rows per pass: the scratch arrays stay in cache


@dataclass(frozen=True, kw_only=True, slots=True)
class CountIntervals:
    """A radius that was certified for one miss rate, and the intervals that follow.

    >>> fitted = CountIntervals(
    ...     family=NestedFamily("symmetric", 0.01), detection_rate=0.5, radius=2.0, miss_rate=0.1,
    ...     failure_rate=0.05, num_rows=1500, num_misses=60, num_allowed=60, jointly=False,
    ... )
    >>> interval = fitted.interval([0.5], [0.0025])
    >>> interval.lower, interval.upper, str(interval.rests_on)
    (array([0.3]), array([0.7]), 'guaranteed by a calibration set')

    Attributes:
        family: the family of intervals.
        detection_rate: how often a miss is seen, at least.
        radius: the certified radius; infinite (all of [0, 1]) where there were too few rows.
        miss_rate: the share of inputs whose p(y|x) may lie outside.
        failure_rate: how often, over calibration sets, the guarantee may not hold.
        num_rows: the size of the calibration set.
        num_misses: rows called a miss at this radius.
        num_allowed: how many the test allows; negative where even none would not do.
        jointly: whether an input is missed where any of its classes is.
    """

    family: NestedFamily
    detection_rate: float
    radius: float
    miss_rate: float
    failure_rate: float
    num_rows: int
    num_misses: int
    num_allowed: int
    jointly: bool

    def __post_init__(self) -> None:
        for name in ("miss_rate", "failure_rate"):
            check_rate(name, getattr(self, name))
        if not (0 < self.detection_rate <= 1 and self.radius >= 0):
            raise ValueError(
                f"detection_rate is {self.detection_rate!r} and radius {self.radius!r}; expected a "
                f"rate in (0, 1] and a radius of 0 or more."
            )
        check_at_least("num_misses", self.num_misses, 0)
        check_at_least("num_rows", self.num_rows, max(1, self.num_misses))

    def interval(self, probs: ArrayLike, variance: ArrayLike) -> Interval:
        """Closed intervals within [0, 1], for predictions of any shape.

        They hold the true p(y|x) for at least 1 - miss_rate of new inputs, except with probability
        `failure_rate` over the calibration set.
        """
        p, v = as_floats("probs", probs), as_floats("variance", variance)
        same_shape(probs=p, variance=v)
        return Interval(*self.family.ends(p, v, self.radius), RestsOn.CALIBRATION_SET)


class CountStream:
    """Counts of responses read in chunks, possibly by several processes, in any order of rows.

    >>> rng = np.random.default_rng(0)
    >>> stream = CountStream(NestedFamily("symmetric", 0.01), detection_rate=0.5)
    >>> for _ in range(3):
    ...     true_probs = rng.uniform(0.4, 0.6, size=500)
    ...     ones = rng.binomial(20, true_probs)
    ...     stream.update(np.full(500, 0.5), np.full(500, 0.01), ones, 20)
    >>> fitted = stream.result(miss_rate=0.1, failure_rate=0.05)
    >>> fitted.num_rows, round(fitted.radius, 2)
    (1500, 2.51)

    Args:
        family: the family of intervals, fixed before looking at these rows.
        detection_rate: how often a miss is to be seen, in (0, 1); fixed likewise.
        seed: of the tests' random draws, which belong to the positions of the rows.
    """

    def __init__(self, family: NestedFamily, *, detection_rate: float, seed: int = 0) -> None:
        self.family = family
        self.detection_rate = check_rate("detection_rate", detection_rate)
        self.seed = check_at_least("seed", seed, 0)
        self.jointly = False
        self._cells = np.zeros(_NUM_CELLS, dtype=np.int64)
        self._positions = Positions()

    @property
    def num_rows(self) -> int:
        """How many rows have been read and used."""
        return int(self._cells.sum())

    def update(
        self,
        probs: ArrayLike,
        variance: ArrayLike,
        ones: ArrayLike,
        num_responses: ArrayLike,
        start: int | None = None,
        *,
        used: NDArray[np.bool_] | None = None,
    ) -> None:
        """Read rows; `start` is the position of the first one in the whole calibration set.

        Args:
            probs: shape `(n,)`; or `(n, num_classes)`, and then a row is called a miss if any of
                its classes is: the intervals hold for all classes of an input together.
            variance: of the same shape; may be negative.
            ones: how many responses are ones (or of each class), of the same shape.
            num_responses: how many responses each row has, shape `(n,)`, or one number for all.
            start: by default the rows follow those read so far.
            used: which of them count; by default all. It must not depend on responses.
        """
        position = self._positions.end if start is None else check_at_least("start", start, 0)
        rows = check_count_rows(probs, variance, ones, num_responses, position)
        size = len(rows[0])
        for first in range(0, size, _PIECE):
            piece = slice(first, first + _PIECE)
            p, v, c, k = (array[piece] for array in rows)
            slots = uniform_slots(position + first, len(p), self.seed)
            if used is not None:
                p, v, c, k, slots = (array[used[piece]] for array in (p, v, c, k, slots))
            if len(p):
                self._count(self._scores(p, v, c, k, slots))
        self._positions.add(position, size)
        self.jointly = rows[0].ndim == 2

    def update_scores(self, scores: FloatArray, start: int | None = None) -> None:
        """Read rows whose scores are known; the draws are those of their positions."""
        position = self._positions.end if start is None else check_at_least("start", start, 0)
        self._count(scores)
        self._positions.add(position, len(scores))

    def merge(self, other: CountStream) -> None:
        """Join the rows that another process read."""
        mine, theirs = ((s.family, s.detection_rate, s.seed) for s in (self, other))
        if mine != theirs:
            raise ValueError(
                f"cannot merge (family, detection_rate, seed) = {theirs} into {mine}; expected "
                f"equal ones."
            )
        self._cells += other._cells
        self.jointly |= other.jointly
        self._positions.merge(other._positions)

    def result(self, *, miss_rate: float, failure_rate: float) -> CountIntervals:
        """The smallest certified radius.

        Each call is a certificate by itself; for two miss rates that are to hold together, give
        each half of the failure rate.
        """
        self._positions.check_complete()
        if not (num_rows := self.num_rows):
            raise ValueError("no rows were read; expected at least one.")
        rate = self.detection_rate * check_rate("miss_rate", miss_rate)
        allowed = allowed_misses(num_rows, rate, check_rate("failure_rate", failure_rate))
        misses = num_rows - np.cumsum(self._cells)  # with a score above each radius of the grid
        cell = int(np.argmax(misses <= allowed)) if allowed >= 0 else _NUM_CELLS - 1
        return CountIntervals(
            family=self.family,
            detection_rate=self.detection_rate,
            radius=_radius_of(cell),
            miss_rate=miss_rate,
            failure_rate=failure_rate,
            num_rows=num_rows,
            num_misses=int(misses[cell]),
            num_allowed=allowed,
            jointly=self.jointly,
        )

    def _count(self, scores: FloatArray) -> None:
        self._cells += np.bincount(_cell_of(scores), minlength=_NUM_CELLS)

    def _scores(
        self, p: FloatArray, v: FloatArray, c: IntArray, k: IntArray, slots: IntArray
    ) -> FloatArray:
        if p.ndim == 1:
            return count_scores(self.family, p, v, c, k, slots, self.detection_rate)
        columns = [
            count_scores(self.family, p[:, i], v[:, i], c[:, i], k, slots, self.detection_rate)
            for i in range(p.shape[1])
        ]
        return np.max(columns, axis=0)


def allowed_misses(num_rows: int, rate: float, failure_rate: float) -> int:
    """The most misses among n rows that still show a rate below `rate`; -1 where none do.

    The largest x with P(Binomial(n, rate) <= x) <= failure_rate.

    >>> [allowed_misses(n, 0.05, 0.05) for n in (50, 59, 1500)]
    [-1, 0, 60]
    """
    guess = float(special.bdtrik(failure_rate, num_rows, rate))
    allowed = int(guess) + 1 if np.isfinite(guess) else 0
    while allowed >= 0 and special.bdtr(float(allowed), num_rows, rate) > failure_rate:
        allowed -= 1
    return allowed


def check_count_rows(
    probs: ArrayLike, variance: ArrayLike, ones: ArrayLike, num_responses: ArrayLike, start: int = 0
) -> tuple[FloatArray, FloatArray, IntArray, IntArray]:
    """Rows of counts as arrays; `start` is the number of the first one in complaints."""
    p, v = np.asarray(probs, dtype=np.float64), np.asarray(variance, dtype=np.float64)
    c, k = np.asarray(ones), np.asarray(num_responses)
    if p.ndim not in (1, 2):
        raise ValueError(f"probs has shape {p.shape}; expected (n,) or (n, num_classes).")
    same_shape(probs=p, variance=v, ones=c)
    if k.shape not in ((), (len(p),)):
        raise ValueError(
            f"num_responses has shape {k.shape}; expected ({len(p)},) or a single number."
        )
    k = np.broadcast_to(k, (len(p),))
    total = k if p.ndim == 1 else k[:, None]
    for name, array, bad, expected in (
        ("probs", p, ~((p >= 0) & (p <= 1)), "a probability in [0, 1]"),
        ("variance", v, ~np.isfinite(v), "a finite number"),
        (
            "num_responses",
            k,
            ~((k >= 1) & (k <= MAX_COUNT) & (k == np.floor(k))),
            f"a whole number from 1 to {MAX_COUNT:,}",
        ),
        ("ones", c, ~((c >= 0) & (c <= total) & (c == np.floor(c))), "from 0 to num_responses"),
    ):
        if bad.any():
            at = [int(i) for i in np.argwhere(bad)[0]]
            problem = f"is {array[tuple(at)].item()!r}; expected {expected}."
            raise BadRowError(name, start + at[0], at[1] if len(at) > 1 else None, problem)
    return p, v, c.astype(np.int64, copy=False), k.astype(np.int64, copy=False)


def _cell_of(scores: FloatArray) -> IntArray:
    """The cell of the smallest radius of the grid that is no less than each score."""
    with np.errstate(divide="ignore"):
        # The slack rounds up what ends on a radius of the grid but for rounding.
        cells = np.ceil(np.log2(scores) * _CELLS_PER_OCTAVE + 1e-6)
    cells -= _LOWEST * _CELLS_PER_OCTAVE
    return np.clip(cells, 0, _NUM_CELLS - 1).astype(np.int64)


def _radius_of(cell: int) -> float:
    if cell == _NUM_CELLS - 1:
        return float("inf")
    return 2.0 ** (cell / _CELLS_PER_OCTAVE + _LOWEST)
