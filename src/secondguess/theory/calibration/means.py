"""Confidence bounds for the mean of a bounded variable, from one array or from a stream.

Three methods, each valid for every distribution on [low, high] and every sample size: `hoeffding`
(the width knows only the range), `bernstein` (Maurer and Pontil; it learns the variance) and
`betting` (Waudby-Smith and Ramdas, in blocks; the tightest, and the default). The one-shot
functions are a `BoundedMean` fed once. Values are one-dimensional, one entry per row; rows must be
independent draws. Their order does not matter: betting takes them in a random order of its own
(`scatter.py`), and the other two look at sums only.
"""

from __future__ import annotations

import math
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from secondguess._arrays import FloatArray, check_at_least, check_rate
from secondguess.theory.calibration.betting import Parts, betting_upper
from secondguess.theory.calibration.scatter import LANES, NUM_PARTS, parts_of
from secondguess.theory.calibration.tally import Grid, Moments, Tally

MeanMethod = Literal["betting", "bernstein", "hoeffding"]

PIECE = LANES << 12
"""Rows per pass: the scratch arrays stay in cache."""


def mean_upper_bound(
    values: ArrayLike,
    *,
    low: float,
    high: float,
    failure_rate: float,
    method: MeanMethod = "betting",
    seed: int = 0,
) -> float:
    """A number that the mean exceeds with probability at most `failure_rate`.

    >>> values = np.random.default_rng(1).beta(2, 6, size=1000)  # mean 0.25
    >>> for method in ("betting", "bernstein", "hoeffding"):
    ...     bound = mean_upper_bound(values, low=0, high=1, failure_rate=0.05, method=method)
    ...     print(f"{method:9} {bound:.3f}")
    betting   0.261
    bernstein 0.271
    hoeffding 0.289

    Args:
        values: independent draws, shape `(n,)`, all in [low, high].
        low: the least possible value (possible, not observed).
        high: the largest possible value.
        failure_rate: how often the bound may fail, in (0, 1).
        method: `betting`, `bernstein` or `hoeffding`.
        seed: of the random order that betting takes the rows in; not to be chosen by the result.
    """
    return _fed_once(values, low, high, method, seed).upper(failure_rate)


def mean_lower_bound(
    values: ArrayLike,
    *,
    low: float,
    high: float,
    failure_rate: float,
    method: MeanMethod = "betting",
    seed: int = 0,
) -> float:
    """A number that the mean is below with probability at most `failure_rate`.

    >>> values = np.random.default_rng(1).beta(2, 6, size=1000)  # mean 0.25
    >>> print(f"{mean_lower_bound(values, low=0, high=1, failure_rate=0.05):.3f}")
    0.242

    The arguments are those of `mean_upper_bound`.
    """
    return _fed_once(values, low, high, method, seed).lower(failure_rate)


def mean_interval(
    values: ArrayLike,
    *,
    low: float,
    high: float,
    failure_rate: float,
    method: MeanMethod = "betting",
    seed: int = 0,
) -> tuple[float, float]:
    """Both bounds, each with half of the failure rate.

    >>> values = np.random.default_rng(1).beta(2, 6, size=1000)  # mean 0.25
    >>> low, high = mean_interval(values, low=0, high=1, failure_rate=0.05)
    >>> print(f"{low:.3f} to {high:.3f}")
    0.241 to 0.263

    The arguments are those of `mean_upper_bound`.
    """
    return _fed_once(values, low, high, method, seed).interval(failure_rate)


class BoundedMean:
    """Values in [low, high] read as a stream; bounds for their mean once all have been read.

    Rows are independent draws; they may come in any order, sorted or joined end to end, because
    each is put into its place of a random order by its position in the stream. Memory does not
    depend on the number of rows, which need not be known. Several processes may share the reading:
    give each its own `BoundedMean` and the positions of its rows, then `merge` them. The result is
    the same to the last bit, whoever read what and in which order.

    >>> values = np.random.default_rng(1).beta(2, 6, size=1000)
    >>> whole, first, second = BoundedMean(0, 1), BoundedMean(0, 1), BoundedMean(0, 1)
    >>> whole.update(values)
    >>> second.update(values[300:], start=300)
    >>> first.update(values[:300])
    >>> second.merge(first)
    >>> second.num_rows, second.upper(failure_rate=0.05) == whole.upper(failure_rate=0.05)
    (1000, True)

    The promise is for one look at a stream whose length does not depend on its values.

    Args:
        low: the least possible value.
        high: the largest possible value.
        method: `betting`, `bernstein` or `hoeffding`.
        seed: of the random order, the same for all processes. The promise is over values and
            seeds: do not choose it by the result.
    """

    def __init__(
        self, low: float, high: float, method: MeanMethod = "betting", seed: int = 0
    ) -> None:
        if not (math.isfinite(low) and math.isfinite(high) and low < high):
            raise ValueError(f"the range is [{low}, {high}]; expected finite ends with low < high.")
        if method not in get_args(MeanMethod):
            raise ValueError(
                f"method is {method!r}; expected one of {', '.join(get_args(MeanMethod))}."
            )
        self.low, self.high = float(low), float(high)
        self.method: MeanMethod = method
        # Values are kept relative to the possible one nearest to zero: no cancellation when the
        # range is far from zero or the mean is small against it.
        self._origin = min(max(0.0, self.low), self.high)
        grid = Grid.over(self.low - self._origin, self.high - self._origin)
        self.seed = seed
        self._tally = Tally(grid, NUM_PARTS)
        self._moments = Moments(self.high - self.low)
        self._positions = Positions()
        self.num_rows = 0
        """How many rows have been read and used."""

    @property
    def next_row(self) -> int:
        """The position after the last one read."""
        return self._positions.end

    @property
    def mean(self) -> float:
        """The mean of the rows."""
        self._check_complete()
        if self.method == "betting":
            total = int(self._tally.entries().total.sum())
            return self._origin + total / self.num_rows * self._tally.grid.unit
        return self._origin + self._moments.mean

    def update(
        self,
        values: ArrayLike,
        start: int | None = None,
        *,
        used: NDArray[np.bool_] | None = None,
    ) -> None:
        """Read a chunk of rows.

        Args:
            values: shape `(n,)`, all in [low, high].
            start: the position of the first of them in the whole stream; by default they follow
                the last position read.
            used: which of them count; by default all. The choice must not depend on the values.
        """
        chunk = np.asarray(values, dtype=np.float64)
        if chunk.ndim != 1:
            raise ValueError(f"values has shape {chunk.shape}; expected (n,), one value per row.")
        row = self.next_row if start is None else check_at_least("start", start, 0)
        self._check_range(chunk, row)
        if self._origin:
            chunk = chunk - self._origin
        for first in range(0, len(chunk), PIECE):
            piece = chunk[first : first + PIECE]
            chosen = slice(None) if used is None else used[first : first + PIECE]
            if self.method == "betting":
                parts = parts_of(row + first, len(piece), self.seed)
                self._tally.add(piece[chosen], parts[chosen])
            else:  # these look at sums only
                self._moments.add(piece[chosen])
        self.num_rows += len(chunk) if used is None else int(np.count_nonzero(used))
        self._positions.add(row, len(chunk))

    def merge(self, other: BoundedMean) -> None:
        """Join the rows that another process read."""
        mine, theirs = ((m.low, m.high, m.method, m.seed) for m in (self, other))
        if mine != theirs:
            raise ValueError(
                f"cannot merge (low, high, method, seed) = {theirs} into {mine}; expected equal "
                f"ones."
            )
        self._tally = self._tally.merged(other._tally)
        self._moments.merge(other._moments)
        self.num_rows += other.num_rows
        self._positions.merge(other._positions)

    def upper(self, failure_rate: float) -> float:
        """A number that the mean exceeds with probability at most `failure_rate`, in (0, 1)."""
        self._check_complete()
        rate = check_rate("failure_rate", failure_rate)
        if self.method != "betting":
            return min(self.mean + self._radius(rate), self.high)
        # The tally rounds a value by half a unit at most, and so its mean.
        bound = betting_upper(Parts.of(self._tally, self.seed), rate) + self._tally.grid.unit / 2
        return min(self._origin + bound, self.high)

    def lower(self, failure_rate: float) -> float:
        """A number that the mean is below with probability at most `failure_rate`."""
        self._check_complete()
        rate = check_rate("failure_rate", failure_rate)
        if self.method != "betting":
            return max(self.mean - self._radius(rate), self.low)
        mirrored = Parts.of(self._tally, self.seed).mirrored()
        bound = betting_upper(mirrored, rate) + self._tally.grid.unit / 2
        return max(self._origin - bound, self.low)

    def interval(self, failure_rate: float) -> tuple[float, float]:
        """Both bounds, each with half of the failure rate."""
        half = check_rate("failure_rate", failure_rate) / 2
        return self.lower(half), self.upper(half)

    def _radius(self, rate: float) -> float:
        """How far a mean of bounded values strays to one side.

        Hoeffding: range sqrt(log(1/f) / 2n). Maurer and Pontil (2009, theorem 4), with s² the
        sample variance: sqrt(2 s² log(2/f) / n) + 7 range log(2/f) / (3 (n - 1)). Half a unit is
        added for the rounding of the values.
        """
        n, width = self.num_rows, self.high - self.low
        rounding = self._moments.unit / 2
        if self.method == "hoeffding":
            return width * math.sqrt(math.log(1 / rate) / (2 * n)) + rounding
        if n == 1:
            return width
        log_rate = math.log(2 / rate)
        spread = math.sqrt(2 * self._moments.variance * log_rate / n)
        return spread + 7 * width * log_rate / (3 * (n - 1)) + rounding

    def _check_range(self, chunk: FloatArray, row: int) -> None:
        # A NaN makes both comparisons false.
        if not len(chunk) or (chunk.min() >= self.low and chunk.max() <= self.high):
            return
        at = int(np.argmax(~((chunk >= self.low) & (chunk <= self.high))))
        raise ValueError(
            f"values[{row + at}] is {chunk[at].item()!r}; expected a number in "
            f"[{self.low}, {self.high}], the range that was stated."
        )

    def check_positions(self) -> None:
        """Complain unless every position up to the last one was read once."""
        self._positions.check_complete()

    def _check_complete(self) -> None:
        self.check_positions()
        if not self.num_rows:
            raise ValueError("no rows were read; expected at least one.")


class Positions:
    """Which positions have been seen: how many, and the sums of their first three powers.

    Those of 0 to n - 1 are known. Rows that were missed and others that were read twice would have
    to agree in all four numbers to go unnoticed.
    """

    def __init__(self) -> None:
        self.end = 0
        self._sums = [0, 0, 0, 0]

    def add(self, start: int, size: int) -> None:
        """See positions start to start + size - 1."""
        last, before = _power_sums(start + size), _power_sums(start)
        self._sums = [s + x - y for s, x, y in zip(self._sums, last, before, strict=True)]
        self.end = max(self.end, start + size) if size else self.end

    def merge(self, other: Positions) -> None:
        """Join the positions that another process saw."""
        self._sums = [s + x for s, x in zip(self._sums, other._sums, strict=True)]
        self.end = max(self.end, other.end)

    def check_complete(self) -> None:
        """Complain unless every position up to the last one was seen once."""
        if self._sums != _power_sums(self.end):
            raise ValueError(
                f"{self._sums[0]} rows were read and the last one is at position {self.end - 1}; "
                f"expected every position exactly once (merge all shards, give each its own start)."
            )


def _power_sums(end: int) -> list[int]:
    """The sums over 0 to end - 1 of i**0 to i**3."""
    triangle = end * (end - 1) // 2
    return [end, triangle, triangle * (2 * end - 1) // 3, triangle**2]


def _fed_once(
    values: ArrayLike, low: float, high: float, method: MeanMethod, seed: int
) -> BoundedMean:
    stream = BoundedMean(low, high, method, seed)
    stream.update(values)
    return stream
