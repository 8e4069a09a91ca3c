"""Confidence bounds for the mean of a bounded variable, from one array or from a stream.

Three methods, each valid for every distribution on [low, high] and every sample size: `hoeffding`
(the width knows only the range), `bernstein` (Maurer and Pontil; it learns the variance) and
`betting` (Waudby-Smith and Ramdas, in blocks; the tightest, and the default). The one-shot
functions are a `BoundedMean` fed once. Values are one-dimensional, one entry a row; rows must be
independent draws, in an order that does not depend on their values.
"""

from __future__ import annotations

import math
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from secondguess._arrays import FloatArray, check_at_least, check_rate
from secondguess.theory.calibration.betting import (
    Block,
    Grid,
    betting_lower,
    betting_upper,
    block_of,
    block_start,
)

MeanMethod = Literal["betting", "bernstein", "hoeffding"]


def mean_upper_bound(
    values: ArrayLike,
    *,
    low: float,
    high: float,
    failure_rate: float,
    method: MeanMethod = "betting",
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
    """
    return _fed_once(values, low, high, method).upper(failure_rate)


def mean_lower_bound(
    values: ArrayLike,
    *,
    low: float,
    high: float,
    failure_rate: float,
    method: MeanMethod = "betting",
) -> float:
    """A number that the mean is below with probability at most `failure_rate`.

    >>> values = np.random.default_rng(1).beta(2, 6, size=1000)  # mean 0.25
    >>> print(f"{mean_lower_bound(values, low=0, high=1, failure_rate=0.05):.3f}")
    0.239

    The arguments are those of `mean_upper_bound`.
    """
    return _fed_once(values, low, high, method).lower(failure_rate)


def mean_interval(
    values: ArrayLike,
    *,
    low: float,
    high: float,
    failure_rate: float,
    method: MeanMethod = "betting",
) -> tuple[float, float]:
    """Both bounds, each with half of the failure rate.

    >>> values = np.random.default_rng(1).beta(2, 6, size=1000)  # mean 0.25
    >>> low, high = mean_interval(values, low=0, high=1, failure_rate=0.05)
    >>> print(f"{low:.3f} to {high:.3f}")
    0.238 to 0.262

    The arguments are those of `mean_upper_bound`.
    """
    return _fed_once(values, low, high, method).interval(failure_rate)


class BoundedMean:
    """Values in [low, high] read as a stream; bounds for their mean at the end, or at any time.

    Memory does not depend on the number of rows. A stream may be read by several processes: give
    each its own `BoundedMean` and the position of its rows in the whole stream, then `merge` them.

    >>> values = np.random.default_rng(1).beta(2, 6, size=1000)
    >>> first, second = BoundedMean(0, 1), BoundedMean(0, 1)
    >>> first.update(values[:300])
    >>> second.update(values[300:], start=300)
    >>> first.merge(second)
    >>> first.num_rows, round(first.upper(failure_rate=0.05), 3)
    (1000, 0.261)

    Args:
        low: the least possible value.
        high: the largest possible value.
        method: `betting`, `bernstein` or `hoeffding`.
    """

    def __init__(self, low: float, high: float, method: MeanMethod = "betting") -> None:
        if not (math.isfinite(low) and math.isfinite(high) and low < high):
            raise ValueError(f"the range is [{low}, {high}]; expected finite ends with low < high.")
        if method not in get_args(MeanMethod):
            raise ValueError(
                f"method is {method!r}; expected one of {', '.join(get_args(MeanMethod))}."
            )
        self.low, self.high = float(low), float(high)
        self.method: MeanMethod = method
        # Sums are kept relative to the possible value nearest to zero: no cancellation when the
        # range is far from zero or the mean is small against it.
        self._origin = min(max(0.0, self.low), self.high)
        self._grid = Grid.over(self.low - self._origin, self.high - self._origin)
        self._blocks: dict[int, Block] = {}
        self._end = 0

    @property
    def num_rows(self) -> int:
        """How many rows have been read."""
        return sum(block.count for block in self._blocks.values())

    @property
    def next_row(self) -> int:
        """The position of the row after the last one read."""
        return self._end

    @property
    def mean(self) -> float:
        """The mean of the rows read so far."""
        self._check_complete()
        return self._origin + sum(b.total for b in self._blocks.values()) / self.num_rows

    def update(self, values: ArrayLike, start: int | None = None) -> None:
        """Read a chunk of rows.

        Args:
            values: shape `(n,)`, all in [low, high].
            start: the position of the first of them in the whole stream; by default they follow
                the rows read so far.
        """
        chunk = np.asarray(values, dtype=np.float64)
        if chunk.ndim != 1:
            raise ValueError(f"values has shape {chunk.shape}; expected (n,), one value a row.")
        row = self._end if start is None else check_at_least("start", start, 0)
        self._check_range(chunk, row)
        if self._origin:
            chunk = chunk - self._origin
        end = row + len(chunk)
        while len(chunk):
            index = block_of(row)
            part = chunk[: block_start(index + 1) - row]
            grid = self._grid if self.method == "betting" else None
            self._blocks.setdefault(index, Block()).read(part, grid)
            chunk, row = chunk[len(part) :], row + len(part)
        self._end = max(self._end, end)

    def merge(self, other: BoundedMean) -> None:
        """Join the rows that another process read."""
        mine, theirs = ((m.low, m.high, m.method) for m in (self, other))
        if mine != theirs:
            raise ValueError(
                f"cannot merge (low, high, method) = {theirs} into {mine}; expected equal ones."
            )
        for index, block in other._blocks.items():
            self._blocks.setdefault(index, Block()).add(block)
        self._end = max(self._end, other._end)

    def upper(self, failure_rate: float, *, anytime: bool = False) -> float:
        """A number that the mean exceeds with probability at most `failure_rate`.

        Args:
            failure_rate: how often the bound may fail, in (0, 1).
            anytime: False promises that for one look at a stream whose length was fixed beforehand;
                True for all looks, after any number of rows, together.
        """
        blocks = self._complete_blocks()
        if self.method == "betting":
            bound = self._origin + betting_upper(
                blocks, self._grid, check_rate("failure_rate", failure_rate), anytime=anytime
            )
        else:
            bound = self.mean + self._radius(failure_rate, anytime)
        return min(bound, self.high)

    def lower(self, failure_rate: float, *, anytime: bool = False) -> float:
        """A number that the mean is below with probability at most `failure_rate`; see `upper`."""
        blocks = self._complete_blocks()
        if self.method == "betting":
            bound = self._origin + betting_lower(
                blocks, self._grid, check_rate("failure_rate", failure_rate), anytime=anytime
            )
        else:
            bound = self.mean - self._radius(failure_rate, anytime)
        return max(bound, self.low)

    def interval(self, failure_rate: float, *, anytime: bool = False) -> tuple[float, float]:
        """Both bounds, each with half of the failure rate; see `upper`."""
        half = check_rate("failure_rate", failure_rate) / 2
        return self.lower(half, anytime=anytime), self.upper(half, anytime=anytime)

    def _radius(self, failure_rate: float, anytime: bool) -> float:
        """How far a mean of bounded values strays to one side.

        Hoeffding: range sqrt(log(1/f) / 2n). Maurer and Pontil (2009, theorem 4), with s² the
        sample variance: sqrt(2 s² log(2/f) / n) + 7 range log(2/f) / (3 (n - 1)). For looks at any
        time the look after n rows may use f / (n (n + 1)) of the rate, which sums to f.
        """
        n, rate, width = self.num_rows, check_rate("failure_rate", failure_rate), self._width
        log_rate = math.log(1 / rate) + (math.log(n * (n + 1.0)) if anytime else 0.0)
        if self.method == "hoeffding":
            return width * math.sqrt(log_rate / (2 * n))
        if n == 1:
            return width
        total = sum(block.total for block in self._blocks.values())
        squares = sum(block.squares for block in self._blocks.values())
        variance = max(squares - total**2 / n, 0.0) / (n - 1)
        log_rate += math.log(2)
        return math.sqrt(2 * variance * log_rate / n) + 7 * width * log_rate / (3 * (n - 1))

    @property
    def _width(self) -> float:
        return self.high - self.low

    def _check_range(self, chunk: FloatArray, row: int) -> None:
        # A NaN makes both comparisons false.
        if not len(chunk) or (chunk.min() >= self.low and chunk.max() <= self.high):
            return
        at = int(np.argmax(~((chunk >= self.low) & (chunk <= self.high))))
        raise ValueError(
            f"values[{row + at}] is {chunk[at].item()!r}; expected a number in "
            f"[{self.low}, {self.high}], the range that was stated."
        )

    def _complete_blocks(self) -> list[Block]:
        """The blocks in the order of the stream, once it is known that no row is missing."""
        self._check_complete()
        return [self._blocks[index] for index in sorted(self._blocks)]

    def _check_complete(self) -> None:
        if not self._end:
            raise ValueError("no rows were read; expected at least one.")
        sizes = {i: min(block_start(i + 1), self._end) - block_start(i) for i in self._blocks}
        wrong = [i for i, size in sizes.items() if self._blocks[i].count != size]
        if wrong or self.num_rows != self._end:
            raise ValueError(
                f"{self.num_rows} rows were read but the last one is at position {self._end - 1}; "
                f"expected every position exactly once (merge all shards, give each its own start)."
            )


def _fed_once(values: ArrayLike, low: float, high: float, method: MeanMethod) -> BoundedMean:
    stream = BoundedMean(low, high, method)
    stream.update(values)
    return stream
